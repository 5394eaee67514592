"""Indices and labels out of range: refused by name, or NaN, on every backend alike."""

from __future__ import annotations

from typing import Any

import cpu_checks
import cuda_checks
import cuda_host
import numpy as np
import pytest

import ganglion
from ganglion import config, layers, ops
from ganglion.compiler.ir.contraction import gather, scatter_add
from ganglion.compiler.ir.graph import Graph, Input, Program
from ganglion.variables import Scope

ROWS, BAD_ROW = 40, 37
X = np.zeros((ROWS, 2), "int64")
X[BAD_ROW, 1] = 12
Y = np.ones((ROWS, 1), "float32")


@pytest.fixture(params=["numpy", "cpu"])
def backend(request) -> str:
    if request.param == "cpu":
        pytest.importorskip("llvmlite", reason="llvmlite is not installed")
    config.set_backend(request.param)
    return request.param


def model_of(*stack: Any, dtype: str | None = "int32") -> Any:
    stack = stack or (layers.Embedding(10, 3, name="words"),)
    ends = [layers.Flatten(), layers.Dense(1)]
    model = ganglion.Sequential([ganglion.Input((2,), dtype=dtype), *stack, *ends])
    model.compile("sgd", "mse")
    return model


def in_batches() -> Any:
    for start in range(0, ROWS, 20):
        yield X[start : start + 20], Y[start : start + 20]


WAYS = {
    "fit": lambda model: model.fit(X, Y, verbose=0),
    "fit, one batch": lambda model: model.fit(X, Y, batch_size=ROWS, verbose=0),
    "validation": lambda model: model.fit(
        X[:20], Y[:20], validation_data=(X, Y), verbose=0
    ),
    "evaluate": lambda model: model.evaluate(X, Y, verbose=0),
    "predict": lambda model: model.predict(X, verbose=0),
    "predict_on_batch": lambda model: model.predict_on_batch(X),
    "train_on_batch": lambda model: model.train_on_batch(X, Y),
    "test_on_batch": lambda model: model.test_on_batch(X, Y),
}


@pytest.mark.parametrize("way", WAYS)
def test_an_index_out_of_range_is_named(backend: str, way: str) -> None:
    model = model_of()
    before = model.get_weights()
    text = (
        rf'Index 12 in `x` \(row {BAD_ROW}\) is out of range: layer "sequential/words"'
    )
    with pytest.raises(
        IndexError, match=text + r".* a table of 10 rows, 0 to 9, or -10"
    ):
        WAYS[way](model)
    assert not any(np.isnan(array).any() for array in model.get_weights())
    if way != "validation":
        for old, new in zip(before, model.get_weights(), strict=True):
            np.testing.assert_array_equal(old, new)


def test_in_a_stream_of_batches_and_on_arrays(backend: str) -> None:
    with pytest.raises(IndexError, match=r"Index 12 in `x` \(row 17\)"):
        model_of().fit(in_batches(), verbose=0)
    with pytest.raises(IndexError, match="Index 12 is out of range: layer"):
        model_of()(X)
    with pytest.raises(IndexError, match=r"Index -11 in `x` \(row 0\)"):
        model_of().predict(X * 0 - 11, verbose=0)
    with pytest.raises(IndexError, match=r"Index nan in `x` \(row 0\)"):
        model_of(dtype="float32").predict(np.full((1, 2), np.nan), verbose=0)


def test_indices_count_from_the_end_and_from_0(backend: str) -> None:
    model = model_of()
    every = np.arange(-10, 10).reshape(-1, 2)
    predictions = model.predict(every, verbose=0)
    np.testing.assert_allclose(predictions[:5], predictions[5:], rtol=1e-5)


PATHS = {
    "part of the columns": lambda x: layers.Embedding(20, 2)(x[:, 1:]),
    "each by its own table": lambda x: layers.Concatenate()(
        [layers.Embedding(1, 2)(x[:, 0]), layers.Embedding(13, 2)(x[:, 1])]
    ),
    "another shape": lambda x: layers.Embedding(13, 2)(layers.Reshape((2, 1))(x)),
    "joined": lambda x: layers.Embedding(13, 2)(layers.Concatenate()([x, x])),
    "clipped": lambda x: layers.Embedding(3, 2)(ops.clip(x, 0, 2)),
}


