"""The networks of `keras.applications`: layers, weights and outputs beside Keras."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import ganglion
from ganglion import applications

# The smallest of each family, and the least images they take here.
SIZES = {
    "VGG16": 32,
    "ResNet50": 32,
    "ResNet50V2": 32,
    "DenseNet121": 32,
    "Xception": 71,
    "InceptionV3": 75,
    "InceptionResNetV2": 75,
    "MobileNet": 32,
    "MobileNetV2": 32,
    "MobileNetV3Small": 32,
    "EfficientNetB0": 32,
    "EfficientNetV2B0": 32,
    "ConvNeXtTiny": 32,
    "NASNetMobile": 32,
}
PARAMETERS = {
    "VGG16": 138_357_544,
    "ResNet50": 25_636_712,
    "ResNet50V2": 25_613_800,
    "DenseNet121": 8_062_504,
    "MobileNet": 4_253_864,
    "MobileNetV2": 3_538_984,
    "MobileNetV3Small": 2_554_968,
    "EfficientNetB0": 5_330_571,
    "ConvNeXtTiny": 28_589_128,
}
EVERY = [name for names in applications.MODULES.values() for name in names]
QUICK = ("MobileNetV2", "MobileNetV3Small")  # compared with Keras in every run


def sampled(names, always):
    return [
        name if name in always else pytest.param(name, marks=pytest.mark.more)
        for name in names
    ]


def small(room, name, **options):
    side = SIZES.get(name, 75)
    build = getattr(room.applications, name)
    return build(weights=None, input_shape=(side, side, 3), **options)


@pytest.mark.parametrize(
    "name", sampled(PARAMETERS, ("ResNet50", "DenseNet121", "EfficientNetB0"))
)
def test_parameters_as_published(name):
    assert getattr(applications, name)(weights=None).count_params() == PARAMETERS[name]


@pytest.mark.rivals
@pytest.mark.parametrize("name", sampled(EVERY, QUICK))
def test_layers_and_weights_are_those_of_keras(keras, name):
    for room in (keras, ganglion):
        room.utils.clear_session()
    theirs, ours = (small(room, name, classes=10) for room in (keras, ganglion))
    assert [layer.name for layer in ours.layers] == [x.name for x in theirs.layers]
    assert ours.name == theirs.name
    assert ours.output_shape == theirs.output_shape
    shapes = [tuple(weight.shape) for weight in theirs.weights]
    assert [weight.shape for weight in ours.weights] == shapes
    if not name.startswith("NASNet"):  # whose cells are name scopes there
        paths = [weight.path for weight in theirs.weights]
        assert [weight.path for weight in ours.weights] == paths


@pytest.mark.rivals
@pytest.mark.parametrize("name", EVERY)
def test_signatures_are_those_of_keras(keras, name):
    ours, theirs = (
        [(p.name, p.default) for p in inspect.signature(function).parameters.values()]
        for function in (getattr(applications, name), getattr(keras.applications, name))
    )
    assert ours == theirs


@pytest.mark.rivals
@pytest.mark.parametrize("name", sampled(SIZES, ("MobileNetV2",)))
def test_outputs_from_equal_weights_and_files(keras, name, tmp_path):
    options = {"classes": 7, "classifier_activation": None}
    theirs, ours = (small(room, name, **options) for room in (keras, ganglion))
    rng = np.random.default_rng(0)
    values = [_drawn(rng, weight) for weight in theirs.weights]
    theirs.set_weights(values)
    ours.set_weights(values)
    x = rng.uniform(0, 255, (1, *theirs.input_shape[1:])).astype("float32")
    right = np.asarray(theirs(x))
    size = np.abs(right).max()
    np.testing.assert_allclose(ours(x), right, atol=2e-5 * size)
    path = tmp_path / "keras.weights.h5"
    theirs.save_weights(path)
    again = getattr(applications, name)(
        weights=path, input_shape=theirs.input_shape[1:], **options
    )
    np.testing.assert_allclose(again(x), right, atol=2e-5 * size)


def _drawn(rng, weight):
    if "variance" in weight.path:
        return rng.uniform(0.5, 1, weight.shape).astype("float32")
    inputs = max(np.prod(weight.shape[:-1]), 1)
    return (rng.normal(size=weight.shape) / np.sqrt(inputs)).astype("float32")


@pytest.mark.parametrize("pooling", [None, "avg", "max"])
def test_features_without_a_top(pooling):
    base = small(ganglion, "MobileNetV2", include_top=False, pooling=pooling)
    assert base.output_shape == ((None, 1280) if pooling else (None, 1, 1, 1280))


def test_a_model_of_ones_own_starts_from_features():
    inputs = ganglion.Input((32, 32, 3))
    base = applications.MobileNet(
        alpha=0.25, include_top=False, weights=None, input_tensor=inputs, pooling="avg"
    )
    base.trainable = False
    model = ganglion.Model(inputs, ganglion.layers.Dense(2)(base.output))
    model.compile("sgd", "mse")
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 255, (4, 32, 32, 3)).astype("float32")
    losses = model.fit(x, np.ones((4, 2)), epochs=2, verbose=0).history["loss"]
    assert np.isfinite(losses).all()
    assert len(model.trainable_variables) == 2


@pytest.mark.rivals
@pytest.mark.parametrize("mode", ["caffe", "tf", "torch"])
@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
def test_pixels(keras, mode, data_format):
    x = np.random.default_rng(0).uniform(0, 255, (2, 3, 4, 3)).astype("float32")
    x = x if data_format == "channels_last" else x.transpose(0, 3, 1, 2).copy()
    theirs = keras.applications.imagenet_utils.preprocess_input
    right = theirs(x.copy(), data_format, mode)
    ours = applications.imagenet_utils.preprocess_input
    np.testing.assert_allclose(ours(x, data_format, mode), right, rtol=1e-5, atol=1e-4)
    symbolic = ours(ganglion.Input(x.shape[1:]), data_format, mode)
    assert symbolic.shape == (None, *x.shape[1:])


def test_modules_have_keras_names():
    from ganglion.applications import resnet50
    from ganglion.applications.vgg16 import VGG16, decode_predictions, preprocess_input

    assert applications.VGG16 is VGG16
    assert resnet50.ResNet50 is applications.resnet.ResNet50
    assert preprocess_input(np.zeros((1, 1, 1, 3))).shape == (1, 1, 1, 3)
    with pytest.raises(ValueError, match="1000"):
        decode_predictions(np.ones((2, 10)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": "no such file"}, "path of a file"),
        ({"weights": "imagenet", "classes": 10}, "classes"),
        ({"weights": None, "input_shape": (16, 16, 3)}, "at least 32x32"),
        ({"weights": None, "input_shape": (32, 32)}, "three numbers"),
        ({"weights": None, "pooling": "mean"}, "pooling"),
        ({"weights": None, "input_shape": (None, None, 3)}, "must be known"),
        ({"weights": "imagenet", "classifier_activation": "relu"}, "softmax"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        applications.VGG16(**options)


def test_weights_that_cannot_be_fetched(monkeypatch):
    from ganglion.applications import frame

    def unreachable(*_, **__):
        raise OSError("no network")

    monkeypatch.setattr("ganglion.utils.get_file", unreachable)
    with pytest.raises(OSError, match=r"weights='FILE\.h5'"):
        frame.WeightFile("folder", "name.h5").fetched()
