"""Pointwise ops by name: vectorized, branch-free functions of float32.

A function reduces its argument, then evaluates a polynomial. Every lane executes the
same instructions on all machines, so that an element has the same bits in a vector and
in a scalar remainder. The largest measured error in ulp, over all float32 of ordinary
size and a million bit patterns (see `test_cpu_functions.py`):

| exp | expm1 | log | log1p | tanh | sigmoid | erf | sin | cos | power |
|---|---|---|---|---|---|---|---|---|---|
| 0.99 | 1.20 | 0.87 | 1.47 | 1.34 | 1.48 | 1.11 | 1.56 | 1.57 | 0.53 |

The coefficients are minimax fits of the functions named beside them, rounded to float32
one after the other, starting with the lowest power.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from operator import mul

import numpy as np

from ganglion.compiler.cpu.text import F32, F64, I32, Maths, Val, lanes, llvm_type
from ganglion.compiler.ir.graph import BFLOAT16, FLOAT16, is_short
from ganglion.compiler.ir.random import SHUFFLE_ROUNDS
from ganglion.system.records import record

_SAME_SIZE = {"float32": "int32", "float64": "int64", "int32": "float32"}
_SAME_SIZE["int64"] = "float64"


def _operator(
    emit: Callable[[Maths, Val, Val], Val],
) -> Callable[[Term, Term | float], Term]:
    def apply(self: Term, other: Term | float) -> Term:
        return self._new(emit(self.maths, self.val, self._lift(other).val))

    return apply


def _instruction(
    real: str, signed: str, unsigned: str
) -> Callable[[Term, Term | float], Term]:
    names = {"f": real, "i": signed, "u": unsigned, "b": unsigned}
    return _operator(lambda m, a, b: m.binary(names[a.dtype.kind], a, b))


@record(eq=False, guarded=True)
class Term:
    """A value in a formula, whose operators emit LLVM IR.

    Every operation is exact or rounded once. Python's numbers become constants of the
    other operand's type. Comparisons with NaN are false.
    """

    maths: Maths
    val: Val

    __add__ = _operator(Maths.add)
    __sub__ = _operator(Maths.subtract)
    __mul__ = _operator(Maths.multiply)
    __truediv__ = _instruction("fdiv", "sdiv", "udiv")
    __mod__ = _instruction("frem", "srem", "urem")
    __and__ = _instruction("and", "and", "and")
    __or__ = _instruction("or", "or", "or")
    __xor__ = _instruction("xor", "xor", "xor")
    __lshift__ = _instruction("shl", "shl", "shl")
    __rshift__ = _instruction("ashr", "ashr", "lshr")
    __lt__ = _operator(lambda m, a, b: m.ordered("lt", a, b))
    __gt__ = _operator(lambda m, a, b: m.ordered("gt", a, b))
    __ge__ = _operator(lambda m, a, b: m.ordered("ge", a, b))
    equals = _operator(Maths.equal)

    def number(self, value: float) -> Term:
        """Return a constant like this term."""
        return self._new(self.maths.constant(value, self.val.dtype, self.val.width))

    def _new(self, val: Val) -> Term:
        return Term(self.maths, val)

    def _lift(self, other: Term | float) -> Term:
        return other if isinstance(other, Term) else self.number(other)

    def __rsub__(self, other: float) -> Term:
        return self.number(other) - self

    def __rtruediv__(self, other: float) -> Term:
        return self.number(other) / self

    def __neg__(self) -> Term:
        return self._new(self.maths.negative(self.val))

    def __invert__(self) -> Term:
        return self._new(self.maths.logical_not(self.val))

    def choose(self, a: Term | float, b: Term | float) -> Term:
        """Return a where this condition holds, else b; at least one is a term."""
        like = a if isinstance(a, Term) else b
        assert isinstance(like, Term)
        return self._new(
            self.maths.select(self.val, like._lift(a).val, like._lift(b).val)
        )

    def fma(self, factor: Term | float, addend: Term | float) -> Term:
        """Return self * factor + addend, rounded once."""
        factor, addend = self._lift(factor), self._lift(addend)
        return self._new(self.maths.fma(self.val, factor.val, addend.val))

    def polynomial(self, coefficients: Sequence[float]) -> Term:
        """Return the polynomial of these coefficients, the highest power first."""
        total = self.number(coefficients[0])
        for coefficient in coefficients[1:]:
            total = total.fma(self, coefficient)
        return total

    def at_least(self, bound: float) -> Term:
        """Return the larger of this and a number; NaN stays."""
        return self._new(self.maths.extreme(self.val, self.number(bound).val, True))

    def at_most(self, bound: float) -> Term:
        """Return the smaller of this and a number; NaN stays."""
        return self._new(self.maths.extreme(self.val, self.number(bound).val, False))

    def size(self) -> Term:
        """Return the absolute value."""
        return self._new(self.maths.absolute(self.val))

    def signed_as(self, other: Term) -> Term:
        """Return this size with the sign of another term."""
        return self._new(self.maths.intrinsic("copysign", self.val, other.val))

    def floor(self) -> Term:
        """Return the largest integer that is not greater."""
        return self._new(self.maths.intrinsic("floor", self.val))

    def root(self) -> Term:
        """Return the square root."""
        return self._new(self.maths.intrinsic("sqrt", self.val))

    def bits(self) -> Term:
        """Return the same bits as an integer, or as a float."""
        dtype, width = np.dtype(_SAME_SIZE[self.val.dtype.name]), self.val.width
        kind = lanes(llvm_type(dtype), width)
        name = self.maths.text.let(f"bitcast {self.val.type} {self.val.name} to {kind}")
        return self._new(Val(name, dtype, width))

    def splat(self, width: int) -> Term:
        """Return this scalar in every lane."""
        return self._new(self.maths.splat(self.val, width))

    def cast(self, dtype: np.dtype) -> Term:
        """Return the value converted to another type."""
        return self._new(self.maths.cast(self.val, dtype))


def _intrinsic(name: str) -> Callable[..., Val]:
    return lambda m, x: m.intrinsic(name, x)


_OPS: dict[str, Callable[..., Val]] = {
    "add": Maths.add,
    "subtract": Maths.subtract,
    "multiply": Maths.multiply,
    "divide": Maths.divide,
    "maximum": lambda m, a, b: m.extreme(a, b, True),
    "minimum": lambda m, a, b: m.extreme(a, b, False),
    "remainder": Maths.remainder,
    "equal": Maths.equal,
    "less": lambda m, a, b: m.ordered("lt", a, b),
    "less_equal": lambda m, a, b: m.ordered("le", a, b),
    "logical_and": lambda m, a, b: m.binary("and", a, b),
    "logical_or": lambda m, a, b: m.binary("or", a, b),
    "logical_not": Maths.logical_not,
    "where": Maths.select,
    "negative": Maths.negative,
    "absolute": Maths.absolute,
    "sign": Maths.sign,
    "floor": _intrinsic("floor"),
    "round": _intrinsic("roundeven"),
    "sqrt": _intrinsic("sqrt"),
    "is_finite": Maths.is_finite,
    "stop_gradient": lambda m, x: x,
}


# Functions of the C library, which are called lane by lane.
_LIBRARY = {
    "arcsin": "asin",
    "arccos": "acos",
    "arctan": "atan",
    "arctan2": "atan2",
    "cbrt": "cbrt",
    "erfc": "erfc",
    "nextafter": "nextafter",
}


def _library(name: str) -> Callable[..., Val]:
    return lambda m, *args: m.library(name, *args)


_OPS |= {name: _library(function) for name, function in _LIBRARY.items()}


def _integers(
    emit: Callable[[Term, Term], Term],
) -> Callable[[Maths, Val, Val], Val]:
    return lambda m, a, b: emit(Term(m, a), Term(m, b)).val


_OPS |= {
    "bitwise_and": _integers(lambda a, b: a & b),
    "bitwise_or": _integers(lambda a, b: a | b),
    "bitwise_xor": _integers(lambda a, b: a ^ b),
    "left_shift": _integers(lambda a, b: a << b),
    "right_shift": _integers(lambda a, b: a >> b),
}


def _op(function: Callable[..., Val]) -> Callable[..., Val]:
    """Register an op."""
    _OPS[function.__name__] = function
    return function


def _float32(formula: Callable[[Term], Term]) -> None:
    """Register a formula for float32, with the C library's function for float64."""
    name = formula.__name__

    def function(m: Maths, x: Val) -> Val:
        return formula(Term(m, x)).val if x.dtype == F32 else m.library(name, x)

    _OPS[name] = function


