"""Ops of functional models in `.keras` files, written by us and by Keras."""

import importlib
import inspect
import pkgutil

import numpy as np
import pytest

import ganglion
from ganglion import saving
from ganglion.models import keras_ops

pytestmark = pytest.mark.rivals

CLOSE = {"rtol": 1e-4, "atol": 1e-4}
# These call functions, and a file holds no code.
CALL_FUNCTIONS = {
    *("AssociativeScan", "Cond", "ForiLoop", "JVP", "Map", "Scan", "Switch"),
    *("VectorizedMap", "WhileLoop"),
}
BASES = {"Function", "SegmentReduction"}

# On x of (None, 4, 4), positive, and rows of (None, 4) that are integers.
SAMPLE = {
    "angle": lambda o, x, rows: o.angle(x),
    "append": lambda o, x, rows: o.append(x, x, axis=1),
    "arccosh": lambda o, x, rows: o.arccosh(x + 1.0),
    "array_split": lambda o, x, rows: o.array_split(x, 3, axis=1)[2],
    "average": lambda o, x, rows: o.average(x, axis=-1, weights=x),
    "celu": lambda o, x, rows: o.celu(x - 1.0, alpha=0.5),
    "cholesky": lambda o, x, rows: o.cholesky(
        o.matmul(x, o.transpose(x, (0, 2, 1))) + 4.0 * np.eye(4, dtype="float32")
    ),
    "convert": lambda o, x, rows: o.convert_to_tensor(x),
    "count_nonzero": lambda o, x, rows: o.count_nonzero(rows, axis=1),
    "ctc_loss": lambda o, x, rows: o.ctc_loss(
        o.clip(rows[:, :2], 1, 3), x, rows[:, 0] * 0 + 1, rows[:, 0] * 0 + 4
    ),
    "det": lambda o, x, rows: o.det(x),
    "diagonal": lambda o, x, rows: o.diagonal(x, offset=1, axis1=1, axis2=2),
    "diff": lambda o, x, rows: o.diff(x, n=2, axis=1),
    "divide_no_nan": lambda o, x, rows: o.divide_no_nan(x, x - x),
    "extract_sequences": lambda o, x, rows: o.extract_sequences(x, 2, 1),
    "glu": lambda o, x, rows: o.glu(x, axis=1),
    "heaviside": lambda o, x, rows: o.heaviside(x - 1.0, x),
    "hstack": lambda o, x, rows: o.hstack([x, x]),
    "inv": lambda o, x, rows: o.inv(x + 4.0 * np.eye(4, dtype="float32")),
    "isclose": lambda o, x, rows: o.isclose(x, x + 0.01, rtol=0.01, equal_nan=True),
    "layer_normalization": lambda o, x, rows: o.layer_normalization(x, axis=-1),
    "linspace": lambda o, x, rows: o.linspace(x, x + 1.0, 3, axis=-1),
    "logaddexp": lambda o, x, rows: o.logaddexp(x, x),
    "nan_to_num": lambda o, x, rows: o.nan_to_num(x, nan=1.0),
    "nansum": lambda o, x, rows: o.nansum(x, axis=1, keepdims=True),
    "ptp": lambda o, x, rows: o.ptp(x, axis=1),
    "qr": lambda o, x, rows: o.abs(o.qr(x)[1]),
    "rfft": lambda o, x, rows: o.rfft(x)[0],
    "rms_normalization": lambda o, x, rows: o.rms_normalization(x, scale=x[0, 0]),
    "roll": lambda o, x, rows: o.roll(x, 1, axis=2),
    "rot90": lambda o, x, rows: o.rot90(x, k=1, axes=(1, 2)),
    "select": lambda o, x, rows: o.select([x > 1.0, x > 0.5], [x, -x], 3.0),
    "slice": lambda o, x, rows: o.slice(x[0], (1, 1), (2, 2)),
    "solve_triangular": lambda o, x, rows: o.solve_triangular(
        x + 4.0 * np.eye(4, dtype="float32"), x, lower=True
    ),
    "stft": lambda o, x, rows: o.stft(o.reshape(x, (-1, 16)), 8, 4, 8)[0],
    "svd": lambda o, x, rows: o.svd(x, compute_uv=False),
    "threshold": lambda o, x, rows: o.threshold(x, 1.0, 0.5),
    "top_k": lambda o, x, rows: o.top_k(x, 2)[0],
    "trace": lambda o, x, rows: o.trace(x, offset=1, axis1=1, axis2=2),
}


def model_of(framework):
    x = framework.Input((4, 4), name="x")
    rows = framework.Input((4,), dtype="int32", name="rows")
    outputs = [case(framework.ops, x, rows) for case in SAMPLE.values()]
    return framework.Model([x, rows], outputs)


def check(model, other):
    rng = np.random.default_rng(0)
    x = rng.uniform(0.1, 2.0, (3, 4, 4)).astype("float32")
    rows = rng.integers(0, 4, (3, 4)).astype("int32")
    for name, got, wanted in zip(
        SAMPLE, model([x, rows]), other([x, rows]), strict=True
    ):
        np.testing.assert_allclose(
            np.asarray(got), np.asarray(wanted), **CLOSE, err_msg=name
        )


def test_keras_reads_ops_that_we_wrote(keras, tmp_path):
    model = model_of(ganglion)
    model.save(tmp_path / "m.keras")
    check(model, keras.models.load_model(tmp_path / "m.keras"))


def test_we_read_ops_that_keras_wrote(keras, tmp_path):
    model = model_of(keras)
    model.save(tmp_path / "m.keras")
    check(saving.load_model(tmp_path / "m.keras"), model)


def classes_of(keras):
    """Yield every op that Keras can write into a file."""
    package = importlib.import_module("keras.src.ops")
    for info in pkgutil.iter_modules(package.__path__):
        if info.name.endswith("_test"):
            continue
        module = importlib.import_module(f"keras.src.ops.{info.name}")
        for name, cls in vars(module).items():
            is_own = inspect.isclass(cls) and cls.__module__ == module.__name__
            if is_own and issubclass(cls, keras.Operation) and name != "Operation":
                yield module.__name__, name, cls


def test_the_table_of_ops_is_that_of_keras(keras):
    theirs = {
        (module, name): tuple(
            argument
            for argument in inspect.signature(cls.__init__).parameters
            if argument not in ("self", "name", "kwargs")
        )
        for module, name, cls in classes_of(keras)
        if name not in CALL_FUNCTIONS | BASES
    }
    ours = {
        (entry.module, entry.class_name): entry.made_with
        for entry in keras_ops._entries()
    }
    assert ours == theirs


def test_arguments_of_calls_come_in_the_same_order(keras):
    """Files hold them by position: what an op was made with is left out."""
    entries = {
        (entry.module, entry.class_name): entry for entry in keras_ops._entries()
    }
    for module, name, cls in classes_of(keras):
        entry = entries.get((module, name))
        if entry is not None:
            ours = inspect.signature(entry.function).parameters
            theirs = inspect.signature(cls.call).parameters
            aside = {"self", "kwargs", *entry.made_with}
            assert [k for k in ours if k not in aside] == [
                k for k in theirs if k not in aside
            ]
