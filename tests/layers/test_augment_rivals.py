"""Augmentation against Keras and SciPy: the same parameters, the same pixels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ganglion import layers

pytestmark = [pytest.mark.rivals]

FILLS = ("nearest", "constant", "reflect", "wrap")
IMAGES = np.random.default_rng(3).integers(0, 256, (5, 9, 12, 3)).astype("float32")
CLOSE = 255 * 2e-5  # coordinates are float32, here and there


def both(name: str, keras: Any, **arguments: Any) -> tuple[Any, Any]:
    return getattr(layers, name)(**arguments), getattr(keras.layers, name)(**arguments)


def arrays(drawn: Any) -> Any:
    """Return drawn parameters as Keras takes them."""
    if isinstance(drawn, dict):
        return {key: arrays(item) for key, item in drawn.items()}
    if isinstance(drawn, tuple):
        return tuple(arrays(item) for item in drawn)
    return np.asarray(drawn) if hasattr(drawn, "dtype") else drawn


def check(name: str, keras: Any, atol: float = CLOSE, **arguments: Any) -> np.ndarray:
    """Draw with our layer, and change the same images with both."""
    ours, theirs = both(name, keras, seed=11, **arguments)
    drawn = arrays(ours.get_random_transformation(IMAGES, training=True))
    mine = np.asarray(ours.transform_images(IMAGES, drawn, training=True))
    other = theirs.transform_images(IMAGES, drawn, training=True)
    other = np.asarray(keras.ops.convert_to_numpy(other))
    assert mine.dtype == other.dtype
    np.testing.assert_allclose(mine, other, rtol=0, atol=atol)
    assert mine.shape != IMAGES.shape or not np.allclose(mine, IMAGES)
    # What is drawn in a call is what `get_random_transformation` draws.
    again = getattr(layers, name)(seed=11, **arguments)
    np.testing.assert_array_equal(again(IMAGES, training=True), mine)
    return mine


MOVING: list[tuple[str, dict[str, Any]]] = [
    ("RandomZoom", {"height_factor": 0.4}),
    ("RandomZoom", {"height_factor": (-0.5, 0.5), "width_factor": (0.1, 0.6)}),
    ("RandomTranslation", {"height_factor": 0.4, "width_factor": (-0.2, 0.9)}),
    ("RandomRotation", {"factor": 0.3}),
    ("RandomRotation", {"factor": (0.1, 0.2)}),
    ("RandomShear", {"x_factor": 0.4, "y_factor": 0.2}),
    ("RandomShear", {"x_factor": (0.1, 0.5)}),
]


@pytest.mark.parametrize("fill_mode", FILLS)
@pytest.mark.parametrize(("name", "arguments"), MOVING)
def test_bilinear_equals_keras(
    name: str, arguments: dict[str, Any], fill_mode: str, keras: Any, monkeypatch: Any
) -> None:
    if fill_mode == "wrap":  # TensorFlow's does not interpolate across the edge
        as_numpy(keras, monkeypatch)
    check(name, keras, fill_mode=fill_mode, fill_value=7.0, **arguments)


@pytest.mark.parametrize("fill_mode", FILLS)
@pytest.mark.parametrize(
    "name", ["RandomZoom", "RandomTranslation", "RandomRotation", "RandomShear"]
)
def test_nearest_equals_keras(
    name: str, fill_mode: str, keras: Any, monkeypatch: Any
) -> None:
    arguments = next(arguments for item, arguments in MOVING if item == name)
    as_numpy(keras, monkeypatch)
    check(name, keras, fill_mode=fill_mode, interpolation="nearest", **arguments)


def as_numpy(keras: Any, monkeypatch: Any) -> None:
    """Let Keras' layers move pixels as they do on its NumPy backend."""
    backend = keras.src.backend
    own = backend.numpy  # the import below puts a package of this name in its place
    from keras.src.backend.numpy import image as plain

    backend.numpy = own
    image = backend.image

    def affine(images: Any, transform: Any, **more: Any) -> Any:
        images, transform = np.asarray(images), np.asarray(transform, "float32")
        return plain.affine_transform(images, transform, **more)

    monkeypatch.setattr(image, "affine_transform", affine)


