"""EfficientNet-Lite0: its shape, its weights, and the original beside it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ganglion import Input, layers
from ganglion.applications import EfficientNetLite0, efficientnet_lite
from ganglion.applications.imagenet import decode_predictions

SMALL = {"weights": None, "input_shape": (32, 32, 3)}


@pytest.fixture
def weights_path():
    try:
        return efficientnet_lite.weights_file()
    except ImportError as error:
        pytest.skip(str(error))


def test_the_parameters_are_those_of_the_original():
    assert EfficientNetLite0(weights=None).count_params() == 4_694_024
    assert EfficientNetLite0(include_top=False, **SMALL).count_params() == 3_413_024


def test_the_ends_are_those_that_were_asked_for():
    top = EfficientNetLite0(classes=7, **SMALL)
    assert top.output_shape == (None, 7)
    assert EfficientNetLite0(False, **SMALL).output_shape == (None, 1, 1, 1280)
    for pooling in ("avg", "max"):
        network = EfficientNetLite0(False, pooling=pooling, **SMALL)
        assert network.output_shape == (None, 1280)
    inner = layers.Rescaling(2.0)(start := Input((64, 64, 3)))
    network = EfficientNetLite0(False, None, input_tensor=inner)
    assert network.output_shape == (None, 2, 2, 1280)
    assert network.inputs[0] is start


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"pooling": "sum"}, "'avg' or 'max'"),
        ({"weights": "imagenet", "classes": 5}, "include_top=False"),
        ({"weights": "imagnet"}, "'imagenet'"),
        ({"weights": None, "input_shape": (32, 32, 1)}, "colours"),
        ({"weights": None, "input_shape": (16, 32, 3)}, "at least 32"),
    ],
)
def test_mistakes_are_named(arguments, match):
    with pytest.raises(ValueError, match=match):
        EfficientNetLite0(**arguments)


def test_without_the_package_the_way_to_it_is_told(monkeypatch):
    monkeypatch.setattr(efficientnet_lite, "PACKAGE", "no_such_package")
    with pytest.raises(ImportError, match=r"ganglion-nn\[pretrained\]"):
        EfficientNetLite0()


def test_weights_of_another_network_are_refused(tmp_path, monkeypatch):
    """A file without a tensor, and one with a tensor of another shape."""
    model = EfficientNetLite0(**SMALL)
    tensors: dict[str, np.ndarray] = {}
    for layer in model.layers:
        for variable, name in efficientnet_lite._sources_of(layer):
            shape = variable.shape
            if len(shape) == 4:
                is_deep = "depthwise" in name
                order = (2, 3, 0, 1) if is_deep else (3, 2, 0, 1)
                shape = tuple(shape[axis] for axis in order)
            tensors[name] = np.zeros(shape[::-1] if len(shape) == 2 else shape)
    assert len(tensors) == 296 - 49  # without the counts of batches
    reader = "ganglion.saving.torch_file.read_state_dict"
    monkeypatch.setattr(reader, lambda path: tensors)
    arguments = SMALL | {"weights": tmp_path / "w.pth"}
    EfficientNetLite0(**arguments)
    weight = tensors["_fc.weight"]
    tensors["_fc.weight"] = weight[:7]
    with pytest.raises(ValueError, match=r"_fc.weight.*\(7, 1280\).*other classes"):
        EfficientNetLite0(**arguments)
    del tensors["_fc.weight"]
    with pytest.raises(ValueError, match=r"holds no '_fc.weight'"):
        EfficientNetLite0(**arguments)


def test_own_weight_files_are_taken(tmp_path):
    first = EfficientNetLite0(False, pooling="avg", **SMALL)
    first.save_weights(tmp_path / "w.weights.h5")
    arguments = SMALL | {"weights": tmp_path / "w.weights.h5"}
    again = EfficientNetLite0(False, pooling="avg", **arguments)
    for weight, other in zip(first.weights, again.weights, strict=True):
        assert np.array_equal(weight, other)


def test_preprocessing_in_the_model_is_that_of_the_function(weights_path):
    pixels = np.random.default_rng(0).integers(0, 256, (2, 64, 64, 3)).astype("uint8")
    arguments = {"include_top": False, "input_shape": (64, 64, 3), "pooling": "avg"}
    plain = EfficientNetLite0(**arguments)
    inside = EfficientNetLite0(include_preprocessing=True, **arguments)
    wanted = plain.predict(efficientnet_lite.preprocess_input(pixels), verbose=0)
    got = inside.predict(pixels, verbose=0)
    assert np.abs(got).max() > 0.1
    np.testing.assert_allclose(got, wanted, atol=1e-4)


def test_predictions_are_decoded(tmp_path):
    table = {str(i): [f"n{i:08}", f"thing_{i}"] for i in range(1000)}
    path = tmp_path / "index.json"
    path.write_text(json.dumps(table))
    scores = np.zeros((1, 1000))
    scores[0, 7], scores[0, 3] = 0.75, 0.25
    assert decode_predictions(scores, top=2, class_index=path) == [
        [("n00000007", "thing_7", 0.75), ("n00000003", "thing_3", 0.25)]
    ]
    with pytest.raises(ValueError, match=r"\(rows, 1000\)"):
        decode_predictions(np.zeros((1, 10)))
    path.write_text("{}")
    with pytest.raises(ValueError, match="not a table"):
        decode_predictions(scores, class_index=path)


@pytest.mark.rivals
def test_outputs_equal_those_of_the_original(weights_path):
    """Random inputs, within 1e-4: the scores and the features."""
    torch = pytest.importorskip("torch")
    package = pytest.importorskip("efficientnet_lite_pytorch")
    original = package.EfficientNet.from_pretrained(
        "efficientnet-lite0", weights_path=str(weights_path)
    ).eval()
    x = np.random.default_rng(1).normal(size=(2, 224, 224, 3)).astype("float32")
    ours = EfficientNetLite0(classifier_activation=None).predict(x, verbose=0)
    with torch.no_grad():
        theirs = original(torch.tensor(x.transpose(0, 3, 1, 2))).numpy()
    assert np.abs(theirs).max() > 1
    np.testing.assert_allclose(ours, theirs, atol=1e-4)
    body = EfficientNetLite0(include_top=False)
    with torch.no_grad():
        maps = original.extract_features(torch.tensor(x.transpose(0, 3, 1, 2)))
    np.testing.assert_allclose(
        body.predict(x, verbose=0), maps.numpy().transpose(0, 2, 3, 1), atol=1e-4
    )


@pytest.mark.rivals
def test_real_keras_loads_the_network(keras, tmp_path, weights_path):
    arguments = {"input_shape": (64, 64, 3), "include_preprocessing": True}
    ours = EfficientNetLite0(include_top=False, pooling="avg", **arguments)
    ours.save(tmp_path / "m.keras")
    theirs = keras.models.load_model(tmp_path / "m.keras")
    x = np.random.default_rng(0).integers(0, 256, (2, 64, 64, 3)).astype("float32")
    wanted = ours.predict(x, verbose=0)
    np.testing.assert_allclose(np.asarray(theirs(x)), wanted, atol=1e-4)
