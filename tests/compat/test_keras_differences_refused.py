"""Programs that Keras runs and Ganglion once refused, or that ended otherwise.

`test_keras_differences` has those that were wrong without a word.
"""

import json
from collections import namedtuple
from typing import Any

import numpy as np
import pytest
from keras_programs import Programs, check

import ganglion

PROGRAMS = Programs()
prints = PROGRAMS.prints


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, "float32")


def dense_model(keras: Any, inputs: int = 2, **options: Any) -> Any:
    model = keras.Sequential([keras.Input((inputs,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", **options)
    return model


# ---- shapes and building -------------------------------------------------------------


@prints((None, None, 3))
def p19_unknown_axis_against_a_known_one(keras):
    tensors = [keras.Input((None, 3)), keras.Input((5, 3))]
    return tuple(keras.layers.Add()(tensors).shape)


@prints((1, 2))
def p20_sequential_without_input_takes_other_sizes(keras):
    layers = [keras.layers.Conv2D(2, 3), keras.layers.GlobalMaxPooling2D()]
    model = keras.Sequential(layers)
    model.predict(ones(1, 8, 8, 3), verbose=0)
    return model.predict(ones(1, 10, 10, 3), verbose=0).shape


@prints([[2.0, 2.0]])
def p21_build_with_several_shapes(keras):
    class Sum(keras.layers.Layer):
        def build(self, a_shape, b_shape):
            self.built = True

        def call(self, a, b):
            return a + b

    return np.array(Sum()(ones(1, 2), ones(1, 2))).tolist()


@prints((None, 3))
def p25_own_compute_output_shape(keras):
    class Untraceable(keras.layers.Layer):
        def call(self, x):
            raise RuntimeError("called")

        def compute_output_shape(self, input_shape):
            return input_shape

    return tuple(Untraceable()(keras.Input((3,))).shape)


@prints({"a": (None, 2), "b": (None, 3)})
def p25_own_compute_output_shape_of_several(keras):
    class Pair(keras.layers.Layer):
        def call(self, a, b):
            raise RuntimeError("called")

        def compute_output_shape(self, a_shape, b_shape):
            return {"a": a_shape, "b": b_shape}

    outputs = Pair()(keras.Input((2,)), keras.Input((3,)))
    return {name: tuple(tensor.shape) for name, tensor in outputs.items()}


@prints(((None, 7), ["spec"]))
def p25_own_compute_output_spec(keras):
    asked = []

    class Described(keras.layers.Dense):
        def compute_output_spec(self, x):
            asked.append("spec")
            return super().compute_output_spec(x)

    return tuple(Described(7)(keras.Input((3,))).shape), asked


@prints(2)
def p25_layers_below_are_built_all_the_same(keras):
    class Around(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(3)

        def call(self, x):
            return self.dense(x)

        def compute_output_shape(self, input_shape):
            return (*input_shape[:-1], 3)

    layer = Around()
    layer(keras.Input((2,)))
    return len(layer.weights)


@prints(([[2.0, 2.0]], True))
def p26_sequential_on_a_dictionary(keras):
    class Sum(keras.layers.Layer):
        def call(self, x):
            return x["a"] + x["b"]

    model = keras.Sequential([Sum()])
    outputs = model({"a": ones(1, 2), "b": ones(1, 2)})
    return np.array(outputs).tolist(), model.built


@prints(True)
def p32_merging_layers_build_from_a_tuple_of_shapes(keras):
    layer = keras.layers.Add()
    layer.build(((2, 4), (2, 4)))
    return layer.built


@prints((3, 2, 2, 2))
def p33_layer_normalization_of_another_number_of_axes(keras):
    layer = keras.layers.LayerNormalization()
    layer.build((2, 2, 2))
    return tuple(layer(ones(3, 2, 2, 2)).shape)


@prints("i/inner")
def p56_path_of_a_weight_made_in_init(keras):
    class I(keras.layers.Layer):  # noqa: E742
        def __init__(self):
            super().__init__(name="i")
            self.v = self.add_weight(shape=(1,), name="inner")

    return I().v.path


@prints((1, 7))
def p59_shape_of_the_mean_of_a_normalization(keras):
    layer = keras.layers.Normalization(mean=5.0, variance=4.0)
    layer.build((3, 7))
    return tuple(layer.mean.shape)


@prints([True, True, True])
def p61_built_after_construction(keras):
    layers = keras.layers
    made = (layers.ReLU(), layers.Dropout(0.5), layers.MaxPooling2D())
    return [layer.built for layer in made]


# ---- configurations ------------------------------------------------------------------


@prints('"relu"')
def p22_get_config_is_plain_data(keras):
    return json.dumps(
        keras.layers.Dense(2, activation="relu").get_config()["activation"]
    )


@prints(3)
def p23_get_config_of_a_subclass(keras):
    class Own(keras.layers.Layer):
        def __init__(self, units, **options):
            super().__init__(**options)
            self.units = units

        def get_config(self):
            return dict(units=self.units, **super().get_config())

    return Own(3).get_config()["units"]


@prints(0)
def p24_attribute_names_of_ones_own(keras):
    class Own(keras.layers.Layer):
        def __init__(self, sublayers):
            super().__init__()
            self.sublayers = sublayers

    return len(Own([keras.layers.Dense(1)]).weights)


@prints(True)
def p36_clone_of_a_compiled_model(keras):
    return keras.models.clone_model(dense_model(keras)).compiled


@prints("tuple")
def p37_tuple_of_outputs_through_a_config(keras):
    x = keras.Input((2,))
    model = keras.Model(x, (keras.layers.Dense(1)(x), keras.layers.Dense(1)(x)))
    again = keras.Model.from_config(model.get_config())
    return type(again(ones(1, 2))).__name__


@prints(({"seed": 1, "name": "seeds"}, (2,)))
def p40_seed_generator_as_plain_data(keras):
    generator = keras.random.SeedGenerator(1, name="seeds")
    plain = keras.saving.serialize_keras_object(generator)
    again = keras.saving.deserialize_keras_object(plain)
    return again.get_config(), keras.ops.convert_to_numpy(generator.next()).shape


@prints({})
def p52_constraint_without_get_config(keras):
    class Own(keras.constraints.Constraint):
        def __call__(self, w):
            return w

    return Own().get_config()


@prints(True)
def p53_registered_function_without_its_package(keras):
    @keras.saving.register_keras_serializable(package="p53")
    def g53(x):
        return x

    entry = {"module": "builtins", "class_name": "function", "config": "g53"}
    entry["registered_name"] = "function"
    return keras.saving.deserialize_keras_object(entry) is g53


# ---- models --------------------------------------------------------------------------


def two_outputs(keras: Any, kind: Any) -> Any:
    x = keras.Input((2,))
    return keras.Model(x, kind(keras.layers.Dense(1)(x), keras.layers.Dense(1)(x)))


@prints("ok")
def p27_losses_nested_in_lists(keras):
    model = two_outputs(keras, lambda a, b: {"a": a, "b": b})
    model.compile("sgd", {"a": "mse", "b": ["mse"]})
    model.fit(ones(4, 2), {"a": ones(4, 1), "b": ones(4, 1)}, verbose=0)
    return "ok"


@prints("ok")
def p28_labels_for_some_outputs_only(keras):
    model = two_outputs(keras, lambda a, b: [a, b])
    model.compile("sgd", loss=["mse", None])
    model.fit(ones(4, 2), [ones(4, 1), None], verbose=0)
    return "ok"


@prints("Y")
def p29_namedtuple_of_outputs(keras):
    model = two_outputs(keras, namedtuple("Y", ["y1", "y2"]))
    return type(model.predict(ones(1, 2), verbose=0)).__name__


@prints((1, 1))
def p30_more_keys_than_inputs(keras):
    x = keras.Input((2,), name="a")
    model = keras.Model({"a": x}, keras.layers.Dense(1)(x))
    return tuple(model({"a": ones(1, 2), "z": ones(1, 2)}).shape)


@prints((2, 1))
def p31_another_batch_than_the_inputs(keras):
    x = keras.Input((2,), batch_size=3)
    model = keras.Model(x, keras.layers.Dense(1)(x))
    return tuple(model(ones(2, 2)).shape)


@prints([2, 5])
def p38_steps_per_execution_and_batch_hooks(keras):
    seen = []
    noting = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda step, logs: seen.append(step)
    )
    model = dense_model(keras, 1, steps_per_execution=3)
    model.fit(ones(6, 1), ones(6, 1), batch_size=1, verbose=0, callbacks=[noting])
    return seen


@prints(["0"])
def p39_save_own_variables_by_super(keras):
    class Scale(keras.layers.Layer):
        def build(self, input_shape):
            self.w = self.add_weight(shape=(1,))

        def save_own_variables(self, store):
            super().save_own_variables(store)

    layer, store = Scale(), {}
    layer.build((None, 1))
    layer.save_own_variables(store)
    return list(store)


@prints("ok")
def p60_compute_loss_that_splits_an_output(keras):
    class Split(keras.Model):
        def compute_loss(
            self, x=None, y=None, y_pred=None, sample_weight=None, training=True
        ):
            parts = [y_pred[:, :1], y_pred[:, 1:]]
            return super().compute_loss(x, y, parts, sample_weight, training)

    x = keras.Input((3,))
    model = Split(x, keras.layers.Dense(2)(x))
    model.compile("sgd", loss=["mse", "mse"])
    model.fit(ones(4, 3), (ones(4, 1), ones(4, 1)), verbose=0)
    return "ok"


# ---- attributes ----------------------------------------------------------------------


@prints(1.0)
def p34_numpy_functions_on_a_variable(keras):
    return float(np.min(keras.Variable(ones(2))))


@prints([[-2.0]])
def p35_activation_taken_away(keras):
    layer = keras.layers.Dense(1, activation="relu", kernel_initializer="ones")
    layer.activation = None
    return np.array(layer(-ones(1, 2))).tolist()


@prints([])
def p41_attributes_of_layers(keras):
    names = [
        "dtype_policy",
        "metrics",
        "add_variable",
        "compute_mask",
        "path",
        "quantize",
    ]
    names += ["stateless_call"]
    layer = keras.layers.Dense(1)
    return [name for name in names if not hasattr(layer, name)]


@prints([True, True, True])
def p41_attributes_of_other_objects(keras):
    sensitivity = keras.metrics.SensitivityAtSpecificity(0.5)
    return [
        hasattr(dense_model(keras), "jit_compile"),
        hasattr(sensitivity, "specificity"),
        hasattr(keras.callbacks.EarlyStopping(), "monitor_op"),
    ]


@prints("ok")
def p51_nadam_of_nothing(keras):
    keras.optimizers.Nadam().build([])
    return "ok"


@prints(2)
def p54_lambda_callback_with_another_function(keras):
    return keras.callbacks.LambdaCallback(helper=lambda x: x + 1).helper(1)


@prints((None, 2))
def p55_reshape_of_a_keras_tensor(keras):
    return tuple(keras.Input((4,)).reshape((-1, 2)).shape)


# ---- ops -----------------------------------------------------------------------------


@prints((3.0, (1, 3, 2)))
def p42_einsum_with_dots_and_repeated_axes(keras):
    trace = float(keras.ops.einsum("ii", np.eye(3, dtype="float32")))
    return trace, tuple(keras.ops.einsum("...ij->...ji", ones(1, 2, 3)).shape)


@prints([1, 2, 2])
def p43_repeat_by_an_array(keras):
    repeated = keras.ops.repeat(np.array([1, 2]), np.array([1, 2]), axis=0)
    return np.array(repeated).tolist()


@prints([1, 2, 3])
def p44_slice_to_the_end(keras):
    return np.array(keras.ops.slice(np.arange(4), (1,), (-1,))).tolist()


@prints((1, 4, 1, 4))
def p45_take_along_axis_that_broadcasts(keras):
    x = np.arange(12).reshape(1, 1, 3, 4)
    indices = np.ones((1, 4, 1, 1), "int32")
    return tuple(keras.ops.take_along_axis(x, indices, axis=2).shape)


@prints((None, 3))
def p46_map_over_an_unknown_axis(keras):
    x = keras.KerasTensor((None, 3))
    return tuple(keras.ops.map(lambda row: row * 2, x).shape)


@prints((5, 2))
def p47_linspace_of_keras_tensors(keras):
    start, stop = keras.KerasTensor((2,)), keras.KerasTensor((2,))
    return tuple(keras.ops.linspace(start, stop, 5).shape)


@prints(0.0)
def p48_max_with_initial_of_an_empty_array(keras):
    return float(keras.ops.max(np.zeros((1, 0), "float32"), initial=0.0))


@prints([[True, True, False]])
def p50_multi_hot_as_bool(keras):
    hot = keras.ops.multi_hot(np.array([[0, 1]]), num_classes=3, dtype="bool")
    return np.array(hot).tolist()


@pytest.mark.filterwarnings("ignore:The loss does not depend on")
@pytest.mark.filterwarnings("ignore:The structure of `inputs`")
@PROGRAMS.each
def test_ganglion_does_what_keras_does(program, expected):
    check(ganglion, program, expected)


@pytest.mark.rivals
@pytest.mark.filterwarnings("ignore")
@PROGRAMS.each
def test_keras_does_it(keras, program, expected):
    check(keras, program, expected)
