"""Models as estimators of scikit-learn; skipped where it is not installed."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest

import ganglion as keras
from ganglion import layers, many, wrappers

try:
    import sklearn
except ImportError:
    sklearn = None
needs_sklearn = pytest.mark.skipif(sklearn is None, reason="needs scikit-learn")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 4))
CLASSES = np.where(X[:, 0] + X[:, 1] > 0, "yes", "no")


def build(shape, outputs, units=4, rate=0.05):
    model = keras.Sequential(
        [
            keras.Input(shape),
            layers.Dense(units, activation="relu"),
            layers.Dense(outputs, activation="softmax"),
        ]
    )
    model.compile(keras.optimizers.Adam(rate), "sparse_categorical_crossentropy")
    return model


def test_without_scikit_learn_it_says_what_to_install():
    script = """
import sys
sys.modules["sklearn"] = None
from ganglion import many, wrappers
for use in (lambda: many.GanglionClassifier, lambda: wrappers.SKLearnRegressor(None)):
    try:
        use()
    except ImportError as error:
        print(error)
"""
    ran = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(sys.path), "PATH": ""},
    )
    assert ran.stdout.count("pip install scikit-learn") == 2
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        many.nothing  # noqa: B018


@needs_sklearn
@pytest.mark.parametrize("name", ["GanglionClassifier", "GanglionRegressor"])
def test_check_estimator_passes(name):
    from sklearn.utils.estimator_checks import check_estimator

    estimator = getattr(many, name)(epochs=40)
    results = check_estimator(estimator, on_fail=None, on_skip=None)
    failed = [r["check_name"] for r in results if r["status"] == "failed"]
    assert not failed
    assert len(results) > 40


def dynamic(X, y, loss="mse", last=None):
    keras.utils.set_random_seed(0)  # some checks fit twice, and compare
    x = keras.Input((X.shape[1],))
    hidden = layers.Dense(10, activation="relu")(x)
    model = keras.Model(x, layers.Dense(y.shape[1], activation=last)(hidden))
    model.compile("rmsprop", loss)
    return model


@needs_sklearn
def test_the_estimators_of_keras():
    from sklearn.utils.estimator_checks import check_estimator

    kwargs = {"loss": "categorical_crossentropy", "last": "softmax"}
    classifier = wrappers.SKLearnClassifier(
        dynamic, model_kwargs=kwargs, fit_kwargs={"epochs": 5}
    )
    # These fail in Keras as well: it says so in its own tests.
    known = {
        "check_classifiers_one_label_sample_weights",
        "check_classifiers_classes",
        "check_classifiers_train",
    }
    for estimator, allowed in (
        (classifier, known),
        (wrappers.SKLearnRegressor(dynamic), set()),
        (wrappers.SKLearnTransformer(dynamic), set()),
    ):
        results = check_estimator(estimator, on_fail=None, on_skip=None)
        failed = {r["check_name"] for r in results if r["status"] == "failed"}
        assert failed <= allowed


@needs_sklearn
def test_a_search_gives_the_answers_of_scikit_learn():
    from sklearn.model_selection import GridSearchCV

    estimator = many.GanglionClassifier(build, epochs=3, random_state=1)
    grid = {"build__units": [2, 4], "build__rate": [0.1, 0.05, 0.001]}
    theirs = GridSearchCV(estimator, grid, cv=3).fit(X, CLASSES)
    ours = many.GridSearchCV(estimator, grid, cv=3, n_jobs=2).fit(X, CLASSES)
    assert ours.best_params_ == theirs.best_params_
    for name, column in theirs.cv_results_.items():
        if not name.endswith("_time"):
            np.testing.assert_array_equal(ours.cv_results_[name], column)
    np.testing.assert_array_equal(ours.predict_proba(X), theirs.predict_proba(X))


@needs_sklearn
def test_negative_n_jobs_count_from_all_threads(monkeypatch):
    import joblib

    monkeypatch.setattr(many.estimators.config, "threads", lambda: 3)
    for n_jobs, count in ((-1, 3), (-2, 2), (-9, 1), (None, 3), (2, 2)):
        with many.at_once(n_jobs):
            assert joblib.effective_n_jobs(None) == count
    estimator = many.GanglionClassifier(build, epochs=1, random_state=1)
    search = many.GridSearchCV(estimator, {"build__units": [2]}, cv=2, n_jobs=-1)
    assert search.fit(X, CLASSES).best_params_ == {"build__units": 2}


@needs_sklearn
def test_cross_validation_and_pipelines():
    from sklearn.model_selection import cross_validate
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    regressor = many.GanglionRegressor(epochs=5, random_state=0)
    pipeline = make_pipeline(StandardScaler(), regressor)
    theirs = cross_validate(pipeline, X, X[:, 0], cv=3)
    ours = many.cross_validate(pipeline, X, X[:, 0], cv=3, n_jobs=2)
    np.testing.assert_array_equal(ours["test_score"], theirs["test_score"])


@needs_sklearn
def test_estimators_are_pickled_as_files_of_ours():
    classifier = many.GanglionClassifier(build, epochs=3, random_state=0)
    classifier.fit(X, CLASSES)
    data = pickle.dumps(classifier)
    assert b"model.weights.h5" in data
    again = pickle.loads(data)
    np.testing.assert_array_equal(again.predict_proba(X), classifier.predict_proba(X))
    assert again.history_ == classifier.history_
    assert set(again.predict(X)) <= {"yes", "no"}


@needs_sklearn
def test_logits_are_turned_into_probabilities():
    def logits(shape, outputs):
        model = keras.Sequential([keras.Input(shape), layers.Dense(outputs)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("sgd", loss)
        return model

    classifier = many.GanglionClassifier(logits, epochs=1, random_state=0)
    classifier.fit(X, CLASSES)
    found = classifier.predict_proba(X)
    outputs = classifier.model_.predict(X, verbose=0)
    np.testing.assert_array_equal(found, keras.ops.softmax(outputs))
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-6)


@needs_sklearn
def test_parameters_of_the_builder():
    from sklearn.base import clone

    classifier = clone(many.GanglionClassifier(build)).set_params(build__units=3)
    assert classifier.get_params()["build__units"] == 3
    classifier.set_params(epochs=1).fit(X, CLASSES)
    assert classifier.model_.layers[0].units == 3
    with pytest.raises(ValueError, match="only one class"):
        classifier.fit(X, np.zeros(60))


# ---- Keras 2's --------------------------------------------------------------------


def binary(optimizer="adam"):
    model = keras.Sequential([keras.Input((4,)), layers.Dense(1, "sigmoid")])
    model.compile(optimizer, "binary_crossentropy", metrics=["accuracy"])
    return model


def rows_of_classes():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(2, "softmax")])
    model.compile("adam", "categorical_crossentropy", metrics=["accuracy"])
    return model


@needs_sklearn
@pytest.mark.parametrize("build_fn", [binary, rows_of_classes])
def test_keras_2s_classifier_in_scikit_learn(build_fn):
    from sklearn.model_selection import cross_val_score

    from ganglion.wrappers.scikit_learn import KerasClassifier

    estimator = KerasClassifier(build_fn=build_fn, epochs=2, batch_size=20, verbose=0)
    scores = cross_val_score(estimator, X, CLASSES, cv=2)
    assert scores.shape == (2,)
    assert np.all((scores >= 0) & (scores <= 1))
    estimator.fit(X, CLASSES)
    chances = estimator.predict_proba(X)
    assert chances.shape == (60, 2)
    guess = np.ravel(estimator.predict(X))
    np.testing.assert_array_equal(guess, estimator.classes_[chances.argmax(1)])
    assert estimator.score(X, CLASSES) == pytest.approx(np.mean(guess == CLASSES))


@needs_sklearn
def test_keras_2s_regressor_and_arguments():
    from sklearn.model_selection import GridSearchCV

    from ganglion.wrappers.scikit_learn import KerasRegressor

    def line(rate=0.1):
        model = keras.Sequential([keras.Input((4,)), layers.Dense(1)])
        model.compile(keras.optimizers.SGD(rate), "mse")
        return model

    grid = {"rate": [1e-9, 0.1], "epochs": [3]}
    search = GridSearchCV(KerasRegressor(build_fn=line, verbose=0), grid, cv=2)
    search.fit(X, X[:, 0])
    assert search.best_params_ == {"rate": 0.1, "epochs": 3}
    assert search.best_score_ < 0  # the negative loss
    assert search.predict(X).shape == (60,)
    with pytest.raises(ValueError, match="speed is not a legal parameter"):
        KerasRegressor(build_fn=line, speed=3)


def test_class_weights_go_by_the_classes_themselves():
    draws = np.random.default_rng(0)
    x, labels = draws.normal(size=(40, 3)), np.array(["no"] * 30 + ["yes"] * 10)
    given = {"hidden": (4,), "epochs": 2, "random_state": 0}

    def outputs(weights, y=labels):
        classifier = many.GanglionClassifier(
            **given, fit_kwargs={"class_weight": weights}
        )
        return classifier.fit(x, y).predict_proba(x)

    balanced = outputs("balanced")
    np.testing.assert_array_equal(balanced, outputs({"no": 40 / 60, "yes": 2.0}))
    np.testing.assert_array_equal(balanced, outputs({0: 40 / 60, 1: 2.0}))
    numbers = np.where(labels == "no", 1, 2)  # not 0 and 1
    np.testing.assert_array_equal(balanced, outputs({1: 40 / 60, 2: 2.0}, numbers))
    with pytest.raises(ValueError, match=r"has 0, which is no class.* \[1, 2\]"):
        outputs({0: 1.0, 1: 2.0}, numbers)


def test_sample_weights_are_routed():
    sklearn = pytest.importorskip("sklearn")
    draws = np.random.default_rng(0)
    x, y, weights = draws.normal(size=(40, 3)), draws.normal(size=40), draws.random(40)
    model = many.GanglionRegressor(hidden=(4,), epochs=2, random_state=0)
    with sklearn.config_context(enable_metadata_routing=True):
        asks = model.set_fit_request(sample_weight=True).set_score_request(
            sample_weight=True
        )
        given = {"cv": 3, "params": {"sample_weight": weights}}
        ours = many.cross_validate(asks, x, y, **given)
        theirs = sklearn.model_selection.cross_validate(asks, x, y, **given)
    np.testing.assert_array_equal(ours["test_score"], theirs["test_score"])
    plain = many.cross_validate(model, x, y, cv=3)
    assert not np.array_equal(ours["test_score"], plain["test_score"])


def one_output(shape, outputs):
    model = keras.Sequential([keras.Input(shape), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"build": one_output}, "has 1 outputs, but it is to have 2"),
        ({"build": lambda shape, outputs: None}, "must return a compiled model"),
        ({"build": 3}, "`build` must be a function of"),
        ({"hidden": 5}, "the sizes of all layers"),
        ({"batch_size": 0}, "`batch_size` must be an integer"),
        ({"build_kwargs": {"units": 3}}, "are for `build`, and there is none"),
    ],
)
def test_networks_that_do_not_fit_are_refused(given, message):
    pytest.importorskip("sklearn")
    classifier = many.GanglionClassifier(epochs=1, **given)
    with pytest.raises((TypeError, ValueError), match=message):
        classifier.fit(np.eye(4), ["a", "a", "b", "b"])
