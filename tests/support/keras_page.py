"""Writes `docs/keras.md`: every public name of Keras, and what it is here.

A name is "yes" if it is here, is of the same kind, has Keras' signature, and does more
than refuse. Everything else needs a reason in the tables below, or next door in
`signature_exceptions.py`. Rows of `docs/differences.md` are shown beside the names they
are about.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
import warnings
from collections import Counter
from collections.abc import Iterator
from types import ModuleType
from typing import Any, NamedTuple

from folders import ROOT
from signature_exceptions import CLASSES, FUNCTIONS
from signatures import find, parameters, spelled_out

import ganglion

PAGE = ROOT / "docs" / "keras.md"

_FOREIGN = (
    "a step is compiled as a whole, and cannot run another framework's code: write the "
    "model in layers of Keras and copy its weights by `set_weights`"
)
_SAVED_FORMATS = "use `save`, and `export` of Keras on the file"
_ONE_DEVICE = "one device trains: more are refused; use one process a device"
_LEGACY = "works as today's optimizer; in Keras it only raises an error"

# By the end of the path; the longest that fits counts.
NO = {
    "ExportArchive": _SAVED_FORMATS,
    "FlaxLayer": _FOREIGN,
    "JaxLayer": _FOREIGN,
    "OrbaxCheckpoint": "Orbax stores arrays of JAX: use `ModelCheckpoint` or "
    "`BackupAndRestore`",
    "TFSMLayer": _FOREIGN,
    "TorchModuleWrapper": _FOREIGN,
    "enable_unsafe_deserialization": "a file must not run code: register a function, "
    "and name it in the model",
}
DIFFERS = {
    **{path.removeprefix("layers."): reason for path, reason in CLASSES.items()},
    **{path.rpartition(".")[2]: reason for path, reason in FUNCTIONS.items()},
    **{
        f"optimizers.legacy.{name}": _LEGACY
        for name in ("Adagrad", "Adam", "Ftrl", "Optimizer", "RMSprop", "SGD")
    },
    "distribution.DataParallel": _ONE_DEVICE,
    "distribution.ModelParallel": _ONE_DEVICE,
    "distribution.distribute_tensor": _ONE_DEVICE,
    "distribution.initialize": _ONE_DEVICE,
    "distribution.set_distribution": _ONE_DEVICE,
    "l1_l2": "a function, with Keras 2's strengths in a Keras 2 script",
    "name_scope": "has the arguments of Keras on JAX; on TensorFlow they are **kwargs",
    "smart_resize": "no **kwargs: Keras takes only `backend_module` there",
}

_DENSE = "`sparse=True` is refused: arrays are dense"
# Values of arguments that are refused; the rest works.
REFUSED = {
    **dict.fromkeys(
        (
            *("CategoryEncoding", "HashedCrossing", "Hashing", "IntegerLookup"),
            *("StringLookup", "bincount", "multi_hot", "one_hot"),
        ),
        _DENSE,
    ),
    **dict.fromkeys(
        ("Input", "InputLayer", "TextVectorization"),
        "`sparse=True` and `ragged=True` are refused: arrays are dense",
    ),
    **dict.fromkeys(
        ("save_model", "save_weights"),
        "`zipped=False` and shards are refused: one file is written",
    ),
    **dict.fromkeys(
        ("model_to_dot", "plot_model"),
        "`expand_nested=True` is refused: plot the nested models one by one",
    ),
    "TensorBoard": "`profile_batch` is refused but for 0",
    "image_dataset_from_directory": "`channels_first` is refused",
}


class Row(NamedTuple):
    """A public name of Keras."""

    module: str
    name: str
    verdict: str  # yes, differs or no
    note: str


def modules(module: ModuleType, path: str = "keras") -> Iterator[tuple[str, Any]]:
    """Yield every public module of Keras with its path."""
    yield path, module
    for name, value in sorted(vars(module).items()):
        is_public = isinstance(value, ModuleType) and not name.startswith("_")
        if is_public and re.match(r"keras\.(?!src\b)", value.__name__):
            yield from modules(value, f"{path}.{name}")


def rows(keras: ModuleType) -> list[Row]:
    """Return every public name, module by module."""
    notes = _differences()
    table = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of paths of Keras 2 that Keras still has
        for path, module in modules(keras):
            for name, theirs in sorted(vars(module).items()):
                if not name.startswith("_") and not isinstance(theirs, ModuleType):
                    verdict, note = _judge(f"{path}.{name}", theirs, notes)
                    table.append(Row(path, name, verdict, note))
    return table


def _judge(path: str, theirs: Any, notes: dict[str, list[str]]) -> tuple[str, str]:
    ours = find(ganglion, path.removeprefix("keras."))
    if ours is None or only_refuses(ours):
        return "no", _by_path(NO, path)
    equal = parameters(ours) in (parameters(theirs), spelled_out(theirs))
    if inspect.isclass(ours) != inspect.isclass(theirs) or not equal:
        return "differs", _by_path(DIFFERS, path)
    if any(path.endswith(f".{end}") for end in DIFFERS if "." in end):
        return "differs", _by_path(DIFFERS, path)
    about = "; ".join(_by_path(notes, path) or ())
    parts = [_by_path(REFUSED, path), f"[but]({_DIFFERENCES}): {about}" * bool(about)]
    return "yes", "; ".join(part for part in parts if part)


def _by_path(table: dict[str, Any], path: str) -> Any:
    """Return the entry of the longest end of a path, or an empty text."""
    parts = path.split(".")
    ends = (".".join(parts[start:]) for start in range(len(parts)))
    return next((table[end] for end in ends if end in table), "")


def only_refuses(thing: Any) -> bool:
    """Return whether a function, or the making of an object, does nothing but raise."""
    try:
        function = thing.__init__ if inspect.isclass(thing) else inspect.unwrap(thing)
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return False
    definition = tree.body[0]
    if not isinstance(definition, ast.FunctionDef):
        return False
    body = [line for line in definition.body if not _is_text(line)]
    return len(body) == 1 and (
        isinstance(body[0], ast.Raise) or ast.unparse(body[0]).startswith("_refuse(")
    )


def _is_text(line: ast.stmt) -> bool:
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant)


_DIFFERENCES = "differences.md"


def _differences() -> dict[str, list[str]]:
    """Return what `docs/differences.md` is about, by the names in its first column."""
    text = (ROOT / "docs" / _DIFFERENCES).read_text(encoding="utf-8")
    notes: dict[str, list[str]] = {}
    for subject in re.findall(r"^\| ([^|]+) \|", text, re.M):
        for name in re.findall(r"`([\w.]+)[`(]", subject):
            notes.setdefault(name, []).append(subject)
    return notes


def share(table: list[Row]) -> float:
    """Return which part of the names is here as in Keras."""
    return sum(row.verdict == "yes" for row in table) / len(table)


def page(table: list[Row]) -> str:
    """Return the text of the page."""
    counts = Counter(row.verdict for row in table)
    noted = sum(row.verdict == "yes" and bool(row.note) for row in table)
    lines = [
        "# Every public name of Keras 3.15",
        "",
        f"**{len(table):,} names: {counts['yes']:,} yes ({share(table):.1%}), "
        f"{counts['differs']} differ, {counts['no']} no.**",
        "",
        "*Yes*: the name is here with Keras' signature (names, order and defaults of "
        f"the arguments). {noted} of these refuse a value of an argument, or do "
        "one thing otherwise on purpose: *but* says what it is about, and "
        f"[differences.md]({_DIFFERENCES}) what happens and why. *Differs*: another "
        "signature, or a part that is refused. *No*: absent, or there only to say what "
        "to do instead.",
        "",
        "Written by `pytest tests/test_keras_page.py --update-golden`, which compares "
        "with Keras itself; not to be edited.",
    ]
    for module in dict.fromkeys(row.module for row in table):
        lines += ["", f"## {module}", "", "| name | | |", "|---|---|---|"]
        lines += [_line(row) for row in table if row.module == module]
    return "\n".join(lines) + "\n"


def _line(row: Row) -> str:
    note = row.note.replace("**", r"\*\*")
    return f"| `{row.name}` | {row.verdict} | {note} |".replace("|  |", "| |")
