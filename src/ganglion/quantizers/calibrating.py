"""GPTQ and AWQ: quantized matrices, chosen by the inputs they are multiplied with.

Both take the matrix with a row for each output, and return the numbers, the scale and
zero point of each output and group of inputs, and the group of each input.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_BLOCK = 128  # inputs whose errors are passed on together


def ranges(
    weights: np.ndarray, bits: int, symmetric: bool = False, per_channel: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """Return scale and zero point that bring each row into 0 ... 2 ** bits - 1.

    >>> scale, zero = ranges(np.array([[-1.0, 0.5]]), bits=2)
    >>> scale.round(2), zero
    (array([[0.5]], dtype=float32), array([[2]], dtype=uint8))
    """
    values = weights if per_channel else weights.reshape(1, -1)
    # Zero is always in the range: otherwise the zero point would not fit into a byte.
    low = np.minimum(values.min(axis=1), 0)
    high = np.maximum(values.max(axis=1), 0)
    if symmetric:
        high = np.maximum(np.abs(low), high)
        low = np.where(low < 0, -high, low)
    is_flat = low == high
    low, high = np.where(is_flat, low - 1, low), np.where(is_flat, high + 1, high)
    most = 2**bits - 1
    scale = (high - low) / most
    zero = np.full_like(scale, (most + 1) / 2) if symmetric else np.round(-low / scale)
    shape = (len(weights), 1)
    return tuple(  # type: ignore[return-value]
        np.broadcast_to(each.reshape(-1, 1), shape).astype(dtype)
        for each, dtype in ((scale, "float32"), (zero, "uint8"))
    )


def rounded(x: np.ndarray, scale: Any, zero: Any, bits: int) -> np.ndarray:
    """Return the nearest quantized numbers."""
    numbers = np.round(x / scale + zero.astype("float32"))
    return np.clip(numbers, 0, 2**bits - 1)


def restored(numbers: np.ndarray, scale: Any, zero: Any) -> np.ndarray:
    """Return the values that quantized numbers stand for."""
    return scale * (numbers - zero.astype("float32"))


class Hessian:
    """Twice the mean of the products of inputs: the curvature of an output's error."""

    def __init__(self, size: int) -> None:
        self.matrix, self.samples = np.zeros((size, size)), 0

    def add(self, rows: np.ndarray) -> None:
        """Add inputs to the mean."""
        total = self.samples + len(rows)
        x = rows.astype("float64")
        self.matrix *= self.samples / total
        self.matrix += 2.0 / total * (x.T @ x)
        self.samples = total

    def damped(self, share: float) -> np.ndarray:
        """Return the matrix with a larger diagonal, so that it can be inverted."""
        matrix, diagonal = self.matrix.copy(), self.matrix.diagonal().copy()
        diagonal[diagonal == 0] = 1.0
        np.fill_diagonal(matrix, diagonal + share * diagonal.mean())
        return matrix


def gptq(
    weights: np.ndarray, hessian: np.ndarray, config: Any
) -> tuple[np.ndarray, ...]:
    """Round one input after the other; the remaining ones compensate its error."""
    size = weights.shape[1]
    order = np.arange(size)
    if config.activation_order:  # most others can compensate the most important inputs
        order = np.argsort(-hessian.diagonal(), kind="stable")
    inverse = np.linalg.inv(hessian)[np.ix_(order, order)]
    left = weights[:, order].astype("float64")
    length = size if config.group_size == -1 else config.group_size
    numbers, scales, zeros = np.zeros(weights.shape), [], []
    for start in range(0, size, _BLOCK):
        stop = min(start + _BLOCK, size)
        block, errors = left[:, start:stop].copy(), np.zeros((len(left), stop - start))
        for at in range(start, stop):
            if at % length == 0:
                scale, zero = ranges(
                    left[:, at : at + length],
                    config.weight_bits,
                    config.symmetric,
                    config.per_channel,
                )
                scales.append(scale)
                zeros.append(zero)
            n = at - start
            column = rounded(block[:, n : n + 1], scale, zero, config.weight_bits)
            numbers[:, at] = column[:, 0]
            error = block[:, n] - restored(column, scale, zero)[:, 0]
            errors[:, n] = error / inverse[at, at]
            block[:, n + 1 :] -= np.outer(errors[:, n], inverse[at, at + 1 : stop])
        left[:, stop:] -= errors @ inverse[start:stop, stop:]
    back = np.argsort(order)
    group = (np.arange(size) // length)[back].astype("float32")
    return numbers[:, back], np.hstack(scales), np.hstack(zeros), group


def awq(
    weights: np.ndarray, largest: np.ndarray, config: Any
) -> tuple[np.ndarray, ...]:
    """Enlarge the weights of large inputs before rounding, by the best factors.

    It also returns these factors, by which results are to be divided.
    """
    size = weights.shape[1]
    length = size if config.group_size == -1 else config.group_size
    group = np.arange(size) // length
    largest = np.where(largest < 1e-8, 1.0, largest)

    def quantized(factors: np.ndarray) -> tuple[np.ndarray, ...]:
        enlarged = weights * factors
        parts = [ranges(part, bits=4) for part in _groups(enlarged, length)]
        scale, zero = (np.hstack(each) for each in zip(*parts, strict=True))
        numbers = rounded(enlarged, scale[:, group], zero[:, group], bits=4)
        return numbers, scale, zero

    best, lowest = np.ones(size), np.inf
    for step in range(config.num_grid_points + 1):
        factors = np.maximum(largest ** (step / config.num_grid_points), 1e-4)
        factors = factors / max(np.sqrt(factors.max() * factors.min()), 1e-8)
        numbers, scale, zero = quantized(factors)
        again = restored(numbers, scale[:, group], zero[:, group]) / factors
        loss = np.mean(np.square((weights - again) * largest))
        if loss < lowest:
            best, lowest = factors, loss
    return *quantized(best), group.astype("float32"), best.astype("float32")


def _groups(weights: np.ndarray, length: int) -> list[np.ndarray]:
    """Return the parts of a matrix; the last is filled with zeros, as in Keras."""
    missing = -weights.shape[1] % length
    padded = np.pad(weights, ((0, 0), (0, missing)))
    return np.hsplit(padded, padded.shape[1] // length)


def windows(config: Any) -> np.ndarray:
    """Return (samples, 1, length) tokens, spread over the dataset."""
    dataset, length, count = config.dataset, config.sequence_length, config.num_samples
    if not hasattr(dataset, "__iter__") or isinstance(dataset, (str, bytes)):
        raise TypeError(
            "The `dataset` argument must be an iterable (e.g., a list of strings, a "
            "generator, or a NumPy array). Got type: "
            f"{type(dataset).__name__}. Pass the loaded dataset itself."
        )
    items = list(dataset)
    if not items:
        raise ValueError("Provided dataset is empty.")
    is_text = isinstance(items[0], str)
    tokens = np.concatenate(
        [
            np.asarray(config.tokenizer.tokenize(item) if is_text else item).reshape(-1)
            for item in items
        ]
    ).astype("int32")
    tokens = np.tile(tokens, -(-count * length // max(len(tokens), 1)))
    if len(tokens) < length:
        raise ValueError(f"Not enough tokens to form one sample of length {length}.")
    starts = np.linspace(0, len(tokens) - length, count).astype(int)
    return np.stack([tokens[start : start + length] for start in starts])[:, None]
