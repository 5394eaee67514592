"""Pointwise ops in LLVM IR: arithmetic by instruction, functions by polynomial."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ganglion.backends.cpu_text import Text, Val, lanes, llvm_type, number

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
        suffix = llvm_type(args[0].dtype).replace("float", "f32").replace("double", "f64")
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

    # ---- functions -------------------------------------------------------------------

    def _poly(self, x: Val, coefficients: list[float]) -> Val:
        total = self.constant(coefficients[0], x.dtype, x.width)
        for one in coefficients[1:]:
            total = self.fma(total, x, self.constant(one, x.dtype, x.width))
        return total

    def exp(self, x: Val) -> Val:
        """The exponential: range reduction by powers of two, then a polynomial."""
        if x.dtype != F32:
            return self.library("exp", x)

        def c(value: float) -> Val:
            return self.constant(value, F32, x.width)

        # Beyond ±104 the result is 0 or infinity; NaN goes through the selects below.
        low = self.select(self.compare("fcmp olt", x, c(-104.0)), c(-104.0), x)
        safe = self.select(self.compare("fcmp ogt", low, c(89.0)), c(89.0), low)
        n = self.intrinsic("rint", self.binary("fmul", safe, c(math.log2(math.e))))
        r = self.fma(n, c(-0.693359375), safe)
        r = self.fma(n, c(2.12194440e-4), r)
        p = self._poly(
            r,
            [
                1.9875691500e-4,
                1.3981999507e-3,
                8.3334519073e-3,
                4.1665795894e-2,
                1.6666665459e-1,
                5.0000001201e-1,
            ],
        )
        p = self.fma(self.binary("fmul", p, r), r, r)
        p = self.binary("fadd", p, c(1.0))
        # Scaling in two halves reaches the smallest and the largest numbers.
        whole = self.cast(n, I32)
        half = self.binary("ashr", whole, self.constant(1, I32, x.width))
        rest = self.binary("sub", whole, half)
        p = self.binary("fmul", p, self._power_of_two(half))
        p = self.binary("fmul", p, self._power_of_two(rest))
        nan = self.compare("fcmp uno", x, x)
        return self.select(nan, x, p)

    def _power_of_two(self, n: Val) -> Val:
        bias = self.binary("add", n, self.constant(127, I32, n.width))
        bits = self.binary("shl", bias, self.constant(23, I32, n.width))
        kind = lanes("float", n.width)
        name = self.text.let(f"bitcast {bits.type} {bits.name} to {kind}")
        return Val(name, F32, n.width)

    def sigmoid(self, x: Val) -> Val:
        """1 / (1 + exp(-x)), from the side that does not overflow."""
        one = self.constant(1, x.dtype, x.width)
        e = self.exp(self.negative(self.absolute(x)))
        below = self.binary("fadd", one, e)
        positive = self.compare("fcmp oge", x, self.constant(0, x.dtype, x.width))
        return self.binary("fdiv", self.select(positive, one, e), below)

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
        """The larger or smaller; NaN if either is NaN."""
        if x.dtype.kind == "f":
            return self.intrinsic("maximum" if largest else "minimum", x, y)
        condition = _condition(x.dtype)("gt" if largest else "lt")
        return self.select(self.compare(condition, x, y), x, y)

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


def _library(name: str) -> Callable[..., Val]:
    return lambda maths, *args: maths.library(name, *args)


def _intrinsic(name: str) -> Callable[..., Val]:
    return lambda maths, *args: maths.intrinsic(name, *args)


_OPS: dict[str, Callable[..., Val]] = {
    "add": _arithmetic("fadd", "add"),
    "subtract": _arithmetic("fsub", "sub"),
    "multiply": _arithmetic("fmul", "mul"),
    "divide": _arithmetic("fdiv", "sdiv"),
    "power": _library("pow"),
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
    "exp": Maths.exp,
    "sigmoid": Maths.sigmoid,
    "expm1": _library("expm1"),
    "log": _library("log"),
    "log1p": _library("log1p"),
    "sin": _library("sin"),
    "cos": _library("cos"),
    "tanh": _library("tanh"),
    "erf": _library("erf"),
    "is_finite": Maths.is_finite,
    "stop_gradient": lambda maths, x: x,
}
