"""Pointwise primitives: each element of the result depends on one of each input.

All inputs of a pointwise op have the same shape and type; `broadcast` and `cast` are
separate ops, so that every conversion is visible in the graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ganglion.compiler.ir.graph import Case, Node, Op, ShapeError, Value
from ganglion.compiler.ir.shaping import BOOL, Typed, fill, is_float

SAMPLE_SHAPE = (3, 5)


def _numbers(*inputs: Value) -> Typed:
    typed = _alike(*inputs)
    if typed[1] == BOOL:
        raise ShapeError("needs numbers, got bool; cast first")
    return typed


def _floats(*inputs: Value) -> Typed:
    typed = _alike(*inputs)
    if not is_float(typed[1]):
        raise ShapeError(f"needs floats, got {typed[1].name}; cast first")
    return typed


def _integers(*inputs: Value) -> Typed:
    typed = _alike(*inputs)
    if typed[1].kind not in "iu":
        raise ShapeError(f"needs integers, got {typed[1].name}; cast first")
    return typed


def _bools(*inputs: Value) -> Typed:
    typed = _alike(*inputs)
    if typed[1] != BOOL:
        raise ShapeError(f"needs bool, got {typed[1].name}; compare first")
    return typed


def _alike(*inputs: Value) -> Typed:
    first = inputs[0]
    for other in inputs[1:]:
        if other.shape != first.shape or other.dtype != first.dtype:
            raise ShapeError(
                f"inputs differ, {first.type_text} and {other.type_text}; "
                "broadcast or cast first"
            )
    return first.shape, first.dtype


def _to_bool(rule: Callable[..., Typed]) -> Callable[..., Typed]:
    return lambda *inputs: (rule(*inputs)[0], BOOL)


def between(*ranges: tuple[float, float]) -> Callable[[np.random.Generator], Case]:
    """Return a domain: an array per range, with uniform elements."""

    def draw(rng: np.random.Generator) -> Case:
        return [rng.uniform(*bounds, SAMPLE_SHAPE) for bounds in ranges], {}

    return draw


def _booleans(count: int) -> Callable[[np.random.Generator], Case]:
    return lambda rng: ([rng.random(SAMPLE_SHAPE) < 0.5 for _ in range(count)], {})


def _whole_numbers(high: int) -> Callable[[np.random.Generator], Case]:
    """Return a domain: two arrays of integers, the second below a bound."""

    def draw(rng: np.random.Generator) -> Case:
        first = rng.integers(-100, 100, SAMPLE_SHAPE, dtype=np.int32)
        return [first, rng.integers(0, high, SAMPLE_SHAPE, dtype=np.int32)], {}

    return draw


def _unary(
    name: str,
    meaning: Callable[..., np.ndarray],
    gradient: Callable[[Value, Value, Value], Value] | None = None,
    *,
    low: float = -2.0,
    high: float = 2.0,
    rule: Callable[..., Typed] = _floats,
) -> Op:
    def backward(node: Node, g: Value) -> list[Value | None]:
        return [gradient(node.inputs[0], node, g)] if gradient else [None]

    return Op(name, "pointwise", rule, meaning, between((low, high)), backward)


def _binary(
    name: str,
    meaning: Callable[..., np.ndarray],
    gradient: Callable[[Value, Value, Value, Value], list[Value | None]] | None = None,
    *,
    domain: Callable[[np.random.Generator], Case] | None = None,
    rule: Callable[..., Typed] = _numbers,
) -> Op:
    def backward(node: Node, g: Value) -> list[Value | None]:
        a, b = node.inputs
        return gradient(a, b, node, g) if gradient else [None, None]

    drawn = domain or between((-2, 2), (-2, 2))
    return Op(name, "pointwise", rule, meaning, drawn, backward)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e)).astype(x.dtype)


def _erf(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erf, otypes=[np.float64])(x).astype(x.dtype)


def _erfc(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erfc, otypes=[np.float64])(x).astype(x.dtype)


def _gaussian(x: Value) -> Value:
    """Return the derivative of the error function."""
    return multiply(fill(2 / math.sqrt(math.pi), x), exp(negative(multiply(x, x))))


def _half_circle(x: Value) -> Value:
    """Return sqrt(1 - x²)."""
    one = fill(1, x)
    return sqrt(multiply(subtract(one, x), add(one, x)))


negative: Op = _unary(
    "negative", np.negative, lambda x, y, g: negative(g), rule=_numbers
)
absolute: Op = _unary(
    "absolute", np.abs, lambda x, y, g: multiply(g, sign(x)), rule=_numbers
)
sign: Op = _unary("sign", np.sign, rule=_numbers)
floor: Op = _unary("floor", np.floor)
round: Op = _unary("round", np.round)  # noqa: A001 (halves to even, as NumPy)
exp: Op = _unary("exp", np.exp, lambda x, y, g: multiply(g, y))
expm1: Op = _unary("expm1", np.expm1, lambda x, y, g: multiply(g, add(y, fill(1, y))))
log: Op = _unary("log", np.log, lambda x, y, g: divide(g, x), low=0.1)
log1p: Op = _unary(
    "log1p", np.log1p, lambda x, y, g: divide(g, add(x, fill(1, x))), low=-0.9
)
sqrt: Op = _unary("sqrt", np.sqrt, lambda x, y, g: divide(g, add(y, y)), low=0.1)
sin: Op = _unary("sin", np.sin, lambda x, y, g: multiply(g, cos(x)))
cos: Op = _unary("cos", np.cos, lambda x, y, g: negative(multiply(g, sin(x))))
tanh: Op = _unary(
    "tanh",
    np.tanh,
    lambda x, y, g: multiply(g, subtract(fill(1, y), multiply(y, y))),
)
sigmoid: Op = _unary(
    "sigmoid",
    _sigmoid,
    lambda x, y, g: multiply(g, multiply(y, subtract(fill(1, y), y))),
)
erf: Op = _unary(
    "erf",
    _erf,
    lambda x, y, g: multiply(g, _gaussian(x)),
)
erfc: Op = _unary("erfc", _erfc, lambda x, y, g: negative(multiply(g, _gaussian(x))))
arcsin: Op = _unary(
    "arcsin", np.arcsin, lambda x, y, g: divide(g, _half_circle(x)), low=-0.9, high=0.9
)
arccos: Op = _unary(
    "arccos",
    np.arccos,
    lambda x, y, g: negative(divide(g, _half_circle(x))),
    low=-0.9,
    high=0.9,
)
arctan: Op = _unary(
    "arctan",
    np.arctan,
    lambda x, y, g: divide(g, add(multiply(x, x), fill(1, x))),
)
cbrt: Op = _unary(
    "cbrt",
    np.cbrt,
    lambda x, y, g: divide(g, multiply(fill(3, y), multiply(y, y))),
    low=0.1,
)
is_finite: Op = _unary("is_finite", np.isfinite, rule=_to_bool(_floats))
stop_gradient: Op = _unary("stop_gradient", np.array, rule=_alike)
logical_not: Op = Op("logical_not", "pointwise", _bools, np.logical_not, _booleans(1))

add: Op = _binary("add", np.add, lambda a, b, y, g: [g, g])
subtract: Op = _binary("subtract", np.subtract, lambda a, b, y, g: [g, negative(g)])
multiply: Op = _binary(
    "multiply", np.multiply, lambda a, b, y, g: [multiply(g, b), multiply(g, a)]
)
divide: Op = _binary(
    "divide",
    np.divide,
    lambda a, b, y, g: [divide(g, b), negative(divide(multiply(g, y), b))],
    domain=between((-2, 2), (0.5, 2)),
    rule=_floats,
)


def _power_gradient(a: Value, b: Value, y: Value, g: Value) -> list[Value | None]:
    to_base = multiply(g, multiply(b, power(a, subtract(b, fill(1, b)))))
    positive = less(fill(0, a), a)
    safe = where(positive, a, fill(1, a))
    return [to_base, multiply(g, multiply(y, log(safe)))]


power: Op = _binary(
    "power",
    np.power,
    _power_gradient,
    domain=between((0.3, 2), (-2, 2)),
    rule=_floats,
)


def _arctan2_gradient(a: Value, b: Value, y: Value, g: Value) -> list[Value | None]:
    square = add(multiply(a, a), multiply(b, b))
    share = divide(g, square)
    return [multiply(share, b), negative(multiply(share, a))]


arctan2: Op = _binary(
    "arctan2",
    np.arctan2,
    _arctan2_gradient,
    domain=between((-2, 2), (0.5, 2)),
    rule=_floats,
)
nextafter: Op = _binary(
    "nextafter", np.nextafter, lambda a, b, y, g: [g, fill(0, g)], rule=_floats
)
# Shifts must be less than the width of the type; callers handle larger ones.
left_shift: Op = _binary(
    "left_shift", np.left_shift, rule=_integers, domain=_whole_numbers(8)
)
right_shift: Op = _binary(
    "right_shift", np.right_shift, rule=_integers, domain=_whole_numbers(8)
)
bitwise_and: Op = _binary(
    "bitwise_and", np.bitwise_and, rule=_integers, domain=_whole_numbers(99)
)
bitwise_or: Op = _binary(
    "bitwise_or", np.bitwise_or, rule=_integers, domain=_whole_numbers(99)
)
bitwise_xor: Op = _binary(
    "bitwise_xor", np.bitwise_xor, rule=_integers, domain=_whole_numbers(99)
)


def _pick_gradient(first_wins: Callable[[Value, Value], Value]) -> Any:
    def gradient(a: Value, b: Value, y: Value, g: Value) -> list[Value | None]:
        chosen, zero = first_wins(a, b), fill(0, g)
        return [where(chosen, g, zero), where(chosen, zero, g)]

    return gradient


# A tie counts as the second input, so that relu(x) = maximum(x, 0) has slope 0 at 0.
maximum: Op = _binary("maximum", np.maximum, _pick_gradient(lambda a, b: less(b, a)))
minimum: Op = _binary("minimum", np.minimum, _pick_gradient(lambda a, b: less(a, b)))
remainder: Op = _binary(
    "remainder",
    np.remainder,
    lambda a, b, y, g: [g, negative(multiply(g, floor(divide(a, b))))],
    domain=between((0.1, 0.9), (1, 2)),
)
equal: Op = _binary("equal", np.equal, rule=_to_bool(_alike))
less: Op = _binary("less", np.less, rule=_to_bool(_numbers))
less_equal: Op = _binary("less_equal", np.less_equal, rule=_to_bool(_numbers))
logical_and: Op = _binary(
    "logical_and", np.logical_and, rule=_bools, domain=_booleans(2)
)
logical_or: Op = _binary("logical_or", np.logical_or, rule=_bools, domain=_booleans(2))


def _where_infer(condition: Value, a: Value, b: Value) -> Typed:
    _bools(condition)
    if condition.shape != a.shape:
        raise ShapeError(f"condition is {condition.shape}, the choices {a.shape}")
    return _alike(a, b)


def _where_domain(rng: np.random.Generator) -> Case:
    return [rng.random(SAMPLE_SHAPE) < 0.5, *between((-2, 2), (-2, 2))(rng)[0]], {}


def _where_gradient(node: Node, g: Value) -> list[Value | None]:
    condition, zero = node.inputs[0], fill(0, g)
    return [None, where(condition, g, zero), where(condition, zero, g)]


where: Op = Op(
    "where", "pointwise", _where_infer, np.where, _where_domain, _where_gradient
)


def _cast_gradient(node: Node, g: Value) -> list[Value | None]:
    (x,) = node.inputs
    return [cast(g, dtype=x.dtype.name) if is_float(x.dtype) else None]


cast: Op = Op(
    "cast",
    "pointwise",
    lambda x, dtype: (x.shape, np.dtype(dtype)),
    lambda x, dtype: x.astype(dtype),
    lambda rng: ([rng.uniform(-3, 3, SAMPLE_SHAPE)], {"dtype": "float64"}),
    _cast_gradient,
)
