"""Models of equal structure that a GPU trains in lockstep.

Every launch has an axis of models, see `compiler/cuda/model_states.py`. Between epochs
only small arrays move: the sums of metrics, and the position of each model in the data;
the host looks at them after several epochs. Each model ends with the same bits as if it
were trained alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ganglion import keras2
from ganglion.callbacks import CallbackList
from ganglion.compiler import registry
from ganglion.training.data_adapters import Signature, Table
from ganglion.training.fit_loop import FitLoop, Interrupt, Supervisor, supervised
from ganglion.training.run_ahead import RunAhead, logs_of, means_of, sums_of
from ganglion.training.sharing import SharedVariableError
from ganglion.training.structure import Structure
from ganglion.training.tracing import Step, uncollected
from ganglion.variables import Variable, arrays_of


@dataclass(frozen=True)
class Planned:
    """One model's training as `fit` has prepared it."""

    loop: FitLoop
    first: int  # epoch
    epochs: int
    signature: Signature  # of its steps
    structure: Structure
    key: tuple[Any, ...]  # equal for trainings that may share a group

    @classmethod
    def of(cls, loop: FitLoop, first: int, epochs: int) -> Planned | None:
        """Return a training that may join a group, None if it must run alone."""
        if first or not _begins(loop.model) or not RunAhead.is_possible(loop):
            return None
        table = loop.source
        assert isinstance(table, Table)
        signature = table.signature(
            min(loop.size, table.rows), table.rows, loop.shuffle
        )
        structure = loop.cache.training_structure(table, signature)
        if structure is None:
            return None
        tables = [_address(loop.source), _address(loop.validation.source)]
        sizes = (loop.size, loop.validation.size, loop.shuffle, epochs)
        key = (structure.key, *tables, *sizes)
        return cls(loop, first, epochs, signature, structure, key)

    def of_equal(self, model: Any, callbacks: list[Any]) -> Planned | None:
        """Return the training of another model by the same arguments of `fit`.

        None if the model has another structure, or may: its `fit` must begin it. For
        models of equal structure, `fit` would find the same about the same data.
        """
        loop = self.loop
        assert isinstance(loop.source, Table)
        if _goes_by_names(loop) or not model.built or not _begins(model):
            return None
        cache = model._step_cache
        cache.lock.refuse_training("fit")
        structure = cache.training_structure(loop.source, self.signature)
        if structure is None or structure.key != self.structure.key:
            return None
        params = loop.callbacks.params or {}
        called = CallbackList(callbacks, True, model=model, **params)
        held_out = loop.validation.source
        if isinstance(held_out, Table):
            called.set_validation_data(held_out.as_keras2_list())
        own = loop.of_equal(model, called)
        return Planned(
            own, self.first, self.epochs, self.signature, structure, self.key
        )


def _begins(model: Any) -> bool:
    """Return whether a model is not in the middle of an epoch, or of a loaded run."""
    state = model.training_state
    return not int(state.position.array) and not state.was_loaded


def _goes_by_names(loop: FitLoop) -> bool:
    """Return whether data is assigned to inputs and outputs by name."""
    tables = (loop.source, loop.validation.source)
    return keras2.is_own or any(
        isinstance(part, dict)
        for table in tables
        if isinstance(table, Table)
        for part in table.names
    )


def _address(table: Any) -> tuple[Any, ...]:
    """Return the addresses of a table's data: equal for tables of the same arrays."""
    if not isinstance(table, Table):
        return ()
    return tuple(
        (name, array.__array_interface__["data"][0], array.shape, str(array.dtype))
        for name, array in table.arrays().items()
    )


@dataclass(frozen=True)
class _Run:
    """A step compiled for all models, with its data, its state and its repetitions."""

    program: Any  # `registry.compile_models`
    data: dict[str, np.ndarray]
    numbers: dict[str, int]  # of the arrays of its state
    steps: int


