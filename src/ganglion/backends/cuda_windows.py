"""How convolutions are cut into patches of images, and what that costs on a GPU."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ganglion.backends.cuda_cut import (
    BANDWIDTH,
    CLOCK,
    LARGE,
    LATENCY,
    LONG,
    PROCESSORS,
    Product,
    Tile,
    Where,
    line_of,
    on_tensor_cores,
    parts_of,
    plain_splits,
    side_by_side,
)
from ganglion.backends.cuda_work import joined
from ganglion.plan.kernel import Axis, Contract

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
MOST_TAPS = 10  # places of a window whose sums a warp holds in registers
NEAR = 128  # bytes that a processor's shared memory gives in a cycle


@dataclass(frozen=True)
class Window:
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


def window_of(product: Product, bf16: bool) -> Window | None:
    """Return a product as a convolution whose windows overlap, None if it is none."""
    if not _in_chunks(product, "left", bf16):
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
    return Window(image.size, y.size, x.size, image.left, y.left, channels, window)


def _in_chunks(product: Product, side: str, bf16: bool) -> bool:
    """Tell whether an operand is copied 16 bytes at a time, as it is multiplied."""
    width = product.width(side)
    return width == (2 if bf16 else 4) and product.lanes(side) * width == 16


@dataclass(frozen=True)
class WindowCut:
    """A tile of whole rows of images, and how far copies of the weights run ahead."""

    tile: Tile
    tile_images: int
    tile_y: int
    step: int  # inner places that are copied at a time
    stages: int
    patches: int

    def tiles_y(self, window: Window) -> int:
        """Return how many tiles an image has, from top to bottom."""
        return -(-window.y // self.tile_y)

    def tiles(self, window: Window) -> int:
        """Return how many tiles the images have."""
        return -(-window.images // self.tile_images) * self.tiles_y(window)

    def stays(self, product: Product) -> bool:
        """Tell whether all weights of a block's columns stay with it."""
        return self.stages * self.step >= product.k


def window_cut_of(
    product: Product, window: Window, bf16: bool, room: int, where: Where, usual: float
) -> WindowCut | None:
    """Return the cheapest way to cut a convolution by patches, None if none pays.

    `usual` is what it costs as any other product.
    """
    found = [
        one
        for one in _window_cuts(product, window, bf16)
        if window_bytes(product, window, one) <= room
    ]
    if not found:
        return None
    costs = [_window_cost(product, window, one, bf16, where) for one in found]
    best = min(range(len(found)), key=costs.__getitem__)
    return found[best] if costs[best] < usual else None


def _window_cuts(product: Product, window: Window, bf16: bool) -> Iterator[WindowCut]:
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
                    yield WindowCut(tile, images, tile_y, step, whole, patches)
                for stages in (2, 3, 4):
                    if stages < whole:
                        yield WindowCut(tile, images, tile_y, step, stages, 1)


def window_bytes(product: Product, window: Window, cut: WindowCut) -> int:
    """Return the shared memory that patches and the weights beside them need."""
    tile = cut.tile
    weights = cut.stages * cut.step * line_of(tile.columns) * product.width("right")
    sums = 4 * tile.groups * tile.rows * line_of(tile.columns)
    return cut.patches * max(_patch_bytes(product, window, cut), sums) + weights


def _patch_bytes(product: Product, window: Window, cut: WindowCut) -> int:
    down, across = window.window
    pixels = cut.tile_images * (cut.tile_y + down - 1) * (window.x + across - 1)
    return pixels * (window.channels * product.width("left") + 16)


