"""How convolutions are cut into patches of images, and what that costs on a GPU."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ganglion.compiler.cuda.tiling import (
    BANDWIDTH,
    CLOCK,
    LATENCY,
    PROCESSORS,
    LaunchContext,
    Product,
    Tile,
    line_of,
    side_by_side,
)
from ganglion.compiler.plan.kernels import Axis

WINDOW_TILES = (
    Tile(256, 64, 4, 2),
    Tile(256, 48, 4, 2),
    Tile(256, 32, 8, 1),
    Tile(256, 32, 4, 1),
    Tile(256, 24, 4, 1),
    Tile(128, 48, 4, 2),
    Tile(128, 48, 2, 2),
    Tile(128, 64, 2, 2),
    Tile(128, 64, 4, 2),
    Tile(64, 128, 1, 4),
    Tile(64, 64, 1, 2),
    Tile(64, 64, 2, 2),
    Tile(64, 48, 2, 2),
    Tile(64, 48, 2, 1),
    Tile(128, 32, 4, 1),
    Tile(128, 32, 2, 1),
    Tile(128, 24, 4, 1),
    Tile(128, 24, 2, 1),
    Tile(144, 32, 3, 1),
    Tile(144, 24, 3, 1),
    Tile(96, 32, 2, 1),
    Tile(64, 32, 2, 1),
    Tile(64, 32, 1, 1),
    Tile(48, 32, 1, 1),
    Tile(128, 16, 2, 1),
    Tile(64, 16, 1, 1),
)
NEAR = 128  # bytes that a processor's shared memory gives in a cycle


@dataclass(frozen=True)
class ConvGeometry:
    """A convolution over images (count, y, x, channels) by a window, step by step."""

    images: int
    y: int
    x: int
    image_step: int  # elements from image to image
    y_step: int
    channels: int
    window: tuple[int, int]

    def tile_images(self, tile_y: int, points: int) -> int:
        """Return how many images a tile of so many points has."""
        whole = tile_y == self.y
        found = points // (tile_y * self.x) if whole else 1
        return min(max(found, 1), self.images)


def conv_fprop_of(product: Product, bf16: bool) -> ConvGeometry | None:
    """Return a product as a convolution whose windows overlap, None if it is none."""
    if not in_chunks(product, "left", bf16):
        return None
    rows = [a for a in product.rows if a.size > 1]
    inner = [a for a in product.inner if a.size > 1]
    if product.batch or product.parts > 1 or len(rows) not in (2, 3) or len(inner) != 2:
        return None
    image = rows[0] if len(rows) == 3 else Axis(1)
    y, x = rows[-2:]
    channels = x.left
    down, across = inner
    fits = (
        across.left == 1
        and channels > 0
        and across.size % channels == 0
        and across.size > channels
        and down.left == y.left
        and channels % 8 == 0
    )
    if not fits:
        return None
    window = (down.size, across.size // channels)
    return ConvGeometry(
        image.size, y.size, x.size, image.left, y.left, channels, window
    )


def in_chunks(product: Product, side: str, bf16: bool) -> bool:
    """Return whether an operand is copied 16 bytes at a time, as it is multiplied."""
    width = product.width(side)
    return width == (2 if bf16 else 4) and product.lanes(side) * width == 16


@dataclass(frozen=True)
class FpropTiling:
    """A tile of whole rows of images, and how far copies of the weights run ahead."""

    tile: Tile
    tile_images: int
    tile_y: int
    step: int  # inner places that are copied at a time
    stages: int
    patches: int

    def tiles_y(self, window: ConvGeometry) -> int:
        """Return how many tiles an image has, from top to bottom."""
        return -(-window.y // self.tile_y)

    def tiles(self, window: ConvGeometry) -> int:
        """Return how many tiles the images have."""
        return -(-window.images // self.tile_images) * self.tiles_y(window)

    def stays(self, product: Product) -> bool:
        """Return whether all weights of a block's columns stay with it."""
        return self.stages * self.step >= product.k


def choose_fprop_tiling(
    product: Product,
    window: ConvGeometry,
    bf16: bool,
    room: int,
    context: LaunchContext,
    usual: float,
) -> FpropTiling | None:
    """Return the cheapest way to cut a convolution by patches, None if none pays.

    `usual` is what it costs as any other product.
    """
    best, least = None, usual
    for one in _window_cuts(product, window, bf16):
        shared = fprop_bytes(product, window, one)
        if shared > room:
            continue
        cost = _window_cost(product, window, one, bf16, context, shared)
        if cost < least:
            best, least = one, cost
    return best


