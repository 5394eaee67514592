"""Windows of series, pairs of words, padding: as Keras, and what it lets pass."""

import random
from itertools import chain

import numpy as np
import pytest

import ganglion
from ganglion import utils
from ganglion.utils import pad_sequences, timeseries, timeseries_dataset_from_array
from ganglion.utils.sequence import (
    TimeseriesGenerator,
    make_sampling_table,
    skipgrams,
)

SERIES = np.arange(40.0).reshape(20, 2)


@pytest.fixture(scope="module")
def theirs(keras):
    from keras.src.legacy.preprocessing import sequence

    return sequence


def same_batches(ours, keras_s):
    ours, keras_s = list(ours), list(keras_s)
    assert len(ours) == len(keras_s)
    for batch, other in zip(ours, keras_s, strict=True):
        pairs = zip(batch, other, strict=True) if isinstance(batch, tuple) else []
        for part, wanted in pairs or [(batch, other)]:
            assert part.dtype == np.asarray(wanted).dtype
            np.testing.assert_array_equal(part, wanted)


# timeseries_dataset_from_array --------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"sequence_length": 4},
        {"sequence_length": 3, "sampling_rate": 4, "batch_size": 5},
        {"sequence_length": 2, "sequence_stride": 3, "batch_size": 2},
        {"sequence_length": 5, "start_index": 3, "end_index": 15},
        {"sequence_length": 3, "batch_size": None, "start_index": 2},
        {"sequence_length": 20},
        {
            "sequence_length": 6,
            "sampling_rate": 2,
            "sequence_stride": 2,
            "end_index": 14,
        },
    ],
    ids=str,
)
def test_windows_are_keras(keras, settings):
    for data, targets in [
        (SERIES, SERIES[:, 0]),
        (SERIES, None),
        # Keras fails if they are short and the start is a later one.
        (np.arange(20), np.arange(20)[: 20 if "start_index" in settings else 16]),
    ]:
        ours = timeseries_dataset_from_array(data, targets, **settings)
        other = keras.utils.timeseries_dataset_from_array(data, targets, **settings)
        same_batches(ours, [_plain(batch) for batch in other])


def _plain(batch):
    if isinstance(batch, tuple):
        return tuple(part.numpy() for part in batch)
    return batch.numpy()


def test_shuffled_windows_are_all_there():
    data = timeseries_dataset_from_array(
        np.arange(30), np.arange(30), 3, shuffle=True, seed=1, batch_size=4
    )
    first, second = ([y.tolist() for _, y in data] for _ in range(2))
    assert first != second
    for targets in (first, second):
        assert sorted(chain(*targets)) == list(range(28))
    for x, y in data:
        np.testing.assert_array_equal(x, y[:, None] + np.arange(3))


def test_the_first_of_shuffled_windows_come_from_the_whole_series():
    data = timeseries_dataset_from_array(
        np.arange(1000), None, 3, shuffle=True, seed=1, batch_size=4
    )
    (first,) = data.take(1)
    assert np.array(first).max() > 100


@pytest.mark.parametrize("in_memory", [True, False])
def test_windows_are_fit(monkeypatch, in_memory):
    monkeypatch.setattr(timeseries, "_IN_MEMORY", 1 << 20 if in_memory else 1)
    x = np.random.default_rng(0).random((60, 3)).astype("float32")
    data = timeseries_dataset_from_array(x, x.sum(1), 4, batch_size=16)
    assert (data.as_rows() is not None) == in_memory
    layers = ganglion.layers
    model = ganglion.Sequential(
        [ganglion.Input((4, 3)), layers.Flatten(), layers.Dense(1)]
    )
    model.compile("adam", "mse")
    history = model.fit(data, epochs=3, validation_data=data.take(1), verbose=0)
    assert history.history["loss"][-1] < history.history["loss"][0]
    assert len(model.predict(data, verbose=0)) == 57


