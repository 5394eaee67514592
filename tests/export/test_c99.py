"""C99: compiled by gcc without a warning, it predicts what the model does."""

import shutil
import subprocess

import numpy as np
import pytest
from exported_models import Shared, check, compile_c, made

import ganglion as keras
from ganglion import layers
from ganglion.export import export_model

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not here")
more = pytest.mark.more
SMALL = ["efficient", "lstm", "odds", pytest.param("transformer", marks=more)]


def exported(name, folder, **options):
    model = made(name)
    path = folder / f"{name}.c"
    told = export_model(model, path, **options)
    weights = path.with_suffix(".weights")
    data = weights.read_bytes() if weights.exists() else None
    return model, Shared(compile_c(path), name, model, data), told


@pytest.mark.parametrize("name", SMALL)
def test_small_models_predict_the_same(name, tmp_path):
    model, shared, _ = exported(name, tmp_path)
    check(model, shared)


@pytest.mark.parametrize(
    "name", ["text", *(pytest.param(n, marks=more) for n in ("cam", "mlp", "cnn"))]
)
def test_weights_in_a_file(name, tmp_path):
    model, shared, _ = exported(name, tmp_path, weights="file")
    check(model, shared)


@pytest.mark.more
def test_efficientnet_lite0(tmp_path):
    model = keras.applications.EfficientNetLite0(weights=None)
    export_model(model, tmp_path / "lite.c", weights="file")
    library = compile_c(tmp_path / "lite.c", "-O2")
    data = (tmp_path / "lite.weights").read_bytes()
    check(model, Shared(library, "lite", model, data), rows=1)


def model_of(*stack, shape=(4,)):
    return keras.Sequential([keras.Input(shape), *stack])


class Noisy(layers.Layer):
    def call(self, x):
        return x + keras.random.normal((4,), seed=1)


class Sorted(layers.Layer):
    def call(self, x):
        return keras.ops.sort(x, axis=-1)


class Centred(layers.Layer):
    def call(self, x):
        return x - keras.ops.mean(x, axis=0)


class Compared(layers.Layer):
    def call(self, x):
        return keras.ops.matmul(x, keras.ops.transpose(x))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda: model_of(Sorted(name="by_size")), "by_size.* calls .*sort"),
        (lambda: model_of(Noisy(name="noisy")), "noisy.* draws random numbers"),
        (
            lambda: keras.Sequential(
                [keras.Input(batch_shape=(1, 3, 2)), layers.LSTM(2, stateful=True)]
            ),
            "changes .*lstm.* when it predicts",
        ),
        (lambda: model_of(Centred(name="less")), "less.* across the rows of a batch"),
        (lambda: model_of(Compared()), "a size that depends on the number of rows"),
        (
            lambda: model_of(layers.LSTM(2), shape=(None, 8)),
            r"shape \(None, None, 8\): .*--shape 100x8",
        ),
    ],
)
def test_what_cannot_be_exported_is_named_and_leaves_nothing(model, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        export_model(model(), tmp_path / "a.c")
    assert not list(tmp_path.iterdir())


def test_mixed_precision_is_computed_in_float32(tmp_path):
    keras.utils.set_random_seed(3)
    stack = [layers.LSTM(4, dtype="mixed_float16"), layers.Dense(2, dtype="bfloat16")]
    model = model_of(*stack, shape=(5, 3))
    export_model(model, tmp_path / "mixed.c")
    assert "float *output" in (tmp_path / "mixed.h").read_text()
    shared = Shared(compile_c(tmp_path / "mixed.c"), "mixed", model)
    x = np.random.default_rng(1).random((3, 5, 3), np.float32)
    expected = model.predict(x, verbose=0).astype("float32")
    (result,) = shared.predict([x], [expected])
    np.testing.assert_allclose(result, expected, atol=0.02)


def test_bad_options_say_what_to_choose(tmp_path):
    model = model_of(layers.Dense(1))
    with pytest.raises(ValueError, match="choose 'inside' or 'file'"):
        export_model(model, tmp_path / "a.c", weights="elsewhere")
    with pytest.raises(ValueError, match="is not a C name"):
        export_model(model, tmp_path / "a.c", name="2 words")
    spec = keras.InputSpec(shape=(None, 4))
    with pytest.raises(ValueError, match="describes 2 inputs"):
        export_model(model, tmp_path / "a.c", input_signature=[spec, spec])
    for bad in (keras.InputSpec(ndim=2), 4):
        with pytest.raises(ValueError, match='no shape for the input "input", but'):
            export_model(model, tmp_path / "a.c", input_signature=[bad])


def test_open_sizes_and_subclasses_take_a_signature(tmp_path):
    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = layers.Dense(2)

        def call(self, x):
            return self.dense(x)

    model = Own()
    x = np.ones((2, 3), np.float32)
    model(x)
    model._build_shape = None  # as if it had made its weights itself
    with pytest.raises(ValueError, match="it is a subclass"):
        export_model(model, tmp_path / "own.c")
    spec = keras.InputSpec(shape=(None, 3))
    export_model(model, tmp_path / "own.c", input_signature=[spec], name="mine")
    assert "#define MINE_INPUT_SIZE 3" in (tmp_path / "own.h").read_text()


@pytest.mark.parametrize("weights", ["inside", "file"])
def test_what_is_not_read_is_no_warning(weights, tmp_path):
    tensors = [keras.Input((2,), name=name) for name in ("used", "unused")]
    model = keras.Model(tensors, layers.ReLU()(tensors[0]))
    model.export(tmp_path / "m.c", weights=weights, verbose=False)
    compile_c(tmp_path / "m.c")


@pytest.mark.parametrize("name", ["w0", "NULL", "unix", "operator", "typeof"])
def test_any_name_can_be_that_of_an_input(name, tmp_path):
    tensors = [keras.Input((2,), name=name), keras.Input((2,), name="other")]
    model = keras.Model(tensors, layers.Dense(3)(layers.Add()(tensors)))
    model.export(tmp_path / "net.c", verbose=False)
    check(model, Shared(compile_c(tmp_path / "net.c"), "net", model))
    subprocess.run(["gcc", "-c", tmp_path / "net.c", "-o", "/dev/null"], check=True)
    (tmp_path / "a.cpp").write_text('#include "net.h"')
    if shutil.which("g++"):
        command = ["g++", "-c", tmp_path / "a.cpp", "-o", "/dev/null"]
        subprocess.run(command, check=True)


def test_ends_of_one_name_are_two_parameters(tmp_path):
    tensors = [keras.Input((2,), name=name) for name in ("a.b", "output")]
    model = keras.Model(tensors, keras.layers.Add(name="a_b")(tensors))
    header = tmp_path / "net.h"
    model.export(tmp_path / "net.c", verbose=False)
    assert "float *a_b, const float *output, float *output_1," in header.read_text()
