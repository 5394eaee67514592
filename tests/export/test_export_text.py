"""Texts and categories go into the files: they take words, and predict the same."""

import shutil
import subprocess
import sys

import numpy as np
import onnx_runs
import pytest
from exported_models import (
    TEXTS,
    Shared,
    check,
    compile_c,
    in_node,
    link,
    made,
    rows_for,
)

import ganglion as keras
from ganglion import layers
from ganglion.export import export_model
from ganglion.export.targets import MACHINES
from ganglion.export.text.translation import as_c, as_llvm

has_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not here")
has_node = pytest.mark.skipif(shutil.which("node") is None, reason="node is not here")
has_ld = pytest.mark.skipif(
    shutil.which("ld") is None or sys.platform != "linux", reason="ld is not here"
)
NAMES = ["text", "categories"]


@has_gcc
@pytest.mark.parametrize("weights", ["inside", "file"])
@pytest.mark.parametrize("name", NAMES)
def test_c(name, weights, tmp_path):
    model = made(name)
    export_model(model, tmp_path / f"{name}.c", weights=weights)
    file = tmp_path / f"{name}.weights"
    content = file.read_bytes() if weights == "file" else None
    library = compile_c(tmp_path / f"{name}.c", "-O2")
    check(model, Shared(library, name, model, content), rows=9)


@has_ld
@pytest.mark.parametrize("name", NAMES)
def test_machine_code(name, tmp_path):
    model = made(name)
    export_model(model, tmp_path / f"{name}.o")
    # More rows than a block has, and some that are left.
    check(model, Shared(link(tmp_path / f"{name}.o"), name, model), rows=70)


@pytest.mark.parametrize("target", ["cortex-m4", "riscv64", "aarch64-macos"])
def test_other_machines_need_no_library(target, tmp_path):
    assert target in MACHINES
    export_model(made("categories"), tmp_path / "a.o", target=target)
    if shutil.which("nm") and target != "aarch64-macos":
        told = subprocess.run(["nm", "-u", tmp_path / "a.o"], capture_output=True)
        assert not told.stdout.split(), "it depends on something"


@has_ld
def test_python_takes_lists_of_texts(tmp_path):
    model = made("text")
    export_model(model, tmp_path / "a.py")
    space = {"__file__": str(tmp_path / "a.py"), "__name__": "a"}
    exec((tmp_path / "a.py").read_text(), space)
    expected = model.predict(np.array(TEXTS, object), verbose=0)
    for texts in (TEXTS, np.array(TEXTS), [text.encode() for text in TEXTS]):
        np.testing.assert_allclose(
            np.asarray(space["predict"](texts)), expected, atol=1e-5
        )
    with pytest.raises(ValueError, match="input: a list of texts"):
        space["predict"]([1, 2])


@has_node
@pytest.mark.parametrize("name", NAMES)
def test_webassembly(name, tmp_path):
    model = made(name)
    export_model(model, tmp_path / "a.wasm")
    arrays, (expected,) = rows_for(model, 5)
    rows = [
        [array[i : i + 1].reshape(-1).tolist() for array in arrays] for i in range(5)
    ]
    (results,) = in_node(tmp_path / "a.wasm", rows)
    np.testing.assert_allclose(results, expected, atol=1e-4)


@has_node
def test_texts_may_be_of_any_length(tmp_path):
    model = made("text")
    export_model(model, tmp_path / "a.wasm")
    texts = ["the cat " + "dog " * 100_000, "the cat sat", "a " * 5 + "x" * 300_000]
    expected = model.predict(np.array(texts, object), verbose=0)
    rows = [[text] for text in texts]
    (results,) = in_node(tmp_path / "a.wasm", rows)
    np.testing.assert_allclose(results, expected, atol=1e-4)


# ---- ONNX ----------------------------------------------------------------------------


def onnx_agrees(model, path, arrays):
    if not path.exists():
        export_model(model, path)
    expected = model.predict(arrays if len(arrays) > 1 else arrays[0], verbose=0)
    (output,) = onnx_runs.run(path, arrays)
    np.testing.assert_allclose(output, expected, atol=1e-4)


@pytest.mark.parametrize("how", ["lower_and_strip_punctuation", "lower", None])
@pytest.mark.parametrize("mode", ["int", "multi_hot", "count", "tf_idf"])
def test_onnx_takes_texts(how, mode, tmp_path):
    length = {"output_sequence_length": 6} if mode == "int" else {}
    words = layers.TextVectorization(standardize=how, output_mode=mode, **length)
    words.adapt(TEXTS)
    text = keras.Input((1,), dtype="string")
    x = words(text)
    if mode == "int":
        x = layers.Flatten()(layers.Embedding(words.vocabulary_size(), 3)(x))
    model = keras.Model(text, layers.Dense(2, activation="softmax")(x))
    texts = [*TEXTS, "", "  ", "!?", "ÉT the É", "all unknown\x0bwords\x0chere"]
    for batch in (texts, [""], ["!?", ""]):  # also one without any word
        onnx_agrees(model, tmp_path / "m.onnx", [np.array(batch, object)[:, None]])


