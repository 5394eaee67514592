"""Strided convolutions, split into phases along each axis.

With stride s, pixels s apart meet the same taps of a kernel, which are also s apart. So
each of the s phases of the pixels is a convolution without strides. For a transposed
convolution, the pixels are the outputs, and each phase of them is a convolution of the
inputs: zeros inserted between inputs would multiply the work along the axis by s.
"""

from __future__ import annotations

from ganglion.system.records import record


@record(guarded=True)
class Phase:
    """The pixels of an axis that meet taps `first`, `first` + stride, and so on."""

    stride: int
    first: int
    taps: int  # how many
    begin: int  # its first pixel, in strides from the padded edge
    count: int  # of pixels
    offset: int  # the index of its first pixel along the axis

    @property
    def before(self) -> int:
        """The first input of a transposed convolution, negative if that is padding."""
        return self.begin - (self.taps - 1)

    @property
    def after(self) -> int:
        """The end of the inputs that a transposed convolution reads."""
        return self.begin + self.count

    @property
    def last(self) -> int:
        """The last of its taps: the first of a flipped kernel."""
        return self.first + self.stride * (self.taps - 1)


def phases(
    stride: int, edge: int, taps: int, pixels: int, most: int | None = None
) -> list[Phase]:
    """Return the nonempty phases of an axis with `edge` zeros of padding before it.

    One of more than `most` taps is cut: each run of them meets pixels of its own.

    >>> [(p.taps, p.offset, p.begin, p.count) for p in phases(2, 1, 3, 8)]
    [(2, 1, 1, 4), (1, 0, 0, 4)]
    >>> [(p.first, p.taps, p.offset, p.begin, p.count) for p in phases(1, 2, 7, 8, 4)]
    [(0, 4, 0, 2, 8), (4, 3, 2, 0, 6)]
    """
    result = []
    run = stride * (most or max(taps, 1))
    for phase in range(stride):
        for first in range(phase, max(taps, phase + 1), run):
            begin = max(-(-(edge - first) // stride), 0)
            count = (pixels - 1 + edge - first) // stride - begin + 1
            own = max(-(-(min(taps, first + run) - first) // stride), 0)
            offset = stride * begin + first - edge
            if count > 0:
                result.append(Phase(stride, first, own, begin, count, offset))
    return result
