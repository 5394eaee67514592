"""Tensors, which ops and models return outside of a trace, and what tapes record.

A `Tensor` is a NumPy array whose operators are those of `ganglion.ops`. While a tape is
open, a `Recording` holds the graph value of each tensor, so that a gradient is
the compiler's own differentiation of that graph.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ganglion import tree
from ganglion.compiler.ir.graph import (
    Leaf,
    Node,
    Operators,
    ShapeError,
    Sizes,
    Value,
    arrays_behind,
    by_axis,
    call_function,
    register_operators,
    updates_of,
)
from ganglion.compiler.ir.shaping import reshape

_shape_of_array: Any = np.ndarray.shape
_MUCH_RECORDED = 512 << 20  # bytes, without a call of `backward`


class Recording:
    """The graph behind tensors while tapes are open, with the array of each node.

    Tapes that are open at the same time share one, so that the gradients of one tape
    are part of the graph of another. It ends with the last tape that refers to it:
    tensors only point to their values weakly.
    """

    def __init__(self, is_implicit: bool = False) -> None:
        self.is_implicit = is_implicit  # began by `zero_grad`, ends by `backward`
        self.nbytes = 0  # of what was computed
        self.arrays: dict[Value, np.ndarray] = {}
        self._leaves: dict[Hashable, list[Value]] = {}
        self._current: dict[Hashable, Value] = {}
        self._watched: dict[int, tuple[np.ndarray, Value]] = {}

    # ---- differentiable tensors ------------------------------------------------------

    def leaf(self, variable: Hashable, array: np.ndarray) -> Value:
        """Return the value that a variable is now, the same until it is assigned."""
        if variable not in self._current:
            self._current[variable] = self._start(array)
            self._leaves.setdefault(variable, []).append(self._current[variable])
        return self._current[variable]

    @property
    def variables(self) -> list[Any]:
        """The variables that were read."""
        return list(self._leaves)

    def leaves(self, variable: Hashable) -> list[Value]:
        """Return all values that a variable had since the recording began."""
        return self._leaves.get(variable, [])

    def assigned(self, variable: Hashable) -> None:
        """Note that a variable has a new value, which has nothing behind it."""
        self._current.pop(variable, None)

    def watch(self, array: np.ndarray) -> None:
        """Make an array a value for which gradients can be computed."""
        if self.value_of(array) is None:
            value = self._start(array)
            self._watched[id(array)] = array, value

    def _start(self, array: np.ndarray) -> Value:
        # Not a constant: loops have a copy of those inside, which no gradient reaches.
        numbers = np.array(array)
        numbers.setflags(write=False)
        value = Leaf("leaf", numbers)
        self.arrays[value] = numbers
        return value

    def value_of(self, x: Any) -> Value | None:
        """Return the value that an array is in this recording, None if it is none."""
        if isinstance(x, Tensor) and x._value is not None:
            value = x._value()
            if value is not None and value in self.arrays:
                return value
        watched = self._watched.get(id(x))
        return watched[1] if watched is not None else None

    # ---- computing ---------------------------------------------------------------

    def evaluate(self, values: Sequence[Value]) -> list[Tensor]:
        """Compute values as tensors, and record what depends on the recording."""
        new = arrays_behind(values, self.arrays)
        if any(self._continues(value) for value in new):
            for value, array in new.items():
                if isinstance(value, Node):
                    if isinstance(array, np.ndarray):  # not what a loop returns
                        array.setflags(write=False)
                        self.nbytes += array.nbytes
                    self.arrays[value] = array
        tensors = []
        for value in values:
            is_known = value in self.arrays
            tensor = as_tensor(self.arrays[value] if is_known else new[value])
            if is_known:
                tensor._value = weakref.ref(value)
            tensors.append(tensor)
        return tensors

    def _continues(self, value: Value) -> bool:
        return isinstance(value, Node) and any(x in self.arrays for x in value.inputs)


# The arrays that tapes of a trace watch, and the value that each is in the trace.
Watched = dict[int, tuple[np.ndarray, Value]]


class _Active(threading.local):
    recording: Recording | None = None
    watched: Watched | None = None


_active = _Active()


def recording() -> Recording | None:
    """Return the recording of the tapes that are open in this thread."""
    return _active.recording


@contextmanager
def recording_to(chosen: Recording | None) -> Iterator[None]:
    """Record what happens in this block there, or nowhere."""
    before, _active.recording = _active.recording, chosen
    try:
        yield
    finally:
        _active.recording = before


def expect_backward() -> None:
    """Record from here on, if the script is written for Keras on PyTorch.

    PyTorch records every computation, so that `loss.backward()` works without a tape. A
    recording that grows large without a call for gradients starts again.
    """
    if os.environ.get("KERAS_BACKEND") != "torch":
        return
    active = _active.recording
    if active is None or (active.is_implicit and active.nbytes > _MUCH_RECORDED):
        _active.recording = Recording(is_implicit=True)


def set_recording(chosen: Recording | None) -> None:
    """Record there from now on, or nowhere."""
    _active.recording = chosen


def set_watched(chosen: Watched | None) -> None:
    """Follow these arrays in the trace from now on, or none."""
    _active.watched = chosen


def watched_value(x: Any) -> Value | None:
    """Return the value that a watched array is in the trace, None of others."""
    if _active.watched is None:
        return None
    return _active.watched.get(id(x), (None, None))[1]


def has_numbers(value: Value) -> bool:
    """Return whether the recording has the numbers of a value."""
    return _active.recording is not None and value in _active.recording.arrays


def evaluated(values: Sequence[Value]) -> list[Tensor]:
    """Compute values from constants, as part of the recording if there is any."""
    if _active.recording is not None:
        return _active.recording.evaluate(values)
    new = arrays_behind(values, {})
    return [as_tensor(new[value]) for value in values]


_TEXT_KINDS = "OSUT"
# Types that a tensor can be compared with, besides all that can become an array.
_OPERANDS = (int, float, complex, np.generic, list, tuple, Operators)


# ---- tensors -------------------------------------------------------------------------


def as_tensor(array: Any) -> Tensor:
    """Return an array as a tensor, without a copy."""
    plain = np.asarray(array)
    return plain.view(TextTensor if plain.dtype.kind in _TEXT_KINDS else Tensor)


def _binary(name: str, ufunc: np.ufunc) -> tuple[Any, Any, Any]:
    """Return an operator, the same with its operands swapped, and the one in place."""

    def operator(self: Tensor, other: Any) -> Any:
        return _applied(name, ufunc, self, other)

    def reflected(self: Tensor, other: Any) -> Any:
        return _applied(name, ufunc, other, self)

    # Other names may refer to the same tensor: it must not change.
    return operator, reflected, operator


def _applied(name: str, ufunc: np.ufunc, a: Any, b: Any) -> Any:
    if _active.recording is None and _are_floats(a, b) and not _any_watched(a, b):
        with np.errstate(all="ignore"):
            return as_tensor(ufunc(_plain(a), _plain(b)))
    return call_function(name, a, b)


def _are_floats(a: Any, b: Any) -> bool:
    """Return whether NumPy gives the type that Keras gives, and so can do the work."""
    types = [x.dtype for x in (a, b) if isinstance(x, np.ndarray)]
    return types[0].kind == "f" and (
        types[0] == types[1] if len(types) > 1 else type(b) in (int, float, Tensor)
    )


def _plain(x: Any) -> Any:
    return x.view(np.ndarray) if isinstance(x, Tensor) else x


def _any_watched(*arrays: Any) -> bool:
    return _active.watched is not None and any(
        watched_value(x) is not None for x in arrays
    )


def _any_recorded(structure: Any) -> bool:
    return _active.recording is not None and any(
        isinstance(leaf, Tensor) and leaf.is_recorded
        for leaf in tree.flatten(structure)
    )


def _comparison(name: str, ufunc: np.ufunc) -> Any:
    def operator(self: Tensor, other: Any) -> Any:
        if not isinstance(other, _OPERANDS) and not hasattr(other, "__array__"):
            return NotImplemented  # the other operand may define the comparison
        return _applied(name, ufunc, self, other)

    return operator


def _unary(name: str) -> Any:
    def operator(self: Tensor) -> Any:
        return call_function(name, self)

    return operator


def _of_bits(ufunc: np.ufunc) -> tuple[Any, Any]:
    """Return `&` or the like, and the same with its operands swapped."""

    def operator(self: Tensor, other: Any) -> Any:
        if isinstance(other, Value):
            return NotImplemented  # which knows the same operators
        return as_tensor(ufunc(_plain(self), _plain(other)))

    def reflected(self: Tensor, other: Any) -> Any:
        return as_tensor(ufunc(_plain(other), _plain(self)))

    return operator, reflected


def _method(name: str, function: str | None = None) -> Any:
    """Return a method of arrays that is the op of that name while a tape records."""
    of_arrays: Callable[..., Any] = getattr(np.ndarray, name)

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        kwargs = by_axis(name, kwargs)
        if self.is_recorded:
            options = {k: v for k, v in kwargs.items() if v is not None}
            return call_function(function or name, self, *args, **options)
        result = of_arrays(self, *args, **kwargs)
        return as_tensor(result) if isinstance(result, np.generic) else result

    method.__name__, method.__doc__ = name, f"NumPy's `{name}`."
    return method


def _torch_function(function: Any, args: Any, kwargs: Any) -> Any:
    from ganglion.compat import pytorch  # which has all ops

    return pytorch.called(function, args, kwargs)


register_operators({"torch_function": _torch_function})


def check_devices(owner: str, *parts: Any) -> None:
    """Refuse arguments of PyTorch's `to` that are not devices."""
    wanted = list(map(str, parts))
    if any(not part.startswith(("cpu", "cuda")) for part in wanted):
        raise TypeError(
            f"{owner}.to({', '.join(wanted)}): only devices. For another type use "
            "`keras.ops.cast`, or `dtype=` where a layer is made."
        )


