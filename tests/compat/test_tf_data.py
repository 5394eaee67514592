"""`tf.data` beside TensorFlow's own: the same elements, lengths and specifications."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ganglion as keras
from ganglion.compat.tensorflow import namespaces
from ganglion.compat.tensorflow.data import mapping
from ganglion.compat.tensorflow.data.dataset import Dataset

theirs = pytest.importorskip("tensorflow")
ours = namespaces.load("")

X = np.arange(12, dtype=np.float32).reshape(6, 2)
Y = np.arange(6)


def rows(tf: Any) -> Any:
    return tf.data.Dataset.from_tensor_slices((X, Y))


def numbers(tf: Any, *bounds: int) -> Any:
    return tf.data.Dataset.range(*bounds)


def ragged(tf: Any) -> Any:
    return numbers(tf, 1, 5).map(lambda n: tf.ones((n,), tf.int32) * 7)


def yielding(tf: Any, **options: Any) -> Any:
    def pairs() -> Any:
        for number in range(3):
            yield np.ones(2) * number, number

    return tf.data.Dataset.from_generator(pairs, **options)


CASES: dict[str, Callable[[Any], Any]] = {
    "padded_pairs": lambda tf: (
        ragged(tf)
        .map(lambda row: (row, tf.size(row)))
        .padded_batch(3, padded_shapes=([None], []), padding_values=(-1, 0))
    ),
    "buckets": lambda tf: ragged(tf).bucket_by_sequence_length(
        lambda row: tf.size(row), [2, 4], [1, 2, 2]
    ),
    "windows_by_key": lambda tf: numbers(tf, 7).group_by_window(
        lambda n: n % 2, lambda key, window: window.batch(2), window_size=2
    ),
    "chosen": lambda tf: tf.data.Dataset.choose_from_datasets(
        [numbers(tf, 2), numbers(tf, 5, 9)], numbers(tf, 3).map(lambda n: n % 2)
    ),
    "without_doubles": lambda tf: numbers(tf, 6).map(lambda n: n % 3).unique(),
    "other_batches": lambda tf: rows(tf).batch(4).rebatch(3),
    "counter": lambda tf: tf.data.Dataset.counter(start=2, step=3).take(3),
    "applied": lambda tf: rows(tf).batch(2).apply(tf.data.experimental.unbatch()),
    "rows": rows,
    "lists_of_a_map": lambda tf: rows(tf).map(lambda x, y: [x, y]).batch(2),
    "columns_of_texts": lambda tf: tf.data.Dataset.from_tensor_slices(["1,a"]).map(
        lambda line: tf.io.decode_csv(line, [[0], [""]])
    ),
    "rows_of_lists": lambda tf: tf.data.Dataset.from_tensor_slices([1.5, 2.0]),
    "rows_of_arrays": lambda tf: tf.data.Dataset.from_tensor_slices([X, X]),
    "dictionaries": lambda tf: tf.data.Dataset.from_tensor_slices({"b": X, "a": Y}),
    "texts": lambda tf: tf.data.Dataset.from_tensor_slices(["a", "b"]).batch(2),
    "single_texts": lambda tf: tf.data.Dataset.from_tensor_slices(
        (["a", "bc"], [1, 2])
    ),
    "letters": lambda tf: tf.data.Dataset.from_tensor_slices(["ab", "cd"]).map(
        lambda text: tf.strings.unicode_split(text, input_encoding="UTF-8")
    ),
    "one_element": lambda tf: tf.data.Dataset.from_tensors((X, Y)),
    "range": lambda tf: numbers(tf, 2, 9, 3),
    "batches": lambda tf: rows(tf).batch(4),
    "no_remainder": lambda tf: rows(tf).batch(4, drop_remainder=True),
    "batches_of_batches": lambda tf: numbers(tf, 8).batch(2).batch(3),
    "maps": lambda tf: rows(tf).map(lambda x, y: (x * 2 + 1, {"y": y})).batch(4),
    "maps_in_threads": lambda tf: rows(tf).map(
        lambda x, y: tf.reduce_sum(x) + tf.cast(y, tf.float32), num_parallel_calls=2
    ),
    "map_of_a_dictionary": lambda tf: tf.data.Dataset.from_tensor_slices({"x": X}).map(
        lambda row: row["x"][0]
    ),
    "filters": lambda tf: numbers(tf, 6).filter(lambda n: n % 2 == 0),
    "takes_and_skips": lambda tf: rows(tf).skip(1).take(3).batch(2),
    "takes_all": lambda tf: rows(tf).take(-1).skip(10),
    "takes_batches": lambda tf: rows(tf).batch(2).skip(1).take(1),
    "repeats": lambda tf: numbers(tf, 3).repeat(2).batch(4),
    "repeats_for_ever": lambda tf: numbers(tf, 3).repeat().take(5),
    "concatenates": lambda tf: numbers(tf, 2).concatenate(numbers(tf, 5, 7)),
    "zips": lambda tf: tf.data.Dataset.zip((numbers(tf, 3), rows(tf))),
    "zips_arguments": lambda tf: tf.data.Dataset.zip(numbers(tf, 3), numbers(tf, 9)),
    "enumerates": lambda tf: rows(tf).enumerate(start=3),
    "shards": lambda tf: numbers(tf, 7).shard(3, 1),
    "caches": lambda tf: numbers(tf, 4).map(lambda n: n + 1).cache().prefetch(1),
    "unbatches": lambda tf: rows(tf).batch(4).unbatch(),
    "unbatches_maps": lambda tf: rows(tf).batch(4).map(lambda x, y: x).unbatch(),
    "flat_maps": lambda tf: numbers(tf, 3).flat_map(
        lambda n: tf.data.Dataset.from_tensors(n).repeat(2)
    ),
    "interleaves": lambda tf: numbers(tf, 4).interleave(
        lambda n: tf.data.Dataset.from_tensors(n).repeat(3),
        cycle_length=2,
        block_length=2,
    ),
    "windows": lambda tf: (
        numbers(tf, 7)
        .window(3, shift=2, drop_remainder=True)
        .flat_map(lambda window: window.batch(3))
    ),
    "short_windows": lambda tf: (
        numbers(tf, 5).window(3, shift=1, stride=2).flat_map(lambda w: w.batch(3))
    ),
    "reduces_windows": lambda tf: (
        numbers(tf, 7)
        .window(2, shift=2)
        .map(lambda w: w.reduce(tf.constant(0, tf.int64), lambda a, b: a + b))
        .filter(lambda n: n > 0)
    ),
    "pads": lambda tf: ragged(tf).padded_batch(3),
    "pads_to_a_shape": lambda tf: ragged(tf).padded_batch(
        2, padded_shapes=(6,), padding_values=-1
    ),
    "generator": lambda tf: yielding(tf, output_types=(tf.float32, tf.int64)),
    "signature": lambda tf: yielding(
        tf,
        output_signature=(
            tf.TensorSpec(shape=(2,), dtype=tf.float32),
            tf.TensorSpec(shape=(), dtype=tf.int32),
        ),
    ).batch(2),
    "takes_while": lambda tf: numbers(tf, 9).take_while(lambda n: n < 4),
    "scans": lambda tf: numbers(tf, 4).scan(
        np.int64(0), lambda state, n: (state + n, state)
    ),
}


def leaves(element: Any) -> list[Any]:
    if isinstance(element, dict):
        return [(key, leaves(part)) for key, part in sorted(element.items())]
    if isinstance(element, tuple):
        return [leaves(part) for part in element]
    array = np.asarray(element)
    kind = "object" if array.dtype.kind in "OS" else array.dtype.name
    return [kind, array.tolist()]


@pytest.mark.parametrize("name", CASES)
def test_elements_are_tensorflows(name):
    mine, wanted = CASES[name](ours), CASES[name](theirs)
    expected = [leaves(element) for element in wanted.as_numpy_iterator()]
    for _ in range(2):  # a data set can be read again
        assert [leaves(element) for element in mine.as_numpy_iterator()] == expected
    length = int(wanted.cardinality())
    if length >= 0 or name in ("repeats_for_ever", "filters"):
        assert int(mine.cardinality()) in (length, len(expected))


def test_endless_data_sets_are_known_to_be_endless():
    def cardinalities(tf: Any) -> list[int]:
        unknown = numbers(tf, 3).filter(lambda n: n < 2)
        endless = numbers(tf, 3).repeat()
        data = [
            unknown.repeat(),
            unknown.repeat(2),
            unknown.repeat(0),
            endless.repeat(0),
            endless.repeat(2),
            endless.concatenate(unknown),
            unknown.concatenate(endless),
            unknown.concatenate(numbers(tf, 3)),
        ]
        return [int(dataset.cardinality()) for dataset in data]

    assert cardinalities(ours) == cardinalities(theirs)


@pytest.mark.parametrize("name", ["rows", "batches", "no_remainder", "signature"])
def test_element_specifications_are_tensorflows(name):
    mine, wanted = CASES[name](ours).element_spec, CASES[name](theirs).element_spec
    for left, right in zip(mine, wanted, strict=True):
        assert list(left.shape) == right.shape.as_list()
        assert left.dtype == right.dtype.name


def test_shuffling_draws_from_the_buffer_and_anew():
    data = numbers(ours, 40).shuffle(8, seed=3)
    first, second = ([int(n) for n in data] for _ in range(2))
    assert sorted(first) == sorted(second) == list(range(40))
    assert first != second
    assert all(number <= place + 8 for place, number in enumerate(first))
    again = numbers(ours, 40).shuffle(8, seed=3)
    assert [int(n) for n in again] == first
    fixed = numbers(ours, 40).shuffle(40, reshuffle_each_iteration=False)
    assert [int(n) for n in fixed] == [int(n) for n in fixed]


def test_rows_stay_rows_for_fit():
    data = rows(ours).shuffle(6).batch(4).prefetch(ours.data.AUTOTUNE)
    taken = data.as_rows()
    assert taken is not None
    assert taken["shuffle"]
    assert taken["batch_size"] == 4
    assert rows(ours).batch(4).as_rows()["shuffle"] is False
    for other in (
        rows(ours).shuffle(3).batch(4),  # not all rows can come first
        rows(ours).take(3).batch(2),
        rows(ours).repeat(2).batch(2),
        rows(ours).batch(4, drop_remainder=True),
        rows(ours).batch(4).map(lambda x, y: (x, y)),
        ours.data.Dataset.from_tensor_slices(X).batch(2),
    ):
        assert other.as_rows() is None


def test_fit_takes_batches_in_every_form():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.001), "mse")
    weights = model.get_weights()
    losses = []
    for data in (
        rows(ours).batch(4),
        rows(ours).batch(4).map(lambda x, y: (x, y)).prefetch(2),
        rows(ours).map(lambda x, y: (x, y)).cache().batch(4),
        yielding_batches(),
    ):
        model.set_weights(weights)
        losses.append(model.fit(data, epochs=2, verbose=0).history["loss"])
        model.set_weights(weights)  # a size beside batches that are made is not theirs
        other = model.fit(data, batch_size=1, epochs=2, verbose=0)
        losses.append(other.history["loss"])
    np.testing.assert_allclose(losses, [losses[0]] * 8, rtol=1e-6)


def yielding_batches() -> Dataset:
    def pairs() -> Any:
        yield X[:4], Y[:4]
        yield X[4:], Y[4:]

    return ours.data.Dataset.from_generator(pairs, output_types=("float32", "int64"))


MAPPED: dict[str, Callable[[Any], Any]] = {
    "arithmetic": lambda x, y: (x * 2 + 1, ours.cast(y, ours.float32) / 3),
    "dictionaries": lambda x, y: {"row": x, "hot": ours.one_hot(y, 6)},
    "lists": lambda x, y: ours.stack([x[0], x[1], x[0] * x[1]]),
    "whole_numbers": lambda x, y: y + 1,
    "python_decisions": lambda x, y: x if int(y) % 2 else -x,
    "python_functions": lambda x, y: ours.py_function(np.sum, [x], ours.float32),
    "other_sizes": lambda x, y: ours.ones((int(y),)),
    "constants": lambda x, y: (x, 1.0),
}


@pytest.mark.parametrize("name", MAPPED)
def test_a_long_map_is_compiled_where_it_can_be(monkeypatch, name):
    expected = [
        leaves(element) for element in rows(ours).map(MAPPED[name]).as_numpy_iterator()
    ]
    monkeypatch.setattr(mapping, "FIRST", 2)
    monkeypatch.setattr(mapping, "MOST", 3)
    data = rows(ours).map(MAPPED[name])
    for _ in range(2):
        assert [leaves(element) for element in data.as_numpy_iterator()] == expected


def test_random_numbers_of_a_compiled_map_differ_between_elements(monkeypatch):
    monkeypatch.setattr(mapping, "FIRST", 1)
    data = numbers(ours, 40).map(lambda n: ours.random.uniform(()))
    first, second = ([float(n) for n in data] for _ in range(2))
    assert len(set(first + second)) == 80


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="equally many rows"):
        ours.data.Dataset.from_tensor_slices((X, Y[:2]))
    with pytest.raises(ValueError, match="padded_batch"):
        list(ragged(ours).batch(2))
    spec = (ours.TensorSpec((3,), ours.float32), ours.TensorSpec((), ours.int32))
    with pytest.raises(TypeError, match=r"signature says TensorSpec\(shape=\(3,\)"):
        list(yielding(ours, output_signature=spec))
    with pytest.raises(AttributeError, match=r"tensorflow\.data\.Dataset\.snapshot: "):
        numbers(ours, 3).snapshot("here")
    with pytest.raises(TypeError, match="infinite"):
        len(numbers(ours, 3).repeat())
    with pytest.raises(NotImplementedError, match="mmap_mode"):
        numbers(ours, 3).cache("file")


def test_an_error_in_a_prefetching_thread_is_raised():
    def failing(number: Any) -> Any:
        if int(number) == 2:
            raise RuntimeError("broken row")
        return number

    data = numbers(ours, 4).map(failing).prefetch(2)
    with pytest.raises(RuntimeError, match="broken row"):
        list(data)


def test_data_sets_of_keras_utilities_have_the_methods_of_tf_data():
    data = keras.utils.timeseries_dataset_from_array(
        np.arange(20, dtype=np.float32), None, sequence_length=3, batch_size=4
    )
    assert int(data.cardinality()) == len(data) == 5
    assert int(Dataset.cardinality(data)) == 5
    assert data.element_spec.shape == (None, 3)
    assert len(list(data.repeat(2))) == 10
    assert len(list(data.repeat().take(7).prefetch(2))) == 7
    ends = keras.utils.timeseries_dataset_from_array(
        np.arange(18), None, sequence_length=1, batch_size=4
    )
    pairs = list(ours.data.Dataset.zip((data, ends)))
    assert [len(pair[0]) for pair in pairs] == [len(pair[1]) for pair in pairs]
    assert len(list(Dataset.range(2).interleave(lambda number: data))) == 10
    with pytest.raises(AttributeError, match="no attribute 'snapshot'"):
        data.snapshot()


def test_tables_and_lines_of_files_are_tensorflows(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("age,town,weight\n31,Ulm,70.5\n,Bonn,80\n44,,61\n")
    options = {"batch_size": 2, "label_name": "weight", "num_epochs": 1}
    cases = (
        {"shuffle": False},
        {"shuffle": False, "column_defaults": [[-1], ["?"], [0.0]]},
    )
    for case in cases:
        ours, expected = (
            list(tf.data.experimental.make_csv_dataset(str(path), **options, **case))
            for tf in (namespaces.load(""), theirs)
        )
        for (columns, label), (their_columns, their_label) in zip(
            ours, expected, strict=True
        ):
            assert list(columns) == list(their_columns)
            np.testing.assert_array_equal(label, their_label)
            for name in columns:
                wanted = their_columns[name].numpy()
                np.testing.assert_array_equal(np.asarray(columns[name]), wanted)
    lines = [tf.data.TextLineDataset(str(path)) for tf in (namespaces.load(""), theirs)]
    ours, expected = ([line.numpy() for line in each] for each in lines)
    assert ours == expected


def test_lines_of_tables_that_cannot_be_read_are_left_out_on_request(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("age,town,weight\n31,Ulm,70.5\n?,Bonn,80\n44,61\n5,Ulm,9\n")
    options = {"batch_size": 4, "num_epochs": 1, "shuffle": False}
    defaults = [[0], [""], [0.0]]
    batches = [
        next(
            iter(
                tf.data.experimental.make_csv_dataset(
                    str(path), column_defaults=defaults, ignore_errors=True, **options
                )
            )
        )
        for tf in (namespaces.load(""), theirs)
    ]
    for name in ("age", "town", "weight"):
        ours_, expected = (np.asarray(batch[name]).tolist() for batch in batches)
        assert ours_ == expected
    with pytest.raises(ValueError, match="row 2 has 2 fields"):
        namespaces.load("").data.experimental.make_csv_dataset(str(path), **options)


def test_what_was_saved_is_loaded(tmp_path):
    path = str(tmp_path / "rows")
    rows(ours).batch(4).map(lambda x, y: {"x": x, "y": y}).save(path)
    loaded = list(Dataset.load(path))
    assert [sorted(element) for element in loaded] == [["x", "y"], ["x", "y"]]
    np.testing.assert_array_equal(loaded[1]["x"], X[4:])
    (tmp_path / "rows" / "elements.h5").write_bytes(b"damaged")
    with pytest.raises(ValueError, match="cannot be loaded"):
        Dataset.load(path)


def test_the_next_element_or_none():
    items = iter(numbers(ours, 1))
    first, second = items.get_next_as_optional(), items.get_next_as_optional()
    assert bool(first.has_value())
    assert int(first.get_value()) == 0
    assert not bool(second.has_value())


def test_elements_that_cannot_be_made_are_left_out():
    def checked(n: Any) -> Any:
        ours.debugging.assert_less(n, np.int64(2))
        return n

    kept = numbers(ours, 2).map(checked).ignore_errors()
    assert [int(n) for n in kept] == [0, 1]


def test_lines_of_files_whose_names_are_elements(tmp_path):
    for name in "ab":
        (tmp_path / name).write_text(f"{name}1\n{name}2\n")
    names = Dataset.list_files(str(tmp_path / "*"), shuffle=False)
    lines = names.interleave(ours.data.TextLineDataset, cycle_length=2)
    assert [str(line.numpy(), "ascii") for line in lines] == ["a1", "b1", "a2", "b2"]


def test_batches_of_validation_are_those_of_its_own_data():
    x = np.arange(10, dtype=np.float32)[:, None]
    model = keras.Sequential([keras.Input((1,)), keras.layers.Identity()])
    model.compile("sgd", "mae")
    data = Dataset.from_tensor_slices((x, 0 * x))
    history = model.fit(
        data.batch(5), validation_data=data.batch(2), validation_steps=2, verbose=0
    )
    assert history.history["val_loss"] == [1.5]


def test_a_list_that_is_yielded_is_a_tensor_where_one_is_promised():
    for tf in (ours, theirs):
        lists = tf.data.Dataset.from_generator(
            lambda: ([n] * n for n in (1, 3, 2)),
            output_signature=tf.TensorSpec([None], tf.int32),
        )
        batches = [x.numpy().tolist() for x in lists.padded_batch(2)]
        assert batches == [[[1, 0, 0], [3, 3, 3]], [[2, 2]]]


def test_a_pass_that_has_ended_is_out_of_range():
    iterator = iter(Dataset.range(1))
    assert int(iterator.get_next()) == 0
    with pytest.raises(ours.errors.OutOfRangeError):
        iterator.get_next()
