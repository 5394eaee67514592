"""From a model to a compiled step: model -> Program -> Executable, cached.

A step is one pure graph of everything that happens to a batch: gathering its rows,
forward pass, loss, gradients, optimizer update, moving averages, random states and
metric sums. What is read becomes an input, what is assigned an output.
"""

from __future__ import annotations

import inspect
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ganglion import config, ops, tree
from ganglion.compiler import registry
from ganglion.compiler.ir import arrays, contraction, origin, random
from ganglion.compiler.ir.gradient import gradients
from ganglion.compiler.ir.graph import Graph, Input, Node, Value
from ganglion.compiler.ir.program import Program
from ganglion.compiler.ir.simplify import simplify
from ganglion.masks import get_keras_mask, set_keras_mask
from ganglion.ops.bounds import Limit
from ganglion.system import forks
from ganglion.training.buckets import LengthBuckets
from ganglion.training.data_adapters import (
    PADDING,
    Batch,
    ColumnLimit,
    Signature,
    Table,
)
from ganglion.training.state import Cursor, TrainableModel
from ganglion.variables import Scope, Variable

CACHED_STEPS = 64  # of one model


@dataclass(frozen=True)
class Step:
    """A program, the variables behind its state, and the structure of its results."""

    program: Program
    variables: Mapping[str, Variable]
    outputs: Any = None
    limits: tuple[ColumnLimit, ...] = ()


class StepCache:
    """The compiled steps of one model."""

    def __init__(self, model: TrainableModel) -> None:
        self._model = model
        self.lock = ModelLock(model)
        self._cursors: list[Cursor] = []  # of evaluations and predictions, to use again
        self._steps: OrderedDict[Any, tuple[Step, registry.Executable]] = OrderedDict()
        self._on_gpu = False
        self._schedules: dict[int, Any] = {}
        self.chunk_sizes: dict[Any, int] = {}  # in steps, of the last epoch
        self.buckets = LengthBuckets(model)

    def clear(self) -> None:
        """Trace everything anew; called when the model or its training changes."""
        with self.lock.acquired():
            self._steps.clear()
            self._schedules.clear()
            self.chunk_sizes.clear()
            self.buckets.clear()

    def step(
        self, kind: str, table: Table, signature: Signature
    ) -> tuple[Step, registry.Executable]:
        """Return the compiled step of a kind for data of this signature."""
        # A new schedule is part of the graph; a new rate is only another number.
        schedule = getattr(self._model.optimizer, "_learning_rate", None)
        key = (
            kind,
            signature,
            repr(table.names),
            config.backend_choice(),
            config.precise(),
            config.precision(),
            id(schedule),
        )
        self._schedules[id(schedule)] = schedule  # so that its id stays its own
        if key not in self._steps:
            registry.expect()
            step = self.traced(kind, table, signature)
            name = registry.backend_for(step.program, self._on_gpu)
            self._on_gpu = name == "cuda"
            self._steps[key] = step, registry.backend(name).compile(step.program)
            if len(self._steps) > CACHED_STEPS:
                self._steps.popitem(last=False)
        self._steps.move_to_end(key)
        if kind == "train":
            self._model.restore_metrics()
        return self._steps[key]

    def prepare(self, kind: str, table: Table, size: int, shuffle: bool) -> None:
        """Trace and compile the step for a table, so that the metrics exist."""
        signature = table.signature(min(size, table.rows), table.rows, shuffle)
        with self.lock.acquired():
            self.step(kind, table, signature)

    def traced(self, kind: str, table: Table, signature: Signature) -> Step:
        """Return a step as a program that is not compiled yet."""
        model, names = self._model, table.names
        if not model.built:
            # A first call makes the weights, so that it is known what to train.
            predict_step(model, names, signature)
        if kind == "train":
            return train_step(model, names, signature, model.prepare_training())
        return (test_step if kind == "test" else predict_step)(model, names, signature)

    def run(
        self,
        compiled: tuple[Step, registry.Executable],
        table: Table,
        steps: int,
        cursor: Cursor,
    ) -> Any:
        """Run some steps; return the results in the structure of the outputs."""
        step, executable = compiled
        table.check(step.limits)
        columns = table.arrays()
        data = {name: columns[name] for name in step.program.data}
        training = self._model.training_state
        replaced = {training.position: cursor.position, training.order: cursor.order}
        state = state_arrays(step, replaced, executable.keeps_on_device)
        results = executable.run(data, state, steps, keep_on_device=True)
        if not step.program.results:
            return None
        return tree.pack(step.outputs, [results[n] for n in step.program.results])

    def run_batch(self, kind: str, table: Table) -> Any:
        """Run one step on a whole table as its batch."""
        with self.lock.acquired():
            table, length = self.buckets.padded(kind, table)
            compiled = self.step(kind, table, table.signature(table.rows, None, False))
            cursor = self._model.training_state.cursor
            results = self.run(compiled, table, 1, cursor)
        return self.buckets.cut(results, length)

    @contextmanager
    def cursor(self) -> Iterator[Cursor]:
        """Return a cursor at the first row, beside that of training."""
        # Used again, because a GPU records launches for arrays at certain addresses.
        try:
            cursor = self._cursors.pop()
        except IndexError:
            cursor = Cursor(np.zeros((), "int32"), np.zeros(2, "uint32"))
        cursor.position[...] = 0
        cursor.order[...] = self._model.training_state.order.array
        try:
            yield cursor
        finally:
            self._cursors.append(cursor)


