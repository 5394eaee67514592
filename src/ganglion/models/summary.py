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
from ganglion.system.terminal import shown

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
    model: Any,
    line_length: int | None = None,
    positions: Sequence[float] | None = None,
    print_fn: Callable[[str], Any] | None = None,
    expand_nested: bool = False,
    show_trainable: bool = False,
    layer_range: Sequence[str] | None = None,
) -> None:
    """Print the layers of a model, their output shapes and numbers of parameters.

    Args:
        model: The model.
        line_length: Width of the table; by default, what fits the terminal.
        positions: Where each column ends, as parts of the width.
        print_fn: Gets the text instead of standard output.
        expand_nested: Whether to list the layers inside of layers, too.
        show_trainable: Whether to add a column that tells if training changes a layer.
        layer_range: Two regular expressions for the names of the first and last layer
            to list.
    """
    text = summary_text(
        model, line_length, positions, expand_nested, show_trainable, layer_range
    )
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
    """Return what `summary` prints."""
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
    lines = [f'Model: "{shown(model.name)}"', *_table(header, rows, widths, sides)]
    return "\n".join([*lines, *_totals(model), ""])


# ---- what is listed ------------------------------------------------------------------


def operations_and_calls(model: Any) -> tuple[list[Any], list[Call]]:
    """Return what to list, and the calls between them for a functional model."""
    network = getattr(model, "_network", None)
    # A Sequential keeps its layers in `_stack`; it lists them without the input.
    if network is None or hasattr(model, "_stack"):
        return list(model.layers), []
    inputs = [tensor.call for tensor in network.flat_inputs if tensor.call is not None]
    return list(network.operations), [*inputs, *network.calls]


def _is_chain(calls: list[Call]) -> bool:
    """Whether every call has one source and one use, so the order says it all."""
    within = set(calls)
    used = [one.call for call in calls for one in call.inputs if one.call in within]
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
    if len(layer_range) != 2 or not all(isinstance(one, str) for one in layer_range):
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
    row = [f"{prefix}{shown(layer.name)} ({type_name(layer)})"]
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
    made = [call for call in calls if call.operation is layer]
    own = getattr(layer, "_calls", None) or made
    if own:
        shapes = [_shape_text(one.shape) for one in tree.flatten(own[-1].outputs)]
        return shapes[0] if len(shapes) == 1 else f"[{', '.join(shapes)}]"
    shape = getattr(layer, "_build_shape", None)
    if shape is None:
        return "?"
    try:
        found = layer.compute_output_shape(shape)
    except Exception:  # a layer of the user's, called in a way only its model knows
        return "?"
    return _shape_text(found) if isinstance(found, tuple) else _shape_list(found)


def _shape_text(shape: Sequence[int | None]) -> str:
    """Return a shape as text.

    >>> _shape_text((None, 10))
    '(None, 10)'
    """
    return f"({', '.join(map(str, shape))})"


def _shape_list(shapes: Any) -> str:
    return f"[{', '.join(_shape_text(one) for one in shapes)}]"


def _parameters(layer: Any) -> str:
    if not hasattr(layer, "built"):
        return "0"
    return f"{layer.count_params():,}" if layer.built else "0 (unbuilt)"


def _connections(layer: Any, calls: list[Call]) -> str:
    sources = [
        _source_text(tensor)
        for call in calls
        if call.operation is layer
        for tensor in call.inputs
    ]
    return ", ".join(sources) or "-"


def _source_text(tensor: KerasTensor) -> str:
    if tensor.call is None:
        return shown(tensor.name)
    operation = tensor.call.operation
    made = getattr(operation, "_calls", None) or [tensor.call]
    return f"{shown(operation.name)}[{made.index(tensor.call)}][{tensor.index}]"


# ---- numbers of parameters -----------------------------------------------------------


def _totals(model: Any) -> list[str]:
    trainable = _counted(model.trainable_weights)
    fixed = _counted(model.non_trainable_weights)
    optimizer = getattr(model, "optimizer", None)
    slots = (0, 0)
    if getattr(optimizer, "built", False):
        slots = _counted(optimizer.variables)  # type: ignore[union-attr]
    total = tuple(map(sum, zip(trainable, fixed, slots, strict=True)))
    lines = [
        _total_line("Total", total),
        _total_line("Trainable", trainable),
        _total_line("Non-trainable", fixed),
    ]
    return [*lines, _total_line("Optimizer", slots)] if slots[0] else lines


def _counted(variables: Sequence[Any]) -> tuple[int, int]:
    """Return the number of elements and of bytes."""
    each = {id(one): one for one in variables}.values()
    sizes = [(one.size, np.dtype(one.dtype).itemsize) for one in each]
    return sum(n for n, _ in sizes), sum(n * width for n, width in sizes)


def _total_line(what: str, counted: tuple[int, ...]) -> str:
    return f" {what} params: {counted[0]:,} ({bytes_text(counted[1])})"


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
    usual, parts = (
        (88, [0.45, 0.80, 1.0]) if is_chain else (108, [0.3, 0.56, 0.74, 1.0])
    )
    parts = list(positions or parts)
    if show_trainable:
        usual += 12
        parts = [one * 0.90 for one in parts] + [1.0]
    length = line_length or min(usual, shutil.get_terminal_size().columns - 4)
    ends = [int(part * length) for part in parts]
    widths = [end - begin for begin, end in zip([0, *ends], ends, strict=False)]
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
