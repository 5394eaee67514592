"""The frame of the networks of `keras.applications`: inputs, top and weights."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ganglion import activations, config, layers
from ganglion.applications.imagenet import CLASSES
from ganglion.models import Model
from ganglion.utils import get_source_inputs

HOST = "https://storage.googleapis.com"

Features = Callable[[Any], Any]
Top = Callable[[Any, int, Any], Any]
Shape = tuple[int | None, ...]


@dataclass(frozen=True)
class WeightFile:
    """Weights that learned ImageNet: a folder on Keras' host, a name and a checksum."""

    folder: str
    name: str
    checksum: str | None = None

    def fetched(self) -> str:
        """Return the path of the file, fetched once."""
        from ganglion.utils import get_file

        try:
            return get_file(
                self.name,
                f"{HOST}/{self.folder}/{self.name}",
                cache_subdir="models",
                file_hash=self.checksum,
            )
        except OSError as error:
            raise OSError(
                f"The weights {self.name} cannot be fetched ({error}). Give a file of "
                "them by its path, `weights='FILE.h5'`, or start without, "
                "`weights=None`."
            ) from None


WeightFiles = tuple[WeightFile, WeightFile]  # with the top, and without


def weight_files(
    folder: str,
    stem: str,
    checksums: Sequence[str | None] = (None, None),
    without_top: str = "_notop",
) -> WeightFiles:
    """Return the two files of a network; `without_top` ends the name of the second."""
    full, headless = checksums
    return (
        WeightFile(folder, f"{stem}.h5", full),
        WeightFile(folder, f"{stem}{without_top}.h5", headless),
    )


def channel_axis() -> int:
    """Return the axis of channels in a batch of images."""
    return 1 if config.image_data_format() == "channels_first" else -1


def average_top(
    dropout: float = 0.0, pool: str | None = "avg_pool", start: Any = "glorot_uniform"
) -> Top:
    """Return a top of a mean over the image, and a product to the classes."""

    def top(x: Any, classes: int, activation: Any) -> Any:
        x = layers.GlobalAveragePooling2D(name=pool)(x)
        if dropout:
            x = layers.Dropout(dropout, name="top_dropout")(x)
        last = layers.Dense(
            classes,
            activation=activation,
            kernel_initializer=start,
            name="predictions",
        )
        return last(x)

    return top


@dataclass(frozen=True)
class Architecture:
    """A network: its features and top, sizes of images, and weights to start from."""

    features: Features
    size: int = 224  # of the images it was made for
    least: int = 32  # rows and columns that it needs
    top: Top = field(default_factory=average_top)
    files: WeightFiles | None = None
    pool_names: tuple[str | None, str | None] = ("avg_pool", "max_pool")
    after_features: Features | None = None  # where there is no top
    any_size: bool = False  # of images, with a top, too


@dataclass(frozen=True)
class BuildOptions:
    """The arguments that every network takes."""

    include_top: bool
    weights: Any
    input_tensor: Any
    input_shape: Any
    pooling: str | None
    classes: int
    classifier_activation: Any
    name: str | None


def standard(
    default: str, architecture: Architecture | Callable[[BuildOptions], Architecture]
) -> Callable[..., Model]:
    """Return the function that builds a network which has the usual arguments."""

    def build(
        include_top: bool = True,
        weights: str | os.PathLike[str] | None = "imagenet",
        input_tensor: Any = None,
        input_shape: Shape | None = None,
        pooling: str | None = None,
        classes: int = CLASSES,
        classifier_activation: Any = "softmax",
        name: str = default,
    ) -> Model:
        options = BuildOptions(
            include_top, weights, input_tensor, input_shape, pooling, classes,
            classifier_activation, name,
        )  # fmt: skip
        if isinstance(architecture, Architecture):
            return network(architecture, options)
        return network(architecture(options), options)

    return build


def named(title: str, build: Callable[..., Model], sentence: str) -> Callable[..., Any]:
    """Return a function that builds a network, under its public name."""
    build.__name__ = build.__qualname__ = title
    build.__doc__ = f"""Return {sentence}.

    Args:
        include_top: Whether to end in the classes.
        weights: "imagenet" (from Keras' host), None for random ones, or a file.
        input_tensor: A Keras tensor to start from.
        input_shape: Rows, columns and channels of images.
        pooling: Without a top: None for the map of features, "avg" or "max".
        classes: How many classes the top tells apart.
        classifier_activation: The activation of the top; None for plain scores.
        name: The name of the model.
    """
    return build


