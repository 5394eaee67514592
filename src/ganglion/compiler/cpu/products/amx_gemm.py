"""Large products in bfloat16 by AMX: an instruction multiplies whole tiles.

A tile is a register of 16 rows of 64 bytes: 16 x 16 sums, 16 x 32 elements of the left
matrix, or 16 pairs of rows x 16 columns of the right one. Two by two tiles of sums use
each operand twice. Panels of columns are those of AVX512-BF16, whose steps are pairs
already; rows are packed as they are multiplied, with their elements side by side. Both
end in zeros, so that a tile always has the depth of an instruction.

A sum goes through the inner axis by 32 indices at a time: the processor adds up the
products of those, and then adds them to the sum. How it orders and rounds the former
is the same for every tile, so bits depend neither on threads nor on where a tile is.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ganglion.compiler.cpu.emitter import Emitted
from ganglion.compiler.cpu.products.packed_gemm import Block, PackedContraction, Panels
from ganglion.compiler.cpu.products.packed_tile import ALIGNMENT, Lanes
from ganglion.compiler.cpu.products.packing import AMX_DEPTH, ROW_LENGTH
from ganglion.compiler.cpu.text import F32, WIDTH, Maths, Position, Text, Val

TILE = 16  # rows of a tile, and columns of sums
ROW_BYTES = 64  # of any tile
LEFT, RIGHT = (4, 5), (6, 7)  # numbers of the tiles of operands; sums have 0 to 3
STEPS = AMX_DEPTH // 2  # pairs
SHAPES = "@amx_shapes"  # of the tiles: all are as large as can be

LOAD, STORE = "llvm.x86.tileloadd64", "llvm.x86.tilestored64"
ZERO, DOT = "llvm.x86.tilezero", "llvm.x86.tdpbf16ps"
CONFIGURE, RELEASE = "llvm.x86.ldtilecfg", "llvm.x86.tilerelease"
DECLARED = {
    LOAD: "i8 immarg, ptr, i64",
    STORE: "i8 immarg, ptr, i64",
    ZERO: "i8 immarg",
    DOT: "i8 immarg, i8 immarg, i8 immarg",
    CONFIGURE: "ptr",
    RELEASE: "",
}


def call(text: Text, name: str, arguments: str = "") -> None:
    """Append an instruction of AMX."""
    text.declare(f"declare void @{name}({DECLARED[name]})")
    text.do(f"call void @{name}({arguments})")


def shapes() -> str:
    """Return the definition of the tiles' shapes, as the processor reads them."""
    columns = ROW_BYTES.to_bytes(2, "little") * 8
    raw = bytes([1]).ljust(16, b"\0") + columns.ljust(32, b"\0") + bytes([TILE] * 8)
    written = "".join(f"\\{byte:02X}" for byte in raw.ljust(64, b"\0"))
    return f'{SHAPES} = private constant [64 x i8] c"{written}", align 64'


