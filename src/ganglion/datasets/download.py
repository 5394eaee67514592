"""Download over HTTP: quick to give up on a dead host, patient with a slow one."""

import queue
import threading
import time
from typing import TYPE_CHECKING

from .errors import SourceError
from .report import Report

if TYPE_CHECKING:
    from http.client import HTTPResponse

OPEN_SECONDS = 4.0
STALL_SECONDS = 10.0
LEAST_BYTES_PER_STALL = 8192
PIECE = 1 << 18


def download(url: str, report: Report) -> bytes:
    """Fetch a URL into memory.

    >>> download("https://example.org/mnist.npz", Report())  # doctest: +SKIP
    """
    from http.client import HTTPException

    data = bytearray()
    try:
        with _opened(url) as response:
            total = response.length
            report.begin(url.rsplit("/", 1)[-1], total)
            mark, mark_size = time.monotonic(), 0
            while piece := response.read1(PIECE):
                data += piece
                report.advance(len(piece))
                if time.monotonic() - mark > STALL_SECONDS:
                    if len(data) - mark_size < LEAST_BYTES_PER_STALL:
                        raise TimeoutError
                    mark, mark_size = time.monotonic(), len(data)
    except TimeoutError as error:
        raise SourceError(f"stalled after {len(data):,} bytes") from error
    except (OSError, HTTPException) as error:
        raise SourceError(f"broke off after {len(data):,} bytes") from error
    if total is not None and len(data) != total:
        raise SourceError(f"broke off after {len(data):,} of {total:,} bytes")
    return bytes(data)


def _opened(url: str) -> "HTTPResponse":
    """Open a URL within ``OPEN_SECONDS``, looking up its name included.

    A timeout of the socket does not cover the name server, which can take half a
    minute to fail where there is no network. Hence a thread, left behind if late.
    """
    answers: queue.SimpleQueue[HTTPResponse | SourceError] = queue.SimpleQueue()
    late = threading.Event()

    def ask() -> None:
        answer = _ask(url)
        if late.is_set() and not isinstance(answer, SourceError):
            answer.close()
        answers.put(answer)

    threading.Thread(target=ask, name="ganglion-download", daemon=True).start()
    try:
        answer = answers.get(timeout=OPEN_SECONDS)
    except queue.Empty:
        late.set()
        raise SourceError(f"no answer within {OPEN_SECONDS:g} s") from None
    if isinstance(answer, SourceError):
        raise answer
    return answer


def _ask(url: str) -> "HTTPResponse | SourceError":
    from http.client import HTTPException
    from urllib.error import HTTPError, URLError
    from urllib.request import Request, urlopen

    request = Request(url, headers={"User-Agent": "ganglion-datasets"})
    try:
        response: HTTPResponse = urlopen(request, timeout=STALL_SECONDS)
    except HTTPError as error:
        error.close()
        return SourceError(f"HTTP {error.code} {error.reason}")
    except URLError as error:
        reason = getattr(error.reason, "strerror", None) or error.reason
        return SourceError(f"no connection: {reason}")
    except (OSError, HTTPException, ValueError) as error:
        return SourceError(f"no connection: {error or type(error).__name__}")
    return response
