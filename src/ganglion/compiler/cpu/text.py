"""Building blocks of LLVM IR as text: values, blocks, loops and arithmetic."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np

from ganglion.compiler.cpu.tuning import CPU
from ganglion.compiler.ir.graph import is_short

WIDTH = CPU.vector_width
Position = str | int  # the name of an index, or a number
F32, F64, BOOL = (np.dtype(name) for name in ("float32", "float64", "bool"))
I32, I64 = np.dtype("int32"), np.dtype("int64")

_TYPES = {"float32": "float", "float64": "double", "bool": "i1"}
_TYPES |= {f"{u}int{bits}": f"i{bits}" for u in ("", "u") for bits in (8, 16, 32, 64)}
# 16-bit floats are bits, which only conversions interpret.
_TYPES |= {"float16": "i16", "bfloat16": "i16"}


@cache  # NumPy names types slowly
def llvm_type(dtype: np.dtype) -> str:
    """Return the type of an element in a register."""
    return _TYPES[dtype.name]


@cache
def memory_type(dtype: np.dtype) -> str:
    """Return the type of an element in memory, where a bool is a byte."""
    return "i8" if dtype == np.bool_ else llvm_type(dtype)


@cache
def lanes(element: str, width: int) -> str:
    """Return a vector type, or the element's own for a single lane."""
    return element if width == 1 else f"<{width} x {element}>"


def suffix(element: str, width: int) -> str:
    """Return the suffix of an overloaded intrinsic's name."""
    short = {"float": "f32", "double": "f64"}.get(element, element)
    return f"v{width}{short}" if width > 1 else short


def number(value: float | int | bool, dtype: np.dtype) -> str:
    """Return a number as an exact constant of LLVM."""
    # The cache would confuse 0.0 with -0.0, which are equal.
    return _cached_number(value, dtype) if value != 0 else _number(value, dtype)


def _number(value: float | int | bool, dtype: np.dtype) -> str:
    if is_short(dtype):
        return str(int(dtype.type(value).view(np.uint16)))
    if dtype.kind != "f":
        return str(int(value))
    exact = np.float64(np.float32(value)) if dtype.itemsize == 4 else np.float64(value)
    return f"0x{int(exact.view(np.uint64)):016X}"


_cached_number = lru_cache(maxsize=4096)(_number)


@lru_cache(maxsize=4096)
def _repeated(element: str, name: str, width: int) -> str:
    """Return a vector constant with the same number in all lanes."""
    return f"<{', '.join([f'{element} {name}'] * width)}>"


@cache
def _signature(name: str, dtype: np.dtype, width: int, count: int) -> tuple[str, str]:
    """Return an intrinsic's result type and name, and its declaration."""
    kind = lanes(llvm_type(dtype), width)
    called = f"{kind} @llvm.{name}.{suffix(llvm_type(dtype), width)}"
    return called, f"declare {called}({', '.join([kind] * count)})"


class Parameter(int):
    """An integer argument of a kernel, in place of a size or stride.

    Code that emits text must not depend on its value, so that the text is valid for all
    values: comparisons and arithmetic raise. In text it is a name. It is not 0 or 1.
    """

    number: int

    def __new__(cls, number: int) -> Parameter:
        parameter = super().__new__(cls, (1 << 62) + number)  # larger than any size
        parameter.number = number
        return parameter

    def __str__(self) -> str:
        return f"%p{self.number}"

    __repr__ = __str__

    def __format__(self, _: str) -> str:
        return str(self)

    def _refuse(self, *_: object) -> Any:
        raise TypeError(f"the value of {self} is not known here")

    __lt__ = __le__ = __gt__ = __ge__ = __bool__ = _refuse
    __add__ = __sub__ = __mul__ = __floordiv__ = __mod__ = __neg__ = _refuse
    __radd__ = __rsub__ = __rmul__ = __rfloordiv__ = __rmod__ = _refuse


class Val(NamedTuple):
    """A named value, with its element type and number of lanes (1 for a scalar)."""

    name: str
    dtype: np.dtype
    width: int

    @property
    def type(self) -> str:
        """The LLVM type."""
        return lanes(llvm_type(self.dtype), self.width)


def named(names: Sequence[str], like: Sequence[Val]) -> list[Val]:
    """Return values of these names, with the types of others."""
    return [Val(n, t.dtype, t.width) for n, t in zip(names, like, strict=True)]


