"""Masks: how they get onto tensors, into layers, through models, losses, metrics."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import ganglion
from ganglion import layers, losses, metrics, ops
from ganglion.tensors import get_keras_mask, set_keras_mask, with_mask

IDS = np.array([[1, 2, 0], [3, 0, 0]], "int32")
VALID = IDS != 0
STEPS = np.arange(12, dtype="float32").reshape(2, 3, 2) * VALID[..., None]


def embedded(**options: Any) -> Any:
    return layers.Embedding(5, 4, mask_zero=True, **options)(IDS)


class Sees(layers.Layer):
    """Returns its input and remembers the mask it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.supports_masking = True

    def call(self, inputs: Any, mask: Any = None) -> Any:
        self.has_mask = mask is not None
        return inputs * 1.0


class Pair(layers.Layer):
    """Takes the masks of two tensors by their names."""

    def __init__(self) -> None:
        super().__init__()
        self.supports_masking = True

    def call(
        self, query: Any, value: Any, query_mask: Any = None, value_mask: Any = None
    ) -> Any:
        kept = ops.cast(ops.logical_and(query_mask, value_mask), "float32")
        return kept


def test_embedding_and_masking_make_masks_on_arrays() -> None:
    np.testing.assert_array_equal(embedded()._keras_mask, VALID)
    masked = layers.Masking()(STEPS)
    np.testing.assert_array_equal(masked._keras_mask, STEPS.any(-1))
    assert not hasattr(layers.Embedding(5, 4)(IDS), "_keras_mask")


def test_masking_sets_masked_steps_to_zero() -> None:
    x = np.array([[[7.0, 7.0], [7.0, 1.0]]], "float32")
    np.testing.assert_array_equal(layers.Masking(7)(x), [[[0, 0], [7, 1]]])
    with pytest.raises(ValueError, match="`mask_value` must be a number"):
        layers.Masking("zero")


def test_keras_tensors_have_masks_of_their_shape() -> None:
    x = ganglion.Input((None,), dtype="int32")
    hidden = layers.Dense(2)(layers.Embedding(5, 4, mask_zero=True)(x))
    mask = hidden._keras_mask
    assert mask.shape == (None, None)
    assert mask.dtype == "bool"
    model = ganglion.Model(x, mask)
    np.testing.assert_array_equal(model(IDS), VALID)


def test_a_layer_gets_the_mask_unless_one_is_given() -> None:
    layer = Sees()
    layer(embedded())
    assert layer.has_mask
    layer(STEPS)
    assert not layer.has_mask
    layer(STEPS, mask=VALID)
    assert layer.has_mask


def test_several_tensors_get_masks_by_name() -> None:
    both = Pair()(embedded(), embedded())
    np.testing.assert_array_equal(both, VALID)


def test_a_layer_without_support_ends_the_mask_and_warns_once() -> None:
    layer = layers.Reshape((3, 4))
    with pytest.warns(UserWarning, match="'reshape.*does not support masking"):
        outputs = layer(embedded())
    assert get_keras_mask(outputs) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer(embedded())


def test_writing_compute_mask_is_to_support_masks() -> None:
    class Later(layers.Layer):
        def call(self, inputs: Any) -> Any:
            return inputs[:, 1:]

        def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
            return mask[:, 1:]

    layer = Later()
    assert layer.supports_masking
    np.testing.assert_array_equal(layer(embedded())._keras_mask, VALID[:, 1:])
    x = ganglion.Input((None,), dtype="int32")
    outputs = layer(layers.Embedding(5, 4, mask_zero=True)(x))
    assert outputs._keras_mask.shape == (None, None)


def test_a_call_may_set_the_mask_of_its_outputs() -> None:
    class First(layers.Layer):
        def call(self, inputs: Any) -> Any:
            outputs = inputs + 1.0
            outputs._keras_mask = ops.greater(inputs[..., 0], 0.0)
            return outputs

    np.testing.assert_array_equal(First()(STEPS)._keras_mask, STEPS[..., 0] > 0)


