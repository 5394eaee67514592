"""Programs that once printed something else than in Keras, without a word.

Each is a function of the library; what it returns, or the error it raises, is Keras'
own: the programs run in both.
"""

import itertools
import warnings
from typing import Any

import numpy as np
import pytest
from keras_programs import Programs, check

import ganglion

PROGRAMS = Programs()
prints = PROGRAMS.prints


def dense(keras: Any, inputs: int = 1, **options: Any) -> Any:
    model = keras.Sequential([keras.Input((inputs,)), keras.layers.Dense(1, **options)])
    model.compile("sgd", "mse")
    return model


@prints((1, [0.9, 0.9]))
def p01_variables_in_lists_are_tracked_and_trained(keras):
    class Scale(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.ws = [keras.Variable(np.ones(2, "float32"))]

        def call(self, x):
            return x * self.ws[0]

    model = keras.Sequential([keras.Input((2,)), Scale()])
    model.compile(keras.optimizers.SGD(0.1), "mse")
    model.fit(np.ones((4, 2)), np.zeros((4, 2)), verbose=0)
    trained = model.layers[0].ws[0].numpy()
    return len(model.weights), [round(float(number), 6) for number in trained]


@prints(ValueError)
def p02_wrong_keys_of_inputs(keras):
    x = keras.Input((2,), name="a")
    model = keras.Model({"a": x}, keras.layers.Dense(1, kernel_initializer="ones")(x))
    return model.predict({"zzz": np.ones((1, 2))}, verbose=0)


@prints(ValueError)
def p03_a_list_for_a_dictionary_of_inputs(keras):
    i, j = keras.Input((1,), name="IT"), keras.Input((1,), name="IS")
    model = keras.Model({"IT": i, "IS": j}, keras.layers.subtract([i, j]))
    return model.predict([np.ones((1, 1)), np.zeros((1, 1))], verbose=0)


@prints(["loss", "t"])
def p04_metrics_in_attributes(keras):
    class Measured(keras.Model):
        def __init__(self):
            super().__init__()
            self.t = keras.metrics.Mean(name="t")
            self.d = keras.layers.Dense(1)

        def call(self, x):
            y = self.d(x)
            self.t.update_state(y)
            return y

    model = Measured()
    model.compile("sgd", "mse")
    return sorted(model.fit(np.ones((4, 2)), np.ones((4, 1)), verbose=0).history)


def steps(keras: Any, **options: Any) -> tuple[list[int], int]:
    """Return the steps that callbacks see, and how often the data ran out."""
    seen: list[int] = []
    noting = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda step, logs: seen.append(step)
    )
    x = np.ones((8, 1))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dense(keras).fit(x, x, batch_size=2, verbose=0, callbacks=[noting], **options)
    return seen, sum("ran out of data" in str(warning.message) for warning in caught)


@prints(([0, 1, 2, 3] * 3, 3))
def p05_more_steps_than_there_is_data(keras):
    return steps(keras, epochs=3, steps_per_epoch=5)


@prints(([0, 1, 2, 0, 0, 1, 2, 0], 2))
def p06_steps_that_do_not_divide_the_data(keras):
    return steps(keras, epochs=4, steps_per_epoch=3)


@prints([0, 1, 2])
def p07_stop_evaluating(keras):
    seen = []

    class Stop(keras.callbacks.Callback):
        def on_test_batch_end(self, batch, logs=None):
            seen.append(batch)
            if batch == 2:
                self.model.stop_evaluating = True
            assert batch < 50, "never stopped"

    def endless():
        while True:
            yield np.ones((2, 2)), np.ones((2, 1))

    dense(keras, 2).evaluate(endless(), callbacks=[Stop()], verbose=0)
    return seen


@prints([0.6])
def p08_losses_after_a_call(keras):
    layer = keras.layers.ActivityRegularization(l1=0.3)
    layer(np.ones((2, 2), "float32"))
    return [round(float(loss), 6) for loss in layer.losses]


@prints([1.0, 1.0])
def p09_a_variable_from_the_name_of_an_initializer(keras):
    return keras.Variable("ones", shape=(2,)).numpy().tolist()


@prints([1.0, 1.0])
def p10_overwrite_with_gradient(keras):
    variable = keras.Variable([1.0, 2.0])
    variable.overwrite_with_gradient = True
    optimizer = keras.optimizers.SGD(1.0)
    optimizer.apply_gradients([(keras.ops.ones((2,)), variable)])
    return variable.numpy().tolist()


@prints(["1.0", "nan"])
def p11_nanmax_of_nothing_but_nan(keras):
    x = np.array([[1.0, np.nan], [np.nan, np.nan]], "float32")
    return [str(number) for number in np.array(keras.ops.nanmax(x, axis=1)).tolist()]


@prints([False])
def p12_in_top_k_of_a_nan(keras):
    scores = np.array([[0.1, np.nan, 0.5]], "float32")
    return np.array(keras.ops.in_top_k(np.array([1]), scores, k=2)).tolist()


@prints(["int32", "int32", "int32"])
def p13_products_of_whole_numbers(keras):
    x = np.ones((2, 2), "int32")
    products = (
        keras.ops.matmul(x, x),
        keras.ops.einsum("ij,jk->ik", x, x),
        keras.ops.nan_to_num(x),
    )
    return [np.array(product).dtype.name for product in products]


@prints((1, 1))
def p14_argmax_keepdims(keras):
    return np.array(keras.ops.argmax(np.ones((2, 3), "float32"), keepdims=True)).shape


@prints(ValueError)
def p15_softmax_with_a_mask_of_another_shape(keras):
    mask = np.ones((2, 4, 3), bool)
    return keras.layers.Softmax()(np.ones((2, 1, 3), "float32"), mask=mask)


@prints(NotImplementedError)
def p16_iterating_a_keras_tensor(keras):
    return len(list(itertools.islice(iter(keras.Input((2,))), 10)))


@prints(False)
def p17_trainable_of_variables(keras):
    layer = keras.layers.Dense(1)
    layer.build((None, 2))
    layer.trainable = False
    return layer.kernel.trainable


@prints((None, None, 3))
def p18_shape_of_a_slice_of_an_unknown_axis(keras):
    return tuple(keras.Input((None, 3))[:, :100].shape)


@prints(2)
def p49_split_of_an_empty_axis(keras):
    return len(keras.ops.split(np.ones((0,)), 2))


@prints(1)
def p57_seeds_in_lists(keras):
    class Noisy(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.g = [keras.random.SeedGenerator(1)]

    return len(Noisy().variables)


@prints(ValueError)
def p58_randint_of_floats(keras):
    return keras.random.randint((1,), 0, 5, dtype="float32")


@prints(ValueError)
def p58_reflecting_pad_with_a_constant(keras):
    return keras.ops.pad(np.arange(3.0), ((1, 1),), mode="reflect", constant_values=0)


@prints(ValueError)
def p58_rot90_in_one_axis(keras):
    return keras.ops.rot90(np.ones((2, 2)), axes=(0, 0))


@prints(ValueError)
def p58_trainable_that_is_no_bool(keras):
    return keras.layers.Dense(1, trainable="maybe")


@PROGRAMS.each
def test_ganglion_prints_what_keras_prints(program, expected):
    check(ganglion, program, expected)


@pytest.mark.rivals
@PROGRAMS.each
def test_keras_prints_it(keras, program, expected):
    check(keras, program, expected)
