"""Predictions of one batch that are prepared once: always those of the model as it is.

Rows given as a list are never prepared: what `predict` returns for them is the measure.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import ganglion as keras
from ganglion import config
from ganglion.training import data_adapters, prepared
from ganglion.variables import StatelessScope


def network(units: int = 3) -> Any:
    keras.utils.set_random_seed(1)
    return keras.Sequential(
        [
            keras.Input((4,)),
            keras.layers.Dense(5, activation="relu"),
            keras.layers.Dense(units),
        ]
    )


def rows(count: int = 2, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, 4)).astype("float32")


def check(model: Any, x: Any) -> np.ndarray:
    """Predict an array, in both ways that may be prepared, and compare with a list."""
    expected = model.predict(x.tolist(), verbose=0)
    outputs = model.predict(x, verbose=0)
    np.testing.assert_array_equal(outputs, expected)
    np.testing.assert_array_equal(model.predict_on_batch(x), expected)
    return outputs


def forms(model: Any) -> int:
    """Return how many predictions of a model are prepared."""
    return len(model._step_cache.predictions._by_form)


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Note what becomes a table, with all the checks of data."""
    made: list[Any] = []
    table = data_adapters.table

    def noted(model: Any, x: Any, *others: Any, **named: Any) -> Any:
        made.append(x)
        return table(model, x, *others, **named)

    monkeypatch.setattr(data_adapters, "table", noted)
    return made


def test_a_form_is_prepared_once(tables):
    model, x = network(), rows()
    for _ in range(3):
        model.predict(x, verbose=0)
        model.predict(rows(seed=1), batch_size=2, verbose=0)
        model.predict_on_batch(x)
    assert len(tables) == 1
    model.predict(rows(3), verbose=0)
    assert len(tables) == 2


def test_results_stay_when_others_are_predicted():
    model = network()
    first = model.predict(rows(), verbose=0)
    kept = first.copy()
    model.predict(rows(seed=1), verbose=0)
    np.testing.assert_array_equal(first, kept)


# ---- the model changes ---------------------------------------------------------------


def test_weights_that_change_count(tmp_path):
    model, x = network(), rows()
    model.compile("sgd", "mse")
    model.save_weights(tmp_path / "w.weights.h5")
    outputs = [check(model, x)]
    model.fit(x, np.zeros((2, 3)), verbose=0)
    outputs.append(check(model, x))
    model.layers[0].kernel.assign(model.layers[0].kernel.numpy() * 2)
    outputs.append(check(model, x))
    model.layers[1].bias.assign_add([1.0, 2.0, 3.0])
    outputs.append(check(model, x))
    model.set_weights([weight * 0 + 1 for weight in model.get_weights()])
    outputs.append(check(model, x))
    model.train_on_batch(x, np.zeros((2, 3)))
    outputs.append(check(model, x))
    assert len({each.tobytes() for each in outputs}) == len(outputs)
    model.load_weights(tmp_path / "w.weights.h5")
    np.testing.assert_array_equal(check(model, x), outputs[0])


def test_layers_that_are_added_and_removed_count():
    model, x = network(), rows()
    check(model, x)
    model.add(keras.layers.Dense(7))
    assert check(model, x).shape == (2, 7)
    model.pop()
    model.pop()
    assert check(model, x).shape == (2, 5)


def test_compiling_again_prepares_anew():
    model, x = network(), rows()
    check(model, x)
    assert forms(model)
    model.compile("sgd", "mse")
    assert not forms(model)
    check(model, x)


def test_two_models_with_a_common_layer():
    model, x = network(), rows()
    inner = keras.Sequential([keras.Input((4,)), model.layers[0]])
    before = check(model, x), check(inner, x)
    model.layers[0].kernel.assign(model.layers[0].kernel.numpy() + 1)
    after = check(model, x), check(inner, x)
    assert all((a != b).any() for a, b in zip(before, after, strict=True))


def test_values_of_a_stateless_scope_count():
    model, x = network(), rows()
    before = check(model, x)
    weights = model.trainable_variables
    with StatelessScope([(weight, weight.numpy() * 2) for weight in weights]):
        inside = check(model, x)
    assert (inside != before).any()
    np.testing.assert_array_equal(check(model, x), before)


