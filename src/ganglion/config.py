"""Global choices: float type, epsilon, image layout, backend and thread count.

>>> from ganglion import config
>>> config.floatx()
'float32'
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

VERSION = "0.1.0"  # the one place: pyproject.toml reads it here
DISTRIBUTION = "ganglion-nn"  # what is installed; the index's `ganglion` is not ours
FLOAT_TYPES = ("float32", "float64")
BACKENDS = ("auto", "cpu", "numpy", "cuda")
PRECISIONS = ("tf32", "bf16", "float32")
MIXED = "mixed_bfloat16"
_NO = ("0", "no", "off", "false")

_choices: dict[str, object] = {
    "floatx": "float32",
    "epsilon": 1e-7,
    "backend": None,
    "threads": None,
    "pin": None,
    "precise": None,
    "precision": None,
    "mixed": False,
}


def floatx() -> str:
    """Return the float type of new weights: ``"float32"`` or ``"float64"``."""
    return str(_choices["floatx"])


def set_floatx(value: str) -> None:
    """Choose the float type of weights made from now on.

    ``"float64"`` is used throughout: weights, data, gradients and metrics.
    """
    if value not in FLOAT_TYPES:
        raise ValueError(
            f"Unknown float type {value!r}: choose one of {', '.join(FLOAT_TYPES)}."
        )
    _choices["floatx"] = value


def epsilon() -> float:
    """Return the small number that keeps divisions and logarithms finite."""
    return float(_choices["epsilon"])  # type: ignore[arg-type]


def set_epsilon(value: float) -> None:
    """Choose the number that ``epsilon()`` returns."""
    _choices["epsilon"] = float(value)


def image_data_format() -> str:
    """Return ``"channels_last"``, the only layout Ganglion compiles for."""
    return "channels_last"


def set_image_data_format(data_format: str) -> None:
    """Accept ``"channels_last"``; any other layout is refused."""
    if data_format != "channels_last":
        raise ValueError(
            f"Image data format {data_format!r} is not supported: transpose the "
            "images to (rows, columns, channels) and use 'channels_last'."
        )


def home() -> Path:
    """Return the folder of all that is kept: GANGLION_HOME, else the user's cache."""
    chosen = os.environ.get("GANGLION_HOME")
    if not chosen:
        import platformdirs

        chosen = platformdirs.user_cache_dir("ganglion")
    return Path(chosen).expanduser()


def backend() -> str:
    """Return the backend in use: `set_backend`, else GANGLION_BACKEND, else auto.

    ``"auto"`` stands for ``"cpu"``, the compiler, where llvmlite can be loaded, else
    for ``"numpy"``; a model that is worth it goes to the GPU, where there is one.
    """
    name = backend_choice()
    return _best_backend() if name == "auto" else name


def backend_choice() -> str:
    """Return the backend that was asked for; ``"auto"`` if none was."""
    chosen = _choices["backend"] or os.environ.get("GANGLION_BACKEND") or "auto"
    return _known_backend(str(chosen))


@cache
def _best_backend() -> str:
    try:
        import llvmlite.binding  # noqa: F401
    except (ImportError, OSError):
        return "numpy"
    return "cpu"


def set_backend(name: str) -> None:
    """Choose the backend by name; see ``ganglion info`` for those found here."""
    _choices["backend"] = _known_backend(name)


def threads() -> int:
    """Return the thread count: `set_threads`, else GANGLION_THREADS, else all cores."""
    chosen = _choices["threads"] or os.environ.get("GANGLION_THREADS")
    if chosen is None:
        if hasattr(os, "sched_getaffinity"):
            return len(os.sched_getaffinity(0))
        return os.cpu_count() or 1
    return _positive(str(chosen), "GANGLION_THREADS")


def set_threads(count: int) -> None:
    """Choose how many threads a compiled program uses."""
    _choices["threads"] = _positive(str(count), "threads")


def load_average() -> float | None:
    """Return how much work the machine had in the last minute, None if nobody says.

    Windows has no such number, and some containers do not let it be read.
    """
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):
        return None


