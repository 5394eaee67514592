"""A model as a picture: Graphviz text, and its `dot` program where it is installed."""

from __future__ import annotations

import itertools
import shutil
import warnings
from pathlib import Path
from typing import Any

from ganglion import files, tree
from ganglion.models.summary import operations_and_calls, output_shape, type_name


def model_to_dot(
    model: Any,
    show_shapes: bool = False,
    show_dtype: bool = False,
    show_layer_names: bool = True,
    rankdir: str = "TB",
    expand_nested: bool = False,
    dpi: int = 200,
    subgraph: bool = False,
    show_layer_activations: bool = False,
    show_trainable: bool = False,
    splines: str = "ortho",
    **kwargs: Any,
) -> str:
    """Return a model as Graphviz text; arguments as for `plot_model`.

    Keras returns an object of the library pydot, which Ganglion does not need.
    """
    if subgraph or kwargs:
        unknown = ", ".join([*(["subgraph"] if subgraph else []), *kwargs])
        raise TypeError(f"`model_to_dot` does not know the argument(s) {unknown}.")
    if expand_nested:
        raise ValueError(
            "`expand_nested` is not supported: plot the nested models one by one."
        )
    operations, calls = operations_and_calls(model)

    def label(operation: Any) -> str:
        kind = type_name(operation)
        first = f"{operation.name} ({kind})" if show_layer_names else kind
        activation = getattr(operation, "activation", None)
        if show_layer_activations and activation is not None:
            first += f"\\nactivation: {getattr(activation, '__name__', activation)}"
        cells = [first]
        if show_shapes:
            cells.append(f"output: {output_shape(operation, calls)}")
        if show_dtype:
            cells.append(f"type: {_dtype(operation, calls)}")
        if show_trainable and getattr(operation, "weights", None):
            cells.append("trainable" if operation.trainable else "not trainable")
        return "{" + "|".join(map(_escaped, cells)) + "}"

    lines = [
        "digraph model {",
        f"  graph [rankdir={rankdir}, dpi={dpi}, splines={splines}];",
        '  node [shape=record, fontname="Helvetica"];',
    ]
    for operation in operations:
        lines.append(f'  "{operation.name}" [label="{label(operation)}"];')
    for source, target in _edges(operations, calls):
        lines.append(f'  "{source}" -> "{target}";')
    return "\n".join([*lines, "}", ""])


def _dtype(operation: Any, calls: list[Any]) -> str:
    own = getattr(operation, "_calls", None)
    own = own or [call for call in calls if call.operation is operation]
    if not own:
        return "?"
    return ", ".join(tensor.dtype for tensor in tree.flatten(own[-1].outputs))


def _escaped(text: str) -> str:
    for mark in '{}|<>"':
        text = text.replace(mark, f"\\{mark}")
    return text


def _edges(operations: list[Any], calls: list[Any]) -> list[tuple[str, str]]:
    if not calls:
        return list(itertools.pairwise(operation.name for operation in operations))
    return [
        (tensor.call.operation.name, call.operation.name)
        for call in calls
        for tensor in call.inputs
        if tensor.call is not None
    ]


def plot_model(
    model: Any,
    to_file: str | Path = "model.png",
    show_shapes: bool = False,
    show_dtype: bool = False,
    show_layer_names: bool = False,
    rankdir: str = "TB",
    expand_nested: bool = False,
    dpi: int = 200,
    show_layer_activations: bool = False,
    show_trainable: bool = False,
    splines: str = "ortho",
    **kwargs: Any,
) -> Path:
    """Draw a model's layers into a file, and return the file's path.

    The ending gives the format: ``.dot`` is Graphviz text, all others (png, svg, pdf)
    are drawn by Graphviz's ``dot`` program. Without it, the text is written to a file
    of the same name that ends in ``.dot``, and a warning says so.

    Args:
        model: The model.
        to_file: The file.
        show_shapes: Whether to show output shapes.
        show_dtype: Whether to show the outputs' types.
        show_layer_names: Whether to show names besides classes.
        rankdir: "TB" for top to bottom, "LR" for left to right.
        expand_nested: Not supported.
        dpi: Resolution of the picture.
        show_layer_activations: Whether to show activations.
        show_trainable: Whether to show which layers are trained.
        splines: How Graphviz draws the lines.
        **kwargs: Refused by name.
    """
    text = model_to_dot(
        model,
        show_shapes=show_shapes,
        show_dtype=show_dtype,
        show_layer_names=show_layer_names,
        rankdir=rankdir,
        expand_nested=expand_nested,
        dpi=dpi,
        show_layer_activations=show_layer_activations,
        show_trainable=show_trainable,
        splines=splines,
        **kwargs,
    )
    path = Path(to_file)
    if path.suffix in (".dot", ".gv"):
        return files.write_file(path, text.encode())
    program = shutil.which("dot")
    if program is None:
        instead = path.with_suffix(".dot")
        files.write_file(instead, text.encode())
        warnings.warn(
            f"{path.name} needs Graphviz's `dot` program, which is not installed: "
            f"wrote {instead.name}, which any Graphviz viewer shows.",
            stacklevel=2,
        )
        return instead
    kind = path.suffix.removeprefix(".") or "png"
    import subprocess  # only pictures need it
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        picture = Path(folder, "model")
        drawn = subprocess.run(
            [program, f"-T{kind}", "-o", str(picture)],
            input=text.encode(),
            capture_output=True,
            check=False,
        )
        if drawn.returncode:
            raise RuntimeError(f"Graphviz failed: {drawn.stderr.decode().strip()}")
        return files.write_file(path, picture.read_bytes())