def window_blocks(
    product: Product, window: Window, cut: WindowCut, where: Where
) -> int:
    """Return how many blocks share the tiles: as many as run at once."""
    across = -(-product.n // cut.tile.columns)
    together = side_by_side(window_bytes(product, window, cut))
    slots = PROCESSORS * (together if where.alone else 1)
    if not cut.stays(product):
        slots = max(slots, cut.tiles(window) * across)
    slots = min(slots, where.most)
    return across * min(cut.tiles(window), max(slots // across, 1))


def _window_cost(
    product: Product, window: Window, cut: WindowCut, bf16: bool, where: Where
) -> float:
    tile = cut.tile
    right = product.width("right")
    blocks = window_blocks(product, window, cut, where)
    across = -(-product.n // tile.columns)
    turns = -(-cut.tiles(window) * across // blocks)
    each = turns * -(-blocks // PROCESSORS)  # tiles of a processor
    whole = window.channels % cut.step == 0
    worked = product.k * _window_cycles(product, tile, bf16, whole) / CLOCK
    copied = _patch_bytes(product, window, cut) / BANDWIDTH
    weights = product.k * tile.columns * right / BANDWIDTH
    shared = window_bytes(product, window, cut)
    together = side_by_side(shared)
    if where.alone:  # else other products work while this one waits
        together = min(together, each)
    ahead = min(cut.patches, turns)
    if not cut.stays(product):
        worked = max(worked, weights) + product.k / cut.step * 100 / together
        weights = 0
    elif where.early:  # most of them come while the launch before ends
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


# ---- gradients of weights ------------------------------------------------------------


@dataclass(frozen=True)
class Taps:
    """The gradient of a convolution's weights: sums over all pixels."""

    window: Window
    right: tuple[int, int, int]  # elements from image to image, row to row, point


def taps_of(product: Product, bf16: bool) -> Taps | None:
    """Return a product as the gradient of a window's weights, None if it is none."""
    kernel = product.kernel
    if not all(_in_chunks(product, side, bf16) for side in ("left", "right")):
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
    found = Window(image.size, y.size, x.size, *steps, channels, window)
    return Taps(found, (image.right, y.right, x.right))


@dataclass(frozen=True)
class TapsCut:
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

    def results(self, product: Product, window: Window) -> int:
        """Return how many blocks all weights take."""
        down = -(-window.channels // (16 * self.warps_down))
        across = -(-product.n // (16 * self.warps_across))
        return down * across * (window.window[0] // self.tap_rows)

    def tiles_y(self, window: Window) -> int:
        """Return how many tiles an image has, from top to bottom."""
        return -(-window.y // self.tile_y)

    def tiles(self, window: Window) -> int:
        """Return how many tiles the images have."""
        return -(-window.images // self.tile_images) * self.tiles_y(window)


def taps_cut_of(
    product: Product, taps: Taps, bf16: bool, room: int, parts: int = 0
) -> tuple[TapsCut, float] | None:
    """Return the cheapest way to cut a weights' gradient, and its cost."""
    found = [
        one
        for one in _taps_cuts(product, taps.window, parts)
        if taps_bytes(product, taps.window, one, bf16) <= room
    ]
    if not found:
        return None
    costs = [_taps_cost(product, taps.window, one, bf16) for one in found]
    best = min(range(len(found)), key=costs.__getitem__)
    return found[best], costs[best]


def _taps_cuts(product: Product, window: Window, parts: int) -> Iterator[TapsCut]:
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
                one = TapsCut(
                    warps_down, warps_across, tap_rows, images, tile_y, stages, 1
                )
                results, tiles = one.results(product, window), one.tiles(window)
                wanted = {n * PROCESSORS // results for n in (1, 2)}
                for n in {parts} if parts else wanted:
                    if 1 <= n <= tiles:
                        yield replace(one, parts=n)


def taps_bytes(product: Product, window: Window, cut: TapsCut, bf16: bool) -> int:
    """Return the shared memory that patches and points, or sums, need."""
    taps = cut.tap_rows * window.window[1]
    sums = cut.warps_down * cut.warps_across * taps * 8 * 32 * 4
    copies = cut.stages * _points_bytes(product, window, cut, bf16)
    return max(copies, sums if cut.groups > 1 else 0)


def _points_bytes(product: Product, window: Window, cut: TapsCut, bf16: bool) -> int:
    beside = -(-window.x // 8)
    height = cut.tile_y + cut.tap_rows - 1
    pixels = cut.tile_images * height * (beside * 8 + window.window[1] - 1)
    points = _strips(window, cut, bf16) * cut.tile_y * 8
    pad = 8 if bf16 else 4
    left = pixels * (16 * cut.warps_down + pad) * product.width("left")
    return left + points * (16 * cut.warps_across + pad) * product.width("right")


def _strips(window: Window, cut: TapsCut, bf16: bool) -> int:
    """Return how many strips of 8 pixels a tile has, with those that fill it up."""
    strips = cut.tile_images * -(-window.x // 8)
    return -(-strips // 2) * 2 if bf16 else strips


def _taps_cost(product: Product, window: Window, cut: TapsCut, bf16: bool) -> float:
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
    shared = taps_bytes(product, window, cut, bf16)
    together = side_by_side(shared)
    alone = together == 1 and cut.stages == 1
    hidden = worked + copied if alone else max(worked, copied)
    hidden += 400 / together
    waited = LATENCY * (mine if cut.stages == 1 else 1)
    ends = 300 + 400 * (cut.groups - 1)
    added = 2 * cut.parts * product.m * product.n * 4 / BANDWIDTH / PROCESSORS
    return 1500 + each * (mine * hidden + ends) + -(-each // together) * waited + added


def parts_for(kernel: Contract, precision: str, room: int) -> int:
    """Return into how many parts to cut the sums of a contraction: 1 for none."""
    product, bf16 = Product(kernel), precision == "bf16"
    if product.k < LONG or product.m * product.n > LARGE:
        return 1
    if not on_tensor_cores(kernel, precision):
        return plain_splits(product)
    parts, cost = parts_of(product, bf16, room)
    taps = taps_of(product, bf16)
    found = taps_cut_of(product, taps, bf16, room) if taps else None
    return found[0].parts if found and found[1] < cost else parts