def test_the_methods_of_tf_data_are_there():
    data = timeseries_dataset_from_array(np.arange(12), np.arange(12), 3, batch_size=4)
    assert [y.tolist() for _, y in data.take(1)] == [[0, 1, 2, 3]]
    assert [y.tolist() for _, y in data.skip(2)] == [[8, 9]]
    assert [y.tolist() for _, y in data.skip(-1)] == []
    singles = data.unbatch()
    assert len(singles) == 10
    assert next(iter(singles))[0].tolist() == [0, 1, 2]
    again = singles.batch(6, drop_remainder=True).cache().prefetch(2)
    assert [y.tolist() for _, y in again.as_numpy_iterator()] == [[0, 1, 2, 3, 4, 5]]
    only = data.map(lambda x, y: x).map(lambda x: x * 2)
    assert next(iter(only))[0].tolist() == [0, 2, 4]
    with pytest.raises(ValueError, match=r"in batches of 4 already.*unbatch"):
        data.batch(2)
    rows = only.unbatch().batch(4, drop_remainder=True)
    assert [x.shape for x in rows] == [(4, 3), (4, 3)]
    assert data.cardinality().numpy() == 3


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"sequence_length": 21}, "spans 21 steps, and the series has 20"),
        ({"sequence_length": 6, "sampling_rate": 4}, "spans 21 steps"),
        ({"sequence_length": 0}, "`sequence_length` must be 1 or more"),
        ({"sequence_length": 2, "sequence_stride": 0}, "`sequence_stride` must be 1"),
        ({"sequence_length": 2, "sampling_rate": -1}, "`sampling_rate` must be 1"),
        ({"sequence_length": 2, "start_index": 20}, "`start_index` must be from 0"),
        ({"sequence_length": 2, "start_index": -1}, "`start_index` must be from 0"),
        ({"sequence_length": 2, "end_index": 21}, "`end_index` must be above"),
        ({"sequence_length": 2, "start_index": 5, "end_index": 5}, "`end_index` must"),
        ({"sequence_length": 2, "format": "csv"}, "'tf' or 'grain'"),
        ({"sequence_length": 2, "targets": []}, "`targets` has no values"),
    ],
    ids=str,
)
def test_windows_that_cannot_be_are_refused(settings, match):
    with pytest.raises(ValueError, match=match):
        timeseries_dataset_from_array(SERIES, **{"targets": None, **settings})


# TimeseriesGenerator ------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"length": 3},
        {"length": 6, "sampling_rate": 2, "batch_size": 4},
        {"length": 4, "stride": 3, "batch_size": 2, "reverse": True},
        {"length": 2, "start_index": 5, "end_index": 12, "batch_size": 3},
        {"length": 5, "shuffle": True, "batch_size": 4},
        {"length": 19},
    ],
    ids=str,
)
def test_a_generator_is_keras(theirs, settings):
    batches = []
    for made in (TimeseriesGenerator, theirs.TimeseriesGenerator):
        np.random.seed(3)
        generator = made(SERIES, SERIES[:, 1], **settings)
        batches.append([generator[i] for i in range(len(generator))])
    same_batches(*batches)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"length": 20}, "leaves no step up to 19 as a target"),
        ({"length": 0}, "`length` is 1 or more, not 0"),
        ({"length": 2, "stride": 0}, "`stride` is 1 or more"),
        ({"length": 2, "targets": [1, 2]}, "20 steps and `targets` has 2"),
    ],
    ids=str,
)
def test_a_generator_that_cannot_be_is_refused(settings, match):
    with pytest.raises(ValueError, match=match):
        TimeseriesGenerator(SERIES, **{"targets": SERIES, **settings})


# Words --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"shuffle": False, "negative_samples": 0},
        {"window_size": 1, "seed": 5},
        {"categorical": True, "negative_samples": 2.5},
        {"sampling_table": make_sampling_table(30, 1e-1), "seed": 1},
    ],
    ids=["plain", "seed", "categorical", "table"],
)
def test_pairs_of_words_are_keras(theirs, settings):
    words = [3, 0, 7, 1, 1, 25, 0, 4]
    random.seed(2)
    ours = skipgrams(words, 30, **{"seed": 8, **settings})
    random.seed(2)
    assert ours == theirs.skipgrams(words, 30, **{"seed": 8, **settings})
    assert skipgrams([], 30) == skipgrams([0, 0], 30) == ([], [])


def test_the_sampling_table_is_keras(theirs):
    for size in (1, 50):
        np.testing.assert_allclose(
            make_sampling_table(size), theirs.make_sampling_table(size), rtol=1e-12
        )
    with pytest.raises(ValueError, match="`size` is 1 or more"):
        make_sampling_table(0)


def test_padding_is_keras(keras):
    rows = [[1, 2, 3], [], [4], list(range(7))]
    nested = [[[1, 2]], [], [[3, 4], [5, 6]]]
    for case, settings in [
        (rows, {}),
        (rows, {"maxlen": 2}),
        (rows, {"maxlen": 4, "padding": "post", "truncating": "post", "value": 9}),
        (nested, {"dtype": "float32", "value": -1.0}),
        ([["a"], ["b", "c"]], {"dtype": object, "value": "?"}),
        ([[], []], {}),
        ([], {"maxlen": 3}),
    ]:
        ours = pad_sequences(case, **settings)
        other = keras.utils.pad_sequences(case, **settings)
        assert (ours.shape, ours.dtype) == (other.shape, other.dtype)
        np.testing.assert_array_equal(ours, other)
    assert utils.pad_sequences([[1]], 0).shape == (1, 0)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (
            ([[1]], None, "int32", "middle"),
            "`padding` is 'pre' or 'post', not 'middle'",
        ),
        (([[1]], None, "int32", "pre", "end"), "`truncating` is 'pre' or 'post'"),
        (([1, 2],), "no length"),
        ((3,), "must be a list of sequences"),
        (([[1], [2]], -1), "`maxlen` is 0 or more, not -1"),
        (([[[1, 2]], [[3]]],), "elements of shape"),
    ],
)
def test_padding_that_cannot_be_is_refused(arguments, match):
    with pytest.raises(ValueError, match=match):
        pad_sequences(*arguments)
