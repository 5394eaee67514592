"""How contractions are cut: tiles, parts of sums, and what that costs on a GPU."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ganglion.compiler.cuda.epilogue import SplitContract, sizes
from ganglion.compiler.cuda.text import THREADS, computed
from ganglion.compiler.plan.kernels import Axis, Contract

PROCESSORS = 132  # of the GPU that this is tuned for
MOST_STAGES = 16
LONG, LARGE = 2048, 1 << 20  # sums and results that are worth parts of their own
CHANNELS = 32  # of an image that are taken together where windows overlap
# Bytes a nanosecond that a processor gets from far, cycles a nanosecond, and how long
# the first byte takes.
BANDWIDTH, CLOCK, LATENCY = 36.0, 1.75, 900.0
READS_AGAIN = 1.5  # times that elements are read where windows overlap
SHARED = 228 * 1024  # bytes of shared memory of a processor


def line_of(columns: int) -> int:
    """Return how far rows lie apart in shared memory: an odd number of 8 elements.

    So rows that are read at once do not lie in the same banks.

    >>> line_of(32), line_of(24)
    (40, 24)
    """
    return columns if columns % 16 else columns + 8


@dataclass(frozen=True)
class Tile:
    """How a product is cut: a block's part, and how warps share it."""

    rows: int
    columns: int
    warps_down: int
    warps_across: int

    @property
    def groups(self) -> int:
        """How many groups of warps share the inner axis."""
        return THREADS // 32 // (self.warps_down * self.warps_across)

    def step(self, bf16: bool) -> int:
        """Return how many inner places are copied at a time."""
        return max(32, (16 if bf16 else 8) * self.groups)


TILES = (
    Tile(128, 128, 2, 4),
    Tile(128, 64, 2, 2),
    Tile(64, 64, 1, 2),
    Tile(64, 64, 1, 1),
    Tile(128, 32, 4, 1),
    Tile(128, 32, 2, 1),
    Tile(64, 32, 2, 1),
    Tile(64, 32, 1, 1),
    Tile(32, 64, 1, 1),
    Tile(32, 32, 1, 1),
    Tile(128, 16, 2, 1),
    Tile(64, 16, 1, 1),
    Tile(32, 16, 1, 1),
)
PLAIN = Tile(64, 64, 4, 2)
PLAIN_STEP = 16


