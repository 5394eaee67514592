"""Gradients in a user's own code: tapes, `grad`, `value_and_grad` and `backward`.

They work on tensors at once, and inside of a step or function that is traced, where
they become part of its graph. Either way it is the graph that is differentiated, so a
gradient can be differentiated again.

>>> import ganglion as keras
>>> x = keras.ops.convert_to_tensor(3.0)
>>> with GradientTape() as tape:
...     tape.watch(x)
...     y = x * x
>>> float(tape.gradient(y, x))
6.0
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ganglion import ops, tensors, tree
from ganglion.compiler.ir.gradient import backpropagate
from ganglion.compiler.ir.graph import (
    Constant,
    Node,
    Operators,
    Value,
    arrays_behind,
    next_number,
    register_operators,
)
from ganglion.compiler.ir.pointwise import add
from ganglion.compiler.ir.shaping import fill, is_float, reshape
from ganglion.ops.dispatch import astype, stretch
from ganglion.tensors import Recording, Tensor, as_tensor
from ganglion.variables import Variable, current_scope, read

__all__ = ["GradientTape", "grad", "value_and_grad"]

_UNCONNECTED = ("none", "zero")


def _forget_shared_calls() -> None:
    """Let calls of models be made again: a tape records only its own block."""
    scope = current_scope()
    if scope is not None:
        scope.shared_calls.clear()


class GradientTape:
    """Records what is computed in its block, to differentiate it: TensorFlow's tape.

    Trainable variables that are read are watched by themselves; other tensors have to
    be watched by `watch`. A persistent tape gives any number of gradients, others one.

    >>> import ganglion as keras
    >>> w = keras.Variable([1.0, 2.0])
    >>> with GradientTape() as tape:
    ...     loss = keras.ops.sum(w * w)
    >>> tape.gradient(loss, [w])
    [array([2., 4.], dtype=float32)]
    """

    def __init__(
        self, persistent: bool = False, watch_accessed_variables: bool = True
    ) -> None:
        self._recording: Recording | None = None
        self._watched: set[Variable] = set()
        self._spans: list[tuple[int, int | None]] = []  # the numbers of our nodes
        self._persistent = bool(persistent)
        self._watches_variables = bool(watch_accessed_variables)
        self._is_open = self._is_used = False

    # ---- recording -----------------------------------------------------------------

    def __enter__(self) -> GradientTape:
        if self._is_open:
            raise ValueError("This tape is recording already.")
        self._is_open = True
        self._outer = tensors.recording()
        if current_scope() is None:
            if self._recording is None:
                self._recording = self._outer or Recording()
            tensors.set_recording(self._recording)
        self._spans.append((next_number(), None))
        _forget_shared_calls()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_open = False
        _forget_shared_calls()
        self._spans.append((self._spans.pop()[0], next_number()))
        if current_scope() is None:
            tensors.set_recording(self._outer)

    @contextmanager
    def stop_recording(self) -> Iterator[None]:
        """Record nothing in this block."""
        if not self._is_open:
            raise ValueError("This tape is not recording.")
        self.__exit__()
        try:
            yield
        finally:
            self.__enter__()

    def reset(self) -> None:
        """Discard all that was recorded."""
        self._recording, self._watched, self._spans = None, set(), []
        if self._is_open:
            if current_scope() is None:
                self._recording = Recording()
                tensors.set_recording(self._recording)
            self._spans.append((next_number(), None))

    def watch(self, tensor: Any) -> None:
        """Record gradients with respect to this tensor, or each in a structure."""
        for leaf in tree.flatten(tensor):
            if isinstance(leaf, Variable):
                self._watched.add(leaf)
            elif isinstance(leaf, np.ndarray):
                scope = current_scope()
                if scope is not None and self._recording is None:
                    scope.watch(leaf)
                elif self._recording is None:
                    raise ValueError("`watch` belongs inside of the tape's block.")
                else:
                    self._recording.watch(leaf)
            elif not isinstance(leaf, Operators):
                raise ValueError(
                    f"A tape watches tensors and variables, not {leaf!r}: make it one "
                    "by `ops.convert_to_tensor`."
                )

    def watched_variables(self) -> tuple[Variable, ...]:
        """Return the variables that were read, for which there are gradients."""
        scope = current_scope()
        known: Any = scope.reads if scope is not None else ()
        if scope is None and self._recording is not None:
            known = self._recording.variables
        return tuple(variable for variable in known if self._watches(variable))

    def _watches(self, variable: Variable) -> bool:
        by_itself = self._watches_variables and variable.trainable
        return by_itself or variable in self._watched

    def _has_recorded(self, node: Node) -> bool:
        return any(
            start < node.number and (end is None or node.number < end)
            for start, end in self._spans
        )

    # ---- gradients -----------------------------------------------------------------

    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        unconnected_gradients: Any = "none",
    ) -> Any:
        """Return the gradient of a target by each source, in the sources' structure.

        Several targets, and their elements, are added up. A source that the target
        does not depend on has None, or zeros with ``unconnected_gradients="zero"``.
        """
        self._use()
        mode = str(getattr(unconnected_gradients, "value", unconnected_gradients))
        if mode not in _UNCONNECTED:
            raise ValueError(
                f"`unconnected_gradients` is 'none' or 'zero', not {mode!r}."
            )
        values = self._gradients(target, sources, output_gradients)
        results = self._numbers(target, values)
        if mode == "zero":
            leaves = tree.flatten(sources)
            results = [
                ops.zeros_like(leaf) if result is None else result
                for leaf, result in zip(leaves, results, strict=True)
            ]
        return tree.pack(sources, results)

    def jacobian(
        self,
        target: Any,
        sources: Any,
        unconnected_gradients: Any = "none",
        parallel_iterations: int | None = None,
        experimental_use_pfor: bool = True,
    ) -> Any:
        """Return the gradient of each element of a target, stacked along its axes.

        All rows are computed at once; the last two arguments are there for scripts.
        """
        self._use()
        shape = tuple(target.shape)
        size = int(np.prod(shape, dtype=np.int64))
        seeds = np.eye(size, dtype=np.dtype(target.dtype)).reshape(size, *shape)
        rows = [self._gradients(target, sources, [Constant(seed)]) for seed in seeds]
        results: list[Any] = []
        for source, parts in zip(
            tree.flatten(sources), zip(*rows, strict=True), strict=True
        ):
            if all(part is None for part in parts):
                is_zero = str(unconnected_gradients).lower().endswith("zero")
                kind = np.dtype(source.dtype)
                zeros = np.zeros((*shape, *source.shape), kind)
                results.append(Constant(zeros) if is_zero else None)
                continue
            like = next(part for part in parts if part is not None)
            filled = [fill(0, like) if part is None else part for part in parts]
            stacked = _joined(filled, (*shape, *like.shape))
            results.append(stacked)
        return tree.pack(sources, self._numbers(target, results))

    def batch_jacobian(
        self,
        target: Any,
        source: Any,
        unconnected_gradients: Any = "none",
        parallel_iterations: int | None = None,
        experimental_use_pfor: bool = True,
    ) -> Any:
        """Return the gradient of each element of a row, row by row of a batch."""
        self._use()
        rows, shape = target.shape[0], tuple(target.shape[1:])
        size = int(np.prod(shape, dtype=np.int64))
        kind = np.dtype(target.dtype)
        parts: list[Value | None] = []
        for number in range(size):
            seed = np.zeros((rows, size), kind)
            seed[:, number] = 1
            upstream = [Constant(seed.reshape(rows, *shape))]
            parts += self._gradients(target, source, upstream)
        like = next((part for part in parts if part is not None), None)
        if like is None:
            is_zero = str(unconnected_gradients).lower().endswith("zero")
            zeros = np.zeros((rows, *shape, *source.shape[1:]), kind)
            return self._numbers(target, [Constant(zeros) if is_zero else None])[0]
        filled = [fill(0, like) if part is None else part for part in parts]
        stacked = read(ops.stack(filled, axis=1))
        sizes = (rows, *shape, *like.shape[1:])
        return self._numbers(target, [reshape(stacked, shape=sizes)])[0]

    def _use(self) -> None:
        if self._is_used and not self._persistent:
            raise RuntimeError(
                "A non-persistent GradientTape gives one set of gradients only: ask "
                "for all of them at once, or make it with `persistent=True`."
            )
        self._is_used = True

    def _gradients(
        self, target: Any, sources: Any, output_gradients: Any = None
    ) -> list[Value | None]:
        targets = tree.flatten(target)
        upstream: list[Any] = [None] * len(targets)
        if output_gradients is not None:
            upstream = tree.flatten(output_gradients)
        seeds: dict[Value, Value] = {}
        for leaf, seed in zip(targets, upstream, strict=True):
            value = self._value(leaf)
            if value is None or not is_float(value.dtype):
                continue
            slope = fill(1, value)
            if seed is not None:
                slope = stretch(astype(seed, value.dtype), value.shape)
            seeds[value] = add(seeds[value], slope) if value in seeds else slope
        leaves = [self._leaves(source) for source in tree.flatten(sources)]
        wrt = [value for values in leaves for value in values]
        grads = backpropagate(seeds, wrt, self._has_recorded)
        return [_total(grads.get(value) for value in values) for values in leaves]

    def _value(self, x: Any) -> Value | None:
        """Return the value that a target is in the graph, None if in none."""
        if isinstance(x, Value):
            return x
        if isinstance(x, Variable):
            values = self._leaves(x)
            return values[-1] if values else None
        if self._recording is not None:
            return self._recording.value_of(x)
        return tensors.watched_value(x)

    def _leaves(self, source: Any) -> list[Value]:
        """Return the values in the graph that a source is or was."""
        if isinstance(source, Variable):
            scope = current_scope()
            if not self._watches(source):
                return []
            if scope is not None:
                return scope.versions(source)
            return self._recording.leaves(source) if self._recording else []
        value = self._value(source)
        return [] if value is None else [value]

    def _numbers(self, target: Any, values: Sequence[Value | None]) -> list[Any]:
        """Return values as tensors; inside of a trace they stay what they are.

        `vmap` and loops trace their function outside of any step, too.
        """
        is_traced = any(isinstance(leaf, Value) for leaf in tree.flatten(target))
        if is_traced or current_scope() is not None or self._recording is None:
            return list(values)
        known = [value for value in values if value is not None]
        if tensors.recording() is self._recording:
            numbers = self._recording.evaluate(known)
        else:
            arrays = arrays_behind(known, self._recording.arrays)
            arrays.update(
                (value, self._recording.arrays[value])
                for value in known
                if value in self._recording.arrays
            )
            numbers = [as_tensor(arrays[value]) for value in known]
        if not self._persistent and not self._is_open:
            self._recording = None  # its graph is as large as all that was computed
        rest = iter(numbers)
        return [None if value is None else next(rest) for value in values]


def _total(parts: Any) -> Value | None:
    total: Value | None = None
    for part in parts:
        if part is not None:
            total = part if total is None else add(total, part)
    return total


def _joined(parts: Sequence[Value], shape: tuple[int, ...]) -> Value:
    stacked: Value = read(ops.stack(list(parts)))
    return reshape(stacked, shape=shape)


# ---- JAX's way -----------------------------------------------------------------------


def value_and_grad(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
) -> Callable[..., Any]:
    """Return a function that gives a function's value and gradient, as JAX's does.

    The gradient is that by the arguments of the numbers `argnums`, which may be nested
    structures. With `has_aux` the function returns a pair, whose second part is handed
    through.

    >>> import ganglion as keras
    >>> double = value_and_grad(lambda x: keras.ops.sum(x * x))
    >>> double(keras.ops.ones((2,)))
    (array(2., dtype=float32), array([2., 2.], dtype=float32))
    """
    numbers = [argnums] if isinstance(argnums, int) else list(argnums)

    @functools.wraps(fun)
    def differentiated(*args: Any, **kwargs: Any) -> Any:
        with GradientTape(watch_accessed_variables=False) as tape:
            arguments = list(args)
            for number in numbers:
                arguments[number] = tree.map_leaves(fresh, arguments[number])
            tape.watch([arguments[number] for number in numbers])
            result = fun(*arguments, **kwargs)
        loss = result[0] if has_aux else result
        _check_loss(loss)
        sources = [arguments[number] for number in numbers]
        grads = tape.gradient(loss, sources, unconnected_gradients="zero")
        return result, grads[0] if isinstance(argnums, int) else tuple(grads)

    return differentiated


def grad(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
) -> Callable[..., Any]:
    """Return a function that gives a function's gradient; see `value_and_grad`."""
    both = value_and_grad(fun, argnums, has_aux)

    @functools.wraps(fun)
    def differentiated(*args: Any, **kwargs: Any) -> Any:
        result, gradient = both(*args, **kwargs)
        return (gradient, result[1]) if has_aux else gradient

    return differentiated


