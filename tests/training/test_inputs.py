"""What `fit`, `evaluate` and `predict` read beside arrays: files, frames, workers."""

from __future__ import annotations

import threading
import time
from typing import Any

import h5py
import numpy as np
import pytest

import ganglion as keras
from ganglion.system import prefetch
from ganglion.training import data_adapters, lazy_rows

DRAWS = np.random.default_rng(3)
X = DRAWS.normal(size=(20, 3)).astype(np.float32)
X[X < 0] = 0
Y = DRAWS.normal(size=(20, 1)).astype(np.float32)


def model() -> Any:
    keras.utils.set_random_seed(5)  # the order of rows is drawn from it
    net = keras.Sequential(
        [keras.Input((3,)), keras.layers.Dense(1, kernel_initializer="ones")]
    )
    net.compile(keras.optimizers.SGD(0.05), "mse")
    return net


def trained_on(x: Any, y: Any, **options: Any) -> list[Any]:
    net = model()
    options = {"batch_size": 8, "epochs": 2, "shuffle": False, "verbose": 0, **options}
    history = net.fit(x, y, **options).history
    size = options["batch_size"]
    return [
        *history.values(),
        net.evaluate(x, y, batch_size=size, verbose=0),
        net.predict(x, batch_size=size, verbose=0),
    ]


def assert_like_arrays(x: Any, y: Any, **options: Any) -> None:
    results = zip(trained_on(x, y, **options), trained_on(X, Y, **options), strict=True)
    for result, wanted in results:
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6)


@pytest.fixture(params=["memory", "batches"])
def _read_as(request: Any, monkeypatch: Any) -> None:
    if request.param == "batches":
        monkeypatch.setattr(lazy_rows, "MOST_BYTES", 0)


@pytest.mark.usefixtures("_read_as")
@pytest.mark.parametrize("options", [{}, {"shuffle": True, "validation_split": 0.25}])
def test_data_sets_of_h5py(tmp_path: Any, options: dict[str, Any]) -> None:
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        x, y = file.create_dataset("x", data=X), file.create_dataset("y", data=Y)
        assert_like_arrays(x, y, **options)


@pytest.mark.usefixtures("_read_as")
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_memory_maps(tmp_path: Any, kind: str) -> None:
    np.save(tmp_path / "x.npy", X.astype(kind))
    x = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert_like_arrays(x, Y)


def test_a_memory_map_of_float32_is_gathered_from_by_the_step(tmp_path: Any) -> None:
    np.save(tmp_path / "x.npy", X)
    x = np.load(tmp_path / "x.npy", mmap_mode="r")
    table = data_adapters.rows(model(), x, Y, None)
    assert isinstance(table, data_adapters.Table)
    assert np.shares_memory(table.arrays()["x"], x)


@pytest.mark.parametrize(
    "name", ["csr_matrix", "csc_matrix", "coo_matrix", "csr_array"]
)
@pytest.mark.parametrize("options", [{}, {"shuffle": True, "validation_split": 0.25}])
def test_sparse_rows_are_made_dense_by_the_batch(
    monkeypatch: Any, name: str, options: dict[str, Any]
) -> None:
    sparse = pytest.importorskip("scipy.sparse")
    largest = []
    read = lazy_rows.LazyRows._read
    monkeypatch.setattr(
        lazy_rows.LazyRows,
        "_read",
        lambda self, rows: largest.append(len(rows)) or read(self, rows),
    )
    assert_like_arrays(getattr(sparse, name)(X), Y, **options)
    assert max(largest) == 8


def test_sparse_validation_data() -> None:
    sparse = pytest.importorskip("scipy.sparse")
    dense = trained_on(X, Y, validation_data=(X, Y))
    result = trained_on(X, Y, validation_data=(sparse.csr_matrix(X), Y))
    np.testing.assert_allclose(result[1], dense[1], rtol=1e-5)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames_and_series(library: str) -> None:
    frames = pytest.importorskip(library)
    x = frames.DataFrame({name: X[:, n] for n, name in enumerate("abc")})
    y = frames.Series(Y[:, 0])
    assert_like_arrays(x, y)


def test_a_series_of_pandas_is_a_column_for_functions_of_labels() -> None:
    pandas = pytest.importorskip("pandas")
    shapes = []

    def bias(y_true: Any, y_pred: Any) -> Any:
        shapes.append((tuple(y_true.shape), tuple(y_pred.shape)))
        return keras.ops.mean(y_true - y_pred)

    net = model()
    net.compile("sgd", "mse", metrics=[bias])
    weights = pandas.Series(np.ones(20))
    net.fit(X, pandas.Series(Y[:, 0]), sample_weight=weights, batch_size=20, verbose=0)
    assert set(shapes) == {((20, 1), (20, 1))}


class Batches(keras.utils.PyDataset):
    """Five batches, which say in which thread or process they are made."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.threads: set[str] = set()

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> Any:
        self.threads.add(threading.current_thread().name)
        time.sleep(0.001)
        rows = slice(4 * index, 4 * index + 4)
        return X[rows], Y[rows]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"workers": 3, "max_queue_size": 2},
        {"workers": 2, "use_multiprocessing": True},
    ],
)
def test_batches_are_in_order_with_any_workers(options: dict[str, Any]) -> None:
    data = Batches(**options)
    net, plain = model(), model()
    result = net.fit(data, epochs=2, shuffle=False, verbose=0).history
    wanted = plain.fit(X, Y, batch_size=4, epochs=2, shuffle=False, verbose=0).history
    np.testing.assert_allclose(result["loss"], wanted["loss"], rtol=1e-5)
    np.testing.assert_allclose(
        net.predict(data, verbose=0), plain.predict(X, verbose=0), rtol=1e-4, atol=1e-6
    )
    if options.get("use_multiprocessing"):
        assert data.threads == set()
    elif "workers" in options:
        assert any(name.startswith("ganglion-worker") for name in data.threads)
    else:
        assert "ganglion-prefetch" in data.threads


def test_what_is_made_at_once_is_made_here() -> None:
    names = []

    def items() -> Any:
        for number in range(6):
            names.append(threading.current_thread().name)
            yield number

    assert list(prefetch.ahead_if_slow(items())) == list(range(6))
    assert set(names) == {"MainThread"}


def test_an_error_of_a_slow_generator_is_raised_where_it_is_reached() -> None:
    def batches() -> Any:
        for _ in range(5):
            time.sleep(0.001)
            yield X[:4], Y[:4]
        raise RuntimeError("no more files")

    with pytest.raises(RuntimeError, match="no more files"):
        model().fit(batches(), verbose=0)


def test_a_generator_may_ask_the_model_that_trains() -> None:
    net = model()

    def batches() -> Any:
        for _ in range(6):
            yield X[:4], net.predict(X[:4], verbose=0)

    history = net.fit(batches(), steps_per_epoch=6, verbose=0).history
    assert np.isfinite(history["loss"]).all()


def test_an_endless_data_set_needs_steps() -> None:
    from ganglion.compat.tensorflow.data.dataset import Dataset

    data = Dataset.from_tensor_slices((X, Y)).repeat().batch(4)
    with pytest.raises(ValueError, match="steps_per_epoch"):
        model().fit(data, verbose=0)
    losses = model().fit(data, steps_per_epoch=5, epochs=2, verbose=0).history["loss"]
    wanted = model().fit(X, Y, batch_size=4, shuffle=False, epochs=2, verbose=0)
    np.testing.assert_allclose(losses, wanted.history["loss"], rtol=1e-5)
