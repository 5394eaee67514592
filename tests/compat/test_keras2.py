"""Scripts written for Keras 2 run, with one warning for each old spelling."""

import importlib
import subprocess
import sys
import warnings

import numpy as np
import pytest

import ganglion as keras
from ganglion import keras2, oldpaths


def rows(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def told(act):
    """Return the warnings about old spellings that an action gives."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = act()
    return result, [
        str(w.message) for w in caught if w.category is keras2.Keras2Warning
    ]


def test_each_spelling_warns_once():
    def twice():
        return [keras.optimizers.SGD(lr=0.1), keras.optimizers.SGD(lr=0.2)]

    optimizers, texts = told(twice)
    assert [
        float(optimizer.learning_rate) for optimizer in optimizers
    ] == pytest.approx([0.1, 0.2])
    assert len(texts) == 1
    assert "learning_rate" in texts[0]


def test_input_shape_on_the_first_layer():
    def build():
        return keras.Sequential([keras.layers.Dense(3, input_shape=(4,))])

    model, texts = told(build)
    assert model.input_shape == (None, 4)
    assert len(texts) == 1


def test_input_dim_and_batch_input_shape():
    model, texts = told(lambda: keras.Sequential([keras.layers.Dense(3, input_dim=4)]))
    assert model.input_shape == (None, 4)
    assert "input_dim" in texts[0]
    model, _ = told(
        lambda: keras.Sequential([keras.layers.Dense(3, batch_input_shape=(8, 4))])
    )
    assert model.input_shape == (8, 4)


@pytest.mark.filterwarnings("ignore::ganglion.keras2.Keras2Warning")
def test_whole_keras_2_script():
    from ganglion.layers.core import Dense, Dropout
    from ganglion.utils.np_utils import to_categorical

    model = keras.models.Sequential()
    model.add(Dense(8, activation="relu", input_dim=4))
    model.add(Dropout(0.2))
    model.add(Dense(3, activation="softmax"))
    model.compile(
        loss="categorical_crossentropy",
        optimizer=keras.optimizers.SGD(lr=0.1, decay=1e-4, momentum=0.9, nesterov=True),
        metrics=["acc"],
    )
    x, y = rows(32, 4), to_categorical(np.arange(32) % 3, 3)

    def batches():
        while True:
            yield x, y

    (history, texts) = told(
        lambda: model.fit_generator(
            batches(), steps_per_epoch=2, epochs=2, verbose=0, workers=1
        )
    )
    assert sorted(history.history) == ["acc", "loss"]
    assert any("fit_generator" in text for text in texts)
    stop = keras.callbacks.EarlyStopping(monitor="val_acc", patience=0)
    model.fit(x, y, epochs=2, validation_split=0.25, callbacks=[stop], verbose=0)
    assert len(model.predict_generator(iter([x]), steps=1)) == 32
    assert len(model.evaluate_generator(batches(), steps=2)) == 2


def test_val_acc_is_found_where_the_metric_is_called_accuracy():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, "softmax")])
    model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
    stop = keras.callbacks.EarlyStopping(monitor="val_acc", patience=0)

    def fit():
        y = np.arange(12) % 3
        return model.fit(
            rows(12, 4), y, epochs=9, validation_split=0.25, callbacks=[stop], verbose=0
        )

    history, texts = told(fit)
    assert any("val_acc" in text for text in texts)
    assert len(history.epoch) < 9  # nothing left to win: it did watch
    assert history.history["val_acc"] is history.history["val_accuracy"]


def test_results_are_found_by_the_names_they_had(tmp_path):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, "softmax")])
    model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
    seen = []
    history = model.fit(
        rows(12, 4),
        np.arange(12) % 3,
        verbose=0,
        callbacks=[
            keras.callbacks.LearningRateScheduler(lambda epoch: 0.5),
            keras.callbacks.LambdaCallback(
                on_epoch_end=lambda epoch, logs: seen.append(logs.get("acc"))
            ),
            keras.callbacks.ModelCheckpoint(str(tmp_path / "{epoch}-{acc:.2f}.keras")),
        ],
    ).history
    assert sorted(history) == ["accuracy", "learning_rate", "loss"]
    assert history["acc"] == history["accuracy"] == seen
    assert history["lr"] == [0.5]
    assert "val_acc" not in history
    assert [path.name for path in tmp_path.iterdir()] == [f"1-{seen[0]:.2f}.keras"]


def test_tensors_are_merged_as_in_keras_1():
    from ganglion.layers import merge

    a, b = keras.Input((3,)), keras.Input((3,))
    x, y = rows(4, 3), rows(4, 3) ** 2
    products = (x * y).sum(-1)
    norms = np.linalg.norm(x, axis=-1) * np.linalg.norm(y, axis=-1)
    for mode, wanted in {
        "sum": x + y,
        "mul": x * y,
        "ave": (x + y) / 2,
        "max": np.maximum(x, y),
        "concat": np.concatenate([x, y], -1),
        "dot": products[:, None],
        "cos": (products / norms)[:, None, None],
        (lambda pair: pair[0] - pair[1]): x - y,
    }.items():
        model = keras.Model([a, b], merge([a, b], mode=mode))
        np.testing.assert_allclose(model([x, y]), wanted, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match=r"'concat'.*not 'join'"):
        merge([a, b], mode="join")


def test_an_old_path_knows_why_a_layer_is_missing():
    with pytest.raises(ImportError, match="Write it as a Layer"):
        exec("from ganglion.layers.core import Highway")


def test_models_are_merged_as_in_keras_1():
    from ganglion.layers import Merge

    left = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    right = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    model = keras.Sequential([Merge([left, right], mode="concat"), keras.layers.ReLU()])
    assert [x.shape for x in model.inputs] == [(None, 3), (None, 4)]
    data = [np.ones((5, 3)), np.ones((5, 4))]
    wanted = np.maximum(np.concatenate([left(data[0]), right(data[1])], -1), 0)
    model.compile("sgd", "mse")
    np.testing.assert_allclose(model.predict(data, verbose=0), wanted, rtol=1e-5)
    again = keras.Sequential.from_config(model.get_config())
    again.set_weights(model.get_weights())
    np.testing.assert_allclose(again(data), wanted, rtol=1e-5)
    a, b = keras.Input((2,)), keras.Input((2,))
    assert Merge(mode="sum")([a, b]).shape == (None, 2)


def test_arguments_that_say_nothing_today_are_accepted():
    class Penalty(keras.layers.Layer):
        def call(self, x):
            self.add_loss(keras.ops.sum(x), inputs=x)
            return x

    model = keras.Sequential([keras.Input((2,)), Penalty()])
    with pytest.warns(keras2.Keras2Warning, match="the shape of `sample_weight`"):
        model.compile("sgd", "mse", sample_weight_mode="temporal")
    assert model.evaluate(np.ones((3, 2)), np.ones((3, 2)), verbose=0) == 6.0
    with pytest.raises(TypeError, match="does not know target_tensors"):
        model.compile("sgd", "mse", target_tensors=[1])


def test_a_metric_in_an_attribute_reports_its_own_result():
    class Endpoint(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.accuracy = keras.metrics.BinaryAccuracy(name="accuracy")

        def call(self, x):
            self.add_metric(self.accuracy(keras.ops.ones_like(x), x), name="accuracy")
            return x

    model = keras.Sequential([keras.Input((2,)), Endpoint()])
    model.compile("sgd", "mse")
    data = np.array([[1.0, 0.0], [1.0, 1.0]])
    results = model.evaluate(data, data, verbose=0, return_dict=True)
    assert results["accuracy"] == 0.75


def test_functions_of_old_modules_keep_the_order_of_their_arguments():
    scores, classes = np.array([[0.1, 0.9], [0.8, 0.2]]), np.array([1, 1])
    found = keras.backend.in_top_k(scores, classes, 1)
    assert np.asarray(found).tolist() == [True, False]
    cosine = keras.metrics.cosine_proximity([[0.0, 1.0]], [[0.0, 2.0]])
    assert float(cosine[0]) == pytest.approx(1)


@pytest.mark.parametrize("old", sorted(oldpaths.OLD_PATHS))
def test_old_paths_hold_todays_names(old):
    sys.modules.pop(old, None)
    new = importlib.import_module(oldpaths.OLD_PATHS[old])
    public = max(new.__all__, key=lambda name: name[0].isupper())

    def use():
        module = importlib.import_module(old)
        return module, getattr(module, public)

    (module, value), texts = told(use)
    assert value is getattr(new, public)
    assert len(texts) == 1
    assert "Keras 2" in texts[0]
    with pytest.raises(AttributeError):
        module.does_not_exist  # noqa: B018


def test_old_paths_as_attributes_in_a_fresh_process():
    script = (
        "import ganglion as keras\n"
        "print(keras.layers.core.Dense.__name__,"
        " keras.utils.np_utils.to_categorical(1, 3),"
        " keras.preprocessing.sequence.pad_sequences([[1]], 2),"
        " keras.engine.topology.Layer.__name__, keras.backend.floatx())"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "Dense [0. 1. 0.] [[0 1]] Layer float32\n"


def test_legacy_mode_changes_the_defaults_that_changed():
    assert float(keras.optimizers.Adadelta().learning_rate) == pytest.approx(0.001)
    x = np.array([1.0], "float32")
    assert keras.activations.hard_sigmoid(x)[0] == pytest.approx(4 / 6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        keras.optimizers.SGD(lr=0.1)
    assert keras2.active()
    assert float(keras.optimizers.Adadelta().learning_rate) == pytest.approx(1.0)
    assert keras.activations.hard_sigmoid(x)[0] == pytest.approx(0.7)


def test_integer_learning_rates():
    assert float(keras.optimizers.SGD(1).learning_rate) == 1.0


def test_backend_functions_of_old_losses():
    K = keras.backend

    def loss(y_true, y_pred):
        return K.mean(K.square(y_pred - y_true), axis=-1)

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", loss)
    x, y = rows(8, 2), rows(8, 1)
    ours = model.evaluate(x, y, verbose=0)
    model.compile("sgd", "mse")
    assert ours == pytest.approx(model.evaluate(x, y, verbose=0), rel=1e-6)
    with pytest.raises(AttributeError, match="sessions"):
        K.manual_variable_initialization(True)


def test_the_mode_is_said_once_and_decided_by_hand():
    with pytest.warns(keras2.Keras2Warning, match="From here on, the few defaults"):
        keras.optimizers.SGD(lr=0.1)
    assert keras2.active()
    with pytest.warns(keras2.Keras2Warning, match=r"Accepted\.$"):
        keras.optimizers.SGD(decay=0.1)
    keras2.set_active(False)
    with pytest.warns(keras2.Keras2Warning, match=r"Accepted\.$"):
        keras.optimizers.SGD(lr=0.1)
    assert not keras2.active()
    assert float(keras.optimizers.Adadelta().learning_rate) == np.float32(0.001)
    keras2.set_active(None)
    assert not keras2.active()


def test_layers_popped_off_a_model():
    x = keras.Input((4,))
    outputs = keras.layers.Dense(3, name="head")(keras.layers.Dense(2, name="body")(x))
    model = keras.Model(x, outputs)

    def cut():
        model.layers.pop()
        return keras.Model(model.input, model.layers[-1].output)

    cut_model, texts = told(cut)
    assert cut_model.output_shape == (None, 2)
    assert len(texts) == 1
    assert model.predict(rows(2, 4), verbose=0).shape == (2, 3)


def test_layers_written_for_keras_2():
    class Old(keras.layers.Layer):
        def build(self, input_shape):
            self.w = self.add_weight("w", (input_shape[-1], 2), initializer="ones")
            self.b = keras.backend.variable(np.zeros(2))
            self.trainable_weights = [self.w, self.b]

        def call(self, x, mask=None):
            return keras.backend.dot(x, self.w) + self.b

    def shapes():
        layer = Old()
        layer(keras.Input((3,)))
        return layer, layer.input_shape, layer.output_shape, layer.get_output_at(0)

    (layer, before, after, tensor), texts = told(shapes)
    assert (before, after, tensor.shape) == ((None, 3), (None, 2), (None, 2))
    assert layer.weights[0].name == "old/w:0"
    assert len(layer.trainable_weights) == 2
    assert len(texts) == 5


def test_a_layer_may_keep_an_attribute_called_output_shape():
    class Own(keras.layers.Layer):
        def __init__(self, output_shape):
            super().__init__()
            self.output_shape = output_shape

        def call(self, x):
            return keras.ops.reshape(x, (-1, *self.output_shape))

    layer, texts = told(lambda: Own((2, 2)))
    assert layer(rows(3, 4)).shape == (3, 2, 2)
    assert texts == []


def test_arguments_that_callbacks_and_fit_had(tmp_path):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")

    def fit():
        name = str(tmp_path / "{epoch}.keras")
        saved = keras.callbacks.ModelCheckpoint(name, period=2)
        board = keras.callbacks.TensorBoard(tmp_path / "logs", batch_size=32)
        calls = [saved, board]
        model.fit(rows(4, 4), rows(4, 1), nb_epoch=4, workers=2, callbacks=calls)

    _, texts = told(fit)
    assert len(texts) == 4
    assert sorted(path.name for path in tmp_path.glob("*.keras")) == [
        "2.keras",
        "4.keras",
    ]


def test_names_of_keras_1():
    def build():
        conv = keras.layers.Convolution2D(
            4, 3, 5, border_mode="same", subsample=(2, 2), init="he_normal", bias=False
        )
        dense = keras.layers.Dense(output_dim=3, W_regularizer="l2")
        return conv, dense, keras.layers.Dropout(p=0.3)

    (conv, dense, dropout), texts = told(build)
    assert (conv.kernel_size, conv.strides, conv.padding) == ((3, 5), (2, 2), "same")
    assert (conv.use_bias, dense.units, dropout.rate) == (False, 3, 0.3)
    assert conv.get_config()["kernel_size"] == (3, 5)
    assert len(texts) == 8
    again = keras.layers.Dense.from_config(dense.get_config())
    assert again.units == 3


def test_a_third_number_is_a_stride_but_for_old_scripts():
    assert keras.layers.Conv2D(4, 3, 3).strides == (3, 3)
    keras2.set_active(True)
    conv, texts = told(lambda: keras.layers.Conv2D(4, 3, 3))
    assert (conv.kernel_size, conv.strides) == ((3, 3), (1, 1))
    assert len(texts) == 1
    assert keras.layers.Conv2D(4, 3, 2).strides == (2, 2)


@pytest.mark.filterwarnings("ignore::ganglion.keras2.Keras2Warning")
def test_a_function_of_the_backend_looks_inside_of_a_model():
    K = keras.backend

    inputs = keras.Input((3,))
    hidden = keras.layers.Dense(4, activation="relu")(inputs)
    model = keras.Model(inputs, keras.layers.Dropout(0.5)(hidden))
    look = K.function([model.input, K.learning_phase()], [hidden, model.output])
    x = np.ones((64, 3), "float32")
    before, after = look([x, 0])
    np.testing.assert_array_equal(before, after)
    before, after = look([x, 1])
    assert type(after) is np.ndarray
    assert set(np.unique(after[before > 0] / before[before > 0])) == {0.0, 2.0}
    with pytest.raises(ValueError, match="updates"):
        K.function([inputs], [hidden], updates=[(1, 2)])


def test_generators_counted_by_rows():
    def pairs():
        while True:
            yield rows(4, 3), rows(4, 1)

    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    seen = []
    count = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: seen.append(batch)
    )
    history, texts = told(
        lambda: model.fit_generator(
            pairs(),
            samples_per_epoch=10,
            nb_epoch=2,
            validation_data=pairs(),
            nb_val_samples=8,
            nb_worker=1,
            max_q_size=10,
            callbacks=[count],
            verbose=0,
        )
    )
    assert seen == [0, 1, 2] * 2  # of 4 rows each, for at least 10
    assert len(history.history["val_loss"]) == 2
    assert any("samples_per_epoch" in text for text in texts)
    assert model.predict_generator(pairs(), val_samples=8).shape == (8, 1)


def test_other_names_of_the_same_things():
    constraints, initializers = keras.constraints, keras.initializers
    assert constraints.maxnorm is constraints.MaxNorm
    assert initializers.normal is initializers.RandomNormal
    assert keras.layers.AbstractRNNCell is keras.layers.Layer
    preprocessing = keras.layers.experimental.preprocessing
    assert preprocessing.Normalization is keras.layers.Normalization
    keras.mixed_precision.experimental.set_policy("float32")
    none = keras.losses.MeanSquaredError(reduction=keras.losses.Reduction.NONE)
    assert none(rows(3, 2), rows(3, 2)).shape == (3,)
    assert keras.losses.MeanSquaredError().reduction == keras.losses.Reduction.AUTO


def test_strengths_of_keras_1_and_2():
    regularizers = keras.regularizers
    strengths, texts = told(
        lambda: (regularizers.l2(l=0.5).l2, regularizers.activity_l2(0.25).l2)
    )
    assert strengths == (0.5, 0.25)
    assert len(texts) == 2
    with pytest.raises(TypeError, match="unexpected keyword argument 'k'"):
        regularizers.l2(k=1.0)


def test_the_modes_of_batch_normalization():
    assert keras.layers.BatchNormalization(mode=0, axis=1).axis == 1
    with pytest.raises(ValueError, match=r"mode=1.*LayerNormalization"):
        keras.layers.BatchNormalization(mode=1)


def test_the_order_of_axes_by_the_names_of_keras_1():
    backend = keras.backend
    assert backend.image_dim_ordering() == "tf"
    backend.set_image_dim_ordering("th")
    try:
        assert keras.config.image_data_format() == "channels_first"
        assert backend.image_dim_ordering() == "th"
    finally:
        backend.set_image_dim_ordering("tf")


def test_names_of_metrics_are_those_of_the_logs():
    inputs = keras.Input((3,))
    outputs = [keras.layers.Dense(1, name=name)(inputs) for name in ("a", "b")]
    model = keras.Model(inputs, outputs)
    model.compile("sgd", ["mse", "mse"], metrics=[["mae"], ["mae"]])
    x, y = rows(4, 3), [rows(4, 1), rows(4, 1)]
    logs = model.evaluate(x, y, verbose=0, return_dict=True)
    values = model.evaluate(x, y, verbose=0)
    assert dict(zip(model.metrics_names, values, strict=True)) == logs


def test_layers_of_cudnn_are_todays_with_its_gates():
    keras2.set_active(True)  # whose gates are others
    try:
        lstm = keras.layers.CuDNNLSTM(3, return_sequences=True)
        gru = keras.layers.CuDNNGRU(3)
    finally:
        keras2.set_active(None)
    assert type(lstm) is keras.layers.LSTM
    assert lstm.get_config()["recurrent_activation"] == "sigmoid"
    assert lstm.get_config()["return_sequences"]
    config = gru.get_config()
    assert (config["recurrent_activation"], config["reset_after"]) == ("sigmoid", True)
