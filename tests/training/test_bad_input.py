"""Bad input: each kind with its message, as early as it can be known."""

import warnings

import numpy as np
import pytest

import ganglion as keras
from ganglion import layers


def rows(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def classifier(loss="sparse_categorical_crossentropy"):
    model = keras.Sequential(
        [keras.Input((4,)), layers.Dense(3, activation="softmax", name="classes")]
    )
    model.compile("sgd", loss)
    return model


def refused(match, act, error=ValueError):
    with pytest.raises(error, match=match):
        act()


def test_label_out_of_range():
    y = np.array([0, 1, 3, 2])
    refused(
        r"Label 3 in `y` \(row 2\) is out of range: the model has 3 classes, 0 to 2",
        lambda: classifier().fit(rows(4, 4), y, verbose=0),
    )
    refused(
        r"Label -1 in `y` \(row 0\)",
        lambda: classifier().fit(rows(2, 4), np.array([-1, 0]), verbose=0),
    )


def test_one_hot_labels_for_class_numbers_and_the_reverse():
    refused(
        "sparse_categorical_crossentropy",
        lambda: classifier().fit(rows(4, 4), np.eye(4, 3), verbose=0),
    )
    model = classifier("categorical_crossentropy")
    refused(
        "sparse_categorical_crossentropy",
        lambda: model.fit(rows(4, 4), np.array([0, 1, 2, 0]), verbose=0),
    )


def test_nan_in_the_data_is_named_when_asked_for():
    x = rows(6, 4)
    x[3, 1] = np.nan
    refused(
        "`x` holds NaN or infinity in 1 rows, first in row 3",
        lambda: classifier().fit(x, np.zeros(6, int), check=True, verbose=0),
    )


def test_a_loss_that_turns_nan_is_named_by_step():
    x = rows(64, 4)
    x[40] = np.inf
    with pytest.warns(RuntimeWarning, match=r"at step 6 \(epoch 1\).*check=True"):
        classifier().fit(x, np.zeros(64, int), batch_size=8, shuffle=False, verbose=0)


def test_a_healthy_run_warns_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        classifier().fit(rows(64, 4), np.zeros(64, int), epochs=2, verbose=0)


def test_shapes_are_named_by_layer():
    refused(
        r"name 'input_layer.*expected shape=\(None, 4\), found shape=\(8, 5\)",
        lambda: classifier().fit(rows(8, 5), np.zeros(8, int), verbose=0),
    )
    refused(
        r'"classes" is incompatible.*: expected axis -1 of input shape to have value 4'
        r".*\(None, 5\)",
        lambda: classifier().layers[0](keras.Input((5,))),
    )
    refused(
        r"window of \(5, 5\).*does not fit into \(4, 4\).*/big  test_bad_input",
        lambda: keras.Sequential(
            [keras.Input((4, 4, 1)), layers.Conv2D(2, 5, name="big")]
        ),
    )
    refused(
        "subtract.*pick|pick",
        lambda: layers.Subtract(name="pick")([keras.Input((2,)), keras.Input((3,))]),
    )


def test_an_error_inside_of_own_code_names_layer_and_line():
    class Odd(layers.Layer):
        def call(self, x):
            return x @ keras.ops.ones((7, 2))

    with pytest.raises(
        ValueError, match=r"inner sizes differ.*odd.*test_bad_input.py:\d"
    ):
        Odd(name="odd")(keras.Input((3,)))


def test_empty_and_unequal_arrays():
    refused(
        "`x` is empty",
        lambda: classifier().fit(np.zeros((0, 4)), np.zeros(0), verbose=0),
    )
    refused(
        "differ in their number of rows: x has 4, y has 3",
        lambda: classifier().fit(rows(4, 4), np.zeros(3, int), verbose=0),
    )
    refused(
        "rows have different shapes",
        lambda: classifier().fit([[1.0, 2.0], [1.0]], [0, 1], verbose=0),
    )
    refused(
        "not numbers",
        lambda: classifier().fit(np.array([["a"] * 4] * 2), [0, 1], verbose=0),
        TypeError,
    )
    refused("needs data", lambda: classifier().fit())


def test_batch_larger_than_the_data_says_so_and_goes_on():
    with pytest.warns(UserWarning, match="batch_size=100 is larger.*one batch of 8"):
        classifier().fit(rows(8, 4), np.zeros(8, int), batch_size=100, verbose=0)
    refused(
        "`batch_size` must be an integer >= 1, got 0",
        lambda: classifier().fit(rows(8, 4), np.zeros(8, int), batch_size=0),
    )


@pytest.mark.parametrize(
    ("act", "match"),
    [
        (lambda: layers.Dense(1, activation="rleu"), "activation 'rleu'.*'relu'"),
        (lambda: classifier("categorical_crosentropy"), "'categorical_crossentropy'"),
        (
            lambda: keras.Sequential().compile("adan", "mse"),
            "optimizer 'adan'.*'adam'",
        ),
        (
            lambda: layers.Dense(1, kernel_initializer="he_norml"),
            "initializer 'he_norml'.*'he_normal'",
        ),
        (
            lambda: layers.Dense(1, kernel_regularizer="l3"),
            "regularizer 'l3'.*'l[12]'",
        ),
        (
            lambda: keras.Sequential().compile("sgd", "mse", metrics=["acuracy"]),
            "'acuracy'.*'accuracy'",
        ),
        (lambda: keras.config.set_backend("nunpy"), "'nunpy'.*'numpy'"),
        (lambda: keras.recipes.get("mnist-mpl"), "'mnist-mpl'.*'mnist-mlp'"),
    ],
)
def test_unknown_names_get_the_closest(act, match):
    refused(match, act)


def test_unknown_arguments_are_refused_by_name():
    refused("`speed`|speed", lambda: layers.Dense(1, speed=3), TypeError)
    refused(
        "rows_first",
        lambda: layers.Conv2D(1, 3, data_format="rows_first"),
    )
    refused(
        "`sample_weight` cannot be given with a generator",
        lambda: classifier().fit(iter([]), sample_weight=rows(3)),
    )


def test_training_before_compile():
    model = keras.Sequential([keras.Input((2,)), layers.Dense(1)])
    refused("compile", lambda: model.fit(rows(2, 2), rows(2, 1)))
    refused("compile", lambda: model.evaluate(rows(2, 2), rows(2, 1)))


def test_a_loss_that_weights_do_not_reach():
    class Idle(keras.Model):
        def __init__(self):
            super().__init__()
            self.layer = layers.Dense(2, name="idle")

        def call(self, x):
            return keras.ops.stop_gradient(self.layer(x))

    model = Idle()
    model.compile("sgd", "mse")
    refused(
        "nothing can be learned.*idle/kernel",
        lambda: model.fit(rows(2, 2), rows(2, 2), verbose=0),
    )


def test_no_weights_and_no_loss():
    model = keras.Sequential([keras.Input((2,)), layers.Flatten()])
    model.compile("sgd", "mse")
    with pytest.warns(UserWarning, match="no trainable weights"):
        model.fit(rows(2, 2), rows(2, 2), verbose=0)
    model.compile("sgd")
    refused("no loss to minimise", lambda: model.fit(rows(2, 2), rows(2, 2), verbose=0))


def test_python_if_on_traced_values_says_what_to_do():
    class Branch(layers.Layer):
        def call(self, x):
            return x if keras.ops.sum(x) > 0 else -x

    refused("ops.where", lambda: Branch()(keras.Input((2,))), TypeError)


def test_numpy_on_keras_tensors_says_what_to_do():
    refused("ganglion.ops", lambda: np.asarray(keras.Input((2,))))


def test_wrong_number_of_inputs_and_targets():
    a, b = keras.Input((2,), name="a"), keras.Input((2,), name="b")
    model = keras.Model([a, b], layers.Add()([a, layers.Dense(2)(b)]))
    model.compile("sgd", "mse")
    refused(r"2 input\(s\) \(a, b\).*1 were given", lambda: model.predict(rows(3, 2)))
    refused(
        "input.*b|`b`|No data",
        lambda: model.predict({"a": rows(3, 2)}, verbose=0),
    )


def test_wrong_weights():
    model = classifier()
    refused("has 2 weights, but 1 arrays", lambda: model.set_weights([rows(4, 3)]))
    refused(
        r"expected shape \(4, 3\), got \(3, 4\)",
        lambda: model.set_weights([rows(3, 4), rows(3)]),
    )
