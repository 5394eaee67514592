"""One pass over a data set: the loops behind its methods."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np

Item = TypeVar("Item")
Result = TypeVar("Result")


def shuffled(
    items: Iterable[Item], size: int, draws: np.random.Generator
) -> Iterator[Item]:
    """Yield items in random order, each drawn from the next ``size`` of them.

    >>> sorted(shuffled(range(5), 2, np.random.default_rng(0)))
    [0, 1, 2, 3, 4]
    """
    waiting: list[Item] = []
    for item in items:
        if len(waiting) < size:
            waiting.append(item)
            continue
        chosen = int(draws.integers(size))
        yield waiting[chosen]
        waiting[chosen] = item
    for chosen in draws.permutation(len(waiting)).tolist():
        yield waiting[chosen]


def grouped(
    items: Iterable[Item], size: int, drop_remainder: bool
) -> Iterator[list[Item]]:
    """Yield lists of items, the last of which may be shorter.

    >>> list(grouped(range(3), 2, drop_remainder=False))
    [[0, 1], [2]]
    """
    rest = iter(items)
    while group := list(itertools.islice(rest, size)):
        if len(group) == size or not drop_remainder:
            yield group


def windows(
    items: Iterable[Item], size: int, shift: int, stride: int, drop_remainder: bool
) -> Iterator[list[Item]]:
    """Yield windows of items, each ``shift`` items behind the one before.

    >>> list(windows(range(4), 2, 1, 1, drop_remainder=True))
    [[0, 1], [1, 2], [2, 3]]
    """
    rest = iter(items)
    held: list[Item] = []
    span = (size - 1) * stride + 1
    while True:
        held += itertools.islice(rest, span - len(held))
        window = held[:span:stride]
        if not window or (drop_remainder and len(window) < size):
            return
        yield window
        skipped = max(0, shift - len(held))
        held = held[shift:]
        for _ in itertools.islice(rest, skipped):
            continue


def interleaved(
    sources: Iterable[Iterable[Item]], cycle: int, block: int
) -> Iterator[Item]:
    """Yield ``block`` items of each of ``cycle`` sources in turn.

    >>> list(interleaved([[1, 1], [2, 2], [3, 3]], cycle=2, block=1))
    [1, 2, 1, 2, 3, 3]
    """
    rest = iter(sources)
    slots: list[Iterator[Item] | None] = [
        iter(source) for source in itertools.islice(rest, cycle)
    ]
    while any(slot is not None for slot in slots):
        for number, slot in enumerate(slots):
            if slot is None:
                continue
            items = list(itertools.islice(slot, block))
            yield from items
            if len(items) < block:
                following = next(rest, None)
                slots[number] = None if following is None else iter(following)


def in_threads(
    function: Callable[[Item], Result], items: Iterable[Item], count: int
) -> Iterator[Result]:
    """Yield what a function gives, in order, computed by some threads.

    >>> list(in_threads(str, range(3), 2))
    ['0', '1', '2']
    """
    with ThreadPoolExecutor(count, "ganglion-map") as pool:
        waiting: list[Future[Any]] = []
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > count:
                yield waiting.pop(0).result()
        for future in waiting:
            yield future.result()
