"""The HTTP interface: a Starlette application around one model.

Read `Service` first: it answers requests without knowing HTTP paths. `application`
maps paths to it; every refusal is a status and a reason as JSON.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from ganglion import tree
from ganglion.explain import class_activation_map
from ganglion.images.decoding import Unreadable, decode
from ganglion.serve import metrics, openapi
from ganglion.serve.batching import Arrays, Batcher
from ganglion.serve.interface import Interface
from ganglion.serve.limits import Bodies, RateLimit
from ganglion.serve.refusal import Refused

PREDICT, MAPS = "predict", "maps"
BATCH_SIZE = 64
MOST_BYTES = 8_000_000
DRAIN_SECONDS = 5.0  # for a client to finish sending a body that is refused
HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}

log = logging.getLogger("ganglion.serve")


class Service:
    """A model that answers many requests at once.

    Args:
        model: Made by `Sequential` or the functional API.
        batch_size: Rows that are computed at once, at most.
        most_bytes: The largest body of a request. An answer has as many numbers as
            that can hold, at most.
        rate: Requests a second from one address, None for any number.
    """

    def __init__(
        self,
        model: Any,
        *,
        batch_size: int = BATCH_SIZE,
        most_bytes: int = MOST_BYTES,
        rate: float | None = None,
    ) -> None:
        self.model = model
        self.interface = Interface.of(model)
        self.metrics = metrics.Metrics()
        self.bodies = Bodies(most_bytes)
        self.rate_limit = None if rate is None else RateLimit(rate)
        self.is_stopping = False
        compute = {PREDICT: self._predict, MAPS: self._maps}
        most_numbers = most_bytes // 2  # a digit and a comma
        self.batcher = Batcher(
            compute, batch_size, most_numbers, self.metrics.batches.add
        )

    def warm_up(self) -> None:
        """Compile for batches of every size, so that no request waits for it."""
        inputs = self.interface.inputs
        if any(tensor.is_text or tensor.size is None for tensor in inputs):
            return  # the shapes of requests are not known
        row = [
            np.zeros((1, *map(int, tensor.shape)), tensor.dtype)  # type: ignore[arg-type]
            for tensor in inputs
        ]
        self.batcher.warm_up(PREDICT, row)
        if self.interface.maps:
            self.batcher.warm_up(MAPS, row)

    def _predict(self, arrays: Arrays) -> Arrays:
        x: Any = arrays[0] if len(arrays) == 1 else arrays
        return [
            np.asarray(part) for part in tree.flatten(self.model.predict_on_batch(x))
        ]

    def _maps(self, arrays: Arrays) -> Arrays:
        (x,) = arrays
        cam = class_activation_map(self.model, x, size="features", batch_size=len(x))
        return [cam.scores, cam.maps]

    async def ask(self, arrays: Arrays, maps: bool = False) -> dict[str, Any]:
        """Return the model's answer for some rows, ready for JSON."""
        outputs = await self.batcher(MAPS if maps else PREDICT, arrays)
        if not maps:
            return self.interface.answer(outputs)
        scores, drawn = outputs
        return self.interface.answer([scores]) | {"maps": drawn.tolist()}

    async def ask_json(self, body: bytes) -> dict[str, Any]:
        """Answer a request with rows as JSON."""
        try:
            data = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise Refused(400, f"The body is not JSON: {error}.") from None
        if not isinstance(data, dict):
            raise Refused(422, 'The body must be an object: {"rows": [...]}.')
        if unknown := data.keys() - {"rows", "maps"}:
            raise Refused(422, f'Unknown: {sorted(unknown)[0]!r:.40}; give "rows".')
        maps = data.get("maps", False)
        if not isinstance(maps, bool):
            raise Refused(422, '"maps" must be true or false.')
        if maps and not self.interface.maps:
            raise Refused(422, "This model has no class activation maps.")
        return await self.ask(self.interface.rows(data.get("rows")), maps)

    async def ask_image(self, body: bytes) -> dict[str, Any]:
        """Answer a request with a picture."""
        form = self.interface.form
        if form is None:
            raise Refused(415, "This model takes no pictures; send rows as JSON.")
        try:
            pixels = await asyncio.to_thread(decode, body, form)
        except Unreadable as error:
            raise Refused(422, f"The picture cannot be read: {error}.") from None
        except ImportError as error:  # Pillow
            raise Refused(415, f"{error}.") from None
        return await self.ask(self.interface.pixels(pixels[np.newaxis]))


# ---- paths ---------------------------------------------------------------------------


