"""The parts of `keras.backend` that layers of old scripts are written with."""

from __future__ import annotations

from typing import Any

from ganglion import activations, keras2, ops, random
from ganglion.layers import UpSampling2D
from ganglion.variables import current_scope


def relu(
    x: Any, alpha: float = 0.0, max_value: float | None = None, threshold: float = 0.0
) -> Any:
    """Return x where it is positive, else a slope, with a limit and a threshold."""
    return activations.relu(x, alpha, max_value, threshold)


def bias_add(x: Any, bias: Any, data_format: str | None = None) -> Any:
    """Add one number per channel."""
    _only_channels_last(data_format)
    return x + bias


def conv1d(
    x: Any,
    kernel: Any,
    strides: int = 1,
    padding: str = "valid",
    data_format: str | None = None,
    dilation_rate: int = 1,
) -> Any:
    """Slide a kernel over sequences."""
    _only_channels_last(data_format)
    return ops.conv(x, kernel, strides, padding, dilation_rate=dilation_rate)


def conv2d(
    x: Any,
    kernel: Any,
    strides: Any = (1, 1),
    padding: str = "valid",
    data_format: str | None = None,
    dilation_rate: Any = (1, 1),
) -> Any:
    """Slide a kernel over images."""
    _only_channels_last(data_format)
    return ops.conv(x, kernel, strides, padding, dilation_rate=dilation_rate)


def pool2d(
    x: Any,
    pool_size: Any,
    strides: Any = (1, 1),
    padding: str = "valid",
    data_format: str | None = None,
    pool_mode: str = "max",
) -> Any:
    """Take the largest element or the average of windows of images."""
    _only_channels_last(data_format)
    pools = {"max": ops.max_pool, "avg": ops.average_pool}
    if pool_mode not in pools:
        raise ValueError(f"`pool_mode` is 'max' or 'avg', not {pool_mode!r}.")
    return pools[pool_mode](x, pool_size, strides, padding)


def resize_images(
    x: Any,
    height_factor: int,
    width_factor: int,
    data_format: str | None = None,
    interpolation: str = "nearest",
) -> Any:
    """Enlarge images by whole factors."""
    _only_channels_last(data_format)
    enlarge = UpSampling2D((height_factor, width_factor), interpolation=interpolation)
    return enlarge(x)


def spatial_2d_padding(
    x: Any, padding: Any = ((1, 1), (1, 1)), data_format: str | None = None
) -> Any:
    """Put zeros around images."""
    _only_channels_last(data_format)
    return ops.pad(x, ((0, 0), *padding, (0, 0)))


def temporal_padding(x: Any, padding: Any = (1, 1)) -> Any:
    """Put zeros before and after sequences."""
    return ops.pad(x, ((0, 0), tuple(padding), (0, 0)))


def dropout(x: Any, level: float, noise_shape: Any = None, seed: Any = None) -> Any:
    """Set elements to zero at random, and enlarge the rest."""
    return random.dropout(x, level, noise_shape, seed)


def learning_phase() -> int:
    """Return 1 while a training step is traced, else 0."""
    scope = current_scope()
    return int(scope is not None and scope.training)


def set_learning_phase(value: int) -> None:
    """Accept 0; training is said by `fit`, or by `model(x, training=True)`."""
    keras2.note(
        "`K.set_learning_phase`", "`model(x, training=...)`", changes_defaults=False
    )
    if value:
        raise ValueError(
            "`K.set_learning_phase(1)` is not supported: call the model or the layer "
            "with `training=True`."
        )


def in_train_phase(x: Any, alt: Any, training: Any = None) -> Any:
    """Return x while training, else the alternative; both may be functions."""
    is_training = learning_phase() if training is None else training
    chosen = x if is_training else alt
    return chosen() if callable(chosen) else chosen


def in_test_phase(x: Any, alt: Any, training: Any = None) -> Any:
    """Return x while not training, else the alternative; both may be functions."""
    return in_train_phase(alt, x, training)


def _only_channels_last(data_format: str | None) -> None:
    if data_format not in (None, "channels_last"):
        raise ValueError(
            f"data_format={data_format!r} is not supported: transpose the images to "
            "(rows, columns, channels) and use 'channels_last'."
        )
