"""Runs scripts one after the other in this process, with Keras itself or with Ganglion.

    python tests/support/script_worker.py keras|ganglion

reads paths of scripts, one a line, and answers each with a line of JSON, behind
`ANSWER`: what it printed, and why it failed. Scripts are plain: so that they can be
compared, their random initial weights are drawn from NumPy by shape, and rows are not
shuffled.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import sys
import tempfile
import traceback
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

ANSWER = "answer: "
_RANDOM_INITIALIZERS = """GlorotUniform GlorotNormal HeNormal HeUniform LecunNormal
LecunUniform RandomNormal RandomUniform TruncatedNormal VarianceScaling Orthogonal"""
_drawn: Counter[tuple[int, ...]] = Counter()  # how often a script asked for each shape


def draw(shape: tuple[int, ...]) -> np.ndarray:
    """Return the next initial weights of a shape: the same in every framework."""
    _drawn[shape] += 1
    seed = [zlib.crc32(str(shape).encode()), _drawn[shape]]
    return np.random.default_rng(seed).uniform(-0.4, 0.4, shape)


def make_comparable(keras: Any, dataset: Any) -> None:
    def initial(self: Any, shape: Any, dtype: Any = None, **options: Any) -> Any:
        # Keras may ask twice for one variable, when it builds a model to try it.
        sizes = tuple(int(size) for size in shape)
        kept = self.__dict__.setdefault("_kept", {})
        array = kept.setdefault(sizes, None)
        if array is None:
            array = kept[sizes] = draw(sizes)
        return keras.ops.convert_to_tensor(array.astype("float32"), dtype=dtype)

    for name in _RANDOM_INITIALIZERS.split():
        getattr(keras.initializers, name).__call__ = initial

    fit = keras.Model.fit

    def fit_in_order(self: Any, *args: Any, **kwargs: Any) -> Any:
        return fit(self, *args, **{"shuffle": False, **kwargs})

    keras.Model.fit = fit_in_order
    dataset.shuffle = lambda self, *args, **kwargs: self


def _fixed_noise(keras: Any, *modules: Any) -> None:
    """Let random numbers inside of steps be the same ones of NumPy for each shape."""

    def replaced(original: Any, kind: str) -> Any:
        names = ("mean", "stddev") if kind == "normal" else ("minval", "maxval")

        def noise(shape: Any, *args: Any, **kwargs: Any) -> Any:
            sizes = _sizes(shape)
            if sizes is None:
                return original(shape, *args, **kwargs)
            arguments = {**dict(zip(names, (0.0, 1.0), strict=True)), **kwargs}
            arguments.update(zip(names, args, strict=False))
            low, high = (arguments[name] for name in names)
            scale = high if kind == "normal" else high - low
            draws = np.random.default_rng(zlib.crc32(str(sizes).encode()))
            array = getattr(draws, kind)(size=sizes) * scale + low
            return keras.ops.convert_to_tensor(array.astype("float32"))

        return noise

    def dropout(
        inputs: Any, rate: float, noise_shape: Any = None, seed: Any = None
    ) -> Any:
        shape = noise_shape or inputs.shape
        sizes = _sizes(
            size if size is not None else known
            for size, known in zip(shape, inputs.shape, strict=True)
        )
        if sizes is None:
            return inputs
        draws = np.random.default_rng(zlib.crc32(str(sizes).encode()))
        kept = (draws.uniform(size=sizes) >= rate).astype("float32") / (1 - rate)
        return inputs * keras.ops.convert_to_tensor(kept)

    for module in modules:
        for kind in ("normal", "uniform"):
            setattr(module, kind, replaced(getattr(module, kind), kind))
        if hasattr(module, "dropout"):
            module.dropout = dropout


def _sizes(shape: Any) -> tuple[int, ...] | None:
    try:
        return tuple(int(size) for size in shape)
    except (TypeError, ValueError, NotImplementedError):
        return None  # not known yet: a model is only being tried


def _add_up_gradients(keras: Any, tf: Any) -> None:
    """Let Keras on TensorFlow do as on JAX where a batch has one row of a table twice.

    Adam there adds the squares of both gradients; here, and on JAX, it squares the sum.
    """
    apply = keras.optimizers.Optimizer.apply

    def apply_dense(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
        dense = [
            tf.convert_to_tensor(grad) if isinstance(grad, tf.IndexedSlices) else grad
            for grad in grads
        ]
        return apply(self, dense, trainable_variables)

    keras.optimizers.Optimizer.apply = apply_dense


def with_keras(script: Path) -> None:
    import runpy

    runpy.run_path(str(script), run_name="__main__")


def with_ganglion(script: Path) -> None:
    from ganglion import keras2
    from ganglion.cli import run

    keras2.set_active(None)
    run.choose_keras(script, "auto")
    status, where = run.run_as_main(script, [])
    if status:
        raise SystemExit(f"ended with {status} at {where}")


def prepared(framework: str) -> Any:
    """Return what runs a script, and Keras."""
    if framework == "keras":
        import keras
        import tensorflow as tf

        tf.config.run_functions_eagerly(True)  # tracing takes longer than a few steps
        make_comparable(keras, tf.data.Dataset)
        _add_up_gradients(keras, tf)
        from keras.src import backend

        _fixed_noise(keras, keras.random, tf.random, backend.random)
        return with_keras, keras
    import ganglion
    from ganglion.compat import aliases
    from ganglion.compat.tensorflow.data.dataset import Dataset

    aliases.install()
    make_comparable(ganglion, Dataset)
    _fixed_noise(ganglion, ganglion.random)
    return with_ganglion, ganglion


def printed_by(script: Path, execute: Any) -> dict[str, Any]:
    """Run a script in a folder of its own; return what it printed, or why it failed."""
    output, errors = io.StringIO(), io.StringIO()
    failure = ""
    _drawn.clear()
    home = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
                execute(script)
        except BaseException:
            failure = traceback.format_exc(limit=-3)
        finally:
            os.chdir(home)
    failure = failure and failure + errors.getvalue()[-2000:]
    return {"lines": output.getvalue().splitlines(), "failure": failure}


def main(framework: str) -> None:
    execute, keras = prepared(framework)
    gc.disable()  # a fifth of Keras' time goes into looking for garbage
    for line in sys.stdin:
        keras.utils.set_random_seed(0)
        printed = printed_by(Path(line.strip()), execute)
        keras.utils.clear_session(free_memory=False)
        print(ANSWER + json.dumps(printed), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
