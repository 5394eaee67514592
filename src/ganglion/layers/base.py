"""The Layer: weights created in `build`, a `call` in ops, a config that rebuilds.

Weights are those created by `add_weight` or held in attributes, as sub-layers are (see
`tracking`), and a layer's configuration is read off its `__init__`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

from ganglion import (
    activations,
    dtype_policies,
    initializers,
    keras2,
    ops,
    regularizers,
    symbolic,
    tensors,
    tree,
)
from ganglion.compiler.ir import origin
from ganglion.compiler.ir.graph import Value
from ganglion.compiler.ir.shaping import is_float
from ganglion.constraints import get as get_constraint
from ganglion.dtype_policies import DTypePolicyMap
from ganglion.dtypes import DTypePolicy, is_float_dtype, standardize_dtype
from ganglion.layers import tensorflow_graph
from ganglion.layers.call_arguments import (
    check_first,
    check_inputs_of_build,
    check_others,
    fill_masks,
    is_unmasked,
    lifted,
    masked_as,
    pass_mask_on,
    resolve_context,
    resolve_training,
    training_by_name,
)
from ganglion.layers.compat_methods import CompatMethods
from ganglion.layers.construction import (
    ShapesByName,
    arguments_of,
    as_plain_data,
    as_shapes,
    bound_arguments,
    builds_by_calling,
    checked_name,
    checked_trainable,
    counting,
    input_hint_from,
    is_ours,
    is_own,
    kept_value,
    name_first,
    outputs_by_shape,
    refuse_unknown,
    shapes_to_build,
    tensors_of,
    translated,
    translating,
    unwrapped,
)
from ganglion.layers.input_spec import InputSpec as InputSpec
from ganglion.layers.input_spec import check_inputs
from ganglion.layers.tracking import Tracker, WeightHolder
from ganglion.ops.dispatch import concrete
from ganglion.serialization import arguments_from, passed
from ganglion.symbolic import Call, KerasTensor
from ganglion.system import forks
from ganglion.variables import (
    Deferred,
    Scope,
    StatelessScope,
    Variable,
    autocast_dtype,
    current_scope,
    deferring,
    read,
    snake_case,
    suspended,
    unique_name,
    zip_values,
)
from ganglion.variables import autocast as autocasting

_building = threading.RLock()


def _name_in_keras2(layer: str, path: str) -> str:
    """Return the layer's part in the names of its weights; cells belong to others."""
    above = path.split("/")[:-2]
    if not layer.endswith("_cell") or not above:
        return layer
    return above[-1] if keras2.is_own else f"{above[-1]}/{layer}"