# Adding it rounds to an integer, which is then in the lowest bits.
_ROUNDER = 1.5 * 2**23
_ROUNDER_64 = 1.5 * 2**52
_ONE = 0x3F800000  # the bits of 1.0; an exponent of 1 is 1 << 23
_SMALLEST = 2.0**-126  # the smallest number that is not subnormal


def _split_constant(value: float) -> tuple[float, float]:
    """Return two float32 numbers whose sum is a more precise constant."""
    rounded = float(np.float32(value))
    return rounded, float(np.float32(value - rounded))


_LN2, _LN2_REST = _split_constant(math.log(2))

# (exp(r) - 1 - r) / r**2 for |r| <= log(2) / 2, for exp and expm1.
_EXP = [1.99442715e-4, 1.39327231e-3, 8.33320804e-3, 4.16664891e-2, 0.166666672, 0.5]


class _Reduced:
    """x as n * log(2) + r with |r| <= log(2) / 2, and r as `high` plus a remainder."""

    def __init__(self, x: Term) -> None:
        shifted = x.fma(math.log2(math.e), _ROUNDER)
        self.exponent = shifted.bits() << 23
        self._n = shifted - _ROUNDER
        self.high = self._n.fma(-_LN2, x)
        self._r = self._n.fma(-_LN2_REST, self.high)

    def above(self) -> Term:
        """Return exp(r) - 1 - high."""
        r = self._r
        return self._n.fma(-_LN2_REST, r * r * r.polynomial(_EXP))

    def exp(self) -> Term:
        """Return the exponential of r."""
        r = self._r
        return (r * r).fma(r.polynomial(_EXP), r) + 1.0

    def precise_exp(self) -> Term:
        """Return exp(r), in which only the last addition rounds."""
        total = self.high + 1.0
        lost = self.high - (total - 1.0)
        return total + (lost + self.above())

    def power_of_two(self) -> Term:
        """Return 2**n, for n from -126 to 127."""
        return (self.exponent + _ONE).bits()

    def scaled(self, x: Term) -> Term:
        """Return x * 2**n in two steps, for the full range of exponents."""
        half = (self.exponent >> 1) & -(1 << 23)
        return x * (half + _ONE).bits() * (self.exponent - half + _ONE).bits()


