"""Models to export, small ones of every kind, and how their files are run."""

import ctypes
import json
import subprocess
from functools import cache

import numpy as np
from folders import SUPPORT

import ganglion as keras
from ganglion import layers, recipes


def _recipe(name):
    return lambda: recipes.build(recipes.get(name))


def _efficient():
    """A network of inverted residuals, as EfficientNet-Lite has them."""
    x = entry = keras.Input((24, 24, 3))
    x = layers.Conv2D(8, 3, strides=2, padding="same", use_bias=False)(x)
    x = layers.ReLU(6.0)(layers.BatchNormalization()(x))
    for filters, strides in ((8, 1), (12, 2)):
        before = x
        x = layers.Conv2D(4 * x.shape[-1], 1, use_bias=False)(x)
        x = layers.ReLU(6.0)(layers.BatchNormalization()(x))
        x = layers.DepthwiseConv2D(3, strides, padding="same", use_bias=False)(x)
        x = layers.ReLU(6.0)(layers.BatchNormalization()(x))
        x = layers.Conv2D(filters, 1, use_bias=False)(x)
        x = layers.BatchNormalization()(x)
        if strides == 1:
            x = layers.Add()([x, before])
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(entry, layers.Dense(5, activation="softmax")(x))


def _lstm():
    return keras.Sequential(
        [
            keras.Input((7, 5)),
            layers.Bidirectional(layers.LSTM(6, return_sequences=True)),
            layers.GRU(4),
            layers.Dense(3, activation="tanh"),
        ]
    )


def _transformer():
    ids = keras.Input((9,), dtype="int32")
    x = layers.Embedding(20, 16)(ids)
    attended = layers.MultiHeadAttention(2, 8)(x, x, use_causal_mask=True)
    x = layers.LayerNormalization()(layers.Add()([x, attended]))
    hidden = layers.Dense(16)(layers.Dense(32, activation="gelu")(x))
    x = layers.LayerNormalization()(layers.Add()([x, hidden]))
    return keras.Model(ids, layers.Dense(20, activation="softmax")(x))


def _text():
    words = layers.TextVectorization(12, output_sequence_length=6)
    words.adapt(["the cat sat", "on the mat", "a dog ran"])
    text = keras.Input((), dtype="string")
    x = layers.Embedding(12, 4, mask_zero=True)(words(text))
    x = layers.GlobalAveragePooling1D()(x)
    return keras.Model(text, layers.Dense(2, activation="sigmoid")(x))


def _odds_and_ends():
    """Two inputs and two outputs, and what the others have not."""
    a, b = keras.Input((6, 6, 2), name="picture"), keras.Input((4,), name="numbers")
    normal = layers.Normalization(mean=[1.0, 2.0, 3.0, 4.0], variance=[1, 4, 9, 16])
    x = layers.Conv2DTranspose(3, 3, strides=2, padding="same")(a)
    x = layers.AveragePooling2D(3, 2, padding="same")(layers.PReLU()(x))
    x = layers.Flatten()(layers.UpSampling2D(2)(x))
    y = layers.Softmax()(layers.Dense(8, activation="selu")(normal(b)))
    both = layers.Concatenate()([x, y])
    first = layers.Dense(1, name="first")(both)
    codes = layers.CategoryEncoding(5, "one_hot")(keras.ops.argmax(y[:, :5], axis=-1))
    return keras.Model([a, b], [first, layers.Dense(3, name="second")(codes)])


def _categories():
    """Every layer that looks up or hashes, and in other ways than `_text`."""
    text = keras.Input((1,), dtype="string", name="text")
    words = keras.Input((3,), dtype="string", name="words")
    year, price = keras.Input((2,), dtype="int32", name="year"), keras.Input((2,))
    place = keras.Input((1,), dtype="int64", name="place")
    grams = layers.TextVectorization(ngrams=2, output_mode="tf_idf", name="grams")
    grams.adapt(["the cat sat", "on the mat", "a dog ran on the mat"])
    letters = layers.TextVectorization(
        split="character", standardize="lower", output_sequence_length=9
    )
    letters.adapt(["the cat sat ä"])
    animals = layers.StringLookup(
        vocabulary=["cat", "dog", "a mat"], num_oov_indices=3, output_mode="multi_hot"
    )
    years = layers.IntegerLookup(
        vocabulary=[7, 3, -1], num_oov_indices=4, mask_token=0, output_mode="count"
    )
    cells = layers.Discretization([0.2, 0.7], output_mode="one_hot")(price)
    crossed = layers.HashedCrossing(11, output_mode="one_hot")
    salted = layers.Hashing(6, salt=[133, 137], mask_value="dog", output_mode="count")
    parts = [
        grams(text),
        layers.Flatten()(layers.Embedding(20, 2)(letters(text))),
        animals(words),
        layers.CategoryEncoding(6, "multi_hot")(layers.Hashing(6)(words)),
        salted(words),
        years(year),
        layers.Hashing(5, mask_value=3, output_mode="multi_hot")(year),
        crossed([text, place]),
        layers.Flatten()(cells),
    ]
    hidden = layers.Dense(8, activation="tanh")(layers.Concatenate()(parts))
    return keras.Model([text, words, year, price, place], layers.Dense(3)(hidden))


