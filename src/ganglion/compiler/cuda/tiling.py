"""Tilings of contractions: tiles, split-K, and their estimated cost on a GPU."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ganglion.compiler.cuda.fusion import GatheredContract, SplitContract, sizes
from ganglion.compiler.cuda.target import TUNING, GpuSpec
from ganglion.compiler.cuda.text import THREADS, computed
from ganglion.compiler.plan.kernels import Axis, Contract


def line_of(columns: int) -> int:
    """Return the distance of rows in shared memory: an odd multiple of 8 elements.

    So rows that are read at once are in different banks.

    >>> line_of(32), line_of(24)
    (40, 24)
    """
    return columns if columns % 16 else columns + 8


@dataclass(frozen=True)
class Tile:
    """The part of a product that a block computes, and how warps share it."""

    rows: int
    columns: int
    warps_down: int
    warps_across: int
    depth: int = 32  # of the inner axis, copied at a time, at least

    @property
    def groups(self) -> int:
        """The number of groups of warps among which the inner axis is divided."""
        return THREADS // 32 // (self.warps_down * self.warps_across)

    def step(self, bf16: bool) -> int:
        """Return how much of the inner axis is copied at a time."""
        return max(self.depth, (16 if bf16 else 8) * self.groups)


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
# For many models, whose blocks are enough without dividing the inner axis.
TILES_OF_MODELS = (
    Tile(128, 64, 4, 2),
    Tile(64, 64, 2, 4, depth=64),
    Tile(64, 64, 2, 4),
    Tile(64, 32, 4, 2),
    Tile(32, 64, 2, 4),
    Tile(32, 32, 2, 4),
)
TILES_OF_PROCESSORS = (Tile(64, 128, 2, 4, depth=64),)  # a single block on each
TILES_WITH_ALL_COLUMNS = (Tile(64, 128, 2, 4),)  # of blocks that keep the right operand
PLAIN = Tile(64, 64, 4, 2)
PLAIN_STEP = 16


class Product:
    """A contraction as matrices; batch axes of only one operand are merged into it."""

    def __init__(self, kernel: Contract) -> None:
        self.kernel = kernel
        to_rows = [a for a in kernel.batch if a.right == 0]
        to_columns = [a for a in kernel.batch if a.right and a.left == 0]
        # Columns must stay adjacent in memory, so merged axes are put before them.
        self.batch = [a for a in kernel.batch if a.left and a.right]
        self.rows = [*to_rows, *_by_channels(kernel.rows, kernel.inner)]
        self.columns = [*to_columns, *kernel.columns]
        self.inner = list(kernel.inner)

    @property
    def parts(self) -> int:
        """How many parts of split sums are stored: 1 without split-K."""
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

    @property
    def is_matrix_product(self) -> bool:
        """Whether sums run along a single axis, unlike those over windows of images."""
        return sum(axis.size > 1 for axis in self.inner) < 2

    @cached_property
    def along_rows(self) -> bool:
        """Whether the left operand is contiguous along the inner axis, not rows."""
        inner = next((a for a in reversed(self.inner) if a.size > 1), None)
        row = next((a for a in reversed(self.rows) if a.size > 1), None)
        return row is None or row.left != 1 or (inner is not None and inner.left == 1)

    @cached_property
    def again(self) -> float:
        """How often an element of the left operand is read, by a row of tiles."""
        if isinstance(self.kernel, GatheredContract):
            return 1.0
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
        """Return how many adjacent elements of an operand a copy can move."""
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
            other % width for other in (*others, view.offset, axes[-1].size)
        ):
            width //= 2
        return width

    def tiles(self, tile: Tile) -> int:
        """Return how many tiles there are."""
        return self.batches * -(-self.m // tile.rows) * -(-self.n // tile.columns)


@dataclass(frozen=True)
class LaunchContext:
    """The conditions under which a kernel runs on the GPU."""

    spec: GpuSpec
    room: int  # bytes of shared memory that a block may use
    alone: bool  # whether at most one product is launched
    weights_ready: bool = False  # whether the right operand is written long before
    most_blocks: int = 1 << 30  # that run at once beside the other kernels of a launch
    most_prefetch_blocks: int = 1 << 30
    time_loops: int = 1  # launched together: the blocks of all of them must run at once
    models: int = 1  # that are launched at once, each with the sums of one alone


@dataclass(frozen=True)
class SumOrder:
    """The order in which a product adds up, which tiles must not change."""

    groups: int  # that share the inner axis, step by step
    cuts: int  # over blocks
    step: int  # each cut has complete steps


@dataclass(frozen=True)
class Tiling:
    """A tile, over how many blocks the inner axis is split, and how far copies run.

    Sums may have the order of another tiling. Groups of that order are merged where
    the left operand is then read in complete lines: elsewhere that gains nothing.
    Blocks may keep all of the right operand, and compute one tile after the other.
    """

    tile: Tile
    splits: int
    stages: int
    order: SumOrder | None = None
    whole_lines: bool = False
    keeps_right: bool = False
    pairs: bool = True  # two blocks per multiprocessor, each with half its registers
    sums_stay: bool = (
        False  # threads store their own sums, four adjacent ones at a time
    )

    def groups_at_once(self, bf16: bool) -> int:
        """Return how many groups of an order a warp merges.

        Their operands are adjacent, and each group has separate sums, besides those of
        all groups of a cut, and of all cuts: as many as registers hold.
        """
        order, tile = self.order, self.tile
        assert order is not None
        if not self.whole_lines:
            return 1
        sums = tile.rows * tile.columns // THREADS
        at_once, others = 1, 2 if order.cuts > 1 else 1
        most_sums = TUNING.most_sums_of_thread
        if not self.pairs:
            most_sums = TUNING.most_sums_of_lone_thread
        most = min(order.groups, tile.step(bf16) // (16 if bf16 else 8))
        while (
            2 * at_once <= most
            and order.groups % (2 * at_once) == 0
            and (2 * at_once + others) * sums <= most_sums
        ):
            at_once *= 2
        return at_once

    def steps(self, k: int, bf16: bool) -> int:
        """Return how many steps a block takes through sums of this length."""
        step, order = self.tile.step(bf16), self.order
        if order is None:
            return math.ceil(math.ceil(k / step) / self.splits)
        sets = order.groups // self.groups_at_once(bf16)
        return order.cuts * sets * math.ceil(self.set_length(k, bf16) / step)

    def set_length(self, k: int, bf16: bool) -> float:
        """Return the part of the inner axis of the groups that are merged."""
        order = self.order
        assert order is not None
        length = math.ceil(math.ceil(k / order.step) / order.cuts) * order.step
        return length * self.groups_at_once(bf16) / order.groups


def choose_tiling(
    product: Product, spec: GpuSpec, room: int, most_blocks: int = 1 << 30
) -> tuple[Tiling, float]:
    """Return the cheapest tiling of a product by a rough model, and its cost.

    With at most `most_blocks` blocks, if any tiling has so few.
    """
    stored = product.parts > 1
    tilings = _tilings(product, spec, room, [product.parts] if stored else None)
    few = [
        tiling
        for tiling in tilings
        if product.tiles(tiling.tile) * tiling.splits <= most_blocks
    ]
    costs = {tiling: _cost(product, tiling, spec, stored) for tiling in few or tilings}
    best = min(costs, key=costs.__getitem__)
    return best, costs[best]


def tiling_of_models(
    product: Product, alone: Tiling, context: LaunchContext, fours: bool = False
) -> Tiling:
    """Return a tiling for the products of many models, with the sums of a single model.

    With `fours`, four adjacent results can be stored at once.
    """
    spec, tile = context.spec, alone.tile
    order = SumOrder(tile.groups, alone.splits, tile.step(spec.bf16))
    fours = fours and not spec.bf16
    tilings = [] if isinstance(product.kernel, GatheredContract) else [alone]
    for tile in TILES_OF_MODELS:
        tiling = _in_order(product, tile, order, spec, spec.half)
        tilings.append(replace(tiling, sums_stay=fours and _has_fours(tile)))
    if context.alone:  # others would have room for one block, too
        room = spec.shared_per_block - 1024
        for tile in TILES_OF_PROCESSORS:
            tiling = _in_order(product, tile, order, spec, room)
            if shared_bytes(product, tile, tiling.stages, spec.bf16) > spec.half:
                tilings.append(tiling)
    costs = {
        tiling: _cost(product, tiling, spec, False, context.models)
        for tiling in tilings
    }
    for tile in TILES_WITH_ALL_COLUMNS:
        stay = fours and _has_fours(tile)
        if keeping := _keeping_right(product, tile, order, context, stay):
            costs[keeping] = _cost_keeping_right(product, keeping, context)
    return min(costs, key=costs.__getitem__)


def _has_fours(tile: Tile) -> bool:
    """Return whether each thread of this tile has four adjacent results at a time."""
    return tile.columns // tile.warps_across % 16 == 0


def _in_order(
    product: Product, tile: Tile, order: SumOrder, spec: GpuSpec, room: int
) -> Tiling:
    """Return a tiling whose blocks have this much shared memory."""
    stages = room // _stage_bytes(product, tile, spec.bf16)
    pairs = room <= spec.half
    tiling = Tiling(tile, 1, stages, order, product.along_rows, pairs=pairs)
    most = min(max(tiling.steps(product.k, spec.bf16), 2), TUNING.most_stages)
    return replace(tiling, stages=min(stages, most))


def _keeping_right(
    product: Product,
    tile: Tile,
    order: SumOrder,
    context: LaunchContext,
    sums_stay: bool,
) -> Tiling | None:
    """Return a tiling whose blocks keep the right operand, None if they cannot."""
    spec = context.spec
    if product.n > tile.columns or product.batches > 1:
        return None
    tiling = Tiling(tile, 1, 0, order, product.along_rows, keeps_right=True)
    tiling = replace(tiling, sums_stay=sums_stay)
    least = 16 if spec.bf16 else 8
    while tile.depth > least and tiling.set_length(product.k, spec.bf16) < tile.depth:
        tile = replace(tile, depth=tile.depth // 2)
        tiling = replace(tiling, tile=tile)
    free = spec.half - bytes_keeping_right(product, tiling, spec.bf16)
    stages = free // _left_bytes(product, tile, spec.bf16)
    blocks = blocks_keeping_right(product, tiling, spec, context.models)
    if stages < 2 or product.tiles(tile) == blocks:
        return None
    return replace(tiling, stages=min(stages, TUNING.most_stages))


def blocks_keeping_right(
    product: Product, tiling: Tiling, spec: GpuSpec, models: int
) -> int:
    """Return the blocks of each model, if the blocks of all models run at once."""
    shared = bytes_keeping_right(product, tiling, spec.bf16)
    slots = spec.resident_blocks(shared) * spec.processors
    return min(product.tiles(tiling.tile), max(slots // models, 1))


def on_tensor_cores(kernel: Contract, precision: str) -> bool:
    """Return whether a contraction runs on tensor cores, which round its operands."""
    dtype = computed(kernel.out.buffer.dtype)
    exact = precision == "float32" or dtype != np.float32
    return not exact and Product(kernel).k > 0


def choose_split_k(product: Product, spec: GpuSpec, room: int) -> tuple[int, float]:
    """Return into how many parts to split the sums of a product, and the cost."""
    tilings = _tilings(product, spec, room)
    costs = [_cost(product, tiling, spec, tiling.splits > 1) for tiling in tilings]
    unsplit = min(_cost(product, tiling, spec, False) for tiling in tilings)
    best = min(range(len(tilings)), key=costs.__getitem__)
    return (
        (tilings[best].splits, costs[best]) if costs[best] < unsplit else (1, unsplit)
    )


def _tilings(
    product: Product, spec: GpuSpec, room: int, splits: list[int] | None = None
) -> list[Tiling]:
    tilings = []
    for tile in TILES:
        steps = -(-product.k // tile.step(spec.bf16))
        stage = _stage_bytes(product, tile, spec.bf16)
        if _sums_bytes(tile) > room:
            continue
        for count in splits or _splits(product.tiles(tile), steps, spec):
            most = max(2, min(-(-steps // count), TUNING.most_stages))
            stages = min(most, room // stage)
            if stages > 1:
                tilings.append(Tiling(tile, count, stages))
    return tilings


def _splits(tiles: int, steps: int, spec: GpuSpec) -> list[int]:
    """Return numbers of splits to consider: powers of two, and some that fill a GPU."""
    counts = {1, 2, 4, 8, 16, 32, 64}
    counts |= {turns * spec.processors // tiles for turns in (1, 2, 3, 4)}
    return sorted(n for n in counts if 1 <= n <= min(steps, 128))


def _cost(
    product: Product, tiling: Tiling, spec: GpuSpec, stored: bool, models: int = 1
) -> float:
    """Return the estimated nanoseconds of a product; split sums may be `stored`."""
    tile, step = tiling.tile, tiling.tile.step(spec.bf16)
    # Blocks per multiprocessor:
    each = -(-product.tiles(tile) * tiling.splits * models // spec.processors)
    steps = tiling.steps(product.k, spec.bf16)
    left, right = product.width("left"), product.width("right")
    far = tile.rows / min(product.again, 4.0) * left + tile.columns * right
    if tiling.order is not None and product.along_rows:
        piece = tiling.groups_at_once(spec.bf16) * (16 if spec.bf16 else 8) * left
        far += min(max(TUNING.cache_line / piece - 1, 0), 1) * tile.rows * left  # twice
    copied = far * step / TUNING.bandwidth
    lanes = tile.rows * left / _speed(product.lanes("left") * left)
    lanes += tile.columns * right / _speed(product.lanes("right") * right)
    shared_reads = (
        tile.rows * tile.warps_across * left + tile.columns * tile.warps_down * right
    )
    shared = shared_bytes(product, tile, tiling.stages, spec.bf16)
    together = spec.resident_blocks(shared)
    if not stored:  # else other products hide the latency of this one
        together = min(together, each)
    # While the only block of a multiprocessor waits, nothing computes.
    slowly = 1.7 if together == 1 else 1.2
    if product.again > TUNING.window_reuse:  # windows need index arithmetic
        slowly *= 1.2
    worked = (
        (shared_reads + lanes) / TUNING.shared_bandwidth * step / TUNING.clock * slowly
    )
    waits = max(steps / (tiling.stages - 1), 1)
    waited = -(-each // together) * (waits * TUNING.latency + steps * 80)
    size = tile.rows * tile.columns * 4
    near_ends = tile.groups * tile.rows * tile.columns / 12 / TUNING.clock
    ends = 1000 + each * (200 + near_ends + size / TUNING.bandwidth)
    if tiling.splits > 1 and stored:
        ends += (
            tiling.splits
            * product.m
            * product.n
            * 4
            / TUNING.bandwidth
            / spec.processors
        )
    elif tiling.splits > 1:
        ends += 2500 + tiling.splits * size / TUNING.bandwidth
    return max(each * steps * max(copied, worked), waited) + ends


def _cost_keeping_right(
    product: Product, tiling: Tiling, context: LaunchContext
) -> float:
    """Return the estimated nanoseconds of blocks that keep the right operand."""
    spec, tile = context.spec, tiling.tile
    blocks = blocks_keeping_right(product, tiling, spec, context.models)
    tiles = -(-product.tiles(tile) // blocks)  # per block
    each = -(-blocks * context.models // spec.processors)  # blocks per multiprocessor
    steps, step = tiling.steps(product.k, spec.bf16), tile.step(spec.bf16)
    left, right = product.width("left"), product.width("right")
    far = (tiles * tile.rows * left + tile.columns * right) * step * steps
    shared_reads = (
        tile.rows * tile.warps_across * left + tile.columns * tile.warps_down * right
    )
    lanes = tile.rows * left / _speed(product.lanes("left") * left)
    near = (shared_reads + lanes) * step * steps * tiles * 1.2
    copied = each * far / TUNING.bandwidth
    worked = each * near / TUNING.shared_bandwidth / TUNING.clock
    size = tile.rows * tile.columns * 4
    ends = 1000 + each * tiles * (200 + size / TUNING.bandwidth)
    return max(copied, worked, tiles * steps * 80 + TUNING.latency) + ends


def _speed(copied: int) -> float:
    """Return the relative speed of copies of so many bytes."""
    return {16: 1.0, 8: 0.6, 4: 0.35}[copied]


def shared_bytes(product: Product, tile: Tile, stages: int, bf16: bool) -> int:
    """Return the shared memory of a tile on tensor cores."""
    return max(stages * _stage_bytes(product, tile, bf16), _sums_bytes(tile))


def bytes_keeping_right(product: Product, tiling: Tiling, bf16: bool) -> int:
    """Return the shared memory of blocks that keep the right operand."""
    tile = tiling.tile
    kept = tiling.steps(product.k, bf16) * _right_bytes(product, tile, bf16)
    sums = 0 if tiling.sums_stay else _sums_bytes(tile)
    return kept + tiling.stages * _left_bytes(product, tile, bf16) + sums


def _stage_bytes(product: Product, tile: Tile, bf16: bool) -> int:
    return _left_bytes(product, tile, bf16) + _right_bytes(product, tile, bf16)


def _left_bytes(product: Product, tile: Tile, bf16: bool) -> int:
    step, width = tile.step(bf16), product.width("left")
    if product.along_rows:
        return tile.rows * (step * width + 16)
    return step * (tile.rows + (16 if width == 1 else 8)) * width


def _right_bytes(product: Product, tile: Tile, bf16: bool) -> int:
    return tile.step(bf16) * line_of(tile.columns) * product.width("right")


def _sums_bytes(tile: Tile) -> int:
    return 4 * tile.groups * tile.rows * line_of(tile.columns)


def _by_channels(rows: tuple[Axis, ...], inner: tuple[Axis, ...]) -> list[Axis]:
    """Order rows so that taps of a window that share elements are in the same tiles.

    The rows of a kernel's gradient are (taps, channels), the last two merged into a
    long axis; some channels of all taps read the same pixels.
    """
    axes = [axis for axis in rows if axis.size > 1]
    if not axes or axes[-1].left != 1:
        return list(rows)
    *outer, last = axes
    steps = [a.left for a in inner if a.size > 1 and 1 < a.left < last.size]
    channels = min(steps, default=last.size)
    together = TUNING.channels_together
    if last.size % channels or channels % together:
        return list(rows)
    if channels < last.size:
        part = Axis(last.size // channels, channels, 0, channels * last.out)
        outer.append(part)
    if not outer:
        return list(rows)
    first = Axis(channels // together, together, 0, together * last.out)
    return [first, *outer, Axis(together, 1, 0, last.out)]


def plain_splits(product: Product, spec: GpuSpec) -> int:
    """Return over how many blocks to split the sums of an exact product."""
    splits = 1
    steps = -(-product.k // PLAIN_STEP)
    while product.tiles(PLAIN) * splits < spec.processors and splits * 8 <= steps:
        splits *= 2
    return splits
