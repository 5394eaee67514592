"""Models of equal structure that a GPU trains at once, step by step together.

Every launch has an axis of models, see `compiler/cuda/model_states.py`. Between epochs
only small arrays come to the host: the sums of metrics, and where each model stands in
the data. Each model ends with the bits that it would have alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ganglion.compiler import registry
from ganglion.metrics import Mean
from ganglion.training.data_adapters import Table
from ganglion.training.fit_loop import FitLoop, Interrupt, Supervisor, supervised
from ganglion.training.run_ahead import RunAhead
from ganglion.training.state import Logs
from ganglion.training.structure import Structure
from ganglion.training.tracing import Step
from ganglion.variables import Variable


@dataclass(frozen=True)
class Planned:
    """One model's training as `fit` has prepared it."""

    loop: FitLoop
    first: int  # epoch
    epochs: int
    structure: Structure

    @classmethod
    def of(cls, loop: FitLoop, first: int, epochs: int) -> Planned | None:
        """Return a training that may be one of a group, None if it must be alone."""
        state = loop.model.training_state
        begins = not int(state.position.array) and not state.was_loaded
        if first or not begins or not RunAhead.is_possible(loop):
            return None
        assert isinstance(loop.source, Table)
        structure = loop.cache.structure_for(loop.source, loop.size, loop.shuffle)
        return None if structure is None else cls(loop, first, epochs, structure)

    @property
    def key(self) -> tuple[Any, ...]:
        """What the trainings of a group have in common."""
        loop = self.loop
        tables = [_address(loop.source), _address(loop.validation.source)]
        sizes = (loop.size, loop.validation.size, loop.shuffle, self.epochs)
        return (self.structure.key, *tables, *sizes)


def _address(table: Any) -> tuple[Any, ...]:
    """Return where the data of a table is: equal for tables that show the same."""
    if not isinstance(table, Table):
        return ()
    return tuple(
        (name, array.__array_interface__["data"][0], array.shape, str(array.dtype))
        for name, array in table.arrays().items()
    )


@dataclass(frozen=True)
class _Run:
    """A compiled step for all models, its data and state, and how often it is run."""

    program: Any  # `registry.compile_models`
    data: dict[str, np.ndarray]
    numbers: dict[str, int]  # of its state, in the rows of models
    steps: int


