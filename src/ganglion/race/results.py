"""The results of a race: plain records, in `results.json` (docs/results-schema.md).

JSON has no NaN and no infinity, and a diverged training has both: they are written as
the strings "NaN", "Infinity" and "-Infinity", so that any JSON reader takes the file.
"""

from __future__ import annotations

import json
import math
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from ganglion import files
from ganglion.system import budget

SCHEMA = 1
FILE = "results.json"
STATUSES = ("done", "failed")
DEVICES = ("cpu", "cuda")
SCORES = ("accuracy", "loss")  # what a test is judged by
_NOT_IN_JSON = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class ResultsError(ValueError):
    """A results file that cannot be read; the text says which, why, and a remedy."""


@dataclass(frozen=True)
class Epoch:
    """One epoch of a run, tested at its end."""

    number: int
    train_loss: float
    train_accuracy: float
    test_loss: float
    test_accuracy: float
    train_seconds: float
    test_seconds: float

    @property
    def seconds(self) -> float:
        """The run time: training and testing."""
        return self.train_seconds + self.test_seconds

    def tested(self, score: str) -> float:
        """Return the test's "accuracy" or "loss"."""
        return self.test_accuracy if score == "accuracy" else self.test_loss


@dataclass(frozen=True)
class Run:
    """One engine's training from its first weights to its last test."""

    engine: str
    number: int  # from 1
    seed: int
    status: str  # one of STATUSES
    reason: str = ""
    log_end: str = ""
    form: str = ""
    import_seconds: float = 0.0
    prepare_seconds: float = 0.0  # build, compile, warm-up
    train_seconds: float = 0.0
    test_seconds: float = 0.0
    epochs: tuple[Epoch, ...] = ()
    first_losses: tuple[float, ...] = ()
    parameters: int = 0
    peak_memory: int = 0  # bytes
    started: str = ""  # ISO 8601, UTC
    settings: dict[str, Any] = field(default_factory=dict)  # of a sweep
    where: str = ""  # the node of a cluster

    @property
    def done(self) -> bool:
        """Whether the run came to its end."""
        return self.status == "done"

    @property
    def accuracy(self) -> float | None:
        """The test accuracy after the last epoch."""
        return self.tested("accuracy")

    def tested(self, score: str) -> float | None:
        """Return the test's "accuracy" or "loss" after the last epoch."""
        return self.epochs[-1].tested(score) if self.epochs else None

    @property
    def seconds(self) -> float:
        """The run time: training and testing."""
        return self.train_seconds + self.test_seconds

    @property
    def total_seconds(self) -> float:
        """The total time of a user: import, preparation, training, testing."""
        return self.import_seconds + self.prepare_seconds + self.seconds


@dataclass(frozen=True)
class Skipped:
    """An engine that was requested and is missing; the reason says how to get it."""

    engine: str
    reason: str


@dataclass(frozen=True)
class ExactSteps:
    """The first steps once more in float64: taken where they part in float32."""

    learning_rate: float
    apart: float  # the largest relative difference in any step
    losses: dict[str, tuple[float, ...]]  # by engine; of those that race
    missing: dict[str, str] = field(default_factory=dict)  # who took none, and why
    settings: dict[str, Any] = field(default_factory=dict)  # of a sweep


@dataclass(frozen=True)
class Race:
    """A complete comparison: what was raced, where, and every run so far.

    >>> race = Race("mnist-mlp", "784 → 10", 1, 128, 1, 2, "cpu", 0, ("torch",))
    >>> race.complete, race.schema
    (False, 1)
    """

    recipe: str
    title: str
    epochs: int
    batch_size: int
    runs: int
    threads: int
    device: str  # one of DEVICES
    seed: int
    engines: tuple[str, ...]
    machine: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    commit: str = ""
    command: str = ""
    install_sizes: dict[str, int] = field(default_factory=dict)  # bytes
    published: list[dict[str, Any]] = field(default_factory=list)
    skipped: tuple[Skipped, ...] = ()
    finished: tuple[Run, ...] = ()
    complete: bool = False
    started: str = ""  # ISO 8601, UTC
    sweep: dict[str, list[Any]] = field(default_factory=dict)  # values of each key
    on: str = ""  # the cluster; one machine if empty
    images: dict[str, Any] = field(default_factory=dict)  # the folder, if it is of one
    exact_steps: tuple[ExactSteps, ...] = ()  # none where float32 keeps in step
    limit: float = 0.0  # seconds a run may take, if requested; 0: by trial
    memory: int = 0  # bytes of address space a run may take; 0: any
    score: str = "accuracy"  # one of SCORES
    schema: int = SCHEMA