def application(service: Service, page: str) -> Starlette:
    """Return the application; `page` is shown at `/`."""

    async def other(request: Request, error: Exception) -> Response:
        response = _other_refusal(request, error)
        service.metrics.requests["other", response.status_code] += 1
        return response

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        service.batcher.start()
        yield
        await service.batcher.stop()

    return Starlette(
        routes=[
            Route(path, _counted(service, path, endpoint), methods=[_method(path)])
            for path, endpoint in _endpoints(service, page).items()
        ],
        lifespan=lifespan,
        exception_handlers={HTTPException: other},
    )


Endpoint = Callable[[Request], Awaitable[Response]]


def _endpoints(service: Service, page: str) -> dict[str, Endpoint]:
    """Return the endpoint of each path."""
    model = service.interface.as_data()
    described = openapi.description(service.interface)

    async def predict(request: Request) -> Response:
        return await _predict(service, request)

    async def home(request: Request) -> Response:
        return HTMLResponse(page)

    async def health(request: Request) -> Response:
        if service.is_stopping:
            raise Refused(503, "The server is shutting down.", 1)
        return JSONResponse({"status": "ok", "model": service.interface.name})

    async def measured(request: Request) -> Response:
        text = service.metrics.text(service.batcher.rows_waiting)
        return Response(text, media_type=metrics.TYPE)

    async def model_(request: Request) -> Response:
        return JSONResponse(model)

    async def openapi_(request: Request) -> Response:
        return JSONResponse(described)

    return {
        "/": home,
        "/predict": predict,
        "/health": health,
        "/metrics": measured,
        "/model": model_,
        "/openapi.json": openapi_,
    }


def _method(path: str) -> str:
    return "POST" if path == "/predict" else "GET"


def _counted(service: Service, path: str, answer: Endpoint) -> Endpoint:
    """Return an endpoint that counts its answers by their status."""

    async def endpoint(request: Request) -> Response:
        service.metrics.in_progress += 1
        status = 499  # nginx' code for a client that has closed the connection
        try:
            response = await _answered(answer, request)
            status = response.status_code
            response.headers.update(HEADERS)
            return response
        except ClientDisconnect:
            return Response(status_code=400)  # the client is gone
        finally:
            service.metrics.in_progress -= 1
            service.metrics.requests[path, status] += 1

    return endpoint


async def _answered(answer: Endpoint, request: Request) -> Response:
    try:
        return await answer(request)
    except Refused as refused:
        return _refusal(refused.status, refused.reason, refused.retry_after)
    except ClientDisconnect:
        raise
    except Exception:
        log.exception("A request could not be answered")
        return _refusal(500, "The model could not compute this; the log says why.")


def _other_refusal(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    known = "/, /predict, /model, /health, /metrics, /openapi.json"
    path = request.url.path
    reasons = {
        404: f"There is no {path!r:.80}; there are {known}.",
        405: f"{path} takes {_method(path)}, not {request.method:.20}.",
    }
    response = _refusal(
        error.status_code, reasons.get(error.status_code, str(error.detail))
    )
    response.headers.update(error.headers or {})
    return response


def _refusal(status: int, reason: str, retry_after: float | None = None) -> Response:
    response = JSONResponse({"error": reason}, status)
    if retry_after is not None:
        response.headers["Retry-After"] = str(max(1, round(retry_after)))
    return response


async def _predict(service: Service, request: Request) -> Response:
    started = time.perf_counter()
    if service.rate_limit is not None:
        service.rate_limit.check(request.client.host if request.client else "unknown")
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        if kind != "application/json" and kind not in openapi.image_types():
            pictures = ", ".join(openapi.image_types())
            raise Refused(
                415, f"Content-Type is {kind!r:.40}: send application/json, {pictures}."
            )
        announced = request.headers.get("content-length")
        body = await service.bodies.read(request.stream(), announced)
    except Refused as refused:
        await _drain(request)
        response = _refusal(refused.status, refused.reason, refused.retry_after)
        response.headers["Connection"] = "close"
        return response
    is_json = kind == "application/json"
    answer = await (service.ask_json(body) if is_json else service.ask_image(body))
    service.metrics.latency.add(time.perf_counter() - started)
    return JSONResponse(answer)


async def _drain(request: Request) -> None:
    """Discard the rest of a body that is refused.

    Closing a connection while the client still sends resets it, and the reason would be
    lost on the way.
    """
    if "expect" in request.headers:
        return  # the client waits for permission to send
    try:
        async with asyncio.timeout(DRAIN_SECONDS):
            while (await request.receive()).get("more_body", False):
                pass
    except TimeoutError:
        pass
