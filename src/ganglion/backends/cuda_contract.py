"""Contractions in CUDA C: matrix products and convolutions are one template.

Places of operands are sums of what rows, columns and inner places add, so a convolution
is gathered while it is copied; nothing is laid out anew in memory.
"""

from __future__ import annotations

import math
from dataclasses import replace

from ganglion.backends.cuda_cut import (
    PLAIN,
    PLAIN_STEP,
    Cut,
    Product,
    Tile,
    Window,
    WindowCut,
    cut_of,
    on_tensor_cores,
    plain_splits,
    shared_bytes,
    window_bytes,
    window_cut_of,
    window_of,
)
from ganglion.backends.cuda_loop import host_guests
from ganglion.backends.cuda_text import (
    THREADS,
    Body,
    Emitted,
    affine,
    c_type,
    is_wide,
    root,
    split_places,
)
from ganglion.backends.cuda_work import Root, Work, lanes_allowed
from ganglion.plan.kernel import Axis, Contract, View


def emit_contract(work: Work, precision: str, room: int, alone: bool) -> Emitted:
    """Return a contraction, and its guests, as text; `room` is its shared memory.

    Patches of images, in blocks of their own size, only where it runs alone.
    """
    kernel = work.kernel
    assert isinstance(kernel, Contract)
    product = Product(kernel)
    dtype = kernel.out.buffer.dtype
    body = Body(is_wide(work.buffers(), product.m * product.n))
    tensor = on_tensor_cores(kernel, precision)
    windows = alone and tensor and precision == "tf32"
    window = window_of(product) if windows else None
    patch = window_cut_of(product, window, room) if window else None
    if window is not None and patch is not None:
        return _emit_windows(body, work, product, window, patch)
    if tensor:
        bf16 = precision == "bf16"
        cut = cut_of(product, bf16, room)
        step = cut.tile.step(bf16)
        shared = shared_bytes(product, cut.tile, cut.stages, bf16)
        function = "contract_on_tensor_cores"
    else:
        bf16, step, function = False, PLAIN_STEP, "contract_plainly"
        splits = product.parts if product.parts > 1 else plain_splits(product)
        cut = Cut(PLAIN, splits, 1)
        tile_bytes = 64 * 68 * dtype.itemsize
        shared = max(2 * PLAIN_STEP * 68 * dtype.itemsize, tile_bytes)
    lanes = _out_lanes(work, product)
    tiles = product.tiles(cut.tile)
    body.before += _shape_struct(
        body, product, cut, step, bf16, lanes, tensor, work.rounded
    )
    _call(body, work, product, cut, function, lanes)
    steps = math.ceil(math.ceil(product.k / step) / cut.splits)
    made = body.emitted(tiles * cut.splits, shared)
    return replace(made, work=steps * cut.tile.rows * cut.tile.columns * step / 500)


def _emit_windows(
    body: Body, work: Work, product: Product, window: Window, patch: WindowCut
) -> Emitted:
    """Return a convolution by patches of images as text."""
    cut = Cut(patch.tile, 1, patch.stages)
    step, lanes = patch.tile.step(False), _out_lanes(work, product)
    tiles, tiles_y = patch.tiles(product, window), patch.tiles_y(window)
    lines = _shape_struct(body, product, cut, step, False, lanes, True, work.rounded)
    lines = [one for one in lines if "int TILES " not in one and "row_of(" not in one]
    numbers = {
        "TILES": tiles,
        "IMAGES": window.images,
        "Y": window.y,
        "ACROSS_X": window.x,
        "CHANNELS": window.channels,
        "KY": window.window[0],
        "KX": window.window[1],
        "TILE_IMAGES": patch.tile_images,
        "TILE_Y": patch.tile_y,
        "TILES_Y": tiles_y,
        "IMAGE_STEP": window.image_step,
        "Y_STEP": window.y_step,
    }
    more = [f"  static constexpr int {name} = {n};" for name, n in numbers.items()]
    more += _ROW_OF_WINDOWS
    body.before += [*lines[:-1], *more, lines[-1]]
    _call(body, work, product, cut, "contract_windows", lanes)
    made = body.emitted(tiles, window_bytes(window, patch))
    size = patch.tile.rows * patch.tile.columns
    return replace(made, work=product.k * size / 500)


_ROW_OF_WINDOWS = [
    "  DEVICE int row_of(int tile, int row) {",
    "    if (row >= TILE_IMAGES * TILE_Y * ACROSS_X) return M;",
    "    const int image = tile / TILES_Y * TILE_IMAGES + row / (TILE_Y * ACROSS_X);",
    "    const int y = tile % TILES_Y * TILE_Y + row / ACROSS_X % TILE_Y;",
    "    if (image >= IMAGES || y >= Y) return M;",
    "    return (image * Y + y) * ACROSS_X + row % ACROSS_X;",
    "  }",
]


def _out_lanes(work: Work, product: Product) -> int:
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
    return lanes_allowed(work, column.size, most)


