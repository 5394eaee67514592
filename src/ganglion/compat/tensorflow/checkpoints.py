"""`tf.train.Checkpoint`: the variables of several objects in one file.

The files are HDF5 with one array per variable, by the name of the object and the
variable's position in it; beside them, `checkpoint` lists the files that were kept.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ganglion import files, variables
from ganglion.saving import h5
from ganglion.saving.files import reading

_INDEX = "checkpoint"


class Checkpoint:
    """Models, optimizers and variables whose numbers are saved and restored together.

    >>> import tempfile
    >>> step = variables.Variable(3)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Checkpoint(step=step).save(folder + "/ckpt")
    ...     _ = step.assign(0)
    ...     status = Checkpoint(step=step).restore(path)
    >>> int(step.numpy()), os.path.basename(path)
    (3, 'ckpt-1')
    """

    def __init__(self, root: Any = None, **kwargs: Any) -> None:
        self._objects = {**({} if root is None else {"root": root}), **kwargs}
        self.__dict__.update(self._objects)
        self.save_counter = variables.Variable(0, trainable=False, name="save_counter")

    def save(self, file_prefix: Any, options: Any = None) -> str:
        """Write a file of the next number; return its path."""
        self.save_counter.assign_add(1)
        path = f"{os.fspath(file_prefix)}-{int(self.save_counter.numpy())}"
        self.write(path)
        folder = Path(path).parent
        _write_index(folder, [*_kept(folder), os.path.basename(path)])
        return path

    def write(self, file_prefix: Any, options: Any = None) -> str:
        """Write a file of exactly this name; return its path."""
        path = Path(os.fspath(file_prefix))
        path.parent.mkdir(parents=True, exist_ok=True)
        arrays = {
            f"{name}/{number}": np.asarray(variable.numpy())
            for name, owner in self._all().items()
            for number, variable in enumerate(_variables_of(owner))
        }

        def fill(file: Any) -> None:
            for name, array in arrays.items():
                file.create_dataset(name, data=array)

        h5.write_h5(path, fill)
        return str(path)

    def restore(self, save_path: Any, options: Any = None) -> LoadStatus:
        """Take the numbers of a file; of none where the path is None."""
        return LoadStatus() if save_path is None else self.read(save_path)

    def read(self, save_path: Any, options: Any = None) -> LoadStatus:
        """Take the numbers of a file."""
        path = Path(os.fspath(save_path))
        with reading(path), h5.open_h5(path) as file:
            h5.check_seal(file)
            stored = {
                name: [np.array(group[str(number)]) for number in range(len(group))]
                for name, group in file.items()
            }
        jobs = [
            (owner, _fitting(path, name, owner, stored[name]))
            for name, owner in self._all().items()
            if name in stored
        ]
        for owner, arrays in jobs:
            _assign(owner, arrays)
        own = set(self._all())
        return LoadStatus(own - set(stored), set(stored) - own)

    def _all(self) -> dict[str, Any]:
        return {**self._objects, "save_counter": self.save_counter}


class LoadStatus:
    """The result of a restoration, whose methods check whether it was complete."""

    def __init__(
        self, missing: set[str] | None = None, unused: set[str] | None = None
    ) -> None:
        self._missing, self._unused = missing or set(), unused or set()

    def assert_consumed(self) -> LoadStatus:
        """Refuse objects without saved numbers, and saved numbers without object."""
        return self._refused(self._missing | self._unused)

    def assert_existing_objects_matched(self) -> LoadStatus:
        """Refuse objects without saved numbers."""
        return self._refused(self._missing)

    def _refused(self, names: set[str]) -> LoadStatus:
        if names:
            raise AssertionError(
                f"Not both in the checkpoint and among its objects: "
                f"{', '.join(sorted(names))}."
            )
        return self

    def assert_nontrivial_match(self) -> LoadStatus:
        """Return this: a file of which nothing fits is refused when it is read."""
        return self

    expect_partial = assert_nontrivial_match


class CheckpointManager:
    """Keeps the newest files of a checkpoint in a folder."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        directory: Any,
        max_to_keep: int | None,
        checkpoint_name: str = "ckpt",
        *,
        init_fn: Callable[[], Any] | None = None,
    ) -> None:
        self.checkpoint = checkpoint
        self.directory = os.fspath(directory)
        self._most = max_to_keep
        self._name = checkpoint_name
        self._init = init_fn

    @property
    def checkpoints(self) -> list[str]:
        """The paths of the files that are kept, the oldest first."""
        names = _kept(Path(self.directory))
        return [os.path.join(self.directory, name) for name in names]

    @property
    def latest_checkpoint(self) -> str | None:
        """The path of the newest file, None if there is none."""
        return latest_checkpoint(self.directory)

    def save(self, checkpoint_number: Any = None) -> str:
        """Write the next file, and remove those that are too many; return its path."""
        prefix = os.path.join(self.directory, self._name)
        if checkpoint_number is not None:
            self.checkpoint.save_counter.assign(int(checkpoint_number) - 1)
        path = self.checkpoint.save(prefix)
        names = _kept(Path(self.directory))
        while self._most and len(names) > self._most:
            Path(self.directory, names.pop(0)).unlink(missing_ok=True)
        _write_index(Path(self.directory), names)
        return path

    def restore_or_initialize(self) -> str | None:
        """Restore the newest file, or call `init_fn` if there is none."""
        path = self.latest_checkpoint
        if path is not None:
            self.checkpoint.restore(path)
        elif self._init is not None:
            self._init()
        return path