@_float32
def exp(x: Term) -> Term:
    """The exponential."""
    reduced = _Reduced(x.at_least(-104.0).at_most(89.0))
    return reduced.scaled(reduced.exp())


@_float32
def expm1(x: Term) -> Term:
    """exp(x) - 1 = s * (exp(r) - 1) + (s - 1), where s = 2**n, halved: s overflows."""
    reduced = _Reduced(x.at_least(-30.0).at_most(89.0))
    scale = (reduced.exponent + (_ONE - (1 << 23))).bits()
    half = scale.fma(reduced.above(), scale.fma(reduced.high, scale - 0.5))
    return (x.size() < 2.0**-24).choose(x, half + half)


@_op
def sigmoid(m: Maths, value: Val) -> Val:
    """1 / (1 + exp(-x)), from the side that does not overflow."""
    x = Term(m, value)
    if value.dtype != F32:
        e = Term(m, m.library("exp", (-x.size()).val))
        return ((x < 0.0).choose(e, 1.0) / (e + 1.0)).val
    reduced = _Reduced((-x.size()).at_least(-104.0))
    e = reduced.scaled(reduced.precise_exp())
    below = e + 1.0
    lost = e - (below - 1.0)
    negative = x < 0.0
    above = negative.choose(e, 1.0)
    quotient = above / below
    # A correction for the rounding errors of the division and of the sum.
    error = (-quotient).fma(lost, (-quotient).fma(below, above))
    inverse = negative.choose(1.0 - quotient, quotient)
    return error.fma(inverse, quotient).val


# (tanh(x) / x - 1) / x**2 in x**2, for |x| < 0.625.
_TANH = [-5.71549917e-3, 2.06491034e-2, -5.37430048e-2, 0.133314848, -0.333332837]


@_float32
def tanh(x: Term) -> Term:
    """1 - 2 / (exp(2 x) + 1), or a polynomial where that would cancel."""
    size = x.size()
    square = size * size
    near = (square * square.polynomial(_TANH)).fma(size, size)
    twice = size.at_most(9.5)
    reduced = _Reduced(twice + twice)
    e = reduced.exp() * reduced.power_of_two()
    far = 1.0 - 2.0 / (e + 1.0)
    return (size < 0.625).choose(near, far).signed_as(x)


_ERF_LIMIT = 0.927734375
# erf(x) / x - 1 in x**2, below the limit.
_ERF_NEAR = [
    -5.98021375e-4, 4.99176187e-3, -2.67662313e-2, 0.112818271, -0.376124978,
    0.128379151
]  # fmt: skip
# log(1 - erf(x)) / x + 1, from the limit to 4.
_ERF_FAR = [
    -1.15209277e-5, 3.25640343e-4, -3.65372025e-3, 2.37852689e-2, -0.106263071,
    -0.635135949, -0.128652155
]  # fmt: skip


