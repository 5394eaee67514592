"""The Layer: weights made in `build`, a `call` written in ops, a config that rebuilds.

Weights are those made by `add_weight` or held in attributes, as sub-layers are (see
`tracking`), and a layer's configuration is read off its `__init__`.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from ganglion import initializers, keras2, ops, regularizers, symbolic, tree
from ganglion.compiler.ir import origin
from ganglion.compiler.ir.graph import ShapeError, Value
from ganglion.constraints import get as get_constraint
from ganglion.layers.construction import (
    OldShape,
    ShapesByName,
    arguments_of,
    as_plain_data,
    as_shapes,
    bound_arguments,
    builds_by_calling,
    checked_name,
    checked_trainable,
    counting,
    dtype_name,
    input_hint_from,
    is_ours,
    kept_value,
    name_first,
    refuse_unknown,
    shapes_to_build,
    tensors_of,
    translated,
    translating,
    unwrapped,
)
from ganglion.layers.mask_passing import call_signature, fill_masks, pass_mask_on
from ganglion.layers.tracking import Tracker, WeightHolder
from ganglion.masks import get_keras_mask, set_keras_mask
from ganglion.ops.dispatch import concrete
from ganglion.serialization import deserialize_keras_object
from ganglion.symbolic import Call, KerasTensor
from ganglion.system import forks
from ganglion.variables import (
    Scope,
    Variable,
    current_scope,
    read,
    snake_case,
    suspended,
    unique_name,
)

_building = threading.RLock()


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
        for axis, size in self._sizes().items():
            if not -len(shape) <= axis < len(shape):
                return f"expected an axis {axis}"
            if shape[axis] not in (size, None):
                return f"expected axis {axis} to have size {size}"
        return None

    def _sizes(self) -> dict[int, int]:
        sizes = enumerate(self.shape if self.shape is not None else ())
        return {axis: size for axis, size in sizes if size is not None} | self.axes


class Layer(WeightHolder):
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
    _warned_of_mask = False
    active_unless_told = False  # in training mode when called by itself on arrays
    built_at_once = False  # needs no shape: built as soon as it is made, as in Keras

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "build" in vars(cls) and not builds_by_calling(cls.build):
            cls.build = counting(cls.build)  # type: ignore[method-assign]
        if "__init__" in vars(cls) and is_ours(cls):
            cls.__init__ = translating(cls.__init__)  # type: ignore[method-assign]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Note the user's line and the arguments before `__init__` sees them."""
        layer = super().__new__(cls)
        layer._tracker = Tracker(WeightHolder)
        layer.created = origin.user_line()
        args, kwargs = translated(cls, args, kwargs)
        layer._init_values = bound_arguments(cls, args, kwargs)
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
        self.name = checked_name(name) or unique_name(snake_case(type(self).__name__))
        self.activity_regularizer = regularizers.get(activity_regularizer)
        self.dtype = dtype_name(dtype)
        self.autocast = autocast
        self.built = self.built_at_once and type(self).build is Layer.build
        self.input_spec: InputSpec | list[InputSpec] | None = None
        self.supports_masking = type(self).compute_mask is not Layer.compute_mask
        self.input_hint = input_hint_from(kwargs)
        self._initial_weights = kwargs.pop("weights", None)
        self._losses: list[Any] = []  # of the last call on arrays
        self._trainable = checked_trainable(trainable)
        self._calls: list[Call] = []
        self._build_shape: Any = None
        if kwargs:
            refuse_unknown(type(self), kwargs)

    # ---- what subclasses write -------------------------------------------------

    def build(self, input_shape: Any) -> None:
        """Make the weights; called once, with the shape of the first input."""
        self.built = True

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the outputs, in ops."""
        raise NotImplementedError(f"{type(self).__name__} does not define `call`.")

    def compute_mask(self, inputs: Any, previous_mask: Any) -> Any:
        """Return the mask of the outputs, from that of the inputs.

        It is asked for where `supports_masking` is set: here, or by writing this.
        """
        return previous_mask

    @name_first
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
        with self._name_scope():
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
        self._track(variable)
        return variable

    def _name_scope(self) -> AbstractContextManager[None]:
        """Return a block whose variables belong to this layer, as in `build`."""
        is_inside = f"/{origin.layer_path()}".endswith(f"/{self.name}")
        return nullcontext() if is_inside else origin.inside(self.name, self.created)

    def add_loss(self, loss: Any) -> None:
        """Add to the loss that training minimises; call it inside of `call`."""
        scope = current_scope()
        if scope is None:
            raise RuntimeError(
                "`add_loss` works inside of `call` only: call it there, or give a "
                "model a Keras tensor by `model.add_loss`."
            )
        for term in loss if isinstance(loss, (list, tuple)) else [loss]:
            scope.add_loss(self, read(term))

    def add_metric(self, *args: Any, **kwargs: Any) -> None:
        """Refuse: metrics are given to `compile`, as in Keras 3."""
        raise NotImplementedError(
            "`add_metric` is gone, from Keras too: make the value an output of the "
            "model and give `compile(metrics=...)` a function of it."
        )

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
            outputs = call.bind(self._infer(args, kwargs))
            if self.supports_masking:
                first, mask = fill_masks(self, args, dict(kwargs))
                pass_mask_on(self, first, outputs, mask)
        self._calls.append(call)
        return outputs

    def _infer(self, args: Any, kwargs: dict[str, Any]) -> Any:
        """Return the Keras tensors that a call on some would give."""
        return symbolic.infer(self._call_traced_with, args, kwargs)

    def _call_traced_with(self, *args: Any, **kwargs: Any) -> Any:
        return self._call_traced(args, kwargs)

    def _call_on_arrays(self, args: Any, kwargs: dict[str, Any]) -> Any:
        for layer in self._flatten_layers():
            layer._losses = []
        with Scope(bool(kwargs.get("training")), concrete=True) as scope:
            scope.told = kwargs.get("training") is not None
            result = self._call_traced(args, kwargs)
            outputs = concrete(result)
            for layer, loss in zip(scope.loss_owners, scope.losses, strict=True):
                layer._losses.append(concrete(loss))
            scope.commit()
        return outputs

    def _call_traced(self, args: Any, kwargs: dict[str, Any]) -> Any:
        scope = current_scope()
        assert scope is not None
        scope.count_call(self.name)
        args, kwargs = tree.map_leaves(_lift, args), tree.map_leaves(_lift, kwargs)
        if self.autocast:
            args = tree.map_leaves(self._cast_float, args)
        self._build_for(args, kwargs)
        before = scope.training, scope.told
        if isinstance(kwargs.get("training"), (bool, int)):
            scope.training, scope.told = bool(kwargs["training"]), True
        elif "training" in call_signature(self).parameters:
            unless_told = self.active_unless_told and not scope.told
            kwargs["training"] = scope.training or unless_told
        if "training" not in call_signature(self).parameters:
            kwargs.pop("training", None)  # it applies to the layers below
        first, mask = fill_masks(self, args, kwargs)
        try:
            with origin.inside(self.name, self.created):
                outputs = self.call(*args, **kwargs)
                if self.activity_regularizer is not None:
                    for output in tree.flatten(outputs):
                        # By the row, so that its strength does not depend on the batch.
                        loss = self.activity_regularizer(output)
                        scope.add_loss(self, read(loss / max(output.shape[0], 1)))
                pass_mask_on(self, first, outputs, mask)
        finally:
            scope.training, scope.told = before
        return outputs

    def _cast_float(self, leaf: Any) -> Any:
        is_float = isinstance(leaf, Value) and leaf.dtype.kind == "f"
        if not is_float or leaf.dtype == self.dtype:
            return leaf
        return _masked_as(leaf, ops.cast(leaf, self.dtype))

    # ---- building --------------------------------------------------------------

    def _build_for(self, args: Any, kwargs: dict[str, Any]) -> None:
        if args and isinstance(args[0], Layer):
            raise TypeError(
                f'Layer "{self.name}" was called on the layer "{args[0].name}", not on '
                "data: call that one first, as in Dense(2)(Dense(3)(x))."
            )
        # Before building: a wrong shape must not leave wrong weights behind.
        if self.input_spec is not None and args:
            check_inputs(self.input_spec, args[0], self.name, self.created)
        if self._is_built_for_calls():
            return
        shapes = shapes_to_build(self, args, kwargs)
        with forks.held_off(), _building:  # threads may call a new layer at once
            if not self._is_built_for_calls():
                self._build_once(shapes)

    def _is_built_for_calls(self) -> bool:
        # One that is built at once still remembers the shape of its first input.
        return self.built and (self._build_shape is not None or not self.built_at_once)

    def _build_once(self, shapes: Any) -> None:
        self._building = True
        try:
            with suspended(), origin.inside(self.name, self.created):
                if isinstance(shapes, ShapesByName):
                    self.build(**shapes)
                else:
                    self.build(shapes)
        finally:
            self._building = False
        self._build_shape = shapes
        self.built = True
        if self._initial_weights is not None:
            self.set_weights(self._initial_weights)

    def save_own_variables(self, store: Any) -> None:
        """Put the variables of this layer alone into a file's group, by number."""
        for number, variable in enumerate(self._own_variables()):
            store[str(number)] = variable.array

    def load_own_variables(self, store: Any) -> None:
        """Take the variables of this layer alone from a file's group."""
        own = self._own_variables()
        if len(store.keys()) != len(own):
            raise ValueError(
                f'Layer "{self.name}" has {len(own)} variables, the file has '
                f"{len(store.keys())} for it."
            )
        for number, variable in enumerate(own):
            variable.assign(store[str(number)])

    def get_build_config(self) -> dict[str, Any] | None:
        """Return what `build` was called with."""
        if self._build_shape is None:
            return None
        if not isinstance(self._build_shape, ShapesByName):
            return {"input_shape": self._build_shape}
        if len(self._build_shape) == 1:
            return {"input_shape": next(iter(self._build_shape.values()))}
        return {"shapes_dict": dict(self._build_shape)}

    def build_from_config(self, config: dict[str, Any]) -> None:
        """Build as an equal layer was built before."""
        config = config or {}
        if self.built:
            return
        if (shape := config.get("input_shape")) is not None:
            self._build_once(unwrapped(as_shapes(shape)))
        elif (shapes := config.get("shapes_dict")) is not None:
            self._build_once(ShapesByName(as_shapes(shapes).items()))

    def compute_output_shape(self, *args: Any, **kwargs: Any) -> Any:
        """Return the output shape for an input shape (None: any size)."""
        inputs = tensors_of(args[0] if args else next(iter(kwargs.values())))
        outputs = self.compute_output_spec(inputs)
        shapes = [output.shape for output in tree.flatten(outputs)]
        return shapes[0] if isinstance(outputs, KerasTensor) else shapes

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        """Return the outputs as Keras tensors without recording a call."""
        with suspended():
            self._build_for(args, kwargs)
            return self._infer(args, kwargs)

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

    input_shape: Any = OldShape("input")
    output_shape: Any = OldShape("output")

    def get_output_at(self, node_index: int) -> Any:
        """Keras 2's way to what a shared layer returned at one of its calls."""
        keras2.note(
            "`layer.get_output_at`", "what the call returned", changes_defaults=False
        )
        return self._calls[node_index].outputs

    def _only_call(self, end: str) -> Call:
        if not self._calls:
            raise AttributeError(
                f'Layer "{self.name}" has no {end}: it was never called on an Input.'
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
        """Return the arguments that make an equal layer, read off `__init__`.

        It is plain data, as in Keras. A `get_config` of one's own gets those of the
        class above, without its own: it adds them itself.
        """
        config: dict[str, Any] = {"name": self.name, "trainable": self.trainable}
        config["dtype"] = {
            "module": "keras",
            "class_name": "DTypePolicy",
            "config": {"name": self.dtype},
            "registered_name": None,
        }
        for name, value in arguments_of(self).items():
            if name not in config:
                config[name] = as_plain_data(kept_value(self, name, value))
        if config.get("activity_regularizer", 0) is None:
            del config["activity_regularizer"]
        return config

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

    def __getstate__(self) -> dict[str, Any]:
        # Where it was called is no part of a copy: that would be all layers before it.
        return {**vars(self), "_calls": []}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} name={self.name}, built={self.built}>"


