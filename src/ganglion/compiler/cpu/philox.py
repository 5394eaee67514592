"""Philox 4x32-10 and the shuffle by swap-or-not, in LLVM IR.

Every word of 32 bits is held in 64.
"""

from __future__ import annotations

import numpy as np

from ganglion.compiler.cpu.functions import Term
from ganglion.compiler.cpu.text import I32, Maths, Val
from ganglion.compiler.ir.random import SHUFFLE_ROUNDS

U32, U64 = np.dtype("uint32"), np.dtype("uint64")
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_MASK = 0xFFFFFFFF


def _philox(counter: list[Term], key: Term, stream: int) -> list[Term]:
    """Return four random words for a counter of four."""
    c0, c1, c2, c3 = counter
    k0, k1 = key.splat(c0.val.width), stream
    for _ in range(10):
        first, second = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c2 = (second >> 32) ^ c1 ^ k0, (first >> 32) ^ c3 ^ k1
        c1, c3 = second & _MASK, first & _MASK
        k0, k1 = (k0 + _WEYL[0]) & _MASK, (k1 + _WEYL[1]) & _MASK
    return [c0, c1, c2, c3]


def _state(m: Maths, address: str) -> tuple[Term, Term]:
    """Load the seed and the counter of a random state."""
    words = []
    for index in ("0", "1"):
        at = m.text.address(address, "i32", index)
        word = Val(m.text.let(f"load i32, ptr {at}, align 4"), U32, 1)
        words.append(Term(m, m.cast(word, U64)))
    return words[0], words[1]


def uniform(m: Maths, address: str, element: Val, dtype: np.dtype) -> Val:
    """Return the uniform number of an element: word e % 4 of block e / 4."""
    width = element.width
    seed, count = _state(m, address)
    number = Term(m, Val(element.name, U64, width))
    zero = number.number(0)
    words = _philox([number >> 2, zero, count.splat(width), zero], seed, 0)
    which, bits = number & 3, words[0]
    for index in (1, 2, 3):
        bits = which.equals(index).choose(words[index], bits)
    return ((bits >> 8).cast(U32).cast(dtype) * 2.0**-24).val


def shuffled(m: Maths, address: str, position: Val, rows: int) -> Val:
    """Return the index at a position in the shuffled order of the rows."""
    width = position.width
    seed, epoch = _state(m, address)

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
