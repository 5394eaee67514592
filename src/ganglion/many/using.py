"""Predictions and metrics of many models at once, and ensembles of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ganglion import ops, tree
from ganglion.many.data import SharedData
from ganglion.many.model_set import Member
from ganglion.many.threads import mapped
from ganglion.models import Model, clone_model
from ganglion.training.sharing import SharedSteps


def models_of(models: Iterable[Any], verb: str) -> list[Any]:
    """Return the models of a set or of a list; refuse anything else."""
    members = [m.model if isinstance(m, Member) else m for m in models]
    if not members:
        raise ValueError(f"`{verb}`: there are no models.")
    for index, model in enumerate(members):
        if not isinstance(model, Model):
            raise TypeError(
                f"`{verb}` takes models: number {index} is {type(model).__name__}."
            )
    return members


def predict_many(
    models: Iterable[Any],
    x: Any,
    batch_size: int | None = None,
    threads: int | None = None,
) -> Any:
    """Return the predictions of many models, with a first axis for the model.

    Args:
        models: A `ModelSet`, or models; their outputs must have equal shapes.
        x: The inputs, which are held once.
        batch_size: Rows at a time.
        threads: How many models predict at the same time.
    """
    chosen = models_of(models, "predict_many")
    data = SharedData.of(x, None, None, None)
    _share_steps(chosen)
    outputs = mapped(
        lambda model: model.predict(data.x, batch_size=batch_size, verbose=0),
        chosen,
        threads,
    )
    _check_alike([_shapes(output) for output in outputs], "predict_many")
    columns = zip(*map(tree.flatten, outputs), strict=True)
    return tree.pack(outputs[0], [np.stack(column) for column in columns])


def evaluate_many(
    models: Iterable[Any],
    x: Any,
    y: Any = None,
    batch_size: int | None = None,
    sample_weight: Any = None,
    threads: int | None = None,
) -> list[dict[str, Any]]:
    """Return the loss and the metrics of many models, a dictionary for each.

    A model of a set that learned its `target`, a column of `y`, is judged by this.
    """
    members = list(models)
    chosen = models_of(members, "evaluate_many")
    data = SharedData.of(x, y, sample_weight, None)
    _share_steps(chosen)

    def evaluated(index: int) -> dict[str, Any]:
        return chosen[index].evaluate(
            data.x,
            _targets_of(members[index], data.y),
            batch_size=batch_size,
            sample_weight=data.sample_weight,
            verbose=0,
            return_dict=True,
        )

    return mapped(evaluated, range(len(chosen)), threads)


def _targets_of(member: Any, y: Any) -> Any:
    """Return the columns of targets that a model learned, if it did not learn all."""
    target = member.setting.get("target") if isinstance(member, Member) else None
    is_table = isinstance(y, np.ndarray) and y.ndim > 1
    if target is None or not is_table or np.max(target) >= y.shape[1]:
        return y
    return y[:, np.atleast_1d(target)]


def _share_steps(models: list[Any]) -> None:
    """Make models that share nothing yet share their compiled steps."""
    steps = SharedSteps()
    for model in models:
        if model._step_cache.shared is None:
            model._step_cache.share(steps)


def ensemble(models: Iterable[Any], spread: bool = False) -> Any:
    """Return a model whose output is the mean of what many models return.

    Args:
        models: A `ModelSet`, or models made of Keras tensors, with equal inputs and
            outputs. The ensemble has copies of them, with their weights.
        spread: Whether there is a second output, the standard deviation.

    >>> import numpy as np, ganglion as keras
    >>> members = [
    ...     keras.Sequential([keras.Input((1,)), keras.layers.Rescaling(scale)])
    ...     for scale in (1.0, 3.0)]
    >>> mean, deviation = ensemble(members, spread=True)(np.ones((1, 1)))
    >>> mean.item(), deviation.item()
    (2.0, 1.0)
    """
    chosen = models_of(models, "ensemble")
    for index, model in enumerate(chosen):
        if model._network is None:
            raise ValueError(
                f"`ensemble`: model {index} is not made of Keras tensors, or has no "
                "weights yet: begin it with an Input."
            )
    _check_alike([_shapes(m._network.inputs) for m in chosen], "ensemble", "input")
    _check_alike([_shapes(m._network.outputs) for m in chosen], "ensemble")
    tensors = tree.map_leaves(_input_like, chosen[0]._network.inputs)
    outputs = [_copied(m, index)(tensors) for index, m in enumerate(chosen)]
    columns = [ops.stack(c) for c in zip(*map(tree.flatten, outputs), strict=True)]
    means = tree.pack(outputs[0], [ops.mean(column, axis=0) for column in columns])
    if not spread:
        return Model(tensors, means, name="ensemble")
    deviations = [ops.std(column, axis=0) for column in columns]
    return Model(tensors, [means, tree.pack(outputs[0], deviations)], name="ensemble")


def _input_like(tensor: Any) -> Any:
    from ganglion.layers import Input

    return Input(tensor.shape[1:], dtype=tensor.dtype, name=tensor.name)


def _copied(model: Any, index: int) -> Any:
    """Return a copy with the same weights and another name."""
    copy = clone_model(model)
    copy.set_weights(model.get_weights())
    copy.name = f"member_{index}"
    return copy


def _shapes(structure: Any) -> list[tuple[Any, ...]]:
    return [tuple(leaf.shape) for leaf in tree.flatten(structure)]


def _check_alike(shapes: list[Any], verb: str, what: str = "output") -> None:
    for index, shape in enumerate(shapes):
        if shape != shapes[0]:
            raise ValueError(
                f"`{verb}` needs models whose {what}s agree: model 0 has {shapes[0]}, "
                f"model {index} has {shape}."
            )
