"""`ganglion run`: scripts see plain Python, and Ganglion in the place of Keras."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from folders import PACKAGE

import ganglion as keras
from ganglion import keras2
from ganglion.compat import aliases, script_age
from ganglion.optimizers import Adadelta
from ganglion.regularizers import l1_l2
from ganglion.system import uncompiled

GOOD = """
import sys, os, warnings
from pathlib import Path
import keras
import tensorflow.keras
from keras.layers import Dense
from tensorflow import keras as tf_keras
from tensorflow.keras import layers
from tensorflow.keras.models import Sequential
import beside

assert layers.Dense is Dense is tf_keras.layers.Dense is keras.layers.Dense
assert Dense.__module__.startswith("ganglion"), Dense
assert keras.__version__.startswith("3.")
assert sys.modules["__main__"].Dense is Dense and __name__ == "__main__"
assert __file__ == sys.argv[0] == "good.py", (__file__, sys.argv)
assert Path(sys.path[0]) == Path.cwd()
print(sys.argv[1:])
sys.exit(3)
"""
OLD = """
import tensorflow as tf
from keras.backend.tensorflow_backend import set_session
from keras.layers import Dense
from keras_preprocessing.sequence import pad_sequences
from tensorflow.python.keras.layers import Dense as inner

set_session(tf.Session(config=tf.ConfigProto()))
assert inner is Dense is tf.compat.v1.keras.layers.Dense
print(pad_sequences([[1]], 2).tolist())
"""
BAD = """
import keras
def build():
    return keras.layers.Dens(3)
build()
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)},
    )


def test_a_script_finds_old_paths(tmp_path):
    (tmp_path / "old.py").write_text(OLD)
    result = run(tmp_path, "-m", "ganglion", "old.py")
    assert result.stdout == "[[0, 1]]\n", result.stderr


def test_a_script_sees_plain_python(tmp_path):
    (tmp_path / "good.py").write_text(GOOD)
    (tmp_path / "beside.py").write_text("import keras")
    result = run(tmp_path, "-m", "ganglion", "good.py", "--keras", "2", "-x")
    assert result.stdout == "['--keras', '2', '-x']\n", result.stderr
    assert result.returncode == 3
    first, last = result.stderr.splitlines()
    assert first == ("ganglion run: good.py runs as Keras 3 (nothing in it is older).")
    assert last.startswith("ganglion run: ")
    assert last.endswith(" s; every step ran compiled.")


def test_a_traceback_has_the_scripts_frames_alone(tmp_path):
    (tmp_path / "bad.py").write_text(BAD)
    result = run(tmp_path, "-m", "ganglion", "run", "--keras", "2", "bad.py")
    assert result.returncode == 1
    first, *trace, last = result.stderr.splitlines()
    assert first == "ganglion run: bad.py runs as Keras 2 (as --keras says)."
    assert last.startswith("ganglion run: stopped at bad.py:4 after ")
    files = [line for line in trace if line.startswith("  File")]
    assert files == [
        '  File "bad.py", line 5, in <module>',
        '  File "bad.py", line 4, in build',
    ]
    assert trace[-1].startswith(
        "AttributeError: keras.layers.Dens: there is no such name. "
        "Did you mean 'Dense'?"
    )


