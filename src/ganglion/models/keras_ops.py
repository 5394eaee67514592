"""Ops of functional models in Keras' files: which class of Keras each one is there.

Keras writes a call such as `ops.mean(x, axis=1)` as an object of a class `Mean` that
was made with `axis` and called on `x`. This table says, for each op, which of its
arguments belong to the object; the rest belong to the call.
"""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any, NamedTuple

from ganglion import activations, ops, random
from ganglion.config import closest
from ganglion.symbolic import Call, Function, infer

# Read off Keras 3.15: module, then ops with the arguments their objects are made with.
_TABLE = {
    "keras.src.ops.numpy": """
        absolute add all(axis,keepdims) amax(axis,keepdims) amin(axis,keepdims)
        any(axis,keepdims) arange(dtype) argmax(axis,keepdims) argmin(axis,keepdims)
        broadcast_to(shape) ceil clip(x_min,x_max) concatenate(axis) cos
        cumsum(axis,dtype) divide dot einsum(subscripts) equal exp expand_dims(axis)
        expm1 flip(axis) floor floor_divide full(shape,dtype) full_like(dtype)
        get_item greater greater_equal isfinite isinf isnan less less_equal log log10
        log1p log2 logical_and logical_not logical_or logical_xor matmul
        max(axis,keepdims,initial) maximum mean(axis,keepdims)
        min(axis,keepdims,initial) minimum mod moveaxis(source,destination) multiply
        negative not_equal ones_like(dtype) outer pad(pad_width,mode) power ravel
        reciprocal repeat(repeats,axis) reshape(newshape) round(decimals) sign sin
        split(indices_or_sections,axis) sqrt square squeeze(axis) stack(axis)
        std(axis,keepdims) subtract sum(axis,keepdims) swapaxes(axis1,axis2)
        take(axis) take_along_axis(axis) tanh tensordot(axes) tile(repeats)
        transpose(axes) tril(k) triu(k) true_divide var(axis,keepdims) where
        zeros_like(dtype)""",
    "keras.src.ops.nn": """
        average_pool(pool_size,strides,padding,data_format)
        batch_norm(axis,epsilon) binary_crossentropy(from_logits)
        categorical_crossentropy(from_logits,axis)
        conv(strides,padding,data_format,dilation_rate)
        conv_transpose(strides,padding,output_padding,data_format,dilation_rate)
        depthwise_conv(strides,padding,data_format,dilation_rate) elu(alpha)
        gelu(approximate) hard_sigmoid hard_silu leaky_relu(negative_slope)
        log_sigmoid log_softmax(axis) max_pool(pool_size,strides,padding,data_format)
        moments(axes,keepdims,synchronized) multi_hot(num_classes,axis,dtype,sparse)
        normalize(axis,order,epsilon) one_hot(num_classes,axis,dtype,sparse) relu
        relu6 selu separable_conv(strides,padding,data_format,dilation_rate) sigmoid
        silu softmax(axis) softplus softsign
        sparse_categorical_crossentropy(from_logits,axis)""",
    "keras.src.ops.math": "erf in_top_k(k) logsumexp(axis,keepdims) rsqrt",
    "keras.src.ops.linalg": "norm(ord,axis,keepdims)",
    "keras.src.ops.core": "cast(dtype) stop_gradient unstack(num,axis)",
}
_OUR_NAMES = {"get_item": "getitem", "batch_norm": "batch_normalization"}
_ALIASES = {"abs": "absolute", "hard_swish": "hard_silu", "swish": "silu"}
_OUR_MODULES = {
    "ganglion.ops": ops,
    "ganglion.activations": activations,
    "ganglion.random": random,
}


class _Entry(NamedTuple):
    """An op of ours and its class in Keras."""

    function: str
    module: str
    class_name: str
    made_with: tuple[str, ...]


@cache
def _entries() -> list[_Entry]:
    entries = []
    for module, text in _TABLE.items():
        for item in text.split():
            name, _, arguments = item.rstrip(")").partition("(")
            made_with = tuple(arguments.split(",")) if arguments else ()
            class_name = "".join(part.capitalize() for part in name.split("_"))
            ours = _OUR_NAMES.get(name, name)
            if hasattr(ops, ours):
                entries.append(_Entry(ours, module, class_name, made_with))
    return entries


