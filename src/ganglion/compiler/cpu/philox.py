"""Philox 4x32-10 and the shuffle by swap-or-not, in LLVM IR."""

from __future__ import annotations

import numpy as np

from ganglion.compiler.cpu.text import Maths, Text, Val, lanes
from ganglion.compiler.ir.random import SHUFFLE_ROUNDS

U32, U64 = np.dtype("uint32"), np.dtype("uint64")
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_MASK = 0xFFFFFFFF


class Random:
    """Emits random numbers; every word of 32 bits is kept in 64."""

    def __init__(self, text: Text, maths: Maths) -> None:
        self.text, self.maths = text, maths

    def word(self, value: int, width: int) -> Val:
        """Return a constant word."""
        return self.maths.constant(value, U64, width)

    def philox(self, counter: list[Val], key: tuple[Val, int]) -> list[Val]:
        """Return four random words for a counter of four."""
        m = self.maths
        width = counter[0].width
        mask = self.word(_MASK, width)
        shift = self.word(32, width)
        c0, c1, c2, c3 = counter
        k0, k1 = m.splat(key[0], width), key[1]
        for _ in range(10):
            first = m.binary("mul", c0, self.word(_MULTIPLIERS[0], width))
            second = m.binary("mul", c2, self.word(_MULTIPLIERS[1], width))
            high = m.binary("lshr", second, shift)
            c0 = m.binary("xor", m.binary("xor", high, c1), k0)
            high = m.binary("lshr", first, shift)
            c2 = m.binary("xor", m.binary("xor", high, c3), self.word(k1, width))
            c1, c3 = m.binary("and", second, mask), m.binary("and", first, mask)
            k0 = m.binary("and", m.binary("add", k0, self.word(_WEYL[0], width)), mask)
            k1 = (k1 + _WEYL[1]) & _MASK
        return [c0, c1, c2, c3]

    def state(self, address: str) -> tuple[Val, Val]:
        """Load the seed and the counter of a random state."""
        words = []
        for index in (0, 1):
            at = self.text.address(address, "i32", str(index))
            word = Val(self.text.let(f"load i32, ptr {at}, align 4"), U32, 1)
            words.append(self.maths.cast(word, U64))
        return words[0], words[1]

    def uniform(self, address: str, element: Val, dtype: np.dtype) -> Val:
        """Return the uniform number of an element: word e % 4 of block e / 4."""
        m, width = self.maths, element.width
        seed, count = self.state(address)
        number = Val(element.name, U64, width)
        block = m.binary("lshr", number, self.word(2, width))
        zero = self.word(0, width)
        words = self.philox([block, zero, m.splat(count, width), zero], (seed, 0))
        which = m.binary("and", number, self.word(3, width))
        bits = words[0]
        for index in (1, 2, 3):
            chosen = m.compare("icmp eq", which, self.word(index, width))
            bits = m.select(chosen, words[index], bits)
        small = m.binary("lshr", bits, self.word(8, width))
        real = m.cast(m.cast(small, U32), dtype)
        return m.binary("fmul", real, m.constant(2.0**-24, dtype, width))

    def shuffled(self, address: str, position: Val, rows: int) -> Val:
        """Return the place of a position in the order of the rows."""
        m, width = self.maths, position.width
        seed, epoch = self.state(address)
        kind = lanes("i64", width)
        n = self.word(rows, width)
        zero = self.word(0, width)
        start = m.cast(position, U64)

        def swap(index: str, carried: list[str]) -> list[str]:
            x = Val(carried[0], U64, width)
            number = Val(index, U64, 1)
            one, none = self.word(1, 1), self.word(0, 1)
            offset = self.philox([number, none, epoch, one], (seed, 1))[0]
            offset = m.binary("urem", offset, self.word(rows, 1))
            away = m.binary("sub", m.binary("add", m.splat(offset, width), n), x)
            over = m.compare("icmp uge", away, n)
            partner = m.select(over, m.binary("sub", away, n), away)
            larger = m.compare("icmp ugt", x, partner)
            pair = m.select(larger, x, partner)
            counter = [m.splat(number, width), pair, m.splat(epoch, width), zero]
            bit = m.binary(
                "and", self.philox(counter, (seed, 1))[0], self.word(1, width)
            )
            swaps = m.compare("icmp ne", bit, zero)
            return [m.select(swaps, partner, x).name]

        done = self.text.loop("0", str(SHUFFLE_ROUNDS), 1, swap, [(kind, start.name)])
        return m.cast(Val(done[0], U64, width), np.dtype("int32"))
