"""How a data set is had: from the cache if it is whole, else from the first source."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ganglion.files import locked

from . import cache
from .arrays import Arrays
from .errors import DamageError, DataUnavailable, SourceError, one_line
from .report import fetching, say
from .sources import Source

Attempts = list[tuple[str, str]]


@dataclass(frozen=True)
class DataSet:
    """All that is known of a data set before it is fetched."""

    name: str
    title: str
    train_shape: tuple[int, ...]
    test_shape: tuple[int, ...]
    sha256: str
    sources: Callable[[], list[Source]]
    by_hand: Callable[[], str]

    @property
    def file_name(self) -> str:
        """What its file in the cache is called."""
        return f"{self.name}.npz"

    @property
    def path(self) -> Path:
        """Where it is kept."""
        return cache.folder() / self.file_name

    @property
    def raw_folder(self) -> Path:
        """Where a person can put its raw files."""
        return cache.folder() / self.name


def load(data_set: DataSet, file_name: str | None = None) -> Arrays:
    """Return a data set's arrays, fetching and keeping them on first use."""
    path = cache.folder() / (file_name or data_set.file_name)
    try:
        arrays = cache.read(path, data_set.sha256)
    except DamageError:
        arrays = None  # looked at again under the lock: it may be under repair
    if arrays is not None:
        return arrays
    with locked(path, lambda: _say_waiting(path)):
        return _load_alone(data_set, path)


def _say_waiting(path: Path) -> None:
    say(f"another process is fetching {path.name}; waiting for it")


def _load_alone(data_set: DataSet, path: Path) -> Arrays:
    damage = "no such file"
    try:
        arrays = cache.read(path, data_set.sha256)
        if arrays is not None:
            return arrays
    except DamageError as error:
        damage = f"damaged: {error}"
        _refuse_to_replace_a_foreign_file(data_set, path, damage)
        warnings.warn(f"{path} is {damage}; fetching it again", stacklevel=4)
    arrays = _from_sources(data_set, [(str(path), damage)])
    _keep(path, arrays)
    return arrays


def _refuse_to_replace_a_foreign_file(
    data_set: DataSet, path: Path, damage: str
) -> None:
    """Only our own file may be overwritten; one the caller named is theirs."""
    if path != data_set.path:
        raise ValueError(
            f"{path} is not {data_set.title} ({damage}). Give the path of a file that "
            "does not exist yet, move this one away, or call load_data() without a path"
        )


def _from_sources(data_set: DataSet, attempts: Attempts) -> Arrays:
    with fetching(data_set.title) as report:
        for source in data_set.sources():
            try:
                arrays = source.fetch(report)
                cache.check(arrays, data_set.sha256)
            except (SourceError, DamageError) as error:
                attempts.append((source.label, str(error)))
            else:
                say(f"fetched {data_set.title} ({source.label})")
                return arrays
    raise _unavailable(data_set, attempts)


def _unavailable(data_set: DataSet, attempts: Attempts) -> DataUnavailable:
    tried = "\n".join(f"  - {label}: {reason}" for label, reason in attempts)
    return DataUnavailable(
        f"{data_set.title} cannot be had: it is not in the cache and no source works.\n"
        f"Tried:\n{tried}\n"
        f"To put it in place by hand:\n{data_set.by_hand()},\n"
        f"  or copy {data_set.file_name} from another machine's cache "
        f"to {cache.folder()}\n"
        "GANGLION_HOME chooses another cache folder. "
        "ganglion.datasets.glyphs needs no download."
    )


def _keep(path: Path, arrays: Arrays) -> None:
    try:
        cache.write(path, arrays)
    except OSError as error:
        warnings.warn(
            f"{path.name} could not be kept in {path.parent} "
            f"({one_line(error)}), so it will be fetched again next time. "
            "Set GANGLION_HOME to a folder that can be written to",
            stacklevel=5,
        )
