"""Small public names beside Keras: types, batches, settings, scopes, switches."""

import itertools
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
from keras_programs import Programs, check

import ganglion
from ganglion.dtypes import ALLOWED_TYPES

PROGRAMS = Programs()
prints = PROGRAMS.prints


@prints([(1, None, None), (1, 2, None), (1, 2, 3), ([1], None, None)])
def unpacking(keras):
    unpack = keras.utils.unpack_x_y_sample_weight
    return [unpack(1), unpack((1, 2)), unpack([1, 2, 3]), unpack(([1],))]


@prints(ValueError)
def unpacking_too_much(keras):
    return keras.utils.unpack_x_y_sample_weight((1, 2, 3, 4))


@prints([1, ([1],), (1, 2), (1, 2, 3)])
def packing(keras):
    pack = keras.utils.pack_x_y_sample_weight
    return [pack(1), pack([1]), pack(1, 2), pack(1, 2, 3)]


@prints(["a", "b"])
def source_inputs(keras):
    a, b = keras.Input((2,), name="a"), keras.Input((2,), name="b")
    keras.Input((2,), name="c")
    inputs = keras.utils.get_source_inputs(keras.layers.Add()([a, b, a]) * 2)
    return [tensor.name for tensor in inputs]


@prints((["a", "b", "c"], 3, {"b": 1, "a": 2, "c": 3}, '{"b": 1, "a": 2, "c": 3}', 7))
def config_values(keras):
    config = keras.utils.Config(b=1, a=2)
    config.c = 3
    text = config.to_json()
    return list(config), len(config), config.as_dict(), text, config.get("d", 7)


@prints(ValueError)
def config_frozen(keras):
    config = keras.utils.Config(a=1)
    config.freeze()
    assert config.frozen
    config["b"] = 2


@prints(AttributeError)
def config_unknown(keras):
    return keras.utils.Config(alpha=1).alphas


@prints("outer/inner/w")
def name_scopes(keras):
    with keras.name_scope("outer"), keras.name_scope("inner"):
        return keras.Variable([1.0], name="w").path


@prints(ValueError)
def name_scope_with_a_slash(keras):
    return keras.name_scope("a/b")


@prints(ValueError)
def remat_scope_of_no_mode(keras):
    return keras.RematScope("some")


@prints([[4.0]])
def remat(keras):
    with keras.RematScope("full"), keras.SymbolicScope():
        return np.array(keras.remat(lambda x: x * 2)(np.array([[2.0]]))).tolist()


@prints([[3.0]])
def device(keras):
    with keras.device("cpu:0"):
        return np.array(keras.ops.add(np.array([[1.0]]), 2.0)).tolist()


@prints(([[6.0, 6.0]], (None, 2), "Tripled"))
def own_operation(keras):
    class Tripled(keras.Operation):
        def call(self, x):
            return x * 3

    x, tripled = keras.Input((2,)), Tripled(name="Tripled")
    model = keras.Model(x, tripled(x))
    outputs = model.predict(np.full((1, 2), 2.0), verbose=0).tolist()
    return outputs, tuple(tripled.output.shape), tripled.get_config()["name"]


@prints(([1.0], [10.0]))
def own_quantized_operation(keras):
    class Coarse(keras.Operation):
        def call(self, x):
            return x

        def quantized_call(self, x):
            return x * 10

    coarse, x = Coarse(), np.ones(1)
    before = np.array(coarse(x)).tolist()
    coarse.quantization_mode = "int8"
    return before, np.array(coarse(x)).tolist()


@prints(NotImplementedError)
def an_operation_without_a_configuration(keras):
    class Scaled(keras.Operation):
        def __init__(self, scale, name=None):
            super().__init__(name=name)
            self.scale = scale

    return Scaled(object()).get_config()


@prints(([[4.0, 4.0]], (7, 2), 1, 2))
def function(keras):
    x = keras.Input((2,))
    double = keras.Function(x, [(x + 1) * 2])
    outputs = np.array(double(np.ones((1, 2)))[0]).tolist()
    shape = double.compute_output_shape((7, 2))[0]
    return outputs, tuple(shape), len(double.inputs), len(double.operations) - 1


@prints(ValueError)
def function_of_nothing(keras):
    return keras.Function([], keras.Input((2,)))


@prints([None, False, None, False])
def flash_attention(keras):
    states = [keras.config.is_flash_attention_enabled()]
    keras.config.disable_flash_attention()
    states.append(keras.config.is_flash_attention_enabled())
    keras.config.enable_flash_attention()
    states.append(keras.config.is_flash_attention_enabled())
    return [*states, keras.config.is_nnx_enabled()]