class Tensor(np.ndarray):
    """An array with the operators of Keras: what ops and models return.

    >>> import ganglion as keras
    >>> x = keras.ops.convert_to_tensor([1, 2])
    >>> x / 2
    array([0.5, 1. ], dtype=float32)
    >>> x.numpy().tolist()
    [1, 2]
    """

    _keras_mask: Any  # see `get_keras_mask`; set if there is a mask
    _value: weakref.ref[Value] | None = None  # in the recording that created it, if any
    _variable: Any = None  # whose value it is

    @property
    def shape(self) -> Sizes:
        """The sizes of the axes."""
        return Sizes(_shape_of_array.__get__(self))

    @shape.setter
    def shape(self, sizes: Any) -> None:
        _shape_of_array.__set__(self, sizes)

    def get_shape(self) -> Sizes:
        """Return the sizes of the axes, as in TensorFlow."""
        return self.shape

    def set_shape(self, shape: Any) -> None:
        """Refuse sizes that are not those of the axes, as in TensorFlow."""
        self.shape.assert_is_compatible_with(shape)

    def to_tensor(self, *_: Any, **__: Any) -> Tensor:
        """Return the tensor itself: what is ragged in TensorFlow is regular here."""
        return self

    __add__, __radd__, __iadd__ = _binary("add", np.add)
    __sub__, __rsub__, __isub__ = _binary("subtract", np.subtract)
    __mul__, __rmul__, __imul__ = _binary("multiply", np.multiply)
    __truediv__, __rtruediv__, __itruediv__ = _binary("divide", np.divide)
    __floordiv__, __rfloordiv__, __ifloordiv__ = _binary(
        "floor_divide", np.floor_divide
    )
    __mod__, __rmod__, __imod__ = _binary("mod", np.remainder)
    __pow__, __rpow__, __ipow__ = _binary("power", np.power)
    __matmul__, __rmatmul__, __imatmul__ = _binary("matmul", np.matmul)
    __lt__ = _comparison("less", np.less)
    __le__ = _comparison("less_equal", np.less_equal)
    __gt__ = _comparison("greater", np.greater)
    __ge__ = _comparison("greater_equal", np.greater_equal)
    __eq__ = _comparison("equal", np.equal)
    __ne__ = _comparison("not_equal", np.not_equal)
    __neg__, __abs__ = _unary("negative"), _unary("absolute")
    __and__, __rand__ = _of_bits(np.bitwise_and)
    __or__, __ror__ = _of_bits(np.bitwise_or)
    __xor__, __rxor__ = _of_bits(np.bitwise_xor)
    __lshift__, __rlshift__ = _of_bits(np.left_shift)
    __rshift__, __rrshift__ = _of_bits(np.right_shift)
    __hash__ = None  # as for any array

    sum, mean, max, min = map(_method, ("sum", "mean", "max", "min"))
    prod, cumsum, std, var = map(_method, ("prod", "cumsum", "std", "var"))
    argmax, argmin, squeeze = map(_method, ("argmax", "argmin", "squeeze"))
    dot, repeat, swapaxes = map(_method, ("dot", "repeat", "swapaxes"))
    flatten, ravel = _method("flatten", "ravel"), _method("ravel")
    astype, clip, round = _method("astype", "cast"), _method("clip"), _method("round")

    @property
    def is_recorded(self) -> bool:
        """Whether the tape that is open has recorded how this tensor was computed."""
        active = _active.recording
        if active is not None and active.value_of(self) is not None:
            return True
        return watched_value(self) is not None

    def numpy(self) -> Any:
        """Return the numbers as an array of NumPy's own, or as a scalar."""
        return np.array(self)[()]

    def detach(self) -> Tensor:
        """Return the same numbers, through which no gradient goes, as in PyTorch."""
        return as_tensor(np.array(self))

    def cpu(self) -> Tensor:
        """Return the tensor itself: its numbers lie in the memory of the processor."""
        return self

    def to(self, *args: Any, **kwargs: Any) -> Tensor:
        """Return the tensor itself for PyTorch's device `cpu`; refuse anything else."""
        check_devices("Tensor", *args, *kwargs.values())
        return self

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Call the op that does what a function of PyTorch's does, or refuse it."""
        return _torch_function(function, args, kwargs)

    def backward(self) -> None:
        """Compute the gradients of all trainable variables, as in PyTorch."""
        call_function("backward", self)

    @property
    def grad(self) -> Any:
        """The gradient that `backward` found, if this is the value of a variable."""
        return None if self._variable is None else self._variable.grad

    def reshape(self, *shape: Any, **kwargs: Any) -> Any:
        """Give the same elements another shape; one size may be -1."""
        if not self.is_recorded:
            return super().reshape(*shape, **kwargs)
        return call_function("reshape", self, shape[0] if len(shape) == 1 else shape)

    def transpose(self, *axes: Any) -> Any:
        """Put the axes into another order, by default the reverse."""
        if not self.is_recorded:
            return super().transpose(*axes)
        order = axes[0] if len(axes) == 1 else axes or None
        return call_function("transpose", self, order)

    @property
    def T(self) -> Any:  # noqa: N802 (NumPy's name)
        """The transpose."""
        return self.transpose()

    @property
    def at(self) -> Any:
        """Elements to change, as in JAX, once a script has imported it."""
        return updates_of(self)

    def block_until_ready(self) -> Tensor:
        """Return the tensor itself, as in JAX: its numbers are there."""
        return self

    def __invert__(self) -> Tensor:
        return as_tensor(np.invert(_plain(self)))

    def __getitem__(self, key: Any) -> Any:
        keys = key if isinstance(key, tuple) else (key,)
        if self.is_recorded or any(isinstance(part, Value) for part in keys):
            return call_function("getitem", self, key)
        part = super().__getitem__(key)
        return as_tensor(part) if isinstance(part, np.generic) else part

    def __iter__(self) -> Iterator[Any]:
        return (self[number] for number in range(len(self)))

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any
    ) -> Any:
        """Let NumPy compute with arrays; while a tape records it, use the op."""
        if method == "__call__" and not kwargs and _any_recorded(inputs):
            return call_function(_UFUNCS.get(ufunc.__name__, ufunc.__name__), *inputs)
        if kwargs.get("out") is not None:
            kwargs["out"] = tuple(map(_plain, kwargs["out"]))
        return getattr(ufunc, method)(*map(_plain, inputs), **kwargs)

    def __array_function__(
        self, function: Any, types: Any, args: Any, kwargs: Any
    ) -> Any:
        if _any_recorded((args, kwargs)):
            return call_function(function.__name__, *args, **kwargs)
        args, kwargs = tree.map_leaves(_plain, args), tree.map_leaves(_plain, kwargs)
        return function(*args, **kwargs)

    def __repr__(self) -> str:
        return repr(np.asarray(self))

    def __str__(self) -> str:
        return str(np.asarray(self))  # whose elements are numbers, not tensors

    def __reduce__(self) -> Any:
        return np.asarray(self).__reduce__()


