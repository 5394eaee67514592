"""A set of models as tasks of a Ray cluster: a few models are a task.

A task has a core, so that a node runs as many tasks as it has cores. The tasks of a
lost node are run again elsewhere. The data is sent to a node once, and finished models
come back as the bytes of `.keras` files: only this process holds the set.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from ganglion import config
from ganglion.many.data import SharedData
from ganglion.many.fitting import Fitting
from ganglion.many.progress import Progress
from ganglion.many.set_file import packed, unpacked
from ganglion.many.settings import ModelPlan
from ganglion.system import ray_cluster
from ganglion.training.fit_loop import Interrupt

RETRIES = 5  # of a task whose node is lost
POLL = 0.1  # seconds between checks for finished tasks
TASKS_A_CORE = 4  # at least, so that all cores end at about the same time
MOST_MODELS = 16  # of a task: all of them are trained again if its node is lost


def train_group(
    build: Callable[..., Any],
    plans: list[ModelPlan],
    data: SharedData,
    arguments: dict[str, Any],
    callbacks: Any,
    version: str,
) -> list[tuple[dict[str, Any], bytes]]:
    """Train some models on a node of the cluster; return them as plain data."""
    ours = config.VERSION
    if ours != version:
        raise RuntimeError(
            f"A node of the cluster has Ganglion {ours}, but this set is trained with "
            f"{version}: install that version on every node."
        )
    progress = Progress(0)
    progress.begin(plans, arguments["epochs"])
    parts = (build, None, plans, data, arguments, callbacks, None, progress)
    return [packed(member) for member in Fitting(*parts).run(threads=1)]


class RayFitting(Fitting):
    """The training of a set on a cluster."""

    def __init__(self, on: str, *parts: Any) -> None:
        super().__init__(*parts)
        self._on = on

    def _train(self, threads: int | None) -> None:
        missing = [plan for plan in self._plans if not self._was_finished(plan)]
        if not missing:
            return
        option = f"on={self._on!r}"
        with ray_cluster.connected(self._on, option) as ray, Interrupt() as interrupt:
            pending = self._submitted(ray, missing)
            try:
                while pending and not interrupt.requested:
                    done, _ = ray.wait(list(pending), timeout=POLL)
                    for ref in done:
                        self._take(pending.pop(ref), _answer(ray, ref))
                    self._progress.show()
            finally:
                _cancel(ray, list(pending))

    def _was_finished(self, plan: ModelPlan) -> bool:
        """Return whether an earlier call has finished a model; add it if so."""
        if self._saved is None or not self._saved.has(plan):
            return False
        member = self._finished_before(plan, self._built(plan))
        assert member is not None
        self._add(member, was_there=True)
        return True

    def _submitted(self, ray: Any, plans: list[ModelPlan]) -> dict[Any, Any]:
        """Submit all tasks; return the plans of each."""
        cores = int(ray.cluster_resources().get("CPU", 0))
        if not cores:
            raise RuntimeError(
                f"on={self._on!r}: no node of the cluster has a core to train on."
            )
        on_gpu = config.backend_choice() == "cuda"
        task = ray.remote(train_group).options(
            num_cpus=1, num_gpus=1 if on_gpu else 0, max_retries=RETRIES
        )
        shared = [ray.put(part) for part in (self._build, self._data, self._callbacks)]
        build, data, callbacks = shared
        return {
            task.remote(
                build, group, data, self._arguments, callbacks, config.VERSION
            ): group
            for group in groups(plans, cores)
        }

    def _take(self, plans: list[ModelPlan], answer: list[Any]) -> None:
        """Add the models of a task; each is built here and given its weights."""
        for plan, (record, content) in zip(plans, answer, strict=True):
            member = unpacked(plan, self._built(plan), record, content)
            for _ in member.history.epoch:
                self._progress.count_epoch()
            if self._saved is not None:
                self._saved.keep(member)
            self._add(member, was_there=False)


def groups(plans: Sequence[ModelPlan], cores: int) -> list[list[ModelPlan]]:
    """Return the models of each task: neighbours, which are often alike.

    >>> [len(group) for group in groups([None] * 40, cores=3)]
    [3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 1]
    """
    size = max(1, min(len(plans) // (cores * TASKS_A_CORE), MOST_MODELS))
    return [list(plans[n : n + size]) for n in range(0, len(plans), size)]


def _answer(ray: Any, ref: Any) -> list[Any]:
    """Return the result of a task; raise the error of a model itself, not Ray's."""
    try:
        return list(ray.get(ref))
    except ray.exceptions.RayTaskError as error:
        cause = getattr(error, "cause", None)
        if isinstance(cause, Exception):
            raise cause from None
        raise
    except ray.exceptions.RayError as error:
        lines = str(error).strip().splitlines() or [""]
        hint = ""
        if "No module named" in str(error):
            hint = " Every node needs what the builder imports: pip install ganglion-nn"
        raise RuntimeError(
            f"Some models could not be trained on the cluster ({RETRIES} tries after "
            f"the first): {type(error).__name__}: {lines[-1].strip()}.{hint}"
        ) from None


def _cancel(ray: Any, refs: list[Any]) -> None:
    with contextlib.suppress(ray.exceptions.RayError, ConnectionError):
        for ref in refs:
            ray.cancel(ref, force=True)
