"""A first minute with an installed Ganglion: it trains, saves, compiles and prints.

    python tests/support/smoke.py FOLDER     # of the package that is to be tried

Needs nothing but what Ganglion itself needs, so that it runs in an environment that has
only the wheel; `make wheel` does, and `tests/test_wheel.py` on a wheel in a folder.
"""

import contextlib
import importlib.metadata
import io
import sys
import tempfile
from pathlib import Path

import numpy as np

import ganglion as keras
from ganglion.cli.app import app


def train_and_save(folder: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(256, 4)).astype("float32")
    y = x @ np.array([[1.0], [2.0], [-1.0], [0.5]], "float32")
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.1), "mse")
    losses = model.fit(x, y, epochs=10, verbose=0).history["loss"]
    assert losses[-1] < losses[0] / 10, losses
    model.save(folder / "small.keras")
    again = keras.models.load_model(folder / "small.keras")
    np.testing.assert_array_equal(model.predict(x, verbose=0), again.predict(x))


def output_of(*words: str) -> str:
    """Return what the command `ganglion` prints."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        app(words, standalone_mode=False)
    return printed.getvalue()


def main() -> None:
    where = Path(keras.__file__).resolve()
    assert where.is_relative_to(Path(sys.argv[1]).resolve()), where
    assert importlib.metadata.version("ganglion-nn") == keras.__version__
    with tempfile.TemporaryDirectory() as folder:
        train_and_save(Path(folder))
    assert output_of("--version") == f"ganglion {keras.__version__}\n"
    assert "define void @" in output_of("dump", "mnist-perceptron", "--source")
    text = output_of("dump", "mnist-perceptron", "--source", "--backend", "cuda")
    assert "__global__" in text
    print(f"ganglion {keras.__version__} works")


if __name__ == "__main__":
    main()