@_float32
def erf(x: Term) -> Term:
    """The error function: a polynomial, or 1 - exp(a polynomial) for large x."""
    size = x.size()
    near = (size * size).polynomial(_ERF_NEAR).fma(size, size)
    capped = size.at_most(4.0)
    reduced = _Reduced(capped.polynomial(_ERF_FAR).fma(capped, -capped))
    far = 1.0 - reduced.exp() * reduced.power_of_two()
    return (size < _ERF_LIMIT).choose(near, far).signed_as(x)


_ROOT_HALF = 0x3F3504F3  # the bits of sqrt(1/2)
# (log(1 + f) - f + f**2 / 2) / f**3 for sqrt(1/2) <= 1 + f < sqrt(2).
_LOG = [
    -7.63643533e-2, 0.127622157, -0.131596103, 0.1420158, -0.166234091, 0.200012416,
    -0.250008196, 0.333333313
]  # fmt: skip


def _parts(x: Term) -> tuple[Term, Term]:
    """Return e and m with x = m * 2**e and m around 1, for 0 < x < inf."""
    tiny = x < _SMALLEST
    code = tiny.choose(x * 2.0**23, x).bits() - _ROOT_HALF
    mantissa = ((code & 0x7FFFFF) + _ROOT_HALF).bits()
    return (code >> 23).cast(F32) - tiny.choose(x.number(23.0), 0.0), mantissa


def _log_of_parts(exponent: Term, f: Term) -> Term:
    """Return log((1 + f) * 2**exponent)."""
    square = f * f
    rest = square.fma(f.polynomial(_LOG) * f, square * -0.5)
    return exponent.fma(_LN2, f + exponent.fma(_LN2_REST, rest))


def _log_edges(x: Term, result: Term) -> Term:
    """Return the result, with the logarithms of 0, negatives, infinity and NaN."""
    below = x.equals(0.0).choose(x.number(-math.inf), math.nan)
    return x.equals(math.inf).choose(x, (x > 0.0).choose(result, below))


@_float32
def log(x: Term) -> Term:
    """The natural logarithm."""
    exponent, mantissa = _parts(x)
    return _log_edges(x, _log_of_parts(exponent, mantissa - 1.0))


@_float32
def log1p(x: Term) -> Term:
    """log(1 + x), corrected for the rounding error of 1 + x."""
    total = x + 1.0
    code = total.bits() - _ROOT_HALF
    scale = (_ONE - (code & -(1 << 23))).bits()
    mantissa = ((code & 0x7FFFFF) + _ROOT_HALF).bits()
    large = x > 2.0**30  # 1 + x is x, and the scale would underflow
    f = large.choose(mantissa - 1.0, x.fma(scale, scale - 1.0))
    result = _log_edges(total, _log_of_parts((code >> 23).cast(F32), f))
    return x.equals(0.0).choose(x, result)


_HALF_PI = [*_split_constant(math.pi / 2)]
_HALF_PI.append(math.pi / 2 - math.fsum(_HALF_PI) + 6.123233995736766e-17)
_TURNS_LIMIT = 2.0**17  # the reduction is exact below; above, the library is called
# (sin(r) / r - 1) / r**2 and (cos(r) - 1 + r**2 / 2) / r**4 in r**2, for |r| < 0.8.
_SIN = [-1.95060231e-4, 8.3320979e-3, -0.166666538]
_COS = [2.44286439e-5, -1.38872908e-3, 4.16666456e-2]


@_float32
def sin(x: Term) -> Term:
    """The sine."""
    quarter, sine, cosine = _reduced_angle(x.size())
    odd = (quarter & 1).equals(1)
    flips = ((quarter << 30) ^ x.bits()) & -(1 << 31)
    return _or_library("sin", x, (odd.choose(cosine, sine).bits() ^ flips).bits())


@_float32
def cos(x: Term) -> Term:
    """The cosine."""
    quarter, sine, cosine = _reduced_angle(x.size())
    odd = (quarter & 1).equals(1)
    flips = ((quarter + 1) << 30) & -(1 << 31)
    return _or_library("cos", x, (odd.choose(sine, cosine).bits() ^ flips).bits())


