"""The inputs and outputs of a model: the shapes of its rows, its classes, its pictures.

Start with `Interface.of`. The HTTP interface, its description and the page to try a
model are all derived from it; nothing here depends on HTTP.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ganglion import layers
from ganglion.explain import map_method
from ganglion.images import Form, ImagesError
from ganglion.images.networks import class_names
from ganglion.images.training import Classifier
from ganglion.serve.refusal import Refused
from ganglion.symbolic import TEXT

# Kinds of outputs; the first three are scores of classes.
SOFTMAX, SIGMOID, LOGITS, VALUES = "softmax", "sigmoid", "logits", "values"
SHOWN = 40  # characters of a bad value in a message


def numbers_text(shape: Sequence[int | None]) -> str:
    """Return a shape in words.

    >>> numbers_text((28, None)), numbers_text((1,))
    ('28 × any numbers', 'one number')
    """
    if all(side == 1 for side in shape):
        return "one number"
    sides = " × ".join("any" if side is None else str(side) for side in shape)
    return f"{sides} numbers"


@dataclass(frozen=True)
class Tensor:
    """An input or output: its name, the shape of a row, its type."""

    name: str
    shape: tuple[int | None, ...]
    dtype: str

    @property
    def is_text(self) -> bool:
        """Whether a row is text."""
        return self.dtype == TEXT

    @property
    def size(self) -> int | None:
        """How many numbers a row has, None where that is not fixed."""
        return None if None in self.shape else math.prod(map(int, self.shape))  # type: ignore[arg-type]

    def __str__(self) -> str:
        if self.is_text:
            return "a text"
        return numbers_text(self.shape)


@dataclass(frozen=True)
class Interface:
    """A model as its users see it."""

    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    head: str
    classes: tuple[str, ...]  # none where the outputs are values
    form: Form | None  # of pictures, if it takes them
    maps: str | None  # the method for class activation maps, if there is any

    @classmethod
    def of(cls, model: Any) -> Interface:
        """Return the interface of a model; raise if its shapes are not known."""
        try:
            inputs = _tensors(model.inputs, model.input_names)
            outputs = _tensors(model.outputs, model.output_names)
        except AttributeError as error:
            raise ValueError(
                f"The model {model.name!r} does not say what it takes: make it with "
                "`Sequential([Input(...), ...])` or with the functional API."
            ) from error
        form = None
        if len(inputs) == len(outputs) == 1:
            try:
                form = Classifier.of(model).form
            except ImagesError:
                form = None
        head = _head(model, outputs)
        width = int(outputs[0].shape[-1] or 0) if head != VALUES else 0
        classes = class_names(model, 2 if width == 1 else width) if width else ()
        maps = map_method(model) if form is not None and classes else None
        return cls(model.name, inputs, outputs, head, tuple(classes), form, maps)

    # ---- rows ------------------------------------------------------------------------

    def rows(self, rows: Any) -> list[np.ndarray]:
        """Return the rows of a request as an array per input; refuse malformed ones."""
        if not isinstance(rows, list) or not rows:
            raise Refused(422, '"rows" must be a list of at least one row.')
        if len(self.inputs) == 1:
            return [_array(self.inputs[0], rows)]
        names = {tensor.name for tensor in self.inputs}
        for number, row in enumerate(rows):
            if not isinstance(row, dict) or row.keys() != names:
                wanted = ", ".join(f'"{name}": …' for name in sorted(names))
                raise Refused(422, f"rows[{number}] must be {{{wanted}}}.")
        return [
            _array(tensor, [row[tensor.name] for row in rows]) for tensor in self.inputs
        ]

    def pixels(self, pixels: np.ndarray) -> list[np.ndarray]:
        """Return decoded pictures in the shape and type of the model's input."""
        tensor = self.inputs[0]
        shape = (len(pixels), *tensor.shape)
        return [pixels.reshape(shape).astype(tensor.dtype)]  # type: ignore[arg-type]

    def answer(self, outputs: Sequence[np.ndarray]) -> dict[str, Any]:
        """Return the outputs for some rows as an answer, ready for JSON.

        Raises:
            Refused: If an output is not finite.
        """
        if not all(np.isfinite(output).all() for output in outputs):
            raise Refused(422, "The model's answer to these numbers is not finite.")
        if self.classes:
            scores = self.probabilities(outputs[0])
            best = scores.argmax(axis=-1)
            return {
                "classes": [self.classes[number] for number in best],
                "probabilities": scores.tolist(),
            }
        if len(outputs) == 1:
            return {"outputs": outputs[0].tolist()}
        names = [tensor.name for tensor in self.outputs]
        parts = [output.tolist() for output in outputs]
        rows = zip(*parts, strict=True)
        return {"outputs": [dict(zip(names, row, strict=True)) for row in rows]}

    def probabilities(self, scores: np.ndarray) -> np.ndarray:
        """Return the probabilities of classes; of a single unit, of no and yes."""
        scores = scores.astype("float32")
        if self.head == LOGITS and scores.shape[-1] == 1:
            scores = 1 / (1 + np.exp(-scores))
        elif self.head == LOGITS:
            powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
            scores = powers / powers.sum(axis=-1, keepdims=True)
        if scores.shape[-1] == 1:
            return np.concatenate([1 - scores, scores], axis=-1)
        return scores

    def as_data(self) -> dict[str, Any]:
        """Return the interface as plain data, for `/model` and for the page."""
        return {
            "name": self.name,
            "inputs": list(map(_tensor_data, self.inputs)),
            "outputs": list(map(_tensor_data, self.outputs)),
            "head": self.head,
            "classes": list(self.classes),
            "image": None if self.form is None else self.form.as_data(),
            "maps": self.maps,
        }


