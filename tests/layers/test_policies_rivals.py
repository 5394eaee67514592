"""Policies of types beside Keras: types and values of every layer, and promotion."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from layer_cases import CASES

import ganglion
from ganglion import config
from ganglion.dtypes import FLOAT_TYPES, INT_TYPES

pytestmark = pytest.mark.rivals
POLICIES = ("mixed_float16", "mixed_bfloat16", "float16", "bfloat16", "float64")
# A few distances of neighbours near 1: the order of operations differs.
CLOSE = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 1e-6, "float64": 1e-6}
# Random numbers differ; Keras leaves CenterCrop of small images in float32.
DRAWS = ("Dropout", "Noise", "Random")
DIFFERS = ("CenterCrop",)
LAYERS = [c for c in CASES if not any(name in c.layer for name in (*DRAWS, *DIFFERS))]


def as_floats(x: Any, keras: Any) -> np.ndarray:
    wide = x if isinstance(x, np.ndarray) else keras.ops.cast(x, "float64")
    return np.asarray(wide).astype("float64")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("case", LAYERS, ids=lambda case: case.id)
def test_layers_compute_as_in_keras(case, policy, keras):
    config.set_backend("numpy")
    case = replace(case, arguments={**case.arguments, "dtype": policy})
    options = {"training": True} if case.training else {}
    ours, theirs, x = case.make(ganglion.layers), case.make(keras.layers), case.inputs()
    try:
        case.call(theirs, x, **options)
    except Exception as error:
        if "tensorflow" not in type(error).__module__:
            raise
        pytest.skip("TensorFlow has no such kernel on a CPU")
    case.call(ours, x, **options)
    ours.set_weights([np.asarray(w) for w in theirs.get_weights()])
    results = ganglion.tree.flatten(case.call(ours, x, **options))
    expected = keras.tree.flatten(case.call(theirs, x, **options))
    for mine, other in zip(results, expected, strict=True):
        name = keras.backend.standardize_dtype(other.dtype)
        assert str(mine.dtype) == name
        tolerance = CLOSE.get(name, 0)
        np.testing.assert_allclose(
            as_floats(mine, keras), as_floats(other, keras), tolerance, tolerance
        )


NUMBERS = ("bool", *INT_TYPES, *FLOAT_TYPES)


@pytest.mark.parametrize("first", [*NUMBERS, int, float])
def test_types_are_promoted_as_in_keras(first, keras):
    for second in (*NUMBERS, int, float):
        ours = ganglion.backend.result_type(first, second)
        assert ours == keras.backend.result_type(first, second), second


def test_three_types_are_promoted_at_once(keras):
    some = ("bool", "int8", "uint16", "int64", "float16", "bfloat16", int, float)
    for types in itertools.combinations(some, 3):
        theirs = keras.backend.result_type(*types)
        assert ganglion.backend.result_type(*types) == theirs, types


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("name", ["add", "multiply", "matmul", "divide", "maximum"])
def test_ops_return_the_types_of_keras(name, dtype, keras):
    if dtype in ("uint64", "uint16", "uint32"):
        pytest.skip("TensorFlow has no such kernels on a CPU")
    for other in ("bool", "int8", "int32", "float16", "bfloat16", "float32"):
        if dtype == other == "bool":
            continue
        x, y = np.ones((2, 2), dtype), np.ones((2, 2), other)
        ours = getattr(ganglion.ops, name)(x, y)
        theirs = getattr(keras.ops, name)(*map(keras.ops.convert_to_tensor, (x, y)))
        assert str(ours.dtype) == keras.backend.standardize_dtype(theirs.dtype), other
        np.testing.assert_array_equal(as_floats(ours, keras), as_floats(theirs, keras))


UNARY = (
    "exp log sqrt tanh sigmoid relu gelu softmax log_softmax softplus square mean sum"
)
UNARY += " sum var std max cumsum abs sin erf logsumexp rsqrt floor silu elu normalize"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", UNARY.split())
def test_ops_of_16_bits_compute_as_in_keras(name, dtype, keras):
    x = np.random.default_rng(0).uniform(0.1, 2, (3, 4)).astype(dtype)
    ours = getattr(ganglion.ops, name)(x)
    theirs = getattr(keras.ops, name)(keras.ops.convert_to_tensor(x))
    assert str(ours.dtype) == keras.backend.standardize_dtype(theirs.dtype)
    symbolic = getattr(ganglion.ops, name)(ganglion.Input((4,), dtype=dtype))
    assert symbolic.dtype == dtype
    tolerance = CLOSE[dtype]
    np.testing.assert_allclose(
        as_floats(ours, keras), as_floats(theirs, keras), tolerance, tolerance
    )


def network(module: Any, policy: str) -> Any:
    layers = module.layers
    module.config.set_dtype_policy(policy)
    try:
        return module.Sequential(
            [
                module.Input((6, 6, 2)),
                layers.Conv2D(3, 3, activation="relu"),
                layers.BatchNormalization(),
                layers.MaxPooling2D(),
                layers.Flatten(),
                layers.Dense(4, activation="softmax", dtype="float32"),
            ]
        )
    finally:
        module.config.set_dtype_policy("float32")


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16", "float16"])
def test_models_train_as_in_keras(policy, backend, keras):
    config.set_backend(backend)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(16, 6, 6, 2)).astype("float32")
    y = rng.integers(0, 4, 16)
    ours, theirs = network(ganglion, policy), network(keras, policy)
    ours.set_weights(theirs.get_weights())
    results = []
    for model, module in ((ours, ganglion), (theirs, keras)):
        model.compile(
            module.optimizers.SGD(0.05, momentum=0.9),
            "sparse_categorical_crossentropy",
            auto_scale_loss=False,
        )
        fit = model.fit(x, y, batch_size=8, epochs=3, shuffle=False, verbose=0)
        results.append(fit.history["loss"])
        assert [str(w.dtype) for w in model.get_weights()] == [
            str(w.dtype) for w in theirs.get_weights()
        ]
    tolerance = 3 * CLOSE["bfloat16" if "bfloat16" in policy else "float16"]
    np.testing.assert_allclose(results[0], results[1], tolerance)