def latest_checkpoint(checkpoint_dir: Any) -> str | None:
    """Return the path of the newest file in a folder, None if there is none.

    Where no checkpoint was saved, weights may have been, under a name without ending.
    """
    folder = Path(os.fspath(checkpoint_dir))
    names = _kept(folder) or _weights_in(folder)
    return os.path.join(os.fspath(checkpoint_dir), names[-1]) if names else None


def _weights_in(folder: Path) -> list[str]:
    """Return the files of `save_weights` in TensorFlow's manner, the oldest first."""
    if not folder.is_dir():
        return []
    plain = [
        path
        for path in folder.iterdir()
        if path.is_file() and path.suffix not in (".h5", ".hdf5", ".keras")
    ]
    checkpoints = [path for path in plain if _starts_as_hdf5(path)]
    checkpoints.sort(key=lambda path: (path.stat().st_mtime_ns, path.name))
    return [path.name for path in checkpoints]


def _starts_as_hdf5(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(8) == b"\x89HDF\r\n\x1a\n"


# ---- the list of files in a folder ---------------------------------------------------


def _kept(folder: Path) -> list[str]:
    path = folder / _INDEX
    if not path.is_file():
        return []
    try:
        names = json.loads(files.read_file(path))
    except ValueError as error:
        raise ValueError(f"{path} is not a list of checkpoints: {error}") from None
    plain = [name for name in names if isinstance(name, str) and name]
    return [n for n in plain if os.path.basename(n) == n and (folder / n).is_file()]


def _write_index(folder: Path, names: list[str]) -> None:
    unique = list(dict.fromkeys(reversed(names)))[::-1]
    files.write_file(folder / _INDEX, json.dumps(unique).encode())


# ---- variables of objects ------------------------------------------------------------


def _variables_of(owner: Any) -> list[Any]:
    if isinstance(owner, variables.Variable):
        return [owner]
    if isinstance(owner, (list, tuple)):
        return [variable for part in owner for variable in _variables_of(part)]
    if isinstance(owner, dict):
        return [variable for key in owner for variable in _variables_of(owner[key])]
    if isinstance(owner, Checkpoint):
        return _variables_of(owner._objects)
    held = getattr(owner, "variables", None)
    if held is None:
        raise TypeError(
            f"tf.train.Checkpoint: {type(owner).__name__} has no variables to save. "
            "Pass models, layers, optimizers, metrics and variables."
        )
    return list(held() if callable(held) else held)


def _fitting(
    path: Path, name: str, owner: Any, arrays: list[np.ndarray]
) -> list[np.ndarray]:
    """Return the arrays of an object; refuse those that do not fit it."""
    if _waits_for_build(owner):
        return arrays
    own = [tuple(variable.shape) for variable in _variables_of(owner)]
    stored = [array.shape for array in arrays]
    if own != stored:
        hint = "" if own else " Call the model once on data, so that it has weights."
        raise ValueError(
            f"{path}: `{name}` was saved with {len(stored)} variables of shapes "
            f"{stored}, but has {len(own)} of shapes {own}.{hint}"
        )
    return arrays


def _waits_for_build(owner: Any) -> bool:
    is_optimizer = hasattr(owner, "apply_gradients") and hasattr(owner, "build")
    return is_optimizer and not owner.built


def _assign(owner: Any, arrays: list[np.ndarray]) -> None:
    if not _waits_for_build(owner):
        for variable, array in zip(_variables_of(owner), arrays, strict=True):
            variable.assign(array)
        return
    build = owner.build

    @functools.wraps(build)
    def build_and_restore(*args: Any, **kwargs: Any) -> Any:
        owner.build = build
        result = build(*args, **kwargs)
        _assign(owner, _fitting(Path("the checkpoint"), "optimizer", owner, arrays))
        return result

    owner.build = build_and_restore