def test_state_that_predictions_advance():
    def stateful() -> Any:
        keras.utils.set_random_seed(1)
        inputs = keras.Input(batch_shape=(2, 1, 4))
        outputs = keras.layers.LSTM(3, stateful=True)(inputs)
        return keras.Model(inputs, outputs)

    model, other = stateful(), stateful()
    x = rows()[:, None]
    for _ in range(3):
        one = model.predict(x, verbose=0)
        np.testing.assert_array_equal(one, other.predict(x.tolist(), verbose=0))
    assert forms(model)
    assert not forms(other)


def test_random_numbers_go_on_and_averages_stay():
    keras.utils.set_random_seed(1)
    inputs = keras.Input((4,))
    outputs = keras.layers.Dropout(0.5)(inputs, training=True)
    model = keras.Model(inputs, keras.layers.BatchNormalization()(outputs))
    x = np.ones((8, 4), "float32")
    first, second = (model.predict(x, verbose=0) for _ in range(2))
    assert (first != second).any()
    assert not model.layers[-1].moving_mean.numpy().any()


# ---- the data ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype", ["float64", "float16", ">f4", "int64", "int32", "uint8", "bool", ">i8"]
)
def test_types_of_numbers(dtype):
    model = network()
    x = (10 * rows(3)).astype(dtype)
    for _ in range(2):
        check(model, x)


def test_arrays_that_lie_in_other_ways():
    model, x = network(), rows(6)
    fixed = x.copy()
    fixed.setflags(write=False)
    for array in (x[::2], np.asfortranarray(x), x[:, ::-1], fixed, x.view(np.matrix)):
        for _ in range(2):
            check(model, array)


def test_other_data_than_arrays():
    model, x = network(), rows()
    expected = check(model, x)
    for data in (x.tolist(), keras.ops.convert_to_tensor(x), [x], (x,)):
        np.testing.assert_array_equal(model.predict(data, verbose=0), expected)
    named = {model.input_names[0]: x}
    np.testing.assert_array_equal(model.predict(named, verbose=0), expected)


def test_tables_of_pandas():
    pandas = pytest.importorskip("pandas")
    model, x = network(), rows()
    expected = check(model, x)
    outputs = model.predict(pandas.DataFrame(x), verbose=0)
    np.testing.assert_array_equal(outputs, expected)


@pytest.mark.parametrize("bad", [(4,), (), (2, 3), (0, 4)])
def test_arrays_that_do_not_fit_are_refused(bad):
    model = network()
    check(model, rows())
    for _ in range(2):
        with pytest.raises(Exception) as refused:  # noqa: PT011
            model.predict(np.zeros(bad, "float32"), verbose=0)
        with pytest.raises(type(refused.value)):
            model.predict(np.zeros(bad, "float32"), verbose=0, steps=1)


def test_numbers_out_of_range_are_refused_every_time():
    model = keras.Sequential([keras.Input((1,)), keras.layers.Embedding(3, 2)])
    for dtype in ("int32", "int64", "float32"):
        good, bad = np.array([[2]], dtype), np.array([[3]], dtype)
        for _ in range(2):
            check(model, good)
            with pytest.raises(IndexError, match="row 0"):
                model.predict(bad, verbose=0)
    with pytest.raises(ValueError, match="32 bits"):
        model.predict(np.array([[2**40]]), verbose=0)


def test_models_for_the_host_get_whole_numbers():
    lookup = keras.layers.IntegerLookup(vocabulary=[2**40, 7])
    model = keras.Sequential([keras.Input((1,), dtype="int64"), lookup])
    for _ in range(2):
        outputs = model.predict(np.array([[2**40], [7], [8]]), verbose=0)
        assert outputs.ravel().tolist() == [1, 2, 0]


def test_lengths_that_are_padded():
    model = keras.Sequential(
        [
            keras.layers.Embedding(10, 4, mask_zero=True),
            keras.layers.LSTM(3),
        ]
    )
    other = keras.models.clone_model(model)
    for length in (5, 9, 6, 9):
        x = np.arange(length)[None] % 9 + 1
        expected = model.predict(x.tolist(), verbose=0)
        if length == 5:
            other.predict(x, verbose=0)
            other.set_weights(model.get_weights())
        outputs = other.predict(x, verbose=0)
        np.testing.assert_allclose(outputs, expected, rtol=1e-6)