def _reduced_angle(size: Term) -> tuple[Term, Term, Term]:
    """Return the number of quarter turns, and sine and cosine of what is left."""
    shifted = size.fma(2 / math.pi, _ROUNDER)
    n = shifted - _ROUNDER
    r = size
    for part in _HALF_PI:
        r = n.fma(-part, r)
    square = r * r
    sine = (square * square.polynomial(_SIN)).fma(r, r)
    cosine = (square * square).fma(square.polynomial(_COS), square.fma(-0.5, 1.0))
    return shifted.bits(), sine, cosine


def _or_library(name: str, x: Term, result: Term) -> Term:
    """Return results of the C library where x is too large for the reduction."""
    huge = x.size() > _TURNS_LIMIT
    return Term(x.maths, x.maths.where_library(name, huge.val, x.val, result.val))


# log2((1 + s) / (1 - s)) / s in s**2, and 2**f, both in float64.
_LOG2 = [
    0.28290999515314824, 0.3199049718250308, 0.41220927118477296, 0.577077942163997,
    0.9617966941141068, 2.8853900817778495
]  # fmt: skip
_EXP2 = [
    0.00015345811712933328, 0.0013399931216697438, 0.009618488958170327,
    0.05550328776972959, 0.24022646890624827, 0.693147205737263, 1.0000000005541674
]  # fmt: skip


@_op
def power(m: Maths, base: Val, exponent: Val) -> Val:
    """A power, by way of float64: an error of log2(x) is multiplied by y."""
    if base.dtype != F32:
        return m.library("pow", base, exponent)
    x, y = Term(m, base), Term(m, exponent)
    simple = _simple_power(x, m.constant_of(exponent))
    if simple is not None:
        return simple.val
    size = x.size()
    result = _exp2(y.cast(F64) * _log2(size)).cast(F32)
    integral = y.floor().equals(y)
    half = y * 0.5
    odd = integral & ~half.floor().equals(half)
    result = odd.choose(result.signed_as(x), result)
    undefined = (x < 0.0) & (x > -math.inf) & ~integral
    result = undefined.choose(result.number(math.nan), result)
    endless = x.equals(-1.0) & y.size().equals(math.inf)
    is_one = x.equals(1.0) | y.equals(0.0) | endless
    return is_one.choose(x.number(1.0), result).val


def _simple_power(x: Term, exponent: float | None) -> Term | None:
    """Return powers that arithmetic computes faster and as exactly, None for others."""
    if exponent in (1, 2, 3):
        return reduce(mul, [x] * int(exponent))
    if exponent == -1:
        return 1.0 / x
    if exponent is not None and abs(exponent) == 0.5:
        # A power of -0 or -inf is positive, a root is not.
        root = x.equals(-math.inf).choose(x.number(math.inf), x + 0.0).root()
        return root if exponent > 0 else 1.0 / root
    return None


def _log2(size: Term) -> Term:
    """Return log2 in float64, for numbers from 0 to infinity."""
    exponent, mantissa = _parts(size)
    exponent = size.equals(0.0).choose(exponent.number(-math.inf), exponent)
    exponent = (size < math.inf).choose(exponent, size)
    mantissa = mantissa.cast(F64)
    s = (mantissa - 1.0) / (mantissa + 1.0)
    return s.fma((s * s).polynomial(_LOG2), exponent.cast(F64))


def _exp2(x: Term) -> Term:
    """Return 2**x in float64, over the range of float32."""
    x = x.at_least(-200.0).at_most(200.0)
    shifted = x + _ROUNDER_64
    f = x - (shifted - _ROUNDER_64)
    scale = ((shifted.bits() << 52) + (1023 << 52)).bits()
    return f.polynomial(_EXP2) * scale


def apply(m: Maths, op: str, args: list[Val], dtype: np.dtype) -> Val:
    """Emit an op."""
    if op != "cast":
        return _OPS[op](m, *args)
    (x,) = args
    if is_short(x.dtype):
        x = _SHORT[x.dtype][0](m, x)
    if is_short(dtype):
        return _SHORT[dtype][1](Term(m, m.cast(x, F32)))
    return m.cast(x, dtype)


# ---- 16-bit floats: stored as bits, computed in float32 ------------------------------

_INFINITY = 0x7F800000


def _widened(m: Maths, x: Val) -> Term:
    """Return the bits of a 16-bit float as an int32."""
    return Term(m, m.cast(Val(x.name, U16, x.width), I32))


