"""Tiles of a contraction: how its axes are divided, and the pieces of its batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ganglion.compiler.cpu.text import Text
from ganglion.compiler.cpu.tuning import CPU
from ganglion.compiler.plan.kernels import Axis, Contract


class Piece(NamedTuple):
    """The offsets of a piece in left, right and out, and its number in the batch."""

    left: str
    right: str
    out: str
    number: str
    at: list[str]  # its indices along the axes of the batch


class Span(NamedTuple):
    """A range of rows or columns, of a constant size."""

    start: str
    size: int


class Extent(NamedTuple):
    """A range of rows or columns whose size is known at run time."""

    start: str
    size: str


class TileShape(NamedTuple):
    """The largest tile, and whether its inner loop skips zeros."""

    rows: int
    vectors: int
    skips: bool = False


class Block(NamedTuple):
    """A block of a long inner axis, and whether it is the first."""

    start: str
    stop: str
    is_first: str


class Tile(NamedTuple):
    """A register tile: some rows and vectors of columns of a piece."""

    piece: Piece
    row: str
    size: int
    column: str
    widths: list[int]
    sums: bool = False  # whether another row has column sums of the right operand

    @property
    def height(self) -> int:
        """The rows of accumulators."""
        return self.size + self.sums


def even_tiles(size: int, most: int) -> list[tuple[int, int]]:
    """Split an axis into tiles (start, size) of nearly equal size.

    >>> even_tiles(28, 12)
    [(0, 10), (10, 9), (19, 9)]
    """
    count = -(-size // most)
    base, longer = divmod(size, count)
    return [(n * base + min(n, longer), base + (n < longer)) for n in range(count)]


def full_tiles(size: int, most: int) -> list[tuple[int, int]]:
    """Split an axis into tiles (start, size) of equal size, except for the last.

    >>> full_tiles(28, 12)
    [(0, 12), (12, 12), (24, 4)]
    """
    return [(start, min(most, size - start)) for start in range(0, size, most)]


def blocks_of(size: int, tiles: int, group: int, least: int) -> int:
    """Return into how many equal blocks to split an axis that tiles run along.

    The fewest that balance the load of many threads. A block has at least `least`
    indices, in complete groups.

    >>> [blocks_of(128, tiles, 4, 28) for tiles in (4, 8, 10, 12, 16, 17, 40)]
    [4, 2, 4, 4, 1, 4, 1]
    """
    threads = CPU.many_threads

    def slowest(blocks: int) -> float:
        return -(-tiles * blocks // threads) * threads / (tiles * blocks)

    cuts = [n for n in (2, 4, 8) if size % (n * group) == 0 and size >= n * least]
    possible = [1, *cuts]
    even = (blocks for blocks in possible if slowest(blocks) <= CPU.even_share)
    return next(even, min(possible, key=slowest))


def blocked_grain(count: int) -> int:
    """Return how many pieces of a blocked product a thread takes at a time.

    Pieces that are taken together share blocks of the left matrix in the cache. But two
    threads should have equal work, and four threads should all have some.

    >>> [blocked_grain(count) for count in (4, 8, 12, 20, 24)]
    [1, 2, 3, 2, 4]
    """
    for grain in range(CPU.side_by_side_panels, 1, -1):
        parts = -(-count // grain)
        if parts >= 4 and parts % 2 == 0:
            return grain
    return 1


def grouped(tiles: list[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Group adjacent tiles of equal size: (start, size, count)."""
    groups: list[tuple[int, int, int]] = []
    for start, size in tiles:
        if groups and groups[-1][1] == size:
            first, _, count = groups.pop()
            groups.append((first, size, count + 1))
        else:
            groups.append((start, size, 1))
    return groups


def each_tile(
    text: Text, tiles: list[tuple[int, int]], body: Callable[[str, int], None]
) -> None:
    """Emit a body for each tile, with a loop over tiles of equal size."""
    for start, size, count in grouped(tiles):

        def tile(index: str, size: int = size) -> None:
            body(index, size)

        text.each(start, start + size * count, size, tile)


def piece_of(
    text: Text, kernel: Contract, axes: tuple[Axis, ...], number: str
) -> Piece:
    """Return a piece, the point of some axes with this number."""
    left, right = str(kernel.left.offset), str(kernel.right.offset)
    out, rest, at = str(kernel.out.offset), number, list[str]()
    for position, axis in enumerate(reversed(axes)):
        index = rest
        if position < len(axes) - 1:
            index = text.let(f"srem i64 {rest}, {axis.size}")
            rest = text.let(f"sdiv i64 {rest}, {axis.size}")
        left = text.add(left, text.times(index, axis.left))
        right = text.add(right, text.times(index, axis.right))
        out = text.add(out, text.times(index, axis.out))
        at.insert(0, index)
    return Piece(left, right, out, number, at)
