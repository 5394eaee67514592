"""Tilings of convolutions (implicit GEMM), and their estimated cost on a GPU.

Forward (fprop), a block stages a patch of the images beside the weights; for the
gradient of the weights (wgrad), it stages patches of images and of the gradient.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ganglion.compiler.cuda.fusion import joined
from ganglion.compiler.cuda.target import TUNING, GpuSpec
from ganglion.compiler.cuda.tiling import (
    LaunchContext,
    Product,
    Tile,
    line_of,
)
from ganglion.compiler.plan.kernels import Axis

CONV_TILES = (
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


@dataclass(frozen=True)
class ConvGeometry:
    """A convolution of images (count, y, x, channels) with a filter, by strides."""

    images: int
    y: int
    x: int
    image_step: int  # elements from image to image
    y_step: int
    channels: int
    filter_size: tuple[int, int]

    def tile_images(self, tile_y: int, points: int) -> int:
        """Return how many images a tile with this many points covers."""
        all_rows = tile_y == self.y
        count = points // (tile_y * self.x) if all_rows else 1
        return min(max(count, 1), self.images)


def conv_fprop_of(product: Product, bf16: bool) -> ConvGeometry | None:
    """Return a product's geometry, if it is a convolution of overlapping windows."""
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
    """Return whether an operand is staged 16 bytes at a time, without conversion."""
    width = product.width(side)
    return width == (2 if bf16 else 4) and product.lanes(side) * width == 16


