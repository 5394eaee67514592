"""From a model to a step: one pure graph of everything that happens to a batch.

Batch gather, forward pass, loss, gradients, optimizer update, moving averages, random
states and metric sums: what is read becomes an input, what is assigned an output.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from ganglion import ops, tree
from ganglion.compiler.ir import arrays, contraction, origin, random
from ganglion.compiler.ir.gradient import gradients
from ganglion.compiler.ir.graph import Graph, Input, Value
from ganglion.compiler.ir.program import Program
from ganglion.compiler.ir.simplify import simplify
from ganglion.training.data_adapters import Signature
from ganglion.training.index_limits import ColumnLimit, column_limits
from ganglion.training.state import TrainingState
from ganglion.variables import Scope, Variable


class Trainable(Protocol):
    """What a trace needs to know of a model."""

    name: str
    optimizer: Any
    training_state: TrainingState
    _loss_tracker: Any

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the outputs."""
        ...

    def compute_loss(
        self, x: Any, y: Any, y_pred: Any, sample_weight: Any, training: bool
    ) -> Any:
        """Compute the loss that training minimises."""
        ...

    def update_metrics(self, y: Any, y_pred: Any, sample_weight: Any) -> None:
        """Add a batch to the metrics."""
        ...


@dataclass(frozen=True)
class Step:
    """A program, the variables behind its state, and the shape of its results."""

    program: Program
    variables: Mapping[str, Variable]
    outputs: Any = None
    limits: tuple[ColumnLimit, ...] = ()


@dataclass(frozen=True)
class Batch:
    """The structure of x, y and weights, whose leaves name the columns."""

    x: Any
    y: Any
    sample_weight: Any


def train_step(
    model: Trainable,
    batch: Batch,
    signature: Signature,
    trainable: Sequence[Variable],
) -> Step:
    """Trace one step of training."""
    with Scope(training=True) as scope:
        scope.trainable = frozenset(trainable)
        data, (x, y, weight) = _gather(model, batch, signature)
        y_pred = model(x)
        loss = _loss(model, x, y, y_pred, weight, training=True)
        with origin.inside("optimizer"):
            _descend(model, scope, loss, trainable)
        with origin.inside("metrics"):
            model.update_metrics(y, y_pred, weight)
            model._loss_tracker.update_state(loss, sample_weight=signature.batch)
            _watch(model, loss)
    return _step(f"{model.name}.train_step", scope, data, {})


def test_step(model: Trainable, batch: Batch, signature: Signature) -> Step:
    """Trace one step of evaluation."""
    with Scope(training=False) as scope:
        data, (x, y, weight) = _gather(model, batch, signature)
        y_pred = model(x)
        loss = _loss(model, x, y, y_pred, weight, training=False)
        with origin.inside("metrics"):
            model.update_metrics(y, y_pred, weight)
            model._loss_tracker.update_state(loss, sample_weight=signature.batch)
    return _step(f"{model.name}.test_step", scope, data, {})


def predict_step(model: Trainable, batch: Batch, signature: Signature) -> Step:
    """Trace one step of prediction; its results are the outputs."""
    with Scope(training=False) as scope:
        data, (x, _, _) = _gather(model, batch, signature)
        outputs = model(x)
    leaves = {f"output/{i}": one for i, one in enumerate(tree.flatten(outputs))}
    step = _step(f"{model.name}.predict_step", scope, data, leaves)
    return replace(step, outputs=tree.map_leaves(lambda _: None, outputs))


def _loss(
    model: Trainable, x: Any, y: Any, y_pred: Any, weight: Any, training: bool
) -> Any:
    with origin.inside("loss"):
        given: dict[str, Any] = {"x": x, "y": y, "y_pred": y_pred}
        given["sample_weight"] = weight
        # Keras added the argument later: an override may or may not have it.
        if "training" in inspect.signature(model.compute_loss).parameters:
            given["training"] = training
        return model.compute_loss(**given)


