"""The modules `tensorflow`, `tensorflow.nn`, ... : names from the table, on demand."""

from __future__ import annotations

import ast
import difflib
import importlib
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

from ganglion import ops, symbolic
from ganglion.compat import aliases
from ganglion.compat.tensorflow import complexes, draws, dtypes, names, texts
from ganglion.compat.tensorflow.object_names import OBJECTS
from ganglion.compat.tensorflow.objects import InvalidArgumentError
from ganglion.compiler.ir.graph import ShapeError

_OWN = frozenset({
    "arrays", "boxes", "checks", "complexes", "control", "devices", "draws",
    "encodings", "gfile", "host", "linalg", "nets", "pictures", "reductions", "runtime",
    "signals", "special", "texts",
})  # fmt: skip
# Arguments that are one tensor each; numbers and lists are converted for functions of
# these modules, which ask for shapes and types.
_TENSORS = frozenset({
    "a", "arr", "data", "diagonal", "image", "images", "img1", "img2", "indices",
    "input", "input_", "labels", "logits", "matrix", "params", "per_example_loss",
    "predictions", "signal", "signals", "t", "tensor", "x", "y",
})  # fmt: skip
_PLAIN = (list, tuple, bool, int, float)
_NUMERIC = (
    "arrays", "boxes", "control", "draws", "linalg", "nets", "pictures", "reductions",
    "signals", "special",
)  # fmt: skip
# Labels and hints for TensorFlow's graphs, which change no result.
_HINTS = ("name", "parallel_iterations", "back_prop", "swap_memory", "validate_indices")
_DRAWING = ("random.", "image.random_", "nn.dropout")


class RefusedShapeError(ShapeError, InvalidArgumentError):
    """Shapes that do not fit: a ValueError of ours, and what TensorFlow calls it."""


class Entry(NamedTuple):
    """A function of TensorFlow's and ours, with their arguments in the same order."""

    arguments: tuple[str, ...]
    defaults: dict[str, Any]  # of TensorFlow, where ours are others
    target: str
    ours: tuple[str, ...]  # `*` at the end takes any number
    constants: dict[str, Any]  # further arguments of ours


@cache
def table() -> dict[str, Entry]:
    """Return all functions by their names behind `tf.`."""
    entries = {}
    for modules, text in names.FUNCTIONS:
        for line in filter(None, map(str.strip, text.splitlines())):
            name, entry = _parsed(line)
            for module in modules.split(" "):
                entries[f"{module}.{name}".lstrip(".")] = entry
    return entries


def _parsed(line: str) -> tuple[str, Entry]:
    theirs, _, ours = line.partition(") = ")
    name, _, inside = theirs.partition("(")
    target, _, our_inside = ours.rstrip(")").partition("(")
    pairs = [part.partition("=") for part in inside.split(", ") if part]
    our_pairs = [part.partition("=") for part in our_inside.split(", ") if part]
    constants = {key: _value(text) for key, _, text in our_pairs if text}
    return name, Entry(
        tuple(key for key, _, _ in pairs),
        {key: _value(text) for key, _, text in pairs if text},
        target,
        tuple(key for key, _, text in our_pairs if not text),
        constants,
    )


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except ValueError:
        return text  # the name of a type


def find(name: str) -> Any:
    """Return `tf.name`; an `AttributeError` explains why it is missing."""
    if name in dtypes.NAMES or name in dtypes.ALIASES:
        return dtypes.as_dtype(name)
    if name.removeprefix("dtypes.") in dtypes.NAMES:
        return dtypes.as_dtype(name.removeprefix("dtypes."))
    if name in ("__version__", "version.VERSION"):
        return aliases.version_of("tensorflow")
    name = names.OLD_FUNCTIONS.get(name, name)
    try:
        if name in table():
            return _function(name, table()[name])
        if name in OBJECTS:
            return _object(OBJECTS[name])
    except AttributeError as error:
        raise AttributeError(f"tensorflow.{name}: {error}") from None
    if name in ("keras", "python.keras", "compat.v1.keras"):
        return aliases.KerasModule("tensorflow.keras")
    if name in names.KERAS_MODULES:
        return importlib.import_module(f"ganglion.{name}")
    if is_module(name):
        return load(name)
    raise AttributeError(explain(name))


def _object(path: str) -> Any:
    module, _, attribute = path.rpartition(".")
    package = "ganglion" + (f".{module}" if module else "")
    return getattr(importlib.import_module(package), attribute)


def _function(name: str, entry: Entry) -> Callable[..., Any]:
    module, _, attribute = entry.target.rpartition(".")
    path = f"compat.tensorflow.{module}" if module in _OWN else module or "ops"
    return _renamed(name, entry, _object(f"{path}.{attribute}"))