def test_one_line_installs_ganglion_as_keras(tmp_path):
    program = (
        "import ganglion; ganglion.install_as_keras(); import keras, sys;"
        "assert keras.layers is ganglion.layers;"
        "ganglion.unload_ipython_extension(None); assert 'keras' not in sys.modules;"
        "sys.modules['tensorflow'] = 1; ganglion.load_ipython_extension(None)"
    )
    result = run(tmp_path, "-c", program)
    assert "`tensorflow` itself is imported already." in result.stderr
    assert "restart the kernel" in result.stderr


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("from keras.layers.core import Dense", "keras.layers.core"),
        ("import keras.layers.core as c", "keras.layers.core"),
        ("import keras\nkeras.layers.core.Dense", "keras.layers.core"),
        ("from keras.utils import np_utils", "keras.utils.np_utils"),
        ("from keras.optimizers import SGD\nSGD(lr=0.1)", "SGD(lr=)"),
        ("from keras import optimizers as o\no.Adam(decay=0.1)", "Adam(decay=)"),
        ("model.fit(x, nb_epoch=3)", "fit(nb_epoch=)"),
        ("model.fit_generator(g)", "fit_generator"),
        ("print(model.optimizer.lr)", "optimizer.lr"),
        ("from keras import backend as K\nK.mean(x)", "keras.backend.mean"),
        ("import tensorflow as tf\ntf.compat.v1.x()", "tensorflow.compat.v1"),
        ("import tf_keras", "tf_keras"),
    ],
)
def test_old_spellings_mean_keras_2(text, reason):
    age = script_age.age_of_text(text)
    assert age.keras == 2
    assert age.reason.endswith(f": `{reason}`")


@pytest.mark.parametrize(
    "text",
    [
        "import keras\nkeras.layers.Dense(3)",
        "train(lr=0.1)",  # a function of the script's own
        "from keras import ops\nfrom keras.optimizers import SGD\nSGD(lr=1)",
        "import os\nos.environ['KERAS_BACKEND'] = 'jax'\nmodel.fit_generator(g)",
        "from keras import backend as K\nK.clear_session()",
        "from keras.preprocessing.image import ImageDataGenerator",
    ],
)
def test_newer_scripts_are_keras_3(text):
    assert script_age.age_of_text(text).keras == 3


def test_modules_beside_a_script_are_read(tmp_path):
    (tmp_path / "train.py").write_text("import nets.old\n")
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets" / "old.py").write_text("from keras.objectives import mse")
    age = script_age.age_of(tmp_path / "train.py")
    assert (age.keras, age.reason) == (2, "old.py:1: `keras.objectives`")


@pytest.mark.parametrize(("in_tensorflow", "rate"), [(False, 1.0), (True, 0.001)])
def test_the_keras_2_inside_of_tensorflow_had_other_defaults(in_tensorflow, rate):
    through = "tensorflow.keras" if in_tensorflow else "keras"
    text = f"from {through}.optimizers import Adadelta, SGD\nSGD(lr=1)"
    age = script_age.age_of_text(text)
    assert (age.keras, age.in_tensorflow) == (2, in_tensorflow)
    try:
        keras2.set_active(True, in_tensorflow=in_tensorflow)
        assert float(Adadelta().learning_rate) == pytest.approx(rate)
        assert l1_l2().get_config()["l1"] == pytest.approx(0.01)
    finally:
        keras2.set_active(None)


def test_what_did_not_run_compiled_is_counted(monkeypatch):
    monkeypatch.setenv("GANGLION_BACKEND", "numpy")
    words = keras.layers.Hashing(3, name="words")
    text = keras.Sequential([keras.Input((1,), dtype="string"), words])
    eager = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)], name="eager")
    text.compile("sgd", "mse")
    eager.compile("sgd", "mse", run_eagerly=True)
    keras.ops.add(1.0, 2.0)
    with uncompiled.counting() as counts:
        keras.ops.sort(np.array([2.0, 1.0]))
        text.evaluate(np.array([["a"], ["b"]]), np.ones((2, 1)), verbose=0)
        eager.fit(np.ones((2, 2)), np.ones((2, 1)), verbose=0)
    assert counts["ops one by one"]["sort"] == 1
    assert counts["ops one by one"]["add"] < 3
    assert counts["calls of layers on the host"] == {"words": 1}
    assert counts["models with run_eagerly=True"] == {"eager": 1}
    assert counts["programs run by NumPy"].total() == 1
    told = uncompiled.summary(counts)
    assert "1 models with run_eagerly=True (eager)" in told


def test_what_needs_tensorflow_itself_is_refused():
    with pytest.raises(ModuleNotFoundError, match="Use `keras"):
        aliases.AliasFinder().find_spec("tensorflow_datasets")