MAKERS = {
    "mlp": _recipe("mnist-mlp"),
    "cnn": _recipe("mnist-cnn"),
    "cam": _recipe("cifar10-cam"),
    "efficient": _efficient,
    "lstm": _lstm,
    "transformer": _transformer,
    "text": _text,
    "categories": _categories,
    "odds": _odds_and_ends,
}


@cache
def made(name):
    """Return a model whose weights are nowhere at their start."""
    keras.utils.set_random_seed(1)
    model = MAKERS[name]()
    rng = np.random.default_rng(2)
    for weight in model.weights:
        if weight.path.endswith(("bias", "gamma", "beta", "mean", "variance")):
            if "normalization" in weight.path:
                weight.assign(rng.uniform(0.2, 1.2, weight.shape))
            elif "bias" in weight.path:
                weight.assign(rng.uniform(-0.5, 0.5, weight.shape))
    return model


def rows_for(model, rows):
    """Return arrays for what an exported file takes, and what the model predicts."""
    rng = np.random.default_rng(3)
    network = model._network
    arrays = []
    for tensor in network.flat_inputs:
        shape = (rows, *tensor.shape[1:])
        if tensor.dtype == "string":
            arrays.append(rng.choice(np.array(TEXTS, object), shape))
        elif np.dtype(tensor.dtype).kind == "i":
            arrays.append(rng.integers(0, 20, shape, tensor.dtype))
        else:
            arrays.append(rng.random(shape, np.float32))
    expected = model.predict(arrays if len(arrays) > 1 else arrays[0], verbose=0)
    return arrays, expected if isinstance(expected, list) else [expected]


TEXTS = ["The dog, sat!", "a mat", "on\ton the mat", "cat ran - the zoo's Äö",
         "dog", "cat", "the\nCAT  (sat) on a dog's mat; why?"]  # fmt: skip
_GUARD = b"guard" * 20


class Shared:
    """A shared library with the C interface of an exported model."""

    def __init__(self, path, name, model, weights=None):
        self._library = ctypes.CDLL(str(path))
        self._name, self._model = name, model
        text = path.with_name(f"{name}.h").read_text()
        line = next(line for line in text.splitlines() if "_WORKSPACE " in line)
        # The page after its end must not be accessed.
        size = int(line.split()[2])
        self._workspace = ctypes.create_string_buffer(size + len(_GUARD))
        self._workspace[size:] = _GUARD
        self._weights = weights and _aligned(weights)

    def predict(self, arrays, outputs, batch=False):
        """Call `predict` row by row, or `predict_batch`; return what it gives."""
        rows = len(arrays[0])
        results = [np.full(o.shape, np.nan, o.dtype) for o in outputs]
        arrays = [_as_passed(a) for a in arrays]
        suffix = "_batch" if batch else ""
        function = getattr(self._library, f"{self._name}_predict{suffix}")
        function.restype = None
        for row in range(1 if batch else rows):
            pointers = [_address(a, row, rows) for a in arrays + results]
            pointers += [ctypes.c_size_t(rows)] if batch else []
            if self._weights is not None:
                pointers.append(ctypes.c_void_p(self._weights.ctypes.data))
            function(*pointers, self._workspace)
        assert self._workspace.raw.endswith(_GUARD)
        return results


def _as_passed(array):
    """Return an array as C takes it; texts as pointers to them."""
    if array.dtype != object:
        return np.ascontiguousarray(array)
    texts = [text.encode() for text in array.reshape(-1)]
    return (ctypes.c_char_p * len(texts))(*texts)


def _address(array, row, rows):
    if isinstance(array, np.ndarray):
        return ctypes.c_void_p(array[row:].ctypes.data)
    width = len(array) // rows
    return ctypes.byref(array, row * width * ctypes.sizeof(ctypes.c_char_p))


def _aligned(data):
    raw = np.zeros(len(data) + 64, np.uint8)
    start = -raw.ctypes.data % 64
    raw[start : start + len(data)] = np.frombuffer(data, np.uint8)
    return raw[start : start + len(data)]


def check(model, shared, tolerance=1e-5, rows=3):
    """Compare a file with the model, row by row and as a batch."""
    arrays, expected = rows_for(model, rows)
    for batch in (False, True):
        results = shared.predict(arrays, expected, batch)
        for result, wanted in zip(results, expected, strict=True):
            np.testing.assert_allclose(result, wanted, atol=tolerance, rtol=0)


def link(path, linker="ld"):
    """Link an object file alone: it needs nothing else."""
    library = path.with_suffix(".so")
    command = [linker, "-shared", "--no-undefined", "-o", str(library), str(path)]
    subprocess.run(command, check=True)
    return library


def compile_c(path, *options):
    """Compile a C file into a shared library beside it; any warning is an error."""
    library = path.with_suffix(".so")
    flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-shared", "-fPIC"]
    command = ["gcc", *flags, *options, str(path), "-o", str(library), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:2000]
    return library


def in_node(path, rows):
    """Return each output of rows, each a list of what its inputs are."""
    done = subprocess.run(
        ["node", str(SUPPORT / "run_wasm.mjs"), str(path)],
        input=json.dumps(rows), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return list(zip(*json.loads(done.stdout)["outputs"], strict=True))