def state_arrays(
    step: Step, replaced: Mapping[Variable, np.ndarray], device_resident: bool = False
) -> dict[str, np.ndarray]:
    """Return the arrays behind a step's state, for a backend to change in place.

    Some variables may be `replaced` by other arrays. A backend whose state is device-
    resident gets arrays without a sync to the host: it may have newer values.
    """

    def array(variable: Variable) -> np.ndarray:
        if variable in replaced:
            return replaced[variable]
        return variable.unsynced_array if device_resident else variable.array

    return {name: array(variable) for name, variable in step.variables.items()}


# ---- tracing -----------------------------------------------------------------------


def train_step(
    model: TrainableModel,
    names: Batch,
    signature: Signature,
    trainable: Sequence[Variable],
) -> Step:
    """Trace one step of training."""
    with Scope(training=True) as scope:
        scope.trainable = frozenset(trainable)
        data, columns = _gather(model, signature)
        batch = names.map(columns.__getitem__)
        y_pred = model(batch.x)
        loss = _loss(model, batch, y_pred, training=True)
        with origin.inside("optimizer"):
            _descend(model, scope, loss, trainable)
        with origin.inside("metrics"):
            _scale_masks(y_pred, columns.get(PADDING))
            _update_metrics(model, batch, y_pred, loss, signature)
            _watch(model, loss)
    return _step(f"{model.name}.train_step", scope, data, {})


def test_step(model: TrainableModel, names: Batch, signature: Signature) -> Step:
    """Trace one step of evaluation."""
    with Scope(training=False) as scope:
        data, columns = _gather(model, signature)
        batch = names.map(columns.__getitem__)
        y_pred = model(batch.x)
        loss = _loss(model, batch, y_pred, training=False)
        with origin.inside("metrics"):
            _scale_masks(y_pred, columns.get(PADDING))
            _update_metrics(model, batch, y_pred, loss, signature)
    return _step(f"{model.name}.test_step", scope, data, {})


def predict_step(model: TrainableModel, names: Batch, signature: Signature) -> Step:
    """Trace one step of prediction; its results are the outputs."""
    with Scope(training=False) as scope:
        data, columns = _gather(model, signature)
        batch = names.map(columns.__getitem__)
        outputs = model(batch.x)
    leaves = {f"output/{i}": leaf for i, leaf in enumerate(tree.flatten(outputs))}
    step = _step(f"{model.name}.predict_step", scope, data, leaves)
    return replace(step, outputs=tree.map_leaves(lambda _: None, outputs))


def _loss(model: TrainableModel, batch: Batch, y_pred: Any, training: bool) -> Any:
    with origin.inside("loss"):
        arguments = {**batch._asdict(), "y_pred": y_pred}
        # Keras added the argument later: an override may or may not have it.
        if "training" in inspect.signature(model.compute_loss).parameters:
            arguments["training"] = training
        return model.compute_loss(**arguments)


