"""`keras.backend`: the functions of old scripts, with the defaults they had."""

import numpy as np
import pytest

import ganglion as keras
from ganglion import layers

K = keras.backend


def rows(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def test_defaults_that_differ_from_those_of_ops():
    x = rows(3, 4)
    np.testing.assert_array_equal(K.argmax(x), x.argmax(-1))
    np.testing.assert_array_equal(K.argmin(x), x.argmin(-1))
    assert K.concatenate([x, x]).shape == (3, 8)
    assert K.expand_dims(x).shape == (3, 4, 1)
    np.testing.assert_allclose(K.cumsum(x), x.cumsum(0), rtol=1e-6)
    np.testing.assert_allclose(K.sqrt(np.array([4.0, -1.0])), [2, 0])
    np.testing.assert_allclose(K.clip(x, min_value=0, max_value=1), x.clip(0, 1))
    length = np.sqrt((x**2).sum())
    np.testing.assert_allclose(K.l2_normalize(x), x / length, rtol=1e-6)
    np.testing.assert_allclose(K.relu(x, alpha=0.1), np.where(x > 0, x, 0.1 * x))


def test_crossentropy_is_element_by_element():
    y, p = np.array([[1.0, 0.0]]), np.array([[0.8, 0.3]])
    wanted = [[-np.log(0.8), -np.log(0.7)]]
    np.testing.assert_allclose(K.binary_crossentropy(y, p), wanted, rtol=1e-6)
    actual = K.categorical_crossentropy(y, p)
    np.testing.assert_allclose(actual, [-np.log(0.8 / 1.1)], rtol=1e-6)


def test_products_of_batches():
    a, b = rows(2, 3, 4), rows(2, 4, 5)
    np.testing.assert_allclose(K.batch_dot(a, b), a @ b, rtol=1e-5)
    wanted = np.einsum("bij,bkj->bik", a, rows(2, 5, 4))
    np.testing.assert_allclose(K.batch_dot(a, rows(2, 5, 4), axes=2), wanted, rtol=1e-5)
    u, v = rows(3, 4), rows(3, 4) + 1
    wanted = (u * v).sum(1, keepdims=True)
    np.testing.assert_allclose(K.batch_dot(u, v, axes=1), wanted, rtol=1e-5)


def test_images():
    x = rows(1, 4, 4, 2)
    assert K.resize_images(x, 2, 3).shape == (1, 8, 12, 2)
    assert K.spatial_2d_padding(x).shape == (1, 6, 6, 2)
    assert K.temporal_padding(x[0]).shape == (4, 6, 2)
    assert K.conv2d(x, rows(3, 3, 2, 5)).shape == (1, 2, 2, 5)
    assert K.conv1d(x[0], rows(3, 2, 5), padding="same").shape == (4, 4, 5)
    pooled = K.pool2d(x, (2, 2), strides=(2, 2), pool_mode="avg")
    np.testing.assert_allclose(pooled[0, 0, 0], x[0, :2, :2].mean((0, 1)), rtol=1e-6)
    with pytest.raises(ValueError, match="'max' or 'avg'"):
        K.pool2d(x, (2, 2), pool_mode="sum")
    first = np.moveaxis(x, -1, 1)
    assert K.conv2d(first, rows(3, 3, 2, 5), data_format="channels_first").shape == (
        1,
        5,
        2,
        2,
    )


def test_repeating():
    x = rows(2, 3)
    assert K.repeat(x, 4).shape == (2, 4, 3)
    np.testing.assert_array_equal(K.repeat_elements(x, 2, axis=1), x.repeat(2, 1))


def test_variables():
    v = K.variable([1.0, 2.0])
    K.update_add(v, [1.0, 1.0])
    K.update_sub(v, [0.5, 0.5])
    np.testing.assert_allclose(K.get_value(v), [1.5, 2.5])
    K.batch_set_value([(K.update(v, [0.0, 0.0]), [7.0, 8.0])])
    np.testing.assert_allclose(K.batch_get_value([v])[0], [7, 8])
    assert K.count_params(v) == 2
    assert K.is_keras_tensor(keras.Input((2,)))


def test_random_numbers():
    assert 0.2 < K.random_binomial((1000,), p=0.3, seed=1).mean() < 0.4
    assert abs(K.truncated_normal((1000,), seed=1)).max() <= 2.0


def test_phases():
    class Scaled(keras.layers.Layer):
        def call(self, x, training=None):
            return K.in_train_phase(lambda: x * 2, x, training=training)

    x = rows(2, 2)
    np.testing.assert_allclose(Scaled()(x, training=True), 2 * x)
    np.testing.assert_allclose(Scaled()(x), x)
    assert K.learning_phase() == 0
    with pytest.warns(keras.keras2.Keras2Warning, match="set_learning_phase"):
        K.set_learning_phase(0)
    with pytest.raises(ValueError, match="training=True"):
        K.set_learning_phase(1)


def test_names_that_layers_written_after_keras_own_want():
    tensor = K.compute_output_spec(lambda x, y: K.concatenate([x, y]) + 1, *pair())
    assert isinstance(tensor, K.KerasTensor)
    assert tensor.shape == (None, 8)
    assert K.standardize_data_format("Channels_First") == "channels_first"
    array = K.convert_to_numpy(K.convert_to_tensor([1.0, 2.0]))
    np.testing.assert_array_equal(array, [1, 2])


def pair():
    return K.KerasTensor((None, 3)), K.KerasTensor((None, 5))


def theirs(name):
    tf = pytest.importorskip("tensorflow")
    return getattr(tf.keras.backend, name)


X = np.linspace(-1, 1, 12, dtype="float32").reshape(2, 3, 2)
IMAGES = np.linspace(-1, 1, 2 * 6 * 6 * 2, dtype="float32").reshape(2, 6, 6, 2)
KERNEL = np.linspace(-1, 1, 3 * 3 * 2 * 3, dtype="float32").reshape(3, 3, 2, 3)
LABELS = np.array([[0, 1, 1], [1, 0, 0]])
SCORES = np.exp(np.sin(np.arange(2 * 7 * 3))).reshape(2, 7, 3).astype("float32")
SCORES /= SCORES.sum(-1, keepdims=True)
LENGTHS = np.array([[7], [6]]), np.array([[3], [2]])


@pytest.mark.parametrize(
    ("name", "args", "kwargs"),
    [
        ("prod", (X,), {"axis": 1, "keepdims": True}),
        ("cumprod", (X,), {"axis": 1}),
        ("reverse", (X, 1), {}),
        ("map_fn", (lambda row: row * 2.0, X), {}),
        ("foldl", (lambda total, row: total * 0.5 + row, X), {}),
        ("foldr", (lambda total, row: total * 0.5 + row, X), {}),
        ("depthwise_conv2d", (IMAGES, KERNEL[..., :2]), {"padding": "same"}),
        ("conv2d_transpose", (IMAGES, KERNEL.swapaxes(2, 3), (2, 8, 8, 3)), {}),
        ("ctc_batch_cost", (LABELS, SCORES, *LENGTHS), {}),
        ("ctc_decode", (SCORES, np.array([7, 6])), {}),
    ],
)
def test_an_old_function_is_keras(name, args, kwargs):
    results = keras.tree.flatten(getattr(K, name)(*args, **kwargs))
    expected = theirs(name)(*args, **kwargs)
    for result, wanted in zip(results, keras.tree.flatten(expected), strict=True):
        np.testing.assert_allclose(result, wanted.numpy(), rtol=1e-4, atol=1e-5)


def test_a_function_of_one_output_returns_it_whole():
    inputs = keras.Input((3,))
    run = K.function([inputs], [keras.layers.Dense(4)(inputs)])
    (output,) = run([np.ones((5, 3), "float32")])
    assert output.shape == (5, 4)


def test_a_batch_is_normalized():
    normed, mean, var = K.normalize_batch_in_training(X, None, None, [0, 1], 0.0)
    np.testing.assert_allclose(np.std(normed, axis=(0, 1)), 1.0, rtol=1e-5)
    np.testing.assert_allclose(mean, X.mean((0, 1)), atol=1e-6)
    np.testing.assert_allclose(var, X.var((0, 1)), rtol=1e-5)


def test_what_is_no_tensor_is_shown_by_a_spec_and_refused_by_a_layer():
    class Two(keras.layers.Layer):
        def call(self, x):
            return x * 2, None

    tensor, nothing = K.compute_output_spec(Two().call, K.KerasTensor((None, 3)))
    assert tensor.shape == (None, 3)
    assert nothing is None
    with pytest.raises(ValueError, match=r"'two_.' returned a non-tensor: None"):
        Two()(keras.Input((3,)))


def a_network():
    entry = keras.Input((6, 5, 2))
    inner = layers.Conv2D(3, 3, activation="tanh")(entry)
    return entry, inner, layers.Dense(2)(layers.Flatten()(inner))


def slope_of_the_second(model, inner, pixels):
    with keras.GradientTape() as tape:
        value, outputs = keras.Model(model.inputs, [inner, model.output])(pixels)
        tape.watch(value)
        loss = keras.ops.sum(outputs[:, 1])
    return tape.gradient(loss, value)


def test_gradients_of_keras_tensors_are_keras_tensors():
    entry, inner, scores = a_network()
    pixels = np.random.default_rng(0).normal(size=(4, 6, 5, 2)).astype("float32")
    by_inner, by_entry = K.gradients(scores[:, 1], [inner, entry])
    assert by_entry.shape == (None, 6, 5, 2)
    size = K.prod(K.cast(K.shape(entry), "float32"))
    run = K.function([entry], [by_inner, K.mean(K.abs(by_entry)), size])
    found, mean, count = run([pixels])
    model = keras.Model(entry, scores)
    wanted = slope_of_the_second(model, inner, pixels)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    with keras.GradientTape() as tape:
        x = keras.ops.convert_to_tensor(pixels)
        tape.watch(x)
        loss = keras.ops.sum(model(x)[:, 1])
    assert mean == pytest.approx(float(np.abs(tape.gradient(loss, x)).mean()), rel=1e-5)
    assert count == pixels.size


def test_gradients_by_weights_and_of_what_does_not_depend():
    entry, _, scores = a_network()
    model = keras.Model(entry, scores)
    bias = model.trainable_variables[-1]
    (by_bias,) = K.gradients(K.sum(scores), bias)
    (found,) = K.function([entry], [by_bias])([np.zeros((3, 6, 5, 2))])
    np.testing.assert_allclose(found, [3, 3])
    with pytest.raises(ValueError, match="does not depend"):
        K.gradients(K.sum(scores), keras.Input((2,)))
    with pytest.raises(ValueError, match="GradientTape"):
        K.gradients(np.ones(3), np.ones(3))


def test_a_placeholder_joins_others_in_front_of_a_network():
    fixed = K.constant(np.ones((1, 4)))
    given = K.placeholder((1, 4))
    joined = K.concatenate([fixed, given], axis=0)
    difference = K.sum(K.square(joined[0] - joined[1]))
    run = K.function([given], [difference, *K.gradients(difference, given)])
    value, slope = run([np.zeros((1, 4))])
    assert value == 4
    np.testing.assert_allclose(slope, np.full((1, 4), -2.0))


def test_a_loss_may_ask_for_gradients_by_a_tensor_of_the_model():
    entry = keras.Input((3,))
    inner = layers.Lambda(lambda x: 2 * x)(entry)
    critic = layers.Dense(1, use_bias=False)
    model = keras.Model(entry, critic(inner))

    def penalty(y_true, y_pred):
        slopes = K.gradients(y_pred, inner)[0]
        return K.square(1 - K.sqrt(K.sum(K.square(slopes), axis=[1])))

    model.compile(keras.optimizers.SGD(0.1), penalty)
    kernel = critic.kernel.numpy()
    norm = np.linalg.norm(kernel)
    history = model.fit(rows(8, 3), np.zeros(8), verbose=0).history
    assert history["loss"][0] == pytest.approx((1 - norm) ** 2, rel=1e-4)
    stepped = kernel + 0.1 * 2 * (1 - norm) * kernel / norm
    np.testing.assert_allclose(critic.kernel, stepped, rtol=1e-4)