class AmxContraction(PackedContraction):
    """A large product under construction whose tiles AMX multiplies."""

    def emit(self) -> Emitted:
        """Emit a loop over runs, around which the thread has tiles."""
        call(self.text, CONFIGURE, f"ptr {SHAPES}")
        self.emit_runs()
        call(self.text, RELEASE)
        return self.emitted({shapes()})

    # ---- packing -------------------------------------------------------------------

    def room(self, inner: str) -> str:
        """Return how many steps a panel of columns has room for: whole tiles."""
        return self.text.times(self.depth(inner), STEPS)

    def depth(self, inner: str) -> str:
        """Return how many tiles some inner indices take."""
        beyond = self.text.add(inner, AMX_DEPTH - 1)
        return self.text.divided(beyond, AMX_DEPTH)[0]

    def end_row(self, place: str, inner: str) -> None:
        """Fill the other half of a tile's row behind a packed one."""
        beyond = self.text.add(inner, WIDTH - 1)
        end = str(self.text.rounded_down(beyond, WIDTH))
        self.store_row(self.maths.constant(0, F32, WIDTH), place, end)

    def pack_columns(self, block: Block, panels: Panels) -> None:
        """Pack some columns; zeros follow, up to the end of a tile."""
        super().pack_columns(block, panels)
        if self.columns.right != 1:
            return  # those are packed in squares, as deep as a tile
        text, zero = self.text, self.maths.constant(0, F32, WIDTH)

        def fill(step: str) -> None:
            apart = text.times(step, self.wide)

            def store(column: str) -> None:
                start = self.in_panel(panels.columns, column, panels.length)
                self.keep(zero, text.address(start, self.element, apart))

            text.each(0, block.columns, WIDTH, store)

        text.each(self.steps(block.inner), self.room(block.inner), 1, fill)

    def pack_transposed_rows(
        self, block: Block, source: str, count: str, target: str
    ) -> None:
        """Pack rows that lie side by side: squares of 16 rows and 16 pairs."""
        text, inner = self.text, block.inner
        end = str(text.rounded_down(inner, AMX_DEPTH))
        square = partial(self._square, inner, source, count, target)
        text.each(0, end, AMX_DEPTH, partial(square, True))
        some = text.let(f"icmp slt i64 {end}, {inner}")
        text.when(some, lambda: square(False, end))

    def _square(
        self,
        inner: str,
        source: str,
        count: str,
        target: str,
        is_whole: bool,
        first: str,
    ) -> None:
        """Pack some pairs of all rows; behind the last index they are zeros."""
        text, apart = self.text, self.inner.left
        ahead = text.times(str(apart), AMX_DEPTH)

        def pack(row: str) -> None:
            which = Lanes.before(self.maths, self.dtype, text.minus(count, row))
            lines = []
            for number in range(AMX_DEPTH):
                index = text.add(first, number)
                lines.append(self._line(which, source, row, index, inner, is_whole))
                if is_whole:
                    at = text.add(text.times(index, apart), row)
                    address = text.address(source, self.element, at)
                    self.emitter.prefetch(text.address(address, self.element, ahead))
            pairs = zip(lines[::2], lines[1::2], strict=True)
            words = self.maths.transposed([self.paired(*pair) for pair in pairs])
            start = text.address(target, self.element, text.times(row, self.left.apart))
            place = text.address(start, "bfloat", first)
            for number, word in enumerate(words):
                below = number * self.left.apart
                self.keep(word, text.address(place, self.element, below))

        text.each(0, count, TILE, pack)

    def _line(
        self,
        which: Lanes,
        source: str,
        row: str,
        index: str,
        inner: str,
        is_whole: bool,
    ) -> Val:
        """Load elements of some rows at one index, or zeros if that is beyond."""
        text, is_there = self.text, ""
        if not is_whole:
            is_there = text.let(f"icmp slt i64 {index}, {inner}")
            index = text.let(f"select i1 {is_there}, i64 {index}, i64 0")
        at = text.add(text.times(index, self.inner.left), row)
        value = which.load(text.address(source, self.element, at))
        if is_whole:
            return value
        zero = self.maths.constant(0, self.dtype, WIDTH)
        passed = f"{value.type} {value.name}, {zero.type} {zero.name}"
        return Val(text.let(f"select i1 {is_there}, {passed}"), value.dtype, WIDTH)

    # ---- tiles ---------------------------------------------------------------------

    def multiply_panel(
        self, block: Block, panels: Panels, row: str, count: str
    ) -> None:
        """Multiply a packed panel, which may be the last of so many rows."""
        self.across(block, panels, row, self.text.smaller(count, str(self.left.high)))

    def call_tile(
        self, rows: Position, columns: str, arguments: str, prefetched: str
    ) -> None:
        """Multiply some rows by some columns, by one or two tiles of each."""
        text = self.text

        def run(down: int, across: int) -> None:
            tile = AmxTiles(down, across, self.wide)
            self.tiles.setdefault(tile.name, tile)
            text.do(f"call void @{tile.name}({arguments}, i64 {rows})")

        def by_columns(down: int) -> None:
            several = text.let(f"icmp sgt i64 {columns}, {TILE}")
            text.when(several, partial(run, down, 2), partial(run, down, 1))

        several = text.let(f"icmp sgt i64 {rows}, {TILE}")
        text.when(several, partial(by_columns, 2), partial(by_columns, 1))


