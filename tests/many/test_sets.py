"""Sets of models: their table, the best one, files, predictions, ensembles."""

from __future__ import annotations

import io
import sys
import zipfile

import numpy as np
import pytest

import ganglion as keras
from ganglion import layers, many, saving

X = np.random.default_rng(1).normal(size=(30, 3)).astype("float32")
Y = X[:, :1] * 2


def build(rate=0.1, outputs=1):
    model = keras.Sequential([keras.Input((3,)), layers.Dense(outputs)])
    model.compile(keras.optimizers.SGD(rate), "mse", metrics=["mae"])
    return model


@pytest.fixture(scope="module")
def trained():
    settings = many.crossed(
        many.grid(rate=[0.1, 0.01], seed=[0, 1]), [{"rows": np.arange(20)}]
    )
    return many.fit_many(build, settings, X, Y, epochs=3, verbose=0, batch_size=8)


def test_the_table_has_settings_and_last_metrics(trained):
    rows = trained.table()
    assert [row["rate"] for row in rows] == [0.1, 0.1, 0.01, 0.01]
    assert rows[2]["loss"] == trained.histories[2].history["loss"][-1]
    assert rows[0].keys() == {
        "index", "name", "rate", "seed", "epochs", "seconds", "loss", "mae", "message",
    }  # fmt: skip
    assert rows[3]["epochs"] == 3


def test_the_best_is_found_by_any_metric(trained):
    losses = trained.values()
    assert trained.best().index == int(np.argmin(losses))
    assert trained.best("mae", mode="max").index == int(
        np.argmax(trained.values("mae"))
    )
    with pytest.raises(ValueError, match=r"no metric 'maee'.*Did you mean 'mae'"):
        trained.best("maee")
    with pytest.raises(ValueError, match="not 'maximum'"):
        trained.best("mae", mode="maximum")


def test_frames_need_pandas(trained, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        trained.frame()


def test_frames(trained):
    pandas = pytest.importorskip("pandas")
    frame = trained.frame()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame["seed"]) == [0, 1, 0, 1]


def test_predictions_and_evaluations_are_those_of_each_model(trained):
    predictions = trained.predict(X)
    assert predictions.shape == (4, 30, 1)
    evaluations = trained.evaluate(X, Y)
    for member, rows, logs in zip(trained, predictions, evaluations, strict=True):
        np.testing.assert_array_equal(member.model.predict(X, verbose=0), rows)
        assert member.model.evaluate(X, Y, verbose=0, return_dict=True) == logs
    with pytest.raises(ValueError, match="there are no models"):
        many.predict_many([], X)
    with pytest.raises(TypeError, match="number 0 is int"):
        many.evaluate_many([3], X, Y)


def test_models_are_judged_by_the_columns_that_they_learned(tmp_path):
    both = np.concatenate([Y, -Y], axis=1)
    settings = [{"target": 0, "outputs": 1}, {"target": 1, "outputs": 1}]
    settings += [{"target": [1, 0], "outputs": 2}, {"outputs": 2}]
    trained = many.fit_many(build, settings, X, both, verbose=0)
    trained.save(tmp_path / "set.zip")
    columns = (both[:, :1], both[:, 1:], both[:, ::-1], both)
    for found in (trained, many.load(tmp_path / "set.zip")):
        for member, y, logs in zip(
            found, columns, found.evaluate(X, both), strict=True
        ):
            assert member.model.evaluate(X, y, verbose=0, return_dict=True) == logs


