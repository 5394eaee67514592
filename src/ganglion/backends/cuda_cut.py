"""How contractions are cut: tiles, parts of sums, and what that costs on a GPU."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ganglion.backends.cuda_text import THREADS
from ganglion.backends.cuda_work import Parted, sizes
from ganglion.plan.kernel import Axis, Contract

PROCESSORS = 132  # of the GPU that this is tuned for
MOST_STAGES = 16
LONG, LARGE = 2048, 1 << 20  # sums and results that are worth parts of their own
CHANNELS = 32  # of an image that are taken together where windows overlap
# Bytes a nanosecond that a processor gets from far, cycles a nanosecond, and how long
# the first byte takes.
BANDWIDTH, CLOCK, LATENCY = 36.0, 1.75, 900.0


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
        return self.kernel.parts if isinstance(self.kernel, Parted) else 1

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
    def along_rows(self) -> bool:
        """Whether the left operand is contiguous along inner places, not along rows."""
        inner = next((a for a in reversed(self.inner) if a.size > 1), None)
        row = next((a for a in reversed(self.rows) if a.size > 1), None)
        return row is None or row.left != 1 or (inner is not None and inner.left == 1)

    @cached_property
    def again(self) -> float:
        """How often an element of the left operand is read, by a row of tiles."""
        return self.batches * self.m * self.k / max(self.kernel.left.buffer.size, 1)

    def lanes(self, side: str) -> int:
        """Return how many neighbours of an operand can be copied at once."""
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
        width = 4
        while width > 1 and any(
            one % width for one in (*others, view.offset, axes[-1].size)
        ):
            width //= 2
        return width

    def tiles(self, tile: Tile) -> int:
        """Return how many tiles there are."""
        return self.batches * -(-self.m // tile.rows) * -(-self.n // tile.columns)


@dataclass(frozen=True)
class Cut:
    """A tile, over how many blocks its inner axis is cut, and how far copies run."""

    tile: Tile
    splits: int
    stages: int


def cut_of(product: Product, bf16: bool, room: int) -> Cut:
    """Choose the cheapest way to cut a product, by a rough model of a large GPU."""
    parts = product.parts
    found = _cuts(product, bf16, room, [parts] if parts > 1 else None)
    return min(found, key=lambda one: _cost(product, one, bf16, room, parts > 1))


def on_tensor_cores(kernel: Contract, precision: str) -> bool:
    """Tell whether a contraction may round its operands, and has any."""
    exact = precision == "float32" or kernel.out.buffer.dtype != np.float32
    return not exact and Product(kernel).k > 0


def parts_for(kernel: Contract, precision: str, room: int) -> int:
    """Return into how many parts to cut the sums of a contraction: 1 for none."""
    product, bf16 = Product(kernel), precision == "bf16"
    if product.k < LONG or product.m * product.n > LARGE:
        return 1
    if not on_tensor_cores(kernel, precision):
        return plain_splits(product)
    whole = min(
        _cost(product, one, bf16, room, False) for one in _cuts(product, bf16, room)
    )
    best, cost = 1, whole
    for cut in _cuts(product, bf16, room):
        if cut.splits > 1 and _cost(product, cut, bf16, room, True) < cost:
            best, cost = cut.splits, _cost(product, cut, bf16, room, True)
    return best


def _cuts(
    product: Product, bf16: bool, room: int, splits: list[int] | None = None
) -> list[Cut]:
    made = []
    for tile in TILES:
        steps = -(-product.k // tile.step(bf16))
        for count in splits or _splits(product.tiles(tile), steps):
            most = max(2, min(-(-steps // count), MOST_STAGES))
            for stages in range(most, 1, -1):
                if shared_bytes(product, tile, stages, bf16) <= room:
                    made.append(Cut(tile, count, stages))
                    break
    return made


def _splits(tiles: int, steps: int) -> list[int]:
    """Return numbers of splits to think about: powers of two, and what fills a GPU."""
    found = {1, 2, 4, 8, 16, 32, 64}
    found |= {turns * PROCESSORS // tiles for turns in (1, 2, 3, 4)}
    return sorted(n for n in found if 1 <= n <= min(steps, 128))


def _cost(product: Product, cut: Cut, bf16: bool, room: int, parted: bool) -> float:
    """Return about how many nanoseconds a product takes."""
    tile, step = cut.tile, cut.tile.step(bf16)
    each = -(-product.tiles(tile) * cut.splits // PROCESSORS)  # blocks of a processor
    steps = math.ceil(math.ceil(product.k / step) / cut.splits)
    far = tile.rows / min(product.again, 4.0) + tile.columns
    copied = far * step * 4 / BANDWIDTH
    lanes = tile.rows / _speed(product.lanes("left"))
    lanes += tile.columns / _speed(product.lanes("right"))
    near = tile.rows * tile.warps_across + tile.columns * tile.warps_down
    worked = (near / 32 + lanes / 32) * step / CLOCK
    shared = shared_bytes(product, tile, cut.stages, bf16)
    together = min(each, max(room * 2 // (shared + 1024), 1))
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


def _speed(lanes: int) -> float:
    return {4: 1.0, 2: 0.6, 1: 0.35}[lanes]


def shared_bytes(product: Product, tile: Tile, stages: int, bf16: bool) -> int:
    """Return the shared memory that a tile needs on tensor cores."""
    step = tile.step(bf16)
    rows = product.along_rows
    left = tile.rows * (step + 4) if rows else step * (tile.rows + 8)
    copies = stages * (left + step * (tile.columns + 8))
    sums = tile.groups * tile.rows * (tile.columns + 4)
    return 4 * max(copies, sums)


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


# ---- windows that overlap ------------------------------------------------------------

WINDOW_TILES = (
    Tile(128, 64, 2, 2),
    Tile(64, 128, 1, 4),
    Tile(64, 64, 1, 2),
    Tile(128, 32, 4, 1),
    Tile(128, 32, 2, 1),
    Tile(96, 32, 2, 1),
    Tile(64, 32, 2, 1),
    Tile(64, 32, 1, 1),
    Tile(48, 32, 1, 1),
    Tile(128, 16, 2, 1),
    Tile(64, 16, 1, 1),
)


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


@dataclass(frozen=True)
class WindowCut:
    """A tile of whole rows of images, and how far copies of the weights run ahead."""

    tile: Tile
    stages: int
    tile_images: int
    tile_y: int

    def tiles_y(self, window: Window) -> int:
        """Return how many tiles an image has, from top to bottom."""
        return -(-window.y // self.tile_y)

    def tiles(self, product: Product, window: Window) -> int:
        """Return how many tiles there are."""
        down = -(-window.images // self.tile_images) * self.tiles_y(window)
        return down * -(-product.n // self.tile.columns)


def window_of(product: Product) -> Window | None:
    """Return a product as a convolution whose windows overlap, None if it is none."""
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
        and product.lanes("left") == 4
    )
    if not fits:
        return None
    window = (down.size, across.size // channels)
    return Window(image.size, y.size, x.size, image.left, y.left, channels, window)


def window_cut_of(product: Product, window: Window, room: int) -> WindowCut | None:
    """Return the cheapest way to cut a convolution by patches, None if none pays."""
    found = []
    for tile in WINDOW_TILES:
        most = min(tile.rows // window.x, window.y)
        for tile_y in range(1, most + 1):
            images = tile.rows // (tile_y * window.x) if tile_y == window.y else 1
            images = min(max(images, 1), window.images)
            for stages in (4, 3, 2):
                cut = WindowCut(tile, stages, images, tile_y)
                if window_bytes(window, cut) <= room:
                    found.append(cut)
                    break
    if not found:
        return None
    best = min(found, key=lambda one: _window_cost(product, window, one, room))
    usual = _cost(product, cut_of(product, False, room), False, room, False)
    return best if _window_cost(product, window, best, room) < usual else None


def window_bytes(window: Window, cut: WindowCut) -> int:
    """Return the shared memory that a patch and the weights beside it need."""
    tile, (down, across) = cut.tile, window.window
    pixels = cut.tile_images * (cut.tile_y + down - 1) * (window.x + across - 1)
    weights = cut.stages * tile.step(False) * (tile.columns + 8)
    sums = tile.groups * tile.rows * (tile.columns + 4)
    return 4 * max(pixels * (window.channels + 4) + weights, sums)


def _window_cost(product: Product, window: Window, cut: WindowCut, room: int) -> float:
    tile, step = cut.tile, cut.tile.step(False)
    each = -(-cut.tiles(product, window) // PROCESSORS)
    steps = -(-product.k // step)
    near = tile.rows * tile.warps_across + tile.columns * (tile.warps_down + 1)
    worked = max(near / 32 * step / CLOCK, tile.rows * tile.columns * step / 900)
    shared = window_bytes(window, cut)
    together = min(each, max(room * 2 // (shared + 1024), 1))
    size = tile.rows * tile.columns * 4
    patch = shared / 128 / CLOCK + LATENCY / together
    ends = 200 + tile.groups * size / 48 / CLOCK + size / BANDWIDTH
    alone = 1.6 if together == 1 else 1.0  # nobody works while a block waits
    return 1000 + each * (steps * worked * alone + patch + ends)
