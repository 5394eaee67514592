"""Contractions in CUDA C: matrix products and convolutions are one template.

Places of operands are sums of what rows, columns and inner places add, so a convolution
is gathered while it is copied; nothing is laid out anew in memory.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

import numpy as np

from ganglion.compiler.cuda.column_sums import ColumnSum
from ganglion.compiler.cuda.conv_tiling import (
    ConvGeometry,
    FpropTiling,
    WgradTiling,
    choose_fprop_tiling,
    choose_wgrad_tiling,
    conv_fprop_of,
    conv_wgrad_of,
    fprop_blocks,
    fprop_bytes,
    wgrad_bytes,
)
from ganglion.compiler.cuda.elementwise import emit_epilogues, vector_width
from ganglion.compiler.cuda.epilogue import (
    FusedKernel,
    Root,
    joined,
    sizes,
)
from ganglion.compiler.cuda.passes.operands import Scaled
from ganglion.compiler.cuda.target import TUNING, GpuSpec
from ganglion.compiler.cuda.text import (
    SHAPE,
    THREADS,
    Body,
    Emitted,
    affine,
    c_type,
    computed,
    is_wide,
    number,
    root,
    split_index,
)
from ganglion.compiler.cuda.tiling import (
    PLAIN,
    PLAIN_STEP,
    LaunchContext,
    Product,
    Tile,
    Tiling,
    choose_tiling,
    line_of,
    on_tensor_cores,
    plain_splits,
    shared_bytes,
)
from ganglion.compiler.plan.kernels import Axis, Contract, View


def emit_contract(fused: FusedKernel, context: LaunchContext) -> Emitted:
    """Return a contraction, and its epilogues, as text."""
    kernel = fused.kernel
    assert isinstance(kernel, Contract)
    shape = _Shape(fused, Product(kernel), context.spec)
    if not on_tensor_cores(kernel, context.spec.products):
        return _emit_plainly(shape)
    ready = root(kernel.right.buffer) in fused.ready
    context = replace(context, weights_ready=ready)
    cut = _cut_for(kernel, context, bool(fused.column_sums))
    if isinstance(cut, FpropTiling):
        return _emit_windows(shape, cut, context)
    if isinstance(cut, WgradTiling):
        return _emit_taps(shape, cut)
    return _emit_tiles(shape, cut, context)


@lru_cache(maxsize=64)
def _cut_for(
    kernel: Contract, context: LaunchContext, with_sums: bool
) -> Tiling | FpropTiling | WgradTiling:
    """Return the cheapest way to cut a product; a program has most of them twice."""
    product, spec, room = Product(kernel), context.spec, context.room
    # Where sums are taken along, blocks take several turns anyway.
    cut, cost = choose_tiling(
        product, spec, room, context.most_blocks if not with_sums else 1 << 30
    )
    if window := conv_fprop_of(product, spec.bf16):
        patch = choose_fprop_tiling(product, window, context, cost)
        if patch is not None:
            return patch
    taps = conv_wgrad_of(product, spec.bf16)
    if taps is not None and not with_sums:
        found = choose_wgrad_tiling(product, taps, spec, room, product.parts)
        if found is not None and found[1] < cost:
            return found[0]
    return cut


class _Shape:
    """A product on its way to text: what its struct says, and its body."""

    def __init__(self, fused: FusedKernel, product: Product, spec: GpuSpec) -> None:
        self.fused, self.product, self.spec = fused, product, spec
        self.bf16 = spec.bf16
        self.body = Body(is_wide(fused.buffers(), product.m * product.n))
        self.lanes = _out_lanes(fused, product)
        # Operands that can be fetched before the launch before has come to its end.
        self.early: set[Root] = set()
        self.column_sums = [
            ColumnSum(self.body, one, self.lanes) for one in fused.column_sums
        ]

    def finish(self, tile: Tile, splits: int, blocks: int, shared: int) -> Emitted:
        """End the body: add up what its blocks have seen."""
        across = -(-self.product.n // tile.columns)
        group, row = f"block % {across}", f"block / {across}"
        if splits > 1:
            group = f"block / {splits} % {across}"
            row = f"block / {across * splits} * {splits} + block % {splits}"
        for column_sum in self.column_sums:
            threads, rows = tile.columns // self.lanes, blocks // across
            needed = column_sum.finish(threads, row, rows, group, across)
            shared = max(shared, needed)
        return self.body.emitted(blocks, shared)

    def emitted(self, function: str, cut: Tiling, step: int, **more: int) -> None:
        """Append the struct and the call; `more` are numbers of its own."""
        tensor = function != "contract_plainly"
        if function in ("contract_on_tensor_cores", "contract_windows"):
            self.early = {root(b) for b in self.product.kernel.reads()}
            self.early &= self.fused.ready
        lines = _shape_struct(self, cut, step, tensor, more)
        self.body.before += lines
        turns = more.get("TURNS", _turns(cut, self.lanes))
        _call(self, cut, function, turns)


def _emit_plainly(shape: _Shape) -> Emitted:
    """Return a product in plain arithmetic as text."""
    product, itemsize = shape.product, shape.product.kernel.out.buffer.dtype.itemsize
    splits = product.parts if product.parts > 1 else plain_splits(product, shape.spec)
    cut = Tiling(PLAIN, splits, 1)
    shape.bf16 = False
    shape.emitted("contract_plainly", cut, PLAIN_STEP)
    shared = max(2 * PLAIN_STEP * 68, 64 * 68) * itemsize
    return _weighed(shape, cut, PLAIN_STEP, shared, 1 << 30)


def _emit_tiles(shape: _Shape, cut: Tiling, context: LaunchContext) -> Emitted:
    """Return a product on tensor cores as text."""
    step = cut.tile.step(shape.bf16)
    shape.emitted("contract_on_tensor_cores", cut, step)
    shared = shared_bytes(shape.product, cut.tile, cut.stages, shape.bf16)
    return _weighed(shape, cut, step, shared, context.most_blocks)


def _weighed(shape: _Shape, cut: Tiling, step: int, shared: int, most: int) -> Emitted:
    """End a product in tiles, and say how much work a block has."""
    tile, product = cut.tile, shape.product
    blocks = product.tiles(tile) * cut.splits
    if shape.column_sums and cut.splits == 1:  # a block adds up what it has only once
        across = -(-product.n // tile.columns)
        spec = shape.spec
        slots = min(spec.processors * spec.resident_blocks(shared), most)
        blocks = min(blocks, max(slots // across, 1) * across)
    made = shape.finish(tile, cut.splits, blocks, shared)
    steps = math.ceil(math.ceil(product.k / step) / cut.splits)
    weight = steps * tile.rows * tile.columns * step / 500
    return replace(made, work=weight, waits=bool(shape.early))


def _emit_windows(shape: _Shape, patch: FpropTiling, context: LaunchContext) -> Emitted:
    """Return a convolution by patches of images as text."""
    product, tile = shape.product, patch.tile
    window = conv_fprop_of(product, shape.bf16)
    assert window is not None
    blocks = fprop_blocks(product, window, patch, context)
    shape.emitted(
        "contract_windows",
        Tiling(tile, 1, patch.stages),
        patch.step,
        **_window_numbers(window, patch),
        PATCHES=patch.patches,
    )
    made = shape.finish(tile, 1, blocks, fprop_bytes(product, window, patch))
    across = -(-product.n // tile.columns)
    turns = -(-patch.tiles(window) * across // blocks)
    weight = turns * product.k * tile.rows * tile.columns / 500
    return replace(made, work=weight, waits=bool(shape.early))


def _emit_taps(shape: _Shape, cut: WgradTiling) -> Emitted:
    """Return the gradient of a convolution's weights by patches as text."""
    product, taps = shape.product, conv_wgrad_of(shape.product, shape.bf16)
    assert taps is not None
    window = taps.conv
    product.rows = list(product.kernel.rows)  # tap by tap, as they lie in memory
    shape.lanes = min(shape.lanes, 2 if shape.bf16 else 4)
    tile = Tile(
        16 * cut.warps_down, 16 * cut.warps_across, cut.warps_down, cut.warps_across
    )
    right = dict(zip(("RIGHT_IMAGE", "RIGHT_Y", "RIGHT_X"), taps.right, strict=True))
    shape.emitted(
        "contract_taps",
        Tiling(tile, cut.parts, cut.stages),
        tile.step(shape.bf16),
        **_window_numbers(window, cut),
        **right,
        TAP_ROWS=cut.tap_rows,
        TURNS=1,
    )
    blocks = cut.results(product, window) * cut.parts
    made = shape.body.emitted(blocks, wgrad_bytes(product, window, cut, shape.bf16))
    points = window.images * window.y * window.x / cut.parts
    size = cut.tap_rows * window.filter_size[1] * tile.rows * tile.columns
    return replace(made, work=points * size / 500)


