"""`load_onnx`: what others wrote predicts the same, trains, and does no harm."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx_runs
import pytest
from exported_models import made, rows_for
from folders import PACKAGE

import ganglion as keras
from ganglion import layers
from ganglion.export import export_model

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
helper = onnx.helper
FLOAT = onnx.TensorProto.FLOAT
TOLERANCE = 1e-4


def saved(
    folder: Path,
    nodes: list[Any],
    inputs: dict[str, Any],
    outputs: list[str],
    weights: dict[str, np.ndarray] | None = None,
    opset: int = 18,
) -> Path:
    """Write a file of some nodes; a None in a shape is the batch."""
    ends = [
        helper.make_tensor_value_info(
            name, FLOAT, ["batch" if size is None else size for size in shape]
        )
        for name, shape in inputs.items()
    ]
    results = [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs]
    arrays = [onnx.numpy_helper.from_array(a, n) for n, a in (weights or {}).items()]
    graph = helper.make_graph(nodes, "net", ends, results, arrays)
    path = folder / "net.onnx"
    versions = [helper.make_opsetid("", opset)]
    path.write_bytes(
        helper.make_model(
            graph, opset_imports=versions, ir_version=8
        ).SerializeToString()
    )
    return path


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


# ---- the same numbers ----------------------------------------------------------------

# The cases that ONNX ships for its operators are run for these.
_OPERATORS = {
    "Add", "AveragePool", "BatchNormalization", "Clip", "Concat", "Conv", "CumSum",
    "ConvTranspose", "DepthToSpace", "Einsum", "Elu", "Flatten", "GRU", "Gather",
    "Gelu", "Gemm", "GlobalAveragePool", "HardSigmoid", "InstanceNormalization",
    "LSTM", "LayerNormalization", "LeakyRelu", "LogSoftmax", "MatMul", "MaxPool",
    "Mean", "Mod", "PRelu", "Pad", "RNN", "ReduceL2", "ReduceMean", "Reshape", "Selu",
    "Slice", "Softmax", "SpaceToDepth", "Split", "Squeeze", "Sum", "Tile", "Transpose",
    "Unsqueeze", "Where",
}  # fmt: skip
# Their names, and why they differ: rounding to 16 bits, and printed with four digits.
_OTHERS = ("bfloat16", "ceil_last_window_starts_on_pad", "empty_set")


def shipped_cases() -> list[Any]:
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = collect_testcases(None)
    chosen = []
    for case in cases:
        first = case.data_sets[0][0][:1]
        is_plain = all(isinstance(a, np.ndarray) and a.dtype == "f4" for a in first)
        is_known = {node.op_type for node in case.model.graph.node} <= _OPERATORS
        if is_known and is_plain and first and first[0].ndim:
            chosen.append(case)
    return [case for case in chosen if not any(word in case.name for word in _OTHERS)]


def check_shipped(case: Any, folder: Path) -> bool:
    """Return whether a case is supported; compare what it gives with what it should."""
    model, (inputs, outputs) = case.model, case.data_sets[0]
    names = [port.name for port in model.graph.input]
    proto = onnx.ModelProto()
    proto.CopyFrom(model)
    for name, array in list(zip(names, inputs, strict=False))[1:]:
        proto.graph.initializer.append(
            onnx.numpy_helper.from_array(np.asarray(array), name)
        )
    path = folder / "case.onnx"
    path.write_bytes(proto.SerializeToString())
    try:
        loaded = keras.load_onnx(path)
    except ValueError:
        return False
    results = keras.tree.flatten(loaded(inputs[0], training=False))
    for result, wanted in zip(results, outputs, strict=True):
        np.testing.assert_allclose(result, wanted, rtol=TOLERANCE, atol=1e-5)
    return True


@pytest.mark.more  # collecting them takes seconds
def test_the_cases_that_onnx_ships(tmp_path: Path) -> None:
    cases = shipped_cases()
    supported = [check_shipped(case, tmp_path) for case in cases]
    assert sum(supported) > 0.8 * len(cases) > 100


def whole(*numbers: int) -> np.ndarray:
    return np.array(numbers, "int64")


# Operators on x (batch, 2, 6, 5), with their weights.
SINGLE: dict[str, tuple[Any, list[np.ndarray]]] = {
    "groups": (("Conv", {"group": 2, "dilations": [2, 1]}), [drawn(4, 1, 2, 3)]),
    "border": (("Conv", {"pads": [0, 1, 2, 0]}), [drawn(4, 2, 2, 3), drawn(4)]),
    "same": (("Conv", {"auto_pad": "SAME_LOWER", "strides": [2, 1]}),
             [drawn(4, 2, 2, 2)]),
    "transposed": (
        ("ConvTranspose",
         {"strides": [2, 2], "pads": [1, 0, 0, 1], "output_padding": [1, 0]}),
        [drawn(2, 3, 3, 3)],
    ),
    "narrow": (("ConvTranspose", {"strides": [3, 2]}), [drawn(2, 3, 2, 1)]),
    "maximum": (("MaxPool", {"kernel_shape": [3, 2], "strides": [2, 2],
                             "pads": [1, 0, 1, 1], "ceil_mode": 1}), []),
    "average": (("AveragePool", {"kernel_shape": [3, 3], "strides": [2, 2],
                                 "pads": [1, 1, 1, 1]}), []),
    "border counts": (("AveragePool", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1],
                                       "count_include_pad": 1}), []),
    "same border counts": (
        ("AveragePool", {"kernel_shape": [3, 2], "auto_pad": "SAME_UPPER",
                         "count_include_pad": 1}), [],
    ),
    "batch norm": (("BatchNormalization", {"epsilon": 0.1}),
                   [drawn(2), drawn(2), drawn(2), np.abs(drawn(2))]),
    "layer norm": (("LayerNormalization", {"axis": 2}), [drawn(6, 5), drawn(6, 5)]),
    "instance norm": (("InstanceNormalization", {}), [drawn(2), drawn(2)]),
    "slopes": (("PRelu", {}), [drawn(2, 1, 1)]),
    "old clip": (("Clip", {}), [np.float32(-0.5), np.float32(0.5)]),
    "product": (("MatMul", {}), [drawn(5, 3)]),
    "stacked product": (("MatMul", {}), [drawn(2, 5, 3)]),
    "left weight": (("Sub", {}), [drawn(5)]),
    "reshape": (("Reshape", {}), [whole(0, -1, 3)]),
    "rows": (("Reshape", {}), [whole(-1, 5)]),
    "flatten": (("Flatten", {"axis": 2}), []),
    "transpose": (("Transpose", {"perm": [0, 2, 3, 1]}), []),
    "slice": (("Slice", {}), [whole(1, -1), whole(5, -9), whole(2, 3), whole(2, -1)]),
    "pad": (("Pad", {"mode": "edge"}), [whole(0, 0, 1, 2, 0, 0, 0, 1)]),
    "expand": (("Expand", {}), [whole(3, 1, 2, 6, 5)]),
    "mean": (("ReduceMean", {"keepdims": 0}), [whole(1, 3)]),
    "norm": (("ReduceL2", {}), [whole(2)]),
    "resize": (("Resize", {"mode": "linear"}),
               [np.zeros(0, "f4"), np.array([1, 1, 2, 3], "f4")]),
    "depth": (("SpaceToDepth", {"blocksize": 1}), []),
    "softmax": (("Softmax", {"axis": 1}), []),
    "hard": (("HardSigmoid", {"alpha": 0.3}), []),
    "selu": (("Selu", {}), []),
}  # fmt: skip


@pytest.mark.parametrize("name", SINGLE)
def test_one_operator(name: str, tmp_path: Path) -> None:
    (op, attributes), arrays = SINGLE[name]
    weights = {f"w{n}": np.asarray(array) for n, array in enumerate(arrays)}
    path = saved(
        tmp_path,
        [node(op, " ".join(["x", *weights]), "y", **attributes)],
        {"x": (None, 2, 6, 5)},
        ["y"],
        weights,
    )
    model = keras.load_onnx(path)
    x = drawn(3, 2, 6, 5, seed=9)
    (expected,) = onnx_runs.run(path, [x])
    result = model(x, training=False)
    np.testing.assert_allclose(result, expected, rtol=TOLERANCE, atol=1e-5)


@pytest.mark.parametrize("fmod", [0, 1])
def test_a_remainder_of_constants_has_the_sign_of_its_mode(
    fmod: int, tmp_path: Path
) -> None:
    path = saved(
        tmp_path,
        [node("Mod", "a b", "c", fmod=fmod), node("Add", "x c", "y")],
        {"x": (None, 2)},
        ["y"],
        {"a": np.array([-3.0, 5.0], "f4"), "b": np.array([2.0, -3.0], "f4")},
    )
    rest = [-1.0, 2.0] if fmod else [1.0, -1.0]
    result = keras.load_onnx(path)(np.zeros((1, 2), "f4"))
    np.testing.assert_allclose(result, [rest])


def test_a_transposed_convolution_over_steps(tmp_path: Path) -> None:
    nodes = [node("ConvTranspose", "x w", "y", strides=[2], pads=[1, 2])]
    path = saved(tmp_path, nodes, {"x": (None, 2, 5)}, ["y"], {"w": drawn(2, 3, 4)})
    x = drawn(3, 2, 5, seed=1)
    (expected,) = onnx_runs.run(path, [x])
    result = keras.load_onnx(path)(x)
    np.testing.assert_allclose(result, expected, rtol=TOLERANCE, atol=1e-5)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(("op", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_recurrent_operators(
    op: str, gates: int, direction: str, tmp_path: Path
) -> None:
    ways, units = 1 + (direction == "bidirectional"), 3
    weights = {
        "w": drawn(ways, gates * units, 4),
        "r": drawn(ways, gates * units, units, seed=1),
        "b": drawn(ways, 2 * gates * units, seed=2),
    }
    more: dict[str, Any] = {"linear_before_reset": 1} if op == "GRU" else {}
    outputs = "y h c" if op == "LSTM" else "y h"
    recurrent = node(
        op, "x w r b", outputs, hidden_size=units, direction=direction, **more
    )
    path = saved(tmp_path, [recurrent], {"x": (7, None, 4)}, outputs.split(), weights)
    model = keras.load_onnx(path)
    x = drawn(7, 2, 4)
    results = model(x)
    for result, expected in zip(results, onnx_runs.run(path, [x]), strict=True):
        np.testing.assert_allclose(result, expected, rtol=TOLERANCE, atol=1e-5)


@pytest.mark.parametrize("name", ["efficient", "transformer", "odds", "lstm"])
def test_our_own_files_come_back(name: str, tmp_path: Path) -> None:
    model = made(name)
    export_model(model, tmp_path / "m.onnx")
    loaded = keras.load_onnx(tmp_path / "m.onnx")
    arrays, expected = rows_for(model, 3)
    results = loaded(arrays if len(arrays) > 1 else arrays[0], training=False)
    for result, wanted in zip(keras.tree.flatten(results), expected, strict=True):
        np.testing.assert_allclose(result, wanted, atol=TOLERANCE)


def test_files_with_texts_are_refused(tmp_path: Path) -> None:
    export_model(made("text"), tmp_path / "m.onnx")
    with pytest.raises(ValueError, match="cannot be loaded: its tensor"):
        keras.load_onnx(tmp_path / "m.onnx")


def test_a_network_of_pytorch_in_pytorch(tmp_path: Path) -> None:
    """What PyTorch writes for a residual network with every kind of size in it."""
    weights = {
        "conv1.weight": drawn(4, 3, 3, 3),
        "bn1.weight": np.array([1.0, 0.5, 2.0, 1.5], "float32"),
        "bn1.bias": drawn(4, seed=1),
        "bn1.mean": drawn(4, seed=2),
        "bn1.var": np.array([1.0, 0.5, 2.0, 1.5], "float32"),
        "fc.weight": drawn(5, 4, seed=3),
        "fc.bias": drawn(5, seed=4),
        "zero": np.array(0, "int64"),
        "axis": np.array([0], "int64"),
        "rest": np.array([-1], "int64"),
    }
    norm = "bn1.weight bn1.bias bn1.mean bn1.var"
    nodes = [
        node("Conv", "x conv1.weight", "c", pads=[1, 1, 1, 1], strides=[2, 2]),
        node("BatchNormalization", f"c {norm}", "n"),
        node("Relu", "n", "r"),
        node(
            "MaxPool", "r", "p", kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[1, 1]
        ),
        node("Add", "p r", "s"),
        node("GlobalAveragePool", "s", "g"),
        node("Shape", "g", "shape"),
        node("Gather", "shape zero", "rows"),
        node("Unsqueeze", "rows axis", "row"),
        node("Concat", "row rest", "flat", axis=0),
        node("Reshape", "g flat", "f"),
        node("Gemm", "f fc.weight fc.bias", "y", transB=1),
    ]
    path = saved(tmp_path, nodes, {"x": (None, 3, 9, 9)}, ["y"], weights)
    model = keras.load_onnx(path)
    assert model.input_shape == (None, 3, 9, 9)
    assert [layer.name for layer in model.layers if layer.weights] == [
        "conv1",
        "bn1",
        "fc",
    ]
    for rows in (1, 4):
        x = drawn(rows, 3, 9, 9, seed=rows)
        (expected,) = onnx_runs.run(path, [x])
        np.testing.assert_allclose(
            model(x, training=False), expected, rtol=TOLERANCE, atol=1e-5
        )


def test_what_is_loaded_trains_and_is_saved(tmp_path: Path) -> None:
    """All weights are variables: kernels, those of norms, and loose ones."""
    weights = {
        "k": drawn(3, 2, 3),
        "scale": np.ones(3, "float32"),
        "shift": np.zeros(3, "float32"),
        "mean": np.zeros(3, "float32"),
        "var": np.ones(3, "float32"),
        "w": drawn(3, 2),
        "b": drawn(2),
        "factor": np.array([2.0, 3.0], "float32"),
    }
    nodes = [
        node("Conv", "x k", "c"),
        node("BatchNormalization", "c scale shift mean var", "n"),
        node("ReduceMean", "n", "r", axes=[2], keepdims=0),
        node("MatMul", "r w", "m"),
        node("Add", "m b", "a"),
        node("Mul", "a factor", "y"),
    ]
    path = saved(tmp_path, nodes, {"x": (None, 2, 8)}, ["y"], weights, opset=17)
    model = keras.load_onnx(path)
    x = drawn(16, 2, 8)
    (expected,) = onnx_runs.run(path, [x])
    np.testing.assert_allclose(
        model.predict(x, verbose=0), expected, rtol=1e-4, atol=1e-5
    )
    kinds = [type(layer).__name__ for layer in model.layers if layer.weights]
    assert kinds == ["Conv1D", "BatchNormalization", "Dense", "WeightedOp"]
    assert len(model.trainable_weights) == 6
    before = model.get_weights()
    model.compile("sgd", "mse")
    losses = model.fit(x, x[:, :, 0], epochs=3, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    after = model.get_weights()
    assert all(np.any(a != b) for a, b in zip(before, after, strict=True))
    model.save(tmp_path / "m.keras")
    again = keras.saving.load_model(tmp_path / "m.keras")
    np.testing.assert_allclose(
        again.predict(x, verbose=0), model.predict(x, verbose=0), rtol=1e-6
    )


def test_weights_of_two_nodes_are_one(tmp_path: Path) -> None:
    nodes = [
        node("MatMul", "x w", "a"),
        node("Tanh", "a", "t"),
        node("MatMul", "t w", "y"),
    ]
    path = saved(tmp_path, nodes, {"x": (None, 3)}, ["y"], {"w": drawn(3, 3)})
    model = keras.load_onnx(path)
    assert len(model.weights) == 1
    (expected,) = onnx_runs.run(path, [drawn(2, 3)])
    np.testing.assert_allclose(model(drawn(2, 3)), expected, rtol=1e-4, atol=1e-5)


def test_arrays_in_a_file_beside(tmp_path: Path) -> None:
    path = saved(tmp_path, [node("MatMul", "x w", "y")], {"x": (None, 3)}, ["y"],
                 {"w": drawn(3, 2)})  # fmt: skip
    model = onnx.load(path)
    onnx.save(model, path, save_as_external_data=True, location="w.bin",
              size_threshold=0)  # fmt: skip
    assert (tmp_path / "w.bin").exists()
    loaded = keras.load_onnx(path)
    np.testing.assert_array_equal(loaded.get_weights()[0], drawn(3, 2))


# ---- what is refused -----------------------------------------------------------------


def test_operators_that_are_not_known_are_all_named(tmp_path: Path) -> None:
    nodes = [
        node("NonZero", "x", "a"),
        node("Multinomial", "x", "b"),
        node("NonZero", "x", "c"),
        helper.make_node("Fancy", ["x"], ["y"], domain="org.example"),
    ]
    path = saved(tmp_path, nodes, {"x": (None, 3)}, ["y"])
    with pytest.raises(ValueError, match=r"Multinomial, NonZero \(2×\), org.*Fancy"):
        keras.load_onnx(path)


def one(op: str, inputs: str = "x", **attributes: Any) -> list[Any]:
    return [node(op, inputs, "y", **attributes)]


def external(location: str, **more: str) -> Any:
    """Return a tensor that lies elsewhere."""
    tensor = onnx.TensorProto(name="w", data_type=FLOAT, dims=[2, 2])
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in {"location": location, **more}.items():
        entry = tensor.external_data.add()
        entry.key, entry.value = key, value
    return tensor


def tensor(dims: list[int], raw: bytes = b"", kind: int = FLOAT) -> Any:
    return onnx.TensorProto(name="w", data_type=kind, dims=dims, raw_data=raw)


HOSTILE: dict[str, tuple[list[Any], Any, str]] = {
    "cycle": ([node("Add", "x b", "a"), node("Add", "a x", "b"), *one("Relu", "b")],
              None, "'b', which is not computed before"),
    "missing": (one("Add", "x nowhere"), None, "'nowhere', which is not computed"),
    "made twice": ([*one("Relu"), *one("Tanh")], None, "'y' twice"),
    "huge tensor": (one("Add", "x w"), tensor([2**31, 2**31]), "0 bytes, which do"),
    "negative size": (one("Add", "x w"), tensor([-4, 1], bytes(16)), "impossible"),
    "too many axes": (one("Add", "x w"), tensor([1] * 99, bytes(4)), "impossible"),
    "truncated": (one("Add", "x w"), tensor([2, 2], bytes(15)), "15 bytes"),
    "text": (one("Add", "x w"), tensor([2], b"", onnx.TensorProto.STRING), "type"),
    "outside": (one("Add", "x w"), external("../secret.bin"), "outside of the model"),
    "absolute": (one("Add", "x w"), external("/etc/passwd"), "outside of the model"),
    "a link": (one("Add", "x w"), external("link.bin"), "outside of the model"),
    "no such file": (one("Add", "x w"), external("none.bin"), "is not there"),
    "beyond": (one("Add", "x w"), external("w.bin", offset="8"), "which has 16"),
    "other length": (one("Add", "x w"), external("w.bin", length="8"), "needs 16"),
    "bad offset": (one("Add", "x w"), external("w.bin", offset="x"), "impossible"),
    "bomb of a constant": (
        [node("ConstantOfShape", "w", "c"), *one("Add", "x c")],
        onnx.numpy_helper.from_array(np.array([2**20, 2**20], "int64"), "w"),
        "asks for .* bytes for a constant",
    ),
    "doubled and doubled": (
        [node("Concat", "w w", "c0", axis=0),
         *(node("Concat", f"c{n} c{n}", f"c{n + 1}", axis=0) for n in range(40)),
         *one("Add", "x c40")],
        onnx.numpy_helper.from_array(np.ones(2, "float32"), "w"),
        "asks for .* bytes",
    ),
    "outer product": (
        [node("Unsqueeze", "w one", "a"), node("Transpose", "a", "b"),
         node("MatMul", "a b", "c"), *one("Add", "x c")],
        onnx.numpy_helper.from_array(np.ones(200_000, "float32"), "w"),
        "asks for .* bytes",
    ),
    "kernel of other channels": (
        one("Conv", "x w"),
        onnx.numpy_helper.from_array(np.ones((4, 7, 3), "float32"), "w"),
        "Conv 'y' cannot be built",
    ),
    "no stride": (
        one("Conv", "x w", strides=[0]),
        onnx.numpy_helper.from_array(np.ones((4, 2, 3), "float32"), "w"),
        "Conv 'y' cannot be built",
    ),
    "impossible reshape": (
        one("Reshape", "x w"),
        onnx.numpy_helper.from_array(np.array([-1, -1, 7], "int64"), "w"),
        "Reshape 'y' cannot be built",
    ),
    "constant output": (one("Identity", "w"), tensor([1], bytes(4)), "does not depend"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_by_its_name(name: str, tmp_path: Path) -> None:
    nodes, weight, reason = HOSTILE[name]
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(bytes(16))
    (folder / "w.bin").write_bytes(bytes(16))
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    path = saved(folder, nodes, {"x": (None, 2, 8)}, ["y"])
    model = onnx.load(path)
    one_axis = onnx.numpy_helper.from_array(np.array([1], "int64"), "one")
    model.graph.initializer.extend([one_axis, *([] if weight is None else [weight])])
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ValueError, match=reason) as caught:
        keras.load_onnx(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"nonsense", b"\x0a\xff\xff\xff\xff\x0f"])
def test_what_is_no_onnx_file_says_so(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.onnx"
    path.write_bytes(content)
    with pytest.raises(
        ValueError, match=r"x\.onnx cannot be loaded: it is not an ONNX file"
    ):
        keras.load_onnx(path)
    with pytest.raises(FileNotFoundError, match="no file"):
        keras.load_onnx(tmp_path / "none.onnx")


def test_an_old_opset_is_refused_with_the_way_out(tmp_path: Path) -> None:
    path = saved(tmp_path, one("Relu"), {"x": (None, 2)}, ["y"], opset=3)
    with pytest.raises(ValueError, match=r"opset 3.*version_converter"):
        keras.load_onnx(path)


def test_weighted_ops_are_layers() -> None:
    layer = layers.weighted.WeightedOp("subtract", (2,), weight_first=True)
    x = np.ones((1, 2), "float32")
    layer(x)
    layer.set_weights([np.array([3.0, 4.0], "float32")])
    np.testing.assert_array_equal(layer(x), [[2.0, 3.0]])
    again = type(layer).from_config(layer.get_config())
    assert (again.op, again.shape, again.weight_first) == ("subtract", (2,), True)
    script = "import ganglion; ganglion.saving.get_registered_object('%s').__name__"
    name = "ganglion>WeightedOp"  # which a file of a fresh process must find
    subprocess.run([sys.executable, "-c", script % name], check=True, env={
        "PYTHONPATH": str(PACKAGE.parent), "PATH": ""
    })  # fmt: skip
    with pytest.raises(ValueError, match="must be one of add, "):
        layers.weighted.WeightedOp("print", ())