def test_outputs_in_a_structure():
    inputs = keras.Input((4,))
    one, two = keras.layers.Dense(2)(inputs), keras.layers.Dense(3)(inputs)
    model = keras.Model(inputs, {"b": one, "a": [two, inputs]})
    x = rows()
    for _ in range(2):
        outputs = model.predict(x, verbose=0)
        expected = model.predict(x.tolist(), verbose=0)
        assert outputs.keys() == expected.keys()
        np.testing.assert_array_equal(outputs["b"], expected["b"])
        np.testing.assert_array_equal(outputs["a"][0], expected["a"][0])
        np.testing.assert_array_equal(outputs["a"][1], x)
        assert not np.shares_memory(outputs["a"][1], x)


# ---- what is overridden, and what is chosen ------------------------------------------


class Twice(keras.Sequential):
    """A model with a step of its own."""

    def predict_step(self, data: Any) -> Any:
        return 2 * super().predict_step(data)


def test_steps_that_are_overridden():
    model = Twice(network().layers)
    plain = keras.Sequential(model.layers)
    for _ in range(2):
        np.testing.assert_array_equal(check(model, rows()), 2 * check(plain, rows()))
    assert not forms(model)


def test_a_step_that_is_overridden_later(monkeypatch):
    model, x = network(), rows()
    check(model, x)
    model.predict_step = lambda data: "own"
    monkeypatch.setattr(prepared.PreparedPrediction, "run", None)
    assert model._step_cache.predictions.run(x) is None


def test_a_function_that_is_overridden_later():
    model, x = network(), rows()
    check(model, x)
    model.make_predict_function = lambda: None
    with pytest.raises(NotImplementedError, match="make_predict_function"):
        model.predict(x, verbose=0)


def test_a_model_with_a_call_of_its_own():
    class Own(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = keras.layers.Dense(3)

        def call(self, x: Any, training: bool = False) -> Any:
            return self.dense(x) + 1.0

    model, x = Own(), rows()
    for _ in range(3):
        check(model, x)
    assert forms(model)


def test_running_eagerly_runs_python_each_time():
    calls = []

    class Own(keras.Model):
        def call(self, x: Any) -> Any:
            calls.append(x.shape)
            return x + 1.0

    model, x = Own(), rows()
    model.compile("sgd", "mse")
    for _ in range(3):
        model.predict(x, verbose=0)
    model.run_eagerly = True
    calls.clear()
    for _ in range(3):
        np.testing.assert_array_equal(model.predict(x, verbose=0), x + 1)
    assert len(calls) == 3


def test_choices_count():
    model, x = network(), rows()
    check(model, x)
    try:
        config.set_backend("numpy")
        np.testing.assert_allclose(check(model, x), model.predict(x, verbose=0))
        assert forms(model) == 2
        config.set_floatx("float64")
        assert check(model, x.astype("float64")) is not None
        assert forms(model) == 3
    finally:
        config.set_floatx("float32")
        config.set_backend("cpu")
    check(model, x)


def test_callbacks_are_called(capsys):
    model, x = network(), rows()
    check(model, x)
    told = []

    class Tell(keras.callbacks.Callback):
        def on_predict_batch_end(self, batch: int, logs: Any = None) -> None:
            told.append(logs["outputs"].shape)
            self.model.stop_predicting = True

    model.predict(x, verbose=0, callbacks=[Tell()])
    assert told == [(2, 3)]
    assert model.stop_predicting
    model.predict(x, verbose=0)
    assert not model.stop_predicting
    model.predict(x, verbose=1)
    assert "1/1" in capsys.readouterr().out


def test_a_batch_size_beyond_the_data_is_warned_of_each_time():
    model, x = network(), rows()
    for _ in range(2):
        with pytest.warns(UserWarning, match="larger than the data"):
            model.predict(x, batch_size=5, verbose=0)
    with pytest.raises(ValueError, match="batch_size"):
        model.predict(x, batch_size=0, verbose=0)


def test_many_forms_are_not_all_kept():
    model = keras.Sequential([keras.Input((None,)), keras.layers.Activation("relu")])
    for length in range(1, prepared.MOST_FORMS + 4):
        x = np.ones((1, length), "float32")
        np.testing.assert_array_equal(model.predict(x, verbose=0), x)
    assert 0 < forms(model) <= prepared.MOST_FORMS


def test_threads_get_what_they_asked_for():
    model = network()
    model.compile("sgd", "mse")
    inputs = [rows(1 + seed % 3, seed) for seed in range(8)]
    expected = [model.predict(x.tolist(), verbose=0) for x in inputs]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(20):
            outputs = pool.map(lambda x: model.predict(x, verbose=0), inputs)
            for one, other in zip(outputs, expected, strict=True):
                np.testing.assert_array_equal(one, other)
