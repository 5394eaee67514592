"""Zeros of the data: products walk through the places where data is not zero.

Four of five pixels of MNIST are zero, and a zero adds nothing to a sum of products. So
where the left operand of a product is data as it was given, at most scaled, a kernel
lists for each few rows the inner places at which not all of them are zero, and the
product goes through that list. Sums keep their order, and so their bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ganglion.plan.kernel import (
    Apply,
    Axis,
    Buffer,
    Contract,
    Expr,
    Indirect,
    Kernel,
    Load,
    Loop,
    Places,
    Shape,
    View,
    row_major,
    walk,
)

# Rows of a group. Of more rows, fewer places are zero in all; with less, loading the
# right operand would be the limit, and that comes sooner where its rows are short.
GROUP, GROUP_IF_THIN, THIN = 4, 8, 16
FEWEST_INNER, FEWEST_COLUMNS = 16, 4  # below, a list costs more than it saves
_INDEX = np.dtype("int32")
_LANES = 16

Aliases = dict[Buffer, Buffer]


@dataclass(frozen=True, eq=False)
class Nonzeros(Kernel):
    """List the inner places at which a group of rows is not all zero."""

    batch: tuple[Axis, ...]
    rows: Axis
    inner: Axis
    source: View
    places: Places

    @property
    def groups(self) -> int:
        """The groups of rows at each place of the batch."""
        return -(-self.rows.size // self.places.group)

    @property
    def parallel(self) -> int:
        """How many independent pieces the kernel has."""
        return self.groups * math.prod(axis.size for axis in self.batch)

    def reads(self) -> list[Buffer]:
        """Return the buffers that are read."""
        return [self.source.buffer]

    def writes(self) -> list[Buffer]:
        """Return the buffers that are written."""
        return [self.places.buffer]

    def views(self) -> list[tuple[View, Shape]]:
        """Return what is read and written, by batch, whole groups, and the rest."""
        group, target = self.places.group, self.places.buffer
        cut = self.rows.size % group == 0
        rows = (
            (Axis(self.groups, self.rows.left * group), replace(self.rows, size=group))
            if cut
            else (self.rows,)
        )
        axes = (*self.batch, *rows, self.inner)
        strides = tuple(axis.left for axis in axes)
        source = View(self.source.buffer, strides, self.source.offset)
        lists = View(target, row_major(target.shape))
        return [(source, tuple(axis.size for axis in axes)), (lists, target.shape)]


def skip_zeros(kernels: Sequence[Kernel], aliases: Aliases) -> list[Kernel]:
    """Return the kernels, with lists of places for the products that may use some."""
    given = _given(kernels, aliases)
    listed: dict[object, Places] = {}
    made: list[Kernel] = []
    for one in kernels:
        if not isinstance(one, Contract) or not _gains(one, given, aliases):
            made.append(one)
            continue
        key = _key(one, aliases)
        if key not in listed:
            lists = _lists(one, len(listed))
            listed[key] = lists.places
            made.append(lists)
        made.append(replace(one, places=listed[key]))
    return made


def _given(kernels: Iterable[Kernel], aliases: Aliases) -> set[Buffer]:
    """Return the buffers that hold data: as it was given, or scaled."""
    writers: dict[Buffer, list[Kernel]] = {}
    for kernel in kernels:
        for one in kernel.writes():
            writers.setdefault(aliases.get(one, one), []).append(kernel)
    found: set[Buffer] = set()
    for kernel in kernels:
        if not isinstance(kernel, Loop) or kernel.reduced or kernel.adds:
            continue
        for expr, view in kernel.stored:
            root = aliases.get(view.buffer, view.buffer)
            if writers[root] == [kernel] and _keeps_zeros(expr, found, aliases):
                found.add(root)
    return found


def _keeps_zeros(expr: Expr, given: set[Buffer], aliases: Aliases) -> bool:
    """Tell whether an expression is zero wherever the data is."""
    kept: dict[int, bool] = {}
    for one in walk(expr):
        if isinstance(one, (Load, Indirect)):
            buffer = one.view.buffer if isinstance(one, Load) else one.table
            root = aliases.get(buffer, buffer)
            kept[id(one)] = root.kind == "data" or root in given
        elif isinstance(one, Apply):
            args = [kept[id(arg)] for arg in one.args]
            scaled = one.op in ("cast", "negative", "divide") and args[0]
            kept[id(one)] = scaled or (one.op == "multiply" and any(args))
        else:
            kept[id(one)] = False
    return kept[id(expr)]


def _gains(one: Contract, given: set[Buffer], aliases: Aliases) -> bool:
    """Tell whether the left operand of a product is data that is worth looking at."""
    root = aliases.get(one.left.buffer, one.left.buffer)
    if root.kind != "data" and root not in given:
        return False
    if len(one.rows) != 1 or len(one.inner) != 1:
        return False  # a convolution: its taps overlap
    columns = math.prod(axis.size for axis in one.columns)
    return one.inner[0].size >= FEWEST_INNER and columns >= FEWEST_COLUMNS


def _key(one: Contract, aliases: Aliases) -> object:
    """Return what the lists of a product depend on."""
    axes = (*one.batch, *one.rows, *one.inner)
    root = aliases.get(one.left.buffer, one.left.buffer)
    return root, one.left.offset, tuple((axis.size, axis.left) for axis in axes)


def _lists(one: Contract, number: int) -> Nonzeros:
    """Return the kernel that lists the places of a product."""
    (rows,), (inner,) = one.rows, one.inner
    columns = math.prod(axis.size for axis in one.columns)
    group = min(GROUP if columns > THIN else GROUP_IF_THIN, rows.size)
    length = Places.HEAD + -(-inner.size // _LANES) * _LANES
    batch = tuple(axis.size for axis in one.batch)
    shape = (*batch, -(-rows.size // group), length)
    every = np.arange(inner.size, dtype=_INDEX)
    places = Places(
        Buffer(f"places{number}", shape, _INDEX, "arena"),
        group,
        Buffer(f"every{number}", every.shape, _INDEX, "constant", every),
    )
    return Nonzeros("nonzeros", one.batch, rows, inner, one.left, places)
