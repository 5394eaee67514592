"""The content of an untrusted ONNX file, as plain records of checked arrays.

Arrays may lie in other files beside it; these are opened only if they lie in the folder
of the model or below, and must hold the bytes that the model claims.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from google.protobuf.message import DecodeError

from ganglion import files
from ganglion.system import budget
from ganglion.system.terminal import printable

_T = onnx.TensorProto
DTYPES: dict[int, np.dtype] = {
    _T.FLOAT: np.dtype("<f4"),
    _T.DOUBLE: np.dtype("<f8"),
    _T.FLOAT16: np.dtype("<f2"),
    _T.BFLOAT16: np.dtype(ml_dtypes.bfloat16),
    _T.INT8: np.dtype("i1"),
    _T.INT16: np.dtype("<i2"),
    _T.INT32: np.dtype("<i4"),
    _T.INT64: np.dtype("<i8"),
    _T.UINT8: np.dtype("u1"),
    _T.UINT16: np.dtype("<u2"),
    _T.UINT32: np.dtype("<u4"),
    _T.UINT64: np.dtype("<u8"),
    _T.BOOL: np.dtype("?"),
}
_DOMAINS = ("", "ai.onnx")
_OLDEST, _NEWEST = 7, 28  # opsets whose operators are known here
_MOST_AXES = 32
MOST_BYTES = 2**31 - 1  # of a message of protobuf


@dataclass(frozen=True)
class Port:
    """An input of a graph."""

    name: str
    dtype: np.dtype
    shape: tuple[int | None, ...]


@dataclass(frozen=True)
class OnnxNode:
    """An operator with the names of its inputs and outputs."""

    op: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, Any]

    def __str__(self) -> str:
        name = self.name or next(iter(self.outputs), "")
        return f"{self.op} {printable(name)!r:.80}"


@dataclass(frozen=True)
class OnnxGraph:
    """The graph of a file, the body of a loop, or a branch of a condition."""

    name: str
    opset: int
    inputs: tuple[Port, ...]
    constants: Mapping[str, np.ndarray]
    nodes: tuple[OnnxNode, ...]
    outputs: tuple[str, ...]

    def every_node(self) -> Iterator[OnnxNode]:
        """Yield all nodes, including those of nested graphs."""
        for node in self.nodes:
            yield node
            for attribute in node.attrs.values():
                if isinstance(attribute, OnnxGraph):
                    yield from attribute.every_node()

    def names_read(self) -> Iterator[str]:
        """Yield the names of all values that are read, including by nested graphs."""
        for node in self.every_node():
            yield from node.inputs
            for attribute in node.attrs.values():
                if isinstance(attribute, OnnxGraph):
                    yield from attribute.outputs
        yield from self.outputs


def parsed(path: Path) -> OnnxGraph:
    """Return the graph of a file; within `saving.files.reading`, for good errors."""
    if path.stat().st_size > MOST_BYTES:
        raise ValueError("it has more than the 2 GB that an ONNX file can have.")
    data = files.read_file(path)
    budget.take(len(data), "its content")
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError as error:
        raise ValueError(f"it is not an ONNX file, or cut short ({error}).") from None
    if not model.HasField("graph") or not model.graph.output:
        raise ValueError("it is not an ONNX file: it has no graph with outputs.")
    if model.functions:
        raise ValueError("its functions of its own are not supported.")
    reader = _Reader(path.parent, _opset(model))
    graph = reader.graph(model.graph)
    ports = [port for port in model.graph.input if port.name not in graph.constants]
    return replace(graph, inputs=tuple(map(_port, ports)))


def _by_name(pairs: Iterable[tuple[str, np.ndarray]]) -> dict[str, np.ndarray]:
    table: dict[str, np.ndarray] = {}
    for name, array in pairs:
        if name in table:
            raise ValueError(f"it has the tensor {printable(name)!r:.80} twice.")
        table[name] = array
    return table


def _opset(model: Any) -> int:
    versions = {entry.domain: entry.version for entry in model.opset_import}
    version = next((versions[d] for d in _DOMAINS if d in versions), 0)
    if not _OLDEST <= version <= _NEWEST:
        raise ValueError(
            f"its operators are of opset {version}; {_OLDEST} to {_NEWEST} are known. "
            "Convert it with onnx.version_converter."
        )
    return int(version)


def _port(port: Any) -> Port:
    tensor = port.type.tensor_type
    shown = f"its input {printable(port.name)!r:.80}"
    if not port.type.HasField("tensor_type") or tensor.elem_type not in DTYPES:
        raise ValueError(f"{shown} is not a tensor of numbers.")
    if not tensor.HasField("shape"):
        raise ValueError(f"{shown} has no shape.")
    dims = [dim.dim_value if dim.HasField("dim_value") else None
            for dim in tensor.shape.dim]  # fmt: skip
    # Zero stood for an unknown size in old files.
    shape = tuple(None if not size else int(size) for size in dims)
    if len(shape) > _MOST_AXES or any(size is not None and size < 0 for size in shape):
        raise ValueError(f"{shown} has an impossible shape.")
    return Port(port.name, DTYPES[tensor.elem_type], shape)


def _node(node: Any, reader: _Reader) -> OnnxNode:
    budget.count("operators")
    domain = "" if node.domain in _DOMAINS else f"{node.domain}."
    attrs = {entry.name: reader.attribute(entry) for entry in node.attribute}
    return OnnxNode(
        domain + node.op_type,
        node.name,
        tuple(node.input),
        tuple(node.output),
        attrs,
    )


class _Reader:
    """Reads tensors from the file itself or from external data files."""

    def __init__(self, folder: Path, opset: int) -> None:
        self._folder, self._opset = folder, opset
        self._opened: set[Path] = set()

    def graph(self, graph: Any) -> OnnxGraph:
        """Return a graph; the shapes and types of its inputs are not read."""
        if graph.sparse_initializer:
            raise ValueError("its sparse tensors are not supported.")
        constants = _by_name((t.name, self.array(t)) for t in graph.initializer)
        return OnnxGraph(
            graph.name,
            self._opset,
            tuple(Port(port.name, np.dtype("<f4"), ()) for port in graph.input),
            constants,
            tuple(_node(node, self) for node in graph.node),
            tuple(port.name for port in graph.output),
        )

    def attribute(self, entry: Any) -> Any:
        """Return the value of an attribute, None for an attribute of another kind."""
        kinds = onnx.AttributeProto
        match entry.type:
            case kinds.FLOAT:
                return float(entry.f)
            case kinds.INT:
                return int(entry.i)
            case kinds.STRING:
                return entry.s.decode("utf-8", "replace")
            case kinds.FLOATS:
                return tuple(map(float, entry.floats))
            case kinds.INTS:
                return tuple(map(int, entry.ints))
            case kinds.STRINGS:
                return tuple(text.decode("utf-8", "replace") for text in entry.strings)
            case kinds.TENSOR:
                return self.array(entry.t)
            case kinds.GRAPH:
                with budget.deeper():
                    return self.graph(entry.g)
        return None

    def array(self, tensor: Any) -> np.ndarray:
        """Return a tensor as an array; its shape must fit its bytes."""
        budget.count("tensors")
        shown = f"its tensor {printable(tensor.name)!r:.80}"
        if tensor.data_type not in DTYPES:
            raise ValueError(f"{shown} is of a type that is not supported.")
        dtype, dims = DTYPES[tensor.data_type], tuple(map(int, tensor.dims))
        if len(dims) > _MOST_AXES or any(size < 0 for size in dims):
            raise ValueError(f"{shown} has an impossible shape.")
        count = math.prod(dims)
        if tensor.data_location == _T.EXTERNAL:
            raw = self._external(tensor, shown, count * dtype.itemsize)
        elif tensor.HasField("raw_data"):
            raw = tensor.raw_data
        else:
            return _typed(tensor, dtype, dims, count, shown)
        if len(raw) != count * dtype.itemsize:
            raise ValueError(
                f"{shown} of shape {dims} has {len(raw):,} bytes, which do not fit."
            )
        if not count:
            return np.zeros(dims, dtype)
        return np.frombuffer(raw, dtype).reshape(dims)

    def _external(self, tensor: Any, shown: str, size: int) -> bytes:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        path = self._inside(entries.get("location", ""), shown)
        try:
            offset = int(entries.get("offset", 0))
            length = int(entries.get("length", size))
        except ValueError:
            raise ValueError(f"{shown} has an impossible location.") from None
        with files.open_file(path) as file:
            total = os.fstat(file.fileno()).st_size
            if offset < 0 or length != size or offset + length > total:
                raise ValueError(
                    f"{shown} lies at bytes {offset:,} to {offset + length:,} of "
                    f"{path.name!r:.80}, which has {total:,}, and needs {size:,}."
                )
            self._allow(path, total)
            budget.take(length, shown)
            file.seek(offset)
            return file.read(length)

    def _inside(self, location: str, shown: str) -> Path:
        folder = Path(os.path.realpath(self._folder))
        path = Path(os.path.realpath(folder / location))
        is_plain = location and not os.path.isabs(location)
        if not is_plain or not path.is_relative_to(folder) or path == folder:
            raise ValueError(
                f"{shown} lies in {printable(location)!r:.80}, outside of the model's "
                "folder: refused."
            )
        if not path.is_file():
            raise ValueError(f"{shown} lies in {path.name!r:.80}, which is not there.")
        return path

    def _allow(self, path: Path, size: int) -> None:
        """Enlarge the budget by an external file, as if it were part of the model."""
        allowed = budget.current()
        if allowed is not None and path not in self._opened:
            self._opened.add(path)
            allowed.bytes_left += budget.FACTOR * size


def _typed(
    tensor: Any, dtype: np.dtype, dims: tuple[int, ...], count: int, shown: str
) -> np.ndarray:
    """Return a tensor whose numbers stand one by one in the field of their type."""
    kind = tensor.data_type
    if kind == _T.FLOAT:
        numbers = tensor.float_data
    elif kind == _T.DOUBLE:
        numbers = tensor.double_data
    elif kind == _T.INT64:
        numbers = tensor.int64_data
    elif kind in (_T.UINT32, _T.UINT64):
        numbers = tensor.uint64_data
    else:
        numbers = tensor.int32_data
    if len(numbers) != count:
        raise ValueError(
            f"{shown} of shape {dims} has {len(numbers):,} numbers, which do not fit."
        )
    budget.take(8 * count, shown)
    if kind in (_T.FLOAT16, _T.BFLOAT16):  # as their bits
        return np.array(numbers, np.uint16).view(dtype).reshape(dims)
    return np.array(numbers).astype(dtype).reshape(dims)
