"""Steps as programs: a pure graph of everything that happens to a batch.

That is gathering its rows, forward pass, loss, gradients, optimizer update, moving
averages, random states and metric sums. Variables that are read become inputs, those
that are assigned become outputs.
"""

from __future__ import annotations

import functools
import gc
import inspect
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import Any

import numpy as np

from ganglion import ops, symbolic, tree
from ganglion.compiler.ir import arrays, contraction, origin, random
from ganglion.compiler.ir.gradient import gradients
from ganglion.compiler.ir.graph import (
    Graph,
    Input,
    Node,
    Program,
    Value,
    evaluate,
    fixed,
    toposort,
)
from ganglion.compiler.ir.pointwise import add
from ganglion.compiler.ir.simplify import simplify
from ganglion.hyperparameters import lifted
from ganglion.ops.index_limits import Limit
from ganglion.system.records import record
from ganglion.tensors import get_keras_mask, set_keras_mask
from ganglion.training.data_adapters import PADDING, Batch, ColumnLimit, Signature
from ganglion.training.state import TrainableModel
from ganglion.variables import Scope, Variable, values_are_elsewhere


class _Uncollected:
    """A block without garbage collection; several threads may be inside at once."""

    def __init__(self) -> None:
        self._lock, self._inside, self._was_on = threading.Lock(), 0, False

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._was_on = gc.isenabled()
                gc.disable()
            self._inside += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside and self._was_on:
                gc.enable()


# Tracing and planning allocate many small objects and keep most of them: collecting
# repeatedly takes a sixth of the time, and frees next to nothing.
uncollected = _Uncollected()


@record(guarded=True)
class Step:
    """A program, the variables behind its state, and the structure of its results."""

    program: Program
    variables: Mapping[str, Variable]
    outputs: Any = None
    limits: tuple[ColumnLimit, ...] = ()
    late: Mapping[str, LateResult] = field(default_factory=dict)
    numbers: frozenset[str] = frozenset()  # states that are hyperparameters

    @cached_property
    def names(self) -> Mapping[Variable, str]:
        """The names of the variables."""
        return {variable: name for name, variable in self.variables.items()}

    @cached_property
    def _arrays(self) -> dict[tuple[int, ...], Mapping[str, np.ndarray]]:
        return {}

    def arrays(
        self, replaced: Mapping[Variable, np.ndarray]
    ) -> Mapping[str, np.ndarray]:
        """Return the arrays of the variables; some may be `replaced` by others.

        A variable has the same array for life, so the mapping is created once.
        """
        # Arrays in the mapping keep their ids; those of others may be reused.
        key = tuple(map(id, replaced.values())) if replaced else ()
        if key not in self._arrays:
            own = {name: v.unsynced_array for name, v in self.variables.items()}
            for variable in replaced.keys() & self.names.keys():
                own[self.names[variable]] = replaced[variable]
            self._arrays[key] = fixed(own)
        return self._arrays[key]

    @cached_property
    def result_names(self) -> list[str]:
        """The names of the results, in the order of the outputs."""
        count = len(self.program.results) + len(self.late)
        return [f"output/{number}" for number in range(count)]

    def results(self, of_steps: Mapping[str, np.ndarray]) -> Any:
        """Return the results of some steps in the structure of the outputs."""
        if not of_steps and not self.late:
            return None
        if self.late:
            late = {name: late.numbers()[None] for name, late in self.late.items()}
            of_steps = {**of_steps, **late}
        return self.packed([of_steps[name] for name in self.result_names])

    def packed(self, results: list[np.ndarray]) -> Any:
        """Return results, in the order of their names, as the structure of outputs."""
        return tree.pack(self.outputs, results)


@record(guarded=True)
class LateResult:
    """A result that is computed from the variables after a step.

    Metrics are an example: they are needed only after the last step of a chunk.
    """

    value: Value
    variables: Mapping[Value, Variable]

    def numbers(self) -> np.ndarray:
        """Return the result for the current values of the variables."""
        known = {value: variable.array for value, variable in self.variables.items()}
        return evaluate([self.value], known)[0]


def late_result(value: Value, scope: Scope) -> LateResult | None:
    """Return a value as a result of the variables after a step, None if it is not."""
    ends = {scope.read(variable): variable for variable in scope.reads}
    reached = toposort([value], ends=ends)
    if any(isinstance(x, Input) and x not in ends for x in reached):
        return None
    return LateResult(value, {x: ends[x] for x in reached if x in ends})


def state_arrays(
    step: Step, replaced: Mapping[Variable, np.ndarray], device_resident: bool = False
) -> Mapping[str, np.ndarray]:
    """Return the arrays behind a step's state, for a backend to change in place.

    Some variables may be `replaced` by other arrays. A backend whose state is device-
    resident gets arrays without a sync to the host: it may have newer values.
    """
    arrays = step.arrays(replaced)
    if device_resident or not values_are_elsewhere():
        return arrays
    newest = {name: v.array for name, v in step.variables.items()}
    return newest | {step.names[v]: a for v, a in replaced.items() if v in step.names}