def test_an_ensemble_is_a_model_of_the_mean(trained, tmp_path):
    both = trained.ensemble(spread=True)
    predictions = trained.predict(X)
    mean, deviation = both.predict(X, verbose=0)
    np.testing.assert_allclose(mean, predictions.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(deviation, predictions.std(axis=0), atol=1e-6)
    single = trained.ensemble()
    np.testing.assert_array_equal(single.predict(X, verbose=0), mean)
    single.save(tmp_path / "ensemble.keras")
    again = saving.load_model(tmp_path / "ensemble.keras")
    np.testing.assert_array_equal(again.predict(X, verbose=0), mean)


def test_the_inputs_and_outputs_of_an_ensemble_have_the_names_of_the_models():
    def two(units):
        ends = keras.Input((2,), name="a"), keras.Input((1,), name="b")
        hidden = layers.Dense(units)(layers.Concatenate()(ends))
        outputs = {"p": layers.Dense(1)(hidden), "q": layers.Dense(2)(hidden)}
        return keras.Model(ends, outputs)

    models = [two(2), two(3)]
    data = {"a": X[:, :2], "b": X[:, 2:]}
    means = many.ensemble(models).predict(data, verbose=0)
    for name, each in many.predict_many(models, data).items():
        np.testing.assert_allclose(means[name], each.mean(axis=0), atol=1e-6)


def test_models_whose_outputs_differ_make_no_ensemble():
    models = [build(), build(outputs=2)]
    with pytest.raises(ValueError, match="whose outputs agree"):
        many.ensemble(models)
    with pytest.raises(ValueError, match="whose outputs agree"):
        many.predict_many(models, X)
    loose = keras.Sequential([layers.Dense(1)])
    with pytest.raises(ValueError, match="begin it with an Input"):
        many.ensemble([loose])


# ---- files ---------------------------------------------------------------------------


def test_a_set_is_one_file_of_keras_models(trained, tmp_path):
    path = tmp_path / "set.zip"
    trained.save(path)
    again = many.load(path)
    assert [m.history.history for m in again] == [m.history.history for m in trained]
    assert [m.name for m in again] == [m.name for m in trained]
    assert again[1].setting["rate"] == 0.1
    assert again[1].setting["rows"]["shape"] == [20]
    np.testing.assert_array_equal(again.predict(X), trained.predict(X))
    with zipfile.ZipFile(path) as archive:
        member = archive.read("models/0002.keras")
    single = saving.load_model(io.BytesIO(member))
    np.testing.assert_array_equal(
        single.predict(X, verbose=0), trained[2].model.predict(X, verbose=0)
    )
    with pytest.raises(FileExistsError):
        trained.save(path, overwrite=False)


def test_loaded_models_go_on_as_if_they_had_never_stopped(trained, tmp_path):
    trained.save(tmp_path / "set.zip")
    again = many.load(tmp_path / "set.zip")
    arguments = {"epochs": 5, "initial_epoch": 3, "verbose": 0, "batch_size": 8}
    for member, loaded in zip(trained[:2], again[:2], strict=True):
        first = member.model.fit(X, Y, **arguments).history
        assert loaded.model.fit(X, Y, **arguments).history == first


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no zip", "cannot be loaded|cannot be read"),
        ({"set.json": b"[]"}, "not a set of models"),
        ({"set.json": b'{"format": 1, "members": [3]}'}, "list of models is damaged"),
        ({"other": b""}, "cannot be loaded"),
    ],
)
def test_damaged_files_are_refused(tmp_path, content, message):
    path = tmp_path / "set.zip"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in content.items():
                archive.writestr(name, data)
    with pytest.raises(ValueError, match=message):
        many.load(path)
    with pytest.raises(ValueError, match="There is no file"):
        many.load(tmp_path / "none.zip")


def test_lists_in_settings_stand_in_tables_and_rows_do_not():
    def stack(sizes):
        hidden = [keras.layers.Dense(size) for group in sizes for size in group]
        model = keras.Sequential([keras.Input((3,)), *hidden])
        model.compile("sgd", "mse")
        return model

    sizes = [[[2, 3], [1]], [[1]]]
    settings = many.crossed(many.grid(sizes=sizes), [{"rows": list(range(9))}])
    trained = many.fit_many(
        stack, settings, np.ones((9, 3)), np.ones((9, 1)), verbose=0
    )
    assert [row["sizes"] for row in trained.table()] == sizes
    assert "rows" not in trained.table()[0]
