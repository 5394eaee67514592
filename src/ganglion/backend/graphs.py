"""The part of Keras 2's backend that needs a graph: functions and gradients.

Keras tensors have such a graph; inside of a step that is traced, values do.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from ganglion import keras2, ops, symbolic, tree
from ganglion.compiler.ir.gradient import backpropagate
from ganglion.compiler.ir.graph import Value
from ganglion.compiler.ir.pointwise import add
from ganglion.compiler.ir.shaping import fill
from ganglion.optimizers.graph_updates import Assignment, Descent, GivenLoss
from ganglion.symbolic import KerasTensor, is_symbolic
from ganglion.training.functions import function as ganglion_function
from ganglion.variables import Deferred, Variable, current_scope


def function(
    inputs: Any, outputs: Any, updates: Any = None, name: str | None = None
) -> Callable[[Any], list[np.ndarray]]:
    """Return a function from arrays for some Keras tensors to arrays of others.

    `K.learning_phase()` among the inputs is 1 or 0: whether layers train. Each
    call also makes the `updates`: those of `optimizer.get_updates`, and pairs of a
    variable and the Keras tensor that it becomes.
    """
    keras2.note("`K.function`", "`Model(inputs, outputs)`", changes_defaults=False)
    from ganglion.models import Model

    wanted = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
    chosen = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
    changes = [_change(update) for update in updates or ()]
    tensors = [tensor for tensor in wanted if is_symbolic(tensor)]
    wanted_too = filter(is_symbolic, map(_value_of, changes))
    model = Model(tensors, [*chosen, *wanted_too])

    def compute(arrays: list[Any], training: bool) -> list[Any]:
        results = tree.flatten(model(arrays, training=training))
        count = len(chosen)
        computed = iter(results[count:])
        for change in changes:
            value = _value_of(change)
            _make(change, next(computed) if is_symbolic(value) else value)
        return results[:count]

    compiled = ganglion_function(compute) if changes else compute

    def run(values: Any) -> list[np.ndarray]:
        arrays, phase = [], 0
        for tensor, value in zip(wanted, values, strict=True):
            if is_symbolic(tensor):
                arrays.append(_array_for(tensor, value))
            else:
                phase = int(value)
        return [np.asarray(x)[()] for x in compiled(arrays, bool(phase))]

    return run


def _array_for(tensor: KerasTensor, value: Any) -> Any:
    """Return what is given for a tensor, lists of rows as one array."""
    is_list = isinstance(value, (list, tuple, int, float))
    return np.asarray(value, tensor.dtype) if is_list else value


def _make(change: Assignment | Descent, value: Any) -> None:
    """Make an update, now that the tensor it depends on has a value."""
    if isinstance(change, Assignment):
        change.variable.assign(value)
        return
    variables = list(change.variables)
    change.optimizer.apply(_of_values([value], variables), variables)


def _change(update: Any) -> Assignment | Descent:
    """Return an element of `K.function(updates=)` that can be made, or refuse it."""
    if isinstance(update, Descent) and is_symbolic(update.loss):
        return update
    if isinstance(update, tuple) and len(update) == 2:
        variable, value = update
        is_computed = is_symbolic(value) or isinstance(value, Deferred)
        if isinstance(variable, Variable) and is_computed:
            return Assignment(variable, value)
    raise ValueError(
        "`K.function(updates=)` makes the updates of `optimizer.get_updates(loss, "
        "params)` for a loss of Keras tensors, and pairs of a variable and a Keras "
        f"tensor, not {update!r:.80}. Assign to variables in a Layer, or in a function "
        "that `ganglion.function` compiles."
    )


def _value_of(change: Assignment | Descent) -> Any:
    return change.loss if isinstance(change, Descent) else change.value


def gradients(loss: Any, variables: Any) -> list[Any]:
    """Return the gradients of a loss by Keras tensors or variables: more Keras tensors.

    In a loss function, and wherever else a step is traced, they are values of it.
    """
    keras2.note("`K.gradients`", "`GradientTape`", changes_defaults=False)
    if isinstance(loss, GivenLoss):
        return [loss.slopes[variable] for variable in tree.flatten(variables)]
    losses, sources = tree.flatten(loss), tree.flatten(variables)
    traced = symbolic.values_in_trace((losses, sources))
    if traced is not None:
        return _of_values(*traced)
    if symbolic.any_symbolic(losses):
        return _of_keras_tensors(losses, sources)
    raise ValueError(
        "`K.gradients` takes Keras tensors, such as `model.output`: numbers do not "
        "know how they were computed. Compute the loss inside of "
        "`with GradientTape()`, and use `tape.gradient`."
    )


def _of_values(losses: list[Value], sources: list[Any]) -> list[Value | None]:
    scope = current_scope()
    assert scope is not None
    parts = [
        scope.versions(source) if isinstance(source, Variable) else [source]
        for source in sources
    ]
    seeds = {loss: fill(1, loss) for loss in losses}
    slopes = backpropagate(seeds, [value for values in parts for value in values])
    sums = []
    for values in parts:
        reached = [slopes[value] for value in values if value in slopes]
        sums.append(functools.reduce(add, reached) if reached else None)
    return sums


def _of_keras_tensors(losses: list[KerasTensor], sources: list[Any]) -> list[Any]:
    from ganglion.models import Model

    by_tensors = [source for source in sources if is_symbolic(source)]
    entries = symbolic.entries([*losses, *by_tensors])
    network = Model(entries, [*losses, *by_tensors])

    def gradient(values: list[Any]) -> list[Any]:
        results = tree.flatten(network(values))
        known = dict(zip(by_tensors, results[len(losses) :], strict=True))
        wanted = [known[x] if is_symbolic(x) else x for x in sources]
        slopes = _of_values(results[: len(losses)], wanted)
        for source, slope in zip(sources, slopes, strict=True):
            if slope is None:
                raise ValueError(
                    f"`K.gradients`: the loss does not depend on {source}."
                )
        return slopes

    return symbolic.record(gradient, (entries,), {})


def placeholder(
    shape: Any = None,
    ndim: int | None = None,
    dtype: Any = None,
    sparse: bool = False,
    name: str | None = None,
) -> KerasTensor:
    """Return a Keras tensor that `K.function` takes an array for."""
    keras2.note("`K.placeholder`", "`Input`", changes_defaults=False)
    from ganglion.layers import Input

    sizes = (None,) * ndim if shape is None and ndim else shape
    return Input(batch_shape=sizes, dtype=dtype, sparse=sparse, name=name)


class _SizesOf(tuple[Any, ...]):
    """The sizes of a tensor, some of them unknown; they are computed with as a vector.

    Unknown values are those of a Keras tensor, after the steps taken since.
    """

    tensor: KerasTensor
    steps: tuple[Callable[[Any], Any], ...] = ()

    def _then(self, step: Callable[[Any], Any]) -> _SizesOf:
        if None not in self:
            return _SizesOf(step(np.array(self, int)).tolist())
        sizes = _SizesOf([None] * len(step(np.ones(len(self), int))))
        sizes.tensor, sizes.steps = self.tensor, (*self.steps, step)
        return sizes

    def __getitem__(self, index: Any) -> Any:
        if not isinstance(index, slice):
            return super().__getitem__(index)
        sizes = _SizesOf(super().__getitem__(index))
        if None not in self:
            return sizes
        sizes.tensor = self.tensor
        sizes.steps = (*self.steps, operator.itemgetter(index))
        return sizes

    def __mul__(self, factor: Any) -> _SizesOf:
        return self._then(lambda sizes: sizes * factor)

    __rmul__ = __mul__

    def __floordiv__(self, divisor: Any) -> _SizesOf:
        return self._then(lambda sizes: sizes // divisor)

    def __truediv__(self, divisor: Any) -> _SizesOf:
        return self._then(lambda sizes: sizes / divisor)

    def __sub__(self, number: Any) -> _SizesOf:
        return self._then(lambda sizes: sizes - number)


def shape(x: Any) -> tuple[int | None, ...]:
    """Return the sizes; `K.cast` makes a Keras tensor of those that are unknown."""
    sizes = _SizesOf(ops.shape(x))
    if None in sizes:
        sizes.tensor = x
    return sizes


def cast(x: Any, dtype: Any) -> Any:
    """Return the numbers in another type."""
    if isinstance(x, _SizesOf) and None in x:
        return symbolic.record(
            _sizes_of, (x.tensor,), {"dtype": dtype, "steps": x.steps}
        )
    return ops.cast(x, dtype)


def _sizes_of(x: Any, dtype: Any, steps: Any) -> Any:
    sizes = np.array(x.shape)
    for step in steps:
        sizes = step(sizes)
    return ops.convert_to_tensor(sizes, dtype)
