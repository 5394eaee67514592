"""`fit_many`: many models trained at once, each as `fit` alone would train it.

Models are spread over threads. A thread takes the next setting, builds its model and
trains it by `fit`, whose steps run in machine code and without Python's lock. Models
of equal structure share their compiled steps, see `training/sharing.py`.
"""

from __future__ import annotations

import random as python_random
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ganglion import config, random, tree
from ganglion.callbacks import Callback, History
from ganglion.many.callbacks import callbacks_for
from ganglion.many.data import SharedData
from ganglion.many.lockstep import Group, Planned
from ganglion.many.model_set import Member, ModelSet
from ganglion.many.progress import Progress
from ganglion.many.set_file import SavedAsItGoes, by_one_process
from ganglion.many.settings import ModelPlan, Setting, plans_for
from ganglion.many.threads import Workers, noted, warned, workers_for
from ganglion.models import Model
from ganglion.system import ray_cluster, terminal
from ganglion.training import data_adapters, fit_loop
from ganglion.training.fit_loop import Supervisor, supervised
from ganglion.training.sharing import SharedSteps
from ganglion.training.tracing import uncollected
from ganglion.utils.session import set_random_seed
from ganglion.variables import counted_anew


class Interrupted(KeyboardInterrupt):
    """Ctrl-C: the models that are finished are in `finished`.

    >>> issubclass(Interrupted, KeyboardInterrupt)
    True
    """

    def __init__(self, message: str, finished: ModelSet) -> None:
        super().__init__(message)
        self.finished = finished


def fit_many(
    build: Callable[..., Any] | Sequence[Any],
    settings: Sequence[Setting] | None = None,
    x: Any = None,
    y: Any = None,
    batch_size: int | None = None,
    epochs: int = 1,
    verbose: Any = "auto",
    callbacks: Any = None,
    validation_split: float = 0.0,
    validation_data: Any = None,
    shuffle: bool = True,
    class_weight: Any = None,
    sample_weight: Any = None,
    initial_epoch: int = 0,
    *,
    threads: int | None = None,
    resume: Any = None,
    on: str | None = None,
    monitor: str | None = None,
    progress: Progress | None = None,
    fitting: Callable[..., Fitting] | None = None,
    **arguments: Any,
) -> ModelSet:
    """Train many models at once; each result is what `fit` alone would give.

    Args:
        build: A function that returns a compiled model for each setting, or a list of
            compiled models.
        settings: A dictionary for each model. Names that the builder takes go to the
            builder, names that `fit` takes to `fit`. These are for the set: `seed`
            (of all random numbers; drawn where there is none), `rows` (which rows to
            train on), `validation_rows`, `target` (which column of `y` to learn),
            `name`. See `grid`, `folds` and `crossed`.
        x: Inputs, as arrays: they are held once for all models.
        y: Targets.
        batch_size: As in `fit`, like all arguments that are not described here.
        epochs: How many times each model is trained on all data.
        verbose: 0 for silence, "auto" or 1 for one line that is drawn over, 2 for a
            line a model.
        callbacks: Callbacks, of which every model gets copies; or a function of the
            model's index that returns some.
        validation_split: Share of the rows, the last ones, to validate on.
        validation_data: Data to validate on.
        shuffle: Whether to shuffle the rows before every epoch.
        class_weight: The weight of each class.
        sample_weight: The weight of each row.
        initial_epoch: The epoch to begin with.
        threads: How many models are trained at the same time; the number of threads of
            `ganglion.config` by default.
        resume: A file for the set. Each model is kept beside it when it is finished,
            and a call that was stopped continues with the others.
        on: "ray" to train on the Ray cluster that this machine is a part of, or
            "ray://HOST:PORT"; here by default. The builder, the data and the callbacks
            travel there, the models come back.
        monitor: The metric that progress shows the best of.
        progress: An object that shows progress in another way, instead of `verbose`.
        fitting: A class that trains in another way than `Fitting`.
        **arguments: Other arguments of `fit`.

    Returns:
        The models and their histories, in the order of the settings. A model whose
        loss is not a number any more stops, as its `message` says.
    """
    common = {
        "epochs": epochs, "validation_split": validation_split, "shuffle": shuffle,
        "class_weight": class_weight, "initial_epoch": initial_epoch, **arguments,
    }  # fmt: skip
    x, y, batch_size, shuffles = data_adapters.as_rows(x, y, batch_size)
    common["batch_size"] = batch_size
    if shuffles is not None:
        common["shuffle"] = shuffles
    fit_loop.check_epochs(epochs, initial_epoch)
    builder, models = _builder_or_models(build)
    _check_place(on, builder, threads)
    settings = _settings_for(models, settings)
    data = SharedData.of(x, y, sample_weight, validation_data)
    with nullcontext() if resume is None else by_one_process(resume):
        saved = None
        if resume is not None:
            saved = SavedAsItGoes(resume, settings, common, data.checksum())
        plans = plans_for(builder, settings, saved.seeds if saved is not None else None)
        progress = progress or Progress(verbose, monitor)
        progress.begin(plans, epochs - initial_epoch)
        parts = (builder, models, plans, data, common, callbacks, saved, progress)
        if on is None:
            return (fitting or Fitting)(*parts).run(threads)
        from ganglion.many.on_ray import RayFitting

        return RayFitting(on, *parts).run(threads)


