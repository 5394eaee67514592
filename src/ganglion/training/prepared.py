"""`predict` of an array as a single batch, without the work that is always the same.

Compiled code takes a microsecond or two for a row through a small network; finding out
that the array fits the model, and which step to run on it, takes Python many more. So
that is done once for every form of an array: its shape, its type, and the choices
that it is converted and compiled by. Prepared forms are discarded with the steps when
the model changes; weights are looked up in every call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ganglion import config
from ganglion.compiler.registry import Executable
from ganglion.training import data_adapters
from ganglion.training.own_steps import EagerSteps
from ganglion.training.state import TrainableModel, is_own
from ganglion.training.tracing import Step, state_arrays

if TYPE_CHECKING:
    from ganglion.training.step import StepCache

MOST_FORMS = 64  # of a model


class PreparedPrediction(NamedTuple):
    """What `predict` runs for arrays of a form."""

    step: Step
    executable: Executable
    is_converted: bool  # whether these arrays are of the type that the step takes

    def run(self, x: np.ndarray) -> Any:
        """Return the outputs for an array, in their structure."""
        step, executable, is_converted = self
        if not is_converted:
            x = data_adapters.as_array(x, "x")
        for limit in step.limits:
            limit.check(x)
        data = dict.fromkeys(step.program.data, x)
        state = state_arrays(step, {}, executable.keeps_on_device)
        of_steps = executable.run(data, state, 1, keep_on_device=True)
        return step.packed([of_steps[name][0] for name in step.result_names])


class PreparedPredictions:
    """The prepared predictions of a model."""

    def __init__(self, model: TrainableModel, cache: StepCache) -> None:
        self._model, self._cache = model, cache
        self._by_form: dict[Any, PreparedPrediction] = {}

    def clear(self) -> None:
        """Forget them; called when the model or its training changes."""
        self._by_form.clear()

    def run(self, x: Any) -> Any:
        """Return the outputs for a batch; None if `StepCache.run_batch` has to."""
        model = self._model
        if type(x) is not np.ndarray or model.run_eagerly or is_own(model, "predict"):
            return None
        form = (x.shape, x.dtype, config.traced_choices())
        with self._cache.lock:
            prepared = self._by_form.get(form) or self._prepare(x, form)
            return None if prepared is None else prepared.run(x)

    def _prepare(self, x: np.ndarray, form: Any) -> PreparedPrediction | None:
        """Prepare a form; None for data that needs more than another type."""
        model, cache = self._model, self._cache
        is_plain = x.dtype.kind in "biuf" and data_adapters.host_part(model) is None
        if not model.built or not is_plain or cache.buckets.may_pad:
            return None
        table = data_adapters.table(model, x)
        if table.names.x != "x":  # the model takes it as part of a structure
            return None
        signature = table.signature(table.rows, None, False)
        step, executable = cache.step("predict", table, signature)
        assert not isinstance(executable, EagerSteps)
        ((_, _, dtype),) = signature.columns
        # What a device keeps a copy of must be a new object each time.
        is_converted = x.dtype == dtype and not executable.keeps_on_device
        if len(self._by_form) == MOST_FORMS:
            self._by_form.clear()
        self._by_form[form] = PreparedPrediction(step, executable, is_converted)
        return self._by_form[form]