@prints(([0, 1], 2))
def limits(keras):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    seen = []
    noting = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda step, logs: seen.append(step)
    )
    keras.config.set_max_epochs(1)
    keras.config.set_max_steps_per_epoch(2)
    try:
        x = np.ones((8, 1))
        model.fit(x, x, batch_size=2, epochs=3, verbose=0, callbacks=[noting])
        return seen, len(model.predict(x, batch_size=1, verbose=0))
    finally:
        keras.config.set_max_epochs(None)
        keras.config.set_max_steps_per_epoch(None)


@prints(["IdentityInitializer", "OrthogonalInitializer", "STFT", "STFTInitializer"])
def other_names_of_initializers(keras):
    names = ("IdentityInitializer", "OrthogonalInitializer", "STFT", "STFTInitializer")
    return [name for name in names if hasattr(keras.initializers, name)]


@prints(ValueError)
def stft_of_no_side(keras):
    return keras.initializers.STFT("left")


@prints(ValueError)
def stft_of_no_window(keras):
    return keras.initializers.STFT(window="round")


@pytest.mark.filterwarnings("ignore:Limiting")
@PROGRAMS.each
def test_ganglion_does_what_keras_does(program, expected):
    check(ganglion, program, expected)


@pytest.mark.rivals
@pytest.mark.filterwarnings("ignore")
@PROGRAMS.each
def test_keras_does_it(keras, program, expected):
    check(keras, program, expected)


def outcome(function: Any, *args: Any) -> Any:
    try:
        return function(*args)
    except ValueError:
        return ValueError


TYPES = [*ALLOWED_TYPES, int, float, bool, None, str]


@pytest.mark.rivals
def test_types_of_results(keras):
    pairs = itertools.combinations_with_replacement(TYPES, 2)
    triples = itertools.islice(itertools.combinations(TYPES, 3), 0, None, 7)
    for dtypes in [(), *((each,) for each in TYPES), *pairs, *triples]:
        ours = outcome(ganglion.backend.result_type, *dtypes)
        assert ours == outcome(keras.backend.result_type, *dtypes), dtypes


@pytest.mark.rivals
def test_names_of_types(keras):
    dtypes = (int, "int", np.float32, np.dtype("int8"), "foo", complex, None, "bool")
    for name in ("standardize_dtype", "is_float_dtype", "is_int_dtype"):
        for dtype in dtypes:
            ours = outcome(getattr(ganglion.backend, name), dtype)
            theirs = outcome(getattr(keras.backend, name), dtype)
            assert ours == theirs, (name, dtype)


@pytest.mark.rivals
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"side": "imag", "window": None},
        {"window": "hamming", "scaling": "spectrum", "periodic": True},
        {"window": [0.5] * 16, "scaling": None},
    ],
)
def test_stft(keras, options):
    ours = ganglion.initializers.STFT(**options)
    theirs = keras.initializers.STFT(**options)
    expected = np.array(theirs((16, 1, 9)))
    np.testing.assert_allclose(ours((16, 1, 9)), expected, atol=3e-6)
    assert ours.get_config() == theirs.get_config()


def test_devices_that_are_not_there():
    for name in ("cpu:1", "tpu:0", 3):
        with pytest.raises(ValueError, match="device"), ganglion.device(name):
            pass


def test_nothing_unsafe_can_be_enabled():
    with pytest.raises(ValueError, match="never executes"):
        ganglion.config.enable_unsafe_deserialization()


def test_a_filtered_stack_trace_has_no_line_of_ours():
    program = (
        "import ganglion as g\n"
        "g.config.enable_traceback_filtering()\n"
        "g.Sequential([3])\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True
    )
    assert "can be added to a Sequential" in run.stderr
    assert "sequential.py" not in run.stderr


@pytest.mark.rivals
def test_plain_data_of_keras_2(keras):
    results = []
    for library in (ganglion, keras):
        legacy = library.legacy.saving
        entry = legacy.serialize_keras_object(library.regularizers.L1L2(0.25, 0.5))
        again = legacy.deserialize_keras_object(
            entry, module_objects={"L1L2": library.regularizers.L1L2}
        )
        relu = legacy.deserialize_keras_object(
            "relu", custom_objects={"relu": library.activations.relu}
        )
        name = library.utils.legacy.serialize_keras_object(relu)
        nothing = legacy.serialize_keras_object(None)
        refused = outcome(legacy.deserialize_keras_object, {"name": "L2"}, {})
        results.append((entry, again.get_config(), name, nothing, refused))
    assert results[0] == results[1]


def test_a_name_scope_belongs_to_its_thread():
    entered, done = threading.Event(), threading.Event()

    def other():
        with ganglion.name_scope("other"):
            entered.set()
            done.wait(10)

    thread, caller = threading.Thread(target=other), object()
    with ganglion.name_scope("layer", caller=caller):
        thread.start()
        entered.wait(10)
        with ganglion.name_scope("layer", caller=caller):  # again: no second part
            path = ganglion.Variable([1.0], name="w").path
        done.set()
        thread.join()
    assert path == "layer/w"