def _scale_masks(y_pred: Any, share: Value | None) -> None:
    """Let the steps of a padded batch count as much as they did before.

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


def _gather(
    model: TrainableModel, signature: Signature
) -> tuple[list[Input], dict[str, Value]]:
    """Make the data inputs and gather this step's rows from them."""
    rows, size = signature.rows, signature.batch
    inputs = {
        name: Input(name, (rows or size, *shape), dtype)
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
    """Change the images of this step, by numbers that no other step draws."""
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
    by_value = gradients(scaled, [scope.reads[variable] for variable in read])
    reached = [variable for variable in read if scope.reads[variable] in by_value]
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
        grads = [by_value[scope.reads[variable]] for variable in reached]
        model.optimizer.apply(grads, reached)


def _watch(model: TrainableModel, loss: Value) -> None:
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
    inputs = list(data)
    for variable, value in scope.reads.items():
        assert isinstance(value, Input)
        inputs.append(value)
        state[value.name] = variable
        if variable in scope.writes:
            outputs[value.name] = scope.writes[variable]
    graph = simplify(Graph.of(name, inputs, outputs))
    used = {value for node in graph.nodes for value in node.inputs}
    used.update(graph.outputs.values())
    # State that is written must be given, even where its old value is not read.
    used.update(value for value in graph.inputs if value.name in graph.outputs)
    program = Program(
        graph=Graph.of(
            name, [value for value in graph.inputs if value in used], graph.outputs
        ),
        data=tuple(value.name for value in data if value in used),
        state=tuple(n for n, v in state.items() if scope.reads[v] in used),
        results=tuple(results),
    )
    limits = _column_limits(scope.limits, data)
    return Step(program, {n: state[n] for n in program.state}, limits=limits)


# ---- limits of columns ---------------------------------------------------------------
# An index that comes from a column by moving numbers alone (rows are gathered, axes
# sliced and reordered, types changed) is checked on the column, for all rows at once.


@dataclass(frozen=True)
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


def _all(array: np.ndarray) -> np.ndarray:  # one object, so that limits are equal
    return array


def _moved(source: _Origin, node: Node) -> _Origin | None:
    """Return an origin behind a movement; None if it is not known which numbers."""
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


# ---- threads -----------------------------------------------------------------------


@dataclass
class _ThreadMetrics:
    """The metrics of a thread inside of `evaluate`, or of a `fit` that may call it."""

    depth: int = 0
    fits: int = 0
    sums: dict[Variable, np.ndarray] | None = None  # while other threads run


class ModelLock:
    """Lets the threads that use one model run one at a time, a chunk of steps each.

    `predict` and `evaluate` may be called from any number of threads, also while
    another one trains. But a step reads weights that another step writes, and the sums
    of metrics are variables of the model: each thread finds them as it left them.
    """

    def __init__(self, model: TrainableModel) -> None:
        self._model = model
        self._running, self._queue = threading.Lock(), threading.Lock()
        self._owner: int | None = None  # the thread that is running now
        self._threads: dict[threading.Thread, _ThreadMetrics] = {}
        self._last: threading.Thread | None = None  # whose sums the metrics hold

    @contextmanager
    def acquired(self) -> Iterator[None]:
        """Use the model while no other thread does; the lock is reentrant.

        Callbacks run without it: they may wait for other threads.
        """
        if self._owner == threading.get_ident():
            yield
            return
        with forks.held_off():
            with (
                self._queue
            ):  # a thread that comes again and again lets waiting ones in
                self._running.acquire()
            try:
                self._owner = threading.get_ident()
                self._switch_metrics(threading.current_thread())
                yield
            finally:
                self._owner = None
                self._running.release()

    def _switch_metrics(self, thread: threading.Thread) -> None:
        before, self._last = self._last, thread
        if before is thread:
            return
        if before in self._threads:
            self._threads[before].sums = {
                variable: variable.numpy()
                for metric in self._model.metrics
                for variable in metric.variables
            }
        saved = self._threads.get(thread)
        if saved is not None and saved.sums is not None:
            self._model.reset_metrics()  # some may be newer than the sums
            for variable, array in saved.sums.items():
                variable.assign(array)
            saved.sums = None

    @contextmanager
    def own_metrics(self, *, fits: bool = False) -> Iterator[None]:
        """Separate this thread's metrics from those of others inside of this block.

        A model can be trained by one thread at a time only.
        """
        thread = threading.current_thread()
        with self.acquired():
            if fits:
                self.refuse_training("fit")
            entry = self._threads.setdefault(thread, _ThreadMetrics())
            entry.depth += 1
            entry.fits += fits
        try:
            yield
        finally:
            entry.depth -= 1
            entry.fits -= fits
            if not entry.depth:
                self._threads.pop(thread, None)

    def refuse_training(self, verb: str) -> None:
        """Raise an error if another thread is training the model."""
        here = threading.current_thread()
        for thread, entry in list(self._threads.items()):
            # One that is not alive was left behind by a fork.
            if entry.fits and thread is not here and thread.is_alive():
                raise RuntimeError(
                    f'`{verb}`: the model "{self._model.name}" is being trained by '
                    f'another thread ("{thread.name}"), and only one can train it at a '
                    "time. Wait until that `fit` returns, or train a copy: "
                    "models.clone_model(model)."
                )
