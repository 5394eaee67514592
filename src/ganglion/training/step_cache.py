"""Runs a model's steps over data: each compiled once, then run in chunks."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ganglion import config, tree
from ganglion.compiler import choice, registry
from ganglion.training import trace
from ganglion.training.data_adapters import Signature, Table, named_leaves, warn_of_end
from ganglion.training.state import Cursor
from ganglion.training.trace import Batch, Step
from ganglion.training.turns import Turns

CHUNK_SECONDS = 0.2  # long enough to cost nothing, short enough to answer Ctrl-C
KEPT_STEPS = 64


class Interrupt:
    """Lets Ctrl-C wait for the end of a chunk, so that no step is half done.

    A second Ctrl-C does not wait.
    """

    def __init__(self) -> None:
        self.asked = False
        self._before: Any = None

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *error: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _note(self, number: int, frame: Any) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    def check(self) -> None:
        """Raise KeyboardInterrupt if Ctrl-C was pressed."""
        if self.asked:
            raise KeyboardInterrupt


class Runner:
    """The compiled steps of one model."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.turns = Turns(model)
        self._cursors: list[Cursor] = []  # of evaluations and predictions, to use again
        self._steps: OrderedDict[Any, tuple[Step, registry.Executable]] = OrderedDict()
        self._on_gpu = False
        self._schedules: dict[int, Any] = {}
        self._paces: dict[Any, int] = {}  # steps at a time, of the last epoch

    def forget(self) -> None:
        """Trace everything anew; called when the model or its training changes."""
        with self.turns.take():
            self._steps.clear()
            self._schedules.clear()
            self._paces.clear()

    def step(
        self, kind: str, batch: Batch, signature: Signature
    ) -> tuple[Step, registry.Executable]:
        """Return the compiled step of a kind for data of this signature."""
        # A new schedule is part of the graph; a new rate is only another number.
        schedule = getattr(self._model.optimizer, "_learning_rate", None)
        key = (
            kind,
            signature,
            repr(batch),
            config.backend_choice(),
            config.precise(),
            config.precision(),
            id(schedule),
        )
        self._schedules[id(schedule)] = schedule  # so that its number stays its own
        if key not in self._steps:
            choice.expect()
            made = self.traced(kind, batch, signature)
            name = choice.backend_for(made.program, self._on_gpu)
            self._on_gpu = name == "cuda"
            compiled = registry.backend(name).compile(made.program)
            self._steps[key] = (made, compiled)
            if len(self._steps) > KEPT_STEPS:
                self._steps.popitem(last=False)
        self._steps.move_to_end(key)
        if kind == "train":
            self._model.take_up_metrics()
        return self._steps[key]

    def prepare(self, kind: str, table: Table, size: int, shuffle: bool) -> None:
        """Trace and compile the step for a table, so that the metrics exist."""
        rows = min(size, table.rows)
        signature = table.signature(rows, table.rows, shuffle)
        with self.turns.take():
            self.step(kind, batch_of(table), signature)

    def traced(self, kind: str, batch: Batch, signature: Signature) -> Step:
        """Return a step as a program that is not compiled yet."""
        model = self._model
        if not model.built:
            # A first call makes the weights, so that it is known what to train.
            trace.predict_step(model, batch, signature)
        if kind == "train":
            weights = model.prepare_training()
            return trace.train_step(model, batch, signature, weights)
        if kind == "test":
            return trace.test_step(model, batch, signature)
        return trace.predict_step(model, batch, signature)

    def _run(
        self,
        compiled: tuple[Step, registry.Executable],
        table: Table,
        steps: int,
        cursor: Cursor,
    ) -> Any:
        """Run some steps; return the results in the structure of the outputs."""
        step, executable = compiled
        table.check(step.limits)
        arrays = table.arrays()
        data = {name: arrays[name] for name in step.program.data}
        keeping = getattr(executable, "run_and_keep", None)
        training = self._model.training_state
        replaced = {training.position: cursor.position, training.order: cursor.order}
        state = trace.as_state(step, replaced, keeping is not None)
        results = (keeping or executable.run)(data, state, steps)
        if not step.program.results:
            return None
        return tree.pack(step.outputs, [results[n] for n in step.program.results])

    def once(self, kind: str, table: Table) -> Any:
        """Run one step on a batch that is given as it is."""
        signature = table.signature(table.rows, None, False)
        with self.turns.take():
            compiled = self.step(kind, batch_of(table), signature)
            return self._run(compiled, table, 1, self._model.training_state.cursor)

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

    def epoch(
        self,
        kind: str,
        table: Table,
        size: int,
        *,
        cursor: Cursor,
        shuffle: bool = False,
        steps: int | None = None,
        each_batch: bool = False,
        before: Callable[[int], None] | None = None,
        done: int = 0,
    ) -> Iterator[tuple[int, Any]]:
        """Run an epoch in chunks; yield the steps done so far and the chunk's results.

        Starts where the cursor stands; at the end of the rows the epoch is over, as in
        Keras, and the next one begins with the first row, in a new order.
        """
        batch = batch_of(table)
        _check_position(cursor, table)
        steps = -(-table.rows // size) if steps is None else steps
        known = (kind, size, table.rows, config.backend_choice())
        pace = Pace(each_batch, self._paces.get(known, 1))
        watched = each_batch or before is not None  # by who may change the model
        compiled, compiled_for = None, 0
        # An epoch that was interrupted at the end of the rows is over, too.
        is_over = done > 0 and int(cursor.position) == 0
        while done < steps and not is_over:
            left = table.rows - int(cursor.position)
            rows = min(size, left)
            count = pace.chunk(min(left // rows, steps - done))
            if before is not None:
                before(done)
            with self.turns.take():
                if compiled is None or watched or rows != compiled_for:
                    signature = table.signature(rows, table.rows, shuffle)
                    compiled = self.step(kind, batch, signature)  # no part of the pace
                    compiled_for = rows
                with pace:
                    results = self._run(compiled, table, count, cursor)
            done += count
            if rows == size:
                self._paces[known] = pace.steps
            is_over = int(cursor.position) >= table.rows
            if is_over:
                cursor.start_pass()
            yield done, results
        if done < steps:
            warn_of_end(done, steps)


def _check_position(cursor: Cursor, table: Table) -> None:
    """Refuse to go on in data that ends before the row at which a run was saved."""
    row = int(cursor.position)
    if row >= table.rows:
        raise ValueError(
            f"The run was saved at row {row} of its data, which now has {table.rows} "
            "rows: go on with the same data, or with the next epoch (`initial_epoch`)."
        )


class Pace:
    """Chooses how many steps to run at a time, by how long the last ones took."""

    def __init__(self, each_batch: bool, steps: int = 1) -> None:
        self._each = each_batch
        self.steps = steps
        self._started = 0.0

    def chunk(self, most: int) -> int:
        """Return how many steps to run next."""
        self._last = 1 if self._each else max(1, min(self.steps, most))
        return self._last

    def __enter__(self) -> Pace:
        self._started = time.perf_counter()
        return self

    def __exit__(self, *error: object) -> None:
        seconds = max(time.perf_counter() - self._started, 1e-9)
        wanted = int(self._last * CHUNK_SECONDS / seconds)
        # The first steps are slower than the rest: grow, but not all at once.
        self.steps = max(1, min(wanted, self._last * 16))


def batch_of(table: Table) -> Batch:
    """Return the structure of a table with the names of its columns as leaves."""

    def names(structure: Any, name: str) -> Any:
        if structure is None:
            return None
        leaves = named_leaves(structure, name)
        return tree.pack(
            structure, [None if leaf is None else where for where, leaf in leaves]
        )

    return Batch(
        names(table.x, "x"),
        names(table.y, "y"),
        names(table.sample_weight, "sample_weight"),
    )


def joined(parts: list[Any]) -> Any:
    """Join the results of chunks, each (steps, batch, ...), into rows."""
    first = parts[0]
    columns = zip(*(tree.flatten(part) for part in parts), strict=True)
    rows = [
        # Not by -1: rows may have no elements.
        np.concatenate(
            [one.reshape(math.prod(one.shape[:2]), *one.shape[2:]) for one in column]
        )
        for column in columns
    ]
    return tree.pack(first, rows)
