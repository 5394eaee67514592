"""Lists of the places where data is not zero, in LLVM IR: made, and read."""

from __future__ import annotations

from functools import partial

from ganglion.compiler.cpu.emitter import Emitted, Emitter
from ganglion.compiler.cpu.skip_zeros import Nonzeros
from ganglion.compiler.cpu.text import WIDTH
from ganglion.compiler.plan.kernels import Index, Places

WORTH_SKIPPING = 0.75  # of the places: with more in lists, larger tiles are faster
VECTOR_LOOKS, LOOKS = 4, 16  # vectors of places, or places, that are looked at first
MASK = f"i{WIDTH}"  # a bit for each lane


def emit_nonzeros(kernel: Nonzeros) -> Emitted:
    """Return the making of lists as text."""
    return _Lists(kernel).emit()


class _Lists:
    """Lists under construction. Only bits count: -0 is listed, and does no harm."""

    def __init__(self, kernel: Nonzeros) -> None:
        self.kernel = kernel
        self.emitter = Emitter()
        self.text = self.emitter.text
        self.bits = f"i{8 * kernel.source.buffer.dtype.itemsize}"
        self.align = kernel.source.buffer.dtype.itemsize
        # Vectors lie along the inner axis where that is contiguous.
        long = kernel.inner.left == 1
        self.in_vectors = kernel.inner.size // WIDTH * WIDTH if long else 0

    def emit(self) -> Emitted:
        """Emit pieces: each a group of rows at a place of the batch."""
        kernel, text = self.kernel, self.text
        rest = kernel.rows.size % kernel.places.group

        def piece(number: list[str]) -> None:
            where = text.let(f"sdiv i64 {number[0]}, {kernel.groups}")
            group = text.let(f"srem i64 {number[0]}, {kernel.groups}")
            start = self._origin(where)
            row = text.times(group, kernel.places.group)
            start = text.add(start, text.times(row, kernel.rows.left))
            source = text.address(
                self.emitter.base(kernel.source.buffer), self.bits, start
            )
            length = kernel.places.buffer.shape[-1]
            base = self.emitter.base(kernel.places.buffer)
            target = text.address(base, "i32", text.times(number[0], length))
            whole = partial(self._group, source, target, kernel.places.group)
            if not rest:
                whole()
                return
            last = text.let(f"icmp eq i64 {group}, {kernel.groups - 1}")
            text.when(last, partial(self._group, source, target, rest), whole)

        self.emitter.nest([("%lo", "%hi")], piece)
        return self.emitter.emitted(kernel.parallel)

    def _origin(self, where: str) -> str:
        """Return where in the source a place of the batch begins."""
        text, start = self.text, str(self.kernel.source.offset)
        for axis in reversed(self.kernel.batch):
            index = text.let(f"srem i64 {where}, {axis.size}")
            where = text.let(f"sdiv i64 {where}, {axis.size}")
            start = text.add(start, text.times(index, axis.left))
        return start

    def _group(self, source: str, target: str, size: int) -> None:
        """List the places of one group; none where a first look finds no zero."""
        text = self.text
        all_of_them = partial(text.do, f"store i32 -1, ptr {target}, align 4")
        some = partial(self._list, source, target, size)
        text.when(self._looks_full(source, size), all_of_them, some)

    def _looks_full(self, source: str, size: int) -> str:
        """Return whether no zero is found at a few places: dense data costs little."""
        text = self.text
        if self.in_vectors:
            see, kind, stop, step = self._mask, MASK, self.in_vectors, WIDTH
        else:
            see, kind, stop, step = self._any, "i1", self.kernel.inner.size, 1
        looks = VECTOR_LOOKS if self.in_vectors else LOOKS
        places = range(0, stop, max(1, stop // step // looks) * step)
        found = [see(source, str(place), size) for place in places]
        both = found[0]
        for one in found[1:]:
            both = text.let(f"and {kind} {both}, {one}")
        return text.let(f"icmp eq {kind} {both}, -1")

    def _list(self, source: str, target: str, size: int) -> None:
        text = self.text
        first = text.address(target, "i32", str(Places.HEAD))

        def many(place: str, carried: list[str]) -> list[str]:
            return [self._append_many(source, first, size, place, carried[0])]

        def one(place: str, carried: list[str]) -> list[str]:
            text.put_index(place, text.address(first, "i32", carried[0]))
            some = self._any(source, place, size)
            more = text.let(f"zext i1 {some} to i64")
            return [text.add(carried[0], more)]

        stop = self.in_vectors
        (count,) = text.loop("0", str(stop), WIDTH, many, [("i64", "0")])
        rest = str(self.kernel.inner.size)
        (count,) = text.loop(str(stop), rest, 1, one, [("i64", count)])
        text.put_index(count, target)

    def _append_many(
        self, source: str, first: str, size: int, place: str, count: str
    ) -> str:
        """Store those of some neighbouring places that are not zero side by side."""
        text = self.text
        mask = self._mask(source, place, size)
        kind, flags = f"<{WIDTH} x i32>", f"<{WIDTH} x i1>"
        number = Index(self.kernel.places.buffer.dtype, (1,))
        places = self.emitter.expression(number, [place], 0, WIDTH).name
        name = f"@llvm.experimental.vector.compress.v{WIDTH}i32"
        text.declare(f"declare {kind} {name}({kind}, {flags}, {kind})")
        chosen = text.let(f"bitcast {MASK} {mask} to {flags}")
        given = f"{kind} {places}, {flags} {chosen}, {kind} poison"
        packed = text.let(f"call {kind} {name}({given})")
        to = text.address(first, "i32", count)
        text.do(f"store {kind} {packed}, ptr {to}, align 4")
        text.declare(f"declare {MASK} @llvm.ctpop.{MASK}({MASK})")
        more = text.let(f"call {MASK} @llvm.ctpop.{MASK}({MASK} {mask})")
        return text.add(count, text.let(f"zext {MASK} {more} to i64"))

    def _mask(self, source: str, place: str, size: int) -> str:
        """Return a bit for each of some neighbouring places: not all rows are zero."""
        text, kind = self.text, f"<{WIDTH} x {self.bits}>"
        start = text.address(source, self.bits, place)
        rows = [str(row * self.kernel.rows.left) for row in range(size)]
        total = self._either([text.address(start, self.bits, at) for at in rows], kind)
        flags = text.let(f"icmp ne {kind} {total}, zeroinitializer")
        return text.let(f"bitcast <{WIDTH} x i1> {flags} to {MASK}")

    def _any(self, source: str, place: str, size: int) -> str:
        """Return whether not all rows are zero at a place."""
        text, rows, bits = self.text, self.kernel.rows, self.bits
        at = text.address(source, bits, text.times(place, self.kernel.inner.left))
        if rows.left == 1 and size > 1:
            kind = f"<{size} x {bits}>"
            some = text.let(f"load {kind}, ptr {at}, align {self.align}")
            name = f"@llvm.vector.reduce.or.v{size}{bits}"
            text.declare(f"declare {bits} {name}({kind})")
            total = text.let(f"call {bits} {name}({kind} {some})")
        else:
            each = [text.address(at, bits, str(r * rows.left)) for r in range(size)]
            total = self._either(each, bits)
        return text.let(f"icmp ne {bits} {total}, 0")

    def _either(self, addresses: list[str], kind: str) -> str:
        """Return the bits that are set in any of some values."""
        text, total = self.text, ""
        for at in addresses:
            one = text.let(f"load {kind}, ptr {at}, align {self.align}")
            total = text.let(f"or {kind} {total}, {one}") if total else one
        return total


def list_of(emitter: Emitter, places: Places, piece: str, row: str) -> tuple[str, str]:
    """Return how many places a group of rows has, and where they are listed."""
    text, (*_, groups, length) = emitter.text, places.buffer.shape
    group = text.let(f"sdiv i64 {row}, {places.group}")
    group = text.add(text.times(piece, groups), group)
    base = emitter.base(places.buffer)
    head = text.address(base, "i32", text.times(group, length))
    count = text.let(f"load i32, ptr {head}, align 4")
    full = text.let(f"icmp slt i32 {count}, 0")
    own = text.address(head, "i32", str(Places.HEAD))
    every = emitter.base(places.every)
    first = text.let(f"select i1 {full}, ptr {every}, ptr {own}")
    short = text.let(f"select i1 {full}, i32 {places.every.size}, i32 {count}")
    return text.let(f"zext i32 {short} to i64"), first


def leaves_out(
    emitter: Emitter, places: Places, piece: str, start: str, rows: int
) -> str:
    """Return whether the lists of some rows leave out enough places to use them."""
    text = emitter.text

    def add(row: str, carried: list[str]) -> list[str]:
        count, _ = list_of(emitter, places, piece, text.add(start, row))
        return [text.add(carried[0], count)]

    (total,) = text.loop("0", str(rows), places.group, add, [("i64", "0")])
    groups = -(-rows // places.group)
    most = int(WORTH_SKIPPING * groups * places.every.size)
    return text.let(f"icmp sle i64 {total}, {most}")