def _window_numbers(
    window: ConvGeometry, cut: FpropTiling | WgradTiling
) -> dict[str, int]:
    return {
        "TILES": cut.tiles(window),
        "IMAGES": window.images,
        "Y": window.y,
        "ACROSS_X": window.x,
        "CHANNELS": window.channels,
        "KY": window.filter_size[0],
        "KX": window.filter_size[1],
        "TILE_IMAGES": cut.tile_images,
        "TILE_Y": cut.tile_y,
        "TILES_Y": cut.tiles_y(window),
        "IMAGE_STEP": window.image_step,
        "Y_STEP": window.y_step,
    }


_ROW_OF_TILES = ["  DEVICE int row_of(int m0, int row) { return m0 + row; }"]
_ROW_OF_WINDOWS = [
    "  DEVICE int row_of(int tile, int row) {",
    "    constexpr int COUNT = TILE_IMAGES * TILE_Y * ACROSS_X;",
    "    if (row >= COUNT) return M;",
    "    if (Y % TILE_Y == 0) return tile * COUNT + row;",
    "    const int image = tile / TILES_Y * TILE_IMAGES + row / (TILE_Y * ACROSS_X);",
    "    const int y = tile % TILES_Y * TILE_Y + row / ACROSS_X % TILE_Y;",
    "    if (image >= IMAGES || y >= Y) return M;",
    "    return (image * Y + y) * ACROSS_X + row % ACROSS_X;",
    "  }",
]