@pytest.mark.parametrize("name", PATHS)
def test_what_lies_in_range_is_not_refused(name: str) -> None:
    config.set_backend("numpy")
    x = ganglion.Input((2,), dtype="int32")
    model = ganglion.Model(x, PATHS[name](x))
    assert not np.isnan(model.predict(X, verbose=0)).any()


def test_the_part_of_the_columns_that_a_layer_reads_is_looked_at() -> None:
    config.set_backend("numpy")
    x = ganglion.Input((2,), dtype="int32")
    tables = [layers.Embedding(12, 2, name=name) for name in ("first", "second")]
    model = ganglion.Model(x, [tables[0](x[:, 0]), tables[1](x[:, 1])])
    with pytest.raises(IndexError, match=r'Index 12 .* layer "functional/second"'):
        model.predict(X, verbose=0)
    with pytest.raises(IndexError, match=r'Index 12 .* layer "functional/first"'):
        model.predict(X[:, ::-1], verbose=0)


def test_data_that_a_callback_changes_is_looked_at_again() -> None:
    config.set_backend("numpy")
    x = X.astype("int32") * 0

    class Spoil(ganglion.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            x[5] = 99

    with pytest.raises(IndexError, match=r"Index 99 in `x` \(row 5\)"):
        model_of().fit(x, Y, epochs=3, verbose=0, callbacks=[Spoil()])


def test_labels_out_of_range_are_named_in_every_model(backend: str) -> None:
    class Own(ganglion.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = layers.Dense(3)

        def call(self, x: Any) -> Any:
            return self.dense(x)

    for model in (Own(), ganglion.Sequential([ganglion.Input((2,)), layers.Dense(3)])):
        model.compile("sgd", "sparse_categorical_crossentropy")
        labels = np.zeros(4, int)
        labels[2] = 3
        for way in (model.fit, model.evaluate):
            with pytest.raises(ValueError, match=r"Label 3 in `y` \(row 2\)"):
                way(np.ones((4, 2)), labels, verbose=0)
        with pytest.raises(ValueError, match=r"Label 3 in `y` \(row 2\)"):
            model.train_on_batch(np.ones((4, 2)), labels)


ON_ARRAYS = [
    (lambda: ops.take(np.ones((3, 2)), [3], axis=0), "Index 3 .* 3 rows"),
    (lambda: ops.take(np.ones((3, 2)), [-3], axis=1), "Index -3 .* 2 rows"),
    (lambda: ops.take(np.ones(4), np.int64(4)), "Index 4 .* 4 rows"),
    (lambda: ops.get_item(np.ones((3, 2)), np.array([7])), "Index 7 .* 3 rows"),
    (lambda: ops.take_along_axis(np.eye(2), [[0], [2]], axis=1), "Index 2 .* 2 rows"),
    (lambda: ops.scatter([[0, 5]], np.ones(1), (2, 3)), "Index 5 .* 3 rows, 0 to 2\\."),
    (lambda: ops.scatter_update(np.ones(3), [[-1]], np.ones(1)), "Index -1 .* 3 rows"),
    (lambda: ops.segment_sum(np.ones(2), [0, 2], num_segments=2), "Index 2 .* 2 rows"),
]


@pytest.mark.parametrize(("call", "text"), ON_ARRAYS)
def test_on_arrays(call, text: str) -> None:
    with pytest.raises(IndexError, match=text):
        call()


def test_labels_on_arrays() -> None:
    scores = np.full((2, 3), 0.5, "float32")
    for labels in ([0, 3], [0, -1]):
        with pytest.raises(ValueError, match="out of range: the model has 3 classes"):
            ops.sparse_categorical_crossentropy(labels, scores)
    ignoring = ganglion.losses.SparseCategoricalCrossentropy(ignore_class=-1)
    assert np.isfinite(ignoring(np.array([0, -1]), scores))


# ---- indices that a step computes ----------------------------------------------------


def computed() -> tuple[Program, cpu_checks.Arrays]:
    """Return a program of everything that reads and adds rows by bad numbers."""
    table = Input("table", (5, 3), "float32")
    index = Input("index", (6,), "int32")
    counts = Input("counts", (5,), "int32")
    with Scope():
        outputs = {
            "gather": gather(table, index),
            "whole": gather(counts, index),
            "scatter": scatter_add(gather(table, index), index, rows=5),
            "take": ops.take(table, index, axis=1),
            "along": ops.take_along_axis(table, ops.reshape(index, (2, 3)), axis=0),
            "segments": ops.segment_sum(index, index, num_segments=4),
            "scattered": ops.scatter(ops.reshape(index, (3, 2)), [1.0, 2, 3], (3, 2)),
        }
    data = {
        "table": np.arange(15, dtype="float32").reshape(5, 3),
        "index": np.array([0, 7, -9, 4, -1, 2], "int32"),
        "counts": np.arange(5, dtype="int32"),
    }
    return cpu_checks.pure(Graph.of("g", [table, index, counts], outputs)), data


def test_the_meaning_of_bad_rows() -> None:
    program, data = computed()
    _, results = cpu_checks.ran(cpu_checks.reference.compile(program), data, {}, 1)
    is_nan = np.isnan(results["gather"][0]).any(axis=1)
    assert is_nan.tolist() == [False, True, True, False, True, False]
    right = data["table"] * [[1], [0], [1], [0], [1]]
    np.testing.assert_array_equal(results["scatter"][0], right)
    assert (
        np.isnan(results["along"][0]).sum() == 2
    )  # -1 is the last, the others are none
    np.testing.assert_array_equal(results["scattered"][0], [[0, 0], [0, 0], [0, 0]])


def test_bad_rows_compiled() -> None:
    pytest.importorskip("llvmlite", reason="llvmlite is not installed")
    cpu_checks.check(*computed(), {}, rtol=0, atol=0)


@pytest.mark.skipif(
    cuda_host.reason() is not None, reason=str(cuda_host.reason() or "")
)
def test_bad_rows_on_a_gpu(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("GANGLION_HOME", str(tmp_path))
    config.set_backend("numpy")
    cuda_checks.check(*computed(), {}, tolerance=0)


def test_updates_by_computed_indices_leave_other_rows_alone(backend: str) -> None:
    """A row that is not there makes the loss NaN, but moves no row of the table."""
    words = layers.Embedding(10, 3, name="words")
    model = model_of(layers.Lambda(lambda x: x * 2), words)
    model.layers[-1].trainable = False
    model.compile(ganglion.optimizers.SGD(1.0), "mse")
    before = words.embeddings.numpy()
    x = np.array([[1, 2], [6, 7]])  # rows 2, 4 and 12, 14, which are not there
    with pytest.warns(RuntimeWarning, match="stopped being a finite number"):
        model.fit(x, np.ones((2, 1)), batch_size=1, shuffle=False, verbose=0)
    after = words.embeddings.numpy()
    moved = (before != after).any(axis=1)
    assert moved.tolist() == [i in (2, 4) for i in range(10)]
    assert np.isfinite(after).all()


def test_positions_along_an_unknown_axis_are_checked_when_it_is_known():
    class Positions(layers.Layer):
        def __init__(self):
            super().__init__()
            self.table = layers.Embedding(6, 2)

        def call(self, x):
            return self.table(ops.arange(ops.shape(x)[1])) + ops.expand_dims(x, -1)

    inputs = ganglion.Input((None,))
    model = ganglion.Model(inputs, Positions()(inputs))
    assert model.predict(np.zeros((3, 5)), verbose=0).shape == (3, 5, 2)
    with pytest.raises(IndexError, match="reads a table of 6 rows"):
        model.predict(np.zeros((3, 7)), verbose=0)
