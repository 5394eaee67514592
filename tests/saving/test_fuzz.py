"""The file fuzzer: whatever is in a file, reading it does no harm.

Damaged and crafted files of every kind are read in a process of its own: no crash, no
hang over 30 s, no more than 1 GB, no code run, nothing half written. A few hundred by
default; ``GANGLION_FUZZ=10000 pytest tests/saving/test_fuzz.py -s`` for more, and
``GANGLION_FUZZ_SEED=N`` to begin at the one that was told. ``GANGLION_FUZZ_KIND=layer``
reads files of one kind only.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
from pathlib import Path

import pytest
from folders import SUPPORT, SUPPORT_PATHS

import ganglion

pytest.importorskip("h5py")
pytest.importorskip("PIL")

FILES = int(os.environ.get("GANGLION_FUZZ", "") or 500)
FIRST = int(os.environ.get("GANGLION_FUZZ_SEED", "") or 0)
PATIENCE = 90  # seconds without a word: it hangs. It counts the 30 s of its processor
START = 120  # seconds to make the files to damage


class Child:
    """A process that reads the files of some seeds."""

    def __init__(self, folder: Path, first: int, last: int) -> None:
        paths = [str(Path(ganglion.__file__).parents[1]), *SUPPORT_PATHS]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            "GANGLION_HOME": str(folder / "home"),
            "GANGLION_THREADS": "1",
            "GANGLION_BACKEND": "cpu",
            "OPENBLAS_NUM_THREADS": "1",
            # A text has no weights to go by: it may ask for a large model.
            "GANGLION_FILE_LIMIT": "",
        }
        command = [
            sys.executable,
            str(SUPPORT / "files" / "fuzz_child.py"),
            str(folder),
        ]
        with open(folder / "errors.log", "ab") as log:
            self.process = subprocess.Popen(
                [*command, str(first), str(last)],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=folder,
            )
        os.set_blocking(self.process.stdout.fileno(), False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self.process.stdout, selectors.EVENT_READ)
        self._rest = b""

    def lines(self):
        """Yield what it says; None when it says nothing for too long."""
        patience = START
        while True:
            if not self._selector.select(patience):
                yield None
                return
            data = os.read(self.process.stdout.fileno(), 1 << 16)
            if not data:
                return
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                patience = PATIENCE
                yield line.decode()

    def end(self) -> int:
        self.process.kill() if self.process.poll() is None else None
        self.process.stdout.close()
        return self.process.wait()


def fuzzed(folder: Path, first: int, last: int) -> tuple[list[str], int, int]:
    """Read files; return what was bad, the most bytes taken, and how many were read."""
    bad, most, read = [], 0, 0
    while first < last:
        child, current = Child(folder, first, last), None
        for line in child.lines():
            if line is None:
                bad.append(f"seed {current}: hangs")
                break
            if line.startswith("begin "):
                current = line.removeprefix("begin ")
                continue
            seed, kind, wrong, took, _ = json.loads(line)
            current, read, most = None, read + 1, max(most, took)
            first = seed + 1
            if wrong:
                bad.append(f"seed {seed} ({kind}): {wrong}")
        child_said = child.end()
        if current is None and first < last and child_said:
            log = (folder / "errors.log").read_text(errors="replace")
            raise RuntimeError(f"the fuzzer itself failed:\n{log[-3000:]}")
        if current is not None:
            if child_said and not (bad and "hangs" in bad[-1]):
                bad.append(f"seed {current}: crashed with {child_said}")
            first, read = int(current.split()[0]) + 1, read + 1
    return bad, most, read


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux")
def test_damaged_files_do_no_harm(tmp_path):
    began = time.monotonic()
    bad, most, read = fuzzed(tmp_path, FIRST, FIRST + FILES)
    print(f"{read} files in {time.monotonic() - began:.0f} s, {len(bad)} bad, at most "
          f"{most / 1e6:.0f} MB")  # fmt: skip
    assert not bad, "\n" + "\n".join(bad)
    assert read == FILES
