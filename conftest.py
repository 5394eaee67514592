"""Fixtures of all tests and doctests: a clean start for each, and the rivals."""

import gc
import importlib.util
import os
import signal
import sys
import zlib
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import typer.testing

# The workers share the cores as it is: threads of NumPy and of the rivals would only
# wait for each other, and burn half of the suite's processor time in doing so.
for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")
for _kind in ("INTRAOP", "INTEROP"):
    os.environ.setdefault(f"TF_NUM_{_kind}_THREADS", "1")

os.environ.setdefault("GANGLION_VERIFY", "1")

# After the variables, which NumPy reads when it is imported.
from ganglion import config as choices  # noqa: E402
from ganglion import keras2, utils, variables  # noqa: E402
from ganglion.compiler.cpu import threads  # noqa: E402

# Programs that a test runs; looking for doctests would import, and so run, them.
collect_ignore_glob = ["tests/compat/scripts/*", "tests/scripts/*"]
# It would import PyTorch, which takes seconds and may not be installed.
collect_ignore_glob.append("src/ganglion/race/engines/torch_modules.py")
if importlib.util.find_spec("sklearn") is None:  # no dependency: its users import it
    collect_ignore_glob.append("src/ganglion/many/estimators.py")
if importlib.util.find_spec("uvicorn") is None:
    collect_ignore_glob += [
        f"src/ganglion/serve/{name}.py" for name in ("app", "server")
    ]

# Tests share the command that a run of it would build anew: 30 ms each time.
typer.testing._get_command = cache(typer.testing._get_command)

# Tests that run at the same time are no processes that have to share the machine.
threads.CORE_NAME = f"\0ganglion-test-{os.getpid()}-{{}}"


def pytest_configure(config: pytest.Config) -> None:
    """Leave what Keras is warned about by NumPy and TensorFlow out of the summary.

    A suite that a shell runs in the background is deaf to Ctrl-C, and so would be every
    process that its tests start and interrupt.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    told = "ignore:__array__ implementation doesn't accept a copy:DeprecationWarning"
    config.addinivalue_line("filterwarnings", f"{told}:keras")
    eager = "ignore:Even though the `tf.config.experimental_run_functions_eagerly`"
    config.addinivalue_line("filterwarnings", f"{eager}:UserWarning")


@pytest.fixture(autouse=True)
def clean_start(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give each test its own global choices, names and seeds: the order is free."""
    monkeypatch.setattr(choices, "_choices", dict(choices._choices))
    monkeypatch.delenv("COLUMNS", raising=False)  # tables are as wide as in a pipe
    keras2.set_active(None)
    variables.reset_names()
    _reset_names_of_keras()
    utils.set_random_seed(0)
    yield
    keras2.set_active(None)
    _freeze_what_was_imported()


def _reset_names_of_keras() -> None:
    """Let Keras number its layers from the start, too: paths are compared with ours."""
    if (naming := sys.modules.get("keras.src.utils.naming")) is not None:
        naming.reset_uids()


_modules_frozen = 0
_MANY_MODULES = 200


def _freeze_what_was_imported() -> None:
    """Tell the garbage collector after large imports that modules and tests stay.

    With Keras, PyTorch and JAX in a worker, it took a second and more to look through
    them, and some tests ask for it.
    """
    global _modules_frozen
    if len(sys.modules) > _modules_frozen + _MANY_MODULES:
        gc.collect()  # what is garbage now would stay, too
        gc.freeze()
        _modules_frozen = len(sys.modules)


@pytest.fixture(scope="session")
def keras() -> Any:
    """Return Keras 3.15 on TensorFlow; tests that compare with it are skipped without.

    Imported once, when the first test asks: it takes seconds.
    """
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    # To trace a small model takes ten times as long as the few steps it is asked for.
    tf.config.run_functions_eagerly(True)
    module = pytest.importorskip("keras", "3.15", reason="Keras 3.15 is not installed")
    if module.backend.backend() != "tensorflow":
        pytest.skip("compares with Keras on TensorFlow: unset KERAS_BACKEND")
    return module


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let golden texts be written anew, and more random models be drawn."""
    parser.addoption(
        "--update-golden", action="store_true", help="write golden texts anew"
    )
    parser.addoption(
        "--all", action="store_true", help="run every case of tests marked `sampled`"
    )
    parser.addoption(
        "--random-models",
        type=int,
        default=70,
        help="how many are compared with Keras",
    )
    parser.addoption(
        "--random-model", type=int, help="compare this one alone with Keras"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Draw as many random models as are asked for."""
    if "random_model" in metafunc.fixturenames:
        only = metafunc.config.getoption("--random-model")
        count = metafunc.config.getoption("--random-models")
        metafunc.parametrize("random_model", range(count) if only is None else [only])


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Leave out some cases of tests that have many alike, unless all are asked for.

    `@pytest.mark.sampled(3)` runs a third of a test's cases, by the hashes of their
    names: the same ones in every run and on every worker. `@pytest.mark.more` marks a
    case that never is in the sample.
    """
    if config.getoption("--all"):
        return
    left_out = [item for item in items if not _is_in_sample(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if _is_in_sample(item)]


def _is_in_sample(item: pytest.Item) -> bool:
    mark = item.get_closest_marker("sampled")
    if item.get_closest_marker("more") is not None:
        return False
    return mark is None or zlib.crc32(item.name.encode()) % mark.args[0] == 0


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A browser that all tests of pages share."""
    import browser

    program = browser.find()
    if program is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    with browser.Browser(program) as opened:
        yield opened
