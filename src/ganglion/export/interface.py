"""The C interface of an exported model: names, sizes, and the header file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from ganglion import config
from ganglion.export.c_text import c_type
from ganglion.export.inference import Inference
from ganglion.export.ports import Port


def identifier(path: Path, name: str | None) -> str:
    """Return the prefix of all names: `name`, or one made of the file's name."""
    if name is not None:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ValueError(f"name={name!r} is not a C name: use letters, digits, _.")
        return name
    word = re.sub(r"\W", "_", path.name.partition(".")[0], flags=re.ASCII)
    return f"model_{word}" if not word or word[0].isdigit() else word


def is_in_file(weights: str) -> bool:
    """Return whether the option `weights` requests a separate file."""
    if weights not in ("inside", "file"):
        raise ValueError(f"weights={weights!r}: choose 'inside' or 'file'.")
    return weights == "file"


@dataclass(frozen=True)
class Interface:
    """The C interface of a model."""

    name: str
    inference: Inference
    workspace: int  # bytes
    weights: int | None = None  # bytes of a separate file, None if they are inside

    @property
    def ports(self) -> list[tuple[Port, bool]]:
        """Inputs, then outputs; and whether each is an output."""
        ends = self.inference
        return [*((p, False) for p in ends.inputs), *((p, True) for p in ends.outputs)]

    def parameters(self, batch: bool = False) -> str:
        """Return the parameters of `predict`, or of `predict_batch`."""
        words = [
            f"{'' if is_output else 'const '}{_element(port)} *{port.name}"
            for port, is_output in self.ports
        ]
        words += ["size_t rows"] if batch else []
        words += [] if self.weights is None else ["const void *weights"]
        return ", ".join([*words, "void *workspace"])

    def prototype(self, batch: bool = False) -> str:
        """Return the declaration of `predict`, or of `predict_batch`."""
        function = f"{self.name}_predict{'_batch' if batch else ''}"
        return f"void {function}({self.parameters(batch)})"

    def header(self) -> str:
        """Return the header file."""
        upper = self.name.upper()
        sizes = [
            f"#define {upper}_{port.name.upper()}_SIZE {port.size}"
            f"  /* {_described(port)} */"
            for port, _ in self.ports
        ]
        more = [
            f"#define {upper}_WORKSPACE {self.workspace}"
            "  /* bytes of scratch memory, each thread its own; any alignment */"
        ]
        if self.weights is not None:
            more.append(
                f"#define {upper}_WEIGHTS {self.weights}"
                f"  /* bytes of {self.name}.weights; aligned to 64 in memory */"
            )
        return _HEADER.format(
            model=_comment(self.inference.name),
            version=config.VERSION,
            guard=f"{upper}_H",
            sizes="\n".join([*sizes, *more]),
            predict=self.prototype(),
            batch=self.prototype(batch=True),
        )


def _element(port: Port) -> str:
    return "char *const" if port.is_text else c_type(port.dtype)


def _described(port: Port) -> str:
    shape = " x ".join(map(str, port.shape)) or "1"
    if port.is_text:
        return f"texts, {shape}: UTF-8, each ends with a zero"
    return f"{c_type(port.dtype)}, {shape}"


def _comment(text: str) -> str:
    return text.replace("*/", "* /").replace("\n", " ")


_HEADER = """\
/* The model "{model}", exported by Ganglion {version}. */
#ifndef {guard}
#define {guard}

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

{sizes}

/* Predict one row. Safe in threads: all that is written is the outputs and the
   workspace; nothing is allocated. */
{predict};

/* Predict many rows, one behind the other in memory. */
{batch};

#ifdef __cplusplus
}}
#endif

#endif
"""