def activated(layer: Any, outputs: Any) -> Any:
    """Return a layer's outputs behind its activation, which may have been taken away.

    `layer.activation = None` is how scripts look at what a layer gives before it.
    """
    return outputs if layer.activation is None else layer.activation(outputs)


def _lift(leaf: Any) -> Any:
    """Turn arrays of numbers and variables among the arguments into values."""
    if not isinstance(leaf, (np.ndarray, Variable)):
        return leaf
    if isinstance(leaf, np.ndarray) and leaf.dtype.kind in "OSUT":
        return leaf  # texts, for layers that run on the host
    return _masked_as(leaf, read(leaf))


def _masked_as(before: Any, value: Value) -> Value:
    mask = get_keras_mask(before)
    if mask is not None:
        set_keras_mask(value, read(mask))
    return value


def check_inputs(specs: Any, inputs: Any, name: str, created: origin.Origin) -> None:
    """Refuse inputs that the specs of the layer of this name do not allow."""
    expected = [specs] if isinstance(specs, InputSpec) else list(specs)
    values = [x for x in tree.flatten(inputs) if hasattr(x, "shape")]
    where = f" ({created})" if created.file else ""
    if len(values) != len(expected):
        way = "Join several into one by a Concatenate or Add layer."
        raise ValueError(
            f'Layer "{name}" takes {len(expected)} input(s), but got {len(values)}'
            f"{where}."
            f"{f' {way}' if len(expected) == 1 else ''}"
        )
    for number, (spec, value) in enumerate(zip(expected, values, strict=True)):
        shape = tuple(value.shape)
        if spec.allow_last_axis_squeeze and len(shape) == (spec.ndim or 0) + 1:
            shape = shape[:-1] if shape[-1] == 1 else shape
        refusal = spec.refusal(shape)
        if refusal:
            raise ShapeError(
                f'Input {number} of layer "{name}" does not fit: {refusal}, '
                f"but the input has shape {tuple(value.shape)}{where}."
            )
        if spec.dtype is not None and np.dtype(value.dtype) != np.dtype(spec.dtype):
            raise ValueError(
                f'Input {number} of layer "{name}" has the type {value.dtype}, but '
                f"{spec.dtype} is expected{where}."
            )