def precise() -> bool:
    """Return whether every sum is taken plainly: `set_precise`, else GANGLION_PRECISE.

    Otherwise convolutions may use Winograd's method, which is faster and a few bits
    less exact, and products may leave out zeros of the data.
    """
    chosen = _choices["precise"]
    if chosen is None:
        return os.environ.get("GANGLION_PRECISE", "").lower() in ("1", "true", "yes")
    return bool(chosen)


def set_precise(value: bool) -> None:
    """Choose whether every sum must be taken plainly."""
    _choices["precise"] = bool(value)


def precision() -> str:
    """Return how a GPU multiplies float32: `set_precision`, else GANGLION_PRECISION.

    ``"tf32"`` rounds operands to 11 bits, ``"bf16"`` to 8, ``"float32"`` not at all;
    sums are float32 in any case, and float64 stays float64.
    """
    chosen = _choices["precision"] or os.environ.get("GANGLION_PRECISION") or "tf32"
    return _known_precision(str(chosen))


def set_precision(name: str) -> None:
    """Choose how a GPU multiplies float32: "tf32", "bf16" or "float32"."""
    _choices["precision"], _choices["mixed"] = _known_precision(name), False


@dataclass(frozen=True)
class DTypePolicy:
    """Types by Keras' name: what layers compute in, and what their weights are.

    >>> DTypePolicy("mixed_bfloat16").compute_dtype
    'bfloat16'
    """

    name: str = "float32"

    def __post_init__(self) -> None:
        if self.name not in (*FLOAT_TYPES, MIXED):
            raise ValueError(
                f"The policy {self.name!r} is not supported: choose "
                f"{', '.join(FLOAT_TYPES)} or {MIXED}, which keeps weights and sums in "
                "float32 and needs no scaling of the loss."
            )

    @property
    def compute_dtype(self) -> str:
        """The type of the operands of products."""
        return "bfloat16" if self.name == MIXED else self.name

    @property
    def variable_dtype(self) -> str:
        """The type of weights."""
        return "float32" if self.name == MIXED else self.name

    def get_config(self) -> dict[str, str]:
        """Return the name."""
        return {"name": self.name}


def dtype_policy() -> DTypePolicy:
    """Return the policy of all models: `set_dtype_policy`, else the float type."""
    return DTypePolicy(MIXED if _choices["mixed"] else floatx())


def set_dtype_policy(policy: Any) -> None:
    """Choose by Keras' name: "float32", "float64", or "mixed_bfloat16".

    The last is `set_precision("bf16")` on a GPU; a CPU computes in float32.
    """
    chosen = DTypePolicy(str(getattr(policy, "name", policy)))
    set_floatx(chosen.variable_dtype)
    _choices["mixed"] = chosen.name == MIXED
    _choices["precision"] = "bf16" if _choices["mixed"] else None


def _known_precision(name: str) -> str:
    if name not in PRECISIONS:
        raise ValueError(f"Unknown precision {name!r}. {closest(name, PRECISIONS)}")
    return name


def pin_threads() -> bool:
    """Tell whether threads stay on a core each: `set_pin_threads`, else GANGLION_PIN.

    They do by default; ``GANGLION_PIN=0`` lets the system move them.
    """
    chosen = _choices["pin"]
    if chosen is None:
        return os.environ.get("GANGLION_PIN", "1").strip().lower() not in _NO
    return bool(chosen)


def set_pin_threads(value: bool) -> None:
    """Choose whether each thread of a compiled program stays on a core."""
    _choices["pin"] = bool(value)


def closest(name: str, known: Iterable[str]) -> str:
    """Return a sentence that names the nearest known spellings, for error texts."""
    names = sorted(set(known))
    near = difflib.get_close_matches(str(name), names, n=3, cutoff=0.5)
    if near:
        return f"Did you mean {' or '.join(repr(one) for one in near)}?"
    return f"Known: {', '.join(names)}."


def _known_backend(name: str) -> str:
    if name not in BACKENDS:
        raise ValueError(f"Unknown backend {name!r}. {closest(name, BACKENDS)}")
    return name


def _positive(text: str, what: str) -> int:
    try:
        count = int(text)
    except ValueError:
        count = 0
    if count < 1:
        raise ValueError(f"{what} must be a whole number of at least 1, not {text!r}.")
    return count
