"""Keras 1's names of arguments, which Keras 2 took with a warning: `nb_filter=` ..."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from ganglion import keras2
from ganglion.layers.building import shapes_of

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
    old_ones = kwargs.keys() & {*RENAMED, "nb_row"}
    if not is_ours(cls) or not (old_ones or two_sizes):
        return args, kwargs
    known = inspect.signature(cls.__init__).parameters  # type: ignore[misc]
    made: dict[str, Any] = {}
    for old, value in kwargs.items():
        new = next((one for one in RENAMED.get(old, ()) if one in known), None)
        if new is None or old in known:
            made[old] = value
            continue
        keras2.note(f"`{old}=`", f"`{new}=`")
        made[new] = _LAYOUTS.get(value, value) if old == "dim_ordering" else value
    if two_sizes and (old_ones or "strides" in made or _means_sizes(args)):
        keras2.note("`Conv2D(filters, rows, columns)`", "`Conv2D(filters, (r, c))`")
        args = (args[0], (args[1], args[2]), *args[3:])
    elif "nb_row" in made and "nb_col" in made:
        keras2.note("`nb_row=, nb_col=`", "`kernel_size=`")
        made["kernel_size"] = (made.pop("nb_row"), made.pop("nb_col"))
    return args, made


def _has_two_sizes(cls: type, args: tuple[Any, ...]) -> bool:
    """Return whether this may be `Conv2D(32, 3, 3)`: rows and columns, or a stride."""
    sizes = args[1:3] if cls.__name__ in _IMAGE_LAYERS else ()
    return len(sizes) == 2 and all(isinstance(one, int) for one in sizes)


def _means_sizes(args: tuple[Any, ...]) -> bool:
    """Guess what `Conv2D(32, 3, 3)` means where nothing else in the call tells.

    Kernels are mostly square, and strides mostly smaller than the kernel.
    """
    return keras2.active() and bool(args[1] == args[2])


def is_ours(cls: type) -> bool:
    """Return whether a layer is one of Ganglion's own."""
    return cls.__module__.startswith("ganglion.layers")


def translating(init: Callable[..., None]) -> Callable[..., None]:
    """Let the `__init__` of a layer take the old names, too."""

    @functools.wraps(init)
    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        if type(self).__init__ is made:  # not from the `__init__` of a subclass
            args, kwargs = translated(type(self), args, kwargs)
        init(self, *args, **kwargs)

    return made


_OLD_ORDER = ("name", "shape", "dtype", "initializer", "regularizer", "trainable")


def name_first(add_weight: Callable[..., Any]) -> Callable[..., Any]:
    """Let `add_weight` take Keras 2's order of arguments, too: the name comes first."""

    @functools.wraps(add_weight)
    def made(self: Any, *args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], str):
            keras2.note(
                '`add_weight("name", shape)`',
                '`add_weight(shape, name="name")`',
                changes_defaults=False,
            )
            kwargs.update(zip(_OLD_ORDER, args, strict=False))
            args = ()
        return add_weight(self, *args, **kwargs)

    return made


class OldShape:
    """Keras 2's `layer.output_shape`; a layer may keep an attribute of that name."""

    def __init__(self, end: str) -> None:
        self.end = end

    def __get__(self, layer: Any, kind: type | None = None) -> Any:
        """Return the shape of what the layer was first called on, or returned."""
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
    """Return what a layer keeps of an argument: its attribute, else the argument."""
    if isinstance(getattr(type(layer), name, None), OldShape):
        return vars(layer).get(name, value)
    return getattr(layer, name, value)