class Product:
    """A contraction seen as matrices; batches that one side has are joined to it."""

    def __init__(self, kernel: Contract) -> None:
        self.kernel = kernel
        to_rows = [a for a in kernel.batch if a.right == 0]
        to_columns = [a for a in kernel.batch if a.right and a.left == 0]
        # Columns must stay neighbours in memory, so what joins them goes in front.
        self.batch = [a for a in kernel.batch if a.left and a.right]
        self.rows = [*to_rows, *_by_channels(kernel.rows, kernel.inner)]
        self.columns = [*to_columns, *kernel.columns]
        self.inner = list(kernel.inner)

    @property
    def parts(self) -> int:
        """How many parts of the sums are stored: 1 for the whole."""
        return self.kernel.parts if isinstance(self.kernel, SplitContract) else 1

    @cached_property
    def m(self) -> int:
        """The number of rows."""
        return math.prod(sizes(self.rows))

    @cached_property
    def n(self) -> int:
        """The number of columns."""
        return math.prod(sizes(self.columns))

    @cached_property
    def k(self) -> int:
        """The length of the sums."""
        return math.prod(sizes(self.inner))

    @cached_property
    def batches(self) -> int:
        """The number of products."""
        return math.prod(sizes(self.batch))

    @cached_property
    def along_rows(self) -> bool:
        """Whether the left operand is contiguous along inner places, not along rows."""
        inner = next((a for a in reversed(self.inner) if a.size > 1), None)
        row = next((a for a in reversed(self.rows) if a.size > 1), None)
        return row is None or row.left != 1 or (inner is not None and inner.left == 1)

    @cached_property
    def again(self) -> float:
        """How often an element of the left operand is read, by a row of tiles."""
        return self.batches * self.m * self.k / max(self.kernel.left.buffer.size, 1)

    @cached_property
    def _widths(self) -> dict[str, int]:
        kernel = self.kernel
        return {
            "left": kernel.left.buffer.dtype.itemsize,
            "right": kernel.right.buffer.dtype.itemsize,
        }

    def width(self, side: str) -> int:
        """Return the bytes of an operand's element."""
        return self._widths[side]

    @cached_property
    def _lanes(self) -> dict[str, int]:
        return {side: self._neighbours(side) for side in ("left", "right")}

    def lanes(self, side: str) -> int:
        """Return how many neighbours of an operand can be copied at once."""
        return self._lanes[side]

    def _neighbours(self, side: str) -> int:
        if side == "left":
            walked = self.inner if self.along_rows else self.rows
            view = self.kernel.left
        else:
            walked, view = self.columns, self.kernel.right
        axes = [a for a in walked if a.size > 1]
        if not axes or getattr(axes[-1], side) != 1:
            return 1
        every = [*self.batch, *self.rows, *self.columns, *self.inner]
        others = [getattr(a, side) for a in every if a is not axes[-1] and a.size > 1]
        width = 16 // min(self.width(side), 4)
        while width > 1 and any(
            one % width for one in (*others, view.offset, axes[-1].size)
        ):
            width //= 2
        return width

    def tiles(self, tile: Tile) -> int:
        """Return how many tiles there are."""
        return self.batches * -(-self.m // tile.rows) * -(-self.n // tile.columns)


@dataclass(frozen=True)
class LaunchContext:
    """What a kernel finds on the GPU."""

    alone: bool  # at most one product is launched
    early: bool = False  # its right operand has long been ready
    most: int = 1 << 30  # blocks that run at once beside what else is launched
    aside: int = 1 << 30  # blocks of what nobody waits for


@dataclass(frozen=True)
class Tiling:
    """A tile, over how many blocks its inner axis is cut, and how far copies run."""

    tile: Tile
    splits: int
    stages: int


def choose_tiling(
    product: Product, bf16: bool, room: int, most: int = 1 << 30
) -> tuple[Tiling, float]:
    """Choose the cheapest way to cut a product, by a rough model of a large GPU.

    Into `most` blocks, if that can be. Also return what it costs.
    """
    parts = product.parts
    found = _cuts(product, bf16, room, [parts] if parts > 1 else None)
    few = [one for one in found if product.tiles(one.tile) * one.splits <= most]
    found = few or found
    costs = [_cost(product, one, bf16, parts > 1) for one in found]
    best = min(range(len(found)), key=costs.__getitem__)
    return found[best], costs[best]


def on_tensor_cores(kernel: Contract, precision: str) -> bool:
    """Return whether a contraction may round its operands, and has any."""
    dtype = computed(kernel.out.buffer.dtype)
    exact = precision == "float32" or dtype != np.float32
    return not exact and Product(kernel).k > 0


def choose_split_k(product: Product, bf16: bool, room: int) -> tuple[int, float]:
    """Return into how many parts to cut the sums of a product, and its cost then."""
    found = _cuts(product, bf16, room)
    costs = [_cost(product, one, bf16, one.splits > 1) for one in found]
    whole = min(_cost(product, one, bf16, False) for one in found)
    best = min(range(len(found)), key=costs.__getitem__)
    return (found[best].splits, costs[best]) if costs[best] < whole else (1, whole)


def _cuts(
    product: Product, bf16: bool, room: int, splits: list[int] | None = None
) -> list[Tiling]:
    made = []
    for tile in TILES:
        steps = -(-product.k // tile.step(bf16))
        each = _stage_bytes(product, tile, bf16)
        if _sums_bytes(tile) > room:
            continue
        for count in splits or _splits(product.tiles(tile), steps):
            most = max(2, min(-(-steps // count), MOST_STAGES))
            stages = min(most, room // each)
            if stages > 1:
                made.append(Tiling(tile, count, stages))
    return made


def _splits(tiles: int, steps: int) -> list[int]:
    """Return numbers of splits to think about: powers of two, and what fills a GPU."""
    found = {1, 2, 4, 8, 16, 32, 64}
    found |= {turns * PROCESSORS // tiles for turns in (1, 2, 3, 4)}
    return sorted(n for n in found if 1 <= n <= min(steps, 128))


def _cost(product: Product, cut: Tiling, bf16: bool, parted: bool) -> float:
    """Return about how many nanoseconds a product takes."""
    tile, step = cut.tile, cut.tile.step(bf16)
    each = -(-product.tiles(tile) * cut.splits // PROCESSORS)  # blocks of a processor
    steps = math.ceil(math.ceil(product.k / step) / cut.splits)
    left, right = product.width("left"), product.width("right")
    far = tile.rows / min(product.again, 4.0) * left + tile.columns * right
    copied = far * step / BANDWIDTH
    lanes = tile.rows * left / _speed(product.lanes("left") * left)
    lanes += tile.columns * right / _speed(product.lanes("right") * right)
    near = tile.rows * tile.warps_across * left + tile.columns * tile.warps_down * right
    shared = shared_bytes(product, tile, cut.stages, bf16)
    together = side_by_side(shared)
    if not parted:  # else other products work while this one waits
        together = min(together, each)
    # While the only block of a processor waits, nobody works.
    slowly = 1.7 if together == 1 else 1.2
    if product.again > READS_AGAIN:  # windows: places of elements take some arithmetic
        slowly *= 1.2
    worked = (near + lanes) / 128 * step / CLOCK * slowly
    waits = max(steps / (cut.stages - 1), 1)
    waited = -(-each // together) * (waits * LATENCY + steps * 80)
    size = tile.rows * tile.columns * 4
    near_ends = tile.groups * tile.rows * tile.columns / 12 / CLOCK
    ends = 1000 + each * (200 + near_ends + size / BANDWIDTH)
    if cut.splits > 1 and parted:
        ends += cut.splits * product.m * product.n * 4 / BANDWIDTH / PROCESSORS
    elif cut.splits > 1:
        ends += 2500 + cut.splits * size / BANDWIDTH
    return max(each * steps * max(copied, worked), waited) + ends


def side_by_side(shared: int) -> int:
    """Return how many blocks with so much shared memory run on a processor, 2 at most.

    >>> side_by_side(100 * 1024), side_by_side(120 * 1024)
    (2, 1)
    """
    return min(max(SHARED // (shared + 1024), 1), 2)


def _speed(copied: int) -> float:
    """Return how fast copies of so many bytes are."""
    return {16: 1.0, 8: 0.6, 4: 0.35}[copied]


def shared_bytes(product: Product, tile: Tile, stages: int, bf16: bool) -> int:
    """Return the shared memory that a tile needs on tensor cores."""
    return max(stages * _stage_bytes(product, tile, bf16), _sums_bytes(tile))


def _stage_bytes(product: Product, tile: Tile, bf16: bool) -> int:
    step = tile.step(bf16)
    width = product.width("left")
    if product.along_rows:
        left = tile.rows * (step * width + 16)
    else:
        left = step * (tile.rows + (16 if width == 1 else 8)) * width
    return left + step * line_of(tile.columns) * product.width("right")


def _sums_bytes(tile: Tile) -> int:
    return 4 * tile.groups * tile.rows * line_of(tile.columns)


def _by_channels(rows: tuple[Axis, ...], inner: tuple[Axis, ...]) -> list[Axis]:
    """Put the places of a window that share elements into the same tiles.

    The rows of a kernel's gradient are (taps, channels), the last two one long axis;
    some channels of all taps read the same pixels.
    """
    axes = [axis for axis in rows if axis.size > 1]
    if not axes or axes[-1].left != 1:
        return list(rows)
    *outer, last = axes
    steps = [a.left for a in inner if a.size > 1 and 1 < a.left < last.size]
    channels = min(steps, default=last.size)
    if last.size % channels or channels % CHANNELS:
        return list(rows)
    if channels < last.size:
        part = Axis(last.size // channels, channels, 0, channels * last.out)
        outer.append(part)
    if not outer:
        return list(rows)
    first = Axis(channels // CHANNELS, CHANNELS, 0, CHANNELS * last.out)
    return [first, *outer, Axis(CHANNELS, 1, 0, last.out)]


def plain_splits(product: Product) -> int:
    """Return over how many blocks to cut an exact product's sums."""
    splits = 1
    steps = -(-product.k // PLAIN_STEP)
    while product.tiles(PLAIN) * splits < PROCESSORS and splits * 8 <= steps:
        splits *= 2
    return splits
