"""Quantizers beside Keras: numbers, scales, types, gradients and configurations."""

from importlib import import_module
from typing import Any

import numpy as np
import pytest

import ganglion
from ganglion import config, dtype_policies, quantizers
from ganglion.quantizers import calibrating

X = np.random.default_rng(0).normal(size=(5, 4)).astype("float32")

CASES: dict[str, Any] = {
    "rows": lambda q: q.abs_max_quantize(X, axis=-1),
    "columns": lambda q: q.abs_max_quantize(X, axis=0, to_numpy=True),
    "all": lambda q: q.abs_max_quantize(X, axis=(0, 1), value_range=(-8, 7)),
    "AbsMaxQuantizer": lambda q: q.AbsMaxQuantizer(axis=0)(X),
    "AbsMaxQuantizer here": lambda q: q.AbsMaxQuantizer()(X, axis=1),
    "blocks": lambda q: q.abs_max_quantize_grouped_with_zero_point(X, 2),
    "blocks numpy": lambda q: q.abs_max_quantize_grouped_with_zero_point(
        X, 2, to_numpy=True
    ),
    "pack": lambda q: q.pack_int4(np.arange(-8, 7, dtype="int8").reshape(5, 3))[0],
    "pack columns": lambda q: q.pack_int4(
        np.arange(-8, 7, dtype="int8").reshape(5, 3), axis=-1
    )[0],
    "unpack": lambda q: q.unpack_int4(np.arange(-6, 6, dtype="int8").reshape(3, 4), 5),
    "unpack columns": lambda q: q.unpack_int4(
        np.arange(12, dtype="uint8").reshape(3, 4), 7, axis=1, dtype="uint8"
    ),
    "fake": lambda q: q.fake_quant_with_min_max_vars(X, -1.0, 1.5, num_bits=4),
    "fake narrow": lambda q: q.fake_quant_with_min_max_vars(
        X, -0.9, 1.0, narrow_range=True
    ),
    "fake channels": lambda q: q.fake_quant_with_min_max_vars(
        X, np.full(4, -1.0, "float32"), np.full(4, 0.7, "float32"), axis=1
    ),
    "float8 scale": lambda q: q.compute_float8_scale(
        np.float32(3.0), np.float32(1.0), np.float32(448.0)
    ),
    "float8 history": lambda q: q.compute_float8_amax_history(
        X, np.arange(4, dtype="float32")
    ),
    "float8": lambda q: q.quantize_and_dequantize(
        X, np.float32(0.1), "float8_e4m3fn", "float32"
    ),
    "float8 wide": lambda q: q.quantize_and_dequantize(
        X, np.float32(2.0), "float8_e5m2", "float32"
    ),
}


@pytest.mark.rivals
@pytest.mark.parametrize("name", CASES)
def test_numbers_are_those_of_keras(name, keras):
    ours, theirs = (CASES[name](module.quantizers) for module in (ganglion, keras))
    pairs = zip(ganglion.tree.flatten(ours), keras.tree.flatten(theirs), strict=True)
    for mine, other in pairs:
        assert str(mine.dtype) == keras.backend.standardize_dtype(other.dtype)
        np.testing.assert_allclose(
            np.asarray(mine).astype("float64"),
            np.asarray(keras.ops.cast(other, "float64")),
            1e-5,
            1e-6,
        )


def test_gradients_of_fake_quantization():
    ends = [ganglion.Variable(-1.0), ganglion.Variable(1.0)]
    x = ganglion.Variable(np.array([-3.0, -0.2, 0.4, 2.0, 5.0]))
    with ganglion.GradientTape() as tape:
        y = ganglion.ops.sum(quantizers.fake_quant_with_min_max_vars(x, *ends))
    to_x, low, high = tape.gradient(y, [x, *ends])
    assert np.asarray(to_x).tolist() == [0, 1, 1, 0, 0]
    assert (float(low), float(high)) == (1.0, 2.0)


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_float8_within_a_compiled_step(backend):
    config.set_backend(backend)
    inputs = ganglion.Input((4,))
    outputs = ganglion.layers.Lambda(
        lambda x: quantizers.quantize_and_dequantize(x, 0.5, "float8_e4m3fn", "float32")
    )(inputs)
    model = ganglion.Model(inputs, outputs)
    expected = quantizers.quantize_and_dequantize(X, 0.5, "float8_e4m3fn", "float32")
    np.testing.assert_array_equal(model.predict(X, verbose=0), expected)


