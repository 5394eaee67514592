"""`ops.image` against Keras: values, types, shapes of Keras tensors, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ganglion
from ganglion import config, ops
from ganglion.compiler.ir.gradient import gradients
from ganglion.compiler.ir.graph import Input, evaluate
from ganglion.variables import Scope

pytestmark = pytest.mark.rivals

RNG = np.random.default_rng(5)
IMAGES = RNG.random((2, 7, 9, 3), "float32")
BYTES = RNG.integers(0, 256, (2, 7, 9, 3)).astype("uint8")
SINGLE = IMAGES[0]
FIRST = IMAGES.transpose(0, 3, 1, 2).copy()
LARGE = RNG.random((2, 16, 14, 2), "float32")
TRANSFORMS = np.array(
    [[0.9, 0.1, 0.4, -0.2, 1.1, -0.31, 0, 0], [1, 0, 2, 0, 1, -1, 0, 0]], "float32"
)
PROJECTIVE = TRANSFORMS + np.array([0, 0, 0, 0, 0, 0, 0.01, -0.02], "float32")
CORNERS = np.array([[0, 0], [8, 0], [0, 6], [8, 6]], "float32")
MOVED = CORNERS + RNG.random((2, 4, 2), "float32") * 1.5
PLACES = RNG.random((2, 3, 4), "float32") * 12 - 3
NUMBERS = np.arange(20, dtype="float32").reshape(4, 5)

INTERPOLATIONS = ("bilinear", "nearest", "bicubic", "lanczos3", "lanczos5", "area")
CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    *(
        ("resize", (x, size), {"interpolation": name, "antialias": antialias})
        for name in INTERPOLATIONS
        for antialias in (False, True)
        for x, size in ((IMAGES, (4, 13)), (BYTES, (10, 5)))
        if not (name == "area" and antialias)
    ),
    ("resize", (SINGLE, (3, 8)), {}),
    ("resize", (SINGLE, [3, 8]), {"crop_to_aspect_ratio": True}),
    ("resize", (IMAGES, (8, 8)), {"crop_to_aspect_ratio": True}),
    ("resize", (IMAGES, (12, 6)), {"pad_to_aspect_ratio": True, "fill_value": 0.5}),
    ("resize", (SINGLE, (3, 8)), {"pad_to_aspect_ratio": True}),
    ("resize", (FIRST, (4, 4)), {"data_format": "channels_first"}),
    (
        "resize",
        (FIRST[0], (4, 9)),
        {"data_format": "channels_first", "pad_to_aspect_ratio": True},
    ),
    *(
        ("affine_transform", (IMAGES, matrix), {"fill_mode": mode, "fill_value": 0.3})
        for matrix in (TRANSFORMS, TRANSFORMS[0], PROJECTIVE)
        for mode in ("constant", "nearest", "reflect")
    ),
    ("affine_transform", (SINGLE, TRANSFORMS[0]), {"interpolation": "nearest"}),
    ("affine_transform", (FIRST, TRANSFORMS), {"data_format": "channels_first"}),
    ("perspective_transform", (IMAGES, CORNERS + MOVED * 0, MOVED), {}),
    ("perspective_transform", (SINGLE, CORNERS, MOVED[1]), {"fill_value": 0.5}),
    (
        "perspective_transform",
        (FIRST, MOVED, CORNERS + MOVED * 0),
        {"interpolation": "nearest", "data_format": "channels_first"},
    ),
    *(
        ("map_coordinates", (x, PLACES, order), {"fill_mode": mode, "fill_value": 2})
        for x in (NUMBERS, NUMBERS.astype("int32"))
        for order in (0, 1)
        for mode in ("constant", "nearest", "wrap")
    ),
    ("map_coordinates", (NUMBERS[0], PLACES[:1], 1), {}),
    ("map_coordinates", (IMAGES[0], RNG.random((3, 5), "float32") * 2, 1), {}),
    ("gaussian_blur", (IMAGES,), {"data_format": "channels_last"}),
    (
        "gaussian_blur",
        (SINGLE, (5, 5), (0.7, 2.0)),
        {"data_format": "channels_last"},
    ),
    ("gaussian_blur", (FIRST, (3, 3)), {"data_format": "channels_first"}),
    ("extract_patches", (IMAGES, 3), {}),
    ("extract_patches", (IMAGES, (2, 3), (1, 2)), {"padding": "same"}),
    ("extract_patches", (SINGLE, (2, 2), 1), {"dilation_rate": 2}),
    ("extract_patches", (FIRST, (2, 3), 2), {"data_format": "channels_first"}),
    ("extract_patches", (LARGE.reshape(2, 4, 4, 7, 4), (2, 2, 3)), {}),
    ("extract_patches_3d", (LARGE.reshape(2, 4, 4, 7, 4), 2), {}),
    (
        "extract_patches_3d",
        (LARGE.reshape(2, 4, 4, 7, 4)[0], (2, 3, 2), (1, 1, 2)),
        {"padding": "same"},
    ),
    ("crop_images", (IMAGES, 1, 2, 3, 1), {}),
    ("crop_images", (SINGLE, 1), {"right_cropping": 2, "target_height": 4,
                                  "target_width": 3}),
    ("crop_images", (FIRST, 0, 0, 1, 1), {"data_format": "channels_first"}),
    ("pad_images", (IMAGES, 1, 2, 3, 1), {}),
    ("pad_images", (SINGLE,), {"bottom_padding": 2, "right_padding": 0,
                               "target_height": 12, "target_width": 10}),
    ("pad_images", (FIRST, 0, 0, 1, 1), {"data_format": "channels_first"}),
    *(
        (name, (x,), {"data_format": layout})
        for name in ("rgb_to_grayscale", "rgb_to_hsv", "hsv_to_rgb")
        for x, layout in ((IMAGES, None), (SINGLE, None), (FIRST, "channels_first"))
    ),
    ("rgb_to_grayscale", (BYTES,), {}),
    ("rgb_to_grayscale", (BYTES[..., :1],), {}),
    ("rgb_to_hsv", ((BYTES // 64 / 4).astype("float32"),), {}),
    *(
        (
            "scale_and_translate",
            (
                IMAGES,
                (2, 5, 11, 3),
                np.array([0.6, 1.3], "float32"),
                np.array([0.2, -1.0], "float32"),
                (1, 2),
                method,
            ),
            {"antialias": antialias},
        )
        for method in ("linear", "cubic", "lanczos3", "lanczos5")
        for antialias in (True, False)
    ),
    ("sobel_edges", (IMAGES,), {}),
    ("sobel_edges", (FIRST,), {"data_format": "channels_first"}),
    ("ssim", (LARGE, LARGE[::-1].copy()), {}),
    ("ssim", (LARGE[0], LARGE[1]), {"max_val": 2.0, "filter_size": 5}),
    (
        "ssim",
        (LARGE.transpose(0, 3, 1, 2), LARGE[::-1].transpose(0, 3, 1, 2)),
        {"filter_size": 7, "filter_sigma": 1.0, "data_format": "channels_first"},
    ),
]  # fmt: skip


def test_the_same_numbers_as_keras(keras: Any) -> None:
    for name, args, kwargs in CALLS:
        ours = getattr(ops.image, name)(*args, **kwargs)
        theirs = getattr(keras.ops.image, name)(*args, **kwargs)
        theirs = keras.ops.convert_to_numpy(theirs)
        told = f"{name}{[np.shape(x) for x in args]} {kwargs}"
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape), told
        is_whole = ours.dtype.kind in "iu"
        # TensorFlow looks the weights of its bicubic up in a table of 1,024.
        atol = 1e-3 if kwargs.get("interpolation") == "bicubic" else 3e-5
        np.testing.assert_allclose(
            ours.astype("float64"), theirs, atol=is_whole or atol, rtol=1e-4,
            err_msg=told,
        )  # fmt: skip
        if is_whole:
            assert np.mean(ours != theirs) < 0.05, told


@pytest.mark.parametrize("mode", ["constant", "nearest", "reflect", "mirror"])
@pytest.mark.parametrize("order", [0, 1])
def test_coordinates_mean_what_scipy_says(mode: str, order: int) -> None:
    ndimage = pytest.importorskip("scipy.ndimage")
    far = PLACES * 2 + 0.03
    theirs = ndimage.map_coordinates(NUMBERS, far, order=order, mode=mode)
    if mode == "constant":  # SciPy does not mix the constant with the border
        inside = ((far >= 0) & (far <= np.array([3, 4]).reshape(2, 1, 1))).all(0)
        far, theirs = far[:, inside], theirs[inside]
    ours = ops.image.map_coordinates(NUMBERS, far, order, mode)
    np.testing.assert_allclose(ours, theirs, atol=1e-4)


def test_smart_resize_is_that_of_keras(keras: Any) -> None:
    from ganglion.utils.images import smart_resize as ours

    theirs = keras.preprocessing.image.smart_resize
    for x, size, name in (
        (BYTES, (5, 5), "bilinear"),
        (BYTES[0], (12, 4), "nearest"),
        (IMAGES, (3, 9), "bilinear"),
    ):
        mine, other = ours(x, size, name), theirs(x, size, name)
        assert mine.dtype == other.dtype
        np.testing.assert_allclose(mine, other, atol=1e-3)
    np.testing.assert_allclose(
        ours(FIRST, (4, 4), data_format="channels_first"),
        theirs(FIRST, (4, 4), data_format="channels_first"),
        atol=1e-5,
    )


SYMBOLIC: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("resize", ((None, None, None, 3), (4, 5)), {}),
    ("resize", ((None, None, 3), (4, 5)), {"pad_to_aspect_ratio": True}),
    ("resize", ((None, 3, None, None), (4, 5)), {"data_format": "channels_first"}),
    ("affine_transform", ((None, 8, 8, 3), (None, 8)), {}),
    ("affine_transform", ((None, None, 3), (8,)), {}),
    ("perspective_transform", ((2, 8, 8, 3), (2, 4, 2), (2, 4, 2)), {}),
    ("gaussian_blur", ((None, 20, 20, 3),), {"data_format": "channels_last"}),
    ("elastic_transform", ((None, 20, 20, 3),), {}),
    ("extract_patches", ((None, 20, None, 3), (5, 5)), {}),
    ("extract_patches", ((20, 20, 3), 5, 3), {"padding": "same"}),
    ("extract_patches_3d", ((None, 20, 20, 20, 1), 5), {}),
    ("map_coordinates", ((20, 20, 3), (3, None, 15), 0), {}),
    ("crop_images", ((None, 15, 25, 3), 2, 3), {"target_height": 10,
                                               "target_width": 20}),
    ("crop_images", ((None, None, None, 3), 2, 3), {"target_height": 10,
                                                   "target_width": 20}),
    ("pad_images", ((None, 15, 25, 3), 2, 3), {"target_height": 20,
                                              "target_width": 30}),
    ("pad_images", ((None, None, None, 3), 2, 3), {"target_height": 20,
                                                  "target_width": 30}),
    ("rgb_to_grayscale", ((None, None, 3),), {}),
    ("rgb_to_hsv", ((None, None, None, 3),), {}),
    ("hsv_to_rgb", ((3, None, None),), {"data_format": "channels_first"}),
    ("scale_and_translate", ((5, None, 4), (5, 8, 4), (1,), (1,), (1,), "linear"), {}),
    ("sobel_edges", ((None, 8, 9, 3),), {}),
    ("ssim", ((None, 16, 16, 3), (None, 16, 16, 3)), {}),
]  # fmt: skip
SHAPED = {"affine_transform": 2, "perspective_transform": 3, "map_coordinates": 2,
          "ssim": 2}  # fmt: skip


def test_keras_tensors_have_the_same_shapes(keras: Any) -> None:
    for name, args, kwargs in SYMBOLIC:
        got = []
        for room in (ganglion, keras):
            tensors = list(args)
            places = range(SHAPED.get(name, 1))
            for place in (0, 2, 3) if name == "scale_and_translate" else places:
                tensors[place] = room.KerasTensor(args[place], dtype="float32")
            result = getattr(room.ops.image, name)(*tensors, **kwargs)
            got.append((tuple(result.shape), str(result.dtype)))
        assert got[0] == got[1], (name, args)


REFUSED: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    ("resize", (IMAGES, (1, 2, 3)), {}, "2 integers"),
    ("resize", (IMAGES, (0, 2)), {}, "positive"),
    ("resize", (IMAGES[0, 0], (2, 2)), {}, "rank"),
    ("resize", (IMAGES, (2, 2), "cubist"), {}, "cubist"),
    ("resize", (IMAGES, (2, 2)), {"fill_mode": "wrap"}, "fill_mode"),
    (
        "resize",
        (IMAGES, (2, 2)),
        {"crop_to_aspect_ratio": True, "pad_to_aspect_ratio": True},
        "Only one",
    ),
    ("affine_transform", (IMAGES, TRANSFORMS[None]), {}, "transform rank"),
    ("affine_transform", (IMAGES, TRANSFORMS), {"fill_mode": "odd"}, "fill_mode"),
    ("perspective_transform", (IMAGES, CORNERS[:3], CORNERS[:3]), {}, "start_points"),
    ("map_coordinates", (NUMBERS, PLACES[:1], 1), {}, "First dim"),
    ("pad_images", (IMAGES, 1, 1, 1), {}, "exactly two"),
    ("pad_images", (IMAGES, -1, 1, 1, 1), {}, "top_padding"),
    ("crop_images", (IMAGES, 1, 1, 1), {}, "exactly two"),
    ("rgb_to_grayscale", (IMAGES[..., :2],), {}, "channel"),
    ("rgb_to_hsv", (BYTES,), {}, "float"),
    ("extract_patches", (IMAGES, (1, 2, 3, 4)), {}, "length 2 or 3"),
    ("scale_and_translate", (IMAGES, (2, 2), 1, 1, (1,), "odd"), {}, "method"),
]


@pytest.mark.parametrize(("name", "args", "kwargs", "words"), REFUSED)
def test_what_does_not_fit_is_refused_in_words(
    keras: Any, name: str, args: Any, kwargs: Any, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        getattr(ops.image, name)(*args, **kwargs)
    with pytest.raises(Exception, match=words):
        getattr(keras.ops.image, name)(*args, **kwargs)


SMOOTH: list[tuple[str, Any]] = [
    ("resize", lambda image, x: image.resize(x, (5, 12), "bicubic", True)),
    ("affine", lambda image, x: image.affine_transform(x, TRANSFORMS)),
    ("coordinates", lambda image, x: image.map_coordinates(x[0, :4, :5, 0], PLACES, 1)),
    ("positions", lambda image, x: image.map_coordinates(NUMBERS, x[0, :2] * 3, 1)),
    ("blur", lambda image, x: image.gaussian_blur(x, (5, 5), (1.0, 2.0), LAST)),
    ("patches", lambda image, x: image.extract_patches(x, 3, 2, padding="same")),
    ("hsv", lambda image, x: image.rgb_to_hsv(x)),
    ("rgb", lambda image, x: image.hsv_to_rgb(x)),
    ("sobel", lambda image, x: image.sobel_edges(x)),
    ("ssim", lambda image, x: image.ssim(x, x[:, ::-1], filter_size=5)),
    ("pad", lambda image, x: image.pad_images(x, 1, 2, 3, 1)),
]
LAST = "channels_last"


class Everything(ganglion.layers.Layer):
    """All of `SMOOTH`, and what has no gradient, one after the other."""

    def call(self, x: Any) -> Any:
        parts = [function(ops.image, x) for _, function in SMOOTH]
        parts.append(ops.image.perspective_transform(x, CORNERS, MOVED[1]))
        parts.append(ops.image.resize(x * 255.0, (9, 5), "nearest"))
        return ops.concatenate([ops.ravel(part) for part in parts])


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_compiled_it_is_the_same(backend: str) -> None:
    direct = np.asarray(Everything()(IMAGES))
    before = config.backend()
    try:
        config.set_backend(backend)
        model = ganglion.Sequential([ganglion.Input((7, 9, 3), 2), Everything()])
        compiled = model.predict_on_batch(IMAGES)
    finally:
        config.set_backend(before)
    np.testing.assert_allclose(compiled, direct, atol=3e-5, rtol=1e-4)


def test_gradients_are_those_of_tensorflow(keras: Any) -> None:
    import tensorflow as tf

    for name, function in SMOOTH:
        x = Input("x", IMAGES.shape, "float32")
        with Scope():
            outputs = function(ops.image, x)
            factor = RNG.random(outputs.shape, "float32")
            slope = gradients(ops.sum(outputs * factor), [x])[x]
        ours, values = evaluate([slope, outputs], {x: IMAGES})
        if name == "affine":  # TensorFlow's is a guess: it samples by the inverse map
            assert np.isclose(np.sum(values * factor), np.sum(IMAGES * ours))
            continue
        if name == "rgb":  # TensorFlow has none
            continue
        with tf.GradientTape() as tape:
            tensor = tf.Variable(IMAGES)
            loss = tf.reduce_sum(function(keras.ops.image, tensor) * factor)
        theirs = tf.convert_to_tensor(tape.gradient(loss, tensor)).numpy()
        np.testing.assert_allclose(ours, theirs, atol=2e-4, rtol=1e-3, err_msg=name)


def test_models_of_these_ops_go_to_keras_and_back(keras: Any, tmp_path: Any) -> None:
    def model(room: Any) -> Any:
        inputs, image = room.Input((7, 9, 3)), room.ops.image
        outputs = [
            image.resize(inputs, (4, 4), antialias=True),
            image.rgb_to_hsv(inputs),
            image.extract_patches(inputs, 3, padding="same"),
            image.crop_images(inputs, 1, target_height=4, left_cropping=0,
                              right_cropping=2),
            image.ssim(inputs, inputs * 0.5, filter_size=5),
        ]  # fmt: skip
        return room.Model(inputs, outputs)

    for room, other in ((ganglion, keras), (keras, ganglion)):
        made = model(room)
        made.save(tmp_path / "images.keras")
        loaded = other.models.load_model(tmp_path / "images.keras")
        pairs = zip(made(IMAGES), loaded(IMAGES), strict=True)
        for before, after in pairs:
            np.testing.assert_allclose(before, after, atol=1e-5)