def save(race: Race, folder: str | Path) -> Path:
    """Write a race into a folder, which is made if need be; return the file.

    The file is replaced atomically: readers get a complete race, also if this process
    is killed.

    >>> import tempfile
    >>> race = Race("mnist-mlp", "784 → 10", 1, 128, 1, 2, "cpu", 0, ("torch",))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = save(race, folder)
    ...     path.name, load(folder) == race
    ('results.json', True)
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(_plain(race), indent=1, ensure_ascii=False, allow_nan=False)
    # A lone surrogate (a log cut in mid-character) has no UTF-8: it becomes a "?".
    data = (text + "\n").encode("utf-8", "replace")
    return files.write_file(folder / FILE, data)


def load(folder_or_file: str | Path) -> Race:
    """Read a race from its folder or file; a `ResultsError` explains failures."""
    path = Path(folder_or_file)
    if path.is_dir():
        path = path / FILE
    try:
        text = files.read_file(path).decode()
    except FileNotFoundError:
        raise ResultsError(
            f"{path} does not exist; give a folder that `ganglion race --out` wrote."
        ) from None
    except UnicodeDecodeError as error:
        raise _damaged(path, f"it is not UTF-8 text ({error.reason})") from None
    try:
        with budget.reading(len(text)):
            data = budget.parsed_json(text)
    except ValueError as error:
        raise _damaged(path, f"it is not JSON ({error})") from None
    _check_schema(path, data)
    try:
        race = _read(Race, data, "")
        _check(race)
    except _WrongError as error:
        raise _damaged(path, str(error)) from None
    return race


def _damaged(path: Path, why: str) -> ResultsError:
    return ResultsError(
        f"{path} is damaged: {why}. Repair or remove the file, or run the race again."
    )


def _check_schema(path: Path, data: Any) -> None:
    if not isinstance(data, dict) or "schema" not in data:
        raise ResultsError(
            f"{path} has no schema number: it is not a file of `ganglion race`."
        )
    if data["schema"] != SCHEMA or isinstance(data["schema"], bool):
        raise ResultsError(
            f"{path} has schema {data['schema']!r:.20}; this Ganglion reads schema "
            f"{SCHEMA}. Read it with the Ganglion that wrote it, or run the race again."
        )


class _WrongError(ValueError):
    """A value that does not fit; the text says where it is and what belongs there."""


_NAMES: dict[Any, str] = {int: "an integer", str: "a text", bool: "true or false"}


def _read(kind: Any, data: Any, where: str) -> Any:
    """Return JSON data as a value of a type, or say where it does not fit."""
    if kind is Any:
        return data
    if kind is float:
        return _float(data, where)
    if kind in _NAMES:
        if not isinstance(data, kind) or (kind is int and isinstance(data, bool)):
            raise _WrongError(f"{where} must be {_NAMES[kind]}, not {_brief(data)}")
        return data
    if is_dataclass(kind):
        return _record(kind, data, where)
    container, parts = get_origin(kind), get_args(kind)
    if container is dict:
        if not isinstance(data, dict):
            raise _WrongError(f"{where} must be an object, not {_brief(data)}")
        return {k: _read(parts[1], v, f"{where}.{k}") for k, v in data.items()}
    if not isinstance(data, list):
        raise _WrongError(f"{where} must be a list, not {_brief(data)}")
    return container(_read(parts[0], v, f"{where}[{i}]") for i, v in enumerate(data))


def _float(data: Any, where: str) -> float:
    if isinstance(data, str) and data in _NOT_IN_JSON:
        return _NOT_IN_JSON[data]
    if isinstance(data, (int, float)) and not isinstance(data, bool):
        try:
            return float(data)
        except OverflowError:
            pass
    raise _WrongError(f"{where} must be a number, not {_brief(data)}")


def _record(kind: Any, data: Any, where: str) -> Any:
    if not isinstance(data, dict):
        raise _WrongError(f"{where} must be an object, not {_brief(data)}")
    prefix, types, values = f"{where}." if where else "", _types(kind), {}
    for part in fields(kind):
        name = part.name
        if name in data:
            values[name] = _read(types[name], data[name], prefix + name)
        elif part.default is MISSING and part.default_factory is MISSING:
            raise _WrongError(f"{prefix}{name} is missing")
    return kind(**values)


@cache
def _types(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _check(race: Race) -> None:
    """Check what types do not express."""
    if race.device not in DEVICES:
        raise _WrongError(f"device must be one of {DEVICES}, not {_brief(race.device)}")
    if race.score not in SCORES:
        raise _WrongError(f"score must be one of {SCORES}, not {_brief(race.score)}")
    for i, run in enumerate(race.finished):
        if run.status not in STATUSES:
            where = f"finished[{i}].status"
            raise _WrongError(
                f"{where} must be one of {STATUSES}, not {_brief(run.status)}"
            )
    for i, row in enumerate(race.published):
        for key, kind in (("system", str), (race.score, float), ("time", str)):
            where = f"published[{i}].{key}"
            if key not in row:
                raise _WrongError(f"{where} is missing")
            row[key] = _read(kind, row[key], where)


def _brief(data: Any) -> str:
    text = json.dumps(data)
    return text if len(text) <= 40 else text[:37] + "…"


def _plain(value: Any) -> Any:
    """Return a value as JSON can hold it; NumPy's numbers become Python's."""
    if is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in fields(value)]
        return {name: _plain(getattr(value, name)) for name in names}
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"
    return value
