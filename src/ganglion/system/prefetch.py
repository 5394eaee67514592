"""Items computed ahead, in a thread or in workers, while earlier ones are used."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

Item = TypeVar("Item")

LONGEST_WAIT = 1.0  # seconds for the thread to finish its item at the end
HANDING_OVER = 3e-4  # seconds that a thread costs for each item
TRIES = 3
_END = object()


class _Failure:
    def __init__(self, error: BaseException) -> None:
        self.error = error


def prefetched(items: Iterable[Item], ahead: int = 2) -> Iterator[Item]:
    """Yield items that a thread makes, up to ``ahead`` of them in advance.

    An error in the thread is raised here, after the items before it. The thread ends
    when the items do, or with the iterator, after the item that it is making.

    >>> list(prefetched(range(3)))
    [0, 1, 2]
    """
    ready: queue.Queue[Any] = queue.Queue(max(ahead, 1))
    is_over = threading.Event()

    def put(item: Any) -> bool:
        while not is_over.is_set():
            try:
                ready.put(item, timeout=0.05)
            except queue.Full:
                continue
            return True
        return False

    def work() -> None:
        try:
            for item in items:
                if not put(item):
                    return
            put(_END)
        except BaseException as error:
            put(_Failure(error))

    thread = threading.Thread(target=work, name="ganglion-prefetch", daemon=True)
    thread.start()
    try:
        while (item := ready.get()) is not _END:
            if isinstance(item, _Failure):
                raise item.error
            yield item
    finally:
        is_over.set()
        thread.join(LONGEST_WAIT)  # so that no thread uses `items` any more


def ahead_if_slow(items: Iterator[Item]) -> Iterator[Item]:
    """Yield items, made in a thread if one takes longer than handing it over.

    The first few are made and timed in the calling thread.
    """
    fastest = math.inf
    for _ in range(TRIES):
        began = time.perf_counter()
        try:
            item = next(items)
        except StopIteration:
            return
        fastest = min(fastest, time.perf_counter() - began)
        yield item
    yield from items if fastest < HANDING_OVER else prefetched(items)


def in_workers(
    source: Any, items: Iterable[Any], workers: int, ahead: int, processes: bool
) -> Iterator[Any]:
    """Yield ``source[item]`` in order, made by threads or processes up to ``ahead``.

    >>> list(in_workers("abc", [2, 0], workers=2, ahead=2, processes=False))
    ['c', 'a']
    """
    from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor

    pool: Any
    if processes:
        pool = ProcessPoolExecutor(workers, initializer=_adopt, initargs=(source,))
        make: Any = _adopted_item
    else:
        pool = ThreadPoolExecutor(workers, "ganglion-worker")
        make = source.__getitem__
    waiting: list[Future[Any]] = []
    try:
        for item in items:
            waiting.append(pool.submit(make, item))
            if len(waiting) >= max(ahead, workers):
                yield waiting.pop(0).result()
        while waiting:
            yield waiting.pop(0).result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


_source: Any = None  # of this worker process


def _adopt(source: Any) -> None:
    global _source
    _source = source


def _adopted_item(item: Any) -> Any:
    return _source[item]
