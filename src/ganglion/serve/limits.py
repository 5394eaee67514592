"""Limits on requests: bytes of a body, bytes of all bodies, requests a second."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

from ganglion.serve.refusal import Refused

BODY_SECONDS = 30.0  # a client that takes longer is gone or hostile
BODIES_AT_ONCE = 16  # of the largest size, in memory
CLIENTS = 10_000  # whose requests are counted


class RateLimit:
    """A token bucket per client, filled with `rate` a second up to two seconds' worth.

    >>> now = [0.0]
    >>> limit = RateLimit(1, clock=lambda: now[0])
    >>> [limit.wait_of("a") for _ in range(3)]
    [0.0, 0.0, 1.0]
    >>> now[0] = 1.0
    >>> limit.wait_of("a"), limit.wait_of("b")
    (0.0, 0.0)
    """

    def __init__(
        self, rate: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate, self._clock = rate, clock
        self._most = max(2 * rate, 1.0)
        self._buckets: dict[str, tuple[float, float]] = {}  # tokens, and when

    def wait_of(self, client: str) -> float:
        """Count a request; return the seconds to wait if there were too many."""
        now = self._clock()
        tokens, before = self._buckets.pop(client, (self._most, now))
        tokens = min(self._most, tokens + (now - before) * self._rate)
        is_allowed = tokens >= 1
        self._buckets[client] = (tokens - is_allowed, now)
        while len(self._buckets) > CLIENTS:  # the least recent client comes first
            del self._buckets[next(iter(self._buckets))]
        return 0.0 if is_allowed else (1 - tokens) / self._rate

    def check(self, client: str) -> None:
        """Count a request; refuse it if there were too many."""
        wait = self.wait_of(client)
        if wait:
            raise Refused(
                429, f"More than {self._rate:g} requests a second from {client}.", wait
            )


class Bodies:
    """Reads bodies of requests: none larger than allowed, few large ones at once."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._held = 0

    async def read(self, stream: AsyncIterator[bytes], announced: str | None) -> bytes:
        """Return a body; refuse it as soon as it is known to be too large or slow."""
        if announced is not None and announced.isdecimal():
            self._check(int(announced))
        try:
            async with asyncio.timeout(BODY_SECONDS):
                return await self._read(stream)
        except TimeoutError:
            raise Refused(
                408, f"The body did not arrive within {BODY_SECONDS:g} seconds."
            ) from None

    async def _read(self, stream: AsyncIterator[bytes]) -> bytes:
        parts: list[bytes] = []
        size = 0
        with self._holding() as hold:
            async for part in stream:
                size += len(part)
                self._check(size)
                hold(len(part))
                parts.append(part)
        return b"".join(parts)

    def _check(self, size: int) -> None:
        if size > self._most:
            raise Refused(
                413,
                f"The body is larger than {self._most / 1e6:g} MB; send fewer rows, or "
                "start the server with another --max-mb.",
            )

    @contextmanager
    def _holding(self) -> Iterator[Callable[[int], None]]:
        """Count the bytes of a body that is being read, among those of all others."""
        size = 0

        def hold(more: int) -> None:
            nonlocal size
            if self._held + more > BODIES_AT_ONCE * self._most:
                raise Refused(503, "Too many large requests at once; try again.", 1)
            size += more
            self._held += more

        try:
            yield hold
        finally:
            self._held -= size
