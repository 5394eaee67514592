"""Counter-based random numbers: Philox 4x32-10, the same bits on every backend.

A random state consists of two 32-bit words, a seed and a counter, so that a run can be
repeated, divided among threads and resumed anywhere.
"""

from __future__ import annotations

import numpy as np

from ganglion.compiler.ir.graph import Case, Op, Shape, ShapeError, Value
from ganglion.compiler.ir.shaping import Typed, is_float

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (np.uint64(0x9E3779B9), np.uint64(0xBB67AE85))
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_UNIFORM, _SHUFFLE = 0, 1  # the second word of the key: separate streams of a seed
SHUFFLE_ROUNDS = 32


def philox(counter: tuple[np.ndarray, ...], key: tuple[int, int]) -> list[np.ndarray]:
    """Return four words of 32 random bits for each counter of four words.

    >>> words = philox(tuple(np.zeros((4, 1), np.uint64)), (0, 0))
    >>> [hex(int(word[0])) for word in words]
    ['0x6627e8d5', '0xe169c58d', '0xbc57ac4c', '0x9b00dbd8']
    """
    c0, c1, c2, c3 = (word.astype(np.uint64) for word in counter)
    k0, k1 = np.uint64(key[0]), np.uint64(key[1])
    for _ in range(10):
        first, second = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c2 = (second >> _HALF) ^ c1 ^ k0, (first >> _HALF) ^ c3 ^ k1
        c1, c3 = second & _LOW, first & _LOW
        k0, k1 = (k0 + _WEYL[0]) & _LOW, (k1 + _WEYL[1]) & _LOW
    return [c0, c1, c2, c3]


def _check_state(state: Value) -> None:
    if state.shape != (2,) or state.dtype != np.uint32:
        raise ShapeError(f"a random state is uint32[2], not {state.type_text}")


def _uniform_infer(state: Value, shape: Shape, dtype: str) -> Typed:
    _check_state(state)
    if not is_float(np.dtype(dtype)):
        raise ShapeError(f"uniform numbers are floats, not {dtype}")
    return shape, np.dtype(dtype)


def _uniform_meaning(state: np.ndarray, shape: Shape, dtype: str) -> np.ndarray:
    size = int(np.prod(shape, dtype=np.int64))
    blocks = np.arange((size + 3) // 4, dtype=np.uint64)
    zero = np.zeros_like(blocks)
    counter = (blocks, zero, zero + np.uint64(state[1]), zero)
    words = philox(counter, (int(state[0]), _UNIFORM))
    bits = np.stack(words, axis=-1).reshape(-1)[:size]
    # A float32 holds 24 bits exactly; float64 gets the same numbers.
    return ((bits >> np.uint64(8)) * 2.0**-24).astype(dtype).reshape(shape)


def _state_domain(rng: np.random.Generator) -> np.ndarray:
    return rng.integers(0, 2**32, 2, dtype=np.uint32)


random_uniform: Op = Op(
    "random_uniform",
    "random",
    _uniform_infer,
    _uniform_meaning,
    lambda rng: ([_state_domain(rng)], {"shape": (3, 5), "dtype": "float64"}),
)


def _shuffle_infer(state: Value, position: Value, rows: int) -> Typed:
    _check_state(state)
    if position.dtype != np.int32 or not 0 < rows < 2**31:
        raise ShapeError(f"needs int32 positions below 2^31, got {position.type_text}")
    return position.shape, position.dtype


def _shuffle_meaning(state: np.ndarray, position: np.ndarray, rows: int) -> np.ndarray:
    """Permute [0, rows) by swap-or-not: each position independently, without a table.

    Round r pairs every x with (K_r - x) mod rows, and a random bit of the pair decides
    whether they are swapped (Hoang, Morris and Rogaway, 2012).
    """
    key, epoch = (int(state[0]), _SHUFFLE), np.uint64(state[1])
    rounds = np.arange(SHUFFLE_ROUNDS, dtype=np.uint64)
    zero = np.zeros_like(rounds)
    offsets = philox((rounds, zero, zero + epoch, zero + np.uint64(1)), key)[0]
    x, n = position.astype(np.uint64), np.uint64(rows)
    zero = np.zeros_like(x)
    for number, offset in zip(rounds, offsets % n, strict=True):
        partner = (offset + n - x) % n
        pair = np.maximum(x, partner)
        bit = philox((zero + number, pair, zero + epoch, zero), key)[0] & np.uint64(1)
        x = np.where(bit == 1, partner, x)
    return x.astype(np.int32)


def _shuffle_domain(rng: np.random.Generator) -> Case:
    return [_state_domain(rng), np.arange(7, dtype=np.int32)], {"rows": 7}


shuffle: Op = Op("shuffle", "random", _shuffle_infer, _shuffle_meaning, _shuffle_domain)