class AmxTiles:
    """The function that multiplies tiles of packed rows by tiles of packed columns."""

    PARAMETERS = (
        "ptr noalias %a, ptr noalias %b, ptr noalias %c, i64 %depth, i64 %stride, "
        "i64 %columns, i1 %first, i64 %rows"
    )

    def __init__(self, down: int, across: int, wide: int) -> None:
        self.name = f"amx{down}x{across}"
        self.text = Text(self.name, self.PARAMETERS)
        self.maths = Maths(self.text)
        self.down, self.across, self.wide = down, across, wide

    def emit(self) -> str:
        """Return the function's text.

        Sums that end within a tile are copied, and computed in the copy.
        """
        text, high, wide = self.text, self.down * TILE, self.across * TILE
        held = f"alloca [{high * wide} x float], align {ALIGNMENT}"
        text.prelude.append(f"  %held = {held}")
        below = text.let(f"icmp sge i64 %rows, {high}")
        beside = text.let(f"icmp sge i64 %columns, {wide}")
        is_whole = text.let(f"and i1 {below}, {beside}")
        is_part = text.let(f"xor i1 {is_whole}, true")
        sums = text.let(f"select i1 {is_whole}, ptr %c, ptr %held")
        apart = text.let(f"select i1 {is_whole}, i64 %stride, i64 {wide}")
        apart = text.times(apart, F32.itemsize)
        later = text.let("xor i1 %first, true")
        begun = text.let(f"and i1 {is_part}, {later}")
        text.when(begun, partial(self._copy, "%c", "%stride", "%held", wide))
        text.when("%first", self._zero, partial(self._each_sum, LOAD, sums, apart))
        text.when(is_whole, self._prefetch_next)
        text.each(0, "%depth", 1, self._step)
        self._each_sum(STORE, sums, apart)
        text.when(is_part, partial(self._copy, "%held", wide, "%c", "%stride"))
        return text.finish().replace("define void", "define internal void", 1)

    def _zero(self) -> None:
        for number in range(self.down * self.across):
            call(self.text, ZERO, f"i8 {number}")

    def _each_sum(self, name: str, sums: str, apart: str) -> None:
        text, row = self.text, sums
        for down in range(self.down):
            if down:
                row = text.address(row, "i8", text.times(apart, TILE))
            for across in range(self.across):
                at = text.address(row, "i8", across * ROW_BYTES)
                number = down * self.across + across
                call(text, name, f"i8 {number}, ptr {at}, i64 {apart}")

    def _step(self, index: str) -> None:
        """Add the products of one tile's depth."""
        text, apart = self.text, ROW_LENGTH * F32.itemsize
        a = text.address("%a", "i8", text.times(index, ROW_BYTES))
        steps = text.times(index, STEPS * self.wide)
        b = text.address("%b", "float", steps)
        for down in range(self.down):
            row = text.address(a, "i8", down * TILE * apart)
            call(text, LOAD, f"i8 {LEFT[down]}, ptr {row}, i64 {apart}")
            for across in range(self.across):
                if not down:
                    at = text.address(b, "i8", across * ROW_BYTES)
                    stride = self.wide * F32.itemsize
                    call(text, LOAD, f"i8 {RIGHT[across]}, ptr {at}, i64 {stride}")
                number = down * self.across + across
                passed = f"i8 {number}, i8 {LEFT[down]}, i8 {RIGHT[across]}"
                call(text, DOT, passed)

    def _rows(self, first: str, apart: Position, count: int) -> Iterator[str]:
        """Yield where each of some rows begins."""
        for number in range(count):
            if number:
                first = self.text.address(first, "float", str(apart))
            yield first

    def _prefetch_next(self) -> None:
        """Prefetch the sums of the next tiles while these are computed."""
        text, name = self.text, "@llvm.prefetch.p0"
        text.declare(f"declare void {name}(ptr, i32, i32, i32)")
        ahead = text.address("%c", "float", self.wide)
        for row in self._rows(ahead, "%stride", self.down * TILE):
            for across in range(self.across):
                at = text.address(row, "float", across * TILE)
                text.do(f"call void {name}(ptr {at}, i32 1, i32 3, i32 1)")

    def _copy(self, source: str, below: Position, target: str, apart: Position) -> None:
        """Copy the sums that there are, row by row."""
        text = self.text
        counts = [text.add("%columns", -n * TILE) for n in range(self.across)]
        which = [Lanes.before(self.maths, F32, count) for count in counts]

        def copy(row: str) -> None:
            for number, some in enumerate(which):
                at, to = (
                    text.add(text.let(f"mul nsw i64 {row}, {step}"), number * TILE)
                    for step in (below, apart)
                )
                value = some.load(text.address(source, "float", at))
                some.store(value, text.address(target, "float", to))

        text.each(0, "%rows", 1, copy)