def _renamed(
    name: str, entry: Entry, function: Callable[..., Any]
) -> Callable[..., Any]:
    """Return a function of ours that takes the arguments of TensorFlow's."""
    renamed = dict(zip(entry.arguments, entry.ours, strict=True))
    is_open = entry.arguments[-1:] == ("*",)
    fixed = len(entry.arguments) - is_open
    on_texts = texts.ON_TEXTS.get(name)
    is_numeric = entry.target.partition(".")[0] in _NUMERIC
    tensors = [key for key in entry.arguments if is_numeric and key in _TENSORS]
    is_numeric_call = not entry.target.startswith(("complexes.", "signals."))
    is_drawing = name.startswith(_DRAWING) and name != "random.set_seed"

    def called(*args: Any, **kwargs: Any) -> Any:
        for label in _HINTS:
            kwargs.pop(label, None)
        for old in names.OLD_ARGUMENTS.keys() & kwargs.keys() - renamed.keys():
            kwargs[names.OLD_ARGUMENTS[old]] = kwargs.pop(old)
        if is_numeric_call and complexes.has_pairs((args, kwargs)):
            return complexes.called(name, called, args, kwargs)
        if on_texts is not None and texts.has_texts((args, kwargs)):
            return on_texts(*args, **kwargs)
        if is_open:
            return function(*args, **kwargs)
        if len(args) > fixed:
            raise TypeError(f"tf.{name} takes {fixed} arguments, got {len(args)}.")
        arguments = {
            **entry.defaults,
            **dict(zip(entry.arguments, args, strict=False)),
            **kwargs,
        }
        unknown = set(arguments) - set(renamed)
        if unknown:
            raise TypeError(
                f"tf.{name}: the argument {min(unknown)!r} is not supported; those "
                f"here are {', '.join(entry.arguments)}."
            )
        for key in tensors:
            if type(arguments.get(key)) in _PLAIN:
                arguments[key] = ops.convert_to_tensor(arguments[key])
        if is_drawing and isinstance(arguments.get("seed"), int):
            arguments["seed"] = draws.lasting_seed(arguments["seed"])
        ours = {renamed[key]: value for key, value in arguments.items()}
        try:
            return function(**ours, **entry.constants)
        except (ShapeError, TypeError, NotImplementedError) as error:
            if is_numeric and symbolic.any_symbolic(ours):
                # It needs sizes that are not known yet: a step of the model.
                return symbolic.record(function, (), {**ours, **entry.constants})
            if isinstance(error, ShapeError):
                raise RefusedShapeError(str(error), sizes=error.sizes) from None
            raise

    called.__name__ = called.__qualname__ = name.rpartition(".")[2]
    called.__doc__ = f"TensorFlow's `tf.{name}`, as `{entry.target}`."
    return called


@cache
def _modules() -> frozenset[str]:
    modules = {"keras", "python", "dtypes", "version", *names.KERAS_MODULES}
    for name in (*table(), *OBJECTS):
        while name := name.rpartition(".")[0]:
            modules.add(name)
    return frozenset(modules)


def is_module(name: str) -> bool:
    """Return whether `tf.name` is a module that has something in it."""
    return name in _modules()


def explain(name: str) -> str:
    """Return why `tf.name` is missing, and what to do instead."""
    prefix = name
    while prefix and prefix not in names.REASONS:
        prefix = prefix.rpartition(".")[0]
    reason = names.REASONS.get(prefix) or next(
        (why for start, why in names.REASONS.items() if name.startswith(start)),
        names.ANYTHING_ELSE,
    )
    known = [*table(), *OBJECTS]
    similar = difflib.get_close_matches(name, known, n=2, cutoff=0.8)
    meant = " or ".join(f"tf.{other}" for other in similar)
    return f"tensorflow.{name}: {reason}" + (f" Did you mean {meant}?" if meant else "")


class Namespace(ModuleType):
    """A module of TensorFlow's, whose names are looked up when they are used."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "TensorFlow's names on Ganglion's ops.")
        self.__path__: list[str] = []
        self._prefix = name.removeprefix("tensorflow").lstrip(".")

    def __getattr__(self, name: str) -> Any:
        full = f"{self._prefix}.{name}" if self._prefix else name
        if name.startswith("__") and full != "__version__":
            raise AttributeError(name)
        value = find(full)
        setattr(self, name, value)
        return value

    def __dir__(self) -> list[str]:
        start = f"{self._prefix}." if self._prefix else ""
        known = [*table(), *OBJECTS, *_modules()]
        inside = {name.removeprefix(start) for name in known if name.startswith(start)}
        return sorted(name for name in inside if "." not in name)


def load(name: str) -> ModuleType:
    """Return the module `tensorflow.name`; an `ImportError` explains its absence."""
    if name and not is_module(name):
        raise ModuleNotFoundError(explain(name))
    return Namespace(f"tensorflow.{name}" if name else "tensorflow")
