"""Constructing and building layers: arguments, old names, shapes."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from ganglion import config, keras2, tree
from ganglion.compiler.ir import origin
from ganglion.compiler.ir.graph import Value
from ganglion.serialization import (
    deserialize_keras_object,
    serialize_keras_object,
)
from ganglion.symbolic import KerasTensor
from ganglion.variables import current_scope, suspended

# Arguments that Keras 2 accepted on every layer, for the shape of the input.
_INPUT_HINTS = ("input_shape", "batch_input_shape", "input_dim", "batch_size")


def checked_name(name: Any) -> str | None:
    """Return the name of a layer; refuse anything but a string."""
    if name is not None and not isinstance(name, str):
        raise ValueError(f"`name` must be a string, got {name!r}.")
    return name


def checked_trainable(trainable: Any) -> bool:
    """Return the argument `trainable`; refuse anything but True and False."""
    if not isinstance(trainable, (bool, np.bool_)):
        raise ValueError(
            f"Expected `trainable` to be a boolean, True or False, got {trainable!r}."
        )
    return bool(trainable)


def input_hint_from(kwargs: dict[str, Any]) -> tuple[int | None, ...] | None:
    """Take Keras 2's `input_shape=` and related ones out of a layer's arguments."""
    hints = {key: kwargs.pop(key) for key in _INPUT_HINTS if key in kwargs}
    if not hints:
        return None
    old = next(iter(hints))
    keras2.note(
        f"`{old}=` on a layer", "an `Input(shape)` before it", changes_defaults=False
    )
    batch = hints.get("batch_size")
    if "batch_input_shape" in hints:
        return tuple(hints["batch_input_shape"])
    if "input_shape" in hints:
        shape = hints["input_shape"]
        return (batch, *((shape,) if isinstance(shape, int) else shape))
    return (batch, hints["input_dim"]) if "input_dim" in hints else None


# Cached: every layer of many equal models calls it.
_signature = functools.lru_cache(maxsize=512)(inspect.signature)


def bound_arguments(cls: type, args: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of `__init__` by name, defaults included."""
    signature = _signature(cls.__init__)  # type: ignore[misc]
    try:
        bound = signature.bind(None, *args, **kwargs)
    except TypeError:
        return {}  # `__init__` itself will raise a better error
    bound.apply_defaults()
    values = dict(list(bound.arguments.items())[1:])
    for name, parameter in signature.parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            values.update(values.pop(name, {}))
        elif parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            values.pop(name, None)
    hints = {*_INPUT_HINTS} - {*signature.parameters}  # `input_dim` of an Embedding
    return {k: v for k, v in values.items() if k not in hints | {"weights"}}


def arguments_of(layer: Any) -> dict[str, Any]:
    """Return the arguments that `get_config` of the base class is to give.

    A class that writes its own `get_config` adds what its own `__init__` takes.
    """
    kinds = type(layer).__mro__
    writer = next(kind for kind in kinds if "get_config" in vars(kind))
    if writer.__module__.startswith("ganglion."):
        values: dict[str, Any] = layer._init_values
        return values
    ours = next(kind for kind in kinds if kind.__module__.startswith("ganglion."))
    parameters = inspect.signature(ours.__init__).parameters  # type: ignore[misc]
    rest = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {
        name: getattr(layer, name)
        for name, parameter in list(parameters.items())[1:]
        if parameter.kind not in rest and name != "autocast" and hasattr(layer, name)
    }


def as_plain_data(value: Any) -> Any:
    """Return objects and functions in serialized form, nameless ones as they are."""
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        kind = tuple if isinstance(value, tuple) else list
        return kind(as_plain_data(item) for item in value)
    if isinstance(value, dict):
        return {key: as_plain_data(item) for key, item in value.items()}
    try:
        plain = serialize_keras_object(value)
        if isinstance(plain, dict) and plain.get("class_name") == "function":
            deserialize_keras_object(plain)  # unknown, unless it is registered
    except (TypeError, ValueError):  # saving says so, where it is saved
        return value
    return plain


class UnknownArgumentError(TypeError, ValueError):
    """An unknown argument: a TypeError in Python, a ValueError in Keras."""