def train_step(
    model: TrainableModel,
    names: Batch,
    signature: Signature,
    trainable: Sequence[Variable],
) -> Step:
    """Trace a step of training."""
    with lifted(), Scope(training=True) as scope:
        scope.trainable = frozenset(trainable)
        data, columns = gathered(model, signature)
        batch = names.map(columns.__getitem__)
        y_pred = model(batch.x)
        loss = loss_of(model, batch, y_pred, training=True)
        with origin.inside("optimizer"):
            _descend(model, scope, loss, trainable)
        with origin.inside("metrics"):
            _scale_masks(y_pred, columns.get(PADDING))
            _update_metrics(model, batch, y_pred, loss, signature)
            _watch(model, loss)
    return program_of(f"{model.name}.train_step", scope, data, {})


def test_step(model: TrainableModel, names: Batch, signature: Signature) -> Step:
    """Trace a step of evaluation."""
    with lifted(), Scope(training=False) as scope:
        data, columns = gathered(model, signature)
        batch = names.map(columns.__getitem__)
        y_pred = model(batch.x)
        loss = loss_of(model, batch, y_pred, training=False)
        with origin.inside("metrics"):
            _scale_masks(y_pred, columns.get(PADDING))
            _update_metrics(model, batch, y_pred, loss, signature)
    return program_of(f"{model.name}.test_step", scope, data, {})


def predict_step(model: TrainableModel, names: Batch, signature: Signature) -> Step:
    """Trace a step of prediction; its results are the outputs."""
    with Scope(training=False) as scope:
        data, columns = gathered(model, signature)
        batch = names.map(columns.__getitem__)
        outputs = model(batch.x)
    leaves = {f"output/{i}": leaf for i, leaf in enumerate(tree.flatten(outputs))}
    step = program_of(f"{model.name}.predict_step", scope, data, leaves)
    return replace(step, outputs=tree.map_leaves(lambda _: None, outputs))


def loss_of(model: TrainableModel, batch: Batch, y_pred: Any, training: bool) -> Any:
    """Return the loss of a batch; the user may have written `compute_loss`."""
    with origin.inside("loss"):
        arguments = {**batch._asdict(), "y_pred": y_pred}
        # Keras added the argument later: an override may or may not have it.
        if "training" in inspect.signature(model.compute_loss).parameters:
            arguments["training"] = training
        loss = model.compute_loss(**arguments)
    if symbolic.is_symbolic(loss):
        names = ", ".join(sorted(x.name for x in symbolic.entries([loss])))
        raise ValueError(
            "The loss uses Keras tensors that do not follow from the inputs of this "
            f"model ({names}): make them inputs of the model, or pass them as labels."
        )
    return loss


def _scale_masks(y_pred: Any, share: Value | None) -> None:
    """Scale results so that the steps of a padded batch count as without padding.

    A metric averages over the steps of a row before it sums over batches.
    """
    if share is None:
        return
    for leaf in tree.flatten(y_pred):
        mask = get_keras_mask(leaf)
        if mask is not None:
            weights = ops.cast(mask, share.dtype) * ops.expand_dims(share, -1)
            set_keras_mask(leaf, weights)


def _update_metrics(
    model: TrainableModel, batch: Batch, y_pred: Any, loss: Value, signature: Signature
) -> None:
    model.update_metrics(batch.y, y_pred, batch.sample_weight)
    model._loss_tracker.update_state(loss, sample_weight=signature.batch)


def gathered(
    model: TrainableModel, signature: Signature
) -> tuple[list[Input], dict[str, Value]]:
    """Make the data inputs and gather this step's rows from them."""
    rows, size = signature.rows, signature.batch
    inputs = {
        name: Input(name, (rows, *shape[1:]) if rows else shape, dtype)
        for name, shape, dtype in signature.columns
    }
    columns: dict[str, Value] = dict(inputs)
    if rows is not None:
        with origin.inside("batch"):
            position = model.training_state.position
            index = _row_indices(model, rows, signature)
            columns = {
                name: contraction.gather(table, index) for name, table in inputs.items()
            }
            if signature.change is not None:
                first = next(iter(columns))
                columns[first] = _changed(model, rows, signature, columns[first])
            position.assign(ops.add(position, size))
    return list(inputs.values()), columns


def _row_indices(model: TrainableModel, rows: int, signature: Signature) -> Value:
    offsets = arrays.iota(size=signature.batch, dtype="int32")
    indices = ops.add(model.training_state.position, offsets)
    if not signature.shuffle:
        return indices
    return random.shuffle(model.training_state.order.value, indices, rows=rows)


def _changed(
    model: TrainableModel, rows: int, signature: Signature, images: Value
) -> Value:
    """Change the images of this step, by random numbers that no other step draws."""
    state = model.training_state
    order = state.order.value
    before = ops.multiply(order[1], np.uint32(rows))
    number = ops.add(before, ops.cast(state.position, "uint32"))
    return signature.change(images, number, order[0])