class Layer(CompatMethods):
    """Base class of all layers.

    >>> import numpy as np
    >>> import ganglion as keras
    >>> class Scale(keras.layers.Layer):
    ...     def build(self, input_shape):
    ...         self.scale = self.add_weight((input_shape[-1],), "ones", name="scale")
    ...     def call(self, x):
    ...         return x * self.scale
    >>> Scale()(np.ones((1, 2), "float32"))
    array([[1., 1.]], dtype=float32)
    """

    # TensorFlow's AutoGraph skips objects with this: a layer is a node of its graph.
    autograph_info__: dict[str, Any] = {}  # noqa: RUF012

    created: origin.Origin
    _init_values: dict[str, Any]
    _building = False
    _warned_of_mask = False
    _path: str | None = None
    _was_called = False
    _call_context_args: frozenset[str] = frozenset({"training"})
    takes_python_numbers = False  # a call on lists of numbers is no mistake
    keeps_shape = False  # the output has the shape of the only input
    names_activity_regularizer = False  # in its configuration, even if there is none
    built_at_once = False  # needs no shape: built when it is constructed, as in Keras

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "build" in vars(cls) and not builds_by_calling(cls.build):
            cls.build = counting(cls.build)  # type: ignore[method-assign]
        if "__init__" in vars(cls) and is_ours(cls):
            cls.__init__ = translating(cls.__init__)  # type: ignore[method-assign]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Record the user's line, and the arguments before `__init__` runs."""
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
        self._dtype_policy = dtype_policies.get(dtype)
        self.autocast = autocast
        self.built = self._needs_no_build()
        self.input_spec: InputSpec | list[InputSpec] | None = None
        self.supports_masking = type(self).compute_mask is not Layer.compute_mask
        self.input_hint = input_hint_from(kwargs)
        self._initial_weights = kwargs.pop("weights", None)
        self._losses: list[Any] = []  # of the last call on arrays
        self._loss_functions: list[Callable[[], Any]] = []
        self._trainable = checked_trainable(trainable)
        self._calls: list[Call] = []
        self._build_shape: Any = None
        if kwargs:
            refuse_unknown(type(self), kwargs)

    # ---- for subclasses --------------------------------------------------------

    def _needs_no_build(self) -> bool:
        return self.built_at_once and type(self).build is Layer.build

    def build(self, input_shape: Any) -> None:
        """Make the weights; called once, with the shape of the first input."""
        self._path = self._path or self.name
        self.built = True

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the outputs, in ops."""
        raise self._not_implemented("call")

    def compute_mask(self, inputs: Any, previous_mask: Any) -> Any:
        """Return the mask of the outputs, from that of the inputs.

        It is called where `supports_masking` is set, by a class or by overriding this.
        """
        return previous_mask

    def _not_implemented(self, method: str) -> NotImplementedError:
        return NotImplementedError(
            f"Layer {type(self).__name__} does not have a `{method}` method "
            "implemented."
        )

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
        kind = standardize_dtype(dtype or self.variable_dtype)
        if initializer is None:
            initializer = "glorot_uniform" if is_float_dtype(kind) else "zeros"
        sizes = (int(shape),) if isinstance(shape, int) else tuple(shape or ())
        with self._name_scope():
            variable = Variable(
                initializers.get(initializer),
                shape=sizes,
                dtype=kind,
                trainable=trainable,
                autocast=autocast,
                name=name,
            )
        variable.regularizer = regularizers.get(regularizer)
        variable.constraint = get_constraint(constraint)
        variable.overwrite_with_gradient = overwrite_with_gradient
        self._track(variable)
        variable.layer_name = _name_in_keras2(self.name, variable.path)
        variable.in_graph = keras2.is_own
        return variable

    def add_variable(
        self,
        shape: Any,
        initializer: Any,
        dtype: Any = None,
        trainable: bool = True,
        autocast: bool = True,
        regularizer: Any = None,
        constraint: Any = None,
        name: str | None = None,
    ) -> Variable:
        """Make a variable that belongs to this layer; `add_weight` by another name."""
        return self.add_weight(**passed(locals()))

    def _name_scope(self) -> AbstractContextManager[None]:
        """Return a block whose variables belong to this layer, as in `build`."""
        is_inside = f"/{origin.layer_path()}".endswith(f"/{self.name}")
        if is_inside:
            return nullcontext()
        is_outermost = not origin.layer_path() and self._path
        name = self._path if is_outermost else None  # built inside of another
        return origin.inside(name or self.name, self.created)

    def add_loss(self, loss: Any, inputs: Any = None) -> None:
        """Add to the loss that training minimises, usually inside of `call`.

        A function without arguments is called for its loss at every step, as in Keras
        2, which also required the `inputs` that the loss depends on.
        """
        if inputs is not None:
            keras2.note("`add_loss(inputs=)`", "left out", changes_defaults=False)
        scope = current_scope()
        for term in loss if isinstance(loss, (list, tuple)) else [loss]:
            if callable(term):
                self._loss_functions.append(term)
            elif isinstance(term, Deferred):
                self._loss_functions.append(partial(ops.convert_to_tensor, term))
            elif scope is not None:
                scope.add_loss(self, read(term))
            else:
                self._losses.append(ops.convert_to_tensor(term))

    def _register_call_context_args(self, *names: str) -> None:
        """Accept these arguments in calls, and pass them on to the layers below.

        As `training`, they reach all layers that registered them and take them.
        """
        if self._was_called:
            raise RuntimeError(
                "Cannot add call-context args after the layer has been called."
            )
        self._call_context_args = self._call_context_args | set(names)

    def _build_at_init(self) -> None:
        """Count as built: all variables are created in `__init__`."""
        self._path = self._path or self.name
        if type(self).build is Layer.build:
            self.built = True

    def rematerialized_call(self, layer_call: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the call as it is: the compiler decides what is computed again."""
        return layer_call

    def stateless_call(
        self,
        trainable_variables: Sequence[Any],
        non_trainable_variables: Sequence[Any],
        *args: Any,
        return_losses: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Call with other values of the variables, and change none of them.

        Return the outputs, the new values of those that are not trained, and the losses
        if requested.
        """
        if not self.built:
            raise ValueError(
                f'`stateless_call`: the layer "{self.name}" has no variables yet: '
                "call it on data first."
            )
        trained, fixed = self.trainable_variables, self.non_trainable_variables
        mapping = [
            *zip_values("trainable_variables", trained, trainable_variables, self.name),
            *zip_values(
                "non_trainable_variables", fixed, non_trainable_variables, self.name
            ),
        ]
        with StatelessScope(mapping, collect_losses=return_losses) as scope:
            outputs = self(*args, **kwargs)
            losses = self.losses if return_losses else []
        new = scope.current_values(fixed)
        return (outputs, new, losses) if return_losses else (outputs, new)

    # ---- calling ---------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call on Keras tensors, inside of a trace, or on arrays."""
        if "_calls" not in vars(self):
            raise RuntimeError(
                f"{type(self).__name__} did not call `super().__init__()`: make it the "
                "first line of its `__init__`."
            )
        if not self.takes_python_numbers:
            check_first(self, args)
        if len(args) > 1:
            args, kwargs = training_by_name(self, args, kwargs)
            check_others(args)
        if symbolic.any_symbolic(args, kwargs):
            traced = symbolic.values_in_trace((args, kwargs))
            if traced is None:
                return self._call_symbolic(args, kwargs)
            args, kwargs = traced
        if current_scope() is not None:
            return self._call_traced(args, kwargs)
        if tensorflow_graph.is_in_graph(args, kwargs):
            return tensorflow_graph.add_to_graph(
                self, self.compute_output_spec, args, kwargs
            )
        if any(isinstance(leaf, Value) for leaf in tree.flatten(args)):
            return self._call_in_body(args, kwargs)
        return self._call_on_arrays(args, kwargs)

    def symbolic_call(self, *args: Any, **kwargs: Any) -> Any:
        """Call the layer on Keras tensors, and record the call."""
        return self._call_symbolic(args, kwargs)

    def _call_symbolic(self, args: Any, kwargs: dict[str, Any]) -> Any:
        phase = keras2.learning_phase()
        if phase is not None and kwargs.get("training") is None:
            kwargs = {**kwargs, "training": phase}
        call = Call(self, args, kwargs)
        with suspended():
            self._build_for(args, kwargs)
            if is_own(self, "compute_output_spec"):
                outputs = call.bind(self.compute_output_spec(*args, **kwargs))
            else:
                outputs = call.bind(self._outputs_for(args, kwargs))
            if self.supports_masking:
                first, mask = fill_masks(self, args, dict(kwargs))
                pass_mask_on(self, first, outputs, mask)
        self._calls.append(call)
        return outputs

    def _outputs_for(self, args: Any, kwargs: dict[str, Any]) -> Any:
        """Return the outputs by the class's own rule of shapes, else by tracing."""
        if not is_own(self, "compute_output_shape"):
            known = self._outputs_by_rule(args, kwargs)
            return self._infer(args, kwargs) if known is None else known
        if type(self).build is Layer.build and not all(
            layer.built for layer in self._layers_below()
        ):
            self._infer(args, kwargs)  # builds the layers below
        return outputs_by_shape(self, args, kwargs)

    def _follows_shape_rule(self) -> bool:
        """Return whether the shape rule gives all that a trace for floats would give.

        The outputs have the type that the layer computes in, if the inputs have it.
        """
        return False

    def _outputs_by_rule(self, args: Any, kwargs: Any) -> KerasTensor | None:
        """Return the output if it is known without a trace, else None."""
        if kwargs or len(args) != 1 or not is_ours(type(self)):
            return None
        (x,) = args
        if not symbolic.is_symbolic(x) or x.sparse or x.ragged:
            return None
        if x.dtype != self.compute_dtype or not is_float_dtype(x.dtype):
            return None
        if tensors.get_keras_mask(x) is not None:
            return None
        if self.activity_regularizer is not None or not self._follows_shape_rule():
            return None
        shape = self._shape_rule(x.shape)
        if shape is None:
            return None
        self._was_called = True
        return KerasTensor(shape, x.dtype)

    def _infer(self, args: Any, kwargs: dict[str, Any]) -> Any:
        """Return the Keras tensors that a call on some would give."""
        return symbolic.infer(self._call_traced_with, args, kwargs)

    def _call_traced_with(self, *args: Any, **kwargs: Any) -> Any:
        return self._call_traced(args, kwargs)

    def _call_on_arrays(self, args: Any, kwargs: dict[str, Any]) -> Any:
        if kwargs.get("training") is not False:
            tensors.expect_backward()
        for layer in self._flatten_layers():
            layer._losses = []
        with Scope(bool(kwargs.get("training")), concrete=True) as scope:
            scope.training_is_set = kwargs.get("training") is not None
            result = self._call_traced(args, kwargs)
            outputs = concrete(result)
            for layer, loss in zip(scope.loss_owners, scope.losses, strict=True):
                layer._losses.append(concrete(loss))
            scope.commit()
        return outputs

    def _call_in_body(self, args: Any, kwargs: dict[str, Any]) -> Any:
        """Return the values of a call in what `map`, `scan` or `vmap` repeats."""
        with Scope(bool(kwargs.get("training")), concrete=True) as scope:
            scope.training_is_set = kwargs.get("training") is not None
            outputs = self._call_traced(args, kwargs)
            scope.hand_over()
        return outputs

    def _call_traced(self, args: Any, kwargs: dict[str, Any]) -> Any:
        scope = current_scope()
        assert scope is not None
        self._was_called = True
        scope.count_call(self.name)
        if scope.depth == 0 and scope.losses:  # as in Keras, of an earlier call
            scope.drop_losses(self._flatten_layers())
        args = tree.map_leaves(lifted, args)
        kwargs = {name: tree.map_leaves(lifted, kwargs[name]) for name in kwargs}
        if self.autocast:
            args = tree.map_leaves(self._cast_float, args)
        self._build_for(args, kwargs)
        before = scope.training, scope.training_is_set, scope.context
        resolve_training(self, kwargs, scope)
        if self._call_context_args != Layer._call_context_args:
            resolve_context(self, kwargs, scope)
        unmasked = is_unmasked(args, kwargs)
        first, mask = (args[0], None) if unmasked else fill_masks(self, args, kwargs)
        scope.depth += 1
        self._tracker.is_locked = True
        keeps = self._keeping_weights() if keras2.is_own else nullcontext()
        try:
            with origin.inside(self.name, self.created), self._autocasting(), keeps:
                outputs = self._call_in_use()(*args, **kwargs)
                if self.activity_regularizer is not None:
                    for output in tree.flatten(outputs):
                        # By the row, so that its strength does not depend on the batch.
                        loss = self.activity_regularizer(output)
                        scope.add_loss(self, read(loss / max(output.shape[0], 1)))
                if not unmasked or self._makes_masks:
                    pass_mask_on(self, first, outputs, mask)
        finally:
            self._tracker.is_locked = False
            scope.depth -= 1
            scope.training, scope.training_is_set, scope.context = before
        return outputs

    @contextmanager
    def _keeping_weights(self) -> Iterator[None]:
        """Restore weights after a call that replaces them.

        Keras 2 called a layer once, and that call could replace a kernel by a value
        computed from it; here every trace must begin with the kernel itself.
        """
        held = [
            (layer, name, value)
            for layer in self._flatten_layers()
            for name, value in vars(layer).items()
            if isinstance(value, Variable)
        ]
        yield
        for layer, name, variable in held:
            if isinstance(vars(layer).get(name), Value):
                setattr(layer, name, variable)

    @property
    def _makes_masks(self) -> bool:
        """Whether outputs may have a mask where the inputs have none."""
        own = getattr(self.compute_mask, "__func__", None)
        return own is not Layer.compute_mask

    def _cast_float(self, leaf: Any) -> Any:
        if not isinstance(leaf, Value) or not is_float(leaf.dtype):
            return leaf
        dtype = self.input_dtype
        return leaf if leaf.dtype == dtype else masked_as(leaf, ops.cast(leaf, dtype))

    def _autocasting(self) -> AbstractContextManager[None]:
        """Return a block in which variables are read as this layer computes."""
        compute, outside = self.compute_dtype, autocast_dtype()
        if outside is not None:
            # A layer that does not cast, or has no floats, must not get cast ones.
            floats = self.autocast and is_float_dtype(compute)
            return autocasting(compute if floats else None)
        return autocasting(compute if compute != self.variable_dtype else None)

    # ---- building --------------------------------------------------------------

    def _build_for(self, args: Any, kwargs: dict[str, Any]) -> None:
        if args and isinstance(args[0], Layer):
            raise TypeError(
                f'Layer "{self.name}" was called on the layer "{args[0].name}", not on '
                "data: call that one first, as in Dense(2)(Dense(3)(x))."
            )
        # Before building: a wrong shape must not leave wrong weights.
        if self.input_spec is not None and args:
            check_inputs(self.input_spec, args[0], self.name, self.created)
        if self._is_built_for_calls():
            return
        shapes = shapes_to_build(self, args, kwargs)
        with forks.held_off(), _building:  # threads may call a new layer at once
            if not self._is_built_for_calls():
                self._build_once(shapes)

    def _is_built_for_calls(self) -> bool:
        # A layer that is built at once still stores the shape of its first input.
        return self.built and (self._build_shape is not None or not self.built_at_once)

    def _build_once(self, shapes: Any) -> None:
        if self._needs_no_build():
            self._build_shape = shapes
            return
        self._building = True
        try:
            defers = deferring() if keras2.is_own_keras() else nullcontext()
            with suspended(), origin.inside(self.name, self.created), defers:
                self._path = origin.layer_path()
                if isinstance(shapes, ShapesByName):
                    check_inputs_of_build(self, shapes)
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
        if self._build_shape is None or self._needs_no_build():
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
        input_shape = args[0] if args else next(iter(kwargs.values()))
        if type(self).call is Layer.call:
            raise self._not_implemented("compute_output_shape")
        if not is_own(self, "call"):
            known = self._shape_rule(input_shape)
            if known is not None:
                return known
        before = self.built, self._build_shape
        shapes = self._traced_shapes(tensors_of(input_shape))
        if is_ours(type(self)) and not self.weights:  # nothing was created by asking
            self.built, self._build_shape = before
        return shapes

    def _shape_rule(self, input_shape: Any) -> Any:
        """Return the output shape where it follows without weights, else None."""
        return tuple(input_shape) if self.keeps_shape else None

    def _traced_shapes(self, inputs: Any) -> Any:
        if is_own(self, "compute_output_shape"):  # it calls `super()`
            with suspended():
                self._build_for((inputs,), {})
                outputs = self._infer((inputs,), {})
        else:
            outputs = self.compute_output_spec(inputs)
        shapes = [output.shape for output in tree.flatten(outputs)]
        return shapes[0] if isinstance(outputs, KerasTensor) else shapes

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        """Return the outputs as Keras tensors without recording a call."""
        with suspended():
            self._build_for(args, kwargs)
            return self._outputs_for(args, kwargs)

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

    def _only_call(self, end: str) -> Call:
        if not self._calls:
            raise AttributeError(
                f'Layer "{self.name}" has no {end}: it was never called on an Input.'
            )
        return self._calls[0]

    @property
    def path(self) -> str | None:
        """The names of the layers around this layer and its own; None until built.

        >>> layer = Layer(name="scale")
        >>> layer.build((None, 2))
        >>> layer.path
        'scale'
        """
        return self._path

    # ---- configuration -----------------------------------------------------------

    @property
    def dtype_policy(self) -> DTypePolicy:
        """The types that the layer computes in and stores its weights in."""
        return self._dtype_policy

    @dtype_policy.setter
    def dtype_policy(self, value: Any) -> None:
        policy = dtype_policies.get(value)
        policies = self._dtype_policy
        if isinstance(policies, DTypePolicyMap) and self.path:
            if self.path in policies:
                del policies[self.path]
            policies[self.path] = policy
        else:
            self._dtype_policy = policy
        is_quantized = getattr(self, "_is_quantized", False)
        if policy.quantization_mode is None or not self.built or is_quantized:
            return
        if policy.quantization_mode in ("gptq", "awq"):
            name = policy.quantization_mode.upper()
            raise ValueError(
                f"Implicitly enabling {name} quantization by setting `dtype_policy` to "
                f"'{policy.name}' is not supported: it needs data to be calibrated by. "
                f"Call `.quantize('{policy.quantization_mode}', config={name}Config(..."
                "))` instead."
            )
        self.quantize(policy.quantization_mode)

    def _own_policy(self) -> DTypePolicy:
        policy = self._dtype_policy
        if isinstance(policy, DTypePolicyMap) and self.path:
            return policy[self.path]
        return policy

    def quantize(
        self, mode: Any = None, type_check: bool = True, config: Any = None
    ) -> None:
        """Refuse: layers that can be quantized have a method of their own."""
        raise self._not_implemented("quantize")

    def quantized_build(self, input_shape: Any, mode: str) -> None:
        """Refuse: layers that can be quantized have a method of their own."""
        raise self._not_implemented("quantized_build")

    def quantized_call(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse: layers that can be quantized have a method of their own."""
        raise self._not_implemented("quantized_call")

    def _call_in_use(self) -> Callable[..., Any]:
        """Return `quantized_call` of a quantized layer that has one, else `call`."""
        has_own = type(self).quantized_call is not Layer.quantized_call
        is_quantized = has_own and self.quantization_mode is not None
        return self.quantized_call if is_quantized else self.call

    @property
    def dtype(self) -> str:
        """The type of the layer's weights."""
        return self.variable_dtype

    @property
    def compute_dtype(self) -> str:
        """The type the layer computes in."""
        return self._own_policy().compute_dtype

    @property
    def variable_dtype(self) -> str:
        """The type of the layer's weights."""
        return self._own_policy().variable_dtype

    @property
    def input_dtype(self) -> str:
        """The type that inputs of floats are cast to."""
        return self.compute_dtype

    @property
    def quantization_mode(self) -> str | None:
        """How the weights are quantized, None if they are not."""
        return self._own_policy().quantization_mode

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make an equal layer, read off `__init__`.

        It is plain data, as in Keras. A subclass with its own `get_config` gets the
        arguments of the class above, and adds its own.
        """
        config: dict[str, Any] = {"name": self.name, "trainable": self.trainable}
        config["dtype"] = dtype_policies.serialize(self.dtype_policy)
        for name, value in arguments_of(self).items():
            if name not in config:
                config[name] = as_plain_data(kept_value(self, name, value))
        if self.names_activity_regularizer:
            config.setdefault("activity_regularizer", None)
        elif config.get("activity_regularizer", 0) is None:
            del config["activity_regularizer"]
        return config

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """Make a layer from its configuration."""
        arguments = arguments_from(config)
        policy = arguments.get("dtype")
        if type(policy) is DTypePolicy and policy.quantization_mode is None:
            arguments["dtype"] = policy.name  # as in Keras, floats are a plain name
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
    """Return a layer's outputs after its activation, which may have been removed.

    Scripts set `layer.activation = None` to get a layer's outputs before it.
    """
    is_linear = layer.activation is None or layer.activation is activations.linear
    return outputs if is_linear else layer.activation(outputs)
