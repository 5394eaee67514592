"""WebAssembly: run in node, it predicts what the model does."""

import shutil
import subprocess

import numpy as np
import pytest
from exported_models import in_node, made, rows_for
from folders import SUPPORT

import ganglion as keras
from ganglion import layers
from ganglion.export import export_model
from ganglion.export.targets import WASM
from ganglion.export.wasm_file import finished, unsigned

has_node = pytest.mark.skipif(shutil.which("node") is None, reason="node is not here")
more = pytest.mark.more


def check(model, path, rows=3):
    arrays, expected = rows_for(model, rows)
    flat = [
        [array[i : i + 1].reshape(-1).tolist() for array in arrays] for i in range(rows)
    ]
    for result, wanted in zip(in_node(path, flat), expected, strict=True):
        wanted = wanted.reshape(rows, -1)
        np.testing.assert_allclose(result, wanted, atol=1e-4, rtol=0)


@has_node
@pytest.mark.parametrize(
    "name",
    ["odds", "text", *(pytest.param(name, marks=more) for name in
     ("lstm", "transformer", "efficient", "cam", "cnn", "mlp"))],
)  # fmt: skip
def test_models_predict_the_same(name, tmp_path):
    model = made(name)
    export_model(model, tmp_path / f"{name}.wasm")
    check(model, tmp_path / f"{name}.wasm")


@more
@has_node
def test_efficientnet_lite0(tmp_path):
    model = keras.applications.EfficientNetLite0(weights=None)
    export_model(model, tmp_path / "lite.wasm")
    check(model, tmp_path / "lite.wasm", rows=1)


@has_node
def test_javascript_lends_its_functions_and_refuses_other_sizes(tmp_path):
    stack = [keras.Input((2,)), layers.Lambda(keras.ops.arctan)]
    path = tmp_path / "a.wasm"
    export_model(keras.Sequential(stack), path)
    ((row,),) = in_node(path, [[[1.0, -0.5]]])
    np.testing.assert_allclose(row, np.arctan([1.0, -0.5]), atol=1e-6)
    done = subprocess.run(
        ["node", str(SUPPORT / "run_wasm.mjs"), str(path)],
        input="[[[1, 2, 3]]]", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "input: 2 numbers, got 3" in done.stderr


@has_node
def test_rows_come_as_lists_of_any_shape(tmp_path):
    entries = [keras.Input((2, 1)), keras.Input(())]
    rest = keras.ops.mod(entries[0][..., 0], 0.3) + entries[1][:, None]
    path = tmp_path / "a.wasm"
    export_model(keras.Model(entries, rest), path)
    rows = [[[[1.0], [-0.5]], 2.0], [[1.0, -0.5], [2.0]]]
    (results,) = in_node(path, rows)
    np.testing.assert_allclose(results, [np.mod([1.0, -0.5], 0.3) + 2] * 2, atol=1e-6)
    with pytest.raises(AssertionError, match="2 inputs, got 1"):
        in_node(path, [[[1.0, -0.5]]])


def test_what_javascript_has_not_is_refused(tmp_path):
    stack = [keras.Input((2,)), layers.Lambda(keras.ops.erfc)]
    with pytest.raises(ValueError, match="erfcf, which WebAssembly and JavaScript"):
        export_model(keras.Sequential(stack), tmp_path / "a.wasm")
    assert not list(tmp_path.iterdir())


def test_only_objects_are_finished():
    with pytest.raises(ValueError, match="not a WebAssembly object file"):
        finished(b"\x7fELF", [], [], 0, 0, {})
    assert unsigned(2**32 - 1) == b"\xff\xff\xff\xff\x0f"
    assert WASM.pointer == 32
