"""A bench of fakes: results at once, and no pause between them."""

from functools import partial

import pytest
import race_helpers
from race_helpers import take_noise

from ganglion.race.bench import steps as bench
from ganglion.race.bench.result import Entry, Result

fake = partial(race_helpers.fake, module="bench_fakes")


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    take_noise(monkeypatch)
    monkeypatch.setattr(bench, "PAUSE", 0.0)
    monkeypatch.setattr(bench, "_peak", lambda meter, threads, before: {"NumPy": 100.0})


def result_of(**milliseconds):
    entries = [
        Entry(name, "form", f"{name} 1.0", "", [0.5, 0.4], 1.5, 100, times, 2**28)
        for name, times in milliseconds.items()
    ]
    return Result("mnist-mlp", 128, 2, entries, 5e8, {"NumPy": 100.0, "Ganglion": 200})