@cache
def _by_function() -> dict[Any, _Entry]:
    known = {entry.function: entry for entry in _entries()}
    known.update({a: known[b] for a, b in _ALIASES.items() if b in known})
    return {getattr(ops, n): entry for n, entry in known.items() if hasattr(ops, n)}


def entry_of(call: Call) -> tuple[dict[str, Any], Any, dict[str, Any]]:
    """Return the entry of an op in a file, and the arguments of its call."""
    function = call.operation.function
    known = _by_function().get(function)
    if known is None:
        return _own_entry(call), call.args, call.kwargs
    bound = inspect.signature(function).bind(*call.args, **call.kwargs)
    bound.apply_defaults()
    arguments = dict(bound.arguments)
    config = {"name": call.operation.name}
    for name in known.made_with:
        config[name] = arguments.pop(name, None)
    entry = {
        "module": known.module,
        "class_name": known.class_name,
        "config": config,
        "registered_name": known.class_name,
    }
    return entry, _call_arguments(function, arguments), {}


def _call_arguments(function: Any, arguments: dict[str, Any]) -> tuple[Any, ...]:
    """Return the arguments in order, without those of ours that Keras does not have."""
    parameters = inspect.signature(function).parameters
    values: list[Any] = []
    for name, value in arguments.items():
        is_rest = parameters[name].kind is inspect.Parameter.VAR_POSITIONAL
        values.extend(value if is_rest else [value])
    defaults = [parameters[name].default for name in arguments]
    while values and len(values) == len(defaults) and values[-1] is defaults[-1]:
        values.pop()
        defaults.pop()
    return tuple(values)


def _own_entry(call: Call) -> dict[str, Any]:
    """Describe an op that Keras does not have: only Ganglion loads it."""
    name = call.operation.function.__name__
    for module, namespace in _OUR_MODULES.items():
        if getattr(namespace, name, None) is call.operation.function:
            return {
                "module": module,
                "class_name": name,
                "config": {"name": call.operation.name},
                "registered_name": None,
            }
    raise ValueError(
        f"The function {name!r} cannot be saved as a part of a functional model: write "
        "it as a Layer."
    )


class Operation:
    """An op read from a file, to be called on Keras tensors."""

    def __init__(self, name: str, function: Any, config: dict[str, Any]) -> None:
        self._operation = Function(function)
        self._operation.name = name
        self._config = config

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Record a call with what the op was made with."""
        function = self._operation.function
        kwargs = {**kwargs, **self._config}
        if "subscripts" in kwargs:  # the only one that comes before the tensors
            args = (kwargs.pop("subscripts"), *args)
        if function is ops.getitem and isinstance(args[1], list):
            args = (args[0], tuple(args[1]))
        call = Call(self._operation, args, kwargs)
        return call.bind(infer(function, args, kwargs))


def is_operation(entry: dict[str, Any]) -> bool:
    """Return whether an entry of a functional model is an op, not a layer."""
    module = str(entry.get("module"))
    return module.startswith("keras.src.ops.") or module in _OUR_MODULES


def operation_from(entry: dict[str, Any], config: dict[str, Any]) -> Operation:
    """Make the op that an entry of a file describes."""
    module, class_name = entry["module"], str(entry["class_name"])
    name = str(config.pop("name", class_name))
    if module in _OUR_MODULES:
        function = getattr(_OUR_MODULES[module], class_name, None)
        if hasattr(function, "__wrapped__"):  # only what is marked as an op
            return Operation(name, function, config)
    for known in _entries():
        if (known.module, known.class_name) == (module, class_name):
            function = getattr(ops, known.function)
            parameters = inspect.signature(function).parameters
            lost = sorted(key for key in config.keys() - parameters if config[key])
            if lost:
                raise ValueError(
                    f"The op {class_name!r} has arguments that are not supported here: "
                    f"{', '.join(lost)}."
                )
            arguments = {key: v for key, v in config.items() if key in parameters}
            return Operation(name, function, arguments)
    names = [known.class_name for known in _entries()]
    raise ValueError(
        f"The model uses the op {class_name!r} ({module}), which Ganglion does not "
        f"have. {closest(class_name, names)}"
    )