@pytest.mark.parametrize(
    "op",
    [
        lambda x: x + 1.0,
        lambda x: ops.reshape(x, (2, 3, 4)),
        lambda x: ops.transpose(x, (0, 1, 2)),
        lambda x: x[:],
    ],
)
def test_ops_drop_masks(op: Any) -> None:
    class Own(layers.Layer):
        def call(self, inputs: Any) -> Any:
            return op(inputs)

    with pytest.warns(UserWarning, match="does not support masking"):
        assert get_keras_mask(Own()(embedded())) is None
    x = ganglion.Input((3,), dtype="int32")
    tensor = layers.Embedding(5, 4, mask_zero=True)(x)
    assert get_keras_mask(tensor + 1.0) is None


def test_masks_pass_models_of_every_kind() -> None:
    x = ganglion.Input((None,), dtype="int32")
    hidden = layers.Embedding(5, 4, mask_zero=True)(x)
    inner_input = ganglion.Input((None, 4))
    inner = ganglion.Model(inner_input, layers.Dense(4)(inner_input))
    stack = ganglion.Sequential([layers.Dense(4), layers.Activation("relu")])

    class Own(ganglion.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = layers.Dense(4)

        def call(self, inputs: Any) -> Any:
            return self.dense(inputs)

    sees = Sees()
    model = ganglion.Model(x, sees(Own()(stack(inner(hidden)))))
    sees.has_mask = False
    model(IDS)
    assert sees.has_mask
    sees.has_mask = False
    model.predict(IDS, verbose=0)
    assert sees.has_mask


def test_a_model_takes_a_mask() -> None:
    sees = Sees()
    model = ganglion.Sequential([ganglion.Input((3, 2)), layers.Dense(2), sees])
    model(STEPS, mask=VALID)
    assert sees.has_mask
    model(STEPS)
    assert not sees.has_mask


def test_a_shared_model_is_called_anew_for_another_mask() -> None:
    x = ganglion.Input((3, 2))
    pool = ganglion.Model(x, layers.GlobalAveragePooling1D()(x))

    class Both(layers.Layer):
        def call(self, inputs: Any) -> Any:
            plain = pool(inputs)
            set_keras_mask(inputs, ops.convert_to_tensor(VALID))
            return plain, pool(inputs)

    plain, masked = Both()(STEPS)
    np.testing.assert_allclose(plain, STEPS.mean(1), rtol=1e-6)
    counts = VALID.sum(1, keepdims=True)
    np.testing.assert_allclose(masked, STEPS.sum(1) / counts, rtol=1e-6)


def test_losses_and_metrics_leave_masked_steps_out() -> None:
    y_true, y_pred = np.zeros((2, 3, 1), "float32"), np.ones((2, 3, 1), "float32")
    y_pred[~VALID] = 100.0
    masked = with_mask(y_pred, VALID)
    assert float(losses.MeanSquaredError()(y_true, masked)) == pytest.approx(1.0)
    assert float(losses.MeanSquaredError(reduction="sum")(y_true, masked)) == 3.0
    metric = metrics.MeanAbsoluteError()
    metric.update_state(y_true, masked)
    assert float(metric.result()) == pytest.approx(1.0)


SHORT = np.ones((2, 2), bool)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: layers.GlobalAveragePooling1D()(STEPS, mask=SHORT),
            r"a mask of shape \(2, 2\) does not fit.*must have the shape \(2, 3\)",
        ),
        (
            lambda: layers.GlobalAveragePooling1D()(STEPS, mask=VALID[..., None]),
            r"mask of shape \(2, 3, 1\) does not fit",
        ),
        (
            lambda: layers.BatchNormalization()(STEPS, mask=SHORT, training=True),
            r"mask of shape \(2, 2\) does not fit",
        ),
        (
            lambda: layers.BatchNormalization()(STEPS, mask=VALID[0], training=True),
            r"mask of shape \(3,\) does not fit",
        ),
        (lambda: layers.Multiply()([with_mask(STEPS, SHORT)] * 2), "does not fit"),
        (lambda: layers.Add().compute_mask([STEPS] * 2, VALID), "should be a list"),
        (lambda: layers.Concatenate().compute_mask([STEPS], []), "the same length"),
        (
            lambda: layers.Softmax()(embedded()),
            r"mask of shape \(2, 3\) does not fit inputs of shape \(2, 3, 4\)",
        ),
        (
            lambda: losses.MeanSquaredError()(STEPS, with_mask(STEPS, SHORT)),
            r"predictions have a mask of shape \(2, 2\)",
        ),
        (
            lambda: metrics.MeanSquaredError()(STEPS, with_mask(STEPS, SHORT)),
            r"predictions have a mask of shape \(2, 2\)",
        ),
    ],
)
def test_a_mask_that_does_not_fit(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_a_wrong_mask_is_refused_when_the_model_trains() -> None:
    class Wrong(layers.Layer):
        def call(self, inputs: Any) -> Any:
            return inputs + 0.0

        def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
            return mask[:, 1:]

    model = ganglion.Sequential(
        [layers.Embedding(5, 4, mask_zero=True), Wrong(), layers.Dense(1)]
    )
    model.compile("sgd", "mse")
    with pytest.raises(ValueError, match=r"mask of shape \(2, 2\).*\(2, 3\)"):
        model.train_on_batch(IDS, np.zeros((2, 3, 1), "float32"))


def test_a_subclassed_model_trains_on_valid_steps_alone() -> None:
    class Tagger(ganglion.Model):
        def __init__(self) -> None:
            super().__init__()
            self.embed = layers.Embedding(5, 4, mask_zero=True)
            self.dense = layers.Dense(1)

        def call(self, inputs: Any) -> Any:
            return self.dense(self.embed(inputs))

    model = Tagger()
    model.compile("sgd", "mse", metrics=["mae"])
    labels = np.where(VALID, 1.0, 100.0)[..., None].astype("float32")
    expected = float(np.mean(((model(IDS) - 1.0) ** 2)[VALID]))
    loss, _ = model.evaluate(IDS, labels, verbose=0)
    assert loss == pytest.approx(expected, rel=1e-5)
    assert model.fit(IDS, labels, verbose=0).history["mae"][0] < 10.0


def test_a_lambda_may_compute_a_mask_or_have_one() -> None:
    with_function = layers.Lambda(lambda x: x * 2.0, mask=lambda x, mask: mask)
    np.testing.assert_array_equal(with_function(embedded())._keras_mask, VALID)
    with_array = layers.Lambda(lambda x: x * 2.0, mask=VALID)
    np.testing.assert_array_equal(with_array(STEPS)._keras_mask, VALID)


def test_attention_leaves_masks_where_they_are() -> None:
    x = ganglion.Input((None,), dtype="int32")
    hidden = layers.Embedding(5, 4, mask_zero=True)(x)
    attended = layers.MultiHeadAttention(1, 2)(hidden, hidden)
    model = ganglion.Model(x, layers.Add()([hidden, attended]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(model(IDS)._keras_mask, VALID)


def test_a_plain_array_cannot_be_given_a_mask() -> None:
    with pytest.raises(TypeError, match=r"layer\(x, mask=mask\)"):
        set_keras_mask(STEPS, VALID)


def test_mask_layers_keep_their_configuration() -> None:
    masking = layers.Masking.from_config(layers.Masking(2.5).get_config())
    assert masking.mask_value == 2.5
    embedding = layers.Embedding(5, 4, mask_zero=True)
    assert layers.Embedding.from_config(embedding.get_config()).mask_zero is True
