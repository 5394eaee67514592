"""The server around the application: uvicorn, with timeouts for slow clients."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ganglion.serve.app import Service

HEADER_SECONDS = 10  # for a client to send the head of a request
ANSWER_SECONDS = 30  # for a client to take an answer
UNREAD_BYTES = 256_000_000  # of answers that clients have not taken yet
IDLE_SECONDS = 15  # for a connection that is kept open for the next request
SHUTDOWN_SECONDS = 15  # for running requests, after SIGTERM or Ctrl-C
CONNECTIONS = 1000  # at once


class PatientProtocol(H11Protocol):
    """HTTP/1.1 of uvicorn, which by itself waits forever for slow clients.

    They have some time to send the head of a request, or the rest of one that has its
    answer already, and to take an answer. `limits` has the time for a body.
    """

    def connection_made(self, transport: Any) -> None:
        self._timers: dict[str, asyncio.TimerHandle] = {}  # by what is waited for
        super().connection_made(transport)
        self._wait("request", HEADER_SECONDS, self._close_if_idle)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_idle:
            self._wait("request", HEADER_SECONDS, self._close_if_idle)
        else:
            self._stop_waiting("request")

    def pause_writing(self) -> None:
        """Wait for a client that takes its answer slowly, unless too many do."""
        super().pause_writing()
        unread = [other.transport.get_write_buffer_size() for other in self.connections]
        if sum(unread) > UNREAD_BYTES:
            self.transport.abort()
        else:
            self._wait("reader", ANSWER_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        self._stop_waiting("reader")
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        for what in list(self._timers):
            self._stop_waiting(what)
        super().connection_lost(exc)

    @property
    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _wait(self, what: str, seconds: float, then: Callable[[], None]) -> None:
        if what not in self._timers:
            self._timers[what] = self.loop.call_later(seconds, then)

    def _stop_waiting(self, what: str) -> None:
        if what in self._timers:
            self._timers.pop(what).cancel()

    def _close_if_idle(self) -> None:
        if self._is_idle:
            self.transport.close()


class Server(uvicorn.Server):
    """Exits with success after a signal; `/health` reports it while it stops."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Handle SIGTERM or Ctrl-C; a second signal does not wait for clients."""
        self.force_exit, self.should_exit = self.should_exit, True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._service.is_stopping = True
        await super().shutdown(sockets)


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that is bound; port 0 takes a free port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only on sockets created for TCP; others may wait 40 ms.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise OSError(
            f"{host}:{port} cannot be listened on: {error.strerror}. Give another "
            "--port, or 0 for a free one."
        ) from None
    return bound


def server_of(app: Any, service: Service) -> Server:
    """Return a server; `run` answers requests until SIGTERM or Ctrl-C."""
    config = uvicorn.Config(
        app,
        http=PatientProtocol,
        ws="none",
        loop="asyncio",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=CONNECTIONS,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )
    return Server(config, service)