def refuse_unknown(cls: type, arguments: dict[str, Any]) -> None:
    """Refuse arguments that no constructor of a layer has, with the nearest name."""
    known: dict[str, Any] = {}
    for base in cls.__mro__[:-1]:
        known |= inspect.signature(base.__init__).parameters  # type: ignore[misc]
    names = [name for name in known if name not in ("self", "args", "kwargs")]
    first, *_ = unknown = sorted(arguments)
    raise UnknownArgumentError(
        f"Unrecognized keyword arguments passed to {cls.__name__}: "
        f"{', '.join(unknown)}. "
        f"{config.closest(first, names)}"
    )


# ---- Keras 1's names of arguments, which Keras 2 took with a warning -----------------

# Old name: the new one, the first that the layer has.
RENAMED = {
    "output_dim": ("units",),
    "init": ("kernel_initializer", "embeddings_initializer"),
    "W_regularizer": ("kernel_regularizer", "embeddings_regularizer"),
    "W_constraint": ("kernel_constraint", "embeddings_constraint"),
    "b_regularizer": ("bias_regularizer",),
    "b_constraint": ("bias_constraint",),
    "bias": ("use_bias",),
    "p": ("rate",),
    "sigma": ("stddev",),
    "nb_filter": ("filters",),
    "filter_length": ("kernel_size",),
    "subsample": ("strides",),
    "subsample_length": ("strides",),
    "border_mode": ("padding",),
    "atrous_rate": ("dilation_rate",),
    "dim_ordering": ("data_format",),
    "pool_length": ("pool_size",),
    "inner_init": ("recurrent_initializer",),
    "inner_activation": ("recurrent_activation",),
    "U_regularizer": ("recurrent_regularizer",),
    "U_constraint": ("recurrent_constraint",),
    "dropout_W": ("dropout",),
    "dropout_U": ("recurrent_dropout",),
    "gamma_init": ("gamma_initializer",),
    "beta_init": ("beta_initializer",),
}
_LAYOUTS = {"tf": "channels_last", "th": "channels_first", "default": None}
_IMAGE_LAYERS = ("Conv2D", "Conv2DTranspose", "SeparableConv2D")


