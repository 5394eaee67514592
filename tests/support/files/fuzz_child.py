"""A process that reads damaged files, one after the other, and tells how it fared.

    python fuzz_child.py FOLDER FIRST LAST

Prints ``begin SEED`` before and a line of JSON after each file: what was wrong, "" if
nothing. Its parent (tests/saving/test_fuzz.py) notices when it dies or stops.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import shutil
import sys
import time
import warnings
from pathlib import Path

ALLOWED = ("ValueError", "FileNotFoundError", "NotAFileError", "Unreadable",
           "SourceError", "DamageError", "ResultsError", "ImagesError", "BudgetError",
           "MismatchError", "RefusedError")  # fmt: skip
MOST_BYTES = 1 << 30
MOST_SECONDS = 30


def status(name: str) -> int:
    text = Path("/proc/self/status").read_text()
    return int(text.split(name + ":")[1].split()[0]) * 1024


class Guard:
    """Notes what reading a file must never do: run programs, import, write."""

    def __init__(self, home: Path) -> None:
        self.home, self.seen, self.active = str(home), "", False
        sys.addaudithook(self.note)

    def note(self, event: str, arguments: tuple) -> None:
        if not self.active:
            return
        if event in ("os.system", "subprocess.Popen", "os.exec", "os.posix_spawn"):
            self.seen = f"{event} {arguments!r:.100}"
        elif event == "import" and "canary" in str(arguments[0]):
            self.seen = f"import {arguments[0]}"
        elif event == "pickle.find_class":
            self.seen = f"{event} {arguments!r:.100}"
        elif event == "open" and isinstance(arguments[0], str):
            path, _, flags = arguments
            writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) if flags else 0
            inside = os.path.abspath(path).startswith((self.home, "/dev/null", "/proc"))
            if writes and not inside and not path.endswith(".pyc"):
                self.seen = f"wrote {path}"


def main() -> None:
    folder, first, last = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    warnings.simplefilter("ignore")
    import numpy as np
    from fuzz_kinds import all_kinds

    sys.path.append(str(folder / "modules"))
    (folder / "modules").mkdir(exist_ok=True)
    (folder / "modules" / "fuzz_canary.py").write_text("raise SystemExit('imported')")
    seeds = folder / "seeds"
    seeds.mkdir(exist_ok=True)
    wanted = os.environ.get("GANGLION_FUZZ_KIND", "")
    kinds = [kind for kind in all_kinds(seeds) if wanted in kind.name]
    guard = Guard(folder)
    usual = status("VmSize")
    soft = usual + MOST_BYTES + (256 << 20)
    resource.setrlimit(resource.RLIMIT_AS, (soft, -1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for seed in range(first, last):
        kind = kinds[seed % len(kinds)]
        rng = np.random.default_rng(seed)
        place = folder / "case"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        path = place / kind.file
        path.write_bytes(kind.change(kind.content, rng))
        if status("VmSize") > usual + (256 << 20):
            gc.collect()  # a large model that was read, and let go of, is not its fault
        print(f"begin {seed} {kind.name}", flush=True)
        before = kind.state()
        Path("/proc/self/clear_refs").write_text("5")
        held, began = status("VmRSS"), time.process_time()
        guard.seen, guard.active, wrong = "", True, ""
        try:
            kind.read(path)
        except BaseException as error:
            name = type(error).__name__
            if name not in ALLOWED:
                wrong = f"{name}: {error}"
            elif "MemoryError" in str(error):
                wrong = f"asks for more than 1 GB: {error}"
            elif kind.state() != before:
                wrong = f"something was changed, in spite of {name}: {error}"
        guard.active = False
        took, seconds = status("VmHWM") - held, time.process_time() - began
        if took > MOST_BYTES:
            wrong = wrong or f"took {took / 1e6:.0f} MB"
        if seconds > MOST_SECONDS:
            wrong = wrong or f"took {seconds:.0f} s"
        wrong = guard.seen or wrong
        if list(place.glob(".*")) or (folder / "canary").exists():
            wrong = wrong or "left something behind"
        report = [seed, kind.name, wrong[:300], took, seconds]
        print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