def _tensors(tensors: Sequence[Any], names: Sequence[str]) -> tuple[Tensor, ...]:
    return tuple(
        Tensor(name, tuple(tensor.shape[1:]), str(tensor.dtype))
        for tensor, name in zip(tensors, names, strict=True)
    )


def _tensor_data(tensor: Tensor) -> dict[str, Any]:
    return {"name": tensor.name, "shape": list(tensor.shape), "dtype": tensor.dtype}


def _head(model: Any, outputs: Sequence[Tensor]) -> str:
    """Return the kind of outputs, by the last activation, the loss and the notes."""
    if len(outputs) != 1 or len(outputs[0].shape) != 1 or outputs[0].shape[0] is None:
        return VALUES
    call = model.outputs[0].call
    maker: Any = None if call is None else call.operation
    while getattr(maker, "outputs", None) and maker.outputs[0].call is not None:
        maker = maker.outputs[0].call.operation  # of a model inside of the model
    activation = getattr(getattr(maker, "activation", None), "__name__", "linear")
    if isinstance(maker, layers.Softmax) or activation == "softmax":
        return SOFTMAX
    if activation == "sigmoid":
        return SIGMOID
    loss = getattr(model, "loss", None)
    name = loss if isinstance(loss, str) else getattr(loss, "name", "") or ""
    has_classes = model.notes.get("class_names") or "crossentropy" in str(name)
    return LOGITS if has_classes else VALUES


# ---- a request's values as arrays ----------------------------------------------------


def _array(tensor: Tensor, rows: list[Any]) -> np.ndarray:
    if tensor.is_text:
        return _texts(tensor, rows)
    array = _numbers(rows)
    if array.dtype.kind not in "biuf" or not _fits(tensor, array.shape[1:]):
        raise _bad_row(tensor, rows)
    if not np.isfinite(array).all():
        raise Refused(422, "Numbers must be finite; null, NaN and Infinity are not.")
    array = array.reshape(len(rows), *_sides(tensor, array.shape[1:]))
    return _converted(tensor, array)


def _numbers(lists: list[Any]) -> np.ndarray:
    """Return lists as an array of numbers; of objects, if they are anything else.

    Types come first: where there are texts, NumPy makes all as long as the longest.
    """
    try:
        array = np.array(lists, object)
        if {int, float, bool}.issuperset(map(type, array.ravel().tolist())):
            array = np.asarray(lists)
    except (ValueError, OverflowError):  # ragged, or nested too deeply for NumPy
        array = np.empty(0, object)
    return array


def _converted(tensor: Tensor, array: np.ndarray) -> np.ndarray:
    """Return numbers in the input's type; refuse those that it cannot hold."""
    wanted = np.dtype(tensor.dtype) if tensor.dtype != "bfloat16" else np.dtype("f4")
    if wanted.kind in "iu":
        limits = np.iinfo(wanted)
        if (array != np.floor(array)).any():
            raise Refused(422, f"{tensor.name!r} takes integers.")
        if array.min() < limits.min or array.max() > limits.max:
            raise Refused(422, f"{tensor.name!r} takes numbers of type {wanted}.")
    with np.errstate(over="ignore"):
        converted = array.astype(wanted)
    if not np.isfinite(converted).all():
        raise Refused(422, f"A number is too large for {wanted}, the model's type.")
    return converted


def _fits(tensor: Tensor, shape: tuple[int, ...]) -> bool:
    """Return whether a row has the input's shape, or as many numbers in a flat list."""
    if len(shape) == 1 and tensor.size == shape[0]:
        return True
    if not shape and tensor.shape == (1,):
        return True
    return len(shape) == len(tensor.shape) and all(
        side and wanted in (None, side)
        for side, wanted in zip(shape, tensor.shape, strict=True)
    )


def _sides(tensor: Tensor, shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape if None in tensor.shape else tensor.shape  # type: ignore[return-value]


def _bad_row(tensor: Tensor, rows: list[Any]) -> Refused:
    """Return a refusal that names the first malformed row."""
    for number, row in enumerate(rows):
        problem, array = "", _numbers(row)
        if array.dtype.kind not in "biuf":
            problem = f"holds what is not a number: {row!r:.{SHOWN}}"
            if not array.size or any(isinstance(x, list) for x in array.flat):
                problem = "has lists of different lengths"
        elif not _fits(tensor, array.shape):
            problem = f"has {numbers_text(array.shape)}"
        if problem:
            return Refused(
                422, f"rows[{number}] {problem}; {tensor.name!r} is {tensor}."
            )
    return Refused(422, f"The rows have different shapes; {tensor.name!r} is {tensor}.")


def _texts(tensor: Tensor, rows: list[Any]) -> np.ndarray:
    flat = [row[0] if isinstance(row, list) and len(row) == 1 else row for row in rows]
    for number, row in enumerate(flat):
        if not isinstance(row, str):
            raise Refused(422, f"rows[{number}] is not text: {row!r:.{SHOWN}}")
    return np.array(flat, object).reshape(len(rows), *(1 for _ in tensor.shape))
