"""What `fit`, `evaluate` and `predict` are given: arrays, generators, weights."""

import numpy as np
import pytest
from training_models import blobs, classifier

import ganglion as keras


@pytest.fixture(autouse=True)
def _seeded():
    keras.utils.set_random_seed(7)


def test_generator_and_arrays_train_alike():
    x, y = blobs(64)
    arrays, stream = classifier(), classifier()
    stream.set_weights(arrays.get_weights())

    def batches():
        while True:
            for i in range(0, 64, 16):
                yield x[i : i + 16], y[i : i + 16]

    arrays.fit(x, y, batch_size=16, epochs=2, shuffle=False, verbose=0)
    stream.fit(batches(), steps_per_epoch=4, epochs=2, verbose=0)
    for a, b in zip(arrays.get_weights(), stream.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_py_dataset_is_walked_whole_and_told_of_epochs():
    x, y = blobs(40)

    class Rows(keras.utils.PyDataset):
        def __init__(self):
            super().__init__()
            self.ended, self.asked = 0, []

        def __len__(self):
            return 4

        def __getitem__(self, index):
            self.asked.append(index)
            return x[index * 10 : index * 10 + 10], y[index * 10 : index * 10 + 10]

        def on_epoch_end(self):
            self.ended += 1

    rows = Rows()
    history = classifier().fit(rows, epochs=2, verbose=0, shuffle=False)
    assert rows.asked == [0, 1, 2, 3, 0, 1, 2, 3]
    assert rows.ended == 2
    assert len(history.history["loss"]) == 2


def test_a_short_generator_warns_and_an_empty_one_is_refused():
    x, y = blobs(20)
    model = classifier()
    with pytest.warns(UserWarning, match="ended after 2 of 5 batches"):
        model.fit(iter([(x, y), (x, y)]), steps_per_epoch=5, verbose=0)
    with pytest.raises(ValueError, match="yielded no batch"):
        model.fit(iter([]), verbose=0)


@pytest.mark.filterwarnings("ignore:The data ended after 0 of 2")
@pytest.mark.parametrize("count", [4, 5])
def test_a_generator_that_ends_before_the_last_epoch_ends_training(count):
    x, y = blobs(20)
    with pytest.warns(UserWarning, match=f"ended after {count - 4} of 2 batches"):
        history = classifier().fit(
            iter([(x, y)] * count), steps_per_epoch=2, epochs=9, verbose=0
        )
    assert history.epoch == [0, 1] + [2] * (count - 4)
    assert len(history.history["loss"]) == len(history.epoch)


@pytest.mark.parametrize("name", ["crossentropy", "ce"])
def test_crossentropy_chooses_by_the_labels(name):
    x, y = blobs()
    model, named = classifier(loss=name), classifier()
    named.set_weights(model.get_weights())
    assert model.evaluate(x, y, verbose=0) == named.evaluate(x, y, verbose=0)


def test_validation_split_takes_the_last_rows_before_shuffling():
    x, y = blobs(50)
    model = classifier()
    history = model.fit(x, y, epochs=1, validation_split=0.3, verbose=0)
    loss, accuracy = model.evaluate(x[35:], y[35:], verbose=0)
    assert history.history["val_loss"][0] == pytest.approx(loss, rel=1e-6)
    assert history.history["val_accuracy"][0] == pytest.approx(accuracy)


def test_validation_data_with_weights_steps_and_frequency():
    x, y = blobs(40)
    model = classifier()
    history = model.fit(
        x,
        y,
        epochs=4,
        validation_data=(x, y, np.ones(40)),
        validation_freq=2,
        validation_steps=1,
        validation_batch_size=8,
        verbose=0,
    )
    assert len(history.history["loss"]) == 4
    assert len(history.history["val_loss"]) == 2


def test_class_weight_equals_sample_weight():
    x, y = blobs()
    first, other = classifier(), classifier()
    other.set_weights(first.get_weights())
    first.fit(x, y, class_weight={0: 2.0, 1: 0.5}, shuffle=False, verbose=0)
    weights = np.choose(y, [2.0, 0.5, 1.0])
    other.fit(x, y, sample_weight=weights, shuffle=False, verbose=0)
    for a, b in zip(first.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("is_keras2", [False, True])
def test_class_weight_leaves_rows_alone_that_are_split_off(is_keras2):
    x, y = blobs()
    first, other = classifier(), classifier()
    other.set_weights(first.get_weights())
    weight = {0: 2.0, 1: 0.5, 2: 3.0}
    keras.keras2.set_active(is_keras2)
    try:
        split = first.fit(x, y, class_weight=weight, validation_split=0.25, verbose=0)
    finally:
        keras.keras2.set_active(None)
    at = len(x) - len(x) // 4
    options = {} if not is_keras2 else {"sample_weight": np.take([2, 0.5, 3], y[at:])}
    expected = first.evaluate(x[at:], y[at:], verbose=0, return_dict=True, **options)
    assert split.history["val_loss"] == pytest.approx([expected["loss"]], rel=1e-5)


def test_a_table_of_numbers_and_of_true_and_false_is_one_of_floats():
    x, y = blobs(12)
    x = x.round(2)
    table = x.astype(object)
    table[:, 0] = x[:, 0] > 0
    x[:, 0] = x[:, 0] > 0
    model = classifier()
    expected = model.evaluate(x, y, verbose=0)
    assert model.evaluate(table, y.astype(object), verbose=0) == expected
    table[3, 1] = "1"
    with pytest.raises(TypeError, match="`x` has the type object"):
        model.evaluate(table, y, verbose=0)


def test_steps_per_epoch_goes_on_where_the_last_epoch_ended():
    x, y = blobs(40)
    full, parts = classifier(), classifier()
    parts.set_weights(full.get_weights())
    parts.training_state.order.assign(full.training_state.order)
    full.fit(x, y, batch_size=10, epochs=1, verbose=0)
    parts.fit(x, y, batch_size=10, epochs=2, steps_per_epoch=2, verbose=0)
    for a, b in zip(full.get_weights(), parts.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_initial_epoch_and_history_numbers():
    x, y = blobs()
    history = classifier().fit(x, y, initial_epoch=2, epochs=5, verbose=0)
    assert history.epoch == [2, 3, 4]


def test_evaluate_weighs_batches_by_their_rows():
    x, y = blobs(50)
    model = classifier()
    scores = model.evaluate(x, y, batch_size=50, verbose=0)
    parts = model.evaluate(x, y, batch_size=16, verbose=0)
    np.testing.assert_allclose(scores, parts, rtol=1e-5)
    named = model.evaluate(x, y, return_dict=True, verbose=0)
    assert list(named) == ["accuracy", "loss"]


def test_predict_in_batches_equals_one_call():
    x, _ = blobs(50)
    model = classifier()
    np.testing.assert_allclose(
        model.predict(x, batch_size=16, verbose=0), model(x), rtol=1e-6
    )
    np.testing.assert_allclose(model.predict_on_batch(x), model(x), rtol=1e-6)


def test_evaluation_in_mid_training_disturbs_nothing():
    x, y = blobs()
    plain, watched = classifier(), classifier()
    watched.set_weights(plain.get_weights())
    watched.training_state.order.assign(plain.training_state.order)
    plain.fit(x, y, epochs=3, verbose=0)
    watched.fit(x, y, epochs=3, validation_data=(x, y), verbose=0)
    for a, b in zip(plain.get_weights(), watched.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_on_batch_methods_report_that_batch_alone():
    x, y = blobs()
    model = classifier()
    model.train_on_batch(x, y)
    before = model.test_on_batch(x[:10], y[:10], return_dict=True)
    after = model.train_on_batch(x[:10], y[:10], return_dict=True)
    assert after == pytest.approx(before, rel=1e-5)


def test_numbers_in_the_byte_order_of_another_machine_are_read():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Rescaling(1.0)])
    twice = keras.function(lambda x: x * 2)
    for kind in ("i4", "u2", "f4", "f8"):
        ours, theirs = np.array([[1, 2]], f"<{kind}"), np.array([[1, 2]], f">{kind}")
        np.testing.assert_array_equal(model.predict(theirs, verbose=0), ours)
        np.testing.assert_array_equal(twice(theirs), ours * 2)


def test_rows_that_are_one_batch_share_its_program():
    model, (x, _) = classifier(), blobs(20)
    whole = model.predict_on_batch(x)
    compiled = len(model._step_cache._steps)
    np.testing.assert_array_equal(model.predict(x, verbose=0), whole)
    assert len(model._step_cache._steps) == compiled
    in_two = model.predict(x, batch_size=10, verbose=0)
    np.testing.assert_allclose(in_two, whole, rtol=1e-6)
    with pytest.warns(UserWarning, match="ran out of data"):
        model.predict(x, steps=2, verbose=0)


def test_predictions_of_different_shapes_are_refused_by_name():
    model = keras.Sequential([keras.Input((None, 2)), keras.layers.Dense(1)])
    batches = (np.ones((2, steps, 2)) for steps in (3, 4))
    with pytest.raises(ValueError, match=r"\(3, 1\) and \(4, 1\).*predict_on_batch"):
        model.predict(batches, verbose=0)
