"""One budget for all that a file may ask for: crafted files cost neither gigabytes
nor minutes, and large models are still loaded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from folders import SUPPORT_PATHS

import ganglion as keras
from ganglion import layers, saving
from ganglion.system import budget

pytest.importorskip("h5py")

from crafted_files import CASES, archive, layer

MOST_BYTES = 1 << 30
MOST_SECONDS = 30
REFUSALS = ("ValueError: ", "MismatchError: ", "SourceError: ", "DamageError: ")
RUN_ALL = """
import json, resource, sys, tempfile, time, warnings
from pathlib import Path
warnings.simplefilter("ignore")
from crafted_files import CASES
import ganglion.saving.torch_file, ganglion.datasets.sources, ganglion.images

def status(name):
    text = Path("/proc/self/status").read_text()
    return int(text.split(name + ":")[1].split()[0]) * 1024

for name in sys.argv[1:]:
    with tempfile.TemporaryDirectory() as folder:
        read = CASES[name](Path(folder))
        Path("/proc/self/clear_refs").write_text("5")  # measure from here
        before, began = status("VmRSS"), time.process_time()
        limit = status("VmSize") + (4 << 30)
        resource.setrlimit(resource.RLIMIT_AS, (limit, -1))
        try:
            read()
            said = "nothing"
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
        took = status("VmHWM") - before
        print(json.dumps([name, said, took, time.process_time() - began]), flush=True)
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux")
def test_small_files_that_ask_for_much():
    """All in one process, each measured by itself."""
    paths = [str(Path(keras.__file__).parents[1]), *SUPPORT_PATHS]
    ended = subprocess.run(
        [sys.executable, "-c", RUN_ALL, *CASES],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=400,
    )
    told = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [name for name, *_ in told] == list(CASES), ended.stderr[-2000:]
    bad = [
        f"{name}: {said:.200} ({took / 1e6:.0f} MB, {seconds:.1f} s)"
        for name, said, took, seconds in told
        if not said.startswith(REFUSALS) or took > MOST_BYTES or seconds > MOST_SECONDS
    ]
    assert not bad, "\n" + "\n".join(bad)


def test_the_way_out_is_named(tmp_path, monkeypatch):
    read = archive(tmp_path, lambda config: layer(config, 2).update(units=50_000_000))
    with pytest.raises(ValueError, match=r"m\.keras.*GANGLION_FILE_LIMIT"):
        read()
    monkeypatch.setenv("GANGLION_FILE_LIMIT", "100G")
    with pytest.raises(ValueError, match="expected shape"):
        read()  # now it is the weights that do not fit
    monkeypatch.setenv("GANGLION_FILE_LIMIT", "much")
    with pytest.raises(ValueError, match="is a number of bytes, such as 20G"):
        read()


def test_a_large_model_is_loaded(tmp_path):
    """Sixty times the floor, if the floor were that of a small machine."""
    monkey = pytest.MonkeyPatch()
    monkey.setattr(budget, "FLOOR", 1 << 20)
    try:
        big = keras.Sequential([keras.Input((1000,)), layers.Dense(2000)])
        big.compile("adam", "mse")
        big.optimizer.build(big.trainable_weights)
        for name in ("m.keras", "m.h5"):
            big.save(tmp_path / name)
            model = saving.load_model(tmp_path / name)
            np.testing.assert_array_equal(model.get_weights()[0], big.get_weights()[0])
    finally:
        monkey.undo()


def test_budgets_are_of_one_thread_and_one_file():
    assert budget.current() is None
    with budget.reading(10) as outer:
        with budget.reading(10**9) as inner:
            assert budget.current() is inner
            budget.take(10**9, "more than the outer one has")
        assert budget.current() is outer
    assert budget.current() is None


def test_arrays_in_configurations_are_numbers():
    plain = saving.deserialize_keras_object
    entry = saving.serialize_keras_object(np.arange(3.0))
    np.testing.assert_array_equal(plain(entry), np.arange(3.0))
    for dtype in ("V9000000000", "S4000000000", "O", "U1", "datetime64[s]"):
        entry["config"]["dtype"] = dtype
        with pytest.raises((ValueError, TypeError)):
            plain(entry)