def test_onnx_spreads_unknown_numbers(tmp_path):
    year = keras.Input((2,), dtype="int32")
    lookup = layers.IntegerLookup(
        vocabulary=[7, -3], num_oov_indices=3, output_mode="count"
    )
    model = keras.Model(year, layers.Dense(2)(lookup(year)))
    years = np.array([[7, -3], [-4, 5], [12, 0], [-2, -1]], "int32")
    onnx_agrees(model, tmp_path / "m.onnx", [years])


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (layers.Hashing(5), r'"hash.* \(Hashing\) hashes words or numbers, and ONNX'),
        (
            layers.StringLookup(vocabulary=["a"], num_oov_indices=2),
            r"\(StringLookup\) spreads unknown words by a hash",
        ),
        (
            layers.TextVectorization(
                split="character", vocabulary=["a"], output_sequence_length=3
            ),
            "splits texts into characters",
        ),
        (
            layers.TextVectorization(
                ngrams=2, vocabulary=["a"], output_sequence_length=3
            ),
            "joins words",
        ),
    ],
)
def test_what_onnx_has_no_operator_for_is_refused(layer, reason, tmp_path):
    text = keras.Input((1,), dtype="string")
    model = keras.Model(text, layers.Embedding(9, 2)(layer(text)))
    with pytest.raises(ValueError, match=reason):
        export_model(model, tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


# ---- other models --------------------------------------------------------------------


def vectorized(**options):
    given = {"vocabulary": ["cat", "dog"], "output_sequence_length": 4} | options
    text = keras.Input((), dtype="string")
    return keras.Model(
        text, layers.Embedding(9, 2)(layers.TextVectorization(**given)(text))
    )


def cut(texts):
    return np.char.lower(texts)


@pytest.mark.parametrize("suffix", ["c", "o", "wasm", "onnx"])
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"standardize": cut}, "has a Python function for `standardize`"),
        ({"split": cut}, "has a Python function for `split`"),
        ({"split": None}, r"split already \(`split=None`\)"),
        ({"output_sequence_length": None}, "give it `output_sequence_length`"),
    ],
)
def test_what_no_file_can_hold_is_refused(options, reason, suffix, tmp_path):
    with pytest.raises(ValueError, match=f'Layer "text_vectorization.*{reason}'):
        export_model(vectorized(**options), tmp_path / f"m.{suffix}")
    assert not list(tmp_path.iterdir())


def test_other_layers_before_a_lookup_are_refused(tmp_path):
    number = keras.Input((1,))
    cells = layers.Discretization([0.0], name="cells")(number)
    model = keras.Model(number, layers.Embedding(9, 2)(layers.Hashing(9)(cells)))
    with pytest.raises(ValueError, match=r'"cells" \(Discretization\) lies before'):
        export_model(model, tmp_path / "m.c")


@has_gcc
def test_a_model_inside_of_a_model(tmp_path):
    inner = made("text")
    text, number = keras.Input((), dtype="string", name="said"), keras.Input((2,))
    both = layers.Concatenate()([inner(text), number])
    model = keras.Model([text, number], layers.Dense(3)(both))
    export_model(model, tmp_path / "m.c")
    library = compile_c(tmp_path / "m.c")
    check(model, Shared(library, "m", model), rows=4)


@has_gcc
def test_int8_is_calibrated_on_texts(tmp_path):
    model = made("text")
    told = export_model(model, tmp_path / "m.c", int8=True, sample=TEXTS)
    assert f"of {len(TEXTS)} rows keep their class" in str(told)
    library = compile_c(tmp_path / "m.c")
    check(model, Shared(library, "m", model), tolerance=0.02)
    with pytest.raises(ValueError, match="encodes words or categories"):
        export_model(
            vectorized(output_mode="count", output_sequence_length=None),
            tmp_path / "n.c", int8=True, sample=TEXTS,
        )  # fmt: skip


def test_a_long_vocabulary_has_every_word(tmp_path):
    words = [f"w{number}" for number in range(5000)]
    text = keras.Input((1,), dtype="string")
    lookup = layers.StringLookup(vocabulary=words)
    model = keras.Model(text, keras.ops.cast(lookup(text), "float32"))
    export_model(model, tmp_path / "m.o")
    if shutil.which("ld") and sys.platform == "linux":
        shared = Shared(link(tmp_path / "m.o"), "m", model)
        given = np.array([*words, "w", "w5000", ""], object)[:, None]
        outputs = [np.zeros((len(given), 1), np.float32)]
        (result,) = shared.predict([given], outputs, batch=True)
        assert result[:, 0].tolist() == [*range(1, 5001), 0, 0, 0]


def test_only_what_is_called_is_written():
    text = "\n".join(as_c(["as_whole"], "m", "float"))
    assert "m_as_whole(const float *source" in text
    assert "vectorize" not in text
    (function,) = as_llvm(["as_whole"], "float")
    assert "llvm.fptosi.sat.i64.f32" in function
