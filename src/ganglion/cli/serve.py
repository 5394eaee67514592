"""`ganglion serve`: a model over HTTP, with a page to try it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ganglion.cli.console import say
from ganglion.cli.options import ModelFile, Threads, above_zero, checked

INSTALL = 'ganglion serve needs Starlette and uvicorn: pip install "ganglion-nn[serve]"'

MOST_PARAMETERS = 3_000_000  # of models inside of a page: larger ones answer by HTTP


def serve(
    model: ModelFile,
    host: Annotated[
        str, typer.Option(help="0.0.0.0 answers other machines, too.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="0 takes a free one.", min=0, max=65535)
    ] = 8000,
    batch_size: Annotated[
        int, typer.Option(help="Rows computed together, at most.", min=1, max=4096)
    ] = 64,
    max_mb: Annotated[
        float,
        typer.Option(
            "--max-mb", help="Size of a request.", callback=checked(above_zero)
        ),
    ] = 8.0,
    rate: Annotated[
        float | None,
        typer.Option(
            help="Requests a second from one address; any number if not given.",
            callback=checked(above_zero),
        ),
    ] = None,
    threads: Threads = None,
) -> None:
    """Answer questions to a model over HTTP: JSON rows, pictures, a page to try it.

    Requests that arrive together are computed together. SIGTERM or Ctrl-C ends the
    server when the requests under way have their answers.
    """
    from ganglion import config, recipes, saving

    try:
        from ganglion.serve import app, server, trial
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] in ("starlette", "uvicorn", "h11", "anyio"):
            raise RuntimeError(INSTALL) from None
        raise
    if threads is not None:
        config.set_threads(threads)
    net = saving.load_model(model, recipes.custom_objects())
    most_bytes = round(max_mb * 1e6)
    service = app.Service(net, batch_size=batch_size, most_bytes=most_bytes, rate=rate)
    bound = server.listen(host, port)
    say(f"Compiling {service.interface.name} for batches of 1 to {batch_size} …")
    service.warm_up()
    page = _page(net, service.interface)
    where, port = bound.getsockname()[:2]
    shown = f"[{where}]" if ":" in where else where
    say(f"Try it at http://{shown}:{port}/ (Ctrl-C ends it). For example:")
    say(f"  {trial.example(service.interface, f'http://{shown}:{port}')}")
    server.server_of(app.application(service, page), service).run([bound])
    say("Stopped; every request under way has its answer.")


def _page(model: Any, interface: Any) -> str:
    """Return the page; it runs the model in the browser where that can be had."""
    from ganglion.serve import trial

    module = None
    if model.count_params() <= MOST_PARAMETERS:
        try:
            module = trial.module_of(model, interface)
        except (ValueError, NotImplementedError, ImportError):
            module = None  # text, several inputs, an op that no export has: by HTTP
    return trial.page(interface, module)