def fresh(leaf: Any) -> Any:
    """Return a tensor without its history, so that only its own uses count."""
    if isinstance(leaf, Value):
        return reshape(leaf, shape=leaf.shape)
    if isinstance(leaf, Tensor) and leaf.is_recorded:
        return ops.reshape(leaf, leaf.shape)
    if isinstance(leaf, Variable):
        return fresh(leaf.value)
    return as_tensor(np.array(ops.convert_to_tensor(leaf)))


def _check_loss(loss: Any) -> None:
    shape = getattr(loss, "shape", ())
    if tuple(shape) != ():
        raise TypeError(
            f"A gradient needs a function that returns one number, not an array of "
            f"shape {tuple(shape)}: take `ops.mean` or `ops.sum` of it."
        )


# ---- PyTorch's way -------------------------------------------------------------------


def backward(loss: Any) -> None:
    """Compute the gradients of all trainable variables that a loss depends on.

    They are added to what `variable.value.grad` has, until `zero_grad`.
    """
    scope = current_scope()
    active = tensors.recording()
    if scope is not None:
        variables = [v for v in scope.reads if v.trainable]
        leaves = {v: scope.versions(v) for v in variables}
        value = loss
    elif active is not None and active.value_of(loss) is not None:
        variables = [v for v in active.variables if v.trainable]
        leaves = {v: active.leaves(v) for v in variables}
        value = active.value_of(loss)
    else:
        raise RuntimeError(
            "`backward()` does not know how this tensor was computed. Call "
            "`model.zero_grad()` before the model, or compute the loss inside of `with "
            "keras.GradientTape() as tape:`."
        )
    if value.shape != ():
        raise RuntimeError(
            f"`backward()` needs one number, not an array of shape {value.shape}: take "
            "`ops.mean` of it."
        )
    wrt = [leaf for versions in leaves.values() for leaf in versions]
    grads = backpropagate({value: fill(1, value)}, wrt)
    totals = {v: _total(map(grads.get, versions)) for v, versions in leaves.items()}
    new = {v: total for v, total in totals.items() if total is not None}
    if scope is not None:
        for variable, gradient in new.items():
            known = scope.grads.get(variable)
            scope.grads[variable] = gradient if known is None else add(known, gradient)
        return
    assert active is not None
    with tensors.recording_to(None):
        arrays = arrays_behind(list(new.values()), active.arrays)
        for variable, gradient in new.items():
            number = arrays.get(gradient, active.arrays.get(gradient))
            known = variable.grad
            total = as_tensor(number)
            variable.grad = total if known is None else known + total
    if active.is_implicit:
        tensors.set_recording(None)


def _grad_of(value: Value) -> Any:
    scope = current_scope()
    if scope is not None:
        for variable, gradient in scope.grads.items():
            if any(version is value for version in scope.versions(variable)):
                return gradient
    return None


def zero_grad(variables: Sequence[Variable]) -> None:
    """Clear the gradients of variables, and record what is computed from now on."""
    scope = current_scope()
    if scope is not None:
        for variable in variables:
            scope.grads.pop(variable, None)
        return
    for variable in variables:
        variable.grad = None
    if tensors.recording() is None:
        tensors.set_recording(Recording(is_implicit=True))


register_operators({"backward": backward, "grad": _grad_of, "zero_grad": zero_grad})