def vector_widths(size: int) -> list[int]:
    """Return the widths of vectors that cover an axis.

    >>> vector_widths(40)
    [16, 16, 8]
    """
    return [WIDTH] * (size // WIDTH) + [size % WIDTH] * bool(size % WIDTH)


class Text:
    """A function under construction."""

    def __init__(self, name: str, parameters: str) -> None:
        self._head = f"define void @{name}({parameters}) #0 {{\nentry:"
        self.prelude: list[str] = []  # runs once, before anything else
        self.lines: list[str | list[str]] = []
        self.block = "entry"
        self.declared: set[str] = set()
        self._count = 0

    def fresh(self, stem: str = "v") -> str:
        """Return a new name."""
        self._count += 1
        return f"%{stem}{self._count}"

    def do(self, instruction: str) -> None:
        """Append an instruction without a result."""
        self.lines.append(f"  {instruction}")

    def let(self, instruction: str, stem: str = "v") -> str:
        """Append an instruction; return the name of its result."""
        name = self.fresh(stem)
        self.lines.append(f"  {name} = {instruction}")
        return name

    def label(self, name: str) -> None:
        """Start a block."""
        self.lines.append(f"{name[1:]}:")
        self.block = name[1:]

    def declare(self, declaration: str) -> None:
        """Declare a function of LLVM or of the C library."""
        self.declared.add(declaration)

    # ---- indices: integers of 64 bits ----------------------------------------------

    def add(self, a: str, b: Position) -> str:
        """Add two indices."""
        b = str(b)
        if a == "0":
            return b
        if b == "0":
            return a
        if _is_number(a) and _is_number(b):
            return str(int(a) + int(b))
        return self.let(f"add nsw i64 {a}, {b}")

    def times(self, a: str, factor: int) -> str:
        """Multiply an index by a constant, or by a parameter."""
        if factor == 0 or a == "0":
            return "0"
        if factor == 1:
            return a
        if a == "1":
            return str(factor)
        if _is_number(a) and not isinstance(factor, Parameter):
            return str(int(a) * factor)
        return self.let(f"mul nsw i64 {a}, {factor}")

    def product(self, a: str, b: str) -> str:
        """Multiply two indices."""
        return "0" if "0" in (a, b) else self.let(f"mul nsw i64 {a}, {b}")

    def minus(self, a: str, b: str) -> str:
        """Subtract two indices."""
        return a if b == "0" else self.let(f"sub nsw i64 {a}, {b}")

    def smaller(self, a: str, b: str) -> str:
        """Return the smaller of two indices."""
        less = self.let(f"icmp slt i64 {a}, {b}")
        return self.let(f"select i1 {less}, i64 {a}, i64 {b}")

    def affine(
        self, indices: Sequence[str], strides: Sequence[int], offset: int
    ) -> str:
        """Return offset + sum(index * stride)."""
        total = "0"
        for index, stride in zip(indices, strides, strict=True):
            total = self.add(total, self.times(index, stride))
        return self.add(total, offset)

    def opaque(self, index: str) -> str:
        """Return an index whose value is opaque to LLVM.

        For hundreds of addresses at constant distances from an index, LLVM's passes
        would compare all pairs, without effect.
        """
        if _is_number(index):
            return index
        return self.let(f'call i64 asm "", "=r,0"(i64 {index})')

    def address(self, base: str, element: str, index: Position) -> str:
        """Return the address of an element."""
        if index in ("0", 0):
            return base
        return self.let(f"getelementptr inbounds {element}, ptr {base}, i64 {index}")

    def rounded_down(self, count: Position, step: int) -> Position:
        """Return the largest multiple of a step, a power of two, up to a count."""
        if is_known(count):
            return int(count) // step * step
        return self.let(f"and i64 {count}, {-step}")

    def divided(self, number: str, by: Position, sign: str = "u") -> tuple[str, str]:
        """Return the quotient and the remainder of an index."""
        quotient = self.let(f"{sign}div i64 {number}, {by}")
        return quotient, self.let(f"{sign}rem i64 {number}, {by}")

    def put_index(self, index: str, address: str) -> None:
        """Store an index in 32 bits."""
        short = self.let(f"trunc i64 {index} to i32")
        self.do(f"store i32 {short}, ptr {address}, align 4")

    # ---- branches and loops --------------------------------------------------------

    def when(
        self,
        condition: str,
        body: Callable[[], None],
        otherwise: Callable[[], None] | None = None,
        end: str = "after",
    ) -> None:
        """Emit a body under a condition, and possibly another for the other case."""
        yes, no = self.fresh("yes"), self.fresh("no")
        after = self.fresh(end) if otherwise else no
        self.do(f"br i1 {condition}, label {yes}, label {no}")
        for label, emit in ((yes, body), (no, otherwise)):
            if emit:
                self.label(label)
                emit()
                self.do(f"br label {after}")
        self.label(after)

    def each(
        self, start: Position, stop: Position, step: int, body: Callable[[str], None]
    ) -> None:
        """Emit a loop of a body over indices."""

        def run(index: str, _: list[str]) -> list[str]:
            body(index)
            return []

        self.loop(start, stop, step, run)

    def until(self, start: str, stop: str, body: Callable[[str], str]) -> None:
        """Emit a loop whose body returns the next index, from start until stop."""
        before, head, after = self.block, self.fresh("head"), self.fresh("after")
        enters = self.let(f"icmp slt i64 {start}, {stop}")
        self.do(f"br i1 {enters}, label {head}, label {after}")
        self.label(head)
        index, phi = self.fresh("i"), list[str]()
        self.lines.append(phi)
        following = body(index)
        again = self.let(f"icmp slt i64 {following}, {stop}")
        latch = self.block
        self.do(f"br i1 {again}, label {head}, label {after}")
        phi.append(
            f"  {index} = phi i64 [ {start}, %{before} ], [ {following}, %{latch} ]"
        )
        self.label(after)

    def carry(
        self,
        start: Position,
        stop: Position,
        step: int,
        totals: list[Val],
        body: Callable[[str, list[Val]], list[Val]],
    ) -> list[Val]:
        """Emit a loop that carries totals."""

        def run(index: str, carried: list[str]) -> list[str]:
            return [total.name for total in body(index, named(carried, totals))]

        kinds = [(total.type, total.name) for total in totals]
        return named(self.loop(start, stop, step, run, kinds), totals)

    def loop(
        self,
        start: Position,
        stop: Position,
        step: int,
        body: Callable[[str, list[str]], list[str]],
        carried: Sequence[tuple[str, str]] = (),
    ) -> list[str]:
        """Emit a loop over start + n * step < stop that carries values.

        They are given as (type, initial value); the body returns the next values.
        """
        start, stop = str(start), str(stop)
        known = _is_number(start) and _is_number(stop)
        if known and int(start) >= int(stop):
            return [value for _, value in carried]
        if known and int(start) + step >= int(stop):
            return body(start, [value for _, value in carried])
        before, head = self.block, self.fresh("head")
        after = self.fresh("after")
        if known:
            self.do(f"br label {head}")
        else:
            enters = self.let(f"icmp slt i64 {start}, {stop}")
            self.do(f"br i1 {enters}, label {head}, label {after}")
        self.label(head)
        index, names = self.fresh("i"), [self.fresh("c") for _ in carried]
        phis: list[str] = []  # filled in behind the body
        self.lines.append(phis)
        results = body(index, list(names))
        following = self.let(f"add nsw i64 {index}, {step}")
        again = self.let(f"icmp slt i64 {following}, {stop}")
        latch = self.block
        self.do(f"br i1 {again}, label {head}, label {after}")
        phis.append(
            f"  {index} = phi i64 [ {start}, %{before} ], [ {following}, %{latch} ]"
        )
        ends = [
            f"phi {kind} [ {first}, %{before} ], [ {result}, %{latch} ]"
            for (kind, first), result in zip(carried, results, strict=True)
        ]
        phis += [f"  {name} = {end}" for name, end in zip(names, ends, strict=True)]
        self.label(after)
        return results if known else [self.let(end) for end in ends]

    def finish(self) -> str:
        """Return the text of the finished function."""
        lines = [self._head, *self.prelude]
        for line in self.lines:
            lines.extend(line if isinstance(line, list) else [line])
        return "\n".join([*lines, "  ret void", "}"])


def _is_number(text: str) -> bool:
    return text.lstrip("-").isdigit()


def is_known(position: Position) -> bool:
    """Return whether a position is a number, not a name or a parameter."""
    return _is_number(str(position))


class Maths:
    """Emits elementwise arithmetic on vectors into a function."""

    def __init__(self, text: Text) -> None:
        self.text = text

    def constant(self, value: float, dtype: np.dtype, width: int) -> Val:
        """Return a constant with the same number in every lane."""
        if isinstance(value, Parameter):
            assert dtype.itemsize == 8
            return self.splat(Val(str(value), dtype, 1), width)
        name = number(value, dtype)
        if width == 1:
            return Val(name, dtype, 1)
        return Val(_repeated(llvm_type(dtype), name, width), dtype, width)

    def constant_of(self, value: Val) -> float | None:
        """Return the number of a floating-point constant, None for other values."""
        bits = re.search("0x([0-9A-F]{16})", value.name)
        if value.name.startswith("%") or bits is None:
            return None
        return float(np.uint64(int(bits[1], 16)).view(np.float64))

    # ---- lanes ---------------------------------------------------------------------

    def splat(self, value: Val, width: int) -> Val:
        """Copy a scalar into every lane."""
        if width == 1 or value.width == width:
            return value
        kind = lanes(llvm_type(value.dtype), width)
        first = self.text.let(
            f"insertelement {kind} poison, {value.type} {value.name}, i64 0"
        )
        zeros = f"<{width} x i32> zeroinitializer"
        name = self.text.let(f"shufflevector {kind} {first}, {kind} poison, {zeros}")
        return Val(name, value.dtype, width)

    def splats(self, value: Val, widths: Sequence[int]) -> list[Val]:
        """Copy a scalar into vectors; narrower ones are parts of the widest.

        LLVM would reload the scalar for each width.
        """
        width = max(widths)
        widest = self.splat(value, width)
        if min(widths) < width:
            widest = self.intrinsic("arithmetic.fence", widest)
        parts = {w: self.picked(widest, widest, range(w)) for w in {*widths} - {width}}
        return [parts.get(width, widest) for width in widths]

    def picked(self, a: Val, b: Val, order: Sequence[int]) -> Val:
        """Return a shuffle: these lanes of two concatenated vectors."""
        if len(order) == 1:
            return self.lane(a, order[0])
        mask = ", ".join(f"i32 {i}" for i in order)
        name = self.text.let(
            f"shufflevector {a.type} {a.name}, {b.type} {b.name}, "
            f"<{len(order)} x i32> <{mask}>"
        )
        return Val(name, a.dtype, len(order))

    def transposed(self, rows: Sequence[Val]) -> list[Val]:
        """Transpose a square of vectors, in rounds of pairwise shuffles."""
        rows, step = list(rows), 1
        while step < WIDTH:
            before = list(rows)
            low = [i if not i & step else WIDTH + i - step for i in range(WIDTH)]
            high = [i + step if not i & step else WIDTH + i for i in range(WIDTH)]
            for i in range(WIDTH):
                if not i & step:
                    pair = before[i], before[i | step]
                    rows[i] = self.picked(*pair, low)
                    rows[i | step] = self.picked(*pair, high)
            step *= 2
        return rows

    def lane(self, value: Val, index: int) -> Val:
        """Return a lane as a scalar."""
        name = self.text.let(f"extractelement {value.type} {value.name}, i64 {index}")
        return Val(name, value.dtype, 1)

    def gathered(self, scalars: list[Val]) -> Val:
        """Return a vector of scalars."""
        kind = lanes(llvm_type(scalars[0].dtype), len(scalars))
        name = "poison"
        for index, scalar in enumerate(scalars):
            name = self.text.let(
                f"insertelement {kind} {name}, {scalar.type} {scalar.name}, i64 {index}"
            )
        return Val(name, scalars[0].dtype, len(scalars))

    # ---- instructions and calls ----------------------------------------------------

    def binary(self, instruction: str, a: Val, b: Val) -> Val:
        """Apply an instruction to two values."""
        name = self.text.let(f"{instruction} {a.type} {a.name}, {b.name}")
        return Val(name, a.dtype, a.width)

    def compare(self, condition: str, a: Val, b: Val) -> Val:
        """Compare two values."""
        name = self.text.let(f"{condition} {a.type} {a.name}, {b.name}")
        return Val(name, BOOL, a.width)

    def select(self, condition: Val, a: Val, b: Val) -> Val:
        """Select lane by lane, or all lanes by a scalar condition."""
        name = self.text.let(
            f"select {condition.type} {condition.name}, {a.type} {a.name}, "
            f"{b.type} {b.name}"
        )
        return Val(name, a.dtype, a.width)

    def intrinsic(self, name: str, *args: Val) -> Val:
        """Call an overloaded intrinsic."""
        dtype, width = args[0].dtype, args[0].width
        called, declaration = _signature(name, dtype, width, len(args))
        self.text.declare(declaration)
        passed = ", ".join([f"{arg.type} {arg.name}" for arg in args])
        return Val(self.text.let(f"call {called}({passed})"), dtype, width)

    def library(self, name: str, *args: Val) -> Val:
        """Call a function of the C library, lane by lane."""
        dtype, width = args[0].dtype, args[0].width
        full = name + ("f" if dtype == F32 else "")
        kind = llvm_type(dtype)
        self.text.declare(f"declare {kind} @{full}({', '.join([kind] * len(args))})")

        def call(scalars: Sequence[Val]) -> Val:
            passed = ", ".join(f"{kind} {scalar.name}" for scalar in scalars)
            return Val(self.text.let(f"call {kind} @{full}({passed})"), dtype, 1)

        if width == 1:
            return call(args)
        return self.gathered(
            [call([self.lane(arg, i) for arg in args]) for i in range(width)]
        )

    def where_library(self, name: str, condition: Val, x: Val, other: Val) -> Val:
        """Replace the lanes where a condition holds by results of the C library."""
        holds = condition.name
        if x.width > 1:
            kind = f"<{x.width} x i1>"
            full = f"llvm.vector.reduce.or.v{x.width}i1"
            self.text.declare(f"declare i1 @{full}({kind})")
            holds = self.text.let(f"call i1 @{full}({kind} {condition.name})")
        count = self.text.let(f"select i1 {holds}, i64 {x.width}, i64 0")

        def lane(index: str, carried: list[str]) -> list[str]:
            if x.width == 1:
                return [self.library(name, x).name]
            element = self.text.let(f"extractelement {x.type} {x.name}, i64 {index}")
            y = self.library(name, Val(element, x.dtype, 1))
            passed = f"{x.type} {carried[0]}, {y.type} {y.name}, i64 {index}"
            return [self.text.let(f"insertelement {passed}")]

        ends = self.text.loop("0", count, 1, lane, [(x.type, other.name)])
        return self.select(condition, Val(ends[0], x.dtype, x.width), other)

    # ---- arithmetic ------------------------------------------------------------------

    def cast(self, x: Val, dtype: np.dtype) -> Val:
        """Convert with NumPy's semantics."""
        if x.dtype == dtype:
            return x
        if dtype == BOOL:
            zero = self.constant(0, x.dtype, x.width)
            condition = "fcmp une" if x.dtype.kind == "f" else "icmp ne"
            return self.compare(condition, x, zero)
        instruction = _conversion(x.dtype, dtype)
        if instruction is None:
            return Val(x.name, dtype, x.width)
        target = lanes(llvm_type(dtype), x.width)
        name = self.text.let(f"{instruction} {x.type} {x.name} to {target}")
        return Val(name, dtype, x.width)

    def add(self, a: Val, b: Val) -> Val:
        """Return a + b."""
        return self.binary("fadd" if a.dtype.kind == "f" else "add", a, b)

    def subtract(self, a: Val, b: Val) -> Val:
        """Return a - b."""
        return self.binary("fsub" if a.dtype.kind == "f" else "sub", a, b)

    def multiply(self, a: Val, b: Val) -> Val:
        """Return a * b."""
        return self.binary("fmul" if a.dtype.kind == "f" else "mul", a, b)

    def fma(self, a: Val, b: Val, c: Val) -> Val:
        """Return a * b + c, rounded once."""
        return self.intrinsic("fma", a, b, c)

    def ordered(self, relation: str, a: Val, b: Val) -> Val:
        """Return where a is "lt", "le", "gt" or "ge" b; NaN is none of them."""
        prefix = {"f": "fcmp o", "i": "icmp s"}.get(a.dtype.kind, "icmp u")
        return self.compare(prefix + relation, a, b)

    def equal(self, a: Val, b: Val) -> Val:
        """Return where both are equal."""
        return self.compare("fcmp oeq" if a.dtype.kind == "f" else "icmp eq", a, b)

    def negative(self, x: Val) -> Val:
        """Return -x."""
        if x.dtype.kind == "f":
            return Val(self.text.let(f"fneg {x.type} {x.name}"), x.dtype, x.width)
        return self.binary("sub", self.constant(0, x.dtype, x.width), x)

    def absolute(self, x: Val) -> Val:
        """Return the absolute value."""
        if x.dtype.kind == "f":
            return self.intrinsic("fabs", x)
        if x.dtype.kind == "u":
            return x
        less = self.compare("icmp slt", x, self.constant(0, x.dtype, x.width))
        return self.select(less, self.negative(x), x)

    def sign(self, x: Val) -> Val:
        """Return -1, 0 or 1; NaN for NaN."""
        zero, one = (self.constant(n, x.dtype, x.width) for n in (0, 1))
        above = self.select(self.ordered("gt", x, zero), one, zero)
        if x.dtype.kind == "u":
            return above
        minus = self.constant(-1, x.dtype, x.width)
        sign = self.select(self.ordered("lt", x, zero), minus, above)
        if x.dtype.kind != "f":
            return sign
        return self.select(self.compare("fcmp uno", x, x), x, sign)

    def extreme(self, x: Val, y: Val, largest: bool) -> Val:
        """Return the larger or smaller; NaN if either is NaN; of equal zeros, either.

        x86 has a single instruction that returns the second operand unless the first
        compares larger, and so also if either is NaN.
        """
        relation = "gt" if largest else "lt"
        if x.dtype.kind == "f" and not self._is_number(x) and self._is_number(y):
            x, y = y, x
        chosen = self.select(self.ordered(relation, x, y), x, y)
        if x.dtype.kind != "f" or self._is_number(x):
            return chosen
        return self.select(self.compare("fcmp ord", x, x), chosen, x)

    def _is_number(self, value: Val) -> bool:
        constant = self.constant_of(value)
        return constant is not None and not math.isnan(constant)

    def divide(self, x: Val, y: Val) -> Val:
        """Return x / y; a power of two is multiplied by its exact inverse."""
        if x.dtype.kind != "f":
            return self.binary("sdiv", x, y)
        divisor = self.constant_of(y) or math.nan
        if abs(math.frexp(divisor)[0]) == 0.5 and 2**-99 < abs(divisor) < 2**99:
            return self.binary("fmul", x, self.constant(1 / divisor, y.dtype, y.width))
        return self.binary("fdiv", x, y)

    def remainder(self, x: Val, y: Val) -> Val:
        """Return the remainder, with the sign of the divisor."""
        if x.dtype.kind == "u":
            return self.binary("urem", x, y)
        is_float = x.dtype.kind == "f"
        rest = self.binary("frem" if is_float else "srem", x, y)
        zero = self.constant(0, x.dtype, x.width)
        nonzero = self.compare("fcmp une" if is_float else "icmp ne", rest, zero)
        signs = self.ordered("lt", rest, zero), self.ordered("lt", y, zero)
        wrong = self.binary("and", nonzero, self.binary("xor", *signs))
        return self.select(wrong, self.add(rest, y), rest)

    def is_finite(self, x: Val) -> Val:
        """Return where x is neither infinite nor NaN."""
        top = self.constant(math.inf, x.dtype, x.width)
        return self.compare("fcmp olt", self.absolute(x), top)

    def logical_not(self, x: Val) -> Val:
        """Return where x is false."""
        return self.binary("xor", x, self.constant(1, BOOL, x.width))


def _conversion(old: np.dtype, new: np.dtype) -> str | None:
    if old.kind == "f":
        if new.kind == "f":
            return "fpext" if new.itemsize > old.itemsize else "fptrunc"
        return "fptoui" if new.kind == "u" else "fptosi"
    if new.kind == "f":
        return "sitofp" if old.kind == "i" else "uitofp"
    wide, narrow = new.itemsize, 0 if old == BOOL else old.itemsize
    if wide > narrow:
        return "sext" if old.kind == "i" else "zext"
    return "trunc" if wide < narrow else None