def _shape_struct(
    body: Body,
    product: Product,
    cut: Cut,
    step: int,
    bf16: bool,
    lanes: int,
    tensor: bool,
    rounded: frozenset[Root],
) -> list[str]:
    tile = cut.tile
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
        "LANES": lanes,
        "TURNS": _turns(tile, lanes),
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
    lines = ["struct BODY_SHAPE {", f"  typedef {body.index} Offset;"]
    for name, value in numbers.items():
        lines.append(f"  static constexpr int {name} = {value};")
    flags = {
        "LEFT_ROWS": product.along_rows,
        "LEFT_AGAIN": product.again > 1.5,
        "LEFT_EVEN": _is_even(product.inner, "left", step),
        "RIGHT_EVEN": _is_even(product.inner, "right", step),
        "PARTED": product.parts > 1,
        "ROUND_LEFT": root(product.kernel.left.buffer) not in rounded,
        "ROUND_RIGHT": root(product.kernel.right.buffer) not in rounded,
        "BF16": bf16,
    }
    for name, flag in flags.items():
        lines.append(f"  static constexpr bool {name} = {str(flag).lower()};")
    kind = "unsigned" if body.index == "int" else "unsigned long long"
    for name, (axes, side) in functions.items():
        pairs = _merged([(one.size, getattr(one, side)) for one in axes])
        places = split_places("i", [size for size, _ in pairs])
        at = affine(places, [stride for _, stride in pairs])
        lines.append(f"  DEVICE Offset {name}({kind} i) {{ return (Offset)({at}); }}")
    lines.append("  DEVICE int row_of(int m0, int row) { return m0 + row; }")
    return [*lines, "};"]


def _is_even(axes: list[Axis], side: str, step: int) -> bool:
    """Tell whether inner places of a step are the same distances in every step.

    So they are if a step is some whole axes, and a divisor of the next one.
    """
    for size, _ in reversed(_merged([(a.size, getattr(a, side)) for a in axes])):
        if step % size:
            return size % step == 0
        step //= size
    return step == 1


def _merged(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join neighbouring axes that are one long axis: fewer divisions."""
    made: list[tuple[int, int]] = []
    for size, stride in pairs:
        if size == 1:
            continue
        if made and made[-1][1] == stride * size:
            made[-1] = (made[-1][0] * size, stride)
        else:
            made.append((size, stride))
    return made


def _call(
    body: Body, work: Work, product: Product, cut: Cut, function: str, lanes: int
) -> None:
    kernel = product.kernel
    kind = c_type(kernel.out.buffer.dtype)
    parts, counters = f"({kind}*)0", "(unsigned*)0"
    if cut.splits > 1 and product.parts == 1:
        tiles, tile = product.tiles(cut.tile), cut.tile
        dtype = kernel.out.buffer.dtype.name
        parts = body.scratch(tiles * cut.splits * tile.rows * tile.columns, dtype)
        counters = body.scratch(tiles, "uint32")
    left = _address(body, kernel.left)
    right = _address(body, kernel.right)
    turns = _turns(cut.tile, lanes)
    numbers = f"const int (&m)[{turns}], const int (&n)[{turns}]"
    values = f"const bool (&exists)[{turns}], {kind} (&value)[{turns}][{lanes}]"
    head = f"auto store = [&](int part, int b, {numbers}, {values})"
    with body.block(head):
        stores = [_finish(body, work, product, lanes, turn) for turn in range(turns)]
        for turn, lines in enumerate(stores):
            with body.block(f"if (exists[{turn}])"):
                body.lines += lines
    body.lines[-1] += ";"
    body.do(
        f"{function}<BODY_SHAPE>(block, blocks, {left}, {right}, {parts}, "
        f"{counters}, store);"
    )


def _turns(tile: Tile, lanes: int) -> int:
    """Return how many groups of neighbours a thread finishes at a time."""
    return min(max(tile.rows * tile.columns // lanes // THREADS, 1), 4)


def _finish(
    body: Body, work: Work, product: Product, lanes: int, turn: int
) -> list[str]:
    """Append what is computed of some results; return the lines that store it."""
    out = product.kernel.out
    flat = (
        f"BODY_SHAPE::out_batch(b) + BODY_SHAPE::out_row(m[{turn}]) + "
        f"BODY_SHAPE::out_column(n[{turn}]) + {out.offset}"
    )
    if product.parts > 1:
        flat += f" + part * {out.buffer.size // product.parts}"
    place = body.let(body.index, flat, "flat")
    value = f"value[{turn}]"
    stores: list[str] = []
    if root(out.buffer) not in work.dropped:
        with body.into(stores):
            if root(out.buffer) in work.rounded:
                body.do(f"round_lanes({value});")
            body.do(f"store_lanes({body.pointer(out.buffer)} + {place}, {value});")
    held = {root(out.buffer): value if lanes > 1 else f"{value}[0]"}
    host_guests(body, work, place, lanes, held, stores)
    return stores


def _address(body: Body, view: View) -> str:
    offset = f" + {view.offset}" if view.offset else ""
    kind = c_type(view.buffer.dtype)
    return f"(const {kind}*){body.pointer(view.buffer)}{offset}"
