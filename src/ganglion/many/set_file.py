"""A set of models in a single file: a zip archive whose members are `.keras` files.

`set.json` has the settings and histories, `models/0000.keras` and so on the models,
each of which can be extracted and loaded by itself. While a set is being trained, the
same files lie in a folder beside the archive's path, so that no finished model is lost.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
import tempfile
import warnings
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ganglion import files, saving
from ganglion.callbacks import History
from ganglion.many.model_set import Member, ModelSet
from ganglion.many.settings import ModelPlan, Setting
from ganglion.saving import archive
from ganglion.saving.files import check_exists, local_path, reading, write_checked
from ganglion.system import budget
from ganglion.variables import draw_seed

INDEX, FORMAT = "set.json", 1
_MOST_INDEX = 256 << 20  # bytes


def save(models: ModelSet, path: Any, overwrite: bool = True) -> None:
    """Save all models of a set, their settings and histories, in a single file.

    Args:
        models: The set.
        path: The file, a zip archive.
        overwrite: Whether to replace an existing file.
    """
    contents = (_keras_bytes(member.model) for member in models)
    _write_set(path, models, contents, overwrite=overwrite)


def _write_set(
    path: Any,
    members: Iterable[Member],
    contents: Iterable[bytes],
    extra: dict[str, Any] | None = None,
    overwrite: bool = True,
) -> None:
    """Write the records of models and the contents of their `.keras` files."""

    def write(file: BinaryIO) -> None:
        with zipfile.ZipFile(file, "w") as target:
            records = [_record(member) for member in members]
            index = {"format": FORMAT, "members": records, **(extra or {})}
            target.writestr(INDEX, json.dumps(index, indent=1))
            for number, content in enumerate(contents):
                target.writestr(_member_name(number), content)

    write_checked(path, write, overwrite)


def load(path: Any, custom_objects: dict[str, Any] | None = None) -> ModelSet:
    """Load a set written by `ModelSet.save` or `fit_many(resume=...)`.

    Settings are restored, except for arrays such as `rows`, of which only the shape and
    a checksum are kept.
    """
    with reading(path):
        check_exists(local_path(path))
        with archive.opened(local_path(path), "set of models") as stored:
            records = _records(archive.member(stored, INDEX, _MOST_INDEX))
            members = []
            for number, record in enumerate(records):
                content = io.BytesIO(archive.member(stored, _member_name(number), None))
                model = saving.load_model(content, custom_objects)
                members.append(_member(record, model))
    return ModelSet(members)


def _member_name(number: int) -> str:
    return f"models/{number:04d}.keras"


def _keras_bytes(model: Any) -> bytes:
    buffer = io.BytesIO()
    saving.save_model(model, buffer)
    return buffer.getvalue()


# ---- the record of a model, as JSON --------------------------------------------------


def plain(value: Any) -> Any:
    """Return a value of a setting as JSON has it; an array as its shape and checksum.

    An object, such as a regularizer, is its class and its configuration.

    >>> plain(np.float32(0.5)), plain((1, "a"))
    (0.5, [1, 'a'])
    """
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, dict):
        return {str(name): plain(part) for name, part in value.items()}
    if hasattr(value, "get_config") and not isinstance(value, type):
        return {"class": type(value).__name__, "config": plain(value.get_config())}
    if isinstance(value, (list, tuple)) and len(value) < 100:
        return [plain(part) for part in value]
    if isinstance(value, (np.ndarray, list, tuple, range)):
        array = np.asarray(value)
        digest = hashlib.sha256(array.tobytes()).hexdigest()[:16]
        return {"shape": list(array.shape), "sha256": digest}
    return (
        f"{type(value).__module__}.{getattr(value, '__name__', type(value).__name__)}"
    )


def _record(member: Member) -> dict[str, Any]:
    return {
        "index": member.index,
        "name": member.name,
        "setting": plain(member.setting),
        "seed": member.seed,
        "seconds": member.seconds,
        "message": member.message,
        "epoch": member.history.epoch,
        "history": {k: _listed(v) for k, v in member.history.history.items()},
    }


def _listed(values: list[Any]) -> list[Any]:
    return [np.asarray(value).tolist() for value in values]


def _records(content: bytes) -> list[dict[str, Any]]:
    data = budget.parsed_json(content)
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ValueError("it is not a set of models that this version can read.")
    records = data["members"]
    if not isinstance(records, list) or not all(isinstance(r, dict) for r in records):
        raise ValueError("its list of models is damaged.")
    return records


def _history(record: dict[str, Any], model: Any) -> History:
    history = History()
    history.set_model(model)
    history.epoch = [int(epoch) for epoch in record["epoch"]]
    history.history = {str(k): list(v) for k, v in record["history"].items()}
    history.message = record["message"]
    return history


def _member(record: dict[str, Any], model: Any) -> Member:
    seed = record["seed"]
    return Member(
        index=int(record["index"]),
        name=str(record["name"]),
        setting=dict(record["setting"]),
        seed=None if seed is None else int(seed),
        model=model,
        history=_history(record, model),
        seconds=float(record["seconds"]),
    )


# ---- from one process to another -----------------------------------------------------


def packed(member: Member) -> tuple[dict[str, Any], bytes]:
    """Return the record of a member and the bytes of a `.keras` file."""
    return _record(member), _keras_bytes(member.model)


def unpacked(
    plan: ModelPlan, model: Any, record: dict[str, Any], content: bytes
) -> Member:
    """Return a member from the result of `packed`; `model` takes its weights."""
    with tempfile.TemporaryDirectory(prefix="ganglion-") as folder:
        path = Path(folder, "model.keras")
        files.write_file(path, content)
        saving.load_checkpoint(path, model)
    return plan.member(model, _history(record, model), float(record["seconds"]))


# ---- while it is being trained -------------------------------------------------------


@contextmanager
def by_one_process(path: Any) -> Iterator[None]:
    """Let a single process at a time train the set at a path; others wait for it."""

    def on_wait() -> None:
        warnings.warn(
            f"Another call is training the set at {path}: waiting until it ends.",
            RuntimeWarning,
            stacklevel=7,
        )

    with files.locked(local_path(path), on_wait):
        yield


class SavedAsItGoes:
    """The folder of an incomplete set; the models in it are not trained again.

    Args:
        path: The file of the complete set.
        settings: The settings of all models, to compare with those in the folder.
        arguments: The arguments of `fit` for all of them.
        checksum: The checksum of the data.
    """

    def __init__(
        self,
        path: Any,
        settings: list[Setting],
        arguments: dict[str, Any],
        checksum: int,
    ) -> None:
        self.path = local_path(path)
        self._folder = self.path.with_name(f"{self.path.name}.parts")
        plan = {
            "format": FORMAT,
            "settings": plain([dict(setting) for setting in settings]),
            "arguments": plain(arguments),
            "data": checksum,
        }
        if self.path.exists() and not (self._folder / INDEX).exists():
            shutil.rmtree(self._folder, ignore_errors=True)  # a call stopped doing so
            self._unpack()
        if (self._folder / INDEX).exists():
            self.seeds: list[int] = self._checked(plan)
            return
        self.seeds = [draw_seed() for _ in settings]
        self._folder.mkdir(parents=True, exist_ok=True)
        self._write_plan(plan | {"seeds": self.seeds})

    def _write_plan(self, plan: dict[str, Any]) -> None:
        self._write(INDEX, json.dumps(plan).encode())

    def _write(self, name: str, content: bytes) -> None:
        files.write_file(self._folder / name, content)

    def _unpack(self) -> None:
        """Unpack a complete set, to be compared and read like an unfinished set."""
        with reading(self.path), archive.opened(self.path, "set of models") as stored:
            content = archive.member(stored, INDEX, _MOST_INDEX)
            data = budget.parsed_json(content)
            if "plan" not in data:
                raise ValueError(
                    "it is a set that was saved as a whole: load it with many.load, or "
                    "give `resume` another name."
                )
            with files.new_folder(self._folder) as folder:
                (folder / INDEX).write_text(json.dumps(data["plan"]))
                for number, record in enumerate(_records(content)):
                    path = folder / _part_name(number, "json")
                    path.write_bytes(_index_of_one(record))
                    content = archive.member(stored, _member_name(number), None)
                    path.with_suffix(".keras").write_bytes(content)

    @property
    def _way_out(self) -> str:
        if self.path.exists():
            return f"give `resume` another name, or remove {self.path}, {self._folder}"
        return f"remove {self._folder}"

    def _checked(self, plan: dict[str, Any]) -> list[int]:
        """Return the seeds of the set that is being resumed; refuse another set."""
        index = self._folder / INDEX
        with reading(index):
            before = budget.parsed_json(files.read_file(index))
            plan = json.loads(json.dumps(plan))  # as it looks when it is read
            for name, what in (
                ("settings", "settings"),
                ("arguments", "arguments of `fit`"),
                ("data", "data"),
            ):
                if before[name] != plan[name]:
                    raise ValueError(
                        f"the set at {self.path} was begun with other {what}: resume "
                        f"it with the same, or {self._way_out}."
                    )
            return [int(seed) for seed in before["seeds"]]

    def check(self, model: Any, is_built_anew: bool) -> None:
        """Refuse a first model that cannot be saved, or is not what it was before."""
        with zipfile.ZipFile(io.BytesIO(_keras_bytes(model))) as stored:
            ours = _comparable(json.loads(stored.read("config.json")))
        if not is_built_anew:  # names and numbers depend on what else was built
            return
        index = self._folder / INDEX
        plan = budget.parsed_json(files.read_file(index))
        before = plan.setdefault("model", ours)
        if before is ours:
            self._write_plan(plan)
        difference = _difference(before, ours)
        if difference is not None:
            raise ValueError(
                f"The set at {self.path} was begun with a builder whose first model was"
                f" not this one: {difference}. Resume it with the same builder, or "
                f"{self._way_out}."
            )

    def has(self, plan: ModelPlan) -> bool:
        """Return whether a model is finished."""
        return (self._folder / _part_name(plan.index, "json")).exists()

    def keep(self, member: Member) -> None:
        """Keep a model that is finished."""
        self._write(_part_name(member.index, "keras"), _keras_bytes(member.model))
        # Written last: `has` looks for it.
        record = _index_of_one(_record(member))
        self._write(_part_name(member.index, "json"), record)

    def read(self, plan: ModelPlan, model: Any) -> Member:
        """Return a finished model; `model` takes its weights."""
        path = self._folder / _part_name(plan.index, "json")
        with reading(path):
            (record,) = _records(files.read_file(path))
            history, seconds = _history(record, model), float(record["seconds"])
        saving.load_checkpoint(path.with_suffix(".keras"), model)
        return plan.member(model, history, seconds)

    def complete(self, models: ModelSet) -> None:
        """Write a file of the folder."""
        plan = json.loads(files.read_file(self._folder / INDEX))
        contents = (
            files.read_file(self._folder / _part_name(number, "keras"))
            for number in range(len(models))
        )
        _write_set(self.path, models, contents, {"plan": plan})
        (self._folder / INDEX).unlink()  # a folder without it is not read
        shutil.rmtree(self._folder)


def _comparable(config: Any) -> Any:
    """Return the configuration of a model without parts that differ by process."""
    if isinstance(config, dict):
        if config.get("class_name") == "__lambda__":  # its code has numbers of lines
            return "a lambda"
        return {name: _comparable(part) for name, part in config.items()}
    if isinstance(config, list):
        return [_comparable(part) for part in config]
    if isinstance(config, str):
        return re.sub(r" at 0x[0-9a-f]+", "", config)
    return config


def _difference(before: Any, now: Any, place: str = "") -> str | None:
    """Return in words where two configurations differ first, None if nowhere.

    >>> _difference({"layers": [{"units": 3}]}, {"layers": [{"units": 4}]})
    'layers/0/units was 3 and is 4'
    """
    pairs: list[tuple[Any, Any, Any]] | None = None
    if (
        isinstance(before, dict)
        and isinstance(now, dict)
        and before.keys() == now.keys()
    ):
        pairs = [(name, before[name], now[name]) for name in before]
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        pairs = [(n, *both) for n, both in enumerate(zip(before, now, strict=True))]
    if pairs is None:
        return (
            None if before == now else f"{place} was {before!r:.60} and is {now!r:.60}"
        )
    differences = (_difference(a, b, f"{place}/{n}".lstrip("/")) for n, a, b in pairs)
    return next((text for text in differences if text is not None), None)


def _part_name(number: int, ending: str) -> str:
    return f"{number:04d}.{ending}"


def _index_of_one(record: dict[str, Any]) -> bytes:
    return json.dumps({"format": FORMAT, "members": [record]}).encode()
