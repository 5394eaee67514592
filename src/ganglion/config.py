"""Global choices: float type, epsilon, image layout, backend and thread count.

>>> from ganglion import config
>>> config.floatx()
'float32'
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
import types
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

VERSION = "0.1.0"  # the only place: pyproject.toml reads it here
DISTRIBUTION = "ganglion-nn"  # what is installed; the index's `ganglion` is not ours
FLOAT_TYPES = ("bfloat16", "float16", "float32", "float64")
BACKENDS = ("auto", "cpu", "numpy", "cuda")
PRECISIONS = ("tf32", "bf16", "float32")
DATA_FORMATS = ("channels_last", "channels_first")
MIXED = "mixed_bfloat16"
MOST_THREADS = 256  # or four for each core: beyond that, it is a mistake
_YES, _NO = ("1", "yes", "on", "true"), ("0", "no", "off", "false")

# The purpose of each environment variable; see docs/environment.md.
ENVIRONMENT = {
    "GANGLION_BACKEND": "who computes: auto, cpu, numpy or cuda",
    "GANGLION_CPU": "a lesser processor to compile for, by LLVM's name",
    "GANGLION_DEBUG": "whether the command line shows stack traces",
    "GANGLION_FILE_LIMIT": "how many bytes reading a file may take",
    "GANGLION_HOME": "the folder of all that is kept",
    "GANGLION_PIN": "whether threads stay on a core each",
    "GANGLION_PRECISE": "whether every sum is taken plainly",
    "GANGLION_PRECISION": "how float32 is multiplied: tf32, bf16 or float32",
    "GANGLION_THREADS": "how many threads a compiled program uses",
    "GANGLION_VERIFY": "whether the compiler checks itself after every pass",
}

_choices: dict[str, object] = {
    "stands_for_keras": False,
    "floatx": "float32",
    "epsilon": 1e-7,
    "backend": None,
    "threads": None,
    "pin": None,
    "precise": None,
    "precision": None,
    "verify": None,
    "policy": None,
    "image_data_format": "channels_last",
    "interactive_logging": True,
    "flash_attention": None,
    "max_epochs": None,
    "max_steps_per_epoch": None,
}
_here = threading.local()  # settings of a single Python thread


def floatx() -> str:
    """Return the float type of numbers that have none, "float32" unless it was set."""
    return str(_choices["floatx"])


def set_floatx(value: str) -> None:
    """Choose the float type of data, losses and metrics, and of new weights.

    The type of weights may also be chosen apart, by `set_dtype_policy`.
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
    """Return where layers expect the channels of images by default."""
    return str(_choices["image_data_format"])


def set_image_data_format(data_format: str) -> None:
    """Choose ``"channels_last"`` or ``"channels_first"`` for layers made from now on.

    The compiler works with the channels last: the other order costs transposes at
    the borders of what a step computes.
    """
    _choices["image_data_format"] = data_format_of(str(data_format))


def data_format_of(data_format: str | None) -> str:
    """Return a layout by its name in any case; None means the one that was chosen.

    >>> data_format_of("Channels_First")
    'channels_first'
    """
    if data_format is None:
        return image_data_format()
    layout = str(data_format).lower()
    if layout not in DATA_FORMATS:
        known = " or ".join(map(repr, DATA_FORMATS))
        raise ValueError(f"`data_format` must be {known}, got {data_format!r}.")
    return layout


def home() -> Path:
    """Return the folder of all that is kept: GANGLION_HOME, else the user's cache."""
    chosen = os.environ.get("GANGLION_HOME")
    if not chosen:
        import platformdirs

        chosen = platformdirs.user_cache_dir("ganglion")
    return Path(chosen).expanduser()


def backend() -> str:
    """Return the backend in use: `set_backend`, else GANGLION_BACKEND, else auto.

    ``"auto"`` means ``"cpu"``, the compiler, where llvmlite can be loaded, else
    for ``"numpy"``; a model that is worth it goes to the GPU, where there is one.

    In a script that imports Ganglion as Keras, it is the name of a backend of Keras:
    KERAS_BACKEND, else ``"tensorflow"``.
    """
    if stands_for_keras():
        return os.environ.get("KERAS_BACKEND") or "tensorflow"
    return backend_in_use()


def stand_for_keras(chosen: bool) -> None:
    """Choose whether scripts take this for Keras, and ask for Keras' backends."""
    _choices["stands_for_keras"] = chosen


def stands_for_keras() -> bool:
    """Return whether scripts take this for Keras."""
    return bool(_choices["stands_for_keras"])


def backend_in_use() -> str:
    """Return the backend in use, whatever `backend()` returns to a script."""
    name = backend_choice()
    return _best_backend() if name == "auto" else name


def backend_choice() -> str:
    """Return the backend that was requested; ``"auto"`` if none was."""
    if _choices["backend"]:
        return str(_choices["backend"])
    chosen = environment_variable("GANGLION_BACKEND")
    return known_backend(chosen, "GANGLION_BACKEND") if chosen else "auto"