# The ops that have another name than the function of NumPy.
_UFUNCS = {"remainder": "mod", "true_divide": "divide", "conjugate": "conj"}


class TextType(str):
    """The dtype of texts: a name with the attributes of a NumPy dtype."""

    name, kind = "string", "O"

    def __eq__(self, other: object) -> bool:
        is_word = isinstance(other, str)
        return str.__eq__(self, other) if is_word else other in (object, np.dtype("O"))

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__

    def __repr__(self) -> str:
        return "tf.string"


class TextTensor(Tensor):
    """Texts, which Python handles: in TensorFlow's way, `numpy()` gives bytes.

    >>> texts = as_tensor(np.array(["a", "b"], object))
    >>> texts.numpy(), (texts == "a").numpy(), texts.dtype == "string"
    (array([b'a', b'b'], dtype=object), array([ True, False]), True)
    """

    @property
    def dtype(self) -> Any:
        """The type of texts."""
        return TextType("string")

    def numpy(self) -> Any:
        """Return the texts as bytes: an array of them, or one."""
        return _bytes_of(self)[()]

    def __eq__(self, other: Any) -> Any:
        return as_tensor(_bytes_of(self) == _bytes_of(other))

    def __ne__(self, other: Any) -> Any:
        return as_tensor(_bytes_of(self) != _bytes_of(other))

    def __add__(self, other: Any) -> Any:
        return as_tensor(_bytes_of(self) + _bytes_of(other))

    def __radd__(self, other: Any) -> Any:
        return as_tensor(_bytes_of(other) + _bytes_of(self))

    def __getitem__(self, key: Any) -> Any:
        part = np.asarray(self)[key]
        if isinstance(part, str):
            return Text(part)
        return as_tensor(part if isinstance(part, np.ndarray) else _one_text(part))

    __iadd__ = __add__
    __hash__ = None