def _descend(
    model: TrainableModel, scope: Scope, loss: Value, trainable: Sequence[Variable]
) -> None:
    read = [variable for variable in trainable if variable in scope.reads]
    # Scaling keeps small gradients of narrow floats; the optimizer undoes it.
    scaled = model.optimizer.scale_loss(loss)
    by_value = gradients(scaled, [x for v in read for x in scope.versions(v)])
    # A layer may assign a weight before it is read: include all that were trainable.
    parts = {v: [by_value[x] for x in scope.versions(v) if x in by_value] for v in read}
    reached = [variable for variable in read if parts[variable]]
    known = set(reached)
    lost = [variable.path for variable in trainable if variable not in known]
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
        grads = [functools.reduce(add, parts[variable]) for variable in reached]
        model.optimizer.apply(grads, reached)


def _watch(model: TrainableModel, loss: Value) -> None:
    """Record the first step whose loss is not a finite number."""
    bad = model.training_state.first_bad_step
    is_first = ops.logical_and(ops.less(bad, 0), ops.logical_not(ops.isfinite(loss)))
    now = ops.cast(model.optimizer.iterations, "int32")
    bad.assign(ops.where(is_first, now, bad))


def program_of(
    name: str, scope: Scope, data: list[Input], results: Mapping[str, Value]
) -> Step:
    """Return a trace as a program, with the variables of its state."""
    state: dict[str, Variable] = {}
    outputs: dict[str, Value] = dict(results)
    inputs = list(data)
    for variable, value in scope.reads.items():
        assert isinstance(value, Input)
        inputs.append(value)
        state[value.name] = variable
        if variable in scope.writes:
            outputs[value.name] = scope.writes[variable]
    graph = simplify(Graph.of(name, inputs, outputs))
    used = set(graph.outputs.values()).union(*[node.inputs for node in graph.nodes])
    # State that is written must be given, even if its old value is not read.
    used.update(value for value in graph.inputs if value.name in graph.outputs)
    inputs = [value for value in graph.inputs if value in used]
    program = Program(
        graph=replace(graph, inputs=tuple(inputs)),
        data=tuple(value.name for value in data if value in used),
        state=tuple(n for n, v in state.items() if scope.reads[v] in used),
        results=tuple(results),
    )
    limits = _column_limits(scope.limits, data)
    numbers = frozenset(n for n in program.state if state[n] in scope.numbers)
    variables = {n: state[n] for n in program.state}
    return Step(program, variables, limits=limits, numbers=numbers)


# ---- limits of columns ---------------------------------------------------------------
# An index that is derived from a column by moving numbers only (rows are gathered, axes
# sliced and reordered, types changed) is checked on the column, for all rows at once.


@record(guarded=True)
class _Origin:
    """A column, and how the numbers of a value come from it."""

    column: str
    part: Callable[[np.ndarray], np.ndarray]
    in_rows: bool = True  # whether the first axis is still that of the rows

    def then(self, part: Callable[[np.ndarray], np.ndarray]) -> _Origin:
        return _Origin(self.column, lambda array: part(self.part(array)))

    def out_of_order(self) -> _Origin:
        return replace(self, in_rows=False)


def _column_limits(
    limits: Iterable[tuple[Value, Limit]], data: Iterable[Input]
) -> tuple[ColumnLimit, ...]:
    columns = set(data)
    return tuple(
        ColumnLimit(source.column, source.part, limit)
        for value, limit in limits
        for source in _origins(value, columns)
    )


def _origins(value: Value, columns: set[Input]) -> list[_Origin]:
    """Return the columns whose numbers a value holds; none if it computes its own."""
    if isinstance(value, Input) and value in columns:
        return [_Origin(value.name, _all)]
    if not isinstance(value, Node):
        return []
    name = value.op.name
    if name in ("cast", "stop_gradient", "reverse") or (
        name == "gather" and value.origin.layer == "batch"
    ):
        return _origins(value.inputs[0], columns)
    if name in ("concat", "broadcast"):
        return [
            source.out_of_order()
            for operand in value.inputs
            for source in _origins(operand, columns)
        ]
    if name in ("reshape", "transpose", "slice"):
        moved = [_moved(source, value) for source in _origins(value.inputs[0], columns)]
        return [source for source in moved if source is not None]
    return []


def _all(array: np.ndarray) -> np.ndarray:  # a single object, so that limits are equal
    return array


def _moved(source: _Origin, node: Node) -> _Origin | None:
    """Return the origin of a movement's result, None if it is unknown."""
    before, shape, attrs = node.inputs[0].shape, node.shape, node.attrs
    if node.op.name == "slice":
        if before == shape:
            return source
        starts, stops, steps = attrs["starts"], attrs["stops"], attrs["steps"]
        if not source.in_rows or shape[0] != before[0]:
            return None
        spans = tuple(
            slice(*span) for span in zip(starts[1:], stops[1:], steps[1:], strict=True)
        )
        return source.then(lambda array: array[(slice(None), *spans)])
    if not source.in_rows:
        return source
    if node.op.name == "transpose" and attrs["axes"][0] == 0:
        return source.then(lambda array: array.transpose(attrs["axes"]))
    if node.op.name == "reshape" and shape and before and shape[0] == before[0]:
        return source.then(lambda array: array.reshape(len(array), *shape[1:]))
    return source.out_of_order()
