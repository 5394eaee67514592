"""Losses and metrics for each output, from the arguments of `compile`.

Both containers are created from the arguments, and built at the first batch, when the
shapes are known. Labels, predictions and weights may be single arrays or nested lists
and dictionaries; inside they are flat, in the order of the predictions.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ganglion import config, losses, metrics, ops, tree
from ganglion.compiler.ir.graph import ShapeError, Value
from ganglion.config import closest
from ganglion.hyperparameters import as_input
from ganglion.losses.base import Loss, LossFunctionWrapper, to_array
from ganglion.metrics.base import Mean, MeanMetricWrapper, Metric
from ganglion.serialization import look_up
from ganglion.variables import Variable, current_scope, snake_case

Names = Sequence[str] | None

# These choose their function by the shapes of labels and predictions.
_ACCURACY = ("accuracy", "acc")
_CROSSENTROPY = ("crossentropy", "ce")


class CompiledLoss:
    """The total loss over all outputs.

    >>> loss = CompiledLoss("mse")
    >>> float(loss(np.array([[1.0], [2.0]]), np.array([[1.0], [4.0]])))
    2.0
    """

    def __init__(
        self, loss: Any, loss_weights: Any = None, output_names: Names = None
    ) -> None:
        if loss_weights is not None and not isinstance(
            loss_weights, (list, tuple, dict, int, float)
        ):
            raise ValueError(
                "`loss_weights` must be a number, or a list or dictionary with one "
                f"number per output, not {loss_weights!r}."
            )
        _check_names("keras.losses", loss, "loss", _CROSSENTROPY)
        # A name alone is looked up now, "crossentropy" when the shapes are known.
        is_name = isinstance(loss, str) and not _is_named(loss, _CROSSENTROPY)
        self.loss = get_loss(loss, None, None) if is_name else loss
        self._weights = loss_weights
        self._output_names = output_names
        self.parts: list[_OutputLoss | None] = []
        self._paths: list[_Path] = []  # to each part's outputs, if losses are nested
        self._reported: list[int] = []  # the parts in the order of `evaluate`
        self.built = False

    @property
    def metrics(self) -> list[Mean]:
        """The trackers of the single losses, when there are several."""
        parts = [self.parts[number] for number in self._reported]
        return [part.tracker for part in parts if part and part.tracker]

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """Return the sum of the losses, each times its weight; None without any.

        The trackers take each loss without its weight.
        """
        outputs = Outputs(y_pred, self._output_names)
        if is_structured(self.loss, outputs):
            return self._structured_value(y_true, y_pred, sample_weight, outputs)
        if not self.built:
            self._build(y_true, outputs)
        wanted = [part is not None for part in self.parts]
        labels = outputs.align(y_true, "labels", wanted)
        weights = outputs.spread(sample_weight, wanted)
        rows = zip(self.parts, labels, outputs.leaves, weights, strict=True)
        values = [part.value(*batch) for part, *batch in rows if part is not None]
        return sum(values[1:], values[0]) if values else None

    def _structured_value(
        self, y_true: Any, y_pred: Any, sample_weight: Any, outputs: Outputs
    ) -> Any:
        labels = outputs.packed(outputs.align(y_true, "labels", [True] * len(outputs)))
        if not self.built:
            factors = self._weights
            if factors is None:
                factors = tree.map_leaves(lambda _: None, self.loss)
            names = outputs.packed(outputs.names)
            parts = list(_structured(self.loss, factors, labels, y_pred, names))
            for number, (path, single) in enumerate(parts):
                if len(parts) > 1:
                    tracker = Mean(name=f"{_loss_name(path, names, single)}_loss")
                    parts[number] = path, single._replace(tracker=tracker)
            self._paths = [path for path, _ in parts]
            self.parts = [part for _, part in parts]
            self._reported = list(range(len(parts)))
            self.built = True
        total = None
        for path, part in zip(self._paths, self.parts, strict=True):
            weight = sample_weight
            if _is_nested(sample_weight):
                weight = _at(sample_weight, path)
            assert part is not None
            value = part.value(_at(labels, path), _at(y_pred, path), weight)
            total = value if total is None else total + value
        return total

    def build(self, y_true: Any, y_pred: Any) -> None:
        """Make the losses for labels and outputs of these shapes, if not done yet."""
        if not self.built:
            self._build(y_true, Outputs(y_pred, self._output_names))

    def _build(self, y_true: Any, outputs: Outputs) -> None:
        chosen = outputs.assign(self.loss, "loss")
        factors = [None] * len(chosen)
        if self._weights is not None:
            factors = outputs.assign(self._weights, "loss_weights", share=False)
        wanted = [loss is not None for loss in chosen]
        labels = outputs.align(y_true, "labels", wanted)
        seen: dict[str, int] = {}
        columns = (chosen, factors, labels, outputs.leaves, outputs.paths)
        self.parts = []
        for identifier, factor, label, prediction, path in zip(*columns, strict=True):
            if identifier is None:
                self.parts.append(None)
                continue
            loss = get_loss(identifier, label, prediction)
            output = "/".join(key or loss.name for key in path)
            name = _numbered(f"{output}_loss", seen)
            tracker = Mean(name=name) if sum(wanted) > 1 else None
            self.parts.append(_OutputLoss(loss, factor, tracker))
        self._reported = outputs.reported(self.loss)
        self.built = True


class _OutputLoss(NamedTuple):
    loss: Loss
    factor: float | None
    tracker: Mean | None

    def value(self, y_true: Any, y_pred: Any, sample_weight: Any) -> Any:
        loss = ops.cast(self.loss(y_true, y_pred, sample_weight), config.floatx())
        if loss.shape != ():
            raise ShapeError(
                f"The loss {self.loss.name!r} (reduction={self.loss.reduction!r}) "
                f"gives an array of shape {tuple(loss.shape)}, but training needs one "
                "number: use reduction='sum_over_batch_size' or 'sum'."
            )
        if self.tracker is not None:
            batch = tree.flatten(y_pred)[0].shape[0]
            self.tracker.update_state(loss, sample_weight=batch)
        if self.factor is None:
            return loss
        return loss * as_input(self.loss, "loss_weight", float(self.factor))


_Path = tuple[Any, ...]


def is_structured(loss: Any, outputs: Outputs) -> bool:
    """Return whether some loss is for several outputs at once, or one of several.

    Lists within lists or dictionaries say so, where the outputs are not nested in the
    same way.
    """
    if not _is_nested(loss) or "class_name" in loss:
        return False
    return outputs.alike(loss) is None and any(
        _is_nested(part) and len(part) > 1 and "class_name" not in part
        for part in (loss.values() if isinstance(loss, dict) else loss)
    )


def _structured(
    loss: Any, factor: Any, y_true: Any, y_pred: Any, names: Any, path: _Path = ()
) -> Iterator[tuple[_Path, _OutputLoss]]:
    """Yield each loss with the path to its outputs.

    A list of another type than the outputs' container holds several losses of the same
    outputs, as in Keras.
    """
    if loss is None:
        return
    if not _is_nested(loss) or "class_name" in loss:
        yield path, _OutputLoss(get_loss(loss, y_true, y_pred), factor, None)
        return
    is_flat = isinstance(loss, (list, tuple)) and not any(map(_is_nested, loss))
    if (
        is_flat and _is_nested(y_pred) and len(loss) == len(tree.flatten(y_pred))
    ):  # a loss for each output
        factors = factor if _is_nested(factor) else [factor] * len(loss)
        loss, factor = tree.pack(y_pred, list(loss)), tree.pack(y_pred, list(factors))
    each = loss.items() if isinstance(loss, dict) else enumerate(loss)
    is_several = isinstance(loss, (list, tuple)) and not isinstance(y_pred, type(loss))
    for key, part in each:
        its = factor[key] if _is_nested(factor) else factor
        if part is None:
            continue
        if is_several:
            yield from _structured(part, its, y_true, y_pred, names, path)
        elif isinstance(loss, dict) and (
            not isinstance(y_pred, dict) or key not in y_pred
        ):
            raise _no_such_output((*path, key))
        else:
            below = (y_true[key], y_pred[key], names[key], (*path, key))
            yield from _structured(part, its, *below)


def _no_such_output(path: _Path) -> KeyError:
    return KeyError(
        f"The path: {path} in the `loss` argument, can't be found in either the "
        "model's output (`y_pred`) or in the labels (`y_true`)."
    )


def _at(structure: Any, path: _Path) -> Any:
    for key in path:
        structure = structure[key]
    return structure


def _loss_name(path: _Path, names: Any, part: _OutputLoss) -> str:
    """Return the name of a loss: its path, or the names of its outputs."""
    name = _at(names, path)
    if not _is_nested(name):
        last = name or part.loss.name
        path = (*path[:-1], last) if not path or isinstance(path[-1], int) else path
    if not path:
        return "_".join(name if isinstance(name, dict) else tree.flatten(name))
    return "/".join(map(str, path))


class CompiledMetrics(Metric):
    """The metrics of all outputs, with the names that Keras gives their results.

    >>> compiled = CompiledMetrics(["accuracy"])
    >>> compiled.update_state(np.array([1, 0]), np.array([[0.2, 0.8], [0.3, 0.7]]))
    >>> compiled.result()
    {'accuracy': 0.5}
    """

    def __init__(
        self,
        metrics: Any = None,
        weighted_metrics: Any = None,
        output_names: Names = None,
        loss: Any = None,
    ) -> None:
        super().__init__(name="compile_metrics")
        arguments = {"metrics": metrics, "weighted_metrics": weighted_metrics}
        for name, value in arguments.items():
            if value and not isinstance(value, (list, tuple, dict)):
                raise ValueError(
                    f"`{name}` must be a list or a dictionary, not {value!r}: write "
                    f"{name}=[{value!r}]."
                )
            _check_names("keras.metrics", value, "metric", _ACCURACY + _CROSSENTROPY)
        self.arguments = (metrics, weighted_metrics)
        self._loss = loss
        self._output_names = output_names
        # The metrics of each output, and the prefix of their names.
        self._plain: list[list[Metric]] = []
        self._weighted: list[list[Metric]] = []
        self._prefixes: list[str] = []
        self.built = False

    @property
    def metrics(self) -> list[Metric]:
        """All metric objects, known after the first batch."""
        return [metric for part in (*self._plain, *self._weighted) for metric in part]

    @property
    def variables(self) -> list[Variable]:
        """The state of all metrics."""
        return [variable for metric in self.metrics for variable in metric.variables]

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Add a batch; only the weighted metrics see the weights."""
        outputs = Outputs(y_pred, self._output_names)
        if not self.built:
            self._build(y_true, outputs)
        wanted = _any_of_each(self._plain, self._weighted)
        if not any(wanted):
            return
        labels = outputs.align(y_true, "labels", wanted)
        weights = outputs.spread(sample_weight, wanted)
        columns = (self._plain, self._weighted, labels, outputs.leaves, weights)
        for plain, weighted, label, prediction, weight in zip(*columns, strict=True):
            for metric in plain:
                metric.update_state(label, prediction)
            for metric in weighted:
                metric.update_state(label, prediction, sample_weight=weight)

    def build(self, y_true: Any, y_pred: Any) -> None:
        """Make the metrics for labels and outputs of these shapes, if not done yet."""
        if not self.built:
            self._build(y_true, Outputs(y_pred, self._output_names))

    def _build(self, y_true: Any, outputs: Outputs) -> None:
        lists = [outputs.assign_metrics(value) for value in self.arguments]
        wanted = _any_of_each(*lists)
        labels = outputs.align(y_true, "labels", wanted) if any(wanted) else wanted
        try:
            used = outputs.assign(self._loss, "loss")
        except (KeyError, ValueError):  # the loss itself says what is wrong with it
            used = [None] * len(labels)
        self._plain, self._weighted = (
            [
                [get_metric(metric, *row) for metric in metrics]
                for metrics, *row in zip(
                    each, labels, outputs.leaves, used, strict=True
                )
            ]
            for each in lists
        )
        several = len(labels) > 1
        self._prefixes = [f"{n}_" if several and n else "" for n in outputs.names]
        self.built = True

    def reset_state(self) -> None:
        """Forget all batches."""
        for metric in self.metrics:
            metric.reset_state()

    def named(self) -> Iterator[tuple[str, Metric]]:
        """Yield each metric with the name of its value; equal names are numbered."""
        seen: dict[str, int] = {}
        for prefix, part in zip(self._prefixes, self._plain, strict=True):
            for metric in part:
                yield _numbered(prefix + metric.name, seen), metric
        for prefix, part in zip(self._prefixes, self._weighted, strict=True):
            for metric in part:
                name = prefix + metric.name
                if name in seen:
                    name = f"{prefix}weighted_{metric.name}"
                yield _numbered(name, seen), metric

    def result(self) -> dict[str, Any]:
        """Return each metric's value by name."""
        return _plain_numbers({name: metric.result() for name, metric in self.named()})