class Text(str):
    """A text out of a tensor of Python's texts, which it still is."""

    @property
    def dtype(self) -> TextType:
        """The type of texts."""
        return TextType("string")

    @property
    def shape(self) -> Sizes:
        """No axes."""
        return Sizes(())

    def numpy(self) -> bytes:
        """Return the text as bytes, as in TensorFlow."""
        return self.encode()


def _one_text(text: Any) -> np.ndarray:
    array = np.empty((), object)
    array[()] = text
    return array


def _bytes_of(texts: Any) -> np.ndarray:
    array = np.asarray(texts, object)
    encode = np.frompyfunc(lambda x: x.encode() if isinstance(x, str) else x, 1, 1)
    return np.asarray(encode(array), object)


# ---- masks ---------------------------------------------------------------------------
# Which steps of a padded sequence are real. As in Keras, a mask travels as an
# attribute, `_keras_mask`, of a Keras tensor, a traced value, or an array that a layer
# returned. What has no mask has no such attribute.


def with_mask(array: np.ndarray, mask: np.ndarray) -> Tensor:
    """Return a view of an array that carries a mask; what is made of it has none.

    >>> x = with_mask(np.ones((1, 2)), np.array([[True, False]]))
    >>> x._keras_mask
    array([[ True, False]])
    >>> get_keras_mask(x + 1) is None
    True
    """
    masked = as_tensor(array)
    masked._value = getattr(array, "_value", None)
    masked._keras_mask = mask
    return masked


