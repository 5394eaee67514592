"""Configurations for `quantize`: a mode, with its own quantizers or the defaults."""

from __future__ import annotations

from typing import Any

from ganglion.dtypes import QUANTIZATION_MODES, Int4DTypePolicy
from ganglion.quantizers.scaling import AbsMaxQuantizer
from ganglion.serialization import (
    deserialize_keras_object,
    export,
    passed,
    serialize_keras_object,
)


@export("keras.quantizers")
class QuantizationConfig:
    """Base class: the quantizers of weights and of activations."""

    def __init__(
        self, weight_quantizer: Any = None, activation_quantizer: Any = None
    ) -> None:
        self.weight_quantizer = weight_quantizer
        self.activation_quantizer = activation_quantizer

    @property
    def mode(self) -> str:
        """The name of the mode."""
        raise NotImplementedError(
            "Subclasses must implement this property. Do not instantiate "
            "QuantizationConfig directly."
        )

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make an equal configuration."""
        return {
            "weight_quantizer": serialize_keras_object(self.weight_quantizer),
            "activation_quantizer": serialize_keras_object(self.activation_quantizer),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """Make it from plain data."""
        return cls(
            **{name: deserialize_keras_object(value) for name, value in config.items()}
        )

    @staticmethod
    def weight_quantizer_or_default(config: Any, default: Any) -> Any:
        """Return the quantizer of weights, the default if there is none."""
        own = None if config is None else config.weight_quantizer
        return default if own is None else own

    @staticmethod
    def activation_quantizer_or_default(config: Any, default: Any) -> Any:
        """Return the quantizer of activations, None for none; the default without."""
        return default if config is None else config.activation_quantizer


@export("keras.quantizers")
class Int8QuantizationConfig(QuantizationConfig):
    """Weights and activations of 8 bits; `activation_quantizer=None`: weights alone."""

    def __init__(
        self, weight_quantizer: Any = None, activation_quantizer: Any = "default"
    ) -> None:
        if isinstance(activation_quantizer, str) and activation_quantizer == "default":
            activation_quantizer = AbsMaxQuantizer()
        super().__init__(weight_quantizer, activation_quantizer)
        _check_bytes(self)

    @property
    def mode(self) -> str:
        return "int8"


@export("keras.quantizers")
class Int4QuantizationConfig(QuantizationConfig):
    """Weights of 4 bits, scaled by channels, or by blocks of `block_size` inputs."""

    def __init__(
        self,
        weight_quantizer: Any = None,
        activation_quantizer: Any = "default",
        block_size: int | None = 128,
    ) -> None:
        if isinstance(activation_quantizer, str) and activation_quantizer == "default":
            activation_quantizer = None
        super().__init__(weight_quantizer, activation_quantizer)
        if block_size is not None and block_size != -1 and block_size <= 0:
            raise ValueError(
                "block_size must be None, -1, or a positive integer. Received: "
                f"block_size={block_size}"
            )
        self.block_size = block_size
        has_own = not (weight_quantizer is None and activation_quantizer is None)
        if has_own and block_size is not None and block_size > 0:
            raise ValueError(
                "Int4 sub-channel quantization (block_size > 0) does not support "
                "custom quantizers. Either set block_size to None or -1 for "
                "per-channel quantization, or remove the custom quantizer arguments. "
                f"Received: block_size={block_size}"
            )
        own = self.weight_quantizer
        if own is not None and tuple(own.value_range) != (-8, 7):
            raise ValueError(
                "Int4QuantizationConfig requires a weight_quantizer with "
                f"value_range=(-8, 7). Received: value_range={own.value_range}"
            )
        _check_bytes(self)

    @property
    def mode(self) -> str:
        return "int4"

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "block_size": self.block_size}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        return super().from_config({"block_size": None, **config})


@export("keras.quantizers")
class Float8QuantizationConfig(QuantizationConfig):
    """Products in float8; there is nothing to choose."""

    def __init__(self) -> None:
        super().__init__(None, None)

    @property
    def mode(self) -> str:
        return "float8"

    def get_config(self) -> dict[str, Any]:
        return {}


class _CalibratedConfig(QuantizationConfig):
    """Settings of calibration by data: texts or tokens, in windows of one length.

    `quantization_layer_structure` names the layers before the blocks of a model and
    the blocks, which are quantized one after the other.
    """

    algorithm = ""
    weight_bits: int
    group_size: int

    def _keep(self, **options: Any) -> None:
        super().__init__()
        vars(self).update(options)
        for name in ("num_samples", "sequence_length", "num_grid_points"):
            if options.get(name, 1) <= 0:
                raise ValueError(f"{name} must be a positive integer.")
        if self.group_size < -1 or self.group_size == 0:
            raise ValueError(
                "Invalid group_size. Supported values are -1 (no groups) or a positive "
                f"integer, but got {self.group_size}."
            )

    @property
    def mode(self) -> str:
        return self.algorithm

    def dtype_policy_string(self) -> str:
        """Return the mode of the policy of a layer so quantized."""
        return f"{self.mode}/{self.weight_bits}/{self.group_size}"

    def get_config(self) -> dict[str, Any]:
        """Return the arguments; data and layers are needed once, and are none."""
        quantizers = ("weight_quantizer", "activation_quantizer")
        options = {k: v for k, v in vars(self).items() if k not in quantizers}
        once = ("dataset", "tokenizer", "quantization_layer_structure")
        return options | dict.fromkeys(once)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        return cls(**config)


@export("keras.quantizers")
class GPTQConfig(_CalibratedConfig):
    """Weights rounded one input after the other; those left make up for the errors."""

    algorithm = "gptq"

    def __init__(
        self,
        dataset: Any,
        tokenizer: Any,
        *,
        weight_bits: int = 4,
        num_samples: int = 128,
        per_channel: bool = True,
        sequence_length: int = 512,
        hessian_damping: float = 0.01,
        group_size: int = 128,
        symmetric: bool = False,
        activation_order: bool = False,
        quantization_layer_structure: dict[str, Any] | None = None,
    ) -> None:
        if weight_bits not in (2, 3, 4, 8):
            raise ValueError(
                f"Unsupported weight_bits {weight_bits}. Supported values are 2, 3, 4, "
                "and 8."
            )
        if not 0 <= hessian_damping <= 1:
            raise ValueError("hessian_damping must be between 0 and 1.")
        self._keep(**passed(locals()))


@export("keras.quantizers")
class AWQConfig(_CalibratedConfig):
    """Weights of large inputs are enlarged before all are rounded to 4 bits."""

    algorithm = "awq"

    def __init__(
        self,
        dataset: Any,
        tokenizer: Any,
        *,
        weight_bits: int = 4,
        num_samples: int = 128,
        sequence_length: int = 512,
        group_size: int = 128,
        num_grid_points: int = 20,
        quantization_layer_structure: dict[str, Any] | None = None,
    ) -> None:
        if weight_bits != 4:
            raise ValueError(
                "AWQ only supports 4-bit quantization. Received "
                f"weight_bits={weight_bits}."
            )
        self._keep(**passed(locals()))


def _check_bytes(config: QuantizationConfig) -> None:
    quantizer = config.weight_quantizer
    if quantizer is not None and quantizer.output_dtype != "int8":
        raise ValueError(
            f"{type(config).__name__} requires a weight_quantizer with "
            f"output_dtype='int8'. Received: output_dtype={quantizer.output_dtype}"
        )


_DEFAULTS = {
    "int8": Int8QuantizationConfig,
    "int4": Int4QuantizationConfig,
    "float8": Float8QuantizationConfig,
}


def resolved(mode: Any, config: Any) -> QuantizationConfig:
    """Return the configuration for a mode, a configuration, or both."""
    if isinstance(config, str):
        mode, config = config, None
    if mode is not None and mode not in QUANTIZATION_MODES:
        raise ValueError(
            f"Invalid quantization mode. Expected one of {QUANTIZATION_MODES}. "
            f"Received: mode={mode}"
        )
    if config is None and mode in ("gptq", "awq"):
        name = mode.upper()
        raise ValueError(
            f"For {name}, you must pass a `{name}Config` object in the `config` "
            f"argument: quantizers.{name}Config(dataset, tokenizer)."
        )
    if config is None:
        if mode is None:
            raise ValueError(
                "You must provide either `mode` or `config` to `quantize`."
            )
        return _DEFAULTS[mode]()
    if not isinstance(config, QuantizationConfig):
        raise ValueError(
            "Argument `config` must be an instance of `QuantizationConfig`. Received: "
            f"config={config} (of type {type(config)})"
        )
    if mode is not None and config.mode != mode:
        raise ValueError(
            f"Contradictory arguments: mode='{mode}' but config.mode='{config.mode}'"
        )
    return config


def block_size_of(layer: Any, config: Any) -> int | None:
    """Return the size of blocks of 4-bit weights, None for whole channels."""
    if isinstance(config, Int4QuantizationConfig):
        return config.block_size
    policy = layer._own_policy()
    size = policy.block_size if isinstance(policy, Int4DTypePolicy) else None
    return None if size == -1 else size


def is_grouped(block_size: int | None) -> bool:
    """Return whether blocks have scales of their own, and not whole channels."""
    return block_size is not None and block_size != -1
