"""The function that multiplies a packed panel of rows by one of columns."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ganglion.compiler.cpu.products.packing import RowPanel
from ganglion.compiler.cpu.text import (
    I32,
    I64,
    WIDTH,
    Maths,
    Text,
    Val,
    lanes,
    llvm_type,
)
from ganglion.compiler.cpu.tuning import CPU

ALIGNMENT = 64  # bytes, of vectors in panels
DOT = "@llvm.x86.avx512bf16.dpbf16ps.512"  # adds two products of bfloat16 to a float32


class Lanes:
    """Loads and stores of whole vectors, or of those lanes that are before an end."""

    def __init__(self, maths: Maths, dtype: np.dtype, mask: str = "") -> None:
        self.text, self.dtype, self.mask = maths.text, dtype, mask
        self.kind = lanes(llvm_type(dtype), WIDTH)
        self.suffix = f"v{WIDTH}f{8 * dtype.itemsize}.p0"
        self.align = dtype.itemsize

    @classmethod
    def before(cls, maths: Maths, dtype: np.dtype, count: str) -> Lanes:
        """Return those lanes whose number is less than a count."""
        limit = maths.splat(Val(count, I64, 1), WIDTH).name
        numbers = ", ".join(f"i64 {lane}" for lane in range(WIDTH))
        mask = maths.text.let(f"icmp slt <{WIDTH} x i64> <{numbers}>, {limit}")
        return cls(maths, dtype, mask)

    def load(self, address: str) -> Val:
        """Load a vector; lanes that are left out are zero."""
        if not self.mask:
            source = f"load {self.kind}, ptr {address}, align {self.align}"
            return Val(self.text.let(source), self.dtype, WIDTH)
        flags, name = f"<{WIDTH} x i1>", f"@llvm.masked.load.{self.suffix}"
        self.text.declare(f"declare {self.kind} {name}(ptr, i32, {flags}, {self.kind})")
        passed = f"ptr {address}, i32 {self.align}, {flags} {self.mask}"
        passed = f"{passed}, {self.kind} zeroinitializer"
        value = self.text.let(f"call {self.kind} {name}({passed})")
        return Val(value, self.dtype, WIDTH)

    def store(self, value: Val, address: str) -> None:
        """Store a vector."""
        stored = f"{self.kind} {value.name}, ptr {address}"
        if not self.mask:
            self.text.do(f"store {stored}, align {self.align}")
            return
        flags, name = f"<{WIDTH} x i1>", f"@llvm.masked.store.{self.suffix}"
        self.text.declare(f"declare void {name}({self.kind}, ptr, i32, {flags})")
        passed = f"{stored}, i32 {self.align}, {flags} {self.mask}"
        self.text.do(f"call void {name}({passed})")


class TileText:
    """The function that multiplies a packed panel of rows by one of columns."""

    PARAMETERS = (
        "ptr noalias %a, ptr noalias %b, ptr noalias %c, i64 %inner, i64 %stride, "
        "i64 %columns, i1 %first, ptr %ahead, i64 %line, i64 %lines, i64 %run, "
        "i64 %apart"
    )

    def __init__(
        self,
        rows: int,
        vectors: int,
        wide: int,
        left: RowPanel,
        dtype: np.dtype,
        pairs: bool,
    ) -> None:
        self.name, self.left = f"tile{rows}x{vectors}", left
        # Pairs of bfloat16 are words, until an instruction multiplies them.
        self.packed = I32 if pairs else dtype
        self.text = Text(self.name, self.PARAMETERS)
        self.maths = Maths(self.text)
        self.rows, self.vectors, self.wide, self.dtype = rows, vectors, wide, dtype
        self.element = llvm_type(dtype)

    def emit(self) -> str:
        """Return the function's text."""
        text = self.text
        zero = self.maths.constant(0, self.dtype, WIDTH)
        full = text.let(f"icmp sge i64 %columns, {self.vectors * WIDTH}")
        stored = text.let("xor i1 %first, true")
        sums = [zero] * (self.rows * self.vectors)
        for is_full in (True, False):
            sums = self._begun(sums, full, stored, is_full)
        self._prefetch_next()
        sums = self._inner(sums)
        text.when(
            full, lambda: self._store(sums, True), lambda: self._store(sums, False)
        )
        return text.finish().replace("define void", "define internal void", 1)

    def _lanes(self, is_full: bool) -> list[Lanes]:
        if is_full:
            return [Lanes(self.maths, self.dtype)] * self.vectors
        counts = [self.text.add("%columns", -v * WIDTH) for v in range(self.vectors)]
        return [Lanes.before(self.maths, self.dtype, count) for count in counts]

    def _addresses(self) -> Iterator[tuple[int, str]]:
        text, row = self.text, "%c"
        for number in range(self.rows):
            if number:
                row = text.address(row, self.element, "%stride")
            for vector in range(self.vectors):
                yield vector, text.address(row, self.element, vector * WIDTH)

    def _begun(
        self, sums: list[Val], full: str, stored: str, is_full: bool
    ) -> list[Val]:
        """Return the sums of the blocks before, as they are stored."""
        text = self.text
        if not is_full:
            full = text.let(f"xor i1 {full}, true")
        some = text.let(f"and i1 {stored}, {full}")
        once = text.let(f"zext i1 {some} to i64")

        def load(_: str, carried: list[Val]) -> list[Val]:
            which = self._lanes(is_full)
            return [which[vector].load(at) for vector, at in self._addresses()]

        return text.carry("0", once, 1, sums, load)

    def _prefetch_next(self) -> None:
        """Prefetch the sums of the next tile while this one is computed."""
        for _, at in self._addresses():
            self._prefetch(self.text.address(at, self.element, self.wide))

    def _inner(self, sums: list[Val]) -> list[Val]:
        """Add up over the inner indices, and prefetch lines of the next block.

        The lines are spread over the indices: more at once would be more than a core
        has room for, and loads would wait for them.
        """
        text = self.text
        each = text.let(f"udiv i64 {text.add('%inner', '%lines')}, %lines")

        def line(number: str, carried: list[Val]) -> list[Val]:
            row = text.let(f"udiv i64 {text.add('%line', number)}, %run")
            column = text.let(f"urem i64 {text.add('%line', number)}, %run")
            at = text.address("%ahead", "i8", text.product(row, "%apart"))
            at = text.address(at, "i8", text.times(column, CPU.line_bytes))
            self._prefetch(at, into_first=False)
            start = text.product(number, each)
            end = text.smaller(text.add(start, each), "%inner")
            return text.carry(start, end, 1, carried, self._step)

        return text.carry(0, "%lines", 1, sums, line)

    def _prefetch(self, address: str, into_first: bool = True) -> None:
        """Prefetch a line into the first cache, or into a larger one."""
        name, how = "@llvm.prefetch.p0", f"i32 0, i32 {3 if into_first else 1}, i32 1"
        self.text.declare(f"declare void {name}(ptr, i32, i32, i32)")
        self.text.do(f"call void {name}(ptr {address}, {how})")

    def _store(self, sums: list[Val], is_full: bool) -> None:
        which = self._lanes(is_full)
        for total, (vector, at) in zip(sums, self._addresses(), strict=True):
            which[vector].store(total, at)

    def _step(self, index: str, sums: list[Val]) -> list[Val]:
        """Add the products of one element a row and the vectors of columns."""
        text, element = self.text, llvm_type(self.packed)
        a = text.address("%a", element, text.times(index, self.left.step))
        b = text.address("%b", element, text.times(index, self.wide))
        kind, right = lanes(element, WIDTH), []
        for vector in range(self.vectors):
            at = text.address(b, element, vector * WIDTH)
            name = text.let(f"load {kind}, ptr {at}, align {ALIGNMENT}")
            right.append(Val(name, self.packed, WIDTH))
        results = []
        for row in range(self.rows):
            at = text.address(a, element, row * self.left.apart)
            size = self.packed.itemsize
            name = text.let(f"load {element}, ptr {at}, align {size}")
            copies = self.maths.splat(Val(name, self.packed, 1), WIDTH)
            for vector in range(self.vectors):
                old = sums[row * self.vectors + vector]
                results.append(self._added(copies, right[vector], old))
        return results

    def _added(self, left: Val, right: Val, old: Val) -> Val:
        """Return sums with the products of a step."""
        if self.packed == self.dtype:
            return self.maths.fma(left, right, old)
        text, pairs = self.text, f"<{2 * WIDTH} x bfloat>"
        text.declare(f"declare {old.type} {DOT}({old.type}, {pairs}, {pairs})")
        passed = [f"{old.type} {old.name}"]
        for value in (left, right):
            name = text.let(f"bitcast {value.type} {value.name} to {pairs}")
            passed.append(f"{pairs} {name}")
        name = text.let(f"call {old.type} {DOT}({', '.join(passed)})")
        return Val(name, self.dtype, WIDTH)
