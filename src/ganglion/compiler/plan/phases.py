"""Strides of convolutions: the phases of an axis.

With stride s, every s-th pixel meets the same taps of a kernel, and of those every s-th
one. So each phase of the pixels has a convolution of its own, without strides.
Transposed, the pixels are the outputs, and each phase of them is a convolution of the
inputs as they lie; with zeros between them there would be s times the products along
the axis.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Phase:
    """The pixels of an axis that meet taps `first`, `first` + stride, and so on."""

    stride: int
    first: int
    taps: int
    begin: int  # its first pixel, in whole strides from the padded edge
    count: int  # of its pixels
    offset: int  # its first pixel, as the axis counts them

    @property
    def before(self) -> int:
        """The input that a transposed convolution needs first, before 0 if padding."""
        return self.begin - (self.taps - 1)

    @property
    def after(self) -> int:
        """The input behind the last one that a transposed convolution needs."""
        return self.begin + self.count

    @property
    def last(self) -> int:
        """The last of its taps, which is the first of a flipped kernel."""
        return self.first + self.stride * (self.taps - 1)


def phases(stride: int, edge: int, taps: int, pixels: int) -> list[Phase]:
    """Return the phases of an axis that have pixels; `edge` zeros stand before it.

    >>> [(p.taps, p.offset, p.begin, p.count) for p in phases(2, 1, 3, 8)]
    [(2, 1, 1, 4), (1, 0, 0, 4)]
    """
    every = []
    for first in range(stride):
        begin = -(-(edge - first) // stride)
        count = (pixels - 1 + edge - first) // stride - begin + 1
        own = max(-(-(taps - first) // stride), 0)
        offset = stride * begin + first - edge
        every.append(Phase(stride, first, own, begin, count, offset))
    return [phase for phase in every if phase.count > 0]