@cache
def _best_backend() -> str:
    try:
        import llvmlite.binding  # noqa: F401
    except (ImportError, OSError):
        return "numpy"
    return "cpu"


def set_backend(backend: str) -> None:
    """Choose the backend by name; see ``ganglion info`` for those found here."""
    _choices["backend"] = known_backend(backend)


def threads() -> int:
    """Return the thread count: `set_threads`, else GANGLION_THREADS, else all cores.

    Inside of `limited_threads`, it is the limit of that block.
    """
    chosen = getattr(_here, "threads", None) or _choices["threads"]
    if chosen is not None:
        return int(str(chosen))
    text = os.environ.get("GANGLION_THREADS")
    return usable_cores() if text is None else _threads_of_variable(text)


@cache
def _threads_of_variable(text: str) -> int:
    return threads_of(text, "GANGLION_THREADS")


def usable_cores() -> int:
    """Return how many cores this thread may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def set_threads(count: int) -> None:
    """Choose how many threads a compiled program uses."""
    _choices["threads"] = threads_of(count, "threads")


@contextmanager
def limited_threads(count: int) -> Iterator[None]:
    """Let the programs that this thread of Python runs use so many threads at most.

    >>> with limited_threads(1):
    ...     threads()
    1
    """
    before = getattr(_here, "threads", None)
    _here.threads = min(count, threads())
    try:
        yield
    finally:
        _here.threads = before


def threads_of(value: Any, name: str = "--threads") -> int:
    """Return a number of threads; refuse what is none, or more than can be meant.

    >>> threads_of("2")
    2
    """
    most = max(MOST_THREADS, 4 * (os.cpu_count() or 1))
    text = str(value).strip()
    count = int(text) if text.isascii() and text.isdecimal() else 0
    if not 1 <= count <= most:
        problem = f"not {value!r}" if text else "and is empty"
        raise ValueError(
            f"{name} must be an integer of at least 1 and at most {most}, "
            f"{problem}; without it, all cores are used ({usable_cores()} here)."
        )
    return count


def load_average() -> float | None:
    """Return how much work the machine had in the last minute, None if unknown.

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
    return _switch("GANGLION_PRECISE", False) if chosen is None else bool(chosen)


def set_precise(value: bool) -> None:
    """Choose whether every sum must be taken plainly."""
    _choices["precise"] = bool(value)


def precision() -> str:
    """Return how float32 is multiplied: `set_precision`, else GANGLION_PRECISION.

    ``"tf32"`` rounds operands to 11 bits, ``"bf16"`` to 8, ``"float32"`` not at all;
    sums are float32 in any case, and float64 stays float64. A CPU rounds for ``"bf16"``
    alone, and only in products of matrices.
    """
    if _choices["precision"]:
        return str(_choices["precision"])
    chosen = environment_variable("GANGLION_PRECISION")
    if not chosen:
        return "tf32"
    return _known(chosen, "precision", PRECISIONS, "GANGLION_PRECISION")


def set_precision(name: str) -> None:
    """Choose how float32 is multiplied: "tf32", "bf16" or "float32"."""
    _choices["precision"] = _known(name, "precision", PRECISIONS)


def verifies_passes() -> bool:
    """Return whether the compiler checks what every pass returns, or nothing.

    `set_verify_passes`, else GANGLION_VERIFY; tests and `ganglion dump` do.
    """
    chosen = _choices["verify"]
    return _switch("GANGLION_VERIFY", False) if chosen is None else bool(chosen)


def set_verify_passes(value: bool) -> None:
    """Choose whether the compiler checks what every pass returns."""
    _choices["verify"] = bool(value)


def dtype_policy() -> Any:
    """Return the policy of new layers: `set_dtype_policy`, else the float type."""
    from ganglion.dtypes import DTypePolicy

    return _choices["policy"] or DTypePolicy(floatx())


def set_dtype_policy(policy: Any) -> None:
    """Choose by Keras' name what new layers compute in, and the type of their weights.

    "mixed_bfloat16" is `set_precision("bf16")`, too: its products take such operands
    anyway.
    """
    from ganglion.dtypes import DTypePolicy, policy_by_name

    if isinstance(policy, str):
        policy = policy_by_name(policy)
    elif not isinstance(policy, DTypePolicy):
        raise ValueError(
            "Invalid `policy` argument: expected a name such as 'mixed_float16' or a "
            f"DTypePolicy, got {policy!r} (of type {type(policy)})."
        )
    _choices["policy"] = policy
    _choices["precision"] = "bf16" if policy.name == MIXED else None


def pin_threads() -> bool:
    """Return whether threads stay on a core each: `set_pin_threads`, else GANGLION_PIN.

    They do by default; ``GANGLION_PIN=0`` lets the system move them.
    """
    chosen = _choices["pin"]
    return _switch("GANGLION_PIN", True) if chosen is None else bool(chosen)


def set_pin_threads(value: bool) -> None:
    """Choose whether each thread of a compiled program stays on a core."""
    _choices["pin"] = bool(value)


