"""Quantization by data: blocks of a model, one after the other, on a few samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ganglion import ops
from ganglion.layers.weight_formats.calibrated import Calibrated
from ganglion.ops.dispatch import concrete
from ganglion.quantizers import calibrating
from ganglion.variables import suspended

Watch = Callable[[np.ndarray], None]


def calibrate(model: Any, config: Any, fits: Callable[[Any], bool]) -> None:
    """Choose the numbers of all layers of a model's blocks that are to be quantized."""
    structure = config.quantization_layer_structure
    if structure is None:
        structure = model.get_quantization_layer_structure(config.mode)
    if structure is None:
        raise ValueError(
            f"For mode='{config.mode}', a valid quantization structure must be "
            "provided either via `config.quantization_layer_structure` or by "
            "overriding `model.get_quantization_layer_structure(mode)`: a dictionary "
            "with keys 'pre_block_layers' and 'sequential_blocks'."
        )
    if config.dataset is None or config.tokenizer is None:
        raise ValueError(
            f"{config.mode.upper()} quantization requires a dataset and a tokenizer. "
            f"Please provide them in the `{type(config).__name__}`."
        )
    blocks = structure.get("sequential_blocks", [])
    if not blocks:
        raise ValueError(
            "No sequential blocks found in the provided structure to quantize."
        )
    samples: list[Any] = list(calibrating.windows(config))
    for layer in structure.get("pre_block_layers", []):
        samples = [layer(sample) for sample in samples]
    for block in blocks:
        layers = [layer for layer in _targets(block) if fits(layer)]
        _calibrate_block(block, layers, samples, config)
        samples = [block(sample) for sample in samples]


def _targets(block: Any) -> list[Any]:
    layers = list(block._flatten_layers())
    leaves = [layer for layer in layers if not layer._layers_below()]
    modes = ("gptq", "awq")
    return [
        layer
        for layer in leaves
        if isinstance(layer, Calibrated) and layer.quantization_mode in modes
    ]


def _calibrate_block(
    block: Any, layers: list[Any], samples: list[Any], config: Any
) -> None:
    statistics = [_Statistics(layer, config) for layer in layers]
    with _watched(layers, [each.add for each in statistics]):
        for sample in samples:
            block(sample)
    for each in statistics:
        each.apply()


class _Statistics:
    """The inputs of a layer, as far as its quantization needs them."""

    def __init__(self, layer: Any, config: Any) -> None:
        self.layer, self.config = layer, config
        self.rows = layer._kernel_matrix[0]
        self.hessian = calibrating.Hessian(self.rows)
        self.largest = np.zeros(self.rows, "float32")

    def add(self, inputs: np.ndarray) -> None:
        rows = inputs.reshape(-1, self.rows).astype("float32")
        if self.config.mode == "gptq":
            self.hessian.add(rows)
        else:
            self.largest = np.maximum(self.largest, np.abs(rows).max(axis=0))

    def apply(self) -> None:
        kernel = ops.convert_to_numpy(self.layer._plain).astype("float32")
        weights = kernel.reshape(self.layer._kernel_matrix).T
        if self.config.mode == "gptq":
            damped = self.hessian.damped(self.config.hessian_damping)
            self.layer.calibrate(*calibrating.gptq(weights, damped, self.config))
        else:
            self.layer.calibrate(*calibrating.awq(weights, self.largest, self.config))


@contextmanager
def _watched(layers: list[Any], watches: list[Watch]) -> Iterator[None]:
    """Show what layers are called on, in this block."""

    def watching(call: Callable[..., Any], watch: Watch) -> Callable[..., Any]:
        def called(inputs: Any, *args: Any, **kwargs: Any) -> Any:
            with suspended():
                watch(np.asarray(concrete(inputs)))
            return call(inputs, *args, **kwargs)

        return called

    try:
        for layer, watch in zip(layers, watches, strict=True):
            vars(layer)["call"] = watching(layer.call, watch)
        yield
    finally:
        for layer in layers:
            vars(layer).pop("call", None)