class _Patches:
    """Tiles that consist of complete rows of images."""

    tile_images: int
    tile_y: int

    def tiles_y(self, conv: ConvGeometry) -> int:
        """Return how many tiles an image has, from top to bottom."""
        return -(-conv.y // self.tile_y)

    def tiles(self, conv: ConvGeometry) -> int:
        """Return how many tiles the images have."""
        return -(-conv.images // self.tile_images) * self.tiles_y(conv)


@dataclass(frozen=True)
class FpropTiling(_Patches):
    """A tile of complete rows of images, and the depth of the weights' pipeline."""

    tile: Tile
    tile_images: int
    tile_y: int
    step: int  # of the inner axis, copied at a time
    stages: int
    patches: int

    def stays(self, product: Product) -> bool:
        """Return whether a block keeps all weights of its columns."""
        return self.stages * self.step >= product.k


def choose_fprop_tiling(
    product: Product, conv: ConvGeometry, context: LaunchContext, usual: float
) -> FpropTiling | None:
    """Return the cheapest tiling by patches, None if no tiling pays.

    `usual` is the cost of the convolution as a plain product.
    """
    best, least = None, usual
    for tiling in _fprop_tilings(product, conv, context.spec.bf16):
        shared = fprop_bytes(product, conv, tiling)
        if shared > context.room:
            continue
        cost = _fprop_cost(product, conv, tiling, context, shared)
        if cost < least:
            best, least = tiling, cost
    return best


def _fprop_tilings(
    product: Product, conv: ConvGeometry, bf16: bool
) -> Iterator[FpropTiling]:
    for tile in CONV_TILES:
        if tile.columns > max(product.n, 32) or tile.columns < min(product.n, 17):
            continue
        if tile.columns % 32 and product.n % tile.columns:
            continue
        base = tile.step(bf16)
        steps = {base: True, 2 * base: conv.channels % (2 * base) == 0}
        # Steps of complete pixels need less index arithmetic.
        pixels = math.lcm(conv.channels, tile.groups * (16 if bf16 else 8))
        steps |= {pixels: pixels <= 4 * base}
        for tile_y in range(1, min(tile.rows // conv.x, conv.y) + 1):
            images = conv.tile_images(tile_y, tile.rows)
            for step in (width for width, suits in steps.items() if suits):
                all_stages = -(-product.k // step)
                for patches in (1, 2):
                    yield FpropTiling(tile, images, tile_y, step, all_stages, patches)
                for stages in (2, 3, 4):
                    if stages < all_stages:
                        yield FpropTiling(tile, images, tile_y, step, stages, 1)


def fprop_bytes(product: Product, conv: ConvGeometry, tiling: FpropTiling) -> int:
    """Return the shared memory of patches and weights."""
    tile = tiling.tile
    copied = tiling.stages * tiling.step
    weights = copied * line_of(tile.columns) * product.width("right")
    sums = 4 * tile.groups * tile.rows * line_of(tile.columns)
    return tiling.patches * max(_patch_bytes(product, conv, tiling), sums) + weights


def _patch_bytes(product: Product, conv: ConvGeometry, tiling: FpropTiling) -> int:
    down, across = conv.filter_size
    pixels = tiling.tile_images * (tiling.tile_y + down - 1) * (conv.x + across - 1)
    return pixels * (conv.channels * product.width("left") + 16)


def fprop_blocks(
    product: Product, conv: ConvGeometry, tiling: FpropTiling, context: LaunchContext
) -> int:
    """Return how many blocks share the tiles: those that run at once."""
    return _blocks(product, conv, tiling, context, fprop_bytes(product, conv, tiling))


def _blocks(
    product: Product,
    conv: ConvGeometry,
    tiling: FpropTiling,
    context: LaunchContext,
    shared: int,
) -> int:
    across = -(-product.n // tiling.tile.columns)
    per_processor = context.spec.resident_blocks(shared) if context.alone else 1
    slots = context.spec.processors * per_processor
    if not tiling.stays(product):
        slots = max(slots, tiling.tiles(conv) * across)
    slots = min(slots, context.most_blocks)
    return across * min(tiling.tiles(conv), max(slots // across, 1))


def _fprop_cost(
    product: Product,
    conv: ConvGeometry,
    tiling: FpropTiling,
    context: LaunchContext,
    shared: int,
) -> float:
    tile, spec = tiling.tile, context.spec
    right = product.width("right")
    blocks = _blocks(product, conv, tiling, context, shared)
    across = -(-product.n // tile.columns)
    rounds = -(-tiling.tiles(conv) * across // blocks)
    each = rounds * -(-blocks // spec.processors)  # tiles of a multiprocessor
    even = conv.channels % tiling.step == 0
    worked = product.k * _fprop_cycles(product, tile, spec.bf16, even) / TUNING.clock
    copied = _patch_bytes(product, conv, tiling) / TUNING.bandwidth
    weights = product.k * tile.columns * right / TUNING.bandwidth
    per_processor = spec.resident_blocks(shared)
    if context.alone:  # else other products hide the latency of this one
        per_processor = min(per_processor, each)
    in_flight = min(tiling.patches, rounds)
    if not tiling.stays(product):
        worked = max(worked, weights) + product.k / tiling.step * 100 / per_processor
        weights = 0
    elif context.weights_ready:  # most are loaded while the previous launch ends
        weights /= 4
    size = tile.rows * tile.columns * 4
    ends = 200 + tile.groups * size / 48 / TUNING.clock + size / TUNING.bandwidth
    waited = TUNING.latency / (per_processor * in_flight)
    hidden = max(worked, copied) if per_processor * in_flight > 1 else worked + copied
    return 1000 + TUNING.latency + weights + each * (hidden + ends + waited)


def _fprop_cycles(product: Product, tile: Tile, bf16: bool, even: bool) -> float:
    """Return the cycles of a tile for each element of the inner axis.

    Steps that divide a pixel's channels evenly need less index arithmetic.
    """
    left, right = product.width("left"), product.width("right")
    shared_reads = (
        tile.rows * tile.warps_across * left + tile.columns * tile.warps_down * right
    )
    multiplied = tile.rows * tile.columns / (1500 if bf16 else 750)
    down = tile.rows // tile.warps_down // 16
    beside = tile.columns // tile.warps_across // 8
    instructions = down + beside / 2 + down * beside + (6 if even else 16)
    issued = 8 / tile.groups / (16 if bf16 else 8) * instructions / 1.7
    return max(shared_reads / TUNING.shared_bandwidth, multiplied, issued)


@dataclass(frozen=True)
class ConvWgrad:
    """The gradient of a convolution's weights: sums over all pixels."""

    conv: ConvGeometry
    right: tuple[int, int, int]  # strides of the right operand: image, row, point


def conv_wgrad_of(product: Product, bf16: bool) -> ConvWgrad | None:
    """Return a product as the gradient of a filter, None if it is something else."""
    kernel = product.kernel
    if not all(in_chunks(product, side, bf16) for side in ("left", "right")):
        return None
    rows = [a for a in kernel.rows if a.size > 1]
    columns = [a for a in kernel.columns if a.size > 1]
    inner = joined(kernel.inner, "left", "right")
    if any(a.size > 1 for a in kernel.batch) or len(columns) != 1:
        return None
    if len(rows) not in (1, 2) or rows[-1].left != 1 or not 2 <= len(inner) <= 3:
        return None
    x, channels = inner[-1], inner[-1].left
    y = inner[-2] if len(rows) == 2 else Axis(1)
    images = inner[: len(inner) - len(rows)]
    fits = (
        len(images) == 1
        and channels > 1
        and rows[-1].size % channels == 0
        and (len(rows) == 1 or rows[0].left == y.left)
        and columns[0].right == 1
        and channels * product.width("left") % 16 == 0
    )
    window = (rows[0].size if len(rows) == 2 else 1, rows[-1].size // max(channels, 1))
    if not fits or not math.prod(window) > 1 or window[1] > TUNING.most_wgrad_taps:
        return None
    (image,) = images
    steps = (image.left, y.left if len(rows) == 2 else 0)
    conv = ConvGeometry(image.size, y.size, x.size, *steps, channels, window)
    return ConvWgrad(conv, (image.right, y.right, x.right))


@dataclass(frozen=True)
class WgradTiling(_Patches):
    """How the gradient of weights is divided among warps, blocks and parts."""

    warps_down: int  # 16 channels each
    warps_across: int  # 16 columns each
    tap_rows: int
    tile_images: int
    tile_y: int
    stages: int
    parts: int

    @property
    def groups(self) -> int:
        """How many groups of warps share the pixels of a patch."""
        return 8 // (self.warps_down * self.warps_across)

    def results(self, product: Product, conv: ConvGeometry) -> int:
        """Return how many blocks cover all weights once."""
        down = -(-conv.channels // (16 * self.warps_down))
        across = -(-product.n // (16 * self.warps_across))
        return down * across * (conv.filter_size[0] // self.tap_rows)


def choose_wgrad_tiling(
    product: Product, wgrad: ConvWgrad, spec: GpuSpec, room: int, parts: int = 0
) -> tuple[WgradTiling, float] | None:
    """Return the cheapest tiling of a weights' gradient, and its cost."""
    conv = wgrad.conv
    costs = {
        tiling: _wgrad_cost(product, conv, tiling, spec)
        for tiling in _wgrad_tilings(product, conv, spec, parts)
        if wgrad_bytes(product, conv, tiling, spec.bf16) <= room
    }
    return min(costs.items(), key=lambda pair: pair[1], default=None)


def _wgrad_tilings(
    product: Product, conv: ConvGeometry, spec: GpuSpec, parts: int
) -> Iterator[WgradTiling]:
    down, across = conv.filter_size
    most = TUNING.most_wgrad_taps // across
    tap_rows = max(n for n in range(1, down + 1) if down % n == 0 and n <= most)
    sides = [(d, a) for d in (1, 2, 4, 8) for a in (1, 2, 4, 8) if d * a <= 8]
    for warps_down, warps_across in sides:
        if (warps_down - 1) * 16 >= conv.channels or (
            (warps_across - 1) * 16 >= product.n
        ):
            continue
        for tile_y in range(1, conv.y + 1):
            images = conv.tile_images(tile_y, 256)
            for stages in (1, 2):
                tiling = WgradTiling(
                    warps_down, warps_across, tap_rows, images, tile_y, stages, 1
                )
                results, tiles = tiling.results(product, conv), tiling.tiles(conv)
                wanted = {n * spec.processors // results for n in (1, 2)}
                for n in {parts} if parts else wanted:
                    if 1 <= n <= tiles:
                        yield replace(tiling, parts=n)


def wgrad_bytes(
    product: Product, conv: ConvGeometry, tiling: WgradTiling, bf16: bool
) -> int:
    """Return the shared memory of patches and points, or of sums if that is more."""
    taps = tiling.tap_rows * conv.filter_size[1]
    sums = tiling.warps_down * tiling.warps_across * taps * 8 * 32 * 4
    copies = tiling.stages * _points_bytes(product, conv, tiling, bf16)
    return max(copies, sums if tiling.groups > 1 else 0)


def _points_bytes(
    product: Product, conv: ConvGeometry, tiling: WgradTiling, bf16: bool
) -> int:
    beside = -(-conv.x // 8)
    height = tiling.tile_y + tiling.tap_rows - 1
    pixels = tiling.tile_images * height * (beside * 8 + conv.filter_size[1] - 1)
    points = _strips(conv, tiling, bf16) * tiling.tile_y * 8
    pad = 8 if bf16 else 4
    left = pixels * (16 * tiling.warps_down + pad) * product.width("left")
    return left + points * (16 * tiling.warps_across + pad) * product.width("right")


def _strips(conv: ConvGeometry, tiling: WgradTiling, bf16: bool) -> int:
    """Return how many strips of 8 pixels a tile has, with padding."""
    strips = tiling.tile_images * -(-conv.x // 8)
    return -(-strips // 2) * 2 if bf16 else strips


def _wgrad_cost(
    product: Product, conv: ConvGeometry, tiling: WgradTiling, spec: GpuSpec
) -> float:
    bf16 = spec.bf16
    taps, across = tiling.tap_rows * conv.filter_size[1], conv.filter_size[1]
    steps = _strips(conv, tiling, bf16) // (2 if bf16 else 1)
    rounds = -(-steps // tiling.groups)
    warps = tiling.warps_down * tiling.warps_across * tiling.groups
    row = across if bf16 else (across + 1) / 2  # 512 bytes each
    rows_loaded = row * (tiling.tile_y + tiling.tap_rows - 1) + tiling.tile_y
    loaded = rows_loaded * 512 / TUNING.shared_bandwidth
    multiplied = tiling.tile_y * taps * 2 * (1.4 if bf16 else 1.6)
    cycles = rounds * (warps * max(loaded, multiplied) + tiling.tile_y * 60)
    worked = cycles / TUNING.clock
    copied = _points_bytes(product, conv, tiling, bf16) / TUNING.bandwidth
    blocks = tiling.results(product, conv) * tiling.parts
    each = -(-blocks // spec.processors)
    tiles = -(-tiling.tiles(conv) // tiling.parts)
    shared = wgrad_bytes(product, conv, tiling, bf16)
    per_processor = spec.resident_blocks(shared)
    is_exposed = per_processor == 1 and tiling.stages == 1
    hidden = worked + copied if is_exposed else max(worked, copied)
    hidden += 400 / per_processor
    waited = TUNING.latency * (tiles if tiling.stages == 1 else 1)
    ends = 300 + 400 * (tiling.groups - 1)
    stored = 2 * tiling.parts * product.m * product.n * 4
    added = stored / TUNING.bandwidth / spec.processors
    waits = -(-each // per_processor) * waited
    return 1500 + each * (tiles * hidden + ends) + waits + added