def _builder_or_models(
    build: Any,
) -> tuple[Callable[..., Any], None] | tuple[None, list[Any]]:
    if callable(build) and not isinstance(build, Model):
        return build, None
    return None, _checked_models(build)


def _check_place(on: str | None, builder: Any, threads: int | None) -> None:
    if on is None:
        return
    ray_cluster.address_of(on, f"on={on!r}")
    if builder is None:
        raise ValueError(
            f"on={on!r} needs a function that builds the models, not a list of them: "
            "the nodes call it."
        )
    if threads is not None:
        raise ValueError(f"`threads` is for this machine; with on={on!r}, leave it.")


def _settings_for(
    models: list[Any] | None, settings: Sequence[Setting] | None
) -> list[Setting]:
    if models is None or settings is not None:
        settings = list(settings or ())
    else:
        settings = [{} for _ in models]
    if models is not None and len(settings) != len(models):
        raise ValueError(
            f"There are {len(models)} models and {len(settings)} settings: give one "
            "for each, or none."
        )
    return settings


def _checked_models(models: Any) -> list[Any]:
    if isinstance(models, Model) or not isinstance(models, (list, tuple)):
        raise TypeError(
            "`build` must be a function that returns a compiled model, or a list of "
            f"compiled models, not {models!r:.60}."
        )
    if not models:
        raise ValueError("The list of models is empty: there is nothing to train.")
    seen: set[int] = set()
    for index, model in enumerate(models):
        _check_model(model, f"Model {index} of the list")
        if id(model) in seen:
            raise ValueError(
                f"Model {index} of the list appears twice: train a copy, "
                "models.clone_model(model)."
            )
        seen.add(id(model))
    return list(models)


def _check_model(model: Any, what: str) -> None:
    if not isinstance(model, Model):
        raise TypeError(
            f"{what} is {type(model).__name__}, not a model: return one that "
            "`compile` was called on."
        )
    if not model.compiled:
        raise ValueError(
            f"{what} is not compiled: call `model.compile(optimizer, loss)` first."
        )


