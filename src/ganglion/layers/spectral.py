"""SpectralNormalization: the weights of a layer, divided by their largest stretch."""

from __future__ import annotations

from typing import Any

from ganglion import initializers, ops
from ganglion.layers.arguments import positive
from ganglion.layers.base import InputSpec
from ganglion.layers.rnn.wrappers import Wrapper
from ganglion.serialization import export

__all__ = ["SpectralNormalization"]


@export("keras.layers")
class SpectralNormalization(Wrapper):
    """Divides the kernel of a layer by its spectral norm, at each call in training.

    The norm is computed by `power_iterations` from the result of the last call.

    >>> import numpy as np
    >>> from ganglion import layers
    >>> layer = SpectralNormalization(layers.Dense(3), power_iterations=30)
    >>> outputs = layer(np.ones((1, 4), "float32"), training=True)
    >>> float(np.linalg.svd(layer.layer.kernel.numpy())[1][0].round(3))
    1.0
    """

    def __init__(self, layer: Any, power_iterations: int = 1, **kwargs: Any) -> None:
        super().__init__(layer, **kwargs)
        if isinstance(power_iterations, int) and power_iterations < 1:
            raise ValueError(
                "`power_iterations` should be greater than zero. Received: "
                f"power_iterations={power_iterations}"
            )
        self.power_iterations = positive(power_iterations, "power_iterations")

    def build(self, input_shape: Any = None) -> None:
        """Build the layer, and the vector that the next iteration begins with."""
        super().build(input_shape)
        self.input_spec = InputSpec(min_ndim=1, axes={-1: input_shape[-1]})
        names = [name for name in ("kernel", "embeddings") if hasattr(self.layer, name)]
        if not names:
            raise ValueError(
                f"{type(self.layer).__name__} object has no attribute 'kernel' nor "
                "'embeddings': SpectralNormalization needs one to normalise."
            )
        self.kernel = getattr(self.layer, names[0])
        self.vector_u = self.add_weight(
            (1, self.kernel.shape[-1]),
            initializers.TruncatedNormal(stddev=0.02),
            dtype=self.kernel.dtype,
            trainable=False,
            name="vector_u",
        )

    def call(self, inputs: Any, training: Any = False) -> Any:
        if training:
            u, kernel = self.normalized_weights()
            # Zeros have no norm to be divided by: they stay as they are.
            is_zero = ops.all(ops.equal(self.kernel, 0))
            self.vector_u.assign(ops.where(is_zero, self.vector_u, u))
            self.kernel.assign(ops.where(is_zero, self.kernel, kernel))
        outputs = self.layer(inputs)
        is_float = str(inputs.dtype).startswith(("float", "bfloat"))
        return ops.cast(outputs, inputs.dtype) if is_float else outputs

    def normalized_weights(self) -> tuple[Any, Any]:
        """Return the vector for the next call, and the kernel over its norm."""
        weights = ops.reshape(self.kernel, (-1, self.kernel.shape[-1]))
        u = self.vector_u
        for _ in range(self.power_iterations):
            v = ops.normalize(ops.matmul(u, ops.transpose(weights)), axis=None)
            u = ops.normalize(ops.matmul(v, weights), axis=None)
        sigma = ops.matmul(ops.matmul(v, weights), ops.transpose(u))
        return u, ops.reshape(weights / sigma, self.kernel.shape)

    def compute_output_shape(self, *args: Any, **kwargs: Any) -> Any:
        return self.layer.compute_output_shape(*args, **kwargs)
