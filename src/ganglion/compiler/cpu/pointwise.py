"""Pointwise ops in LLVM IR: arithmetic here, functions in `functions`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

import numpy as np

from ganglion.compiler.cpu import functions
from ganglion.compiler.cpu.text import Text, Val, lanes, llvm_type, number

F32, F64, I32, BOOL = (np.dtype(n) for n in ("float32", "float64", "int32", "bool"))


class Maths:
    """Emits pointwise ops into a function."""

    def __init__(self, text: Text) -> None:
        self.text = text

    def constant(self, value: float, dtype: np.dtype, width: int) -> Val:
        """Return a number, in every lane."""
        one = number(value, dtype)
        if width == 1:
            return Val(one, dtype, 1)
        element = llvm_type(dtype)
        return Val("<" + ", ".join([f"{element} {one}"] * width) + ">", dtype, width)

    def known(self, value: Val) -> float | None:
        """Return the real number that a constant is, None for what is not constant."""
        found = re.search("0x([0-9A-F]{16})", value.name)
        if value.name.startswith("%") or found is None:
            return None
        return float(np.uint64(int(found[1], 16)).view(np.float64))

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
        """Copy a scalar into vectors, of which narrower ones are parts of the widest.

        LLVM would load it once more for each width.
        """
        most = max(widths)
        whole = self.splat(value, most)
        if min(widths) < most:
            whole = self.intrinsic("arithmetic.fence", whole)
        parts = {w: self.picked(whole, whole, range(w)) for w in {*widths} - {most}}
        return [parts.get(width, whole) for width in widths]

    def picked(self, a: Val, b: Val, order: range) -> Val:
        """Return the lanes of two vectors, side by side, that a range names."""
        if len(order) == 1:
            return self.lane(a, order[0])
        mask = ", ".join(f"i32 {i}" for i in order)
        name = self.text.let(
            f"shufflevector {a.type} {a.name}, {b.type} {b.name}, "
            f"<{len(order)} x i32> <{mask}>"
        )
        return Val(name, a.dtype, len(order))

    def lane(self, value: Val, index: int) -> Val:
        """Return one lane."""
        name = self.text.let(f"extractelement {value.type} {value.name}, i64 {index}")
        return Val(name, value.dtype, 1)

    def gathered(self, parts: list[Val]) -> Val:
        """Put scalars side by side into a vector."""
        kind = lanes(llvm_type(parts[0].dtype), len(parts))
        name = "poison"
        for index, part in enumerate(parts):
            name = self.text.let(
                f"insertelement {kind} {name}, {part.type} {part.name}, i64 {index}"
            )
        return Val(name, parts[0].dtype, len(parts))

    def binary(self, instruction: str, a: Val, b: Val) -> Val:
        """Apply an instruction to two values."""
        name = self.text.let(f"{instruction} {a.type} {a.name}, {b.name}")
        return Val(name, a.dtype, a.width)

    def compare(self, condition: str, a: Val, b: Val) -> Val:
        """Compare two values."""
        name = self.text.let(f"{condition} {a.type} {a.name}, {b.name}")
        return Val(name, BOOL, a.width)

    def select(self, condition: Val, a: Val, b: Val) -> Val:
        """Choose lane by lane."""
        name = self.text.let(
            f"select {condition.type} {condition.name}, {a.type} {a.name}, "
            f"{b.type} {b.name}"
        )
        return Val(name, a.dtype, a.width)

    def intrinsic(self, name: str, *args: Val, result: np.dtype | None = None) -> Val:
        """Call a function of LLVM's that exists for every type."""
        dtype = result or args[0].dtype
        width = args[0].width
        suffix = (
            llvm_type(args[0].dtype).replace("float", "f32").replace("double", "f64")
        )
        full = f"llvm.{name}.v{width}{suffix}" if width > 1 else f"llvm.{name}.{suffix}"
        kind = lanes(llvm_type(dtype), width)
        kinds = ", ".join(one.type for one in args)
        self.text.declare(f"declare {kind} @{full}({kinds})")
        given = ", ".join(f"{one.type} {one.name}" for one in args)
        return Val(self.text.let(f"call {kind} @{full}({given})"), dtype, width)

    def library(self, name: str, *args: Val) -> Val:
        """Call a function of the C library, lane by lane."""
        dtype, width = args[0].dtype, args[0].width
        full = name + ("f" if dtype == F32 else "")
        kind = llvm_type(dtype)
        self.text.declare(f"declare {kind} @{full}({', '.join([kind] * len(args))})")

        def call(scalars: list[Val]) -> Val:
            given = ", ".join(f"{kind} {one.name}" for one in scalars)
            return Val(self.text.let(f"call {kind} @{full}({given})"), dtype, 1)

        if width == 1:
            return call(list(args))
        parts = [call([self.lane(one, i) for one in args]) for i in range(width)]
        return self.gathered(parts)

    def where_library(self, name: str, condition: Val, x: Val, other: Val) -> Val:
        """Call the C library in the lanes of a condition, if it holds in any."""
        some = condition
        if x.width > 1:
            kind = f"<{x.width} x i1>"
            reduce = f"llvm.vector.reduce.or.v{x.width}i1"
            self.text.declare(f"declare i1 @{reduce}({kind})")
            some = Val(
                self.text.let(f"call i1 @{reduce}({kind} {condition.name})"), BOOL, 1
            )
        count = self.text.let(f"select i1 {some.name}, i64 {x.width}, i64 0")

        def lane(index: str, carried: list[str]) -> list[str]:
            if x.width == 1:
                return [self.library(name, x).name]
            one = self.text.let(f"extractelement {x.type} {x.name}, i64 {index}")
            made = self.library(name, Val(one, x.dtype, 1))
            place = f"{x.type} {carried[0]}, {made.type} {made.name}, i64 {index}"
            return [self.text.let(f"insertelement {place}")]

        ends = self.text.loop("0", count, 1, lane, [(x.type, other.name)])
        return self.select(condition, Val(ends[0], x.dtype, x.width), other)

    def fma(self, a: Val, b: Val, c: Val) -> Val:
        """Return a * b + c, rounded once."""
        return self.intrinsic("fma", a, b, c)

    # ---- by name ---------------------------------------------------------------------

    def apply(self, op: str, args: list[Val], dtype: np.dtype) -> Val:
        """Emit the op of this name."""
        if op == "cast":
            return self.cast(args[0], dtype)
        return _OPS[op](self, *args)

    def cast(self, x: Val, dtype: np.dtype) -> Val:
        """Convert as NumPy does."""
        if x.dtype == dtype:
            return x
        target = lanes(llvm_type(dtype), x.width)
        if dtype == BOOL:
            zero = self.constant(0, x.dtype, x.width)
            condition = "fcmp une" if x.dtype.kind == "f" else "icmp ne"
            return self.compare(condition, x, zero)
        instruction = _conversion(x.dtype, dtype)
        if instruction is None:
            return Val(x.name, dtype, x.width)
        name = self.text.let(f"{instruction} {x.type} {x.name} to {target}")
        return Val(name, dtype, x.width)

    # ---- arithmetic ------------------------------------------------------------------

    def negative(self, x: Val) -> Val:
        """Change the sign."""
        if x.dtype.kind == "f":
            return Val(self.text.let(f"fneg {x.type} {x.name}"), x.dtype, x.width)
        return self.binary("sub", self.constant(0, x.dtype, x.width), x)

    def absolute(self, x: Val) -> Val:
        """Take away the sign."""
        if x.dtype.kind == "f":
            return self.intrinsic("fabs", x)
        if x.dtype.kind == "u":
            return x
        less = self.compare("icmp slt", x, self.constant(0, x.dtype, x.width))
        return self.select(less, self.negative(x), x)

    def sign(self, x: Val) -> Val:
        """-1, 0 or 1."""
        zero = self.constant(0, x.dtype, x.width)
        one = self.constant(1, x.dtype, x.width)
        kind = _condition(x.dtype)
        above = self.select(self.compare(kind("gt"), x, zero), one, zero)
        if x.dtype.kind == "u":
            return above
        minus = self.constant(-1, x.dtype, x.width)
        made = self.select(self.compare(kind("lt"), x, zero), minus, above)
        if x.dtype.kind != "f":
            return made
        return self.select(self.compare("fcmp uno", x, x), x, made)

    def extreme(self, x: Val, y: Val, largest: bool) -> Val:
        """The larger or smaller; NaN if either is NaN. Equal zeros: either of them.

        A choice that takes the second of two unless the first is larger is one
        instruction of x86, and the second is what it takes beside a NaN.
        """
        condition = _condition(x.dtype)("gt" if largest else "lt")
        if x.dtype.kind != "f":
            return self.select(self.compare(condition, x, y), x, y)
        if self._is_number(x) or self._is_number(y):
            first, second = (x, y) if self._is_number(x) else (y, x)
            return self.select(self.compare(condition, first, second), first, second)
        chosen = self.select(self.compare(condition, x, y), x, y)
        return self.select(self.compare("fcmp ord", x, x), chosen, x)

    def _is_number(self, value: Val) -> bool:
        known = self.known(value)
        return known is not None and not math.isnan(known)

    def divide(self, x: Val, y: Val) -> Val:
        """The quotient; a power of two is multiplied by its exact inverse."""
        if x.dtype.kind != "f":
            return self.binary("sdiv", x, y)
        known = self.known(y)
        if (
            known
            and math.frexp(known)[0] in (0.5, -0.5)
            and 2**-99 < abs(known) < 2**99
        ):
            return self.binary("fmul", x, self.constant(1 / known, y.dtype, y.width))
        return self.binary("fdiv", x, y)

    def remainder(self, x: Val, y: Val) -> Val:
        """The remainder with the sign of the divisor."""
        if x.dtype.kind == "u":
            return self.binary("urem", x, y)
        is_float = x.dtype.kind == "f"
        rest = self.binary("frem" if is_float else "srem", x, y)
        zero = self.constant(0, x.dtype, x.width)
        kind = _condition(x.dtype)
        nonzero = self.compare("fcmp une" if is_float else "icmp ne", rest, zero)
        other_side = self.binary(
            "xor",
            self.compare(kind("lt"), rest, zero),
            self.compare(kind("lt"), y, zero),
        )
        wrong = self.binary("and", nonzero, other_side)
        moved = self.binary("fadd" if is_float else "add", rest, y)
        return self.select(wrong, moved, rest)

    def is_finite(self, x: Val) -> Val:
        """Neither infinite nor NaN."""
        top = self.constant(math.inf, x.dtype, x.width)
        return self.compare("fcmp olt", self.absolute(x), top)

    def logical_not(self, x: Val) -> Val:
        """True becomes false and false true."""
        return self.binary("xor", x, self.constant(1, BOOL, x.width))


