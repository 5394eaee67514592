"""FarmHash's Fingerprint64 and SipHash-2-4 of many words at once, as TensorFlow's.

Words of equal length are the rows of a matrix of bytes, so that every step is a NumPy
operation over all of them; 64-bit numbers wrap around, as in the originals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Bytes = np.ndarray  # (words, length) of uint8
Hashes = np.ndarray  # (words,) of uint64

_K0, _K1, _K2 = (
    np.uint64(0xC3A5C85C97CB3127),
    np.uint64(0xB492B66FBE98F273),
    np.uint64(0x9AE16A3B2F90404F),
)
_CAT = np.uint64(0xC6A4A7935BD1E995)


def fingerprint64(words: Sequence[bytes]) -> Hashes:
    """Return FarmHash's fingerprint of each word.

    >>> fingerprint64([b"ganglion"]) % np.uint64(1000)
    array([89], dtype=uint64)
    """
    return _by_length(words, _farmhash)


def siphash64(words: Sequence[bytes], key: Sequence[int]) -> Hashes:
    """Return the SipHash-2-4 of each word under a key of two numbers."""
    first, second = (np.uint64(part % 2**64) for part in key)
    return _by_length(words, lambda rows: _siphash(rows, first, second))


def buckets(words: Sequence[bytes], count: int, salt: Sequence[int] | None) -> Any:
    """Return the bucket of each word: by its fingerprint, or with a salt by SipHash."""
    hashes = fingerprint64(words) if salt is None else siphash64(words, salt)
    return (hashes % np.uint64(count)).astype(np.int64)


def salt_of(salt: Any, owner: str) -> list[int] | None:
    """Return a salt as two numbers, None for none."""
    if salt is None:
        return None
    if isinstance(salt, (int, np.integer)):
        return [int(salt), int(salt)]
    if isinstance(salt, (list, tuple)) and len(salt) == 2:
        return [int(part) for part in salt]
    raise ValueError(
        f"The `salt` of {owner} can only be a tuple of size 2 integers, or a single "
        f"integer. Received: salt={salt!r}"
    )


def fingerprint_cat64(first: Hashes, second: Hashes) -> Hashes:
    """Return the fingerprints of pairs of fingerprints."""
    mixed = first ^ _CAT ^ (_shift_mix(second * _CAT) * _CAT)
    return _shift_mix(_shift_mix(mixed * _CAT) * _CAT)


def _by_length(words: Sequence[bytes], hashed: Callable[[Bytes], Hashes]) -> Hashes:
    hashes = np.zeros(len(words), np.uint64)
    lengths = np.fromiter(map(len, words), np.int64, len(words))
    for length in np.unique(lengths):
        rows = np.flatnonzero(lengths == length)
        joined = b"".join([words[row] for row in rows.tolist()])
        matrix = np.frombuffer(joined, np.uint8).reshape(len(rows), length)
        hashes[rows] = hashed(matrix)
    return hashes


def _fetch(rows: Bytes, at: int, size: int = 8) -> Hashes:
    """Return `size` bytes of each row as a number, the lowest byte first."""
    part = np.zeros((len(rows), 8), np.uint8)
    part[:, :size] = rows[:, at : at + size]
    return part.view("<u8")[:, 0].astype(np.uint64)


def _rotate_right(x: Hashes, bits: int) -> Hashes:
    return (x >> np.uint64(bits)) | (x << np.uint64(64 - bits))


def _shift_mix(x: Hashes) -> Hashes:
    return x ^ (x >> np.uint64(47))


# ---- FarmHash ------------------------------------------------------------------------


def _farmhash(rows: Bytes) -> Hashes:
    length = rows.shape[1]
    if length > 64:
        return _farmhash_long(rows)
    if length > 16:
        return _farmhash_to_64(rows)
    return _farmhash_to_16(rows)


def _mixed(u: Hashes, v: Hashes, multiplier: Hashes) -> Hashes:
    a = _shift_mix((u ^ v) * multiplier)
    return _shift_mix((v ^ a) * multiplier) * multiplier


def _multiplier(rows: Bytes) -> Hashes:
    return np.full(len(rows), _K2) + np.uint64(2 * rows.shape[1])


def _farmhash_to_16(rows: Bytes) -> Hashes:
    length, multiplier = rows.shape[1], _multiplier(rows)
    if length >= 8:
        a, b = _fetch(rows, 0) + _K2, _fetch(rows, length - 8)
        c = _rotate_right(b, 37) * multiplier + a
        d = (_rotate_right(a, 25) + b) * multiplier
        return _mixed(c, d, multiplier)
    if length >= 4:
        a = np.uint64(length) + (_fetch(rows, 0, 4) << np.uint64(3))
        return _mixed(a, _fetch(rows, length - 4, 4), multiplier)
    if length > 0:
        a, b, c = (rows[:, at].astype(np.uint64) for at in (0, length // 2, length - 1))
        y = a + (b << np.uint64(8))
        z = np.uint64(length) + (c << np.uint64(2))
        return _shift_mix(y * _K2 ^ z * _K0) * _K2
    return np.full(len(rows), _K2)


def _farmhash_to_64(rows: Bytes) -> Hashes:
    length, multiplier = rows.shape[1], _multiplier(rows)
    is_long = length > 32
    a, b = _fetch(rows, 0) * (_K2 if is_long else _K1), _fetch(rows, 8)
    c = _fetch(rows, length - 8) * multiplier
    d = _fetch(rows, length - 16) * _K2
    y = _rotate_right(a + b, 43) + _rotate_right(c, 30) + d
    z = _mixed(y, a + _rotate_right(b + _K2, 18) + c, multiplier)
    if not is_long:
        return z
    e, f = _fetch(rows, 16) * multiplier, _fetch(rows, 24)
    g = (y + _fetch(rows, length - 32)) * multiplier
    h = (z + _fetch(rows, length - 24)) * multiplier
    return _mixed(
        _rotate_right(e + f, 43) + _rotate_right(g, 30) + h,
        e + _rotate_right(f + a, 18) + g,
        multiplier,
    )


def _farmhash_long(rows: Bytes) -> Hashes:
    length, seed = rows.shape[1], np.full(len(rows), 81, np.uint64)
    y = seed * _K1 + np.uint64(113)
    z = _shift_mix(y * _K2 + np.uint64(113)) * _K2
    x = seed * _K2 + _fetch(rows, 0)
    v = w = (np.zeros_like(x), np.zeros_like(x))
    state = x, y, z, v, w
    end = (length - 1) // 64 * 64
    for at in range(0, end, 64):
        state = _farmhash_block(rows, at, state, np.full_like(x, _K1))
    x, y, z, v, w = state
    multiplier = _K1 + ((z & np.uint64(0xFF)) << np.uint64(1))
    first = w[0] + np.uint64((length - 1) & 63)
    v = (v[0] + first, v[1])
    w = (first + v[0], w[1])
    state = x, y, z, v, w
    x, y, z, v, w = _farmhash_block(rows, length - 64, state, multiplier, 9)
    return _mixed(
        _mixed(v[0], w[0], multiplier) + _shift_mix(y) * _K0 + z,
        _mixed(v[1], w[1], multiplier) + x,
        multiplier,
    )


def _farmhash_block(
    rows: Bytes,
    at: int,
    state: tuple[Hashes, Hashes, Hashes, tuple[Hashes, Hashes], tuple[Hashes, Hashes]],
    multiplier: Hashes,
    factor: int = 1,
) -> tuple[Hashes, Hashes, Hashes, tuple[Hashes, Hashes], tuple[Hashes, Hashes]]:
    """Take in 64 bytes; the last block weighs two terms by a factor."""
    x, y, z, v, w = state
    weight = np.uint64(factor)
    x = _rotate_right(x + y + v[0] + _fetch(rows, at + 8), 37) * multiplier
    y = _rotate_right(y + v[1] + _fetch(rows, at + 48), 42) * multiplier
    x = x ^ (w[1] * weight)
    y = y + v[0] * weight + _fetch(rows, at + 40)
    z = _rotate_right(z + w[0], 33) * multiplier
    v = _weak(rows, at, v[1] * multiplier, x + w[0])
    w = _weak(rows, at + 32, z + w[1], y + _fetch(rows, at + 16))
    return z, y, x, v, w


def _weak(rows: Bytes, at: int, a: Hashes, b: Hashes) -> tuple[Hashes, Hashes]:
    first, second, third, fourth = (_fetch(rows, at + 8 * part) for part in range(4))
    a = a + first
    b = _rotate_right(b + a + fourth, 21)
    total = a + second + third
    return total + fourth, b + _rotate_right(total, 44) + a


# ---- SipHash -------------------------------------------------------------------------


def _siphash(rows: Bytes, first: np.uint64, second: np.uint64) -> Hashes:
    length = rows.shape[1]
    state = [
        np.full(len(rows), key ^ np.uint64(constant))
        for key, constant in (
            (first, 0x736F6D6570736575),
            (second, 0x646F72616E646F6D),
            (first, 0x6C7967656E657261),
            (second, 0x7465646279746573),
        )
    ]
    rest = length % 8
    blocks = [_fetch(rows, at) for at in range(0, length - rest, 8)]
    last = _fetch(rows, length - rest, rest) | np.uint64((length & 0xFF) << 56)
    for block in [*blocks, last]:
        state[3] = state[3] ^ block
        _sip_rounds(state, 2)
        state[0] = state[0] ^ block
    state[2] = state[2] ^ np.uint64(0xFF)
    _sip_rounds(state, 4)
    return state[0] ^ state[1] ^ state[2] ^ state[3]


def _sip_rounds(state: list[Hashes], count: int) -> None:
    v0, v1, v2, v3 = state
    for _ in range(count):
        v0, v2 = v0 + v1, v2 + v3
        v1, v3 = _rotate_right(v1, 51) ^ v0, _rotate_right(v3, 48) ^ v2
        v0 = _rotate_right(v0, 32)
        v2, v0 = v2 + v1, v0 + v3
        v1, v3 = _rotate_right(v1, 47) ^ v2, _rotate_right(v3, 43) ^ v0
        v2 = _rotate_right(v2, 32)
    state[:] = [v0, v1, v2, v3]
