"""`ImageDataGenerator` against Keras' own and SciPy: the same parameters and pixels."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from ganglion.compat.image_generator import ImageDataGenerator, apply_affine_transform
from ganglion.compat.image_generator import apply_brightness_shift as brighten
from ganglion.compat.image_generator import apply_channel_shift as shift_channels

pytestmark = [
    pytest.mark.rivals,
    pytest.mark.filterwarnings("ignore:Please import:DeprecationWarning"),
]

IMAGE = np.random.default_rng(4).integers(0, 256, (9, 9, 3)).astype("float32")
WIDE = np.random.default_rng(5).integers(0, 256, (7, 12, 3)).astype("float32")
FILLS = ("nearest", "constant", "reflect", "wrap")
CLOSE = 255 * 2e-5
PARAMETERS: list[dict[str, Any]] = [
    {},
    {"zx": 0.6, "zy": 1.4},
    {"tx": 2.3, "ty": -1.7},
    {"theta": 33.0},
    {"shear": 25.0},
    {"theta": -70.0, "tx": 1.2, "ty": 3.4, "shear": 12.0, "zx": 1.2, "zy": 0.7},
    {"flip_horizontal": True},
    {"flip_horizontal": True, "flip_vertical": True, "zx": 0.8, "zy": 0.9},
    {"channel_shift_intensity": 40.0},
    {"channel_shift_intensity": -12.5, "flip_vertical": True, "theta": 5.0},
]


@pytest.fixture
def legacy(keras: Any) -> Any:
    from keras.src.legacy.preprocessing import image

    pytest.importorskip("scipy")
    return image


@pytest.mark.parametrize("fill_mode", FILLS)
@pytest.mark.parametrize(
    "parameters", PARAMETERS, ids=lambda names: "-".join(names) or "none"
)
@pytest.mark.parametrize("image", [IMAGE, WIDE], ids=["square", "wide"])
@pytest.mark.parametrize("order", [0, 1], ids=["nearest", "bilinear"])
def test_transforms_equal_keras(
    parameters: dict[str, Any],
    fill_mode: str,
    image: np.ndarray,
    order: int,
    legacy: Any,
) -> None:
    settings = {"fill_mode": fill_mode, "cval": 7.0, "interpolation_order": order}
    theirs = legacy.ImageDataGenerator(**settings).apply_transform(
        image.copy(), parameters
    )
    ours = ImageDataGenerator(**settings).apply_transform(image, parameters)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=CLOSE)


def test_affine_maps_equal_scipy() -> None:
    ndimage = pytest.importorskip("scipy.ndimage")
    zoom = np.diag([1.3, 0.8])
    centre = np.array([4.0, 4.0])
    expected = ndimage.affine_transform(
        IMAGE[..., 0], zoom, centre - zoom @ centre, order=1, mode="nearest"
    )
    ours = apply_affine_transform(IMAGE, 0, 0, 0, 0, 0.8, 1.3, 0, 1, 2)
    np.testing.assert_allclose(ours[..., 0], expected, rtol=0, atol=CLOSE)


@pytest.mark.parametrize("axes", [(0, 1, 2), (1, 2, 0)])
def test_channels_first_and_last_equal_keras(
    axes: tuple[int, ...], legacy: Any
) -> None:
    row, column, channel = axes
    image = np.moveaxis(WIDE, (0, 1, 2), axes).copy()
    parameters = {
        "theta": 12.0,
        "tx": 1.5,
        "ty": -0.5,
        "shear": 8.0,
        "zx": 0.8,
        "zy": 1.1,
    }
    how = {"row_axis": row, "col_axis": column, "channel_axis": channel}
    theirs = legacy.apply_affine_transform(image.copy(), **parameters, **how)
    ours = apply_affine_transform(image, **parameters, **how)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=CLOSE)
    theirs = legacy.apply_channel_shift(image.copy(), 40.0, channel)
    np.testing.assert_allclose(shift_channels(image, 40.0, channel), theirs, atol=CLOSE)


@pytest.mark.parametrize("factor", [0.3, 1.0, 1.7])
def test_brightness_equals_keras(factor: float, legacy: Any) -> None:
    pytest.importorskip("PIL")
    for image in (IMAGE, IMAGE + 0.4, IMAGE - 60):
        theirs = legacy.apply_brightness_shift(image.copy(), factor, False)
        np.testing.assert_allclose(brighten(image, factor, False), theirs, atol=1e-3)
    theirs = legacy.apply_brightness_shift(IMAGE.copy(), factor)
    np.testing.assert_allclose(brighten(IMAGE, factor), theirs, atol=1.0)


@pytest.mark.parametrize(
    "settings",
    [
        {"zoom_range": 0.5, "horizontal_flip": True},
        {"rotation_range": 20, "zoom_range": (0.8, 1.1)},
        {"width_shift_range": 0.2, "height_shift_range": 3},
        {"width_shift_range": [-2, 0, 1], "shear_range": 10.0, "vertical_flip": True},
        {"channel_shift_range": 30.0, "brightness_range": (0.5, 1.5)},
    ],
)
def test_a_seed_draws_what_keras_draws(settings: dict[str, Any], legacy: Any) -> None:
    ours, theirs = ImageDataGenerator(**settings), legacy.ImageDataGenerator(**settings)
    for seed in (1, 2, 3):
        mine = ours.get_random_transform(IMAGE.shape, seed)
        other = theirs.get_random_transform(IMAGE.shape, seed)
        assert mine == other
    if "brightness_range" not in settings:
        transformed = theirs.random_transform(IMAGE.copy(), seed=5)
        mine = ours.random_transform(IMAGE, seed=5)
        np.testing.assert_allclose(mine, transformed, rtol=0, atol=CLOSE)


@pytest.mark.parametrize(
    "settings",
    [
        {"rescale": 1 / 255},
        {"samplewise_center": True, "samplewise_std_normalization": True},
        {"featurewise_center": True, "featurewise_std_normalization": True},
        {"zca_whitening": True, "rescale": 1 / 255},
        {"preprocessing_function": lambda x: x + 1, "samplewise_center": True},
    ],
)
def test_standardizing_equals_keras(settings: dict[str, Any], legacy: Any) -> None:
    images = np.random.default_rng(6).uniform(0, 255, (20, 4, 5, 3)).astype("float32")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        ours = ImageDataGenerator(**settings)
        theirs = legacy.ImageDataGenerator(**settings)
    ours.fit(images)
    theirs.fit(images)
    for sample in (images[0], images[:3]):
        mine, other = ours.standardize(sample.copy()), theirs.standardize(sample.copy())
        scale = float(np.abs(other).max())
        np.testing.assert_allclose(mine, other, rtol=0, atol=2e-4 * scale)


def test_an_argument_is_as_in_keras(legacy: Any) -> None:
    import inspect

    names = "flow flow_from_directory fit apply_transform random_transform "
    names += "get_random_transform standardize"
    for name in (None, *names.split()):
        pair = (ImageDataGenerator, legacy.ImageDataGenerator)
        mine, other = (
            inspect.signature(function if name is None else getattr(function, name))
            for function in pair
        )
        assert [(p.name, p.default) for p in mine.parameters.values()] == [
            (p.name, p.default) for p in other.parameters.values()
        ]


def test_folders_are_read_as_by_keras(legacy: Any, tmp_path: Any) -> None:
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(7)
    for kind in ("cat", "dog"):
        (tmp_path / kind).mkdir()
        for number in range(5):
            pixels = rng.integers(0, 256, (10, 12, 3)).astype("uint8")
            image.fromarray(pixels).save(tmp_path / kind / f"{number}.png")
    arguments = {"target_size": (6, 8), "batch_size": 4, "shuffle": False}
    for more in ({}, {"class_mode": "binary"}, {"subset": "validation"}):
        pair = [
            generator(rescale=1 / 255, validation_split=0.4).flow_from_directory(
                str(tmp_path), **arguments, **more
            )
            for generator in (ImageDataGenerator, legacy.ImageDataGenerator)
        ]
        ours, theirs = pair
        assert ours.filenames == theirs.filenames
        assert ours.class_indices == theirs.class_indices
        for mine, other in zip(ours[0], theirs[0], strict=True):
            np.testing.assert_allclose(mine, other, atol=1e-6)
