"""Switches of Keras that say how a program runs, not what it computes.

They are read and set as `ganglion.config.enable_interactive_logging()` and the like.
"""

from __future__ import annotations

import os
import sys
import traceback
import types
import warnings
from pathlib import Path
from typing import Any

_PACKAGE = str(Path(__file__).parent)

_LIMITS = {
    "max_epochs": "KERAS_MAX_EPOCHS",
    "max_steps_per_epoch": "KERAS_MAX_STEPS_PER_EPOCH",
}
_switches: dict[str, Any] = {
    "interactive_logging": True,
    "flash_attention": None,
    "max_epochs": None,
    "max_steps_per_epoch": None,
}


# ---- progress and stack traces ------------------------------------------------------


def enable_interactive_logging() -> None:
    """Show progress on standard output (this is how Ganglion starts)."""
    _switches["interactive_logging"] = True


def disable_interactive_logging() -> None:
    """Send progress to the logger named ``ganglion`` instead of standard output."""
    _switches["interactive_logging"] = False


def is_interactive_logging_enabled() -> bool:
    """Return whether progress goes to standard output."""
    return bool(_switches["interactive_logging"])


def enable_traceback_filtering() -> None:
    """Leave Ganglion's own lines out of the stack trace that ends a program."""
    sys.excepthook = _print_filtered


def disable_traceback_filtering() -> None:
    """Print stack traces as they are (this is how Ganglion starts)."""
    if is_traceback_filtering_enabled():
        sys.excepthook = sys.__excepthook__


def is_traceback_filtering_enabled() -> bool:
    """Return whether Ganglion's own lines are left out of stack traces."""
    return sys.excepthook is _print_filtered


def _print_filtered(
    kind: type[BaseException],
    error: BaseException,
    trace: types.TracebackType | None,
) -> None:
    frames = traceback.extract_tb(trace)
    kept = [frame for frame in frames if not frame.filename.startswith(_PACKAGE)]
    lines = traceback.format_list(kept or frames)
    lines += traceback.format_exception_only(kind, error)
    sys.stderr.write("Traceback (most recent call last):\n" + "".join(lines))


# ---- limits for a quick look --------------------------------------------------------


def set_max_epochs(max_epochs: int | None) -> None:
    """Let no `fit` run for more epochs than this; None takes the limit away."""
    _switches["max_epochs"] = max_epochs


def max_epochs() -> int | None:
    """Return the limit of epochs: `set_max_epochs`, else KERAS_MAX_EPOCHS."""
    return _limit("max_epochs")


def set_max_steps_per_epoch(max_steps_per_epoch: int | None) -> None:
    """Let no epoch of `fit`, `evaluate` or `predict` have more steps than this."""
    _switches["max_steps_per_epoch"] = max_steps_per_epoch


def max_steps_per_epoch() -> int | None:
    """Return the limit of steps, else that of KERAS_MAX_STEPS_PER_EPOCH."""
    return _limit("max_steps_per_epoch")


def _limit(name: str) -> int | None:
    if _switches[name] is not None:
        return int(_switches[name])
    variable = _LIMITS[name]
    text = os.environ.get(variable, "").strip()
    if text and not text.isdecimal():
        raise ValueError(f"{variable} must be a whole number, not {text!r}.")
    return int(text) if text else None


def limited(name: str, value: int | None, most: int | None) -> int | None:
    """Return a number of epochs or steps, or the limit with a warning."""
    if not most or (value is not None and value <= most):
        return value
    warnings.warn(f"Limiting {name} to {most}", stacklevel=4)
    return most


# ---- what Ganglion decides by itself -------------------------------------------------


def enable_flash_attention() -> None:
    """Allow flash attention; how attention is computed, the compiler chooses."""
    _switches["flash_attention"] = None


def disable_flash_attention() -> None:
    """Do without flash attention; how attention is computed, the compiler chooses."""
    _switches["flash_attention"] = False


def is_flash_attention_enabled() -> bool | None:
    """Return False if it was disabled, else None, as Keras does."""
    value: bool | None = _switches["flash_attention"]
    return value


def is_nnx_enabled() -> bool:
    """Return False: NNX belongs to Keras' JAX backend."""
    return False


def enable_unsafe_deserialization() -> None:
    """Refuse: nothing that is loaded from a file is ever executed."""
    raise ValueError(
        "Ganglion never executes code from a file, so that there is nothing to enable: "
        "define the function by name, pass it in `custom_objects` when loading, or "
        "replace the Lambda layer by one of your own."
    )