def _out_lanes(fused: FusedKernel, product: Product) -> int:
    """Return how many neighbours of the result are stored at once."""
    column = product.columns[-1] if product.columns else Axis(1)
    if column.out != 1 or column.size == 1:
        return 1
    every = [*product.batch, *product.rows, *product.columns[:-1]]
    most = 2 if product.kernel.out.buffer.dtype.itemsize > 4 else 4
    for axis in every:
        while most > 1 and axis.size > 1 and axis.out % most:
            most //= 2
    while most > 1 and product.kernel.out.offset % most:
        most //= 2
    return vector_width(fused, column.size, most)


def _shape_struct(
    shape: _Shape, cut: Tiling, step: int, tensor: bool, more: dict[str, int]
) -> list[str]:
    body, product, tile = shape.body, shape.product, cut.tile
    rounded = shape.fused.rounded
    numbers = {
        "M": product.m,
        "N": product.n,
        "K": product.k,
        "TILES": product.tiles(tile),
        "BM": tile.rows,
        "BN": tile.columns,
        "BK": step,
        "WM": tile.warps_down,
        "WN": tile.warps_across,
        "WK": tile.groups if tensor else 1,
        "STAGES": cut.stages,
        "SPLITS": cut.splits,
        "LANES": shape.lanes,
        "TURNS": _turns(cut, shape.lanes),
        "SUMS": line_of(tile.columns) if tensor else tile.columns + 4,
        "LEFT_LANES": product.lanes("left"),
        "RIGHT_LANES": product.lanes("right"),
    }
    functions = {
        "left_batch": (product.batch, "left"),
        "right_batch": (product.batch, "right"),
        "left_row": (product.rows, "left"),
        "left_inner": (product.inner, "left"),
        "right_inner": (product.inner, "right"),
        "right_column": (product.columns, "right"),
        "out_batch": (product.batch, "out"),
        "out_row": (product.rows, "out"),
        "out_column": (product.columns, "out"),
    }
    lines = [f"struct {SHAPE} {{", f"  typedef {body.index} Offset;"]
    for name, view in (("Left", product.kernel.left), ("Right", product.kernel.right)):
        lines.append(f"  typedef {c_type(view.buffer.dtype)} {name};")
    for name, value in (numbers | more).items():
        lines.append(f"  static constexpr int {name} = {value};")
    if isinstance(product.kernel.left.buffer, Scaled):
        scale = number(product.kernel.left.buffer.scale, np.dtype("float32"))
        lines.append(f"  static constexpr float LEFT_SCALE = {scale};")
    flags = {
        "LEFT_ROWS": product.along_rows,
        "LEFT_AGAIN": product.again > TUNING.window_reuse,
        "EARLY_LEFT": root(product.kernel.left.buffer) in shape.early,
        "EARLY_RIGHT": root(product.kernel.right.buffer) in shape.early,
        "LEFT_SAME": _rows_alike(product, tile, step),
        "LEFT_EVEN": _is_even(product.inner, "left", step),
        "RIGHT_EVEN": _is_even(product.inner, "right", step),
        "PARTED": product.parts > 1,
        "ROUND_LEFT": root(product.kernel.left.buffer) not in rounded,
        "ROUND_RIGHT": root(product.kernel.right.buffer) not in rounded,
        "BF16": shape.bf16,
    }
    for name, flag in flags.items():
        lines.append(f"  static constexpr bool {name} = {str(flag).lower()};")
    kind = "unsigned" if body.index == "int" else "unsigned long long"
    for name, (axes, side) in functions.items():
        whole = joined(axes, side)
        places = split_index("i", sizes(whole))
        at = affine(places, [getattr(one, side) for one in whole])
        lines.append(f"  DEVICE Offset {name}({kind} i) {{ return (Offset)({at}); }}")
    lines += _ROW_OF_WINDOWS if "PATCHES" in more else _ROW_OF_TILES
    return [*lines, "};"]


