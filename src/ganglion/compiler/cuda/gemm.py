"""Emit contractions as CUDA C: matrix products and convolutions by a single template.

The offset of an operand's element is a sum of terms of its row, column and inner index:
so a convolution is gathered while it is staged, and no array is rearranged in memory.
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
from ganglion.compiler.cuda.fusion import (
    FusedKernel,
    GatheredContract,
    joined,
    sizes,
)
from ganglion.compiler.cuda.passes.products import Scaled
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
    split_index,
)
from ganglion.compiler.cuda.tiling import (
    PLAIN,
    PLAIN_STEP,
    LaunchContext,
    Product,
    Tile,
    Tiling,
    blocks_keeping_right,
    bytes_keeping_right,
    choose_tiling,
    line_of,
    on_tensor_cores,
    plain_splits,
    shared_bytes,
    tiling_of_models,
)
from ganglion.compiler.plan.kernels import Axis, Buffer, BufferKey, Contract, View

_ROW_OF_TILE = ["  DEVICE int row_of(int m0, int row) { return m0 + row; }"]
_ROW_OF_FPROP_TILE = [
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


def emit_contract(fused: FusedKernel, context: LaunchContext) -> Emitted:
    """Return the text of a contraction and its epilogues."""
    kernel, spec = fused.kernel, context.spec
    assert isinstance(kernel, Contract)
    if not on_tensor_cores(kernel, spec.products):
        return _Contraction(fused, kernel, spec, bf16=False).on_plain_cores()
    contraction = _Contraction(fused, kernel, spec, spec.bf16)
    if fused.in_block:
        return contraction.in_shared_memory()
    ready = kernel.right.buffer.key in fused.ready
    context = replace(context, weights_ready=ready)
    alone = replace(context, models=1)
    of_one = kernel.alone if isinstance(kernel, GatheredContract) else kernel
    tiling = _cheapest_tiling(of_one, alone, bool(fused.column_sums))
    if isinstance(tiling, FpropTiling):
        return contraction.conv_fprop(tiling, context)
    if isinstance(tiling, WgradTiling):
        return contraction.conv_wgrad(tiling)
    product, is_split = contraction.product, contraction.product.parts > 1
    is_plain = product.is_matrix_product and not (is_split or fused.column_sums)
    if context.models > 1 and is_plain:
        fours = contraction.width == 4
        tiling = tiling_of_models(product, tiling, context, fours)
    if tiling.order is not None:
        return contraction.in_order(tiling, context)
    return contraction.on_tensor_cores(tiling, context.most_blocks)


@lru_cache(maxsize=64)  # most products of a program occur twice
def _cheapest_tiling(
    kernel: Contract, context: LaunchContext, with_sums: bool
) -> Tiling | FpropTiling | WgradTiling:
    product, spec, room = Product(kernel), context.spec, context.room
    # With column sums, blocks compute several tiles anyway.
    most = 1 << 30 if with_sums else context.most_blocks
    tiling, cost = choose_tiling(product, spec, room, most)
    if product.is_matrix_product:
        return tiling
    if geometry := conv_fprop_of(product, spec.bf16):
        fprop = choose_fprop_tiling(product, geometry, context, cost)
        if fprop is not None:
            return fprop
    wgrad = None if with_sums else conv_wgrad_of(product, spec.bf16)
    choice = wgrad and choose_wgrad_tiling(product, wgrad, spec, room, product.parts)
    return choice[0] if choice and choice[1] < cost else tiling


class _Contraction:
    """A product under construction: the struct of its template, and its body."""

    def __init__(
        self, fused: FusedKernel, kernel: Contract, spec: GpuSpec, bf16: bool
    ) -> None:
        self.fused, self.kernel, self.spec, self.bf16 = fused, kernel, spec, bf16
        self.product = Product(kernel)
        wide = is_wide(fused.buffers(), self.product.m * self.product.n)
        self.body = Body(wide, (), fused.in_block)
        self.width = _stored_width(fused, self.product)
        # Operands that can be loaded before the previous launch has ended.
        self.prefetched: set[BufferKey] = set()
        self.index: Buffer | None = None  # of the rows of the left operand
        self.column_sums = [
            ColumnSum(self.body, column_sum, self.width)
            for column_sum in fused.column_sums
        ]

    def on_plain_cores(self) -> Emitted:
        """Return the text of a product in plain arithmetic."""
        product, itemsize = self.product, self.kernel.out.buffer.dtype.itemsize
        splits = product.parts
        if splits == 1:
            splits = plain_splits(product, self.spec)
        tiling = Tiling(PLAIN, splits, 1)
        self._append("contract_simt", tiling, PLAIN_STEP)
        shared = max(2 * PLAIN_STEP * 68, 64 * 68) * itemsize
        return self._tiled(tiling, PLAIN_STEP, shared, 1 << 30)

    def on_tensor_cores(self, tiling: Tiling, most: int) -> Emitted:
        """Return the text of a product on tensor cores."""
        step = tiling.tile.step(self.bf16)
        self.prefetched = {b.key for b in self.kernel.reads()} & self.fused.ready
        self._append("contract_on_tensor_cores", tiling, step)
        shared = shared_bytes(self.product, tiling.tile, tiling.stages, self.bf16)
        return self._tiled(tiling, step, shared, most)

    def in_order(self, tiling: Tiling, context: LaunchContext) -> Emitted:
        """Return the text of a product of many models, with another tiling's sums."""
        order, step = tiling.order, tiling.tile.step(self.bf16)
        assert order is not None
        at_once = tiling.groups_at_once(self.bf16)
        self.prefetched = {b.key for b in self.kernel.reads()} & self.fused.ready
        if isinstance(self.kernel, GatheredContract):
            assert self.kernel.index is not None
            self.index = self.kernel.index
            if self.index.key not in self.prefetched:
                self.prefetched.discard(self.kernel.left.buffer.key)
        self._append(
            "contract_keeping_right" if tiling.keeps_right else "contract_in_order",
            tiling,
            step,
            GATHERED=self._gathered_axis(),
            TABLE_ROWS=self._table_rows(),
            GROUPS=order.groups,
            AT_ONCE=at_once,
            CUTS=order.cuts,
            CUT_STEP=order.step,
            LEFT_LANES=self._lanes_of_part(at_once),
            SUMS_STAY=int(tiling.sums_stay),
        )
        if not tiling.keeps_right:
            shared = shared_bytes(self.product, tiling.tile, tiling.stages, self.bf16)
            return self._tiled(tiling, step, shared, 1 << 30)
        shared = bytes_keeping_right(self.product, tiling, self.bf16)
        emitted = self._tiled(tiling, step, shared, 1 << 30)
        blocks = blocks_keeping_right(self.product, tiling, self.spec, context.models)
        return replace(emitted, blocks=blocks)

    def _gathered_axis(self) -> int:
        """Return the gathered axis of the left operand: 1 for rows, 2 for the inner."""
        kernel = self.kernel
        if not isinstance(kernel, GatheredContract):
            return 0
        return 1 if any(a.left == kernel.row_size for a in self.product.rows) else 2

    def _table_rows(self) -> int:
        kernel = self.kernel
        if not isinstance(kernel, GatheredContract):
            return 0
        return kernel.left.buffer.size // kernel.row_size

    def _lanes_of_part(self, groups: int) -> int:
        """Return how many adjacent elements of the left operand a copy moves.

        Along the inner axis, those that groups of warps take at once are adjacent.
        """
        lanes, together = self.product.lanes("left"), groups * (16 if self.bf16 else 8)
        return min(lanes, together) if self.product.along_rows else lanes

    def in_shared_memory(self) -> Emitted:
        """Return the text of a product whose operands are in shared memory."""
        product, left, right = self.product, self.kernel.left, self.kernel.right
        widths = [self.body.rows_swizzled(view.buffer) for view in (left, right)]
        tile = Tile(16, 32, 1, 1)
        if product.n % tile.columns or product.tiles(tile) < THREADS // 32:
            tile = Tile(16, 16, 1, 1)  # so that more warps have a tile
        tiling = Tiling(tile, 1, 1)
        self._append(
            "contract_resident",
            tiling,
            16,
            BATCHES=product.batches,
            LEFT_ALONG=_along(product, "left"),
            RIGHT_ALONG=_along(product, "right"),
            LEFT_START=left.offset,
            RIGHT_START=right.offset,
            LEFT_SWIZZLED=widths[0],
            RIGHT_SWIZZLED=widths[1],
            LEFT_MATRIX=int(_is_matrix(product, "left", widths[0])),
            RIGHT_MATRIX=int(_is_matrix(product, "right", widths[1])),
            TURNS=2,
        )
        return self.body.emitted(1, 0)

    def _tiled(self, tiling: Tiling, step: int, shared: int, most: int) -> Emitted:
        """Return the finished text, with the tiles and the estimated work of blocks."""
        tile, product, splits = tiling.tile, self.product, tiling.splits
        blocks = product.tiles(tile) * splits
        if self.column_sums and splits == 1:  # a block sums its results only once
            across = -(-product.n // tile.columns)
            resident = self.spec.resident_blocks(shared)
            slots = min(self.spec.processors * resident, most)
            blocks = min(blocks, max(slots // across, 1) * across)
        steps = math.ceil(math.ceil(product.k / step) / splits)
        elements = steps * tile.rows * tile.columns * step
        return self._finish(tile, splits, blocks, shared, elements)

    def conv_fprop(self, tiling: FpropTiling, context: LaunchContext) -> Emitted:
        """Return the text of a convolution (implicit GEMM), by patches of images."""
        product, tile = self.product, tiling.tile
        geometry = conv_fprop_of(product, self.bf16)
        assert geometry is not None
        blocks = fprop_blocks(product, geometry, tiling, context)
        self.prefetched = {b.key for b in self.kernel.reads()} & self.fused.ready
        self._append(
            "conv_fprop",
            Tiling(tile, 1, tiling.stages),
            tiling.step,
            **_conv_numbers(geometry, tiling),
            PATCHES=tiling.patches,
        )
        across = -(-product.n // tile.columns)
        turns = -(-tiling.tiles(geometry) * across // blocks)
        shared = fprop_bytes(product, geometry, tiling)
        elements = turns * product.k * tile.rows * tile.columns
        return self._finish(tile, 1, blocks, shared, elements)

    def conv_wgrad(self, tiling: WgradTiling) -> Emitted:
        """Return the text of the gradient of a convolution's weights, by patches."""
        product, wgrad = self.product, conv_wgrad_of(self.product, self.bf16)
        assert wgrad is not None
        geometry = wgrad.conv
        product.rows = list(self.kernel.rows)  # tap by tap, in memory order
        self.width = min(self.width, 2 if self.bf16 else 4)
        warps = tiling.warps_down, tiling.warps_across
        tile = Tile(16 * warps[0], 16 * warps[1], *warps)
        image, y, x = wgrad.right
        self._append(
            "conv_wgrad",
            Tiling(tile, tiling.parts, tiling.stages),
            tile.step(self.bf16),
            **_conv_numbers(geometry, tiling),
            RIGHT_IMAGE=image,
            RIGHT_Y=y,
            RIGHT_X=x,
            TAP_ROWS=tiling.tap_rows,
            TURNS=1,
        )
        blocks = tiling.results(product, geometry) * tiling.parts
        shared = wgrad_bytes(product, geometry, tiling, self.bf16)
        points = geometry.images * geometry.y * geometry.x / tiling.parts
        size = tiling.tap_rows * geometry.filter_size[1] * tile.rows * tile.columns
        return replace(self.body.emitted(blocks, shared), work=points * size / 500)

    def _finish(
        self, tile: Tile, splits: int, blocks: int, shared: int, elements: float
    ) -> Emitted:
        """Finish the body with its column sums."""
        across = -(-self.product.n // tile.columns)
        group, row = f"block % {across}", f"block / {across}"
        if splits > 1:
            group = f"block / {splits} % {across}"
            row = f"block / {across * splits} * {splits} + block % {splits}"
        threads, rows = tile.columns // self.width, blocks // across
        for column_sum in self.column_sums:
            needed = column_sum.finish(threads, row, rows, group, across)
            shared = max(shared, needed)
        emitted = self.body.emitted(blocks, shared)
        return replace(emitted, work=elements / 500, waits=bool(self.prefetched))

    def _append(self, function: str, tiling: Tiling, step: int, **numbers: int) -> None:
        """Append the struct, with further `numbers`, and the call of a template."""
        tensor = function != "contract_simt"
        self.body.before += self._struct(tiling, step, tensor, numbers)
        self._call(tiling, function, numbers.get("TURNS", self._turns(tiling)))

    def _turns(self, tiling: Tiling) -> int:
        """Return how many adjacent results a thread finishes at a time."""
        groups = tiling.tile.rows * tiling.tile.columns // self.width
        return min(max(groups // THREADS, 1), 4)

    def _struct(
        self, tiling: Tiling, step: int, tensor: bool, more: dict[str, int]
    ) -> list[str]:
        product, tile, index = self.product, tiling.tile, self.body.index
        left, right = self.kernel.left.buffer, self.kernel.right.buffer
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
            "STAGES": tiling.stages,
            "SPLITS": tiling.splits,
            "LANES": self.width,
            "TURNS": self._turns(tiling),
            "SUMS": line_of(tile.columns) if tensor else tile.columns + 4,
            "LEFT_LANES": product.lanes("left"),
            "RIGHT_LANES": product.lanes("right"),
        }
        even = tiling.order is not None  # matrix products have a single inner axis
        gathered = more.get("GATHERED", 0)
        flags = {
            "LEFT_ROWS": product.along_rows,
            "LEFT_AGAIN": product.again > TUNING.window_reuse,
            "PREFETCH_LEFT": left.key in self.prefetched,
            "PREFETCH_RIGHT": right.key in self.prefetched,
            "LEFT_SAME": not gathered and _rows_alike(product, tile, step),
            "LEFT_EVEN": gathered < 2
            and (even or _is_even(product.inner, "left", step)),
            "RIGHT_EVEN": even or _is_even(product.inner, "right", step),
            "SPLIT_K": product.parts > 1,
            "ROUND_LEFT": left.key not in self.fused.rounded,
            "ROUND_RIGHT": right.key not in self.fused.rounded,
            "BF16": self.bf16,
        }
        offsets = {
            "left_batch": product.batch,
            "right_batch": product.batch,
            "left_row": product.rows,
            "left_inner": product.inner,
            "right_inner": product.inner,
            "right_column": product.columns,
            "out_batch": product.batch,
            "out_row": product.rows,
            "out_column": product.columns,
        }
        lines = [f"struct {SHAPE} {{", f"  typedef {index} Offset;"]
        lines.append(f"  typedef {c_type(left.dtype)} Left;")
        lines.append(f"  typedef {c_type(right.dtype)} Right;")
        for name, value in (numbers | more).items():
            lines.append(f"  static constexpr int {name} = {value};")
        if isinstance(left, Scaled):
            scale = number(left.scale, np.dtype("float32"))
            lines.append(f"  static constexpr float LEFT_SCALE = {scale};")
        for name, flag in flags.items():
            lines.append(f"  static constexpr bool {name} = {str(flag).lower()};")
        kind = "unsigned" if index == "int" else "unsigned long long"
        for name, axes in offsets.items():
            at = _offset("i", axes, name.split("_")[0])
            lines.append(
                f"  DEVICE Offset {name}({kind} i) {{ return (Offset)({at}); }}"
            )
        lines += _ROW_OF_FPROP_TILE if "PATCHES" in more else _ROW_OF_TILE
        return [*lines, "};"]

    def _call(self, tiling: Tiling, function: str, turns: int) -> None:
        body, kernel, tile = self.body, self.kernel, tiling.tile
        dtype = computed(kernel.out.buffer.dtype)
        kind = c_type(dtype)
        parts, counters = f"({kind}*)0", "(unsigned*)0"
        if tiling.splits > 1 and self.product.parts == 1:
            tiles = self.product.tiles(tile)
            size = tiles * tiling.splits * tile.rows * tile.columns
            parts = body.scratch(size, dtype.name)
            counters = body.scratch(tiles, "uint32")
        left, right = (_address(body, view) for view in (kernel.left, kernel.right))
        if function == "contract_resident":  # which adds the offsets itself
            left, right = map(body.pointer, (kernel.left.buffer, kernel.right.buffer))
        indices = f"const int (&m)[{turns}], const int (&n)[{turns}]"
        values = f"{kind} (&value)[{turns}][{self.width}]"
        exists = f"const bool (&exists)[{turns}]"
        head = f"auto store = [&](int part, int b, {indices}, {exists}, {values})"
        with body.block(head):
            stores = [self._compute(turn) for turn in range(turns)]
            for turn, lines in enumerate(stores):
                with body.block(f"if (exists[{turn}])"):
                    body.lines += lines
        body.lines[-1] += ";"
        arguments = f"block, blocks, {left}, {right}, {parts}, {counters}, store"
        if self.index is not None:
            arguments += f", (const int*){body.pointer(self.index)}"
        body.do(f"{function}<{SHAPE}>({arguments});")

    def _compute(self, turn: int) -> list[str]:
        """Append the computation of some results; return the lines that store them."""
        body, fused, out = self.body, self.fused, self.kernel.out
        offset = (
            f"{SHAPE}::out_batch(b) + {SHAPE}::out_row(m[{turn}]) + "
            f"{SHAPE}::out_column(n[{turn}]) + {out.offset}"
        )
        if self.product.parts > 1:
            offset += f" + part * {out.buffer.size // self.product.parts}"
        flat = body.let(body.index, offset, "flat")
        value = f"value[{turn}]"
        stores: list[str] = []
        if out.buffer.key not in fused.unstored:
            with body.into(stores):
                if out.buffer.key in fused.rounded:
                    body.do(f"round_lanes({value});")
                offset = body.offset(out.buffer, flat)
                body.do(f"store_lanes({body.pointer(out.buffer)} + {offset}, {value});")
        values = {out.buffer.key: value if self.width > 1 else f"{value}[0]"}
        emit_epilogues(body, fused, flat, self.width, values, stores)
        for column_sum in self.column_sums:
            column_sum.add(flat, values, stores)
        return stores


def _conv_numbers(
    geometry: ConvGeometry, tiling: FpropTiling | WgradTiling
) -> dict[str, int]:
    return {
        "TILES": tiling.tiles(geometry),
        "IMAGES": geometry.images,
        "Y": geometry.y,
        "ACROSS_X": geometry.x,
        "CHANNELS": geometry.channels,
        "KY": geometry.filter_size[0],
        "KX": geometry.filter_size[1],
        "TILE_IMAGES": tiling.tile_images,
        "TILE_Y": tiling.tile_y,
        "TILES_Y": tiling.tiles_y(geometry),
        "IMAGE_STEP": geometry.image_step,
        "Y_STEP": geometry.y_step,
    }


def _stored_width(fused: FusedKernel, product: Product) -> int:
    """Return how many adjacent results are stored at once."""
    column = product.columns[-1] if product.columns else Axis(1)
    if column.out != 1 or column.size == 1:
        return 1
    out = product.kernel.out
    others = [*product.batch, *product.rows, *product.columns[:-1]]
    strides = [axis.out for axis in others if axis.size > 1]
    most = math.gcd(2 if out.buffer.dtype.itemsize > 4 else 4, out.offset, *strides)
    return vector_width(fused, column.size, most)


def _offset(index: str, axes: list[Axis], side: str) -> str:
    """Return the offset of an operand, or of the result, by an index through axes."""
    long = joined(axes, side)
    indices = split_index(index, sizes(long))
    return affine(indices, [getattr(axis, side) for axis in long])


def _rows_alike(product: Product, tile: Tile, step: int) -> bool:
    """Return whether the rows that a thread copies are equally far apart in tiles."""
    apart = THREADS * product.lanes("left") // step
    return (
        product.along_rows
        and 0 < apart <= tile.rows
        and tile.rows % apart == 0
        and all(_is_even(product.rows, "left", n) for n in (apart, tile.rows))
    )


def _along(product: Product, side: str) -> int:
    """Return which elements are adjacent: 1 four inner ones, 2 two rows or columns."""
    view = getattr(product.kernel, side)
    lines = product.rows if side == "left" else product.columns
    for kind, axes, others, count in (
        (1, product.inner, lines, 4),
        (2, lines, product.inner, 2),
    ):
        last = next((axis for axis in reversed(axes) if axis.size > 1), None)
        if last is None or getattr(last, side) != 1 or last.size % count:
            continue
        rest = [*product.batch, *others, *(axis for axis in axes if axis is not last)]
        strides = [getattr(axis, side) for axis in rest if axis.size > 1]
        if math.gcd(count, view.offset, *strides) == count:
            return kind
    return 0


def _is_matrix(product: Product, side: str, width: int) -> bool:
    """Return whether an operand has complete rows of a matrix, from a 16th row on."""
    lines = joined(product.rows if side == "left" else product.columns, side)
    inner = joined(product.inner, side)
    if not width or len(lines) != 1 or len(inner) != 1:
        return False
    beside, rows = sorted((*lines, *inner), key=lambda axis: getattr(axis, side))
    starts = [getattr(product.kernel, side).offset]
    starts += [getattr(axis, side) for axis in product.batch if axis.size > 1]
    return (
        (getattr(beside, side), getattr(rows, side)) == (1, width)
        and beside.size <= width
        and not any(start % (16 * width) for start in starts)
    )


def _is_even(axes: list[Axis], side: str, step: int) -> bool:
    """Return whether the inner offsets within a step are equal in every step.

    So they are if a step consists of complete axes, and divides the next axis.
    """
    for size in reversed(sizes(joined(axes, side))):
        if step % size:
            return size % step == 0
        step //= size
    return step == 1


def _address(body: Body, view: View) -> str:
    offset = f" + {view.offset}" if view.offset else ""
    kind = c_type(view.buffer.dtype)
    return f"(const {kind}*){body.pointer(view.buffer)}{offset}"
