"""Operation: an op of the user's own, with a name and a configuration, as in Keras.

>>> from ganglion import Input, Operation
>>> class Doubled(Operation):
...     def call(self, x):
...         return x * 2
>>> Doubled()(Input((3,))).shape
(None, 3)
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from ganglion import symbolic
from ganglion.layers.construction import bound_arguments
from ganglion.serialization import serialize_keras_object
from ganglion.symbolic import Call, Function
from ganglion.variables import snake_case, unique_name


class Operation(Function):
    """Base class of ops: write `call`, in ops; it works on arrays and Keras tensors."""

    _init_values: dict[str, Any]
    _calls: list[Call]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Note the arguments: they are the configuration."""
        operation = super().__new__(cls)
        operation._init_values = bound_arguments(cls, args, kwargs)
        operation._calls = []
        return operation

    def __init__(self, name: str | None = None) -> None:
        if name is not None and (not isinstance(name, str) or "/" in name):
            raise ValueError(
                f"Argument `name` must be a string and cannot contain character `/`. "
                f"Received: name={name!r}"
            )
        self.name = name or unique_name(snake_case(type(self).__name__))

    @property
    def function(self) -> Any:  # type: ignore[override]
        """The function of calls on arrays: `call`, or `quantized_call`."""
        is_quantized = getattr(self, "quantization_mode", None) is not None
        return self.quantized_call if is_quantized else self.call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if symbolic.any_symbolic(args, kwargs):
            return self.symbolic_call(*args, **kwargs)
        return self.function(*args, **kwargs)

    def symbolic_call(self, *args: Any, **kwargs: Any) -> Any:
        """Record a call on Keras tensors; return the Keras tensors it gives."""
        outputs = self.compute_output_spec(*args, **kwargs)
        call = Call(self, args, kwargs)
        self._calls.append(call)
        return call.bind(outputs)

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the outputs, in ops."""
        raise NotImplementedError(f"{type(self).__name__} does not define `call`.")

    def quantized_call(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the outputs where `quantization_mode` is set."""
        raise NotImplementedError(
            f"{type(self).__name__} does not define `quantized_call`."
        )

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        """Return the outputs as Keras tensors without recording a call."""
        return symbolic.infer(self.call, args, kwargs, stretches=True)

    @property
    def input(self) -> Any:
        """The Keras tensor(s) that it was called on."""
        call = self._only_call("input")
        return call.args[0] if len(call.inputs) == 1 else call.inputs

    @property
    def output(self) -> Any:
        """The Keras tensor(s) that it returned."""
        return self._only_call("output").outputs

    def _only_call(self, end: str) -> Call:
        if not self._calls:
            raise AttributeError(
                f'"{self.name}" has no {end}: it was never called on a Keras tensor.'
            )
        return self._calls[0]

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make an equal operation."""
        config = {"name": self.name, **self._init_values}
        parameters = inspect.signature(type(self).__init__).parameters
        self._check_serializable(parameters)
        takes_name = "name" in parameters or any(
            parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()
        )
        if not takes_name:
            del config["name"]
        elif config["name"] is None:
            config["name"] = self.name
        return config

    def _check_serializable(self, parameters: Mapping[str, Any]) -> None:
        kinds = [parameter.kind for parameter in parameters.values()]
        try:
            if inspect.Parameter.VAR_POSITIONAL in kinds:
                raise TypeError("`*args` have no names")
            for value in self._init_values.values():
                serialize_keras_object(value)
        except (TypeError, ValueError) as error:
            raise NotImplementedError(
                f"{type(self).__name__} was made with arguments that are not plain "
                f"data ({error}): it must override `get_config()`."
            ) from None

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """Make an operation from its configuration."""
        return cls(**config)

    def __repr__(self) -> str:
        return f"<Operation name={self.name}>"
