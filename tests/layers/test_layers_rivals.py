"""Every layer against Keras: values, weights, configurations, gradients."""

from __future__ import annotations

import inspect
import json
from typing import Any

import numpy as np
import pytest
from layer_cases import CASES, Case, is_right_in_keras, random_weights

from ganglion import activations, layers, ops
from ganglion.compiler.ir.gradient import gradients
from ganglion.compiler.ir.graph import Input, evaluate
from ganglion.serialization import deserialize_keras_object, serialize_keras_object
from ganglion.variables import Scope

pytestmark = [pytest.mark.rivals, pytest.mark.slow]

each_case = pytest.mark.parametrize(
    "case", [*filter(is_right_in_keras, CASES)], ids=lambda case: case.id
)


def options(case: Case) -> dict[str, bool]:
    return {"training": True} if case.training else {}


def pair(case: Case, keras: Any, special: bool = False) -> tuple[Any, Any, Any]:
    """Return our layer and Keras', built and with equal weights, and inputs."""
    ours, theirs = case.make(layers), case.make(keras.layers)
    x = case.inputs(special=special)
    case.call(ours, x)
    case.call(theirs, x)
    shapes = [weight.shape for weight in ours.get_weights()]
    assert shapes == [weight.shape for weight in theirs.get_weights()]
    names = [weight.name for weight in ours.weights]
    assert names == [weight.name for weight in theirs.weights]
    weights = random_weights(shapes)
    ours.set_weights(weights)
    theirs.set_weights(weights)
    if hasattr(theirs, "finalize_state"):
        theirs.finalize_state()  # Keras keeps a copy of what was adapted
    return ours, theirs, x


def assert_close(ours: Any, theirs: Any, relative: float = 2e-6) -> None:
    """Compare relative to the largest element: sums of float32 in any order."""
    theirs = np.asarray(theirs)
    assert ours.shape == theirs.shape
    assert ours.dtype == theirs.dtype
    scale = max(float(np.abs(theirs).max(initial=0.0)), 1e-3)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=relative * scale)


@each_case
@pytest.mark.parametrize("special", [False, True])
def test_values_and_states_equal_keras(case: Case, keras: Any, special: bool) -> None:
    ours, theirs, x = pair(case, keras, special and case.layer not in LARGE_SCORES)
    results = [case.call(layer, x, **options(case)) for layer in (ours, theirs)]
    assert_close(*results)
    for mine, other in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(mine, other, rtol=2e-6, atol=1e-6)


@each_case
def test_configurations_go_both_ways(case: Case, keras: Any) -> None:
    ours, theirs, x = pair(case, keras)
    expected = np.asarray(case.call(theirs, x))
    text = json.dumps(serialize_keras_object(ours))
    remade = keras.saving.deserialize_keras_object(json.loads(text))
    assert type(remade) is type(theirs)
    case.call(remade, x)
    remade.set_weights(ours.get_weights())
    if hasattr(remade, "finalize_state"):
        remade.finalize_state()
    np.testing.assert_allclose(np.asarray(case.call(remade, x)), expected, atol=1e-6)

    text = json.dumps(keras.saving.serialize_keras_object(theirs))
    mine = deserialize_keras_object(json.loads(text))
    assert type(mine) is type(ours)
    assert mine.name == theirs.name
    case.call(mine, x)
    mine.set_weights(theirs.get_weights())
    assert_close(case.call(mine, x), expected)


def our_gradients(case: Case, layer: Any, x: Any, factor: np.ndarray) -> list[Any]:
    arrays = x if isinstance(x, list) else [x]
    with Scope(training=case.training) as scope:
        fed = [Input(f"x{i}", item.shape, item.dtype) for i, item in enumerate(arrays)]
        out = case.call(layer, fed if len(fed) > 1 else fed[0])
        loss = ops.sum(out * factor)
        wrt = [scope.read(weight) for weight in layer.trainable_weights]
        wrt += [item for item in fed if item.dtype == np.float32]
        known = dict(zip(fed, arrays, strict=True))
        known |= {value: variable.array for variable, value in scope.reads.items()}
        actual = gradients(loss, wrt)
    return [
        evaluate([actual[item]], known)[0] if item in actual else np.zeros(item.shape)
        for item in wrt
    ]


