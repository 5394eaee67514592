"""`load_onnx` of If, Loop and Scan: built as what they compute, or refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_runs
import pytest

import ganglion as keras

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
helper = onnx.helper
FLOAT, INT64, BOOL = (getattr(onnx.TensorProto, n) for n in ("FLOAT", "INT64", "BOOL"))


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    names = ["" if name == "-" else name for name in inputs.split()]
    return helper.make_node(op, names, outputs.split(), **attributes)


def values(**kinds: int) -> list[Any]:
    shapes = {INT64: [], BOOL: [], FLOAT: None}
    return [
        helper.make_tensor_value_info(name, kind, shapes[kind])
        for name, kind in kinds.items()
    ]


def graph(nodes: list[Any], inputs: Any, outputs: Any, **arrays: Any) -> Any:
    constants = [onnx.numpy_helper.from_array(np.asarray(a), n)
                 for n, a in arrays.items()]  # fmt: skip
    return helper.make_graph(nodes, "inner", inputs, outputs, constants)


def saved(folder: Path, nodes: list[Any], shape: list[Any], **arrays: Any) -> Path:
    x = [helper.make_tensor_value_info("x", FLOAT, shape)]
    proto = helper.make_model(
        graph(nodes, x, values(y=FLOAT), **arrays),
        opset_imports=[helper.make_opsetid("", 18)], ir_version=8,
    )  # fmt: skip
    path = folder / "net.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def agrees(path: Path, x: np.ndarray) -> Any:
    model = keras.load_onnx(path)
    (expected,) = onnx_runs.run(path, [x])
    np.testing.assert_allclose(model.predict(x, verbose=0), expected, rtol=1e-5)
    return model


X = np.random.default_rng(0).normal(size=(3, 4)).astype("float32")
W = np.random.default_rng(1).normal(size=(4, 4)).astype("float32")


@pytest.mark.parametrize("taken", [True, False])
def test_a_branch_that_is_known(taken: bool, tmp_path: Path) -> None:
    branches = {
        name: graph([node(op, "x", name)], [], values(**{name: FLOAT}))
        for name, op in (("then_branch", "Relu"), ("else_branch", "Neg"))
    }
    path = saved(tmp_path, [node("If", "c", "y", **branches)], [None, 4], c=taken)
    agrees(path, X)


def test_a_branch_by_the_data_is_refused(tmp_path: Path) -> None:
    branch = graph([node("Relu", "x", "z")], [], values(z=FLOAT))
    nodes = [
        node("ReduceSum", "x", "s", keepdims=0),
        node("Greater", "s zero", "c"),
        node("If", "c", "y", then_branch=branch, else_branch=branch),
    ]
    path = saved(tmp_path, nodes, [2, 4], zero=np.float32(0))
    with pytest.raises(ValueError, match="If 'y' cannot be built: its condition dep"):
        keras.load_onnx(path)


def looped(**ends: Any) -> Any:
    """x = relu(x W + b), step after step; and each of them, with its number added."""
    nodes = [
        node("MatMul", "h w", "product"),
        node("Add", "product bias", "moved"),
        node("Relu", "moved", "next"),
        node("Cast", "step", "number", to=FLOAT),
        node("Add", "next number", "seen"),
        *ends.get("more", [node("Identity", "going", "still")]),
    ]
    inputs = values(step=INT64, going=BOOL, h=FLOAT)
    bias = np.arange(4, dtype="float32")
    return graph(nodes, inputs, values(still=BOOL, next=FLOAT, seen=FLOAT), bias=bias)


def test_a_loop_of_known_length_shares_its_weights(tmp_path: Path) -> None:
    nodes = [
        node("Loop", "steps - x", "last every", body=looped()),
        node("ReduceSum", "every axes", "total", keepdims=0),
        node("Add", "last total", "y"),
    ]
    axes = np.array([0])
    path = saved(tmp_path, nodes, [None, 4], steps=np.int64(3), w=0.1 * W, axes=axes)
    model = agrees(path, X)
    assert [weight.shape for weight in model.trainable_weights] == [(4, 4), (4,)]
    model.compile("sgd", "mse")
    before = model.get_weights()[0].copy()
    model.fit(X, X, verbose=0)
    assert np.any(model.get_weights()[0] != before)


def test_a_loop_that_ends_at_a_known_step(tmp_path: Path) -> None:
    more = [node("Less", "step two", "still")]
    nodes = [node("Loop", "steps yes x", "y every", body=looped(more=more))]
    path = saved(
        tmp_path, nodes, [None, 4], steps=np.int64(9), w=W, two=np.int64(2), yes=True
    )
    agrees(path, X)


@pytest.mark.parametrize(
    ("steps", "more", "reason"),
    [
        ("-", None, "it has no number of steps, only a condition"),
        ("steps", "data", "its condition depends on the data"),
        ("many", None, "too many"),
    ],
)
def test_other_loops_are_refused(
    steps: str, more: str | None, reason: str, tmp_path: Path
) -> None:
    ends = {} if more is None else {"more": [
        node("ReduceSum", "next", "sum", keepdims=0),
        node("Less", "sum limit", "still"),
    ]}  # fmt: skip
    nodes = [node("Loop", f"{steps} yes x", "y every", body=looped(**ends))]
    path = saved(
        tmp_path, nodes, [2, 4], steps=np.int64(3), w=W, yes=True,
        limit=np.float32(5), many=np.int64(10**12),
    )  # fmt: skip
    with pytest.raises(ValueError, match=reason):
        keras.load_onnx(path)


@pytest.mark.parametrize("backwards", [0, 1])
def test_a_scan(backwards: int, tmp_path: Path) -> None:
    body = graph(
        [node("MatMul", "h w", "p"), node("Add", "p part", "n"),
         node("Tanh", "n", "state"), node("Identity", "state", "out")],
        values(h=FLOAT, part=FLOAT), values(state=FLOAT, out=FLOAT),
    )  # fmt: skip
    nodes = [
        node("Gather", "x first", "start", axis=1),
        node(
            "Scan", "start x", "last y", body=body, num_scan_inputs=1,
            scan_input_axes=[1], scan_input_directions=[backwards],
            scan_output_axes=[1], scan_output_directions=[backwards],
        ),
    ]  # fmt: skip
    path = saved(tmp_path, nodes, [None, 5, 4], w=W, first=np.int64(0))
    x = np.random.default_rng(2).normal(size=(3, 5, 4)).astype("float32")
    agrees(path, x)
    path = saved(tmp_path, nodes, [2, None, 4], w=W, first=np.int64(0))
    with pytest.raises(ValueError, match="Scan 'last' cannot be built: how many steps"):
        keras.load_onnx(path)


def test_operators_inside_are_named(tmp_path: Path) -> None:
    branch = graph([node("Unheard", "x", "z")], [], values(z=FLOAT))
    both = {"then_branch": branch, "else_branch": branch}
    path = saved(tmp_path, [node("If", "c", "y", **both)], [2, 4], c=True)
    with pytest.raises(ValueError, match=r"no layer here covers: Unheard \(2×\)"):
        keras.load_onnx(path)
