"""From a model to a compiled step: model -> Program -> Executable, cached.

`tracing` builds the program of a step, `own_steps` that of a step the user wrote.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from ganglion import config
from ganglion.compiler import registry
from ganglion.system import forks, uncompiled
from ganglion.training import own_steps, sharing, tracing
from ganglion.training.buckets import LengthBuckets
from ganglion.training.data_adapters import Signature, Table
from ganglion.training.own_steps import EagerSteps
from ganglion.training.prepared import PreparedPredictions
from ganglion.training.sharing import SharedSteps
from ganglion.training.state import Cursor, TrainableModel, is_own
from ganglion.training.structure import Structure, is_ours, structure_of
from ganglion.training.tracing import Step, state_arrays
from ganglion.variables import Variable

CACHED_STEPS = 64  # of a model
MOST_SEEN = 256
_seen_shapes: dict[Any, None] = {}  # of the last steps that were traced, in order
Compiled = tuple[Step, registry.Executable | EagerSteps]
Arrays = Mapping[str, np.ndarray]
# A program, its data, its state, and how many steps of it.
Run = tuple[registry.Executable | EagerSteps, Arrays, Arrays, int]


class StepCache:
    """The compiled steps of a model."""

    def __init__(self, model: TrainableModel) -> None:
        self._model = model
        self.lock = ModelLock(model)
        self._cursors: list[Cursor] = []  # of finished evaluations, to be reused
        self._steps: OrderedDict[Any, Compiled] = OrderedDict()
        self._on_gpu = False
        self._schedules: dict[int, Any] = {}
        self.chunk_sizes: dict[Any, int] = {}  # in steps, of the last epoch
        self.buckets = LengthBuckets(model)
        self.predictions = PreparedPredictions(model, self)
        self.shared: SharedSteps | None = None  # with other models
        self._epochs_at_once: dict[Any, int] = {}
        self._structure: Structure | None = None
        self._is_read = False
        self._read_for: tuple[Any, ...] | None = None  # since the last `compile`

    def share(self, steps: SharedSteps | None) -> None:
        """Use the steps of equal models from now on."""
        with self.lock:
            self.shared, self._is_read = steps, False

    @property
    def epochs_at_once(self) -> dict[Any, int]:
        """How many epochs to run at once, learned from this or an equal model."""
        return (
            self._epochs_at_once if self.shared is None else self.shared.epochs_at_once
        )

    def clear(self) -> None:
        """Discard all steps; called when the model or its training changes."""
        with self.lock:
            self._steps.clear()
            self._schedules.clear()
            self.chunk_sizes.clear()
            self._epochs_at_once.clear()
            self.buckets.clear()
            self.predictions.clear()
            self._is_read, self._read_for = False, None

    def step(self, kind: str, table: Table, signature: Signature) -> Compiled:
        """Return the compiled step of a kind for data of this signature."""
        # A new schedule changes the graph; a new rate is only another number.
        schedule = getattr(self._model.optimizer, "_learning_rate", None)
        key = (
            kind,
            signature,
            config.backend_choice(),
            config.precise(),
            config.precision(),
            id(schedule),
            bool(self._model.run_eagerly),
        )
        self._schedules[id(schedule)] = schedule  # alive, so that its id is unique
        if key not in self._steps:
            self._steps[key] = self._shared_or_own(kind, table, signature)
            if len(self._steps) > CACHED_STEPS:
                self._steps.popitem(last=False)
        self._steps.move_to_end(key)
        if kind == "train":
            self._model.restore_metrics()
        return self._steps[key]

    def _shared_or_own(self, kind: str, table: Table, signature: Signature) -> Compiled:
        """Return a step that is shared with other models, or of this model's own."""
        model = self._model
        if self.shared is None:
            return self._compiled(kind, table, signature)
        if model.run_eagerly or is_own(model, kind):
            compiled = self._compiled(kind, table, signature)
        else:
            structure = self._read_structure(kind, table, signature)
            key = self._key(kind, table, signature)
            compiled = self.shared.step(
                key,
                structure,
                lambda: self._traced(kind, table, signature),
                self._compile,
            )
        self.shared.users.add(model, *_used_by(model, kind, compiled))
        return compiled

    def _key(self, kind: str, table: Table, signature: Signature) -> tuple[Any, ...]:
        """Return a key of all that a step depends on beside the model's structure."""
        return (
            kind,
            signature,
            repr(table.names),
            config.traced_choices(),
            sharing.names_that_matter(self._model, table.names),
        )

    def training_structure(
        self, table: Table, signature: Signature
    ) -> Structure | None:
        """Return the structure of a model ready to train, None if it has none.

        As for the steps of `fit`, what changes without `compile` is not noticed.
        """
        model = self._model
        if model.run_eagerly or is_own(model, "train"):
            return None
        schedule = getattr(model.optimizer, "_learning_rate", None)
        read_for = (signature, table.names, model.optimizer, schedule)
        with self.lock:
            if not _are_same(read_for, self._read_for):
                self._read_structure("train", table, signature)
                # Which may have replaced the optimizer.
                read_for = (*read_for[:2], model.optimizer, schedule)
                self._read_for = read_for if self._structure is not None else None
            self._is_read = True
            return self._structure

    def _read_structure(
        self, kind: str, table: Table, signature: Signature
    ) -> Structure | None:
        """Read the structure of a model that is ready to train, once."""
        if not self._is_read and kind == "predict":
            return structure_of(self._model) if self._model.built else None
        if not self._is_read:
            if not self._model.built:
                tracing.predict_step(self._model, table.names, signature)
            self._model.prepare_training()
            is_ready = sharing.build_compiled(self._model, table.names, signature)
            self._structure = structure_of(self._model) if is_ready else None
            self._is_read = True
        return self._structure

    def _compiled(self, kind: str, table: Table, signature: Signature) -> Compiled:
        if self._model.run_eagerly:
            uncompiled.note("models with run_eagerly=True", self._model.name)
            eager = EagerSteps(self._model, kind, table.names, signature)
            return eager.step, eager
        with tracing.uncollected:
            step = self._recent_or_traced(kind, table, signature)
            return step, self._compile(step)

    def _recent_or_traced(self, kind: str, table: Table, signature: Signature) -> Step:
        """Return the step of an equal model that was traced before, or trace it."""
        model = self._model
        shapes = (
            kind,
            signature,
            *(weight.shape for weight in model.trainable_weights),
        )
        # Reading a structure pays only for a model that is built repeatedly.
        if shapes not in _seen_shapes:
            _seen_shapes[shapes] = None
            if len(_seen_shapes) > MOST_SEEN:
                _seen_shapes.pop(next(iter(_seen_shapes)), None)
            return self._traced(kind, table, signature)
        if not is_ours(type(model)) or is_own(model, kind) or not model.built:
            return self._traced(kind, table, signature)
        # Read each time: changes since the last read count, as they do in a trace.
        structure = self._current_structure(kind, table, signature)
        if structure is None:
            return self._traced(kind, table, signature)
        return self.traced_as(structure, kind, table, signature)

    def traced_as(
        self, structure: Structure, kind: str, table: Table, signature: Signature
    ) -> Step:
        """Return a step of the model, reusing the trace of an equal model."""
        key = (*self._key(kind, table, signature), structure.key)
        step = sharing.RECENT.get(key, structure)
        if step is None:
            step = self._traced(kind, table, signature)
            sharing.RECENT.add(key, structure, step)
        return step

    def _current_structure(
        self, kind: str, table: Table, signature: Signature
    ) -> Structure | None:
        """Return the structure of a built model, prepared for a kind of step."""
        model = self._model
        if kind == "train":
            model.prepare_training()
        if kind != "predict" and not sharing.build_compiled(
            model, table.names, signature
        ):
            return None
        return structure_of(model)

    def _traced(self, kind: str, table: Table, signature: Signature) -> Step:
        registry.expect()
        with tracing.uncollected:
            return self.traced(kind, table, signature)

    def _compile(self, step: Step) -> registry.Executable:
        with tracing.uncollected:
            name = registry.backend_for(step.program, self._on_gpu)
            self._on_gpu = name == "cuda"
            return registry.backend(name).compile(step.program)

    def prepare(self, kind: str, table: Table, size: int, shuffle: bool) -> None:
        """Trace and compile the step for a table, so that the metrics exist."""
        signature = table.signature(min(size, table.rows), table.rows, shuffle)
        with self.lock:
            self.step(kind, table, signature)

    def traced(self, kind: str, table: Table, signature: Signature) -> Step:
        """Return a step as a program that is not compiled yet."""
        model, names = self._model, table.names
        if is_own(model, kind):
            return own_steps.traced(model, kind, names, signature)
        if not model.built:
            # The first call creates the weights, which determines what to train.
            tracing.predict_step(model, names, signature)
        if kind == "train":
            weights = model.prepare_training()
            return tracing.train_step(model, names, signature, weights)
        if kind == "test":
            return tracing.test_step(model, names, signature)
        return tracing.predict_step(model, names, signature)

    def run(
        self,
        compiled: Compiled,
        table: Table,
        steps: int,
        cursor: Cursor,
    ) -> Any:
        """Run some steps; return the results in the structure of the outputs."""
        step, executable = compiled
        if isinstance(executable, EagerSteps):
            replaced = self._replaced(cursor)
            return executable.run_steps(self._data(step, table), replaced, steps)
        data, state = self._arrays(step, executable, table, cursor)
        return step.results(executable.run(data, state, steps, keep_on_device=True))

    def _data(self, step: Step, table: Table) -> dict[str, np.ndarray]:
        if step.limits:
            table.check(step.limits)
        columns = table.arrays()
        return {name: columns[name] for name in step.program.data}

    def _replaced(self, cursor: Cursor) -> dict[Variable, np.ndarray]:
        training = self._model.training_state
        return {training.position: cursor.position, training.order: cursor.order}

    def _arrays(
        self, step: Step, executable: registry.Executable, table: Table, cursor: Cursor
    ) -> tuple[Arrays, Arrays]:
        """Return the data and the state that a step runs on."""
        data, replaced = self._data(step, table), self._replaced(cursor)
        return data, state_arrays(step, replaced, executable.keeps_on_device)

    def runs(
        self, kind: str, table: Table, size: int, shuffle: bool, cursor: Cursor
    ) -> Iterator[Run]:
        """Yield the runs of a pass through a table: full batches, then the last."""
        for signature, steps in self.signatures(kind, table, size, shuffle):
            step, executable = self.step(kind, table, signature)
            if isinstance(executable, EagerSteps):
                yield executable, {}, {}, steps
            else:
                arrays = self._arrays(step, executable, table, cursor)
                yield executable, *arrays, steps

    def signatures(
        self, kind: str, table: Table, size: int, shuffle: bool
    ) -> list[tuple[Signature, int]]:
        """Return the signatures of a pass through a table, with their steps."""
        if kind == "test" and table.is_one_batch(size, None):
            return [(table.signature(table.rows, None, False), 1)]
        parts = [(size, table.rows // size), (table.rows % size, 1)]
        return [
            (table.signature(rows, table.rows, shuffle), steps)
            for rows, steps in parts
            if rows and steps
        ]

    def run_batch(self, kind: str, table: Table) -> Any:
        """Run a step on an entire table as its batch."""
        with self.lock:
            table, length = self.padded(kind, table)
            compiled = self.step(kind, table, table.signature(table.rows, None, False))
            cursor = self._model.training_state.cursor
            results = self.run(compiled, table, 1, cursor)
        return self.buckets.cut(results, length)

    def padded(self, kind: str, table: Table) -> tuple[Table, int | None]:
        """Return a table to run, and the length that it had if it was padded.

        A step that the user wrote could see padding, so its data is never padded.
        """
        if self._model.run_eagerly or is_own(self._model, kind):
            return table, None
        return self.buckets.padded(kind, table)

    def take_cursor(self) -> Cursor:
        """Return a cursor at the first row, separate from that of training."""
        try:
            cursor = self._cursors.pop()
        except IndexError:
            cursor = Cursor(np.zeros((), "int32"), np.zeros(2, "uint32"))
        cursor.position[...] = 0
        cursor.order[...] = self._model.training_state.order.array
        return cursor

    def return_cursor(self, cursor: Cursor) -> None:
        """Keep a cursor for the next run: a GPU records launches by addresses."""
        self._cursors.append(cursor)


def _are_same(first: tuple[Any, ...], second: tuple[Any, ...] | None) -> bool:
    """Return whether a structure was read for the same data, optimizer and schedule."""
    if second is None:
        return False
    are_one = all(a is b for a, b in zip(first[2:], second[2:], strict=True))
    return are_one and first[:2] == second[:2]


def _used_by(
    model: TrainableModel, kind: str, compiled: Compiled
) -> tuple[list[Variable], list[Variable]]:
    """Return the variables that a step changes, and those that it only reads."""
    step, executable = compiled
    if isinstance(executable, EagerSteps):  # whose variables are unknown
        return list(model.trainable_weights) if kind == "train" else [], []
    new_values = step.program.graph.outputs
    changed: list[Variable] = []
    read: list[Variable] = []
    for name, variable in step.variables.items():
        (changed if name in new_values else read).append(variable)
    return changed, read


# ---- threads -----------------------------------------------------------------------


@dataclass
class _ThreadMetrics:
    """The metrics of a thread inside of `evaluate`, or of a `fit` that may call it."""

    depth: int = 0
    fits: int = 0
    sums: dict[Variable, np.ndarray] | None = None  # while other threads run


class ModelLock:
    """Serializes the threads that use a model, a chunk of steps at a time.

    `predict` and `evaluate` may be called from any number of threads, also while
    another one trains. But a step reads weights that another step writes, and the sums
    of metrics are variables of the model: each thread finds them as it left them.
    """

    def __init__(self, model: TrainableModel) -> None:
        self._model, self._held_off = model, forks.held_off()
        self._running, self._queue = threading.Lock(), threading.Lock()
        self._owner: int | None = None  # the thread that is running now
        self._depth = 0  # how often it has acquired the lock
        self._threads: dict[threading.Thread, _ThreadMetrics] = {}
        self._last: threading.Thread | None = None  # whose sums the metrics hold

    def __enter__(self) -> None:
        """Use the model while no other thread does; the lock is reentrant.

        Callbacks run without it: they may wait for other threads.
        """
        thread = threading.get_ident()
        if self._owner == thread:
            self._depth += 1
            return
        self._held_off.__enter__()
        try:
            with self._queue:  # fairness: a thread that comes back lets others go first
                self._running.acquire()
            self._owner, self._depth = thread, 1
            current = threading.current_thread()
            if current is not self._last:
                self._switch_metrics(current)
        except BaseException:
            self._leave()
            raise

    def __exit__(self, *error: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._leave()

    def _leave(self) -> None:
        if self._owner == threading.get_ident():  # not interrupted while it waited
            self._owner = None
            self._running.release()
        self._held_off.__exit__(None, None, None)

    def _switch_metrics(self, thread: threading.Thread) -> None:
        before, self._last = self._last, thread
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

        A model can be trained by a single thread at a time.
        """
        thread = threading.current_thread()
        with self:
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
            # Threads that do not run were left behind by a fork.
            if entry.fits and thread is not here and thread.is_alive():
                raise RuntimeError(
                    f'`{verb}`: the model "{self._model.name}" is being trained by '
                    f'another thread ("{thread.name}"), and only one can train it at a '
                    "time. Wait until that `fit` returns, or train a copy: "
                    "models.clone_model(model)."
                )
