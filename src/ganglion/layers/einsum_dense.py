"""EinsumDense: a kernel that is multiplied to its inputs by an einsum equation."""

from __future__ import annotations

import math
import re
import string
from typing import Any

from ganglion import ops
from ganglion.initializers import VarianceScaling
from ganglion.layers.arguments import keep, weight
from ganglion.layers.base import InputSpec, activated
from ganglion.layers.weight_formats.lora import adapted
from ganglion.layers.weight_formats.quantized import Quantizable
from ganglion.serialization import export
from ganglion.system.records import record

__all__ = ["EinsumDense"]

Shape = tuple[int | None, ...]

_FORMS = re.compile(
    r"(?P<left>\.\.\.)?(?P<inputs>[A-Za-z]+)(?P<right>\.\.\.)?,(?P<kernel>[A-Za-z]+)"
    r"->(?(left)\.\.\.)(?P<outputs>[A-Za-z]+)(?(right)\.\.\.)"
)

_ANY_SIZE = 2**62  # in place of a size that is not known


@export("keras.layers")
class EinsumDense(Quantizable):
    """A dense layer over any axes: ``activation(einsum(equation, x, kernel) + bias)``.

    `output_shape` is without the batch and without the axes of `...`; None where
    the size is that of an axis of the inputs. `bias_axes` names the axes of the outputs
    along which biases differ.

    >>> import numpy as np
    >>> heads = EinsumDense("abc,cde->abde", (None, 2, 4), bias_axes="de")
    >>> heads(np.ones((1, 3, 8), "float32")).shape
    (1, 3, 2, 4)
    """

    names_activity_regularizer = True
    kernel = adapted("kernel")
    equation: str
    bias_axes: str | None
    activation: Any
    kernel_initializer: Any

    names_activity_regularizer = True

    def __init__(
        self,
        equation: str,
        output_shape: Any,
        activation: Any = None,
        bias_axes: str | None = None,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        kernel_constraint: Any = None,
        bias_constraint: Any = None,
        lora_rank: int | None = None,
        lora_alpha: float | None = None,
        gptq_unpacked_column_size: int | None = None,
        quantization_config: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        keep(self, locals() | {"output_shape": _as_shape(output_shape)})
        self.partial_output_shape = vars(self)["output_shape"]
        _terms(equation)

    def build(self, input_shape: Any) -> None:
        """Make the kernel, of the axes that the equation names, and the bias."""
        shapes = self._shapes(input_shape)
        own = self.kernel_initializer
        if isinstance(own, VarianceScaling) and None in (
            own.input_axes,
            own.output_axes,
        ):
            fans = {"input_axes": shapes.fan_in, "output_axes": shapes.fan_out}
            own = type(own).from_config(own.get_config() | fans)
        self._letters = _all_letters(self.equation, len(input_shape))
        if self._build_quantized(shapes.kernel):
            self.kernel = weight(self, "kernel", shapes.kernel, initializer=own)
        self.bias = weight(self, "bias", shapes.bias) if shapes.bias else None
        self.input_spec = InputSpec(ndim=len(input_shape))
        self._enable_chosen_lora()

    def call(self, inputs: Any) -> Any:
        if self._is_quantized:
            outputs, bias = self._quantized_product(inputs), self._bias_to_add()
        else:
            outputs, bias = ops.einsum(self.equation, inputs, self.kernel), self.bias
        return activated(self, outputs if bias is None else outputs + bias)

    def _scaled_axes(self) -> tuple[int, ...]:
        return _axes_without(self._letters[1], self._letters[2])

    def _inputs_axes(self) -> tuple[int, ...]:
        return _axes_without(self._letters[0], self._letters[2])

    def _kept_scale(self, scale: Any) -> Any:
        return _arranged(scale, self._letters[1], self._letters[2])

    def _spread_scale(self, scale: Any) -> Any:
        return _arranged(scale, self._letters[2], self._letters[1])

    def _as_matrix(self, weight: Any) -> Any:
        rows = math.prod(weight.shape[axis] for axis in self._scaled_axes())
        return ops.reshape(weight, (rows, -1))

    def _from_matrix(self, matrix: Any) -> Any:
        return ops.reshape(matrix, self._full_shape)

    def _calibrated_shape(self, shape: tuple[int, ...]) -> tuple[int, int]:
        if len(shape) not in (2, 3):
            raise ValueError(
                f"GPTQ and AWQ quantization only support 2D or 3D kernels, got {shape}."
            )
        # As in Keras' files: the largest axis is that of the model.
        inputs = 2 if len(shape) == 3 and max(shape) != shape[0] else 1
        rows, columns = math.prod(shape[:inputs]), math.prod(shape[inputs:])
        if self.quantization_config is None or self.quantization_config.mode == "gptq":
            self.gptq_unpacked_column_size = columns
        return rows, columns

    def _aligned(self, scale: Any) -> Any:
        return _arranged(scale, self._letters[0], self._letters[2])

    def _product(self, inputs: Any, weight: Any) -> Any:
        return ops.einsum(self.equation, inputs, weight)

    def _product_back(self, upstream: Any, weight: Any) -> Any:
        inputs, kernel, outputs = self._letters
        return ops.einsum(f"{outputs},{kernel}->{inputs}", upstream, weight)

    def compute_output_shape(self, input_shape: Any) -> Shape:
        # An axis that is summed over need not be known for the shape of the sum.
        any_size = [_ANY_SIZE if n is None else n for n in input_shape]
        outputs = self._shapes(tuple(any_size)).outputs
        return tuple(None if n == _ANY_SIZE else n for n in outputs)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments; the width of a packed kernel if it is packed."""
        config = super().get_config()
        if not self.gptq_unpacked_column_size:
            config.pop("gptq_unpacked_column_size", None)
        return config

    def _shapes(self, input_shape: Shape) -> _Shapes:
        try:
            return _shapes_of(
                self.equation, self.bias_axes, input_shape, self.partial_output_shape
            )
        except ValueError as error:
            raise ValueError(f'Layer "{self.name}": {error}') from None


def _all_letters(equation: str, ndim: int) -> tuple[str, str, str]:
    """Return the letters of inputs, kernel and outputs, a letter for each axis."""
    terms = _terms(equation)
    used = {*terms["inputs"], *terms["kernel"], *terms["outputs"]}
    spare = [letter for letter in string.ascii_letters if letter not in used]
    hidden = "".join(spare[: ndim - len(terms["inputs"])])
    left, right = (hidden if terms[side] else "" for side in ("left", "right"))
    inputs, outputs = (left + terms[x] + right for x in ("inputs", "outputs"))
    return inputs, terms["kernel"], outputs


def _axes_without(letters: str, others: str) -> tuple[int, ...]:
    return tuple(axis for axis, x in enumerate(letters) if x not in others)


def _arranged(scale: Any, letters: str, wanted: str) -> Any:
    """Return an array with axes of these letters as one with axes of others.

    Axes that are dropped must have the size one; axes that are added get it.
    """
    shape = ops.shape(scale)
    kept = [x for x in wanted if x in letters]
    rest = [x for x in letters if x not in kept]
    turned = ops.transpose(scale, [letters.index(x) for x in [*kept, *rest]])
    sizes = [shape[letters.index(x)] if x in letters else 1 for x in wanted]
    return ops.reshape(turned, sizes)


def _as_shape(value: Any) -> Shape:
    sizes = (value,) if isinstance(value, int) or value is None else tuple(value)
    if any(n is not None and (not isinstance(n, int) or n < 1) for n in sizes):
        raise ValueError(
            f"`output_shape` must hold positive integers or None, got {value!r}."
        )
    return sizes


@record(guarded=True)
class _Shapes:
    """The shapes that follow from an equation and the shape of the inputs."""

    kernel: tuple[int, ...]
    bias: tuple[int, ...]  # empty: there is none
    outputs: Shape
    fan_in: list[int]  # axes of the kernel that are summed over
    fan_out: list[int]


def _terms(equation: Any) -> re.Match[str]:
    match = _FORMS.fullmatch(equation) if isinstance(equation, str) else None
    if match is None or (match["left"] and match["right"]):
        raise ValueError(
            f"`equation` must be like 'ab,bc->ac', '...ab,bc->...ac' or "
            f"'ab...,bc->ac...', got {equation!r}."
        )
    return match


def _shapes_of(
    equation: str, bias_axes: str | None, inputs: Shape, partial: Shape
) -> _Shapes:
    """Return the shapes of the weights and of the outputs."""
    terms = _terms(equation)
    hidden = len(inputs) - len(terms["inputs"])  # axes of `...`
    if hidden < 0 or (hidden and not (terms["left"] or terms["right"])):
        raise ValueError(
            f"{equation!r} does not name the axes of inputs of shape {inputs}."
        )
    first = hidden if terms["left"] else 0
    last = first + len(terms["inputs"])
    before, inputs_named, after = inputs[:first], inputs[first:last], inputs[last:]
    named = partial if terms["left"] else (inputs[0], *partial)
    if len(named) != len(terms["outputs"]):
        raise ValueError(
            f"`output_shape` {partial} does not fit {equation!r}: one size for each "
            "axis of the outputs but the batch."
        )
    known = dict(zip(terms["inputs"], inputs_named, strict=True))
    sizes = _output_sizes(terms["outputs"], named, known)
    kernel = _sizes_of(terms["kernel"], known | sizes, equation)
    fans: dict[bool, list[int]] = {False: [], True: []}
    for axis, letter in enumerate(terms["kernel"]):
        fans[letter in sizes].append(axis)
    bias = _bias_shape(bias_axes, sizes, equation) if bias_axes else ()
    return _Shapes(
        kernel,
        bias + (1,) * len(after) if bias else (),
        (*before, *sizes.values(), *after),
        fans[False],
        fans[True],
    )


def _output_sizes(
    letters: str, named: Shape, known: dict[str, int | None]
) -> dict[str, int | None]:
    sizes: dict[str, int | None] = {}
    for letter, size in zip(letters, named, strict=True):
        of_inputs = known.get(letter)
        if None not in (size, of_inputs) and size != of_inputs:
            raise ValueError(
                f"axis {letter!r} has size {of_inputs} in the inputs, but {size} in "
                "`output_shape`."
            )
        sizes[letter] = of_inputs if size is None else size
    return sizes


def _sizes_of(
    letters: str, sizes: dict[str, int | None], equation: str
) -> tuple[int, ...]:
    shape = []
    for letter in letters:
        size = sizes.get(letter)
        if size is None:
            raise ValueError(
                f"the weights need to know the size of axis {letter!r} of "
                f"{equation!r}: give it in `Input(shape)` or in `output_shape`."
            )
        shape.append(size)
    return tuple(shape)


def _bias_shape(
    bias_axes: str, sizes: dict[str, int | None], equation: str
) -> tuple[int, ...]:
    """Return a shape from the first axis with a bias on; ones where there is none."""
    missing = [letter for letter in bias_axes if letter not in sizes]
    if missing:
        raise ValueError(
            f"`bias_axes` {bias_axes!r} names {missing[0]!r}, which is not an axis of "
            f"the outputs of {equation!r}."
        )
    letters = "".join(sizes)
    tail = letters[min(map(letters.index, bias_axes)) :]
    of_axes = {x: sizes[x] if x in bias_axes else 1 for x in tail}
    return _sizes_of(tail, of_axes, equation)