_OWN = ("position", "order")  # variables of evaluation
# Epochs that run before the host looks at any of them: Ctrl-C waits for their end.
_MOST_AT_ONCE, _SECONDS_AT_ONCE, _BYTES_AT_ONCE = 32, 0.1, 1 << 26


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
        warn_of: Callable[[FitLoop], Callable[[Any, str], None]],
    ) -> bool:
        """Train all models to their ends; return False if they must train alone.

        `count` is called with the number of models that have finished an epoch, and
        `warn_of` returns the function that receives the warnings of a model.
        """
        self._interrupt, self._warn_of = interrupt, warn_of
        loop = self._lead.loop
        sources = {"train": (loop.source, loop.size)}
        if loop.validation.source is not None:
            sources["test"] = (loop.validation.source, loop.validation.size or 0)
        passes = {}
        for kind, source in sources.items():
            runs = self._runs(kind, *source)
            if runs is None:
                return False
            passes[kind] = runs
        training = loop.model.training_state
        cursor = (training.position, training.order, training.first_bad_step)
        self._cursor = [self._number(variable) for variable in cursor]
        loop.model.reset_metrics()
        sums = sums_of(loop.model.metrics)
        self._sums = {id(v): self._number(v) for v in sums}
        self._starts = {self._sums[id(v)]: v.array.copy() for v in sums}
        self._open()
        self._train(passes, count)
        return True

    # ---- programs and memory -------------------------------------------------------

    def _runs(self, kind: str, table: Any, size: int) -> list[_Run] | None:
        """Return the runs of a pass through a table, None if models must run alone."""
        runs = []
        loop, structure = self._lead.loop, self._lead.structure
        shuffle = loop.shuffle and kind == "train"
        for signature, steps in loop.cache.signatures(kind, table, size, shuffle):
            step = loop.cache.traced_as(structure, kind, table, signature)
            program = registry.compile_models(step.program, self._count)
            if program is None or step.late:
                return None
            self._refuse_shared(step)
            if step.limits:
                table.check(step.limits)
            columns = table.arrays()
            data = {name: columns[name] for name in step.program.data}
            runs.append(_Run(program, data, self._numbers_of(step, kind), steps))
        return runs

    def _refuse_shared(self, step: Step) -> None:
        """Refuse models that have a variable in common which the step changes."""
        for name, variable in step.variables.items():
            position = self._in_structure.get(id(variable))
            if position is None or name not in step.program.graph.outputs:
                continue
            own = {id(m.structure.variables[position]) for m in self._members}
            if len(own) < self._count:
                raise SharedVariableError(variable)

    def _numbers_of(self, step: Step, kind: str) -> dict[str, int]:
        """Return the number of each array of a step's state."""
        training = self._lead.loop.model.training_state
        cursor = dict(
            zip((id(training.position), id(training.order)), _OWN, strict=True)
        )
        numbers = {}
        for name, variable in step.variables.items():
            is_cursor = kind == "test" and id(variable) in cursor
            own = cursor[id(variable)] if is_cursor else None
            numbers[name] = self._number(variable, own)
        return numbers

    def _number(self, variable: Variable, own: str | None = None) -> int:
        """Return the number of a variable, or of evaluation's own copy of it."""
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
        of_tests = [self._numbers[name] for name in _OWN if name in self._numbers]
        leading = [*self._cursor[:2], *of_tests, *self._sums.values()]
        self._rows = registry.model_rows(arrays, self._count, leading)
        self._views = [self._rows.array(number) for number in range(len(arrays))]
        self._arrays = [arrays_of(m.structure.variables) for m in self._members]
        for model, own in enumerate(self._arrays):
            self._rows.fill(
                model,
                [
                    array if position is None else own[position]
                    for array, position in zip(arrays, self._positions, strict=True)
                ],
            )
        self._views[self._cursor[2]][...] = -1  # no step was bad yet
        self._rows.upload()

    def _close(self, which: Sequence[int]) -> None:
        """Copy the downloaded rows into the variables of some models."""
        for rows, position in zip(self._views, self._positions, strict=True):
            if position is not None:
                for model in which:
                    self._arrays[model][position][...] = rows[model]

    # ---- epochs --------------------------------------------------------------------

    def _train(
        self, passes: dict[str, list[_Run]], count: Callable[[int], None]
    ) -> None:
        running, kinds = np.ones(self._count, bool), len(passes)
        most = _MOST_AT_ONCE * kinds
        self._record = self._rows.passes(kinds, most, _BYTES_AT_ONCE)
        most = self._record.count // kinds
        self._sums_after: dict[str, list[list[np.ndarray]]] = {k: [] for k in passes}
        epoch, last, at_once = self._lead.first, self._lead.epochs, 1
        while epoch < last and running.any():
            started = time.perf_counter()
            epochs = self._epochs(passes, min(at_once, last - epoch), running)
            is_short = 2 * (time.perf_counter() - started) < _SECONDS_AT_ONCE
            at_once = min(2 * epochs, most) if is_short else epochs
            epoch += epochs
            count(epochs * int(running.sum()))
            ended = running & (self._views[self._cursor[2]] > 0)
            if epoch == last or ended.any():
                self._rows.upload(small=True)
                self._rows.download()
                leaving = np.flatnonzero(running if epoch == last else ended)
                with uncollected:  # everything allocated here is kept
                    self._finish(leaving.tolist(), epoch - 1)
                running &= ~ended
            self._interrupt.check()

    def _epochs(
        self, passes: dict[str, list[_Run]], most: int, running: np.ndarray
    ) -> int:
        """Take all models through some epochs at once; return how many.

        A model that had a bad step ends with that epoch: it must not be trained further
        before the host can react. So those epochs are then run again, one at a time.
        """
        epochs = most if most > 1 and self._rows.save() else 1
        position, order, bad_step = (self._views[n] for n in self._cursor)
        order_before, kinds = order.copy(), list(passes) * epochs
        for number, kind in enumerate(kinds):
            self._set(number)
            if kind == "train":
                order[:, 1] += 1
        order_after = order.copy()
        self._record.upload(len(kinds))
        for number, kind in enumerate(kinds):
            self._record.begin(number)
            for run in passes[kind]:
                state = self._rows.states(run.numbers)
                run.program.run_models(run.data, state, run.steps)
            self._record.end(number)
        self._record.download(len(kinds))
        self._rows.download(small=True)
        position[...], order[...] = 0, order_after
        if epochs > 1 and bool((running & (bad_step > 0)).any()):
            self._rows.restore()
            order[...] = order_before
            return self._epochs(passes, 1, running)
        for number, kind in enumerate(kinds):
            sums = [self._record.array(number, n).copy() for n in self._sums.values()]
            self._sums_after[kind].append(sums)
        return epochs

    def _set(self, number: int) -> None:
        """Set the variables with which a pass through some data begins."""
        self._views[self._cursor[0]][...] = 0
        if "position" in self._numbers:  # not if evaluation is of one batch
            self._views[self._numbers["position"]][...] = 0
        for variable, start in self._starts.items():
            self._views[variable][...] = start
        self._record.set(number)

    def _finish(self, leaving: Sequence[int], epoch: int) -> None:
        """Finish the training of some models, whose rows are downloaded."""
        histories = self._histories(leaving)
        self._close(leaving)
        for which, history in zip(leaving, histories, strict=True):
            self._end(which, epoch, history)

    # ---- metrics -------------------------------------------------------------------

    def _histories(self, which: Sequence[int]) -> list[dict[str, list[float]]]:
        """Return the metrics of some models after every epoch until now."""
        histories: list[dict[str, list[float]]] = [{} for _ in which]
        lead = self._lead.loop.model
        models = [self._members[number].loop.model for number in which]
        for kind, every in self._sums_after.items():
            sums = [np.stack(rows, axis=1)[which] for rows in zip(*every, strict=True)]
            means = means_of(lead, lead.metrics, _named(lead, sums))  # of all at once
            prefix = "val_" if kind == "test" else ""
            for number, (model, history) in enumerate(
                zip(models, histories, strict=True)
            ):
                if means is not None:
                    logs = {name: lists[number] for name, lists in means.items()}
                else:
                    own = _named(model, [rows[number] for rows in sums])
                    logs = logs_of(model, model.metrics, own)
                history |= {prefix + name: values for name, values in logs.items()}
        return histories

    def _end(self, which: int, epoch: int, history: dict[str, list[float]]) -> None:
        """Finish the training of a model: its state, its history, its callbacks."""
        loop = self._members[which].loop
        model, callbacks = loop.model, loop.callbacks
        model.stop_training = False
        callbacks.on_train_begin()
        model.training_state.end_epoch(epoch)
        assert callbacks.history is not None
        callbacks.history.epoch = list(range(self._lead.first, epoch + 1))
        callbacks.history.history = history
        if int(model.training_state.first_bad_step.array) > 0:
            with supervised(Supervisor(self._interrupt, self._warn_of(loop))):
                loop.warn_of_nan(epoch)
        model.optimizer.finalize_variable_values(model.chosen_weights or [])
        callbacks.on_train_end({name: values[-1] for name, values in history.items()})


def _named(model: Any, sums: Sequence[np.ndarray]) -> dict[Variable, np.ndarray]:
    """Return the sums of metrics by the variables of a model."""
    return dict(zip(sums_of(model.metrics), sums, strict=True))