def their_gradients(case: Case, layer: Any, x: Any, factor: np.ndarray) -> list[Any]:
    import tensorflow as tf

    fed = [tf.constant(item) for item in (x if isinstance(x, list) else [x])]
    with tf.GradientTape() as tape:
        for item in fed:
            tape.watch(item)
        inputs = fed if len(fed) > 1 else fed[0]
        out = case.call(layer, inputs, **options(case))
        loss = tf.reduce_sum(out * factor)
    wrt = [weight.value for weight in layer.trainable_weights]
    wrt += [item for item in fed if item.dtype == tf.float32]
    actual = tape.gradient(loss, wrt, unconnected_gradients="zero")
    return [tf.convert_to_tensor(item).numpy() for item in actual]


# With inputs up to 20 their scores, products of two projections, are in the hundreds:
# the softmax of such sums of float32 has few digits.
LARGE_SCORES = ("MultiHeadAttention", "GroupedQueryAttention")

# At ties and zeros Keras on TensorFlow differs from itself and the others here: why.
SPECIAL_DIFFERENCES = {
    "MaxPooling3D": "each of equal elements gets all; in 1D and 2D the first does",
    "AdaptiveMaxPooling3D": "as MaxPooling3D",
}


@each_case
@pytest.mark.parametrize("special", [False, True])
def test_gradients_equal_keras(case: Case, keras: Any, special: bool) -> None:
    if special and case.layer in SPECIAL_DIFFERENCES:
        pytest.skip(f"Keras differs: {SPECIAL_DIFFERENCES[case.layer]}")
    ours, theirs, x = pair(case, keras, special and case.layer not in LARGE_SCORES)
    shape = np.asarray(case.call(theirs, x)).shape
    factor = np.random.default_rng(5).normal(size=shape).astype("float32")
    mine = our_gradients(case, ours, x, factor)
    others = their_gradients(case, theirs, x, factor)
    assert len(mine) == len(others)
    largest = max((float(np.abs(g).max(initial=0.0)) for g in others), default=0.0)
    for item, other in zip(mine, others, strict=True):
        # What is zero but for rounding, as for the bias of keys, is so beside others.
        scale = max(float(np.abs(other).max(initial=0.0)), 0.1 * largest, 1e-3)
        # Batch statistics make differences of nearly equal sums; 1 - y² of a tanh near
        # saturation has few digits left.
        few_digits = special or case.layer in LARGE_SCORES
        atol = (5e-5 if few_digits else 1e-5) * scale
        np.testing.assert_allclose(item, other, rtol=0, atol=atol)


def test_every_layer_is_compared() -> None:
    classes = {
        name
        for name in layers.__all__
        if inspect.isclass(getattr(layers, name))
        and getattr(layers, name).__name__ == name
    }
    apart = {"Layer", "InputSpec", "InputLayer", "Lambda", "ThresholdedReLU"}
    apart |= {"SpectralNormalization"}  # test_wrapping_rivals.py
    apart |= set(layers.foreign.__all__)  # refused
    random = {cls for cls in classes if cls.startswith("Random")}  # their own tests
    text = set(layers.preprocessing.__all__)  # test_text.py, test_spectrograms.py
    random |= set(layers.augmentation.__all__)  # test_augment*.py
    recurrent = set(layers.rnn.__all__)  # test_rnn.py and test_rnn_rivals.py
    compared = {item.layer for item in CASES} | recurrent
    assert classes - compared - (apart | random | text) == set()


def test_input_layer_configurations_go_both_ways(keras: Any) -> None:
    ours = layers.InputLayer(shape=(3, None), batch_size=4, dtype="int32", name="a")
    entry = json.loads(json.dumps(serialize_keras_object(ours)))
    theirs = keras.saving.deserialize_keras_object(entry)
    assert theirs.batch_shape == ours.batch_shape == (4, 3, None)
    assert theirs.dtype == "int32"
    entry = json.loads(json.dumps(keras.saving.serialize_keras_object(theirs)))
    again = deserialize_keras_object(entry)
    assert again.get_config() == ours.get_config()


def double(x: Any, times: float = 2.0) -> Any:
    return x * times


def test_lambda_configurations_go_both_ways(keras: Any) -> None:
    x = np.linspace(-1, 1, 6, dtype="float32").reshape(2, 3)
    ours = layers.Lambda(activations.relu, arguments={"max_value": 0.5})
    entry = json.loads(json.dumps(serialize_keras_object(ours)))
    theirs = keras.saving.deserialize_keras_object(entry)
    assert_close(ours(x), theirs(x))
    entry = json.loads(json.dumps(keras.saving.serialize_keras_object(theirs)))
    assert_close(deserialize_keras_object(entry)(x), theirs(x))


