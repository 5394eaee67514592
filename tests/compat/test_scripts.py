"""Training scripts as people write them, run with `import ganglion as keras`.

Those called `keras2_*` are written for Keras 2, in the spelling of its examples and of
popular repositories; `OLD_SPELLINGS` lists the words in them that Keras 3 dropped.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from ganglion import keras2, oldpaths

FOLDER = Path(__file__).parent / "scripts"
# How the lines that import Keras become lines that import Ganglion.
IMPORTS = (
    (r"^from keras(?=[. ])", "from ganglion"),
    (r"^import keras\.([\w.]+) as", r"import ganglion.\1 as"),
    (r"^import keras$", "import ganglion as keras"),
)
_INPUTS = "`input_shape=` on a layer"
_DIM = "`input_dim=` on a layer"
_ALPHA = "`LeakyReLU(alpha=)`"
_WEIGHTS = "`save_weights` to a name without `.weights.h5`"
_SAVE = "`save` to a .h5 file"
_CONV = "`keras.layers.convolutional`"
_ACTIVATIONS = "`keras.layers.advanced_activations`"

OLD_SPELLINGS: dict[str, list[str]] = {
    "keras1_mnist_cnn": [
        *("`keras.utils.np_utils`", _INPUTS, "`border_mode=`"),
        *("`Conv2D(filters, rows, columns)`", "`output_dim=`", "`init=`"),
        "`nb_epoch=`",
    ],
    "keras2_aae_bigan_cyclegan": [
        *(_ACTIVATIONS, _CONV, "`keras.layers.merge`", _DIM, _ALPHA),
    ],
    "keras2_antirectifier": ["`keras.engine.topology`", _INPUTS],
    "keras2_cifar10_cnn": [_INPUTS, "decay=", _SAVE],
    "keras2_cifar10_resnet": ["monitor='val_acc'", _SAVE],
    "keras2_dcgan": [_ACTIVATIONS, _CONV, _INPUTS, _ALPHA, _DIM],
    "keras2_denoising_autoencoder": [],
    "keras2_imdb_cnn": [
        "`keras.preprocessing.sequence`",
        "`input_length=` of Embedding",
    ],
    "keras2_mnist_acgan": [
        *(_ACTIVATIONS, _CONV, "`keras.utils.generic_utils`", _INPUTS, _DIM, _WEIGHTS),
    ],
    "keras2_mnist_cnn": [_INPUTS],
    "keras2_mnist_mlp": [_INPUTS, "lr=", "decay=", "`predict_classes`"],
    "keras2_mnist_siamese": [],
    "keras2_mnist_transfer_cnn": [_INPUTS],
    "keras2_net2net": [_INPUTS, "lr=", "`init=`"],
    "keras2_reuters_mlp": ["`keras.preprocessing.text`", _INPUTS],
    "keras2_sequence_callbacks": [
        *("`keras.layers.core`", _CONV, "`keras.layers.normalization`"),
        *("`keras.layers.pooling`", "`keras.utils.np_utils`", _INPUTS, "lr=", "decay="),
        *("`fit_generator`", "optimizer.lr", "`evaluate_generator`", _WEIGHTS, _SAVE),
    ],
    "keras2_swwae_blocks": [],
    "keras2_unet": [
        *("`Model(input=)`", "`Model(output=)`", "lr=", "`fit_generator`"),
        *("`save` to a .hdf5 file", "`predict_generator`"),
    ],
    "keras2_variational_autoencoder": [_WEIGHTS],
    "keras2_variational_autoencoder_deconv": [],
    "keras2_wgan_cgan": ["lr=", _INPUTS, _ALPHA, _DIM],
}
NEW = sorted({path.stem for path in FOLDER.glob("*.py")} - OLD_SPELLINGS.keys())


def with_ganglion(text: str) -> str:
    for pattern, replacement in IMPORTS:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    return text


def run(name: str) -> tuple[list[str], list[warnings.WarningMessage]]:
    """Run a script in this process; return the lines it printed and its warnings."""
    for old in oldpaths.OLD_PATHS:
        sys.modules.pop(old, None)  # so that importing it warns again
    path = FOLDER / f"{name}.py"
    code = compile(with_ganglion(path.read_text("utf-8")), str(path), "exec")
    printed = io.StringIO()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with contextlib.redirect_stdout(printed):
            exec(code, {"__name__": "__main__"})
    return printed.getvalue().splitlines(), caught


def final_loss(lines: list[str]) -> float:
    name, _, number = lines[-1].rpartition(": ")
    assert name == "final loss"
    return float(number)


def losses(lines: list[str]) -> list[float]:
    """Return the training losses that the progress bar showed at ends of epochs."""
    ends = (re.search(r"step.*? - loss: (-?[\d.e+-]+)", line) for line in lines)
    return [float(match[1]) for match in ends if match]


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.random.seed(0)
    # It is the API that is tried; GANGLION_BACKEND tries a compiler on the same.
    backend = os.environ.get("GANGLION_BACKEND", "numpy")
    monkeypatch.setenv("GANGLION_BACKEND", backend)


@pytest.mark.parametrize("name", NEW)
@pytest.mark.sampled(3)
def test_a_script_trains_without_a_warning(name):
    lines, caught = run(name)
    assert np.isfinite(final_loss(lines))
    assert [str(warning.message) for warning in caught] == []


@pytest.mark.parametrize("name", OLD_SPELLINGS)
@pytest.mark.sampled(3)
def test_an_old_script_trains_with_one_warning_per_old_spelling(name):
    lines, caught = run(name)
    assert np.isfinite(final_loss(lines))
    texts = [str(w.message) for w in caught if w.category is keras2.Keras2Warning]
    spellings = [text.split(" is a Keras 2 spelling")[0] for text in texts]
    assert sorted(spellings) == sorted(OLD_SPELLINGS[name])
    others = {w.category for w in caught} - {keras2.Keras2Warning, ResourceWarning}
    assert not others
    written = {w.filename for w in caught if w.category is keras2.Keras2Warning}
    assert written <= {str(FOLDER / f"{name}.py")}  # each names the script's line


@pytest.mark.parametrize(
    "name", ["antirectifier", "keras2_antirectifier", "keras2_variational_autoencoder"]
)
def test_the_loss_falls(name):
    lines, _ = run(name)
    shown = losses(lines)
    assert len(shown) >= 2
    assert shown[-1] < shown[0]