@pytest.mark.rivals
def test_configurations_are_those_of_keras(keras):
    for name in ("Int8QuantizationConfig", "Int4QuantizationConfig"):
        ours = getattr(quantizers, name)()
        theirs = getattr(keras.quantizers, name)()
        assert ours.get_config() == theirs.get_config()
        plain = quantizers.serialize(ours)
        assert plain == keras.quantizers.serialize(theirs)
        assert quantizers.deserialize(plain).get_config() == ours.get_config()
    axis = quantizers.AbsMaxQuantizer(axis=0)
    assert quantizers.get(quantizers.serialize(axis)).axis == (0,)
    assert type(quantizers.get("AbsMaxQuantizer")) is quantizers.AbsMaxQuantizer


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="within the interval"):
        quantizers.AbsMaxQuantizer(value_range=(-200, 200))
    with pytest.raises(ValueError, match="block_size must be"):
        quantizers.Int4QuantizationConfig(block_size=0)
    with pytest.raises(TypeError, match="Expected int8 tensor"):
        quantizers.pack_int4(X)
    with pytest.raises(ValueError, match="Could not interpret"):
        quantizers.get("nothing")


@pytest.mark.rivals
@pytest.mark.parametrize("group_size", [-1, 4])
def test_numbers_are_chosen_as_in_keras(keras, group_size):
    # Models of Keras do not show their layers the data; its functions are right.
    awq, gptq = (
        import_module(f"keras.src.quantizers.{name}") for name in ("awq", "gptq")
    )
    quantizer = import_module("keras.src.quantizers.quantizers").GPTQQuantizer
    rng = np.random.default_rng(0)
    weights = np.abs(rng.normal(size=(6, 7))).astype("float32")
    weights[:, ::2] *= -1
    largest = np.abs(rng.normal(size=7)).astype("float32")
    chosen = quantizers.AWQConfig(None, None, group_size=group_size)
    *ours, group, factors = calibrating.awq(weights, largest, chosen)
    theirs = awq.awq_quantize_matrix(weights, largest, group_size=group_size)
    for mine, other in zip([*ours, factors, group], theirs, strict=True):
        np.testing.assert_allclose(mine, np.asarray(other), 1e-5, 1e-6)
    hessian = calibrating.Hessian(7)
    for _ in range(2):
        hessian.add(rng.normal(size=(20, 7)))
    matrix = hessian.damped(0.01)
    # In another order, a group may be of one sign, which Keras fails on.
    for in_order in (False, True)[: 2 if group_size == -1 else 1]:
        options = {"group_size": group_size, "activation_order": in_order}
        chosen = quantizers.GPTQConfig(None, None, **options)
        *ours, group = calibrating.gptq(weights, matrix, chosen)
        *theirs, groups = gptq.gptq_quantize_matrix(
            keras.ops.convert_to_tensor(weights),
            keras.ops.convert_to_tensor(np.linalg.inv(matrix).astype("float32")),
            order_metric=matrix.diagonal(),
            compute_scale_zero=quantizer(chosen, compute_dtype="float32").find_params,
            **options,
        )
        for mine, other in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(mine, np.asarray(other), 1e-5, 1e-6)
        np.testing.assert_array_equal(group, np.floor(np.asarray(groups)))


def test_samples_are_windows_of_all_tokens():
    chosen = quantizers.AWQConfig(
        [np.arange(5), np.arange(5, 8)], None, num_samples=2, sequence_length=4
    )
    samples = calibrating.windows(chosen)
    assert samples.tolist() == [[[0, 1, 2, 3]], [[4, 5, 6, 7]]]
    for dataset, kind in (("text", TypeError), ([], ValueError)):
        chosen.dataset = dataset
        with pytest.raises(kind, match=r"must be an iterable|empty"):
            calibrating.windows(chosen)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: quantizers.GPTQConfig(None, None, weight_bits=5), "weight_bits 5"),
        (lambda: quantizers.GPTQConfig(None, None, hessian_damping=2), "between 0"),
        (lambda: quantizers.AWQConfig(None, None, weight_bits=8), "only supports 4"),
        (lambda: quantizers.AWQConfig(None, None, group_size=0), "Invalid group_size"),
        (lambda: quantizers.AWQConfig(None, None, num_samples=0), "num_samples must"),
        (lambda: dtype_policies.get("gptq/4_from_float32"), "Expected format"),
        (lambda: dtype_policies.get("gptq/5/8_from_float32"), "weight_bits in mode"),
        (lambda: dtype_policies.get("awq/4/0_from_float32"), "group_size in mode"),
    ],
)
def test_what_cannot_be_chosen_by_data(make, message):
    with pytest.raises(ValueError, match=message):
        make()