def _gather(
    model: Trainable, batch: Batch, signature: Signature
) -> tuple[list[Input], list[Any]]:
    """Make the data inputs and pick this step's rows out of them."""
    rows, size = signature.rows, signature.batch
    inputs = {
        name: Input(name, (rows or size, *shape), dtype)
        for name, shape, dtype in signature.columns
    }
    picked: dict[str, Value] = dict(inputs)
    if rows is not None:
        with origin.inside("batch"):
            index = _rows(model, signature)
            picked = {
                name: contraction.gather(table, index) for name, table in inputs.items()
            }
            position = model.training_state.position
            if signature.change is not None:
                first = next(iter(picked))
                picked[first] = _changed(model, signature, picked[first])
            position.assign(ops.add(position, size))

    def value(name: Any) -> Any:
        return None if name is None else picked[name]

    parts = (batch.x, batch.y, batch.sample_weight)
    return list(inputs.values()), [tree.map_leaves(value, one) for one in parts]


def _rows(model: Trainable, signature: Signature) -> Value:
    assert signature.rows is not None
    places = arrays.iota(size=signature.batch, dtype="int32")
    position = ops.add(model.training_state.position, places)
    if not signature.shuffle:
        return position
    order = model.training_state.order.value
    return random.shuffle(order, position, rows=signature.rows)


def _changed(model: Trainable, signature: Signature, images: Value) -> Value:
    """Change the images of this step, by numbers that no other step draws."""
    assert signature.rows is not None
    state = model.training_state
    order = state.order.value
    before = ops.multiply(order[1], np.uint32(signature.rows))
    number = ops.add(before, ops.cast(state.position, "uint32"))
    return signature.change(images, number, order[0])


def _descend(
    model: Trainable, scope: Scope, loss: Value, trainable: Sequence[Variable]
) -> None:
    read = [one for one in trainable if one in scope.reads]
    # Scaling keeps small gradients of narrow floats; the optimizer undoes it.
    found = gradients(model.optimizer.scale_loss(loss), [scope.reads[v] for v in read])
    reached = [one for one in read if scope.reads[one] in found]
    known = set(reached)
    lost = [one.path for one in trainable if one not in known]
    if not trainable:
        warnings.warn("The model has no trainable weights.", stacklevel=2)
    elif not reached:
        raise ValueError(
            "The loss does not depend on any trainable weight; nothing can be learned "
            f"(weights: {', '.join(lost)})."
        )
    elif lost:
        warnings.warn(
            f"The loss does not depend on {', '.join(lost)}: they stay as they are.",
            stacklevel=2,
        )
    if reached:
        model.optimizer.apply([found[scope.reads[one]] for one in reached], reached)


def _watch(model: Trainable, loss: Value) -> None:
    """Remember the first step whose loss is not a finite number."""
    bad = model.training_state.first_bad_step
    is_first = ops.logical_and(ops.less(bad, 0), ops.logical_not(ops.isfinite(loss)))
    now = ops.cast(model.optimizer.iterations, "int32")
    bad.assign(ops.where(is_first, now, bad))


def _step(
    name: str, scope: Scope, data: list[Input], results: Mapping[str, Value]
) -> Step:
    state: dict[str, Variable] = {}
    outputs: dict[str, Value] = dict(results)
    for variable, value in scope.reads.items():
        assert isinstance(value, Input)
        state[value.name] = variable
        if variable in scope.writes:
            outputs[value.name] = scope.writes[variable]
    inputs = [*data, *(v for v in scope.reads.values() if isinstance(v, Input))]
    graph = simplify(Graph.of(name, inputs, outputs))
    used = _used(graph)
    program = Program(
        graph=Graph.of(
            name, [one for one in graph.inputs if one in used], graph.outputs
        ),
        data=tuple(one.name for one in data if one in used),
        state=tuple(n for n, v in state.items() if scope.reads[v] in used),
        results=tuple(results),
    )
    limits = column_limits(scope.limits, data)
    return Step(program, {n: state[n] for n in program.state}, limits=limits)


def _used(graph: Graph) -> set[Value]:
    used: set[Value] = {one for node in graph.nodes for one in node.inputs}
    used.update(graph.outputs.values())
    # State that is written must be given, even where its old value is not read.
    used.update(one for one in graph.inputs if one.name in graph.outputs)
    return used


def as_state(
    step: Step, replaced: Mapping[Variable, np.ndarray], keeps: bool = False
) -> dict[str, np.ndarray]:
    """Return the arrays behind a step's state, for a backend to change in place.

    Some variables may be `replaced` by other arrays. A backend that `keeps` state is
    given arrays as they are: it may have newer values.
    """
    state = {}
    for name, variable in step.variables.items():
        if variable in replaced:
            state[name] = replaced[variable]
        else:
            state[name] = variable.unsynced_array if keeps else variable.array
    return state
