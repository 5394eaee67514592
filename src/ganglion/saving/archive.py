"""`.keras` archives: a zip file of a configuration, the weights and their origin.

Members are read by their exact names into memory; only the files that a layer of the
user's keeps are put into a folder, for its `load_assets`.
"""

from __future__ import annotations

import datetime
import io
import json
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from ganglion import serialization
from ganglion.config import VERSION
from ganglion.files import write_file
from ganglion.saving import h5, state, weights
from ganglion.system import budget
from ganglion.variables import uninitialized

CONFIG, METADATA, WEIGHTS = "config.json", "metadata.json", "model.weights.h5"
ASSETS = "assets"  # the folder of files that layers keep: word lists
KERAS_VERSION = "3.15.1"  # the version whose format this is

_MOST_CONFIG = 64 << 20
_MOST_MEMBERS = 10_000
# Keras stores members uncompressed; a generous ratio allows for a zip made by hand.
_FREE_BYTES = 64 << 20
_MOST_EXPANSION = 100


# ---- writing ---------------------------------------------------------------------


def to_json(model: Any, **kwargs: Any) -> str:
    """Return a model's configuration as JSON text."""
    with serialization.sharing():
        return json.dumps(serialization.serialize_keras_object(model), **kwargs)


def write(model: Any, file: BinaryIO, dated: bool = True) -> None:
    """Write a model into an open file; without a date, equal models are equal bytes."""
    metadata: dict[str, Any] = {"keras_version": KERAS_VERSION}
    metadata["written_by"] = f"ganglion {VERSION}"
    if dated:
        metadata["date_saved"] = f"{datetime.datetime.now():%Y-%m-%d@%H:%M:%S}"
    if is_model(model) and model.notes:  # Keras looks only at what it wrote itself
        metadata["notes"] = model.notes
    config = to_json(model)
    buffer = io.BytesIO()
    with h5.open_h5(buffer, "w") as store:
        weights.write(model, store)
        if is_model(model):
            state.write(model, store)
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(_entry(METADATA), json.dumps(metadata))
        archive.writestr(_entry(CONFIG), config)
        with archive.open(_entry(WEIGHTS), "w", force_zip64=True) as stored:
            stored.write(buffer.getbuffer())
        for name, data in _assets_of(model).items():
            archive.writestr(_entry(name), data)


def is_model(layer: Any) -> bool:
    """Return whether this is a model, not a layer that can be saved by itself."""
    return hasattr(layer, "fit")  # `Model` is above: it cannot be imported here


def _assets_of(model: Any) -> dict[str, bytes]:
    """Return the files that layers keep, by their names in the archive."""
    assets: dict[str, bytes] = {}
    for part in weights.parts_of(model):
        for name, data in _files_of(part.owner).items():
            assets["/".join(filter(None, (ASSETS, part.path, name)))] = data
    return assets


def _files_of(owner: Any) -> dict[str, bytes]:
    """Return the files of a layer; one of the user's writes them into a folder."""
    if hasattr(owner, "asset_files"):
        return owner.asset_files()
    if not hasattr(owner, "save_assets"):
        return {}
    with tempfile.TemporaryDirectory() as folder:
        owner.save_assets(folder)
        root = Path(folder)
        return {
            path.relative_to(root).as_posix(): path.read_bytes()
            for path in sorted(root.rglob("*"))
            if path.is_file() and not path.is_symlink()
        }


def _entry(name: str) -> zipfile.ZipInfo:
    # Always the same date: a zip file has none before 1980, but clocks may.
    entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    entry.external_attr = 0o600 << 16  # as Python writes members by their names
    return entry


# ---- reading ---------------------------------------------------------------------


def read(source: Any, custom_objects: Any, compiled: bool) -> Any:
    """Read a model from a path or an open file."""
    config, stored, notes, assets = _members(source)
    entry = parsed(config)
    training = entry.pop("compile_config", None)
    with (
        serialization.custom_object_scope(custom_objects or {}),
        h5.open_h5(io.BytesIO(stored)) as store,
    ):
        with uninitialized():
            model = rebuilt(entry)
        # Sizes are checked here, before anything is made that really needs memory.
        weights.read(model, store)
        _use_assets(model, assets)
        if not is_model(model):
            return model
        if compiled:
            compile_model(model, training)
            state.read_choices(model, store)
            weights.read_optimizers(model, store)
            state.read(model, store)
    model.notes = notes
    return model


def _use_assets(model: Any, assets: dict[str, bytes]) -> None:
    """Give each layer the files that it saved."""
    for part in weights.parts_of(model):
        folder = "/".join(filter(None, (ASSETS, part.path)))
        if hasattr(part.owner, "use_asset_files"):
            own = {
                name.removeprefix(f"{folder}/"): data
                for name, data in assets.items()
                if name.rpartition("/")[0] == folder
            }
            part.owner.use_asset_files(own, folder)
        elif hasattr(part.owner, "load_assets"):
            _load_assets(part.owner, assets, folder)


def _load_assets(owner: Any, assets: dict[str, bytes], folder: str) -> None:
    """Let a user's layer read its files from a folder."""
    with tempfile.TemporaryDirectory() as place:
        for name, data in assets.items():
            if not name.startswith(f"{folder}/"):
                continue
            path = Path(place, name.removeprefix(f"{folder}/"))  # names are checked
            path.parent.mkdir(parents=True, exist_ok=True)
            write_file(path, data)
        owner.load_assets(place)


