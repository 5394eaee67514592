"""Parts of layers, models and callbacks that scripts for Keras 1 and 2 reach for."""

import numpy as np
import pytest

import ganglion as keras
from ganglion import config, keras2
from ganglion.backend import get_session, local_conv1d, local_conv2d
from ganglion.compat import script_age, unsupported
from ganglion.compat.image_generator import ImageDataGenerator
from ganglion.compat.tensorflow import namespaces
from ganglion.layers import (
    Conv1D,
    Conv2D,
    Dense,
    Dropout,
    Embedding,
    Flatten,
    Input,
    Lambda,
    Layer,
    Wrapper,
)
from ganglion.legacy import initializations
from ganglion.utils import old_functions

K = keras.backend

pytestmark = pytest.mark.filterwarnings("ignore::ganglion.keras2.Keras2Warning")


@pytest.fixture(autouse=True)
def keras_2():
    keras2.set_active(True)


@pytest.fixture
def as_keras(monkeypatch):
    monkeypatch.setitem(config._choices, "stands_for_keras", True)


def rows(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def test_names_and_tensors_of_metrics_are_appended():
    x = Input((3,))
    y = Dense(1)(x)
    model = keras.Model(x, y)
    model.add_loss(K.mean(K.square(y)))
    model.compile(keras.optimizers.SGD(lr=0.0))
    model.metrics_names.append("largest")
    model.metrics_tensors.append(K.max(y))
    model.metrics_tensors += [K.min(y)]
    model.metrics_names += ["smallest"]
    inputs = rows(8, 3)
    predicted = model.predict(inputs, verbose=0)
    losses = model.train_on_batch(inputs, None)
    wanted = [np.mean(predicted**2), predicted.max(), predicted.min()]
    np.testing.assert_allclose(losses, wanted, rtol=1e-5)
    assert model.metrics_names == ["loss", "largest", "smallest"]


class Counted(Layer):
    """Moves to the mean of its batches and counts them, as in Keras 2."""

    def build(self, input_shape):
        self.mean = self.add_weight((input_shape[-1],), name="mean", trainable=False)
        K.set_value(self.mean, np.zeros(input_shape[-1]))
        self.count = K.variable(0.0)
        self.forgotten = K.variable(0.0)
        self.built = True

    def call(self, inputs):
        mean = K.mean(inputs, axis=0)
        self.add_update([K.moving_average_update(self.mean, mean, 0.5)], inputs)
        self.add_update(K.update_add(self.count, 1))
        K.update_add(self.forgotten, 1)  # handed to nobody
        return inputs - self.mean


def test_updates_are_made_in_steps_that_train():
    layer = Counted()
    model = keras.Sequential([Input((2,)), layer, Dense(1)])
    model.compile("sgd", "mse")
    x = np.ones((4, 2), "float32")
    model.predict(x, verbose=0)
    model.evaluate(x, x[:, :1], verbose=0)
    assert K.get_value(layer.count) == 0
    model.fit(x, x[:, :1], batch_size=2, verbose=0)
    assert K.get_value(layer.count) == 2
    np.testing.assert_allclose(layer.mean, 0.75)
    assert K.get_value(layer.forgotten) == 0
    assert model.updates == []
    layer.trainable = False
    model.compile("sgd", "mse")
    model.fit(x, x[:, :1], verbose=0)
    assert K.get_value(layer.count) == 2


def test_own_lists_of_weights_take_others_up():
    class Around(Layer):
        def __init__(self, inner, **kwargs):
            super().__init__(**kwargs)
            self.name_of_inner = inner.name
            self._inner = [lambda: inner]  # no attribute that is looked into

        def build(self, input_shape):
            inner = self._inner[0]()
            inner.build(input_shape)
            self._trainable_weights.extend(inner._trainable_weights)
            self._trainable_weights += inner._trainable_weights  # each once
            self.fixed = K.variable(1.0)
            self._non_trainable_weights.append(self.fixed)
            self.built = True

        def call(self, inputs):
            return self._inner[0]().call(inputs) * self.fixed

    layer = Around(Dense(2))
    model = keras.Sequential([Input((3,)), layer])
    assert len(layer.trainable_weights) == 2
    assert len(layer._non_trainable_weights) == 1
    before = model.get_weights()
    model.compile("sgd", "mse")
    model.fit(rows(4, 3), rows(4, 2), verbose=0)
    changed = [
        np.abs(a - b).max() > 0
        for a, b in zip(before, model.get_weights(), strict=True)
    ]
    assert changed == [weight.trainable for weight in model.weights]


def test_callbacks_have_the_validation_data():
    class Look(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.shapes = [array.shape for array in self.validation_data]

    model = keras.Sequential([Input((3,)), Dense(1)])
    model.compile("sgd", "mse")
    look = Look()
    for size in (4, 2):
        data = (rows(size, 3), rows(size))
        fit = {"validation_data": data, "callbacks": [look], "verbose": 0}
        model.fit(rows(6, 3), rows(6), **fit)
        assert look.shapes == [(size, 3), (size, 1), (size,)]
    look.validation_data = (rows(5, 3), rows(5))
    model.fit(rows(6, 3), rows(6), **fit)
    assert look.shapes == [(5, 3), (5,)]


def test_a_kernel_that_a_call_replaces_is_there_at_the_next():
    class Masked(Wrapper):
        def call(self, inputs):
            kernel = self.layer.kernel
            self.layer.kernel = K.in_train_phase(K.dropout(kernel, 0.5), kernel)
            return self.layer.call(inputs)

    x = Input((6,))
    model = keras.Model(x, Masked(Dense(1))(x))
    model.compile("sgd", "mse")
    inputs = rows(16, 6)
    model.fit(inputs, inputs[:, 0], batch_size=5, epochs=2, verbose=0)
    kernel, bias = model.get_weights()
    predicted = model.predict(inputs, verbose=0)
    np.testing.assert_allclose(predicted, inputs @ kernel + bias, rtol=1e-4, atol=1e-5)


def test_the_shape_of_the_noise_of_a_dropout():
    class Half(Dropout):
        def call(self, inputs, training=None):
            shape = self._get_noise_shape(inputs)
            return K.dropout(inputs, 0.5, shape, seed=self.seed)

    dropped = np.array(Half(0.5, noise_shape=(None, 1))(np.ones((50, 4))))
    assert set(dropped.sum(axis=1)) == {0.0, 8.0}
    assert Half(0.5)._get_noise_shape(np.ones((2, 2))) is None


def test_next_of_a_flow():
    flow = ImageDataGenerator().flow(rows(6, 4, 4, 1), np.arange(6), batch_size=2)
    x, y = flow.next()
    assert (x.shape, y.shape) == ((2, 4, 4, 1), (2,))


def test_names_of_arguments_of_the_backend():
    assert np.array(K.one_hot(indices=np.array([1]), num_classes=2)).tolist() == [
        [0, 1]
    ]
    assert K.reshape(np.ones(4), shape=(2, 2)).shape == (2, 2)
    assert K.tile(np.ones(2), n=3).shape == (6,)
    assert np.array(K.maximum(x=np.ones(1), y=np.zeros(1))) == 1
    assert K.eye(2, "int32", "name").dtype == "int32"
    assert len(K.stop_gradient(variables=[np.ones(1), np.ones(1)])) == 2
    assert K.zeros_like(np.ones(2), name="zeros").shape == (2,)
    assert K.constant(1.0, name="one") == 1.0
    assert K.get_variable_shape(K.variable(np.ones((2, 3)))) == (2, 3)
    assert K.variable(np.ones((2, 3))).shape.as_list() == [2, 3]


@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
def test_local_convolutions_of_equal_kernels_are_convolutions(data_format):
    line, image = rows(2, 9, 3), rows(2, 7, 8, 3)
    along, over = Conv1D(4, 3, 2, use_bias=False), Conv2D(5, (2, 3), (1, 2))
    wanted = np.array(along(line)), np.array(over(image) - over.bias)
    kernels = np.tile(along.kernel.numpy().reshape(1, -1, 4), (4, 1, 1))
    kernel = over.kernel.numpy()
    if data_format == "channels_first":
        line, image = line.transpose(0, 2, 1), image.transpose(0, 3, 1, 2)
        wanted = wanted[0], wanted[1].transpose(0, 3, 1, 2)
        kernel = kernel.transpose(2, 0, 1, 3)
    found = local_conv1d(line, kernels, (3,), (2,), data_format)
    np.testing.assert_allclose(found, wanted[0], rtol=1e-4, atol=1e-5)
    kernels = np.tile(kernel.reshape(1, -1, 5), (18, 1, 1))
    found = local_conv2d(image, kernels, (2, 3), (1, 2), (6, 3), data_format)
    np.testing.assert_allclose(found, wanted[1], rtol=1e-4, atol=1e-5)


def test_optimizers_of_tensorflow_1():
    tf = namespaces.load("")
    targets = rows(8, 2)

    def trained(optimizer):
        model = keras.Sequential([Input((3,)), Dense(2)])
        model.set_weights([rows(3, 2), rows(2)])
        model.compile(optimizer, "mse")
        for _ in range(3):
            model.train_on_batch(rows(8, 3), targets)
        return np.concatenate([w.ravel() for w in model.get_weights()])

    ours = keras.optimizers
    for old, today in (
        (tf.train.AdamOptimizer(0.1, beta1=0.8), ours.Adam(0.1, 0.8, epsilon=1e-8)),
        (tf.train.GradientDescentOptimizer(0.1), ours.SGD(0.1)),
        (tf.compat.v1.train.MomentumOptimizer(0.1, 0.9), ours.SGD(0.1, 0.9)),
        (tf.train.AdadeltaOptimizer(1.0), ours.Adadelta(1.0, 0.95, 1e-8)),
    ):
        np.testing.assert_allclose(trained(old), trained(today), rtol=1e-5)

    # By hand: the mean of squares begins with one, Adagrad's sum with a tenth.
    def by_hand(squares, step):
        flat = [rows(3, 2).astype("float64"), rows(2).astype("float64")]
        sums = [np.full_like(w, squares) for w in flat]
        x = rows(8, 3).astype("float64")
        for _ in range(3):
            slope = (x @ flat[0] + flat[1] - targets) / targets.size * 2
            for weight, total, grad in zip(
                flat, sums, (x.T @ slope, slope.sum(axis=0)), strict=True
            ):
                step(weight, total, grad)
        return np.concatenate([w.ravel() for w in flat])

    def rms(weight, total, grad):
        total += 0.1 * (grad**2 - total)
        weight -= 0.1 * grad / np.sqrt(total + 1e-10)

    def adagrad(weight, total, grad):
        total += grad**2
        weight -= 0.1 * grad / np.sqrt(total)

    found = trained(tf.train.RMSPropOptimizer(0.1))
    np.testing.assert_allclose(found, by_hand(1.0, rms), rtol=1e-4, atol=1e-5)
    found = trained(tf.train.AdagradOptimizer(0.1))
    np.testing.assert_allclose(found, by_hand(0.1, adagrad), rtol=1e-4, atol=1e-5)


def test_sessions_and_graphs_that_are_only_held():
    tf = namespaces.load("")
    graph = tf.get_default_graph()
    with graph.as_default(), tf.Session() as session, session.as_default():
        session.run([tf.global_variables_initializer(), tf.tables_initializer()])
    session.close()
    get_session().run(tf.local_variables_initializer())
    with pytest.raises(NotImplementedError, match="sessions"):
        session.run(K.variable(1.0))
    devices = namespaces.find("python.client.device_lib.list_local_devices")()
    assert devices[0].name == "/device:CPU:0"
    assert K._get_available_gpus() in ([], ["/device:GPU:0"])


def test_tensorflow_by_the_backend(as_keras):
    upper = np.array(K.tf.matrix_band_part(np.ones((2, 2), "float32"), 0, -1))
    assert upper.tolist() == [[1, 1], [0, 1]]
    assert K.tensorflow_backend.mean is K.mean


@pytest.mark.filterwarnings("ignore:A lambda is saved")
def test_lambdas_of_this_process_are_found_again(tmp_path):
    x = Input((2,))
    model = keras.Model(x, Lambda(lambda x: x * 3)(x))
    for name in ("model.h5", "model.keras"):
        model.save(tmp_path / name)
        loaded = keras.models.load_model(tmp_path / name)
        assert loaded.predict(np.ones((1, 2)), verbose=0).tolist() == [[3, 3]]
    clone = keras.models.clone_model(model)
    assert clone.predict(np.ones((1, 2)), verbose=0).tolist() == [[3, 3]]
    # Two of one text that differ in what is not written: nobody can tell which.

    def times(factor):
        return keras.Model(x, Lambda(lambda x: x * factor)(x))

    for factor in (np.float32(2), np.float32(3)):
        times(factor).save(tmp_path / "two.h5")
    with pytest.raises(ValueError, match="arbitrary code"):
        keras.models.load_model(tmp_path / "two.h5")


def test_an_embedding_knows_its_input():
    model = keras.Sequential([Embedding(9, 4, input_length=6), Flatten(), Dense(1)])
    assert model.input_shape == (None, 6)
    assert model.output_shape == (None, 1)
    assert keras.Sequential([Embedding(9, 4)]).output_shape == (None, None, 4)
    keras2.set_active(False)
    assert not keras.Sequential([Embedding(9, 4)]).built


def test_outputs_of_a_model_are_replaced():
    model = keras.Sequential([Dense(3, input_dim=4), Dense(1000)])
    model.layers.pop()
    model.outputs = [model.layers[-1].output]
    model.layers[-1].outbound_nodes = []
    assert model.output_shape == (None, 3)
    model.add(Dense(2))
    assert model.predict(rows(5, 4), verbose=0).shape == (5, 2)
    x = Input((4,))
    y = Dense(3)(x)
    functional = keras.Model(x, Dense(2)(y))
    functional.outputs = [y]
    assert functional.predict(rows(5, 4), verbose=0).shape == (5, 3)


def test_the_list_of_layers_is_a_copy_for_keras_3(as_keras):
    model = keras.Sequential([Input((4,)), Dense(3), Dense(2)])
    model.layers.pop()
    assert len(model.layers) == 1
    keras2.set_active(True, in_tensorflow=True)
    model.layers.pop()
    assert len(model.layers) == 1
    script = "from keras.applications import VGG16\nmodel = VGG16()\nmodel.layers.pop()"
    age = script_age.age_of_text(script)
    assert (age.keras, age.reason) == (2, "line 3: `model.layers.pop()`")
    script = "import keras\nnumbers = [1]\nnumbers.pop()"
    assert script_age.age_of_text(script).keras == 3


def test_what_is_unsupported_is_refused_where_it_is_used(as_keras):
    from ganglion.layers import Recurrent
    from ganglion.models import model_from_yaml
    from ganglion.utils import multi_gpu_model

    with pytest.raises(NotImplementedError, match="multi_gpu_model: one machine"):
        multi_gpu_model(None, gpus=2)
    with pytest.raises(NotImplementedError, match="to_json"):
        model_from_yaml("")
    with pytest.raises(NotImplementedError, match="sessions and graphs"):
        keras.estimator.model_to_estimator()
    with pytest.raises(NotImplementedError, match="RNN"):
        type("Own", (Recurrent,), {})
    assert not isinstance(Dense(1), Recurrent)
    assert not hasattr(Recurrent, "__wrapped__")
    with pytest.raises(AttributeError, match="no such name"):
        unsupported.stand_in("ganglion.utils", "multi_gpu")


def test_initializations_of_keras_1():
    made = initializations.get("glorot_uniform")((3, 2), name="W")
    assert (made.name, made.shape) == ("W:0", (3, 2))
    assert initializations.one((2,)).numpy().tolist() == [1, 1]

    def own(shape, name=None):
        return K.zeros(shape)

    assert initializations.get(own) is own
    with pytest.raises(AttributeError):
        initializations.seven  # noqa: B018


def test_small_functions_of_keras_2():
    assert old_functions.has_arg(lambda x, y: 0, "y")
    assert not old_functions.has_arg(lambda x: 0, "y")
    assert old_functions.has_arg(lambda **rest: 0, "y", accept_all=True)
    assert old_functions.to_list(3) == old_functions.to_list([3]) == [3]
    assert old_functions.unpack_singleton([3]) == 3
    x = np.arange(6)
    assert old_functions.slice_arrays([x, None], 1, 3)[0].tolist() == [1, 2]
    assert old_functions.slice_arrays(x, [0, 5]).tolist() == [0, 5]
    assert old_functions.count_params([rows(2, 3), rows(3)]) == 9
    assert old_functions.normalize_padding("SAME") == "same"
    for padding, length in (("valid", 3), ("same", 4), ("causal", 4), ("full", 5)):
        assert old_functions.conv_output_length(8, 3, padding, 2) == length
    assert old_functions.conv_output_length(None, 3, "same", 1) is None
    with pytest.raises(ValueError, match="2 whole numbers"):
        old_functions.normalize_tuple((1, 2, 3), 2, "strides")
    with pytest.raises(ValueError, match="padding"):
        old_functions.normalize_padding("full")
    from ganglion.utils import conv_utils, generic_utils

    assert conv_utils.normalize_tuple is old_functions.normalize_tuple
    assert generic_utils.has_arg is old_functions.has_arg
