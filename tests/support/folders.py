"""Folders for tests: the repository, helpers, golden texts."""

from pathlib import Path

SUPPORT = Path(__file__).resolve().parent
ROOMS = ("cases", "files", "models", "race")
SUPPORT_PATHS = [
    str(SUPPORT),
    *(str(SUPPORT / room) for room in ROOMS),
]  # to import from
ROOT = SUPPORT.parents[1]
SOURCE = ROOT / "src"
PACKAGE = SOURCE / "ganglion"
GOLDEN = ROOT / "tests" / "compiler" / "golden"
