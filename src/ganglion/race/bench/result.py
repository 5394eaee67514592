"""The results of `ganglion bench`: the times of engines, and comparisons."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

import numpy as np

from ganglion.race.engines import PRECISE


@dataclass
class Entry:
    """The measurements of an engine."""

    engine: str
    form: str = ""
    version: str = ""
    problem: str = ""  # why it was not timed, or not to the end
    losses: list[float] = field(default_factory=list)  # first batch, two steps
    start_seconds: float = 0.0  # import, build, compile and warm up
    steps: int = 0  # in each round
    milliseconds: list[float] = field(default_factory=list)  # a step, round by round
    memory: int = 0  # bytes, the most that the process had
    tried: dict[str, str] = field(default_factory=dict)  # other forms

    @property
    def median(self) -> float:
        """Return the median over the rounds, in milliseconds a step."""
        return statistics.median(self.milliseconds)

    @property
    def quartiles(self) -> tuple[float, float]:
        """Return the quartiles of the rounds' times."""
        low, high = np.quantile(self.milliseconds, (0.25, 0.75))
        return float(low), float(high)


@dataclass
class Result:
    """One recipe, measured."""

    recipe: str
    batch_size: int
    threads: int
    entries: list[Entry]
    operations: float  # floating-point operations of all products in a step
    peak: dict[str, float]  # GFLOP/s of a matrix product, by engine
    busy: float = 0.0  # the share of all cores that others used before we began
    remark: str = ""
    interrupted: bool = False
    device: str = "cpu"
    precision: str = "float32"  # of products: "tf32" and "bf16" are of GPUs
    gpu: str = ""  # the device and its driver, if it is a GPU
    figure: str = "training step"  # what was timed

    @property
    def timed(self) -> list[Entry]:
        """Return the engines that have times."""
        return [entry for entry in self.entries if entry.milliseconds]

    @property
    def ours(self) -> Entry | None:
        """Return Ganglion, if it was timed."""
        return self._named("ganglion")

    @property
    def precise(self) -> Entry | None:
        """Return Ganglion without shortcuts, if it was timed."""
        return self._named(PRECISE)

    def _named(self, engine: str) -> Entry | None:
        return next((entry for entry in self.timed if entry.engine == engine), None)

    @property
    def rivals(self) -> list[Entry]:
        """Return the others that have times."""
        ours = ("ganglion", PRECISE)
        return [entry for entry in self.timed if entry.engine not in ours]

    @property
    def best_rival(self) -> Entry | None:
        """Return the rival that is hardest on Ganglion, else the fastest rival."""
        ours = self.ours
        key = (
            (lambda rival: self.ratio(rival, ours))
            if ours
            else (lambda rival: rival.median)
        )
        return min(self.rivals, key=key, default=None)

    def ratio(self, entry: Entry, to: Entry) -> float:
        """Return how often `to` fits into `entry`: the median of round by round."""
        pairs = zip(entry.milliseconds, to.milliseconds, strict=False)
        return statistics.median(a / b for a, b in pairs)

    def share_of_peak(self, entry: Entry) -> float:
        """Return which part of the machine's matrix-product speed an engine reaches."""
        if not self.peak:
            return float("nan")
        speed = self.operations / (entry.median * 1e6)
        return speed / max(self.peak.values())


def milliseconds(value: float) -> str:
    """Return milliseconds with three digits that count.

    >>> milliseconds(0.01234), milliseconds(1.234), milliseconds(123.4)
    ('0.0123', '1.23', '123')
    """
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.{2 if value >= 1 else 3 if value >= 0.1 else 4}f}"