@pytest.mark.parametrize("mode", ["horizontal", "vertical", "horizontal_and_vertical"])
def test_flips_equal_keras(mode: str, keras: Any) -> None:
    result = check("RandomFlip", keras, atol=0, mode=mode)
    same = [np.array_equal(item, two) for item, two in zip(result, IMAGES, strict=True)]
    assert 0 < sum(same) < len(IMAGES)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("RandomContrast", {"factor": 0.7}),
        ("RandomContrast", {"factor": (0.3, 0.9), "value_range": (20, 200)}),
        ("RandomBrightness", {"factor": 0.4}),
        ("RandomBrightness", {"factor": (0.2, 0.4), "value_range": (0, 300)}),
        ("RandomErasing", {"fill_value": 9.0}),
        ("RandomErasing", {"fill_value": [1.0, 2.0, 3.0], "scale": (0.1, 0.3)}),
        ("RandomErasing", {"factor": (0.9, 1.0)}),
        ("RandomCrop", {"height": 5, "width": 7}),
        ("RandomCrop", {"height": 20, "width": 7}),
    ],
)
def test_colours_and_crops_equal_keras(
    name: str, arguments: dict[str, Any], keras: Any
) -> None:
    check(name, keras, **arguments)


SIZES: list[tuple[str, dict[str, Any]]] = [
    ("Resizing", {"height": 6, "width": 20}),
    ("Resizing", {"height": 6, "width": 20, "interpolation": "nearest"}),
    ("Resizing", {"height": 6, "width": 20, "crop_to_aspect_ratio": True}),
    (
        "Resizing",
        {"height": 6, "width": 20, "pad_to_aspect_ratio": True, "fill_value": 0},
    ),
    ("Resizing", {"height": 5, "width": 5, "antialias": True}),
    ("Resizing", {"height": 12, "width": 5, "interpolation": "lanczos3"}),
    ("Resizing", {"height": 5, "width": 5, "interpolation": "lanczos5"}),
    ("Resizing", {"height": 12, "width": 14, "interpolation": "bicubic"}),
    ("CenterCrop", {"height": 4, "width": 5}),
    ("CenterCrop", {"height": 14, "width": 5}),
]


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
@pytest.mark.parametrize(("name", "arguments"), SIZES)
def test_sizes_equal_keras(
    name: str, arguments: dict[str, Any], dtype: str, keras: Any
) -> None:
    ours, theirs = both(name, keras, **arguments)
    images = IMAGES.astype(dtype)
    mine, other = ours(images), np.asarray(theirs(images))
    assert mine.dtype == other.dtype
    coarse = arguments.get("interpolation", "") in ("bicubic", "lanczos3", "lanczos5")
    # TensorFlow reads these kernels off a table, and cuts them off at the edges.
    atol = 255 * 2e-2 if coarse else CLOSE
    atol = max(atol, 1.0) if dtype == "uint8" else atol
    np.testing.assert_allclose(mine.astype(float), other.astype(float), atol=atol)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        *MOVING,
        *SIZES,
        ("RandomFlip", {"mode": "vertical", "seed": 3}),
        ("RandomContrast", {"factor": 0.5}),
        ("RandomBrightness", {"factor": 0.2}),
        ("RandomErasing", {}),
        ("RandomCrop", {"height": 5, "width": 7, "seed": 4}),
    ],
)
def test_configurations_go_both_ways(
    name: str, arguments: dict[str, Any], keras: Any
) -> None:
    ours, theirs = both(name, keras, **arguments)
    remade = type(theirs).from_config(ours.get_config())
    mine = type(ours).from_config(theirs.get_config())
    own = {k: v for k, v in ours.get_config().items() if k not in ("seed", "name")}
    back = {k: v for k, v in mine.get_config().items() if k not in ("seed", "name")}
    assert set(own) == set(theirs.get_config()) - {"seed", "name"}
    if name != "RandomShear":  # Keras keeps -f and f there, and cannot read them back
        assert own == back
    assert remade.get_config()["name"] == ours.name