def network(architecture: Architecture, options: BuildOptions) -> Model:
    """Return a network of an architecture, with its weights loaded."""
    _check(options)
    start = options.input_tensor
    if start is None:
        start = layers.Input(input_shape(architecture, options))
    elif not hasattr(start, "call"):
        raise ValueError(
            f"`input_tensor` is a Keras tensor, as of Input(), not {start!r:.80}."
        )
    x = architecture.features(start)
    if options.include_top:
        x = architecture.top(x, options.classes, options.classifier_activation)
    else:
        average, largest = architecture.pool_names
        if options.pooling == "avg":
            x = layers.GlobalAveragePooling2D(name=average)(x)
        elif options.pooling == "max":
            x = layers.GlobalMaxPooling2D(name=largest)(x)
        if architecture.after_features is not None:
            x = architecture.after_features(x)
    inputs = start if options.input_tensor is None else get_source_inputs(start)
    model = Model(inputs, x, name=options.name)
    if options.weights == "imagenet":
        if architecture.files is None:
            raise ValueError(
                f"There are no ImageNet weights for {options.name} with these "
                "arguments: use `weights=None`."
            )
        model.load_weights(architecture.files[not options.include_top].fetched())
    elif options.weights is not None:
        model.load_weights(options.weights)
    return model


def _check(options: BuildOptions) -> None:
    weights = options.weights
    if weights not in ("imagenet", None) and not Path(weights).exists():
        raise ValueError(
            "`weights` should be None (random initialization), 'imagenet', or the path "
            f"of a file of weights; got {weights!r}."
        )
    if weights == "imagenet" and options.include_top and options.classes != CLASSES:
        raise ValueError(
            f"With `weights='imagenet'` and `include_top=True`, `classes` should be "
            f"{CLASSES}, not {options.classes}: take `include_top=False` and put a "
            "Dense of your own behind it."
        )
    if options.pooling not in (None, "avg", "max"):
        raise ValueError(f"`pooling` is None, 'avg' or 'max', not {options.pooling!r}.")
    if weights is None or not options.include_top:
        return
    activation = activations.get(options.classifier_activation)
    if activation not in (activations.get("softmax"), activations.get(None)):
        raise ValueError(
            "With pretrained weights, `classifier_activation` is None or 'softmax', "
            f"not {options.classifier_activation!r}."
        )


def input_shape(architecture: Architecture, options: BuildOptions) -> Shape:
    """Return the shape of images, checked."""
    first = config.image_data_format() == "channels_first"
    shape = None if options.input_shape is None else tuple(options.input_shape)

    def image(side: int | None, channels: int | None = 3) -> Shape:
        return (channels, side, side) if first else (side, side, channels)

    if not shape:
        known = options.include_top and not architecture.any_size
        return image(architecture.size if known else None)
    if len(shape) != 3:
        raise ValueError(f"`input_shape` must be three numbers, got {shape}.")
    channels, sides = (shape[0], shape[1:]) if first else (shape[2], shape[:2])
    if options.weights == "imagenet" and channels != 3:
        raise ValueError(f"The input must have 3 channels, got input_shape={shape}.")
    if (
        options.weights == "imagenet"
        and options.include_top
        and not architecture.any_size
    ):
        if shape != image(architecture.size):
            raise ValueError(
                "With `include_top=True` and ImageNet weights, `input_shape` should be "
                f"{image(architecture.size)}, not {shape}."
            )
        return shape
    if channels not in (1, 3):
        warnings.warn(
            f"This model usually expects 1 or 3 input channels, not {channels}.",
            stacklevel=5,
        )
    if any(side is not None and side < architecture.least for side in sides):
        least = architecture.least
        raise ValueError(
            f"Input size must be at least {least}x{least}, got input_shape={shape}."
        )
    if options.include_top and None in shape and not architecture.any_size:
        raise ValueError(
            f"With `include_top=True`, `input_shape` must be known, got {shape}."
        )
    return shape


# ---- parts of networks ---------------------------------------------------------------


def norm(x: Any, name: str | None, **options: Any) -> Any:
    """Normalise over the batch."""
    return layers.BatchNormalization(axis=channel_axis(), name=name, **options)(x)


def activate(x: Any, activation: str, name: str | None = None) -> Any:
    """Apply an activation as a separate layer."""
    return layers.Activation(activation, name=name)(x)


def padding_for_half(x: Any, kernel: int | tuple[int, int]) -> tuple[Any, Any]:
    """Return the zeros around images for a convolution that halves their sizes."""
    first = 2 if config.image_data_format() == "channels_first" else 1
    sizes = x.shape[first : first + 2]
    each = (kernel, kernel) if isinstance(kernel, int) else kernel
    rows, columns = (
        (k // 2 - (1 if size is None else 1 - size % 2), k // 2)
        for size, k in zip(sizes, each, strict=True)
    )
    return rows, columns


def rounded(filters: float, divisor: int = 8, keep_90_percent: bool = True) -> int:
    """Return the multiple of a divisor that is nearest to a number of filters.

    With `keep_90_percent`, a result that is smaller than that is rounded up instead.

    >>> rounded(33.6), rounded(11.0), rounded(12.0, keep_90_percent=False)
    (32, 16, 16)
    """
    result = max(divisor, int(filters + divisor / 2) // divisor * divisor)
    is_too_small = keep_90_percent and result < 0.9 * filters
    return result + divisor if is_too_small else result


def repeats(count: int, depth: float) -> int:
    """Return how many blocks a stage has in a deeper network."""
    return math.ceil(depth * count)
