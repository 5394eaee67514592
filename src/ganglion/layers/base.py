"""The Layer: weights made in `build`, a `call` written in ops, a config that rebuilds.

A layer keeps no magic: weights are those made by `add_weight`, sub-layers are those
found in its attributes, and its configuration is read off its `__init__`.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ganglion import config, initializers, keras2, regularizers, symbolic, tree
from ganglion.constraints import get as get_constraint
from ganglion.ir import origin
from ganglion.ir.graph import ShapeError, Value
from ganglion.ops.dispatch import concrete
from ganglion.random import SeedGenerator
from ganglion.serialization import deserialize_keras_object
from ganglion.symbolic import Call, KerasTensor
from ganglion.variables import (
    Scope,
    Variable,
    current_scope,
    read,
    suspended,
    unique_name,
)

# Arguments that Keras 2 accepted on every layer, to say the shape of the input.
_INPUT_HINTS = ("input_shape", "batch_input_shape", "input_dim", "batch_size")


def snake_case(name: str) -> str:
    """Turn a class name into the name of its first instance.

    >>> snake_case("MaxPooling2D"), snake_case("ReLU")
    ('max_pooling2d', 're_lu')
    """
    name = re.sub(r"\W+", "", name)
    name = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub("([a-z])([A-Z])", r"\1_\2", name).lower()


class InputSpec:
    """What a layer accepts: number of axes and fixed sizes."""

    def __init__(
        self,
        dtype: Any = None,
        shape: Any = None,
        ndim: int | None = None,
        max_ndim: int | None = None,
        min_ndim: int | None = None,
        axes: dict[int, int] | None = None,
        allow_last_axis_squeeze: bool = False,
        name: str | None = None,
        optional: bool = False,
    ) -> None:
        self.dtype, self.shape, self.name, self.optional = dtype, shape, name, optional
        self.ndim = len(shape) if shape is not None else ndim
        self.max_ndim, self.min_ndim, self.axes = max_ndim, min_ndim, dict(axes or {})
        self.allow_last_axis_squeeze = allow_last_axis_squeeze

    def refusal(self, shape: tuple[int | None, ...]) -> str | None:
        """Say in words why a shape does not fit, None if it does."""
        if self.ndim is not None and len(shape) != self.ndim:
            return f"expected {self.ndim} axes"
        if self.min_ndim is not None and len(shape) < self.min_ndim:
            return f"expected at least {self.min_ndim} axes"
        if self.max_ndim is not None and len(shape) > self.max_ndim:
            return f"expected at most {self.max_ndim} axes"
        for axis, size in self.axes.items():
            if shape[axis] not in (size, None):
                return f"expected axis {axis} to have size {size}"
        return None


class Layer:
    """Base class of all layers.

    >>> import ganglion as keras
    >>> class Scale(keras.layers.Layer):
    ...     def build(self, input_shape):
    ...         self.scale = self.add_weight((input_shape[-1],), "ones", name="scale")
    ...     def call(self, x):
    ...         return x * self.scale
    >>> Scale()(np.ones((1, 2), "float32"))
    array([[1., 1.]], dtype=float32)
    """

    created: origin.Origin
    _init_values: dict[str, Any]
    _building = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # Models build themselves by calling their layers, which takes no marking.
        if "build" in vars(cls) and cls.__module__ != "ganglion.models":
            cls.build = _counting(cls.build)  # type: ignore[method-assign]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Note the user's line and the arguments before `__init__` sees them."""
        layer = super().__new__(cls)
        layer.created = origin.user_line()
        layer._init_values = _bind(cls, args, kwargs)
        return layer

    def __init__(
        self,
        *,
        activity_regularizer: Any = None,
        trainable: bool = True,
        dtype: Any = None,
        autocast: bool = True,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        self.name = str(name) if name is not None else _auto_name(type(self))
        self.activity_regularizer = regularizers.get(activity_regularizer)
        self.dtype = _dtype_name(dtype)
        self.autocast = autocast
        self.built = False
        self.input_spec: InputSpec | list[InputSpec] | None = None
        self.supports_masking = False
        self.input_hint = _input_hint(kwargs)
        self._initial_weights = kwargs.pop("weights", None)
        self._weights: list[Variable] = []
        self._trainable = bool(trainable)
        self._calls: list[Call] = []
        self._build_shape: Any = None
        if kwargs:
            raise TypeError(
                f"{type(self).__name__} does not know the argument(s) "
                f"{', '.join(sorted(kwargs))}."
            )

    # ---- what subclasses write -------------------------------------------------

    def build(self, input_shape: Any) -> None:
        """Make the weights; called once, with the shape of the first input."""
        self.built = True

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the outputs, in ops."""
        raise NotImplementedError(f"{type(self).__name__} does not define `call`.")

    def add_weight(
        self,
        shape: Any = None,
        initializer: Any = None,
        dtype: Any = None,
        trainable: bool = True,
        autocast: bool = True,
        regularizer: Any = None,
        constraint: Any = None,
        aggregation: str = "none",
        overwrite_with_gradient: bool = False,
        name: str | None = None,
    ) -> Variable:
        """Make a variable that belongs to this layer."""
        kind = np.dtype(dtype or self.dtype)
        if initializer is None:
            initializer = "glorot_uniform" if kind.kind == "f" else "zeros"
        sizes = (int(shape),) if isinstance(shape, int) else tuple(shape or ())
        variable = Variable(
            initializers.get(initializer),
            shape=sizes,
            dtype=kind.name,
            trainable=trainable,
            name=name,
        )
        variable.regularizer = regularizers.get(regularizer)
        variable.constraint = get_constraint(constraint)
        variable.overwrite_with_gradient = overwrite_with_gradient
        self._weights.append(variable)
        return variable

    def add_loss(self, loss: Any) -> None:
        """Add to the loss that training minimises; call it inside of `call`."""
        scope = current_scope()
        if scope is None:
            raise RuntimeError("`add_loss` works inside of `call` only.")
        for one in loss if isinstance(loss, (list, tuple)) else [loss]:
            scope.losses.append(read(one))

    # ---- calling ---------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call on Keras tensors, inside of a trace, or on arrays."""
        if symbolic.any_symbolic(args, kwargs):
            return self._call_symbolic(args, kwargs)
        if current_scope() is None:
            return self._call_on_arrays(args, kwargs)
        return self._call_traced(args, kwargs)

    def _call_symbolic(self, args: Any, kwargs: dict[str, Any]) -> Any:
        call = Call(self, args, kwargs)
        with suspended():
            self._build_for(args, kwargs)
            outputs = call.bind(symbolic.infer(self._call_traced_with, args, kwargs))
        self._calls.append(call)
        return outputs

    def _call_traced_with(self, *args: Any, **kwargs: Any) -> Any:
        return self._call_traced(args, kwargs)

    def _call_on_arrays(self, args: Any, kwargs: dict[str, Any]) -> Any:
        with Scope(bool(kwargs.get("training")), concrete=True) as scope:
            result = self._call_traced(args, kwargs)
            made = concrete(result)
            scope.commit()
        return made

    def _call_traced(self, args: Any, kwargs: dict[str, Any]) -> Any:
        scope = current_scope()
        assert scope is not None
        args, kwargs = tree.map_leaves(_lift, args), tree.map_leaves(_lift, kwargs)
        if self.autocast:
            args = tree.map_leaves(self._cast_float, args)
        self._build_for(args, kwargs)
        before = scope.training
        if isinstance(kwargs.get("training"), (bool, int)):
            scope.training = bool(kwargs["training"])
        elif "training" in _call_parameters(type(self)):
            kwargs["training"] = scope.training
        try:
            with origin.inside(self.name, self.created):
                outputs = self.call(*args, **kwargs)
                if self.activity_regularizer is not None:
                    for one in tree.flatten(outputs):
                        # By the row, so that its strength does not depend on the batch.
                        added = self.activity_regularizer(one) / max(one.shape[0], 1)
                        scope.losses.append(read(added))
        finally:
            scope.training = before
        return outputs

    def _cast_float(self, leaf: Any) -> Any:
        is_float = isinstance(leaf, Value) and leaf.dtype.kind == "f"
        if not is_float or leaf.dtype == self.dtype:
            return leaf
        from ganglion.ops import cast

        return cast(leaf, self.dtype)

    def _check_inputs(self, args: Any) -> None:
        if self.input_spec is None or not args:
            return
        given = self.input_spec
        specs = [given] if isinstance(given, InputSpec) else list(given)
        values = [one for one in tree.flatten(args[0]) if hasattr(one, "shape")]
        for number, (spec, value) in enumerate(zip(specs, values, strict=False)):
            refusal = spec.refusal(value.shape)
            if refusal:
                where = f" ({self.created})" if self.created.file else ""
                raise ShapeError(
                    f'Input {number} of layer "{self.name}" does not fit: {refusal}, '
                    f"but the input has shape {tuple(value.shape)}{where}."
                )

    # ---- building --------------------------------------------------------------

    def _build_for(self, args: Any, kwargs: dict[str, Any]) -> None:
        # Before building: a wrong shape must not leave wrong weights behind.
        self._check_inputs(args)
        if self.built:
            return
        first = args[0] if args else next(iter(kwargs.values()), None)
        shapes = tree.map_leaves(_shape_of, first)
        if isinstance(shapes, KerasTensor):
            shapes = shapes.shape
        self._build_once(shapes)

    def _build_once(self, shapes: Any) -> None:
        self._building = True
        try:
            with suspended(), origin.inside(self.name, self.created):
                self.build(_unwrapped(shapes))
        finally:
            self._building = False
        self._build_shape = _unwrapped(shapes)
        self.built = True
        if self._initial_weights is not None:
            self.set_weights(self._initial_weights)

    def get_build_config(self) -> dict[str, Any] | None:
        """Return what `build` was called with."""
        if self._build_shape is None:
            return None
        return {"input_shape": self._build_shape}

    def build_from_config(self, config: dict[str, Any]) -> None:
        """Build as an equal layer was built before."""
        shape = config.get("input_shape") if config else None
        if shape is not None and not self.built:
            self._build_once(_as_shapes(shape))

    def compute_output_shape(self, *args: Any, **kwargs: Any) -> Any:
        """Return the output shape for an input shape (None: any size)."""
        inputs = _tensors_of(args[0] if args else next(iter(kwargs.values())))
        outputs = self.compute_output_spec(inputs)
        shapes = [one.shape for one in tree.flatten(outputs)]
        return shapes[0] if isinstance(outputs, KerasTensor) else shapes

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        """Return the outputs as Keras tensors without recording a call."""
        with suspended():
            self._build_for(args, kwargs)
            return symbolic.infer(self._call_traced_with, args, kwargs)

    # ---- weights ---------------------------------------------------------------

    def sublayers(self) -> Iterator[Layer]:
        """Yield the layers found in the attributes, in order, each once."""
        seen: set[int] = set()
        for name, value in vars(self).items():
            if name in ("_init_values", "_calls"):
                continue
            for one in _layers_in(value):
                if id(one) not in seen:
                    seen.add(id(one))
                    yield one

    def walk(self) -> Iterator[Layer]:
        """Yield this layer and all below it, each once."""
        seen: set[int] = set()
        stack: list[Layer] = [self]
        while stack:
            layer = stack.pop()
            if id(layer) not in seen:
                seen.add(id(layer))
                yield layer
                stack.extend(reversed(list(layer.sublayers())))

    def own_variables(self) -> list[Variable]:
        """Return the variables made by `add_weight` or kept as attributes."""
        found = list(self._weights)
        for value in vars(self).values():
            if isinstance(value, Variable) and value not in found:
                found.append(value)
        return found

    @property
    def weights(self) -> list[Variable]:
        """All weights, of this layer and of those below."""
        found: dict[Variable, None] = {}
        for layer in self.walk():
            found.update(dict.fromkeys(layer.own_variables()))
        return list(found)

    @property
    def variables(self) -> list[Variable]:
        """The weights and the states of random generators."""
        return [*self.weights, *(one.state for one in self.seed_generators())]

    def seed_generators(self) -> list[SeedGenerator]:
        """Return the random generators of this layer and of those below."""
        return [
            value
            for layer in self.walk()
            for value in vars(layer).values()
            if isinstance(value, SeedGenerator)
        ]

    @property
    def trainable(self) -> bool:
        """Whether training changes this layer's weights."""
        return self._trainable

    @trainable.setter
    def trainable(self, value: bool) -> None:
        self._trainable = bool(value)
        for layer in self.sublayers():
            layer.trainable = value

    @property
    def trainable_weights(self) -> list[Variable]:
        """The weights that training changes."""
        if not self.trainable:
            return []
        found = {one: None for one in self.own_variables() if one.trainable}
        for layer in self.sublayers():
            found.update(dict.fromkeys(layer.trainable_weights))
        return list(found)

    @property
    def non_trainable_weights(self) -> list[Variable]:
        """The weights that training leaves alone."""
        changed = set(self.trainable_weights)
        return [one for one in self.weights if one not in changed]

    @property
    def trainable_variables(self) -> list[Variable]:
        """The variables that training changes."""
        return self.trainable_weights

    @property
    def non_trainable_variables(self) -> list[Variable]:
        """The variables that gradients do not change."""
        changed = set(self.trainable_weights)
        return [one for one in self.variables if one not in changed]

    @property
    def losses(self) -> list[Any]:
        """The regularisation losses of the weights, as they are now."""
        return [
            one.regularizer(one)
            for one in self.trainable_weights
            if one.regularizer is not None
        ]

    def get_weights(self) -> list[np.ndarray]:
        """Return copies of all weights."""
        return [one.numpy() for one in self.weights]

    def set_weights(self, weights: list[Any]) -> None:
        """Replace all weights, in the order of `get_weights`."""
        own = self.weights
        if len(own) != len(weights):
            raise ValueError(
                f'Layer "{self.name}" has {len(own)} weights, but {len(weights)} '
                "arrays were given."
            )
        arrays = [np.asarray(one) for one in weights]
        for variable, array in zip(own, arrays, strict=True):
            if variable.shape != array.shape:
                raise ValueError(
                    f'Layer "{self.name}", weight {variable.path!r}: expected shape '
                    f"{variable.shape}, got {array.shape}."
                )
        for variable, array in zip(own, arrays, strict=True):
            variable.assign(array)

    def count_params(self) -> int:
        """Return the number of elements of all weights."""
        if not self.built:
            raise ValueError(
                f'Layer "{self.name}" has no weights yet: call it on data or give the '
                "model an Input first."
            )
        return sum(one.size for one in self.weights)

    # ---- where it was called -----------------------------------------------------

    @property
    def input(self) -> Any:
        """The Keras tensor(s) this layer was called on."""
        call = self._only_call("input")
        inputs = call.args[0] if call.args else call.inputs
        return inputs

    @property
    def output(self) -> Any:
        """The Keras tensor(s) this layer returned."""
        return self._only_call("output").outputs

    def _only_call(self, what: str) -> Call:
        if not self._calls:
            raise AttributeError(
                f'Layer "{self.name}" has no {what}: it was never called on an Input.'
            )
        return self._calls[0]

    # ---- configuration -----------------------------------------------------------

    @property
    def compute_dtype(self) -> str:
        """The type the layer computes in."""
        return self.dtype

    @property
    def variable_dtype(self) -> str:
        """The type of the layer's weights."""
        return self.dtype

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make an equal layer, read off `__init__`."""
        made: dict[str, Any] = {"name": self.name, "trainable": self.trainable}
        made["dtype"] = {
            "module": "keras",
            "class_name": "DTypePolicy",
            "config": {"name": self.dtype},
            "registered_name": None,
        }
        for name, value in self._init_values.items():
            if name not in made:
                made[name] = getattr(self, name, value)
        if made.get("activity_regularizer", 0) is None:
            del made["activity_regularizer"]
        return made

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """Make a layer from its configuration."""
        arguments = {
            key: deserialize_keras_object(value) for key, value in config.items()
        }
        try:
            return cls(**arguments)
        except TypeError as error:
            raise TypeError(
                f"{cls.__name__} cannot be made from its configuration "
                f"{sorted(arguments)}: {error}"
            ) from error

    def __repr__(self) -> str:
        return f"<{type(self).__name__} name={self.name}, built={self.built}>"


def _counting(build: Callable[..., Any]) -> Callable[..., Any]:
    """Let a `build` that a script calls by hand count as building the layer."""

    @functools.wraps(build)
    def counted(self: Layer, *args: Any, **kwargs: Any) -> None:
        if self._building:  # by `_build_once`, or this is `super().build(...)`
            build(self, *args, **kwargs)
            return
        self._building = True
        try:
            with suspended(), origin.inside(self.name, self.created):
                build(self, *args, **kwargs)
        finally:
            self._building = False
        self.built = True
        if len(args) == 1:
            self._build_shape = _unwrapped(args[0])

    return counted


def _auto_name(cls: type) -> str:
    return unique_name(snake_case(cls.__name__))


def _dtype_name(dtype: Any) -> str:
    if dtype is None:
        return config.floatx()
    if isinstance(dtype, dict):
        dtype = dtype.get("config", {}).get("name", config.floatx())
    name = getattr(dtype, "name", dtype)
    if name not in config.FLOAT_TYPES:
        try:
            return np.dtype(name).name
        except TypeError:
            raise ValueError(
                f"Type {name!r} is not supported; use one of "
                f"{', '.join(config.FLOAT_TYPES)}."
            ) from None
    return str(name)


def _input_hint(kwargs: dict[str, Any]) -> tuple[int | None, ...] | None:
    """Take Keras 2's `input_shape=` and its kin out of a layer's arguments."""
    given = {key: kwargs.pop(key) for key in _INPUT_HINTS if key in kwargs}
    if not given:
        return None
    old = next(iter(given))
    keras2.note(
        f"`{old}=` on a layer", "an `Input(shape)` before it", changes_defaults=False
    )
    batch = given.get("batch_size")
    if "batch_input_shape" in given:
        return tuple(given["batch_input_shape"])
    if "input_shape" in given:
        shape = given["input_shape"]
        return (batch, *((shape,) if isinstance(shape, int) else shape))
    return (batch, given["input_dim"]) if "input_dim" in given else None


def _bind(cls: type, args: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of `__init__` by name, defaults included."""
    signature = inspect.signature(cls.__init__)  # type: ignore[misc]
    try:
        bound = signature.bind(None, *args, **kwargs)
    except TypeError:
        return {}  # `__init__` itself is about to say what is wrong
    bound.apply_defaults()
    values = dict(list(bound.arguments.items())[1:])
    for name, parameter in signature.parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            values.update(values.pop(name, {}))
        elif parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            values.pop(name, None)
    hints = {*_INPUT_HINTS} - {*signature.parameters}  # `input_dim` of an Embedding
    return {k: v for k, v in values.items() if k not in hints | {"weights"}}


_parameters: dict[type, frozenset[str]] = {}


def _call_parameters(cls: type[Layer]) -> frozenset[str]:
    if cls not in _parameters:
        names = inspect.signature(cls.call).parameters
        _parameters[cls] = frozenset(names)
    return _parameters[cls]


def _lift(leaf: Any) -> Any:
    """Turn arrays and variables among the arguments into values."""
    return read(leaf) if isinstance(leaf, (np.ndarray, Variable)) else leaf


def _layers_in(value: Any) -> Iterator[Layer]:
    if isinstance(value, Layer):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _layers_in(one)
    elif isinstance(value, dict):
        for one in value.values():
            yield from _layers_in(one)


class _ShapeLeaf(tuple):
    """A shape as a leaf, so that a list of inputs becomes a list of shapes."""


def _shape_of(leaf: Any) -> Any:
    shape = getattr(leaf, "shape", None)
    if shape is None:
        return leaf
    unknown_batch = isinstance(leaf, Value) and len(shape) > 0
    return _ShapeLeaf((None, *shape[1:]) if unknown_batch else shape)


def _unwrapped(shapes: Any) -> Any:
    if isinstance(shapes, _ShapeLeaf):
        return tuple(shapes)
    if isinstance(shapes, dict):
        return {key: _unwrapped(one) for key, one in shapes.items()}
    if isinstance(shapes, (list, tuple)) and any(
        isinstance(one, (list, tuple, dict)) for one in shapes
    ):
        return [_unwrapped(one) for one in shapes]
    return tuple(shapes) if isinstance(shapes, list) else shapes


def _as_shapes(shape: Any) -> Any:
    """Turn the nested lists of a JSON file back into shapes."""
    if isinstance(shape, dict):
        return {key: _as_shapes(one) for key, one in shape.items()}
    if isinstance(shape, (list, tuple)) and any(
        isinstance(one, (list, tuple)) for one in shape
    ):
        return [_as_shapes(one) for one in shape]
    return _ShapeLeaf(shape)


def _tensors_of(shapes: Any) -> Any:
    nested = isinstance(shapes, list) and isinstance(shapes[0], (list, tuple))
    if nested:
        return [KerasTensor(one) for one in shapes]
    return KerasTensor(shapes)


LayerFactory = Callable[..., Layer]
