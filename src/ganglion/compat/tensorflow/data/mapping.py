"""`map` over elements: one by one at first, then in compiled blocks.

TensorFlow traces the function of a `map` once, and so do we, once it pays: a block of
elements that are alike is one call of a compiled loop. What cannot be traced (texts,
`tf.py_function`, Python decisions by numbers) continues element by element.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import ganglion
from ganglion import ops, tree
from ganglion.compat.tensorflow.data import elements

FIRST = 256  # elements that cost less one by one than compiling does
MOST = 64  # elements of a block
BLOCK_BYTES = 1 << 20  # beyond which calling ops one by one costs little


class Mapping:
    """A function for elements, which stores how it can be called."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = _with_tuples(function)
        self._seen = 0
        self._is_traceable = True
        self._result_kind: Any = None
        self._compiled = ganglion.function(self._over_rows)

    def one(self, element: Any) -> Any:
        """Return the result of the function for one element."""
        return elements.as_arrays(elements.called(self._function, element))

    def over(self, source: Iterator[Any]) -> Iterator[Any]:
        """Yield the results of the function for all elements."""
        for element in source:
            if not self._is_traceable or self._seen < FIRST:
                self._seen += 1
                result = self.one(element)
                if self._seen == FIRST:
                    self._result_kind = _kind(result)
                yield result
                continue
            size = _block_size(element)
            block = [element, *itertools.islice(source, size - 1)]
            yield from self._block(block, size)

    def _block(self, block: list[Any], size: int) -> Iterator[Any]:
        rows = self._compiled_rows(block, size)
        if rows is None:
            yield from map(self.one, block)
            return
        for number in range(len(block)):
            yield elements.row_of(rows, number)

    def _compiled_rows(self, block: list[Any], size: int) -> Any:
        """Return the results of a block, None where it has to be done one by one."""
        kind = _kind(block[0])
        if size == 1 or any(_kind(element) != kind for element in block[1:]):
            return None
        filled = block + [block[-1]] * (size - len(block))  # one compilation for all
        try:
            rows = elements.as_arrays(self._compiled(elements.stacked(filled)))
        except Exception:
            # An error of the function itself is raised again, on real numbers.
            self._is_traceable = False
            return None
        if _kind(elements.mapped(_first, rows)) != self._result_kind:
            self._is_traceable = False
            return None
        return rows

    def _over_rows(self, rows: Any) -> Any:
        def called(row: Any) -> Any:
            is_plain_tuple = isinstance(row, tuple) and not hasattr(row, "_fields")
            result = self._function(*row) if is_plain_tuple else self._function(row)
            return _as_structure(result)

        return ops.vectorized_map(called, rows)


def _kind(element: Any) -> Any:
    """Return the types and shapes of an element, which are equal in a block."""
    leaves = [(leaf.shape, leaf.dtype) for leaf in tree.flatten(element)]
    return sorted(element) if isinstance(element, dict) else type(element), leaves


def _first(part: np.ndarray) -> np.ndarray:
    return np.asarray(part[0])


def _as_structure(result: Any) -> Any:
    """Return a result with lists as tensors, as `as_arrays` has them."""
    if isinstance(result, dict):
        return {key: _as_structure(part) for key, part in result.items()}
    if isinstance(result, tuple):
        return tree.pack(result, [_as_structure(part) for part in tree.flatten(result)])
    return ops.convert_to_tensor(result)


def _block_size(element: Any) -> int:
    leaves = tree.flatten(element)
    if any(leaf is None or leaf.dtype.kind not in "biuf" for leaf in leaves):
        return 1
    bytes_ = max(sum(leaf.nbytes for leaf in leaves), 1)
    return min(MOST, BLOCK_BYTES // bytes_) if bytes_ * 4 <= BLOCK_BYTES else 1


def _with_tuples(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose lists are several tensors, as `decode_csv` returns them.

    tf.data makes one tensor of lists elsewhere, but not of what a function returns.
    """

    def packed(*args: Any) -> Any:
        result = function(*args)
        return tuple(result) if isinstance(result, list) else result

    return packed