class Fitting:
    """The training of a set: its waiting, running and finished models."""

    def __init__(
        self,
        build: Callable[..., Any] | None,
        models: list[Any] | None,
        plans: list[ModelPlan],
        data: SharedData,
        arguments: dict[str, Any],
        callbacks: Any,
        saved: SavedAsItGoes | None,
        progress: Progress,
    ) -> None:
        self._build, self._models, self._plans = build, models, plans
        self._data, self._arguments, self._callbacks = data, arguments, callbacks
        self._saved, self._progress = saved, progress
        self._steps = SharedSteps()
        self._members: dict[int, Member] = {}
        self._waiting = deque(plans)
        self._building = threading.Lock()
        self._prebuilt: dict[int, Any] = {}  # models that turned out to train alone
        self._built_for: WeakKeyDictionary[Any, int] = WeakKeyDictionary()

    def run(self, threads: int | None) -> ModelSet:
        """Train the models that are not finished yet; return the complete set."""
        try:
            with kept_random_numbers():
                self._train(threads)
        except Exception as error:
            error.add_note(self._kept_text(len(self._members)))
            raise
        finally:
            finished = ModelSet([m for _, m in sorted(self._members.items())])
            self._progress.end()
        if len(finished) < len(self._plans):
            raise self._interrupted(finished)
        if self._saved is not None:
            self._saved.complete(finished)
        return finished

    def _train(self, threads: int | None) -> None:
        self._at_work, threads_each = workers_for(len(self._plans), threads)
        self._workers = Workers(self._at_work, threads_each)
        if self._may_group():
            self._waiting = deque(self._train_in_groups())
        self._workers.run(self._work, self._progress.show)

    def _interrupted(self, finished: ModelSet) -> Interrupted:
        place = "; they are in the `finished` of this exception"
        text = self._kept_text(len(finished), "" if self._saved is not None else place)
        return Interrupted(text, finished)

    def _kept_text(self, finished: int, place: str = "") -> str:
        """Return what is saved of a set that is stopped, and how to resume it."""
        count = f"{finished} of {len(self._plans)} models are finished"
        if self._saved is None:
            return (
                f"{count}{place}. With resume='set.zip', a call that is stopped goes "
                "on where it was."
            )
        return (
            f"{count} and kept: the same call, with "
            f"resume={str(self._saved.path)!r}, goes on with the others."
        )

    # ---- groups that a GPU trains at once ------------------------------------------

    def _may_group(self) -> bool:
        """Return whether models may train together: on a GPU, without callbacks."""
        is_on_gpu = config.backend_choice() == "cuda"
        return is_on_gpu and self._callbacks is None and len(self._plans) > 1

    def _train_in_groups(self) -> list[ModelPlan]:
        """Train models of equal structure together; return the plans of the others."""
        for plan in self._plans:
            with noted(str(plan)):
                self._prebuilt[plan.index] = self._built(plan)
        prepared: list[tuple[ModelPlan, Any, Watch, Planned]] = []
        others: list[ModelPlan] = []
        like: Planned | None = None  # the last one that began with everyone's arguments
        with uncollected:  # everything allocated here is kept
            for plan in self._plans:
                model, watch = self._prebuilt[plan.index], Watch(self._progress)
                is_done = self._saved is not None and self._saved.has(plan)
                training = None
                with noted(str(plan)):
                    if not is_done and like is not None and plan.has_data_of_all:
                        training = like.of_equal(model, [watch])
                    if not is_done and training is None:
                        training = self._prepared(plan, model, watch)
                if training is None:
                    others.append(plan)
                    continue
                like = training if plan.has_data_of_all else like
                prepared.append((plan, model, watch, training))
        groups: dict[Any, list[tuple[ModelPlan, Any, Watch, Planned]]] = {}
        for entry in prepared:
            groups.setdefault(entry[3].key, []).append(entry)
        with self._workers.interrupt:
            for entries in groups.values():
                if len(entries) < 2 or not self._train_group(entries):
                    others += [plan for plan, *_ in entries]
        return sorted(others, key=lambda plan: plan.index)

    def _prepared(self, plan: ModelPlan, model: Any, watch: Watch) -> Planned | None:
        """Return a model's training as `fit` would begin it, if it may be grouped."""
        taken: list[Planned | None] = []

        def take(loop: fit_loop.FitLoop, first: int, epochs: int) -> None:
            taken.append(Planned.of(loop, first, epochs))

        interrupt = self._workers.interrupt
        with supervised(Supervisor(interrupt, watch.note, take)):
            model.fit(**self._fit_arguments(plan), callbacks=[watch], verbose=0)
        return taken[0]

    def _train_group(
        self, entries: Sequence[tuple[ModelPlan, Any, Watch, Planned]]
    ) -> bool:
        """Train a group, in parts if there is no room for all of it at once."""
        start = time.perf_counter()
        notes = {id(training.loop): watch.note for _, _, watch, training in entries}
        group = Group([training for *_, training in entries])

        def count(models: int) -> None:
            self._progress.count_epoch(models)
            self._progress.show()

        try:
            is_trained = group.train(
                self._workers.interrupt, count, lambda loop: notes[id(loop)]
            )
        except MemoryError:
            if len(entries) < 2:
                raise
            half = len(entries) // 2
            terminal.tell_once(
                f"The GPU has no room for {len(entries)} models at once: they are "
                "trained in parts."
            )
            return all(map(self._train_group, (entries[:half], entries[half:])))
        if not is_trained:
            return False
        seconds = (time.perf_counter() - start) / len(entries)
        for plan, model, watch, training in entries:
            history = training.loop.callbacks.history
            assert history is not None
            history.message = watch.message
            member = self._finished(plan, model, history, seconds)
            self._add(member, was_there=False)
            del self._prebuilt[plan.index]
        return True

    # ---- in each thread ------------------------------------------------------------

    def _work(self) -> None:
        while not self._workers.is_stopped:
            plan, was_alone = self._next(), self._at_work == 1
            if plan is None:
                return
            try:
                with noted(str(plan)):
                    self._do(plan)
            except MemoryError:
                if was_alone or self._build is None:  # a model may be half trained
                    raise
                if self._put_back(plan):
                    return

    def _next(self) -> ModelPlan | None:
        """Return the plan of the model to train next, None if this thread must end."""
        with self._building:
            if self._waiting:
                return self._waiting.popleft()
            self._at_work -= 1
            return None

    def _do(self, plan: ModelPlan) -> None:
        with self._building:  # no other thread draws random numbers
            model = self._built(plan)
        before = self._finished_before(plan, model)
        member = before or self._fit(plan, model)
        self._add(member, was_there=before is not None)

    def _put_back(self, plan: ModelPlan) -> bool:
        """Queue a model again that ran out of memory; it is rebuilt later.

        Returns whether this thread must end, so that fewer models train at once. The
        last thread continues.
        """
        with self._building:
            self._waiting.appendleft(plan)
            if self._at_work == 1:
                return False
            self._at_work -= 1
            fewer = self._at_work
        warnings.warn(
            f"Memory does not suffice for {fewer + 1} models at once: going on with "
            f"{fewer}.",
            RuntimeWarning,
            stacklevel=2,
        )
        return True

    def _add(self, member: Member, was_there: bool) -> None:
        self._members[member.index] = member
        self._progress.finished(member, was_there=was_there)

    def _built(self, plan: ModelPlan) -> Any:
        """Return the model of a plan, with its weights created."""
        if plan.index in self._prebuilt:
            return self._prebuilt.pop(plan.index)
        if self._build is None:
            assert self._models is not None
            model = self._models[plan.index]
        else:
            assert plan.seed is not None
            set_random_seed(plan.seed)
            with counted_anew():  # layers of all models have the same names
                model = self._build(**plan.for_builder)
            _check_model(model, f"What the builder returned for {plan}")
            self._refuse_same(model, plan)
        if not model.built and not data_adapters.is_never_compiled(model):
            _make_weights(model, self._data.x)
        model._step_cache.share(self._steps)
        if self._saved is not None and plan.index == 0:
            self._saved.check(model, is_built_anew=self._build is not None)
        return model

    def _refuse_same(self, model: Any, plan: ModelPlan) -> None:
        """Raise if a builder returns the same model twice."""
        before = self._built_for.setdefault(model, plan.index)
        if before != plan.index:
            raise ValueError(
                f"The builder returned the same model for {plan} as for model {before}:"
                " it must build a new one each time that it is called."
            )

    def _finished_before(self, plan: ModelPlan, model: Any) -> Member | None:
        """Return the model if an earlier call has finished it, otherwise None."""
        if self._saved is None or not self._saved.has(plan):
            return None
        return self._saved.read(plan, model)

    def _fit_arguments(self, plan: ModelPlan) -> dict[str, Any]:
        arguments = {**self._arguments, **plan.for_fit, **self._data.for_model(plan)}
        if "validation_data" in arguments:
            arguments["validation_split"] = 0.0
        return arguments

    def _fit(self, plan: ModelPlan, model: Any) -> Member:
        start = time.perf_counter()
        arguments = self._fit_arguments(plan)
        watch = Watch(self._progress)
        own = callbacks_for(self._callbacks, plan.index, plan.count > 1)
        called = [*own, watch]
        supervisor = Supervisor(self._workers.interrupt, watch.note)
        with supervised(supervisor):
            history = model.fit(**arguments, callbacks=called, verbose=0)
        history.message = watch.message
        return self._finished(plan, model, history, time.perf_counter() - start)

    def _finished(
        self, plan: ModelPlan, model: Any, history: History, seconds: float
    ) -> Member:
        """Keep a model that is trained to its end, and return it."""
        member = plan.member(model, history, seconds)
        if self._saved is not None:
            self._saved.keep(member)
        return member


class Watch(Callback):
    """Counts epochs for the progress, and ends a training whose loss is not finite."""

    may_lag = True

    def __init__(self, progress: Progress) -> None:
        super().__init__()
        self._progress = progress
        self.message: str | None = None

    def note(self, model: Any, message: str) -> None:
        """Keep a warning of the model's own `fit`, but not of a `fit` in a callback."""
        if model is self.model:
            self.message = message
        else:
            warned(model, message)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._progress.count_epoch()
        if self.message is not None:
            self.model.stop_training = True


def _make_weights(model: Any, x: Any) -> None:
    """Call a model on a row, as its first step would."""
    row = tree.map_leaves(lambda rows: None if rows is None else rows[:1], x)
    table = data_adapters.table(model, row)
    model._step_cache.traced("predict", table, table.signature(1, None, False))


@contextmanager
def kept_random_numbers() -> Iterator[None]:
    """Restore the generators of random numbers after this block."""
    states = python_random.getstate(), np.random.get_state()
    ours = random.default_state()
    try:
        yield
    finally:
        python_random.setstate(states[0])
        np.random.set_state(states[1])
        random.forget_default_generator()
        if ours is not None:
            random.set_default_state(ours)
