"""A request that is refused: the status of HTTP, and the reason in one sentence."""

from __future__ import annotations


class Refused(Exception):  # noqa: N818 (said of a request, it is the error)
    """Says why a request gets no answer.

    Args:
        status: Of HTTP: 4xx where another request would be answered, 503 where the
            same one would be, later.
        reason: What is wrong, and the way out.
        retry_after: Seconds after which to try again.
    """

    def __init__(
        self, status: int, reason: str, retry_after: float | None = None
    ) -> None:
        super().__init__(reason)
        self.status, self.reason, self.retry_after = status, reason, retry_after
