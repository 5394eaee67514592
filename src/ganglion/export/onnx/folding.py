"""Constant folding: the arithmetic of shapes that files do at run time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ganglion.export.onnx.parsing import DTYPES, OnnxNode
from ganglion.system import budget

if TYPE_CHECKING:
    from ganglion.export.onnx.importer import Importer

# Replaces a size that is not known; a power of two, so that floats hold it, too.
UNKNOWN = -(2**62)
_SMALL = 64  # elements of a vector of sizes, at most


def has_unknown(array: np.ndarray) -> bool:
    """Return whether a size that is not known is among some numbers."""
    return (
        array.size <= _SMALL
        and array.dtype.kind in "if"
        and bool((array == UNKNOWN).any())
    )


def fold(f: Importer, node: OnnxNode, values: Sequence[Any]) -> list[Any] | None:
    """Return the results of a node that are known already, None for other nodes."""
    from ganglion.export.onnx.importer import Constant

    if node.op in ("Shape", "Size"):
        array = _shape(node, values[0])
        return None if array is None else [Constant(array)]
    if node.op in ("Constant", "ConstantOfShape"):
        return [Constant(_constant(node, values))]
    rule = _RULES.get(node.op)
    is_known = all(x is None or isinstance(x, Constant) for x in values)
    if rule is None or not values or not is_known:
        return None
    arrays = [None if x is None else x.array for x in values]
    size = sum(array.nbytes for array in arrays if array is not None)
    budget.take(size, f"what {node} gives")
    try:
        with np.errstate(all="ignore"):
            results = rule(f, node, arrays)
    except (ValueError, TypeError, IndexError, KeyError, ArithmeticError) as error:
        if isinstance(error, budget.BudgetError):
            raise
        raise ValueError(f"{node} cannot be computed: {error}") from None
    is_weight = node.op in _MOVING and any(x.is_weight for x in values if x is not None)
    results = results if isinstance(results, list) else [results]
    return [Constant(np.asarray(array), is_weight) for array in results]


def _shape(node: OnnxNode, value: Any) -> np.ndarray | None:
    sizes = [UNKNOWN if size is None else size for size in value.shape]
    if node.op == "Size":
        return None if UNKNOWN in sizes else np.array(math.prod(sizes), np.int64)
    start, end = node.attrs.get("start", 0), node.attrs.get("end")
    return np.array(sizes[start:end], np.int64)


def _constant(node: OnnxNode, values: Sequence[Any]) -> np.ndarray:
    attrs = node.attrs
    if node.op == "ConstantOfShape":
        sizes = values[0].array.tolist()
        filled = attrs.get("value", np.zeros(1, np.float32))
        if UNKNOWN in sizes:
            # A single row represents all: it is repeated where it is used.
            sizes = [1 if size == UNKNOWN else size for size in sizes]
        return _filled(sizes, filled.reshape(-1)[0])
    for name, dtype in (
        ("value_float", np.float32),
        ("value_floats", np.float32),
        ("value_int", np.int64),
        ("value_ints", np.int64),
    ):
        if name in attrs:
            return np.array(attrs[name], dtype)
    if "value" not in attrs:
        raise ValueError(f"{node} is not a constant of numbers.")
    return np.asarray(attrs["value"])


def _filled(sizes: Sequence[int], number: Any) -> np.ndarray:
    if any(size < 0 for size in sizes):
        raise ValueError(f"a shape of {sizes} cannot be")
    budget.take(math.prod(sizes) * number.dtype.itemsize, "a constant that it fills")
    return np.full(sizes, number)


Rule = Callable[["Importer", OnnxNode, Sequence[Any]], Any]


def _elementwise(function: Callable[..., Any]) -> Rule:
    def rule(f: Importer, node: OnnxNode, arrays: Sequence[Any]) -> np.ndarray:
        shape = np.broadcast_shapes(*(array.shape for array in arrays))
        budget.take(8 * math.prod(shape), "a constant that it computes")
        result = np.asarray(function(*arrays))
        unknown = np.zeros(shape, bool)
        for array in arrays:
            if has_unknown(array):
                unknown = unknown | (array == UNKNOWN)
        if unknown.any() and result.dtype.kind in "if":
            return np.where(unknown, np.array(UNKNOWN, result.dtype), result)
        return result

    return rule


def _reduced(function: np.ufunc) -> Callable[..., Any]:
    return lambda *arrays: function.reduce(np.broadcast_arrays(*arrays))


def _divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind == "f":
        return a / b
    if not np.all(b):
        raise ValueError("a division by zero")
    return np.trunc(a / b).astype(a.dtype)


def axes_of(node: OnnxNode, arrays: Sequence[Any]) -> Any:
    """Return the axes of a node: an attribute in old files, an input in new ones."""
    if "axes" in node.attrs:
        return node.attrs["axes"]
    if len(arrays) > 1 and arrays[1] is not None:
        axes = arrays[1]
        array = getattr(axes, "array", axes)
        return tuple(int(axis) for axis in np.asarray(array).reshape(-1))
    return None


def _squeeze(f: Importer, node: OnnxNode, arrays: Sequence[Any]) -> np.ndarray:
    return np.squeeze(arrays[0], axes_of(node, arrays))


def _unsqueeze(f: Importer, node: OnnxNode, arrays: Sequence[Any]) -> np.ndarray:
    return np.expand_dims(arrays[0], axes_of(node, arrays))


def slices_of(node: OnnxNode, arrays: Sequence[Any], rank: int) -> tuple[slice, ...]:
    """Return the slice of each axis that a Slice takes."""
    if "starts" in node.attrs:
        starts, ends = node.attrs["starts"], node.attrs["ends"]
        axes, steps = node.attrs.get("axes"), None
    else:
        starts, ends = arrays[1].tolist(), arrays[2].tolist()
        more = [*arrays[3:], None, None]
        axes = None if more[0] is None else more[0].tolist()
        steps = None if more[1] is None else more[1].tolist()
    axes = range(len(starts)) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    chosen = [slice(None)] * rank
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        if UNKNOWN in (start, step) or not step:
            raise ValueError("it slices by a size that is not known")
        is_whole = end == UNKNOWN or (step < 0 and end < -(2**31))
        chosen[axis] = slice(start, None if is_whole else end, step)
    return tuple(chosen)


def _slice(f: Importer, node: OnnxNode, arrays: Sequence[Any]) -> np.ndarray:
    return arrays[0][slices_of(node, arrays, arrays[0].ndim)]


def _expand(f: Importer, node: OnnxNode, arrays: Sequence[Any]) -> np.ndarray:
    x, sizes = arrays[0], arrays[1].tolist()
    sizes = [1 if size == UNKNOWN else size for size in sizes]
    shape = np.broadcast_shapes(x.shape, tuple(sizes))
    budget.take(math.prod(shape) * x.itemsize, "a constant that it repeats")
    return np.broadcast_to(x, shape).copy()


def _tile(f: Importer, node: OnnxNode, arrays: Sequence[Any]) -> np.ndarray:
    x, repeats = arrays[0], arrays[1].tolist()
    if UNKNOWN in repeats:
        raise ValueError("it repeats a constant by a size that is not known")
    budget.take(x.nbytes * math.prod(repeats), "a constant that it repeats")
    return np.tile(x, repeats)


def _range(f: Importer, node: OnnxNode, arrays: Sequence[Any]) -> np.ndarray:
    start, end, step = (array.item() for array in arrays)
    if UNKNOWN in (start, end, step) or not step:
        raise ValueError("it counts to a size that is not known")
    count = max(math.ceil((end - start) / step), 0)
    budget.take(8 * count, "numbers that it counts")
    return np.arange(start, end, step, dtype=arrays[0].dtype)


def _reshape(f: Importer, node: OnnxNode, arrays: Sequence[Any]) -> np.ndarray:
    x = arrays[0]
    sizes = node.attrs["shape"] if len(arrays) < 2 else arrays[1].tolist()
    zero = not node.attrs.get("allowzero", 0)
    known = [x.shape[i] if n == 0 and zero else n for i, n in enumerate(sizes)]
    return x.reshape([-1 if size == UNKNOWN else size for size in known])


def _cast(f: Importer, node: OnnxNode, arrays: Sequence[Any]) -> np.ndarray:
    dtype = DTYPES.get(node.attrs["to"])
    if dtype is None:
        raise ValueError("it casts to a type that is not supported")
    return arrays[0].astype(dtype)


def _split(f: Importer, node: OnnxNode, arrays: Sequence[Any]) -> list[np.ndarray]:
    sizes = sections_of(node, arrays, arrays[0].shape[node.attrs.get("axis", 0)])
    ends = np.cumsum(sizes)[:-1]
    return np.split(arrays[0], ends, axis=node.attrs.get("axis", 0))


def sections_of(node: OnnxNode, arrays: Sequence[Any], size: int) -> list[int]:
    """Return the sizes of the parts of a Split."""
    if "split" in node.attrs:
        return list(node.attrs["split"])
    if len(arrays) > 1 and arrays[1] is not None:
        return [int(n) for n in arrays[1]]
    count = len(node.outputs)
    each = -(-size // count)
    return [min(each, size - each * number) for number in range(count)]


def check_constant(node: OnnxNode, shapes: Sequence[Sequence[int]]) -> None:
    """Refuse to compute constants that are large, or by operators meant for data."""
    if node.op not in _SMALL_ONLY:
        raise ValueError(
            f"{node} computes with constants alone, which is not supported: simplify "
            "the file, with onnxsim say."
        )
    try:
        size = math.prod(np.broadcast_shapes(*map(tuple, shapes)))
    except ValueError as error:
        raise ValueError(f"{node} cannot be built: {error}") from None
    budget.take(16 * size, f"what {node} gives")


def _matmul(f: Importer, node: OnnxNode, arrays: Sequence[Any]) -> np.ndarray:
    left, right = arrays
    rows, columns = left.shape[:-1], right.shape[-1:] if right.ndim > 1 else ()
    stacks = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    size = math.prod([*stacks, *rows[-1:], *columns])
    budget.take(8 * size, "a product of constants")
    # A small file must not ask for hours.
    budget.take(size * left.shape[-1] // 1000, "a product of constants")
    return left @ right


def _cumsum(f: Importer, node: OnnxNode, arrays: Sequence[Any]) -> np.ndarray:
    if node.attrs.get("exclusive") or node.attrs.get("reverse"):
        raise ValueError("exclusive or reverse sums are not supported")
    return np.cumsum(arrays[0], axis=int(arrays[1].item()), dtype=arrays[0].dtype)


def _mod(f: Importer, node: OnnxNode, arrays: Sequence[Any]) -> np.ndarray:
    function = np.fmod if node.attrs.get("fmod") else np.mod
    result: np.ndarray = _elementwise(function)(f, node, arrays)
    return result


def _where(f: Importer, node: OnnxNode, arrays: Sequence[Any]) -> np.ndarray:
    shape = np.broadcast_shapes(*(array.shape for array in arrays))
    budget.take(8 * math.prod(shape), "a constant that it computes")
    return np.where(*arrays)


def _gather(f: Importer, node: OnnxNode, arrays: Sequence[Any]) -> np.ndarray:
    row = arrays[0].nbytes // max(arrays[0].shape[node.attrs.get("axis", 0)], 1)
    budget.take(row * arrays[1].size, "a constant that it gathers")
    return np.take(arrays[0], arrays[1].astype(np.int64), node.attrs.get("axis", 0))


def _transpose(f: Importer, node: OnnxNode, arrays: Sequence[Any]) -> np.ndarray:
    return np.transpose(arrays[0], node.attrs.get("perm"))


def _concat(f: Importer, node: OnnxNode, arrays: Sequence[Any]) -> np.ndarray:
    return np.concatenate(arrays, axis=node.attrs["axis"])


def _product(f: Importer, node: OnnxNode, arrays: Sequence[Any]) -> np.ndarray:
    axes, keep = axes_of(node, arrays), bool(node.attrs.get("keepdims", 1))
    if has_unknown(arrays[0]):
        return np.full([1] * arrays[0].ndim if keep else [], UNKNOWN, np.int64)
    return np.prod(arrays[0], axis=axes, keepdims=keep, dtype=arrays[0].dtype)


# Elementwise operators without a rule, that constants may go through.
_SMALL_ONLY = ("Relu", "Sigmoid", "Tanh", "Exp", "Log", "Erf", "Sign", "Round", "Sin",
               "Cos", "Reciprocal", "Clip", "LeakyRelu", "Softplus", "GreaterOrEqual",
               "LessOrEqual", "Xor")  # fmt: skip
_MOVING = ("Identity", "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Slice", "Cast",
           "Split", "Concat")  # fmt: skip
_RULES: dict[str, Rule] = {
    "Identity": lambda f, node, arrays: arrays[0],
    "Add": _elementwise(np.add),
    "Sub": _elementwise(np.subtract),
    "Mul": _elementwise(np.multiply),
    "Div": _elementwise(_divide),
    "Neg": _elementwise(np.negative),
    "Abs": _elementwise(np.abs),
    "Floor": _elementwise(np.floor),
    "Ceil": _elementwise(np.ceil),
    "Sqrt": _elementwise(np.sqrt),
    "Pow": _elementwise(lambda a, b: np.power(a, b.astype(a.dtype))),
    "Mod": _mod,
    "Equal": _elementwise(np.equal),
    "Greater": _elementwise(np.greater),
    "Less": _elementwise(np.less),
    "Not": _elementwise(np.logical_not),
    "And": _elementwise(np.logical_and),
    "Or": _elementwise(np.logical_or),
    "Where": _where,
    "Max": _elementwise(_reduced(np.maximum)),
    "Min": _elementwise(_reduced(np.minimum)),
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Slice": _slice,
    "Gather": _gather,
    "MatMul": _matmul,
    "CumSum": _cumsum,
    "Concat": _concat,
    "Cast": _cast,
    "Reshape": _reshape,
    "Transpose": _transpose,
    "Expand": _expand,
    "Tile": _tile,
    "Range": _range,
    "Split": _split,
    "ReduceProd": _product,
}