class Group:
    """Trainings of equal structure on the same data."""

    def __init__(self, members: Sequence[Planned]) -> None:
        self._members, self._lead = members, members[0]
        self._count = len(members)
        self._variables: list[Variable | np.ndarray] = []  # of the first model
        self._positions: list[int | None] = []  # in a structure, None: same for all
        self._numbers: dict[Any, int] = {}
        self._in_structure = {
            id(v): n for n, v in enumerate(self._lead.structure.variables)
        }

    def train(
        self,
        interrupt: Interrupt,
        count: Callable[[int], None],
        warn_of: Callable[[FitLoop], Callable[[str], None]],
    ) -> bool:
        """Train all models to their ends; return False if they must be alone.

        `count` is called with the number of models that have finished an epoch, and
        `warn_of` returns who takes the warnings of a model.
        """
        self._interrupt, self._warn_of = interrupt, warn_of
        loop = self._lead.loop
        passes = {"train": list(self._runs("train", loop.source, loop.size))}
        if loop.validation.source is not None:
            size = loop.validation.size or 0
            passes["test"] = list(self._runs("test", loop.validation.source, size))
        if not all(runs and None not in runs for runs in passes.values()):
            return False
        training = loop.model.training_state
        place = (training.position, training.order, training.first_bad_step)
        self._place = [self._number(variable) for variable in place]
        for member in self._members:
            member.loop.model.reset_metrics()
            member.loop.model.training_state.first_bad_step.array[...] = -1
        sums = [v for metric in loop.model.metrics for v in metric.variables]
        self._sums = {id(v): self._number(v) for v in sums}
        self._starts = {self._sums[id(v)]: v.array.copy() for v in sums}
        self._open()
        self._train(passes, count)
        return True

    # ---- programs and memory -------------------------------------------------------

    def _runs(self, kind: str, table: Any, size: int) -> Iterator[_Run | None]:
        loop, structure = self._lead.loop, self._lead.structure
        shuffle = loop.shuffle and kind == "train"
        for signature, steps in loop.cache.signatures(kind, table, size, shuffle):
            step = loop.cache.traced_as(structure, kind, table, signature)
            program = registry.compile_models(step.program, self._count)
            if program is None or step.late:
                yield None
                return
            if step.limits:
                table.check(step.limits)
            columns = table.arrays()
            data = {name: columns[name] for name in step.program.data}
            yield _Run(program, data, self._numbers_of(step, kind), steps)

    def _numbers_of(self, step: Step, kind: str) -> dict[str, int]:
        """Return the number of each array of a step's state."""
        training = self._lead.loop.model.training_state
        cursor = {id(training.position): "position", id(training.order): "order"}
        numbers = {}
        for name, variable in step.variables.items():
            is_cursor = kind == "test" and id(variable) in cursor
            own = cursor[id(variable)] if is_cursor else None
            numbers[name] = self._number(variable, own)
        return numbers

    def _number(self, variable: Variable, own: str | None = None) -> int:
        """Return the number of a variable, or of an array of evaluation's `own`."""
        key = own or id(variable)
        if key not in self._numbers:
            self._numbers[key] = len(self._variables)
            self._variables.append(variable.array.copy() if own else variable)
            position = None if own else self._in_structure.get(id(variable))
            self._positions.append(position)
        return self._numbers[key]

    def _open(self) -> None:
        """Bring the variables of all models to the device."""
        arrays = [v if isinstance(v, np.ndarray) else v.array for v in self._variables]
        self._rows = registry.model_rows(arrays, self._count)
        for number, (array, position) in enumerate(
            zip(arrays, self._positions, strict=True)
        ):
            rows = self._rows.array(number)
            if position is None:
                rows[...] = array
                continue
            for which, member in enumerate(self._members):
                rows[which] = member.structure.variables[position].array
        self._rows.upload()

    def _close(self, which: int) -> None:
        """Copy its variables back into a model, from the host."""
        variables = self._members[which].structure.variables
        for number, position in enumerate(self._positions):
            if position is not None:
                variables[position].array[...] = self._rows.array(number)[which]

    # ---- epochs --------------------------------------------------------------------

    def _train(
        self,
        passes: dict[str, list[Any]],
        count: Callable[[int], None],
    ) -> None:
        position, order, bad_step = map(self._rows.array, self._place)
        histories: list[dict[str, list[float]]] = [{} for _ in self._members]
        running = np.ones(self._count, bool)
        for epoch in range(self._lead.first, self._lead.epochs):
            position[...] = 0
            logs = self._pass(passes["train"])
            order[:, 1] += 1
            position[...] = 0
            if "test" in passes:
                if "position" in self._numbers:  # not if it is one batch
                    self._rows.array(self._numbers["position"])[...] = 0
                held_out = self._pass(passes["test"])
                logs |= {f"val_{name}": values for name, values in held_out.items()}
            for which in np.flatnonzero(running).tolist():
                for name, values in logs.items():
                    histories[which].setdefault(name, []).append(values[which])
            count(int(running.sum()))
            ended = running & (bad_step > 0)
            is_last = epoch + 1 == self._lead.epochs
            if is_last or ended.any():
                self._rows.upload(small=True)
                self._rows.download()
                for which in np.flatnonzero(running if is_last else ended).tolist():
                    self._close(which)
                    self._end(which, epoch, histories[which])
                running &= ~ended
            self._interrupt.check()
            if not running.any():
                break

    def _pass(self, runs: Sequence[Any]) -> dict[str, list[float]]:
        """Take all models through some data; return their metrics."""
        for number, start in self._starts.items():
            self._rows.array(number)[...] = start
        self._rows.upload(small=True)
        for run in runs:
            state = self._rows.states(run.numbers)
            run.program.run_models(run.data, state, run.steps)
        self._rows.download(small=True)
        return self._logs()

    def _logs(self) -> dict[str, list[float]]:
        """Return the metrics of all models by name, a number for each model."""
        model: Any = self._lead.loop.model
        metrics, names = model.metrics, model.metrics_names
        if not all(type(metric).result is Mean.result for metric in metrics):
            return self._logs_one_by_one()
        logs = {}
        for name, metric in zip(names, metrics, strict=True):
            total, count = (
                self._rows.array(self._sums[id(v)])
                for v in (metric.total, metric.count)
            )
            means = np.zeros(self._count, total.dtype)
            np.divide(total, count, out=means, where=count != 0)
            logs[name] = means.astype(metric.dtype).astype(float).tolist()
        return {name: logs[name] for name in sorted(logs)}

    def _logs_one_by_one(self) -> dict[str, list[float]]:
        every: list[Logs] = []
        for which, member in enumerate(self._members):
            metrics = member.loop.model.metrics
            sums = [v for metric in metrics for v in metric.variables]
            for variable, number in zip(sums, self._sums.values(), strict=True):
                variable.array[...] = self._rows.array(number)[which]
            every.append(member.loop.model.logs_of(metrics))
        return {name: [logs[name] for logs in every] for name in every[0]}

    def _end(self, which: int, epoch: int, history: dict[str, list[float]]) -> None:
        """Let a model and its callbacks know how its training went."""
        loop = self._members[which].loop
        model, callbacks = loop.model, loop.callbacks
        model.stop_training = False
        callbacks.on_train_begin()
        model.training_state.end_epoch(epoch)
        assert callbacks.history is not None
        callbacks.history.epoch = list(range(self._lead.first, epoch + 1))
        callbacks.history.history = history
        with supervised(Supervisor(self._interrupt, self._warn_of(loop))):
            loop.warn_of_nan(epoch)
        model.optimizer.finalize_variable_values(model.chosen_weights or [])
        callbacks.on_train_end({name: values[-1] for name, values in history.items()})
