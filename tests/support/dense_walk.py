"""Counts what one training step of `Dense` passes on its way to machine code.

    python tests/support/dense_walk.py              files and functions from fit to code
    python tests/support/dense_walk.py --cuda       from the program to CUDA text
    python tests/support/dense_walk.py --files      each file with its functions

A profiler watches `fit` on an empty cache. A file is touched if one of its functions
runs; it must be read if what runs of it is more than a few lines (`WORTH_READING`).
"""

from __future__ import annotations

import atexit
import inspect
import os
import shutil
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

os.environ["GANGLION_HOME"] = tempfile.mkdtemp(prefix="ganglion-walk-")
os.environ["GANGLION_BACKEND"] = "cpu"

import numpy as np
from folders import PACKAGE

import ganglion as keras
from ganglion import config, recipes
from ganglion.cli.dump import program_of
from ganglion.compiler.cuda import emit as cuda_emit
from ganglion.compiler.cuda.target import GpuSpec

atexit.register(shutil.rmtree, os.environ["GANGLION_HOME"], ignore_errors=True)

WORTH_READING = 60  # lines of the functions that ran

Files = dict[Path, set[CodeType]]


def watched(run: Callable[[], Any]) -> Files:
    """Return the functions of ours that run, by file, in every thread."""
    seen: Files = defaultdict(set)

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        ours = code.co_filename.startswith(str(PACKAGE))
        if event == "call" and ours and not code.co_name.startswith("<"):
            seen[Path(code.co_filename)].add(code)

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return seen


def lines(codes: set[CodeType]) -> int:
    """Return the lines of some functions, each line counted once."""
    taken: set[int] = set()
    for code in codes:
        source, first = inspect.getsourcelines(code)
        taken.update(range(first, first + len(source)))
    return len(taken)


def fitting() -> Callable[[], Any]:
    """Return what trains one `Dense` for one step."""
    x, y = np.ones((8, 4), "float32"), np.ones((8, 2), "float32")
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    model.compile(keras.optimizers.SGD(0.1), "mse")
    return lambda: model.fit(x, y, batch_size=8, epochs=1, verbose=0)


def emitting() -> Callable[[], Any]:
    """Return what turns the step of a perceptron into CUDA text."""
    config.set_backend("numpy")
    program = program_of(recipes.get("mnist-perceptron"), "train")
    return lambda: cuda_emit.emit_program(program, GpuSpec())


def main(arguments: list[str]) -> None:
    """Print the counts."""
    seen = watched(emitting() if "--cuda" in arguments else fitting())
    sizes = {path: lines(codes) for path, codes in seen.items()}
    to_read = [path for path in sizes if sizes[path] >= WORTH_READING]
    if "--files" in arguments:
        for path in sorted(sizes, key=lambda path: -sizes[path]):
            name = path.relative_to(PACKAGE)
            note = "to read  " if path in to_read else "in passing"
            functions = f"{sizes[path]:5} lines {len(seen[path]):3} functions"
            print(f"{functions}  {note:10}  {name}")
    print(
        f"{len(seen)} files, {sum(map(len, seen.values()))} functions, "
        f"{sum(sizes.values()):,} lines run; to read: {len(to_read)} files"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
