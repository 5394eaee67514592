"""A plan: kernels in order, the memory they work on, and how threads share them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from ganglion.compiler.plan.kernels import Buffer, Kernel


@dataclass(frozen=True)
class Mark:
    """How a kernel is run: by one thread or shared, and whether all wait after it."""

    alone: bool
    barrier: bool


@dataclass(frozen=True)
class Band:
    """Kernels from `first` to before `last` that each thread runs slice by slice."""

    first: int
    last: int
    slices: int
    # Where slices are not equal: the units of the whole, and those of each slice but
    # the last, which has the rest.
    units: int = 0
    step: int = 0

    def each(self, whole: int) -> int:
        """Return how much of a kernel, or of a buffer, is in a slice but the last.

        >>> Band(0, 2, 32).each(256), Band(0, 2, 26, units=127, step=5).each(254)
        (8, 10)
        """
        if not self.units:
            return whole // self.slices
        # Rounded: a kernel of whole grains may have a smaller last one, too.
        return (whole * self.step + self.units // 2) // self.units


@dataclass(frozen=True)
class Plan:
    """Kernels in order, and the buffers they work on."""

    name: str
    kernels: tuple[Kernel, ...]
    data: dict[str, Buffer]
    state: dict[str, Buffer]
    results: dict[str, Buffer]
    offsets: dict[Buffer, int] = field(default_factory=dict)
    arena: int = 0
    marks: tuple[Mark, ...] = ()  # one a kernel
    bands: tuple[Band, ...] = ()  # in order
    # Buffers that only pass between members of a band, slice by slice.
    passing: frozenset[Buffer] = frozenset()

    def with_memory(self, offsets: dict[Buffer, int], arena: int) -> Plan:
        """Return the plan with a place in the arena for each temporary buffer."""
        return replace(self, offsets=offsets, arena=arena)

    def band_of(self) -> list[Band | None]:
        """Return the band of each kernel."""
        found: list[Band | None] = [None] * len(self.kernels)
        for band in self.bands:
            found[band.first : band.last] = [band] * (band.last - band.first)
        return found

    def runs(self) -> Iterator[range]:
        """Yield the numbers of kernels that run together: a band, or a single one."""
        at = 0
        for band in (*self.bands, Band(len(self.kernels), len(self.kernels), 1)):
            for number in range(at, band.first):
                yield range(number, number + 1)
            if band.first < band.last:
                yield range(band.first, band.last)
            at = band.last

    def __str__(self) -> str:
        from ganglion.compiler.plan.printer import show

        return show(self)