def _condition(dtype: np.dtype) -> Callable[[str], str]:
    prefix = {"f": "fcmp o", "i": "icmp s", "u": "icmp u", "b": "icmp u"}[dtype.kind]
    return lambda name: prefix + name


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


def _arithmetic(real: str, whole: str) -> Callable[..., Val]:
    def emit(maths: Maths, a: Val, b: Val) -> Val:
        return maths.binary(real if a.dtype.kind == "f" else whole, a, b)

    return emit


def _less(name: str) -> Callable[..., Val]:
    return lambda maths, a, b: maths.compare(_condition(a.dtype)(name), a, b)


def _equal(maths: Maths, a: Val, b: Val) -> Val:
    return maths.compare("fcmp oeq" if a.dtype.kind == "f" else "icmp eq", a, b)


def _intrinsic(name: str) -> Callable[..., Val]:
    return lambda maths, *args: maths.intrinsic(name, *args)


_OPS: dict[str, Callable[..., Val]] = {
    "add": _arithmetic("fadd", "add"),
    "subtract": _arithmetic("fsub", "sub"),
    "multiply": _arithmetic("fmul", "mul"),
    "divide": Maths.divide,
    "power": functions.power,
    "maximum": lambda maths, a, b: maths.extreme(a, b, True),
    "minimum": lambda maths, a, b: maths.extreme(a, b, False),
    "remainder": Maths.remainder,
    "equal": _equal,
    "less": _less("lt"),
    "less_equal": _less("le"),
    "logical_and": lambda maths, a, b: maths.binary("and", a, b),
    "logical_or": lambda maths, a, b: maths.binary("or", a, b),
    "logical_not": Maths.logical_not,
    "where": Maths.select,
    "negative": Maths.negative,
    "absolute": Maths.absolute,
    "sign": Maths.sign,
    "floor": _intrinsic("floor"),
    "round": _intrinsic("roundeven"),
    "sqrt": _intrinsic("sqrt"),
    "exp": functions.exp,
    "sigmoid": functions.sigmoid,
    "expm1": functions.expm1,
    "log": functions.log,
    "log1p": functions.log1p,
    "sin": functions.sin,
    "cos": functions.cos,
    "tanh": functions.tanh,
    "erf": functions.erf,
    "is_finite": Maths.is_finite,
    "stop_gradient": lambda maths, x: x,
}
