"""The table of a model's layers, as Keras 3 prints it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ganglion import tree
from ganglion.progress import print_message
from ganglion.symbolic import Call, Function, KerasTensor
from ganglion.system.terminal import printable

_HEADER = ("Layer (type)", "Output Shape", "Param #", "Connected to")
_SIDES: dict[str, Callable[[str, int], str]] = {
    "left": str.ljust,
    "right": str.rjust,
    # Not `str.center`, which puts an odd space on the left.
    "center": lambda text, width: (" " * ((width - len(text)) // 2) + text).ljust(
        width
    ),
}


def summary(
    model: Any, print_fn: Callable[[str], Any] | None = None, **options: Any
) -> None:
    """Print `summary_text`, or give it to a function."""
    text = summary_text(model, **options)
    if print_fn is None:
        print_message(text, line_break=False)
    else:
        print_fn(text)


def summary_text(
    model: Any,
    line_length: int | None = None,
    positions: Sequence[float] | None = None,
    expand_nested: bool = False,
    show_trainable: bool = False,
    layer_range: Sequence[str] | None = None,
) -> str:
    """Return the layers of a model, their output shapes and numbers of parameters.

    Args:
        model: The model.
        line_length: Width of the table; by default, what fits the terminal.
        positions: Where each column ends, as parts of the width.
        expand_nested: Whether to list the layers inside of layers, too.
        show_trainable: Whether to add a column: does training change a layer?
        layer_range: Two regular expressions for the names of the first and last layer
            to list.
    """
    operations, calls = operations_and_calls(model)
    is_chain = not calls or _is_chain(calls)
    rows = [
        _row(layer, depth, calls, show_trainable, with_sources=not is_chain)
        for layer in _in_range(operations, layer_range)
        for layer, depth in _with_nested(layer, 0, expand_nested)
    ]
    header = list(_HEADER[: 3 if is_chain else 4])
    sides = ["left", "left", "right", "left"][: len(header)]
    if show_trainable:
        header.append("Trainable")
        sides.append("center")
    widths = _column_widths(is_chain, line_length, positions, show_trainable)
    lines = [f'Model: "{printable(model.name)}"', *_table(header, rows, widths, sides)]
    return "\n".join([*lines, *_totals(model), ""])


# ---- the rows ------------------------------------------------------------------------


def operations_and_calls(model: Any) -> tuple[list[Any], list[Call]]:
    """Return what to list, and the calls between them for a functional model."""
    network = getattr(model, "_network", None)
    # A Sequential keeps its layers in `_stack`; it lists them without the input.
    if network is None or hasattr(model, "_stack"):
        return list(model.layers), []
    stand_ins = {x: layer.output for x, layer in network.stand_ins.items()}
    inputs = [stand_ins.get(tensor, tensor).call for tensor in network.flat_inputs]
    return model.operations, [*inputs, *network.calls]


def _is_chain(calls: list[Call]) -> bool:
    """Whether every call has a single source and use: the order shows all of them."""
    within = set(calls)
    used = [x.call for call in calls for x in call.inputs if x.call in within]
    sources = [call for call in calls if not call.inputs]
    return (
        len(sources) == 1
        and all(len(call.inputs) <= 1 for call in calls)
        and len(set(used)) == len(used)
        and len({id(call.operation) for call in calls}) == len(calls)
    )


def _in_range(layers: list[Any], layer_range: Sequence[str] | None) -> list[Any]:
    if layer_range is None:
        return layers
    if len(layer_range) != 2 or not all(isinstance(n, str) for n in layer_range):
        raise ValueError(
            f"`layer_range` takes the names of two layers, got {layer_range!r}."
        )
    matches = [
        [number for number, layer in enumerate(layers) if re.match(name, layer.name)]
        for name in layer_range
    ]
    if not all(matches):
        raise ValueError(
            f"`layer_range={tuple(layer_range)!r}` matches no layers. There are: "
            f"{', '.join(layer.name for layer in layers)}."
        )
    first, last = matches
    if min(first) > max(last):
        return layers[min(last) : max(first) + 1]
    return layers[min(first) : max(last) + 1]


def _with_nested(layer: Any, depth: int, expand: bool) -> list[tuple[Any, int]]:
    rows = [(layer, depth)]
    for inner in getattr(layer, "layers", None) or () if expand else ():
        rows.extend(_with_nested(inner, depth + 1, expand))
    return rows


def _row(
    layer: Any,
    depth: int,
    calls: list[Call],
    show_trainable: bool,
    with_sources: bool,
) -> list[str]:
    prefix = "   " * depth + "└ " if depth else ""
    row = [f"{prefix}{printable(layer.name)} ({type_name(layer)})"]
    row += [output_shape(layer, calls), _parameters(layer)]
    if with_sources:
        row.append(_connections(layer, calls))
    if show_trainable:
        has_weights = bool(getattr(layer, "weights", ()))
        row.append(("Y" if layer.trainable else "N") if has_weights else "-")
    return row


def type_name(layer: Any) -> str:
    """Return the name of a layer's class, or of an op as Keras calls its class."""
    if isinstance(layer, Function):
        words = layer.function.__name__.split("_")
        return "".join(word.capitalize() for word in words)
    return type(layer).__name__


def output_shape(layer: Any, calls: Sequence[Call] = ()) -> str:
    """Return the shape(s) of a layer's output as text, ``?`` where it is not known."""
    own = getattr(layer, "_calls", None)
    own = own or [call for call in calls if call.operation is layer]
    shape = getattr(layer, "_build_shape", None)
    if own:
        shapes = [tensor.shape for tensor in tree.flatten(own[-1].outputs)]
        return _shape_text(shapes[0] if len(shapes) == 1 else shapes)
    if shape is None:
        return "?"
    try:
        several = isinstance(shape, dict)  # of arguments, by their names
        known = layer.compute_output_shape
        return _shape_text(known(**shape) if several else known(shape))
    except (
        Exception
    ):  # a layer of the user's, which a subclassed model calls by its own rules
        return "?"