def from_json(text: Any, custom_objects: Any) -> Any:
    """Rebuild a model, with fresh weights, from JSON."""
    entry = parsed(text)
    training = entry.pop("compile_config", None)
    with serialization.custom_object_scope(custom_objects or {}):
        model = rebuilt(entry)
        compile_model(model, training)
    return model


def rebuilt(entry: dict[str, Any]) -> Any:
    """Return the model that an entry describes."""
    with serialization.sharing():
        model = serialization.deserialize_keras_object(entry)
    if not hasattr(model, "save"):  # a model, or a FeatureSpace
        raise ValueError(f"it describes a {type(model).__name__}, not a model.")
    return model


def compile_model(model: Any, training: Any) -> None:
    """Compile a model as its file specifies, if it does."""
    if not training:
        return
    if not isinstance(training, dict):
        raise ValueError("its `compile_config` is not a dictionary.")
    try:
        model.compile_from_config(training)
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise ValueError(
            f"the model cannot be compiled as it was: {error} Pass `compile=False` to "
            "load it without its optimizer, loss and metrics."
        ) from error


def parsed(text: Any) -> dict[str, Any]:
    """Return the entry of a model from JSON text, checked for its outer shape."""
    entry = _parsed_json(text, "configuration")
    if not isinstance(entry, dict) or "class_name" not in entry:
        raise ValueError(
            "its configuration describes no model: a dictionary with `class_name` and "
            "`config` is expected."
        )
    if not isinstance(entry.get("config"), (dict, list)):
        raise ValueError("its configuration has no `config` of the model.")
    return entry


def _parsed_json(text: Any, name: str) -> Any:
    try:
        return budget.parsed_json(text)
    except budget.BudgetError:
        raise
    except ValueError as error:
        raise ValueError(f"its {name} is not valid JSON ({error}).") from error


def read_weights(source: Any) -> bytes:
    """Return the weights of an archive as the bytes of an HDF5 file."""
    return _members(source)[1]


def read_parts(source: Any) -> tuple[dict[str, Any], bytes, dict[str, Any]]:
    """Return the configuration of an archive, its weights and its metadata."""
    config, weights, _, _ = _members(source)
    with zipfile.ZipFile(source) as archive:
        metadata = _metadata(archive)
    return parsed(config), weights, metadata


def _members(source: Any) -> tuple[bytes, bytes, dict[str, Any], dict[str, bytes]]:
    with opened(source) as archive:
        return (
            member(archive, CONFIG, _MOST_CONFIG),
            member(archive, WEIGHTS, None),
            _notes(archive),
            {
                name: member(archive, name, None)
                for name in archive.namelist()
                if name.startswith(f"{ASSETS}/") and not name.endswith("/")
            },
        )


@contextmanager
def opened(source: Any, what: str = "`.keras` archive") -> Iterator[zipfile.ZipFile]:
    """Open a zip archive, without trust; whatever is wrong with it is a ValueError."""
    try:
        with zipfile.ZipFile(source) as archive:
            _check_names(archive)
            yield archive
    except (zipfile.BadZipFile, EOFError, NotImplementedError) as error:
        raise ValueError(
            f"it is not a {what}, or is damaged or cut short ({error})."
        ) from error
    except (zipfile.LargeZipFile, RuntimeError) as error:
        raise ValueError(f"its archive cannot be read ({error}).") from error
    except zlib.error as error:
        raise ValueError(f"its compressed data is damaged ({error}).") from error


def _notes(archive: zipfile.ZipFile) -> dict[str, Any]:
    """Return the `notes` of a model, {} where there is nothing of ours."""
    notes = _metadata(archive).get("notes")
    return notes if isinstance(notes, dict) else {}


def _metadata(archive: zipfile.ZipFile) -> dict[str, Any]:
    if METADATA not in archive.namelist():
        return {}
    text = member(archive, METADATA, _MOST_CONFIG)
    metadata = _parsed_json(text, f"member {METADATA!r}")
    return metadata if isinstance(metadata, dict) else {}


def _check_names(archive: zipfile.ZipFile) -> None:
    names = archive.namelist()
    if len(names) > _MOST_MEMBERS:
        raise ValueError(f"its archive has {len(names)} members: refused.")
    if len(set(names)) != len(names):
        raise ValueError("its archive has two members of the same name: refused.")
    for name in names:
        parts = name.replace("\\", "/").split("/")
        if name.startswith(("/", "\\")) or ".." in parts or ":" in parts[0]:
            raise ValueError(
                f"its archive has a member {name!r} that points out of it: refused."
            )


def member(archive: zipfile.ZipFile, name: str, most: int | None) -> bytes:
    """Read one member, and never more than it declares and the limit allows."""
    try:
        info = archive.getinfo(name)
    except KeyError:
        raise ValueError(f"its archive has no member {name!r}.") from None
    if info.flag_bits & 0x1:
        raise ValueError(f"its member {name!r} is encrypted.")
    if most is None:
        most = max(_FREE_BYTES, _MOST_EXPANSION * info.compress_size)
    if info.file_size > most:
        raise ValueError(
            f"its member {name!r} claims {info.file_size:,} bytes, of which "
            f"{info.compress_size:,} are stored: refused as a decompression bomb."
        )
    budget.take(info.file_size, f"its member {name!r}")
    with archive.open(info) as file:
        data = file.read(info.file_size + 1)
    if len(data) != info.file_size:
        raise ValueError(f"its member {name!r} is cut short.")
    return data
