"""A request that is refused: the status of HTTP, and the reason in a sentence."""

from __future__ import annotations


class Refused(Exception):  # noqa: N818 (a request is refused)
    """A request that is refused, and why.

    Args:
        status: The status of HTTP: 4xx if the request must be changed, 503 if the same
            one may succeed later.
        reason: The mistake, and the way out.
        retry_after: Seconds after which to try again.
    """

    def __init__(
        self, status: int, reason: str, retry_after: float | None = None
    ) -> None:
        super().__init__(reason)
        self.status, self.reason, self.retry_after = status, reason, retry_after
