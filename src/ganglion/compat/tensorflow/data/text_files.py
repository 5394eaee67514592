"""Data sets of text files: lines, and tables of comma-separated values."""

from __future__ import annotations

import csv
import glob
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from ganglion.compat.tensorflow.data.dataset import Dataset
from ganglion.compat.tensorflow.dtypes import DType


def _files(file_pattern: Any) -> list[str]:
    is_text = isinstance(file_pattern, (str, bytes, os.PathLike))
    is_single = is_text or getattr(file_pattern, "shape", None) == ()
    patterns = [file_pattern] if is_single else list(file_pattern)
    names = [name for part in patterns for name in sorted(glob.glob(_path(part)))]
    if not names:
        raise ValueError(f"No file fits {file_pattern!r}.")
    return names


def _path(pattern: Any) -> str:
    return os.fsdecode(pattern.item() if isinstance(pattern, np.ndarray) else pattern)


def TextLineDataset(  # noqa: N802 (TensorFlow's name)
    filenames: Any,
    compression_type: Any = None,
    buffer_size: Any = None,
    num_parallel_reads: Any = None,
    name: str | None = None,
) -> Dataset:
    """Return a data set of the lines of text files."""
    if compression_type:
        raise NotImplementedError(
            f"tf.data.TextLineDataset: compression_type={compression_type!r} is not "
            "supported; unpack the files first."
        )
    names = _files(filenames)

    def start() -> Iterator[Any]:
        for path in names:
            with Path(path).open("rb") as file:
                for line in file:
                    yield np.array(line.rstrip(b"\r\n"), object)

    return Dataset(start)


def make_csv_dataset(
    file_pattern: Any,
    batch_size: int,
    column_names: list[str] | None = None,
    column_defaults: list[Any] | None = None,
    label_name: str | None = None,
    select_columns: list[str] | None = None,
    field_delim: str = ",",
    use_quote_delim: bool = True,
    na_value: str = "",
    header: bool = True,
    num_epochs: int | None = None,
    shuffle: bool = True,
    shuffle_buffer_size: int = 10000,
    shuffle_seed: int | None = None,
    prefetch_buffer_size: int | None = None,
    num_parallel_reads: int | None = None,
    sloppy: bool = False,
    num_rows_for_inference: int | None = 100,
    compression_type: Any = None,
    ignore_errors: bool = False,
    encoding: str = "utf-8",
) -> Dataset:
    """Return batches of the rows of tables: a dictionary of columns, and the labels.

    `column_defaults` are the types of the columns, or what an empty field means;
    without them, a column is of integers, of numbers or of texts, by its fields. Rows
    that cannot be read so are left out if `ignore_errors`.
    """
    if compression_type:
        raise NotImplementedError(
            f"make_csv_dataset: compression_type={compression_type!r} is not "
            "supported; unpack the files first."
        )
    quoting = csv.QUOTE_MINIMAL if use_quote_delim else csv.QUOTE_NONE
    column_names, rows = _rows_of(
        file_pattern,
        column_names,
        header,
        encoding,
        delimiter=field_delim,
        quoting=quoting,
    )
    chosen = select_columns or column_names
    defaults: list[Any] = column_defaults or [None] * len(chosen)
    if ignore_errors:
        pairs = dict(zip(chosen, defaults, strict=True))
        kinds = [pairs.get(name) for name in column_names]
        rows = [row for row in rows if _is_readable(row, kinds, na_value)]
    _check_fields(rows, column_names)
    fields = dict(zip(column_names, zip(*rows, strict=True), strict=True))
    columns = {
        name: _column(name, fields[name], default, na_value)
        for name, default in zip(chosen, defaults, strict=True)
    }
    data: Any = columns
    if label_name is not None:
        label = columns.pop(label_name)
        data = (columns, label)
    dataset = Dataset.from_tensor_slices(data)
    if shuffle:
        dataset = dataset.shuffle(shuffle_buffer_size, shuffle_seed)
    # As in TensorFlow: batches go over the ends of epochs, and there is no end of them.
    return dataset.repeat(num_epochs).batch(
        batch_size, drop_remainder=num_epochs is None
    )


def _rows_of(
    file_pattern: Any,
    column_names: list[str] | None,
    header: bool,
    encoding: str,
    **dialect: Any,
) -> tuple[list[str], list[list[str]]]:
    """Return the names of the columns, and the rows of all files."""
    rows: list[list[str]] = []
    for path in _files(file_pattern):
        with Path(path).open(newline="", encoding=encoding) as file:
            table = list(csv.reader(file, **dialect))
        first = table.pop(0) if header and table else None
        column_names = column_names or first
        rows += [row for row in table if row]
    if column_names is None:
        raise ValueError(
            "make_csv_dataset: give `column_names`, or files with a header."
        )
    return column_names, rows


def _check_fields(rows: list[list[str]], column_names: list[str]) -> None:
    for number, row in enumerate(rows):
        if len(row) != len(column_names):
            raise ValueError(
                f"make_csv_dataset: row {number} has {len(row)} fields, not "
                f"{len(column_names)}: {row!r:.80}."
            )


def _is_readable(row: list[str], defaults: list[Any], na_value: str) -> bool:
    """Return whether a row has all fields, and each is of the type of its column."""
    if len(row) != len(defaults):
        return False
    try:
        for field, default in zip(row, defaults, strict=True):
            if default is not None:
                _column("", (field,), default, na_value)
    except ValueError:
        return False
    return True


def _column(name: str, fields: tuple[str, ...], default: Any, na_value: str) -> Any:
    """Return the fields of a column as an array of its type."""
    if default is None:
        return _inferred(fields, na_value)
    if isinstance(default, (DType, str)):
        kind, missing = str(default), "" if str(default) == "string" else 0
    else:
        missing = np.ravel(default).tolist()[0]
        kind = {str: "string", int: "int32"}.get(type(missing), "float32")
    filled = [missing if field == na_value else field for field in fields]
    try:
        return np.array(filled, object if kind == "string" else kind)
    except ValueError as error:
        raise ValueError(f"make_csv_dataset: column {name!r}: {error}.") from None


def _inferred(fields: tuple[str, ...], na_value: str) -> np.ndarray:
    """Return integers, else numbers, else texts; an empty field is 0 or empty."""
    for kind in ("int32", "float32"):
        with suppress(ValueError):
            return np.array([0 if f == na_value else f for f in fields], kind)
    return np.array(fields, object)