def test_lambda_of_an_own_function_goes_both_ways(keras: Any) -> None:
    x = np.ones((2, 3), "float32")
    own = {"double": double}
    ours = layers.Lambda(double, output_shape=(3,), arguments={"times": 3.0})
    entry = json.loads(json.dumps(serialize_keras_object(ours)))
    theirs = keras.saving.deserialize_keras_object(entry, custom_objects=own)
    assert_close(ours(x), theirs(x))
    entry = json.loads(json.dumps(keras.saving.serialize_keras_object(theirs)))
    again = deserialize_keras_object(entry, custom_objects=own)
    assert_close(again(x), theirs(x))
    assert again.compute_output_shape((None, 3)) == (None, 3)


@pytest.mark.parametrize("mask_rows", [(1, 3), (2, 2)])
def test_masks_equal_keras(mask_rows: tuple[int, int], keras: Any) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 4, 3)).astype("float32")
    mask = np.arange(4)[None, :] < np.array(mask_rows)[:, None]
    for name, arguments in (
        ("GlobalAveragePooling1D", {"mask": mask}),
        ("Softmax", {"mask": np.broadcast_to(mask[:, :, None], x.shape)}),
        ("BatchNormalization", {"mask": mask, "training": True}),
    ):
        ours, theirs = getattr(layers, name)(), getattr(keras.layers, name)()
        assert_close(ours(x, **arguments), theirs(x, **arguments))


def test_normalization_adapts_as_keras(keras: Any) -> None:
    rng = np.random.default_rng(0)
    data = rng.normal(3, 2, (50, 4, 3)).astype("float32")
    for axis in (-1, (1, 2), None):
        for fed in (data, [data[:20], data[20:21], data[21:]]):
            ours = layers.Normalization(axis=axis)
            theirs = keras.layers.Normalization(axis=axis)
            ours.adapt(fed)
            theirs.adapt(fed)
            assert_close(ours(data), theirs(data), 1e-5)
            for item, other in zip(
                ours.get_weights(), theirs.get_weights(), strict=True
            ):
                np.testing.assert_allclose(item, other, rtol=1e-5)


def _sizes(rng: np.random.Generator, rank: int, low: int, high: int) -> tuple[int, ...]:
    return tuple(int(n) for n in rng.integers(low, high, rank))


def _window(rng: np.random.Generator, rank: int, both: bool) -> dict[str, Any]:
    """Draw kernel, strides or dilation, and padding."""
    arguments: dict[str, Any] = {"kernel_size": _sizes(rng, rank, 1, 5)}
    arguments["padding"] = str(rng.choice(["valid", "same"]))
    if both or rng.integers(2):
        arguments["strides"] = (int(rng.integers(1, 4)),) * rank
    if both or "strides" not in arguments:
        arguments["dilation_rate"] = _sizes(rng, rank, 1, 4)
    return arguments


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(
    "name",
    ["Conv1D", "Conv2D", "Conv2DTranspose", "DepthwiseConv2D", "SeparableConv2D"],
)
def test_random_windows_equal_keras(name: str, seed: int, keras: Any) -> None:
    rng = np.random.default_rng([seed, len(name)])
    rank = 1 if "1D" in name else 2
    arguments = _window(rng, rank, both="Depthwise" in name)
    if "Depthwise" not in name:
        arguments["filters"] = 4
    if name == "Conv2D":
        arguments["groups"] = int(rng.choice([1, 2]))
    shape = (2, *_sizes(rng, rank, 13, 17), 4)
    case = Case(name, (shape,), arguments)
    ours, theirs, x = pair(case, keras)
    assert_close(ours(x), theirs(x))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("name", ["MaxPooling2D", "AveragePooling2D"])
def test_random_pools_equal_keras(name: str, seed: int, keras: Any) -> None:
    rng = np.random.default_rng(seed)
    arguments = {
        "pool_size": _sizes(rng, 2, 1, 5),
        "strides": _sizes(rng, 2, 1, 5),
        "padding": str(rng.choice(["valid", "same"])),
    }
    case = Case(name, ((2, *_sizes(rng, 2, 5, 11), 3),), arguments)
    ours, theirs, x = pair(case, keras)
    assert_close(ours(x), theirs(x))