def _window_cuts(
    product: Product, window: ConvGeometry, bf16: bool
) -> Iterator[FpropTiling]:
    for tile in WINDOW_TILES:
        if tile.columns > max(product.n, 32) or tile.columns < min(product.n, 17):
            continue
        if tile.columns % 32 and product.n % tile.columns:
            continue
        base = tile.step(bf16)
        steps = {base: True, 2 * base: window.channels % (2 * base) == 0}
        # Whole pixels leave less to reckon.
        pixels = math.lcm(window.channels, tile.groups * (16 if bf16 else 8))
        steps |= {pixels: pixels <= 4 * base}
        for tile_y in range(1, min(tile.rows // window.x, window.y) + 1):
            images = window.tile_images(tile_y, tile.rows)
            for step in (one for one, suits in steps.items() if suits):
                whole = -(-product.k // step)
                for patches in (1, 2):
                    yield FpropTiling(tile, images, tile_y, step, whole, patches)
                for stages in (2, 3, 4):
                    if stages < whole:
                        yield FpropTiling(tile, images, tile_y, step, stages, 1)


def fprop_bytes(product: Product, window: ConvGeometry, cut: FpropTiling) -> int:
    """Return the shared memory that patches and the weights beside them need."""
    tile = cut.tile
    weights = cut.stages * cut.step * line_of(tile.columns) * product.width("right")
    sums = 4 * tile.groups * tile.rows * line_of(tile.columns)
    return cut.patches * max(_patch_bytes(product, window, cut), sums) + weights


def _patch_bytes(product: Product, window: ConvGeometry, cut: FpropTiling) -> int:
    down, across = window.window
    pixels = cut.tile_images * (cut.tile_y + down - 1) * (window.x + across - 1)
    return pixels * (window.channels * product.width("left") + 16)


def fprop_blocks(
    product: Product, window: ConvGeometry, cut: FpropTiling, context: LaunchContext
) -> int:
    """Return how many blocks share the tiles: as many as run at once."""
    return _blocks(product, window, cut, context, fprop_bytes(product, window, cut))


def _blocks(
    product: Product,
    window: ConvGeometry,
    cut: FpropTiling,
    context: LaunchContext,
    shared: int,
) -> int:
    across = -(-product.n // cut.tile.columns)
    together = side_by_side(shared)
    slots = PROCESSORS * (together if context.alone else 1)
    if not cut.stays(product):
        slots = max(slots, cut.tiles(window) * across)
    slots = min(slots, context.most)
    return across * min(cut.tiles(window), max(slots // across, 1))


def _window_cost(
    product: Product,
    window: ConvGeometry,
    cut: FpropTiling,
    bf16: bool,
    context: LaunchContext,
    shared: int,
) -> float:
    tile = cut.tile
    right = product.width("right")
    blocks = _blocks(product, window, cut, context, shared)
    across = -(-product.n // tile.columns)
    turns = -(-cut.tiles(window) * across // blocks)
    each = turns * -(-blocks // PROCESSORS)  # tiles of a processor
    whole = window.channels % cut.step == 0
    worked = product.k * _window_cycles(product, tile, bf16, whole) / CLOCK
    copied = _patch_bytes(product, window, cut) / BANDWIDTH
    weights = product.k * tile.columns * right / BANDWIDTH
    together = side_by_side(shared)
    if context.alone:  # else other products work while this one waits
        together = min(together, each)
    ahead = min(cut.patches, turns)
    if not cut.stays(product):
        worked = max(worked, weights) + product.k / cut.step * 100 / together
        weights = 0
    elif context.early:  # most of them come while the launch before ends
        weights /= 4
    size = tile.rows * tile.columns * 4
    ends = 200 + tile.groups * size / 48 / CLOCK + size / BANDWIDTH
    waited = LATENCY / (together * ahead)
    hidden = max(worked, copied) if together * ahead > 1 else worked + copied
    return 1000 + LATENCY + weights + each * (hidden + ends + waited)


def _window_cycles(product: Product, tile: Tile, bf16: bool, whole: bool) -> float:
    """Return the cycles that a tile takes for each inner place.

    Where steps are `whole` parts of a pixel's channels, there is less to reckon.
    """
    left, right = product.width("left"), product.width("right")
    near = tile.rows * tile.warps_across * left + tile.columns * tile.warps_down * right
    multiplied = tile.rows * tile.columns / (1500 if bf16 else 750)
    down = tile.rows // tile.warps_down // 16
    beside = tile.columns // tile.warps_across // 8
    instructions = down + beside / 2 + down * beside + (6 if whole else 16)
    issued = 8 / tile.groups / (16 if bf16 else 8) * instructions / 1.7
    return max(near / NEAR, multiplied, issued)
