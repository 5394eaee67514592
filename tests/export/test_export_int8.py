"""int8: the file computes what the rounded program means, and says what changed."""

import shutil
import sys

import numpy as np
import pytest
from command_line import here
from exported_models import Shared, compile_c, in_node, link

import ganglion as keras
from ganglion import layers
from ganglion.compiler import reference
from ganglion.compiler.cpu import jit
from ganglion.export import export_model
from ganglion.export.inference import inference_of
from ganglion.export.quantized import calibrated


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(4)
    return keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            layers.Conv2D(20, 3, activation="relu"),
            layers.DepthwiseConv2D(3),
            layers.GlobalAveragePooling2D(),
            layers.Dense(4, activation="softmax"),
        ],
        name="tiny",
    )


@pytest.fixture(scope="module")
def rows():
    x = np.random.default_rng(5).normal(size=(40, 8, 8, 3)).astype("float32")
    return x, np.arange(40) % 4


def test_products_are_of_whole_numbers_within_a_byte(model, rows):
    calibration = calibrated(model, rows)
    inference, told = calibration.rounded(inference_of(model)), calibration.effect
    products = [
        node
        for node in inference.program.graph.nodes
        if node.op.name in ("conv", "matmul")
    ]
    assert len(products) == 3
    for node in products:
        weights = node.inputs[1].array
        assert np.array_equal(weights, np.rint(weights))
        largest = np.abs(weights).max(axis=tuple(range(weights.ndim - 1)))
        assert np.all(largest == 127)  # of every channel
    assert "accuracy" in told
    assert "on 40 rows" in told


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not here")
def test_the_file_has_a_byte_a_weight_and_the_same_results(model, rows, tmp_path):
    told = export_model(model, tmp_path / "q.c", int8=True, sample=rows, weights="file")
    assert "int8: accuracy" in str(told)
    export_model(model, tmp_path / "f.c", weights="file")
    small, large = (
        (tmp_path / f"{name}.weights").stat().st_size for name in ("q", "f")
    )
    assert small < 0.5 * large
    data = (tmp_path / "q.weights").read_bytes()
    shared = Shared(compile_c(tmp_path / "q.c"), "q", model, data)
    x = rows[0][:5]
    expected = model.predict(x, verbose=0)
    (result,) = shared.predict([x], [expected])
    np.testing.assert_allclose(result, meant(model, rows, x), atol=1e-5)
    assert np.abs(result - expected).max() < 0.05
    assert np.any(result != expected)


def meant(model, rows, x):
    """Return what the rounded program is by definition."""
    inference = calibrated(model, rows).rounded(inference_of(model))
    compiled = reference.compile(inference.program)
    runs = [compiled.run({"input": row[None]}, {}, 1)["output/0"] for row in x]
    return np.concatenate([results[0] for results in runs])


@pytest.mark.skipif(
    shutil.which("ld") is None or sys.platform != "linux", reason="ld is not here"
)
@pytest.mark.parametrize("target", ["native", "x86-64-avx2"])
def test_machine_code_has_a_byte_a_weight(model, rows, target, tmp_path):
    if target != "native" and jit.family() != "x86":
        pytest.skip("for x86-64")
    told = export_model(
        model, tmp_path / "q.o", int8=True, sample=rows, weights="file", target=target
    )
    assert "int8: accuracy" in str(told)
    weights = (tmp_path / "q.weights").read_bytes()
    # The rest are a scale and a bias a channel, each with a line of memory to itself.
    assert len(weights) < model.count_params() + 2 * 4 * (20 + 20 + 4) + 64 * 16
    shared = Shared(link(tmp_path / "q.o"), "q", model, weights)
    x = np.resize(rows[0], (70, 8, 8, 3))
    outputs = [np.empty((70, 4), np.float32)]
    for batch in (False, True):
        (result,) = shared.predict([x], outputs, batch)
        np.testing.assert_allclose(result, meant(model, rows, x), atol=1e-5)


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not here")
def test_webassembly_has_a_byte_a_weight(model, rows, tmp_path):
    wide = keras.Sequential([keras.Input((40,)), layers.Dense(200), layers.Dense(4)])
    x = np.random.default_rng(6).normal(size=(20, 40)).astype("float32")
    export_model(wide, tmp_path / "f.wasm")
    told = export_model(wide, tmp_path / "q.wasm", int8=True, sample=x)
    assert "rows keep their class" in str(told)
    sizes = [(tmp_path / f"{name}.wasm").stat().st_size for name in "fq"]
    assert sizes[0] - sizes[1] > 2 * wide.count_params()
    flat = [[row.tolist()] for row in x[:3]]
    (result,) = in_node(tmp_path / "q.wasm", flat)
    np.testing.assert_allclose(result, meant(wide, x, x[:3]), atol=1e-4)


def test_the_command_takes_a_sample_file(model, rows, tmp_path):
    model.save(tmp_path / "m.keras")
    np.savez(tmp_path / "s.npz", x=rows[0], y=np.eye(4)[rows[1]])
    words = ("export", tmp_path / "m.keras", tmp_path / "m.c", "--int8")
    done = here(*words, "--sample", tmp_path / "s.npz")
    assert done.returncode == 0, done.stderr
    assert "int8: accuracy" in done.stderr
    np.save(tmp_path / "s.npy", rows[0])
    done = here(*words, "--sample", tmp_path / "s.npy")
    assert "rows keep their class" in done.stderr
    refused = here(*words)
    assert "int8 needs a sample" in refused.stderr


def test_bad_samples_are_refused(model, rows, tmp_path):
    path = tmp_path / "a.c"
    x, y = rows
    with pytest.raises(ValueError, match=r"shape \(40, 3\), the input"):
        export_model(model, path, int8=True, sample=x[:, 0, 0])
    with pytest.raises(ValueError, match="40 rows and 3 labels"):
        export_model(model, path, int8=True, sample=(x, y[:3]))
    with pytest.raises(ValueError, match="A sample is for int8"):
        export_model(model, path, sample=x)
    with pytest.raises(ValueError, match="has no option int8"):
        export_model(model, tmp_path / "a.onnx", int8=True, sample=x)
    (tmp_path / "s.npz").write_bytes(b"not at all")
    with pytest.raises(ValueError, match=r"not a \.npy or \.npz file"):
        export_model(model, path, int8=True, sample=str(tmp_path / "s.npz"))
    np.savez(tmp_path / "t.npz", z=x)
    with pytest.raises(ValueError, match="no array input: it has z"):
        export_model(model, path, int8=True, sample=tmp_path / "t.npz")
    lookup = keras.Sequential([keras.Input((2,)), layers.Rescaling(2.0)])
    with pytest.raises(ValueError, match="nothing to round to int8"):
        export_model(lookup, path, int8=True, sample=np.ones((3, 2)))
    assert {p.name for p in tmp_path.iterdir()} == {"s.npz", "t.npz"}
