"""The formats that models are exported to: a row each."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple


class Artifact(NamedTuple):
    """An exported model: the bytes of each file, and notes for the user."""

    files: dict[Path, bytes]
    notes: tuple[str, ...] = ()


Writer = Callable[..., Artifact]  # (model, path, **options)


@dataclass(frozen=True)
class Format:
    """A kind of file that models are exported to."""

    name: str
    suffixes: tuple[str, ...]  # of paths of this format
    description: str  # one line
    function: str  # "module:name" of a `Writer`
    options: tuple[str, ...] = ()  # that the function takes
    needs: tuple[str, ...] = ()  # modules that must be installed
    extra: str | None = None  # of our package, that installs them

    def writer(self) -> Writer:
        """Return the function; name the command to install a missing package."""
        for name in self.needs:
            try:
                importlib.import_module(name)
            except ImportError as error:
                raise ImportError(
                    f"Exporting to {self.name} needs {name} ({error}): "
                    f"pip install 'ganglion-nn[{self.extra}]'"
                ) from None
        module, _, name = self.function.partition(":")
        writer: Writer = getattr(importlib.import_module(module), name)
        return writer


FORMATS: tuple[Format, ...] = (
    Format(
        "c",
        (".c",),
        "One portable C99 file and a header, for any compiler.",
        "ganglion.export.c99:write",
        options=("input_signature", "name", "weights", "int8", "sample"),
    ),
    Format(
        "native",
        (".o",),
        "Machine code of a --target and a C header; no dependency.",
        "ganglion.export.native:write",
        options=("input_signature", "name", "weights", "target", "int8", "sample"),
        needs=("llvmlite",),
    ),
    Format(
        "python",
        (".py",),
        "A shared library and a small Python file that calls it.",
        "ganglion.export.python_stub:write",
        options=("input_signature", "name", "target", "int8", "sample"),
        needs=("llvmlite",),
    ),
    Format(
        "wasm",
        (".wasm",),
        "A WebAssembly module with SIMD, and JavaScript for browsers and node.",
        "ganglion.export.wasm:write",
        options=("input_signature", "int8", "sample"),
        needs=("llvmlite",),
    ),
    Format(
        "page",
        (".html",),
        "One page to try the model in a browser, which needs no server.",
        "ganglion.serve.trial:write",
        needs=("llvmlite",),
    ),
    Format(
        "onnx",
        (".onnx",),
        "ONNX, for any number of rows: onnxruntime, OpenVINO, TensorRT and others.",
        "ganglion.export.onnx.writer:write",
        options=("input_signature", "opset_version"),
        needs=("onnx",),
        extra="onnx",
    ),
)

# Formats of Keras that are not written here, and what to use instead.
_ELSEWHERE = "save it with `model.save('model.keras')` and export that file with Keras"
INSTEAD = {
    "tf_saved_model": 'format="onnx" runs wherever a SavedModel is served; for a '
    f"SavedModel itself, {_ELSEWHERE}",
    "openvino": 'OpenVINO reads ONNX: use format="onnx"',
    "litert": f'format="c" runs on small devices; for LiteRT itself, {_ELSEWHERE}',
    "torch": f"for a program of torch.export, {_ELSEWHERE}",
}


def names() -> list[str]:
    """Return the names of all formats."""
    return [row.name for row in FORMATS]


def find(name: str | None, path: Path) -> Format:
    """Return a format by its name, or by the suffix of a path."""
    if name is None:
        return _by_suffix(path)
    for row in FORMATS:
        if row.name == name:
            return row
    if name in INSTEAD:
        raise ValueError(
            f"The format {name!r} of Keras is not written here: {INSTEAD[name]}. "
            f"There are: {_listed(names())}."
        )
    raise ValueError(f"Unrecognized format={name!r}: choose {_listed(names())}.")


def _by_suffix(path: Path) -> Format:
    # The longest suffix wins: "net.weights.json" is not ".json".
    fitting = [
        (len(suffix), row)
        for row in FORMATS
        for suffix in row.suffixes
        if path.name.lower().endswith(suffix)
    ]
    if fitting:
        return max(fitting, key=lambda pair: pair[0])[1]
    known = [f"{suffix} ({row.name})" for row in FORMATS for suffix in row.suffixes]
    raise ValueError(
        f"{path}: the suffix does not name a format (Keras' default, a SavedModel, is "
        f"not written here). Choose one of {_listed(known)}, or pass `format=`."
    )


def _listed(words: Iterable[str]) -> str:
    return ", ".join(words)
