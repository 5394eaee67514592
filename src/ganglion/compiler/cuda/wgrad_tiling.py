"""How gradients of a convolution's weights are cut, and what that costs on a GPU."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ganglion.compiler.cuda.epilogue import joined
from ganglion.compiler.cuda.fprop_tiling import NEAR, ConvGeometry, in_chunks
from ganglion.compiler.cuda.tiling import (
    BANDWIDTH,
    CLOCK,
    LARGE,
    LATENCY,
    LONG,
    PROCESSORS,
    Product,
    choose_split_k,
    on_tensor_cores,
    plain_splits,
    side_by_side,
)
from ganglion.compiler.plan.kernels import Axis, Contract

MOST_TAPS = 10  # places of a window whose sums a warp holds in registers


@dataclass(frozen=True)
class ConvWgrad:
    """The gradient of a convolution's weights: sums over all pixels."""

    window: ConvGeometry
    right: tuple[int, int, int]  # elements from image to image, row to row, point


def conv_wgrad_of(product: Product, bf16: bool) -> ConvWgrad | None:
    """Return a product as the gradient of a window's weights, None if it is none."""
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
    if not fits or not math.prod(window) > 1 or window[1] > MOST_TAPS:
        return None
    (image,) = images
    steps = (image.left, y.left if len(rows) == 2 else 0)
    found = ConvGeometry(image.size, y.size, x.size, *steps, channels, window)
    return ConvWgrad(found, (image.right, y.right, x.right))


@dataclass(frozen=True)
class WgradTiling:
    """How a weights' gradient is shared by warps, blocks and parts."""

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

    def results(self, product: Product, window: ConvGeometry) -> int:
        """Return how many blocks all weights take."""
        down = -(-window.channels // (16 * self.warps_down))
        across = -(-product.n // (16 * self.warps_across))
        return down * across * (window.window[0] // self.tap_rows)

    def tiles_y(self, window: ConvGeometry) -> int:
        """Return how many tiles an image has, from top to bottom."""
        return -(-window.y // self.tile_y)

    def tiles(self, window: ConvGeometry) -> int:
        """Return how many tiles the images have."""
        return -(-window.images // self.tile_images) * self.tiles_y(window)


def choose_wgrad_tiling(
    product: Product, taps: ConvWgrad, bf16: bool, room: int, parts: int = 0
) -> tuple[WgradTiling, float] | None:
    """Return the cheapest way to cut a weights' gradient, and its cost."""
    found = [
        one
        for one in _taps_cuts(product, taps.window, parts)
        if wgrad_bytes(product, taps.window, one, bf16) <= room
    ]
    if not found:
        return None
    costs = [_taps_cost(product, taps.window, one, bf16) for one in found]
    best = min(range(len(found)), key=costs.__getitem__)
    return found[best], costs[best]


def _taps_cuts(
    product: Product, window: ConvGeometry, parts: int
) -> Iterator[WgradTiling]:
    down, across = window.window
    tap_rows = max(
        n for n in range(1, down + 1) if down % n == 0 and n * across <= MOST_TAPS
    )
    sides = [(d, a) for d in (1, 2, 4, 8) for a in (1, 2, 4, 8) if d * a <= 8]
    for warps_down, warps_across in sides:
        if (warps_down - 1) * 16 >= window.channels or (
            (warps_across - 1) * 16 >= product.n
        ):
            continue
        for tile_y in range(1, window.y + 1):
            images = window.tile_images(tile_y, 256)
            for stages in (1, 2):
                one = WgradTiling(
                    warps_down, warps_across, tap_rows, images, tile_y, stages, 1
                )
                results, tiles = one.results(product, window), one.tiles(window)
                wanted = {n * PROCESSORS // results for n in (1, 2)}
                for n in {parts} if parts else wanted:
                    if 1 <= n <= tiles:
                        yield replace(one, parts=n)


def wgrad_bytes(
    product: Product, window: ConvGeometry, cut: WgradTiling, bf16: bool
) -> int:
    """Return the shared memory that patches and points, or sums, need."""
    taps = cut.tap_rows * window.window[1]
    sums = cut.warps_down * cut.warps_across * taps * 8 * 32 * 4
    copies = cut.stages * _points_bytes(product, window, cut, bf16)
    return max(copies, sums if cut.groups > 1 else 0)


def _points_bytes(
    product: Product, window: ConvGeometry, cut: WgradTiling, bf16: bool
) -> int:
    beside = -(-window.x // 8)
    height = cut.tile_y + cut.tap_rows - 1
    pixels = cut.tile_images * height * (beside * 8 + window.window[1] - 1)
    points = _strips(window, cut, bf16) * cut.tile_y * 8
    pad = 8 if bf16 else 4
    left = pixels * (16 * cut.warps_down + pad) * product.width("left")
    return left + points * (16 * cut.warps_across + pad) * product.width("right")


def _strips(window: ConvGeometry, cut: WgradTiling, bf16: bool) -> int:
    """Return how many strips of 8 pixels a tile has, with those that fill it up."""
    strips = cut.tile_images * -(-window.x // 8)
    return -(-strips // 2) * 2 if bf16 else strips


def _taps_cost(
    product: Product, window: ConvGeometry, cut: WgradTiling, bf16: bool
) -> float:
    taps, across = cut.tap_rows * window.window[1], window.window[1]
    steps = _strips(window, cut, bf16) // (2 if bf16 else 1)
    turns = -(-steps // cut.groups)
    warps = cut.warps_down * cut.warps_across * cut.groups
    row = across if bf16 else (across + 1) / 2  # 512 bytes each
    loaded = (row * (cut.tile_y + cut.tap_rows - 1) + cut.tile_y) * 512 / NEAR
    multiplied = cut.tile_y * taps * 2 * (1.4 if bf16 else 1.6)
    worked = turns * (warps * max(loaded, multiplied) + cut.tile_y * 60) / CLOCK
    copied = _points_bytes(product, window, cut, bf16) / BANDWIDTH
    blocks = cut.results(product, window) * cut.parts
    each = -(-blocks // PROCESSORS)
    mine = -(-cut.tiles(window) // cut.parts)
    shared = wgrad_bytes(product, window, cut, bf16)
    together = side_by_side(shared)
    alone = together == 1 and cut.stages == 1
    hidden = worked + copied if alone else max(worked, copied)
    hidden += 400 / together
    waited = LATENCY * (mine if cut.stages == 1 else 1)
    ends = 300 + 400 * (cut.groups - 1)
    added = 2 * cut.parts * product.m * product.n * 4 / BANDWIDTH / PROCESSORS
    return 1500 + each * (mine * hidden + ends) + -(-each // together) * waited + added


def split_k_of(kernel: Contract, precision: str, room: int) -> int:
    """Return into how many parts to cut the sums of a contraction: 1 for none."""
    product, bf16 = Product(kernel), precision == "bf16"
    if product.k < LONG or product.m * product.n > LARGE:
        return 1
    if not on_tensor_cores(kernel, precision):
        return plain_splits(product)
    parts, cost = choose_split_k(product, bf16, room)
    taps = conv_wgrad_of(product, bf16)
    found = choose_wgrad_tiling(product, taps, bf16, room) if taps else None
    return found[0].parts if found and found[1] < cost else parts
