"""Where tests find what they read: the repository, helpers, golden texts."""

from pathlib import Path

SUPPORT = Path(__file__).resolve().parent
ROOT = SUPPORT.parents[1]
SOURCE = ROOT / "src"
PACKAGE = SOURCE / "ganglion"
GOLDEN = ROOT / "tests" / "compiler" / "golden"