def translated(
    cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a layer of ours under today's names."""
    two_sizes = _has_two_sizes(cls, args)
    old_ones = kwargs.keys() & {*RENAMED, "nb_row", "mode"}
    if not is_ours(cls) or not (old_ones or two_sizes):
        return args, kwargs
    if "mode" in kwargs and cls.__name__ == "BatchNormalization":
        kwargs = _without_mode(kwargs)
    known = inspect.signature(cls.__init__).parameters  # type: ignore[misc]
    renamed: dict[str, Any] = {}
    for old, value in kwargs.items():
        new = next((name for name in RENAMED.get(old, ()) if name in known), None)
        if new is None or old in known:
            renamed[old] = value
            continue
        keras2.note(f"`{old}=`", f"`{new}=`")
        renamed[new] = _LAYOUTS.get(value, value) if old == "dim_ordering" else value
    if two_sizes and (old_ones or "strides" in renamed or _means_sizes(args)):
        keras2.note("`Conv2D(filters, rows, columns)`", "`Conv2D(filters, (r, c))`")
        args = (args[0], (args[1], args[2]), *args[3:])
    elif "nb_row" in renamed and "nb_col" in renamed:
        keras2.note("`nb_row=, nb_col=`", "`kernel_size=`")
        renamed["kernel_size"] = (
            renamed.pop("nb_row"),
            renamed.pop("nb_col"),
        )
    return args, renamed


def _without_mode(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Leave out the mode of Keras 1's `BatchNormalization`, of which one is left."""
    if kwargs["mode"] != 0:
        raise ValueError(
            f"BatchNormalization(mode={kwargs['mode']!r}): Keras 2 dropped all modes "
            "but 0. For mode 1 use `LayerNormalization`."
        )
    keras2.note("`BatchNormalization(mode=0)`", "the only way, left out")
    return {name: value for name, value in kwargs.items() if name != "mode"}


def _has_two_sizes(cls: type, args: tuple[Any, ...]) -> bool:
    """Return whether this may be `Conv2D(32, 3, 3)`: rows and columns, or a stride."""
    sizes = args[1:3] if cls.__name__ in _IMAGE_LAYERS else ()
    return len(sizes) == 2 and all(isinstance(size, int) for size in sizes)


def _means_sizes(args: tuple[Any, ...]) -> bool:
    """Guess what `Conv2D(32, 3, 3)` means where nothing else in the call decides it.

    Kernels are mostly square, and strides mostly smaller than the kernel.
    """
    return keras2.active() and bool(args[1] == args[2])


def is_ours(cls: type) -> bool:
    """Return whether a layer is Ganglion's own."""
    return cls.__module__.startswith("ganglion.layers")


def translating(init: Callable[..., None]) -> Callable[..., None]:
    """Let the `__init__` of a layer take the old names, too."""

    @functools.wraps(init)
    def initialize(self: Any, *args: Any, **kwargs: Any) -> None:
        if type(self).__init__ is initialize:  # not from the `__init__` of a subclass
            args, kwargs = translated(type(self), args, kwargs)
        init(self, *args, **kwargs)

    return initialize


_OLD_ORDER = ("name", "shape", "dtype", "initializer", "regularizer", "trainable")


def name_first(add_weight: Callable[..., Any]) -> Callable[..., Any]:
    """Let `add_weight` take Keras 2's order of arguments, too: the name comes first."""

    @functools.wraps(add_weight)
    def either_order(self: Any, *args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], str):
            keras2.note(
                '`add_weight("name", shape)`',
                '`add_weight(shape, name="name")`',
                changes_defaults=False,
            )
            kwargs.update(zip(_OLD_ORDER, args, strict=False))
            args = ()
        return add_weight(self, *args, **kwargs)

    return either_order


class OldShape:
    """Keras 2's `layer.output_shape`; a layer may keep an attribute of that name."""

    def __init__(self, end: str) -> None:
        self.end = end

    def __get__(self, layer: Any, kind: type | None = None) -> Any:
        """Return the shape of the first call's inputs, or of its outputs."""
        if layer is None:
            return self
        tensors = getattr(layer, self.end)
        keras2.note(
            f"`layer.{self.end}_shape`",
            f"`layer.{self.end}.shape`",
            changes_defaults=False,
        )
        return shapes_of(tensors)


def kept_value(layer: Any, name: str, value: Any) -> Any:
    """Return a layer's attribute of an argument's name, else the argument."""
    if isinstance(getattr(type(layer), name, None), OldShape):
        return vars(layer).get(name, value)
    return getattr(layer, name, value)


# ---- building: the shapes `build` gets, and when a layer counts as built ------------


def by_calling(build: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a `build` that calls the layers below: it says itself when it is done."""
    build.by_calling = True  # type: ignore[attr-defined]
    return build


def builds_by_calling(build: Callable[..., Any]) -> bool:
    """Return whether a `build` is marked so."""
    return getattr(build, "by_calling", False)


def counting(build: Callable[..., Any]) -> Callable[..., Any]:
    """Let a `build` that a script calls by hand count as building the layer."""

    @functools.wraps(build)
    def counted(self: Any, *args: Any, **kwargs: Any) -> None:
        if is_ours(type(self)):  # they know shapes as tuples
            args = tuple(unwrapped(shape) for shape in args)
        if self._building:  # by `_build_once`, or this is `super().build(...)`
            build(self, *args, **kwargs)
            return
        self._building = True
        try:
            with suspended(), origin.inside(self.name, self.created):
                self._path = origin.layer_path()
                build(self, *args, **kwargs)
        finally:
            self._building = False
        self.built = True
        if len(build_names(type(self))) > 1:
            names = inspect.signature(build).bind(self, *args, **kwargs).arguments
            self._build_shape = ShapesByName(list(names.items())[1:])
        elif len(shapes := [*args, *kwargs.values()]) == 1:
            self._build_shape = unwrapped(shapes[0])
        else:
            self._build_shape = ShapesByName([])  # of no shape, and so again

    return counted


def build_names(cls: type, method: str = "build") -> list[str]:
    """Return the names of the shapes that the `build` of a layer takes."""
    parameters = list(_signature(getattr(cls, method)).parameters.values())[1:]
    rest = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [parameter.name for parameter in parameters if parameter.kind not in rest]


class ShapesByName(dict[str, Any]):
    """The shapes for a `build` that takes several, by the names of its parameters."""

    def __init__(self, shapes: Any) -> None:
        super().__init__({name: unwrapped(shape) for name, shape in shapes})


def shapes_to_build(
    layer: Any, args: Any, kwargs: dict[str, Any], method: str = "build"
) -> Any:
    """Return the shape of a call's first input, or of each that `build` takes.

    A `build` with several parameters gets those of the arguments of `call`: one called
    `query_shape` is the shape of `query`.
    """
    names = build_names(type(layer), method)
    if len(names) < 2:
        first = args[0] if args else next(iter(kwargs.values()), None)
        return unwrapped(tree.map_leaves(shape_of, first))
    signature = inspect.signature(layer.call)
    _check_shape_names(layer, names, signature, method)
    inputs = signature.bind_partial(*args, **kwargs).arguments
    shapes = [
        (f"{name}_shape", tree.map_leaves(shape_of, value))
        for name, value in inputs.items()
        if f"{name}_shape" in names and value is not None
    ]
    return ShapesByName(shapes)


def _check_shape_names(
    layer: Any, names: list[str], signature: inspect.Signature, method: str
) -> None:
    """Refuse shapes that are not named after arguments of `call`."""
    known = signature.parameters
    takes_any = any(
        parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in known.values()
    )
    for name in names:
        own = name.removesuffix("_shape")
        if own == name:
            reason = f"argument `{name}`, which does not end in `_shape`"
        elif own not in known and not takes_any:
            reason = f"`{name}`, but `call()` does not have argument `{own}`"
        else:
            continue
        raise ValueError(
            f"For a `{method}()` method with more than one argument, all arguments "
            "should have a `_shape` suffix and match an argument from `call()`, as "
            "`build(self, foo_shape, bar_shape)` matches `call(self, foo, bar)`. "
            f'For layer "{layer.name}" of type {type(layer).__name__}, `{method}()` '
            f"has {reason}."
        )


def is_own(layer: Any, method: str) -> bool:
    """Return whether a class outside of Ganglion defines this method of a layer."""
    kinds = type(layer).__mro__
    definer = next(kind for kind in kinds if method in vars(kind))
    return not definer.__module__.startswith("ganglion.")


def outputs_by_shape(layer: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Return Keras tensors as the layer's own `compute_output_shape` has them."""
    shapes = shapes_to_build(layer, args, kwargs, "compute_output_shape")
    if isinstance(shapes, ShapesByName):
        outputs = layer.compute_output_shape(**shapes)
    else:
        outputs = layer.compute_output_shape(shapes)
    if not isinstance(outputs, (list, tuple, dict)):
        raise ValueError(
            f"`compute_output_shape` of {type(layer).__name__} must return a shape, or "
            f"several in a list or a dictionary, got {outputs!r}."
        )
    return tree.map_shape_structure(
        lambda shape: KerasTensor(shape, dtype=layer.compute_dtype), outputs
    )


class ShapeLeaf(tuple):
    """A shape as a leaf, so that a list of inputs becomes a list of shapes."""


def shape_of(leaf: Any) -> Any:
    """Return the shape of an input; the batch of a step to compile may be any."""
    shape = getattr(leaf, "shape", None)
    if shape is None:
        return leaf
    scope = current_scope()
    is_known = scope is not None and scope.concrete
    unknown_batch = isinstance(leaf, Value) and len(shape) > 0 and not is_known
    return ShapeLeaf((None, *shape[1:]) if unknown_batch else shape)


def unwrapped(shapes: Any) -> Any:
    """Return shapes as plain tuples, as `build` takes them."""
    if isinstance(shapes, ShapeLeaf):
        return tuple(shapes)
    if isinstance(shapes, dict):
        return {key: unwrapped(item) for key, item in shapes.items()}
    if isinstance(shapes, (list, tuple)) and any(
        isinstance(shape, (list, tuple, dict)) for shape in shapes
    ):
        kind = tuple if isinstance(shapes, tuple) else list
        return kind(unwrapped(shape) for shape in shapes)
    return tuple(shapes) if isinstance(shapes, list) else shapes


def as_shapes(shape: Any) -> Any:
    """Turn the nested lists of a JSON file back into shapes."""
    if isinstance(shape, dict):
        return {key: as_shapes(item) for key, item in shape.items()}
    if isinstance(shape, (list, tuple)) and any(
        isinstance(part, (list, tuple)) for part in shape
    ):
        return [as_shapes(part) for part in shape]
    return ShapeLeaf(shape)


def tensors_of(shapes: Any) -> Any:
    """Return Keras tensors of these shapes."""
    nested = isinstance(shapes, list) and isinstance(shapes[0], (list, tuple))
    if nested:
        return [KerasTensor(shape) for shape in shapes]
    return KerasTensor(shapes)


def shapes_of(structure: Any) -> Any:
    """Return the shape(s) of Keras tensors, nested as they are."""
    if isinstance(structure, KerasTensor):
        return structure.shape
    if isinstance(structure, dict):
        return {key: shapes_of(tensor) for key, tensor in structure.items()}
    return [shapes_of(item) for item in structure]