def get_keras_mask(x: Any) -> Any:
    """Return the mask of a tensor, None if it has none."""
    return getattr(x, "_keras_mask", None)


def set_keras_mask(x: Any, mask: Any) -> None:
    """Set the mask of a tensor, or remove it with None."""
    if isinstance(x, np.ndarray) and not isinstance(x, Tensor):
        raise TypeError(
            "A plain array cannot carry a mask: give it to the layer that needs it, "
            "as in layer(x, mask=mask)."
        )
    x._keras_mask = mask


def masks_of(structure: Any) -> Any:
    """Return the mask of each tensor, in the same structure."""
    return tree.map_leaves(get_keras_mask, structure)


def without_mask(x: Any) -> Any:
    """Return the same numbers without a mask; the value that has one keeps it."""
    is_masked = isinstance(x, Value) and get_keras_mask(x) is not None
    return reshape(x, shape=x.shape) if is_masked else x


def check_mask(
    owner: str, mask: Any, x: Any, ndim: int, stretches: bool = False
) -> None:
    """Refuse a mask that does not have the first `ndim` axes of what it masks.

    One that ``stretches`` may have the size one where its input has another.
    """
    got, shape = tuple(mask.shape), tuple(x.shape)
    fits = got == shape[:ndim]
    if stretches and len(got) == ndim:
        fits = all(n in (1, size) for n, size in zip(got, shape, strict=False))
    if not fits:
        raise ShapeError(
            f"{owner}: a mask of shape {got} does not fit inputs of shape {shape}: it "
            f"must have the shape {shape[:ndim]}, a truth value for each step."
        )