def closest(name: str, known: Iterable[str]) -> str:
    """Return a sentence that names the nearest known spellings, for error texts."""
    import difflib  # only errors need it

    names = sorted(set(known))
    similar = difflib.get_close_matches(str(name), names, n=3, cutoff=0.5)
    if similar:
        return f"Did you mean {' or '.join(repr(name) for name in similar)}?"
    return f"Known: {', '.join(names)}."


def known_backend(name: str, variable: str = "") -> str:
    """Return the name of a backend; refuse an unknown one, naming where it was set."""
    return _known(name, "backend", BACKENDS, variable)


def _known(name: str, kind: str, names: Iterable[str], variable: str = "") -> str:
    if name not in names:
        lead = f"{variable}: " if variable else ""
        raise ValueError(f"{lead}Unknown {kind} {name!r}. {closest(name, names)}")
    return name


_encoded_name = cache(os.environ.encodekey)  # as a key of the environment


def environment_variable(name: str) -> str:
    """Return a variable of the environment as it is now, "" if it is not set.

    Every step reads some that are hardly ever set, and `os.environ` is slow if one is
    missing: its dictionary is read first.

    >>> environment_variable("NOT_SET")
    ''
    """
    names = getattr(os.environ, "_data", None)
    if names is not None and _encoded_name(name) not in names:
        return ""
    return os.environ.get(name, "")


def _switch(variable: str, default: bool) -> bool:
    """Return the value of an on/off variable; the default where it is empty."""
    text = environment_variable(variable).strip().lower()
    if not text:
        return default
    if text not in (*_YES, *_NO):
        raise ValueError(
            f"{variable} must be one of {', '.join(_YES)}, or {', '.join(_NO)}, not "
            f"{os.environ[variable]!r}."
        )
    return text in _YES


def traced_choices() -> tuple[object, ...]:
    """Return the choices that a program depends on, besides the model itself."""
    choices = (backend_choice(), precise(), precision(), floatx(), epsilon())
    return (*choices, image_data_format())


def debugs() -> bool:
    """Return whether the command line shows stack traces (GANGLION_DEBUG)."""
    return _switch("GANGLION_DEBUG", False)


def check_environment() -> None:
    """Refuse variables that cannot be meant, before anything is compiled.

    Otherwise a number of threads, say, would be looked at by the first program that is
    large enough for several.
    """
    for read in ENVIRONMENT_READERS:
        read()


# Each reads one variable, and refuses a value that cannot be meant.
ENVIRONMENT_READERS = (
    backend_choice,
    threads,
    precise,
    precision,
    pin_threads,
    debugs,
    verifies_passes,
)


# ---- progress and stack traces ------------------------------------------------------


def enable_interactive_logging() -> None:
    """Show progress on standard output (this is how Ganglion starts)."""
    _choices["interactive_logging"] = True


def disable_interactive_logging() -> None:
    """Send progress to the logger named ``ganglion`` instead of standard output."""
    _choices["interactive_logging"] = False


def is_interactive_logging_enabled() -> bool:
    """Return whether progress goes to standard output."""
    return bool(_choices["interactive_logging"])


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
    package = str(Path(__file__).parent)
    kept = [frame for frame in frames if not frame.filename.startswith(package)]
    lines = traceback.format_list(kept or frames)
    lines += traceback.format_exception_only(kind, error)
    sys.stderr.write("Traceback (most recent call last):\n" + "".join(lines))


# ---- limits for a quick look --------------------------------------------------------


def set_max_epochs(max_epochs: int | None) -> None:
    """Let no `fit` run for more epochs than this; None takes the limit away."""
    _choices["max_epochs"] = max_epochs


def max_epochs() -> int | None:
    """Return the limit of epochs: `set_max_epochs`, else KERAS_MAX_EPOCHS."""
    return _limit("max_epochs", "KERAS_MAX_EPOCHS")


def set_max_steps_per_epoch(max_steps_per_epoch: int | None) -> None:
    """Let no epoch of `fit`, `evaluate` or `predict` have more steps than this."""
    _choices["max_steps_per_epoch"] = max_steps_per_epoch


def max_steps_per_epoch() -> int | None:
    """Return the limit of steps, else that of KERAS_MAX_STEPS_PER_EPOCH."""
    return _limit("max_steps_per_epoch", "KERAS_MAX_STEPS_PER_EPOCH")


def _limit(name: str, variable: str) -> int | None:
    if _choices[name] is not None:
        return int(_choices[name])  # type: ignore[call-overload]
    text = environment_variable(variable).strip()
    if text and not text.isdecimal():
        raise ValueError(f"{variable} must be an integer, not {text!r}.")
    return int(text) if text else None


# ---- automatic choices ---------------------------------------------------------------


def enable_flash_attention() -> None:
    """Allow flash attention; how attention is computed, the compiler chooses."""
    _choices["flash_attention"] = None


def disable_flash_attention() -> None:
    """Change nothing: the compiler chooses how attention is computed."""
    _choices["flash_attention"] = False


def is_flash_attention_enabled() -> bool | None:
    """Return False if it was disabled, else None, as Keras does."""
    return None if _choices["flash_attention"] is None else False


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
