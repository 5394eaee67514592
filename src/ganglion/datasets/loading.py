"""Loading of a data set: from the cache if its file is sound, else from a source."""

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from ganglion import config, files
from ganglion.datasets import DataUnavailable, decode
from ganglion.datasets.decode import DamageError, Record
from ganglion.datasets.download import SourceError, fetching, say
from ganglion.datasets.sources import Source
from ganglion.system import budget
from ganglion.system.terminal import one_line


def folder() -> Path:
    """Return the folder of data sets: in ``GANGLION_HOME``, else the user's cache.

    >>> folder().name
    'datasets'
    """
    return config.home() / "datasets"


def read_cached(
    path: Path, sha256: str | None, read: Callable[[IO[bytes]], Any] = decode.npz
) -> Any:
    """Read a data set and check it; None where there is no such file."""
    try:
        # Opened here because np.load leaves the file open when it is damaged.
        with (
            files.open_file(path) as file,
            budget.reading(os.fstat(file.fileno()).st_size),
        ):
            arrays = read(file)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except decode.DAMAGE as error:
        raise DamageError(one_line(error)) from error
    check(arrays, sha256)
    return arrays


def check(arrays: Record, sha256: str | None) -> None:
    """Raise ``DamageError`` unless the arrays are exactly the ones expected."""
    if sha256 is None:  # checked by their reader, with another checksum
        return
    actual = arrays.sha256()
    if actual != sha256:
        raise DamageError(
            f"the arrays have SHA-256 {actual[:12]}..., expected {sha256[:12]}..."
        )


def write_npz(file: IO[bytes], arrays: Any) -> None:
    """Write the arrays of a data set; `decode.npz` reads them."""
    np.savez(file, **arrays._asdict())


def write_cached(
    path: Path,
    arrays: Record,
    write: Callable[[IO[bytes], Any], None] = write_npz,
) -> None:
    """Write a data set into the cache; a full disk leaves an old file as it was."""
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_file(path, lambda file: write(file, arrays))


@dataclass(frozen=True)
class DataSet:
    """All that is known of a data set before it is fetched.

    Args:
        name: Its name in code.
        title: Its name in messages.
        train_shape: The shape of the training data.
        test_shape: The shape of the test data.
        sha256: The sum of its arrays; None if `read` and the sources check them.
        sources: Returns where it can be had, in order.
        by_hand: Returns how a person can put it in place.
        read: Reads its file in the cache.
        write: Writes that file.
        kept_as: What that file is called, if not by the data set's name.
    """

    name: str
    title: str
    train_shape: tuple[int, ...]
    test_shape: tuple[int, ...]
    sha256: str | None
    sources: Callable[[], list[Source]]
    by_hand: Callable[[], str]
    read: Callable[[IO[bytes]], Any] = decode.npz
    write: Callable[[IO[bytes], Any], None] = write_npz
    kept_as: str = ""

    @property
    def file_name(self) -> str:
        """The name of its file in the cache."""
        return self.kept_as or f"{self.name}.npz"

    @property
    def path(self) -> Path:
        """The path of its file in the cache."""
        return folder() / self.file_name

    @property
    def raw_folder(self) -> Path:
        """The folder where a user can put its raw files."""
        return folder() / self.name


def load(data_set: DataSet, file_name: str | None = None) -> Any:
    """Return a data set's record of arrays, fetching and keeping it on first use."""
    path = folder() / (file_name or data_set.file_name)
    try:
        arrays = read_cached(path, data_set.sha256, data_set.read)
    except DamageError:
        arrays = None  # looked at again under the lock: it may be under repair
    if arrays is not None:
        return arrays
    waiting = f"another process is fetching {path.name}; waiting for it"
    with files.locked(path, lambda: say(waiting)):
        return _load_alone(data_set, path)


def _load_alone(data_set: DataSet, path: Path) -> Any:
    damage = "no such file"
    try:
        arrays = read_cached(path, data_set.sha256, data_set.read)
        if arrays is not None:
            return arrays
    except DamageError as error:
        damage = f"damaged: {error}"
        if path != data_set.path:  # only our own file may be overwritten
            raise ValueError(
                f"{path} is not {data_set.title} ({damage}). Give the path of a file "
                "that does not exist yet, move this one away, or call load_data() "
                "without a path"
            ) from error
        warnings.warn(f"{path} is {damage}; fetching it again", stacklevel=4)
    arrays = _from_sources(data_set, [(str(path), damage)])
    try:
        write_cached(path, arrays, data_set.write)
    except OSError as error:
        warnings.warn(
            f"{path.name} could not be kept in {path.parent} "
            f"({one_line(error)}), so it will be fetched again next time. "
            "Set GANGLION_HOME to a folder that can be written to",
            stacklevel=4,
        )
    return arrays


def _from_sources(data_set: DataSet, attempts: list[tuple[str, str]]) -> Record:
    with fetching() as report:
        for source in data_set.sources():
            try:
                arrays = source.fetch(report)
                check(arrays, data_set.sha256)
            except (SourceError, DamageError) as error:
                attempts.append((source.label, str(error)))
            else:
                say(f"fetched {data_set.title} ({source.label})")
                return arrays
    tried = "\n".join(f"  - {label}: {reason}" for label, reason in attempts)
    raise DataUnavailable(
        f"{data_set.title} cannot be had: it is not in the cache and no source works.\n"
        f"Tried:\n{tried}\n"
        f"To put it in place by hand:\n{data_set.by_hand()},\n"
        f"  or copy {data_set.file_name} from another machine's cache "
        f"to {folder()}\n"
        "GANGLION_HOME chooses another cache folder. "
        "ganglion.datasets.glyphs needs no download."
    )