def _shape_text(shape: Any) -> str:
    """Return a shape, or a list of shapes, as text.

    >>> _shape_text((None, 10)), _shape_text([(3,)])
    ('(None, 10)', '[(3)]')
    """
    if isinstance(shape, dict):
        shape = list(shape.values())
        shape = shape[0] if len(shape) == 1 else shape
    if isinstance(shape, tuple):
        return f"({', '.join(map(str, shape))})"
    return f"[{', '.join(map(_shape_text, shape))}]"


def _parameters(layer: Any) -> str:
    if not hasattr(layer, "built"):
        return "0"
    return f"{layer.count_params():,}" if layer.built else "0 (unbuilt)"


def _connections(layer: Any, calls: list[Call]) -> str:
    own = [call for call in calls if call.operation is layer]
    return ", ".join(_source_text(x) for call in own for x in call.inputs) or "-"


def _source_text(tensor: KerasTensor) -> str:
    if tensor.call is None:
        return printable(tensor.name)
    operation = tensor.call.operation
    calls = getattr(operation, "_calls", None) or [tensor.call]
    return f"{printable(operation.name)}[{calls.index(tensor.call)}][{tensor.index}]"


# ---- numbers of parameters -----------------------------------------------------------


def _totals(model: Any) -> list[str]:
    trainable = _counted(model.trainable_weights)
    fixed = _counted(model.non_trainable_weights)
    optimizer = getattr(model, "optimizer", None)
    slots = (0, 0)
    if getattr(optimizer, "built", False):
        slots = _counted(optimizer.variables)  # type: ignore[union-attr]
    total = tuple(map(sum, zip(trainable, fixed, slots, strict=True)))
    lines = {"Total": total, "Trainable": trainable, "Non-trainable": fixed}
    if slots[0]:
        lines["Optimizer"] = slots
    return [
        f" {name} params: {count:,} ({bytes_text(size)})"
        for name, (count, size) in lines.items()
    ]


def _counted(variables: Sequence[Any]) -> tuple[int, int]:
    """Return the number of elements and of bytes."""
    each = set(variables)
    sizes = [(v.size, np.dtype(v.dtype).itemsize) for v in each]
    return sum(n for n, _ in sizes), sum(n * width for n, width in sizes)


def bytes_text(count: float) -> str:
    """Return a number of bytes as Keras prints it.

    >>> bytes_text(139304)
    '136.04 KB'
    """
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if count < 1024:
            return f"{count:.2f} {unit}"
        count /= 1024
    return f"{count:.2f} PB"


# ---- the table -----------------------------------------------------------------------


def _column_widths(
    is_chain: bool,
    line_length: int | None,
    positions: Sequence[float] | None,
    show_trainable: bool,
) -> list[int]:
    """Return the width of each column without its borders and spaces."""
    usual, ends = 108, [0.3, 0.56, 0.74, 1.0]
    if is_chain:
        usual, ends = 88, [0.45, 0.80, 1.0]
    parts = list(positions or ends)
    if show_trainable:
        usual += 12
        parts = [part * 0.90 for part in parts] + [1.0]
    length = line_length or min(usual, shutil.get_terminal_size().columns - 4)
    widths = np.diff([int(part * length) for part in (0, *parts)]).tolist()
    if min(widths) < 4:
        raise ValueError(
            f"A line of {length} characters is too short for the summary: pass a "
            "larger `line_length`."
        )
    # Spaces (two a column) and borders are taken off the columns, left to right.
    excess = sum(widths) + 3 * len(widths) + 1 - length
    for number in range(len(widths)):
        share = round(excess / (len(widths) - number))
        widths[number] -= share
        excess -= share
    return widths


def _table(
    header: list[str], rows: list[list[str]], widths: list[int], sides: list[str]
) -> list[str]:
    lines = [_rule("┏━┳┓", widths), *_cells(header, widths, sides, "┃")]
    lines.append(_rule("┡━╇┩", widths))
    for number, row in enumerate(rows):
        if number:
            lines.append(_rule("├─┼┤", widths))
        lines.extend(_cells(row, widths, sides, "│"))
    return [*lines, _rule("└─┴┘", widths)]


def _rule(marks: str, widths: list[int]) -> str:
    left, line, middle, right = tuple(marks)
    return left + middle.join(line * (width + 2) for width in widths) + right


def _cells(row: list[str], widths: list[int], sides: list[str], bar: str) -> list[str]:
    columns = [
        [_SIDES[side](line, width) for line in _wrapped(text, width)]
        for text, width, side in zip(row, widths, sides, strict=True)
    ]
    height = max(map(len, columns))
    for column, width in zip(columns, widths, strict=True):
        column.extend([" " * width] * (height - len(column)))
    bars = f" {bar} "
    return [f"{bar} {bars.join(line)} {bar}" for line in zip(*columns, strict=True)]


def _wrapped(text: str, width: int) -> list[str]:
    """Break at spaces; a word that is too long for a line is cut short.

    >>> _wrapped("convolution (Conv2D)", 8)
    ['convolu…', '(Conv2D)']
    """
    lines = [""]
    for word in re.findall(r"\s*\S+\s*", text):
        if lines[-1] and len(lines[-1]) + len(word.rstrip()) > width:
            lines.append("")
        lines[-1] += word
    lines = [line.rstrip() for line in lines]
    return [line if len(line) <= width else line[: width - 1] + "…" for line in lines]
