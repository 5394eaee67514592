"""Names of Keras that are not there: imports and attributes say why, and what to do."""

import importlib

import pytest

import ganglion as keras
from ganglion.compat import unsupported


@pytest.mark.parametrize(
    ("line", "match"),
    [
        ("from ganglion.layers import Dense, RandomHeight", "RandomZoom.*Layer"),
        ("from ganglion.models import model_from_yaml", "to_json"),
        ("from ganglion.backend import py_all", "sessions"),
    ],
)
def test_an_import_says_why(line, match):
    with pytest.raises(ImportError, match=f"(?s){match}"):
        exec(line)


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("layers.RandomWidth", "RandomZoom"),
        ("layers.Dens", "no such name.*'Dense'"),
        ("Sequental", "'Sequential'"),
        ("ops.mesn", "'mean'"),
        ("losses.mean_squared_eror", "'mean_squared_error'"),
        ("metrics.Acuracy", "'Accuracy'"),
        ("optimizers.Adamm", "'Adam'"),
        ("callbacks.EarlyStoping", "'EarlyStopping'"),
        ("initializers.HeNorml", "'HeNormal'"),
        ("datasets.cifar1000", "'cifar100'"),
        ("backend.py_all", "sessions"),
    ],
)
def test_an_attribute_says_why(name, match):
    path, _, last = f"ganglion.{name}".rpartition(".")
    module = importlib.import_module(path)
    assert not hasattr(module, last)
    with pytest.raises(AttributeError, match=match):
        getattr(module, last)


def test_what_is_said_to_be_missing_is_missing():
    places = ("layers", "utils", "ops", "datasets", "models", "optimizers", "backend")
    for full in unsupported._reasons():
        module, _, name = full.rpartition(".")
        if module in places:
            names = getattr(getattr(keras, module), "__dict__", {})
            assert name not in names, f"{full} is there: take it out of the table"


def test_ops_by_kind():
    assert keras.ops.nn.sigmoid is keras.ops.sigmoid
    assert keras.ops.numpy.mean is keras.ops.mean
    assert keras.ops.linalg.norm is keras.ops.norm
    with pytest.raises(AttributeError, match="no such name"):
        keras.ops.nn.sigmod  # noqa: B018


def test_export_names_the_formats_it_lacks_and_the_way_out(tmp_path):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    with pytest.raises(ValueError, match=r"tf_saved_model.*model\.save"):
        model.export(tmp_path / "model", format="tf_saved_model")