def _from_float16(m: Maths, x: Val) -> Val:
    bits = _widened(m, x)
    size, sign = bits & 0x7FFF, (bits & 0x8000) << 16
    # As low bits of 0.5 in float32, those of a subnormal float16 have the right weight.
    small = ((size + 0x3F000000).bits() - 0.5).bits()
    number = (size < 0x400).choose(small, (size << 13) + 0x38000000)
    number = (size >= 0x7C00).choose((size << 13) | _INFINITY, number)
    return (number | sign).bits().val


def _to_float16(x: Term) -> Val:
    bits = x.bits()
    size, sign = bits & 0x7FFFFFFF, (bits >> 16) & 0x8000
    # Adding 0.5 rounds a small number to the last bit of a subnormal float16.
    small = (size.bits() + 0.5).bits() - 0x3F000000
    normal = (size - 0x38000000 + 0xFFF + ((size >> 13) & 1)) >> 13
    near = (size < 0x38800000).choose(small, normal)
    near = (size >= 0x477FF000).choose(0x7C00, near)
    near = (size > _INFINITY).choose(0x7E00, near)
    return _short(near | sign, FLOAT16)


def _from_bfloat16(m: Maths, x: Val) -> Val:
    return (_widened(m, x) << 16).bits().val


def _to_bfloat16(x: Term) -> Val:
    bits = x.bits()
    near = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    is_nan = (bits & 0x7FFFFFFF) > _INFINITY
    return _short(is_nan.choose((bits >> 16) | 0x40, near), BFLOAT16)


def _short(bits: Term, dtype: np.dtype) -> Val:
    low = bits.cast(U16).val
    return Val(low.name, dtype, low.width)


# The conversions of each type to float32 and from it, rounding halves to even.
_SHORT: dict[np.dtype, tuple[Callable[[Maths, Val], Val], Callable[[Term], Val]]] = {
    FLOAT16: (_from_float16, _to_float16),
    BFLOAT16: (_from_bfloat16, _to_bfloat16),
}


# ---- random numbers: Philox 4x32-10, and the shuffle by swap-or-not ------------------
# Words of 32 bits are held in 64.

U16, U32, U64 = (np.dtype(f"uint{bits}") for bits in (16, 32, 64))
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_MASK = 0xFFFFFFFF


def _philox(counter: list[Term], key: Term, stream: int) -> list[Term]:
    """Return four random words for a counter of four words."""
    c0, c1, c2, c3 = counter
    k0, k1 = key.splat(c0.val.width), stream
    for _ in range(10):
        first, second = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c2 = (second >> 32) ^ c1 ^ k0, (first >> 32) ^ c3 ^ k1
        c1, c3 = second & _MASK, first & _MASK
        k0, k1 = (k0 + _WEYL[0]) & _MASK, (k1 + _WEYL[1]) & _MASK
    return [c0, c1, c2, c3]


def uniform(m: Maths, state: Sequence[Val], element: Val, dtype: np.dtype) -> Val:
    """Return an element's uniform number: word e % 4 of block e / 4.

    The state is a seed and a counter.
    """
    width = element.width
    seed, count = (Term(m, word) for word in state)
    number = Term(m, Val(element.name, U64, width))
    zero = number.number(0)
    words = _philox([number >> 2, zero, count.splat(width), zero], seed, 0)
    which, bits = number & 3, words[0]
    for index in (1, 2, 3):
        bits = which.equals(index).choose(words[index], bits)
    return ((bits >> 8).cast(U32).cast(dtype) * 2.0**-24).val


def shuffled(m: Maths, state: Sequence[Val], position: Val, rows: int) -> Val:
    """Return the index at a position in the shuffled order of the rows."""
    width = position.width
    seed, epoch = (Term(m, word) for word in state)

    def swap(index: str, carried: list[Val]) -> list[Val]:
        x, number = Term(m, carried[0]), Term(m, Val(index, U64, 1))
        counter = [number, number.number(0), epoch, number.number(1)]
        offset = _philox(counter, seed, 1)[0] % rows
        away = (offset.splat(width) + rows) - x
        partner = (away >= rows).choose(away - rows, away)
        pair, zero = (x > partner).choose(x, partner), x.number(0)
        counter = [number.splat(width), pair, epoch.splat(width), zero]
        bit = _philox(counter, seed, 1)[0] & 1
        swaps = m.compare("icmp ne", bit.val, zero.val)
        return [m.select(swaps, partner.val, x.val)]

    start = m.cast(position, U64)
    (row,) = m.text.carry(0, SHUFFLE_ROUNDS, 1, [start], swap)
    return m.cast(row, I32)
