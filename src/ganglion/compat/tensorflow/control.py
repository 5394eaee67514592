"""Functions that call functions: `tf.scan`, `tf.map_fn`, `tf.while_loop`, `tf.case`."""

from __future__ import annotations

from typing import Any

from ganglion import ops, tree
from ganglion.compat.tensorflow.objects import TensorArray


def foldl(fn: Any, elems: Any, initializer: Any = None) -> Any:
    """Return what a function makes of the first two elements, and each next one."""
    steps = scan(fn, elems, initializer)
    return tree.map_structure(lambda step: step[-1], steps)


def foldr(fn: Any, elems: Any, initializer: Any = None) -> Any:
    """Return what a function makes of the last two elements, and each one before."""
    turned = tree.map_structure(lambda part: ops.flip(part, axis=0), elems)
    return foldl(fn, turned, initializer)


def scan(fn: Any, elems: Any, initializer: Any = None, reverse: bool = False) -> Any:
    """Return every stage of a function that takes its result and the next element."""
    if reverse:
        backward = tree.map_structure(lambda part: ops.flip(part, 0), elems)
        stages = scan(fn, backward, initializer)
        return tree.map_structure(lambda part: ops.flip(part, 0), stages)
    first = initializer
    if initializer is None:
        first = tree.map_structure(lambda part: part[0], elems)
        elems = tree.map_structure(lambda part: part[1:], elems)

    def step(carry: Any, element: Any) -> tuple[Any, Any]:
        after = fn(carry, element)
        return after, after

    _, stages = ops.scan(step, first, elems)
    if initializer is not None:
        return stages
    return tree.map_structure(
        lambda start, rest: ops.concatenate([ops.expand_dims(start, 0), rest], 0),
        first,
        stages,
    )


def switch_case(branch_index: Any, branch_fns: Any) -> Any:
    """Return what the function of this number gives, the last one without such."""
    count = len(branch_fns)
    index = ops.cast(branch_index, "int32")
    is_known_branch = ops.logical_and(
        ops.greater_equal(index, 0), ops.less(index, count)
    )
    return ops.switch(ops.where(is_known_branch, index, count - 1), list(branch_fns))


def map_fn(
    fn: Any,
    elems: Any,
    dtype: Any = None,
    infer_shape: bool = True,
    fn_output_signature: Any = None,
) -> Any:
    """Return a function's result for every row, in the requested type."""
    kinds = dtype if fn_output_signature is None else fn_output_signature
    results = ops.map(fn, elems)
    if kinds is None or isinstance(kinds, (list, tuple, dict)):
        return results
    kind = str(getattr(kinds, "dtype", kinds))
    return results if kind == "string" else ops.cast(results, kind)


def while_loop(
    cond: Any,
    body: Any,
    loop_vars: Any,
    shape_invariants: Any = None,
    maximum_iterations: Any = None,
) -> Any:
    """Return the state of a loop after its last step; shapes stay as they are."""
    if any(isinstance(each, TensorArray) for each in tree.flatten(loop_vars)):
        raise NotImplementedError(
            "tf.while_loop: a tf.TensorArray as a loop variable is not supported: it "
            "may grow. Collect what each step computes with tf.scan or tf.map_fn, or "
            "write it into a tensor with tf.tensor_scatter_nd_update."
        )
    return ops.while_loop(cond, body, loop_vars, maximum_iterations)


def case(
    pred_fn_pairs: Any,
    default: Any = None,
    exclusive: bool = False,
    strict: bool = False,
) -> Any:
    """Return what the function behind the first true condition gives."""
    pairs = list(
        pred_fn_pairs.items() if isinstance(pred_fn_pairs, dict) else pred_fn_pairs
    )
    if default is None:
        default = pairs.pop()[1]
    for condition, function in reversed(pairs):
        default = _conditional(condition, function, default)
    return default()


def _conditional(condition: Any, function: Any, otherwise: Any) -> Any:
    return lambda: ops.cond(condition, function, otherwise)
