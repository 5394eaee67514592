"""A trained model for places without Ganglion: C, machine code, WebAssembly, ONNX."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ganglion import files
from ganglion.export import formats
from ganglion.saving.files import local_path

__all__ = ["Exported", "export_model"]


class Exported(NamedTuple):
    """The files that were written, and notes about them."""

    format: str
    files: tuple[Path, ...]
    notes: tuple[str, ...]

    def __str__(self) -> str:
        sizes = [f"{path} ({_size(path.stat().st_size)})" for path in self.files]
        return "\n".join([f"Wrote {', '.join(sizes)}.", *self.notes])


def export_model(
    model: Any,
    filepath: str | os.PathLike[str],
    format: str | None = None,  # noqa: A002 (Keras' word)
    **options: Any,
) -> Exported:
    """Write a model in a format that needs no Ganglion; all of its files, or none.

    Args:
        model: A built model.
        filepath: Where to.
        format: The name of a format; by default that of the path's suffix.
        options: Options of the format; None means the default.

    Returns:
        The files, and notes about them.
    """
    path = local_path(filepath)
    row = formats.find(format, path)
    chosen = {name: value for name, value in options.items() if value is not None}
    _check_options(row, chosen)
    _check_place(path)
    if not model.built:
        raise ValueError(
            f'The model "{model.name}" has no weights yet: call it on data, or start '
            "it with an Input, before it is exported."
        )
    artifact = row.writer()(model, path, **chosen)
    try:
        files.write_files(artifact.files)
    except IsADirectoryError as error:
        raise _folder_error(error.filename) from None
    except OSError as error:
        raise OSError(
            error.errno,
            f"Cannot export to {filepath}: {error.strerror or error}. Nothing was "
            "changed; files that were there before are intact.",
        ) from error
    return Exported(row.name, tuple(artifact.files), artifact.notes)


def _check_options(row: formats.Format, chosen: Mapping[str, Any]) -> None:
    unknown = [name for name in chosen if name not in row.options]
    if unknown:
        known = ", ".join(row.options) or "none"
        raise ValueError(
            f"The format {row.name!r} has no option {', '.join(unknown)}; its options: "
            f"{known}."
        )


def _check_place(path: Path) -> None:
    if path.is_dir():
        raise _folder_error(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"Cannot export to {path}: there is no folder {path.parent}. Make it first."
        )
    files.refuse_special(path, "write")


def _folder_error(path: str | Path) -> IsADirectoryError:
    return IsADirectoryError(f"Cannot export to {path}: it is a folder.")


def _size(count: int) -> str:
    for unit in ("bytes", "KB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}" if unit != "bytes" else f"{count} bytes"
        count /= 1000  # type: ignore[assignment]
    return f"{count:.3g} GB"
