"""Steps that the user wrote: `train_step`, `test_step`, `predict_step`.

They are traced once into the graph of a step and compiled like any other. They return
the logs of a batch. With `run_eagerly=True` every step runs as plain Python on the
reference backend, so that prints and breakpoints see numbers.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ganglion import tree
from ganglion.compat.pytorch import copies_of_values
from ganglion.compiler import registry
from ganglion.compiler.ir.graph import Value
from ganglion.system import uncompiled
from ganglion.tensors import as_tensor
from ganglion.training.data_adapters import Batch, Signature
from ganglion.training.state import TrainableModel
from ganglion.training.tracing import (
    LateResult,
    Step,
    gathered,
    late_result,
    program_of,
    state_arrays,
)
from ganglion.variables import Scope, Variable, read

# The state that a step in the style of JAX takes and returns, in this order.
_STATE = {
    "train": ("trainable", "non_trainable", "optimizer", "metrics"),
    "test": ("trainable", "non_trainable", "metrics"),
    "predict": ("trainable", "non_trainable"),
}


def packed(batch: Batch) -> Any:
    """Return a batch as Keras passes it to a step: x alone, (x, y), or all three."""
    x, y, weight = batch
    if y is None:
        return (x,) if isinstance(x, (list, tuple)) else x
    return (x, y) if weight is None else (x, y, weight)


# ---- traced --------------------------------------------------------------------------


def traced(
    model: TrainableModel, kind: str, names: Batch, signature: Signature
) -> Step:
    """Trace a step that the user wrote; its results are what it returns."""
    with Scope() as scope:
        scope.training_is_set = False
        data, columns = gathered(model, signature)
        batch = names.map(columns.__getitem__)
        result = _called(model, kind, batch)
        result = {} if result is None else result
        if kind != "predict":
            _check_logs(model, kind, result)
        values = [read(leaf) for leaf in tree.flatten(result)]
        late = _late_results(model, scope, values) if kind != "predict" else {}
    outputs = {f"output/{number}": value for number, value in enumerate(values)}
    now = {name: value for name, value in outputs.items() if name not in late}
    step = program_of(f"{model.name}.{kind}_step", scope, data, now)
    structure = tree.map_leaves(lambda leaf: None, result)
    return replace(step, outputs=structure, late=late)


def _late_results(
    model: TrainableModel, scope: Scope, values: Sequence[Value]
) -> dict[str, LateResult]:
    state = model.training_state
    late: dict[str, LateResult] = {}
    for number, value in enumerate(values):
        result = late_result(value, scope)
        # Evaluations have a cursor of their own.
        by_cursor = result and {state.position, state.order} & {
            *result.variables.values()
        }
        if result is not None and not by_cursor:
            late[f"output/{number}"] = result
    return late


def _called(model: Any, kind: str, batch: Batch) -> Any:
    model.is_in_own_step = True
    try:
        with copies_of_values():
            return _call(model, kind, batch)
    finally:
        model.is_in_own_step = False


def _call(model: Any, kind: str, batch: Batch) -> Any:
    method = getattr(model, f"{kind}_step")
    parameters = inspect.signature(method).parameters.values()
    positional = [p for p in parameters if p.kind < p.VAR_POSITIONAL]
    needed = [p for p in positional if p.default is p.empty]
    if len(needed) != 2:
        return method(packed(batch))
    lists = _state_lists(model, kind, batch)
    state = tuple([variable.value for variable in part] for part in lists)
    result, new = method(state, packed(batch))
    if kind == "predict":
        lists, new = [lists[1]], [new]
    for variables, values in zip(lists, new, strict=True):
        for variable, value in zip(variables, values, strict=True):
            if value is not variable.value:
                variable.assign(value)
    return result


def _state_lists(model: Any, kind: str, batch: Batch) -> list[list[Variable]]:
    """Return the variables whose values a step in the style of JAX receives."""
    with Scope():  # the first call only makes variables
        y_pred = model(batch.x)
        if kind != "predict":
            model.build_losses_and_metrics(batch, y_pred)
    if kind == "train":
        model.prepare_training()
    parts = {
        "trainable": model.trainable_variables,
        "non_trainable": model.non_trainable_variables,
        "optimizer": model.optimizer.variables if model.compiled else [],
        "metrics": model.metrics_variables,
    }
    return [parts[name] for name in _STATE[kind]]


def _check_logs(model: TrainableModel, kind: str, logs: Any) -> None:
    if not isinstance(logs, Mapping):
        raise TypeError(
            f"`{type(model).__name__}.{kind}_step` must return a dictionary of names "
            f"and numbers, such as {{'loss': loss}}, not {type(logs).__name__}."
        )


def last_logs(results: Any) -> dict[str, Any]:
    """Return the logs of the last of some steps, as plain numbers and arrays."""
    logs: dict[str, Any] = {}
    for name, steps in results.items():
        if isinstance(steps, Mapping):
            logs.update(last_logs(steps))
            continue
        last = np.asarray(tree.flatten(steps)[0][-1])
        logs[name] = float(last) if last.ndim == 0 else last
    return logs


# ---- as it is written ----------------------------------------------------------------


class EagerSteps:
    """Runs steps as they are written, on batches that the reference backend gathers."""

    keeps_on_device = False

    def __init__(
        self, model: TrainableModel, kind: str, names: Batch, signature: Signature
    ) -> None:
        self._model, self._kind, self._names = model, kind, names
        with Scope() as scope:
            data, columns = gathered(model, signature)
        self.step = program_of(f"{model.name}.batch", scope, data, columns)
        self._executable = registry.backend("numpy").compile(self.step.program)

    def run_steps(
        self, data: Mapping[str, np.ndarray], replaced: Any, steps: int
    ) -> Any:
        """Run some steps; return their stacked results."""
        state = state_arrays(self.step, replaced)
        outputs = []
        for _ in range(steps):
            uncompiled.note("steps run eagerly", f"{self._kind}_step")
            columns = self._executable.run(data, state, 1)
            batch = self._names.map(lambda name: as_tensor(columns[name][0]))  # noqa: B023
            outputs.append(self._called(batch))
        return _stacked(outputs)

    def _called(self, batch: Batch) -> Any:
        result = _called(self._model, self._kind, batch)
        result = {} if result is None else result
        if self._kind != "predict":
            _check_logs(self._model, self._kind, result)
        return result


def _stacked(outputs: Sequence[Any]) -> Any:
    each = [list(map(np.asarray, tree.flatten(output))) for output in outputs]
    columns = [np.stack(parts) for parts in zip(*each, strict=True)]
    return tree.pack(outputs[0], columns)