def _any_of_each(plain: list[list[Any]], weighted: list[list[Any]]) -> list[bool]:
    return [bool(a or b) for a, b in zip(plain, weighted, strict=True)]


def _numbered(name: str, seen: dict[str, int]) -> str:
    count = seen.get(name, 0)
    seen[name] = count + 1
    return f"{name}_{count}" if count else name


def _plain_numbers(results: dict[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for name, value in results.items():
        if isinstance(value, dict):
            plain.update(_plain_numbers(value))
        elif isinstance(value, Variable) and current_scope() is not None:
            plain[name] = value.value
        elif isinstance(value, Value):
            plain[name] = value
        else:
            array = np.asarray(value)
            plain[name] = float(array) if array.ndim == 0 else array
    return plain


def _is_named(identifier: Any, names: tuple[str, ...]) -> bool:
    return isinstance(identifier, str) and identifier.lower() in names


def _check_names(
    module: str, identifiers: Any, kind: str, special: tuple[str, ...]
) -> None:
    """Refuse an unknown name when the model is compiled, not at the first batch."""
    for identifier in _listed(identifiers):
        if isinstance(identifier, str) and not _is_named(identifier, special):
            look_up(module, identifier, kind)


def get_loss(identifier: Any, y_true: Any, y_pred: Any) -> Loss:
    """Return the loss object; "crossentropy" chooses by the shapes."""
    if isinstance(identifier, (list, tuple)) and len(identifier) == 1:
        identifier = identifier[0]
    if isinstance(identifier, Loss):
        return identifier
    loss = identifier
    if _is_named(identifier, _CROSSENTROPY):
        loss = getattr(losses, f"{_kind(y_true, y_pred)}_crossentropy")
    loss = losses.get(loss)
    if isinstance(loss, Loss):
        return loss
    name = identifier if isinstance(identifier, str) else object_name(loss)
    return LossFunctionWrapper(loss, name=name)


def get_metric(identifier: Any, y_true: Any, y_pred: Any, loss: Any = None) -> Metric:
    """Return the metric object; "accuracy" and "crossentropy" choose by the shapes."""
    metric = identifier
    if _is_named(identifier, _ACCURACY):
        classes = {
            "binary": metrics.BinaryAccuracy,
            "sparse_categorical": metrics.SparseCategoricalAccuracy,
            "categorical": metrics.CategoricalAccuracy,
        }
        metric = classes[_kind(y_true, y_pred)]()
    elif _is_named(identifier, _CROSSENTROPY):
        function = getattr(losses, f"{_kind(y_true, y_pred)}_crossentropy")
        from_logits = bool(getattr(loss, "from_logits", False))
        metric = MeanMetricWrapper(function, from_logits=from_logits)
    metric = metrics.get(metric)
    if metric is None:
        raise ValueError("A metric is None: leave it out of the list.")
    name = identifier if isinstance(identifier, str) else object_name(metric)
    if not isinstance(metric, Metric):
        metric = MeanMetricWrapper(metric)
    metric.name = name
    return metric


def object_name(obj: Any) -> str:
    """Return the name of a metric, a loss or a function."""
    if hasattr(obj, "name"):
        return str(obj.name)
    return snake_case(getattr(obj, "__name__", type(obj).__name__))


def _kind(y_true: Any, y_pred: Any) -> str:
    label, prediction = tuple(y_true.shape), tuple(y_pred.shape)
    if len(prediction) < 2 or prediction[-1] == 1:
        return "binary"
    is_sparse = len(label) < len(prediction) or label[-1:] == (1,)
    return "sparse_categorical" if is_sparse else "categorical"


# ---- outputs, and what the user gives for each of them ------------------------------


class Outputs:
    """The predictions as a flat list, with their names (None where there is none).

    Losses, metrics, labels and weights come as one value for all outputs, as a list in
    their order, or as a dictionary by their names.

    >>> outputs = Outputs({"b": 1.5, "a": 2.5})
    >>> outputs.names, outputs.leaves
    (['a', 'b'], [2.5, 1.5])
    >>> outputs.assign({"a": "mse"}, "loss")
    ['mse', None]
    """

    def __init__(self, y_pred: Any, names: Names = None) -> None:
        self.leaves: list[Any]
        self.names: list[Any]
        parts = y_pred.values() if isinstance(y_pred, dict) else y_pred
        is_flat = _is_nested(y_pred) and not any(map(_is_nested, parts))
        self._predictions, self._is_dict = y_pred, isinstance(y_pred, dict)
        self._structure = y_pred if _is_nested(y_pred) and not is_flat else None
        if isinstance(y_pred, dict) and is_flat:
            self.names = _key_order(y_pred, names)
            self.leaves = [y_pred[name] for name in self.names]
        else:
            self.leaves = tree.flatten(y_pred)
            known = names is not None and len(names) == len(self.leaves)
            self.names = list(names or []) if known else [None] * len(self.leaves)
        # As in Keras, losses are named by the full path, metrics by the output.
        self.paths: list[tuple[str | None, ...]] = [(name,) for name in self.names]
        if self._structure is not None:
            self.paths = _paths(self._structure, iter(self.names))

    def __len__(self) -> int:
        return len(self.leaves)

    def reported(self, losses: Any) -> list[int]:
        """Return the numbers of the outputs in the order in which losses are reported.

        Those of a dictionary come in the order in which the losses, else the outputs,
        were written down.
        """
        if not self._is_dict or self._structure is not None:
            return list(range(len(self)))
        is_named = isinstance(losses, dict) and "class_name" not in losses
        written = [*losses] if is_named else []
        keys = dict.fromkeys([*written, *self._predictions])
        return [self.names.index(key) for key in keys]

    def packed(self, leaves: list[Any]) -> Any:
        """Return values, nested as the outputs are."""
        if self._is_dict and self._structure is None:
            return dict(zip(self.names, leaves, strict=True))
        return tree.pack(self._predictions, leaves)

    def assign(self, values: Any, argument: str, share: bool = True) -> list[Any]:
        """Return the value for each output, None where there is none."""
        alike = self.alike(values)
        if alike is not None:
            return alike
        if isinstance(values, dict) and "class_name" not in values:
            return self._by_name(values, argument)
        if isinstance(values, (list, tuple)):
            return self._in_order(list(values), argument)
        if values is not None and not share and len(self) > 1:
            raise ValueError(
                f"`{argument}` is one value, {values!r}, but the model has {len(self)} "
                f"outputs: give a list with one value for each."
            )
        return [values] * len(self)

    def assign_metrics(self, values: Any) -> list[list[Any]]:
        """Return the list of metrics for each output."""
        is_single = isinstance(values, (list, tuple)) and len(values) == 1
        if len(self) == 1 or not values:
            return [_listed(values) for _ in self.leaves]
        each = self.alike(values)
        if each is None and is_single:
            metrics = _listed(values)
            if not any(isinstance(metric, Metric) for metric in metrics):
                # Keras 2 measured every output by such a list; Keras 3 refuses it.
                return [list(metrics) for _ in self.leaves]
        return list(
            map(_listed, self.assign(values, "metrics") if each is None else each)
        )

    def alike(self, values: Any) -> list[Any] | None:
        """Return values given in the nested structure of the outputs, else None."""
        if self._structure is None or not _is_nested(values):
            return None
        return _up_to(self._structure, values)

    def _by_name(self, values: dict[str, Any], argument: str) -> list[Any]:
        if len(self) == 1 and len(values) == 1 and self.names == [None]:
            return list(values.values())
        if None in self.names:
            raise ValueError(
                f"`{argument}` is a dictionary, but the outputs of this model have no "
                "names: give a list, in the order of the outputs."
            )
        for name in values:
            if name not in self.names:
                self._refuse_name(name, values, argument)
        return [values.get(name) for name in self.names]

    def _refuse_name(self, name: Any, values: dict[str, Any], argument: str) -> None:
        known = closest(str(name), self.names)
        if argument == "loss" and self._is_dict:
            error = _no_such_output((name,))
            raise KeyError(f"{error.args[0]} {known}")
        expected = ""
        if argument == "loss":
            expected = (
                f"Expected keys {self.names} in loss dict, but found loss.keys()="
                f"{list(values)}. "
            )
        raise ValueError(
            f"{expected}Invalid `{argument}`: it names the output {name!r}, which this "
            f"model does not have. {known}"
        )

    def _in_order(self, values: list[Any], argument: str) -> list[Any]:
        for flat in (values, _listed(values)):
            if len(flat) == len(self):
                return flat
        named = [name for name in self.names if name]
        raise ValueError(
            f"`{argument}` has {len(values)} entries, but the model has {len(self)} "
            f"output(s){': ' + ', '.join(named) if named else ''}. Give one entry for "
            "each, None where there is none."
        )

    def align(self, values: Any, kind: str, wanted: list[bool]) -> list[Any]:
        """Return the labels (or weights) of each output; required ones must be there.

        A list may omit the outputs that are not required.
        """
        aligned = self._aligned(to_array(values), kind, wanted)
        for name, value, is_wanted in zip(self.names, aligned, wanted, strict=True):
            if is_wanted and value is None:
                where = f" for the output {name!r}" if name else ""
                raise ValueError(f"There are no {kind}{where}, but a loss or metric.")
        return aligned

    def _aligned(self, values: Any, kind: str, wanted: list[bool]) -> list[Any]:
        if values is None:
            return [None] * len(self)
        alike = self.alike(values)
        if alike is not None:
            return alike
        if isinstance(values, dict) and None not in self.names:
            return self._by_name(values, kind)
        flat = tree.flatten(values)
        if len(flat) == len(self):
            return flat
        if len(flat) == sum(wanted):
            rest = iter(flat)
            return [next(rest) if is_wanted else None for is_wanted in wanted]
        raise ValueError(
            f"The model has {len(self)} output(s), but there are {len(flat)} arrays of "
            f"{kind}: give one for each output."
        )

    def spread(self, sample_weight: Any, wanted: list[bool]) -> list[Any]:
        """Return the sample weights of each output; a single array serves them all."""
        sample_weight = to_array(sample_weight)
        alike = self.alike(sample_weight)
        if alike is not None:
            return alike
        if isinstance(sample_weight, dict):
            return self._by_name(sample_weight, "sample_weight")
        flat = tree.flatten(sample_weight)
        if len(flat) == 1:
            return flat * len(self)
        return self._aligned(sample_weight, "sample weights", wanted)


def _is_nested(structure: Any) -> bool:
    return isinstance(structure, (list, tuple, dict))


def _keys(structure: Any) -> Sequence[Any]:
    if isinstance(structure, dict):
        return sorted(structure)
    return range(len(structure))


def _up_to(structure: Any, values: Any) -> list[Any] | None:
    """Return the parts of values that stand where a structure has leaves.

    >>> _up_to({"a": [1, 2], "b": 3}, {"a": ["x", ["y"]], "b": None})
    ['x', ['y'], None]
    """
    if not _is_nested(structure):
        return [values]
    if not _is_nested(values) or isinstance(structure, dict) != isinstance(
        values, dict
    ):
        return None
    if len(structure) != len(values) or (
        isinstance(values, dict) and set(structure) != set(values)
    ):
        return None
    parts = [_up_to(structure[key], values[key]) for key in _keys(structure)]
    if any(part is None for part in parts):
        return None
    return [leaf for part in parts for leaf in part or ()]


def _paths(
    structure: Any, names: Iterator[Any], above: tuple[str, ...] = ()
) -> list[tuple[str | None, ...]]:
    """Return the keys and numbers down to each leaf; a leaf of a list has its name."""
    paths: list[tuple[str | None, ...]] = []
    for key in _keys(structure):
        if _is_nested(structure[key]):
            paths += _paths(structure[key], names, (*above, str(key)))
            continue
        name = next(names)
        paths.append((*above, str(key) if isinstance(structure, dict) else name))
    return paths


def _key_order(y_pred: dict[str, Any], names: Names) -> list[str]:
    if names is not None and set(names) == set(y_pred):
        return list(names)
    return list(y_pred) if isinstance(y_pred, OrderedDict) else sorted(y_pred)


def _listed(values: Any) -> list[Any]:
    """Return the values in nested lists and dictionaries; a configuration is one."""
    if values is None:
        return []
    if isinstance(values, dict) and "class_name" not in values:
        values = list(values.values())
    if isinstance(values, (list, tuple)):
        return [value for part in values for value in _listed(part)]
    return [values]