def _rows_alike(product: Product, tile: Tile, step: int) -> bool:
    """Return whether the rows that a thread copies lie alike in every tile."""
    apart = THREADS * product.lanes("left") // step
    return (
        product.along_rows
        and 0 < apart <= tile.rows
        and tile.rows % apart == 0
        and all(_is_even(product.rows, "left", n) for n in (apart, tile.rows))
    )


def _is_even(axes: list[Axis], side: str, step: int) -> bool:
    """Return whether inner places of a step are the same distances in every step.

    So they are if a step is some whole axes, and a divisor of the next one.
    """
    for size in reversed(sizes(joined(axes, side))):
        if step % size:
            return size % step == 0
        step //= size
    return step == 1


def _call(shape: _Shape, cut: Tiling, function: str, turns: int) -> None:
    body, product, lanes = shape.body, shape.product, shape.lanes
    kernel = product.kernel
    dtype = computed(kernel.out.buffer.dtype)
    kind = c_type(dtype)
    parts, counters = f"({kind}*)0", "(unsigned*)0"
    if cut.splits > 1 and product.parts == 1:
        tiles, tile = product.tiles(cut.tile), cut.tile
        size = tiles * cut.splits * tile.rows * tile.columns
        parts = body.scratch(size, dtype.name)
        counters = body.scratch(tiles, "uint32")
    left = _address(body, kernel.left)
    right = _address(body, kernel.right)
    numbers = f"const int (&m)[{turns}], const int (&n)[{turns}]"
    values = f"const bool (&exists)[{turns}], {kind} (&value)[{turns}][{lanes}]"
    head = f"auto store = [&](int part, int b, {numbers}, {values})"
    with body.block(head):
        stores = [_finish(shape, turn) for turn in range(turns)]
        for turn, lines in enumerate(stores):
            with body.block(f"if (exists[{turn}])"):
                body.lines += lines
    body.lines[-1] += ";"
    body.do(
        f"{function}<{SHAPE}>(block, blocks, {left}, {right}, {parts}, "
        f"{counters}, store);"
    )


def _turns(cut: Tiling, lanes: int) -> int:
    """Return how many groups of neighbours a thread finishes at a time."""
    groups = cut.tile.rows * cut.tile.columns // lanes
    return min(max(groups // THREADS, 1), 4)


def _finish(shape: _Shape, turn: int) -> list[str]:
    """Append what is computed of some results; return the lines that store it."""
    body, fused, product, lanes = shape.body, shape.fused, shape.product, shape.lanes
    out = product.kernel.out
    flat = (
        f"{SHAPE}::out_batch(b) + {SHAPE}::out_row(m[{turn}]) + "
        f"{SHAPE}::out_column(n[{turn}]) + {out.offset}"
    )
    if product.parts > 1:
        flat += f" + part * {out.buffer.size // product.parts}"
    place = body.let(body.index, flat, "flat")
    value = f"value[{turn}]"
    stores: list[str] = []
    if root(out.buffer) not in fused.unstored:
        with body.into(stores):
            if root(out.buffer) in fused.rounded:
                body.do(f"round_lanes({value});")
            body.do(f"store_lanes({body.pointer(out.buffer)} + {place}, {value});")
    held = {root(out.buffer): value if lanes > 1 else f"{value}[0]"}
    emit_epilogues(body, fused, place, lanes, held, stores)
    for column_sum in shape.column_sums:
        column_sum.add(place, held, stores)
    return stores


def _address(body: Body, view: View) -> str:
    offset = f" + {view.offset}" if view.offset else ""
    kind = c_type(view.buffer.dtype)
    return f"(const {kind}*){body.pointer(view.buffer)}{offset}"
