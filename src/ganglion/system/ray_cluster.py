"""A connection to a Ray cluster: its address, whether it answers, errors in words."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import socket
import warnings
from collections.abc import Iterator
from typing import Any

PORT = 10001  # of Ray's server for clients
PATIENCE = 5.0  # seconds for an address to answer
_TRY = "3"  # seconds; Ray tries three times, a wrong port too
TRIES = 4  # of a server that has half a minute to start


def address_of(on: str, option: str | None = None) -> str:
    """Return the address of a cluster in Ray's own form.

    >>> address_of("ray"), address_of("ray://there"), address_of("ray://there:7")
    ('auto', 'ray://there:10001', 'ray://there:7')
    """
    if on == "ray":
        return "auto"
    kind, _, rest = on.partition("://")
    host, _, port = rest.rpartition(":") if ":" in rest else (rest, "", str(PORT))
    if kind != "ray" or not host or not port.isdigit():
        option = option or f"--on {on}"
        raise ValueError(
            f"{option}: write ray, for the cluster that this machine is a part of, or "
            "ray://HOST:PORT."
        )
    return f"ray://{host}:{port}"


@contextlib.contextmanager
def connected(on: str, option: str | None = None) -> Iterator[Any]:
    """Connect to a cluster; yield the module `ray`.

    Args:
        on: "ray", or "ray://HOST:PORT".
        option: The option or argument that messages name; ``--on`` by default.
    """
    option = option or f"--on {on}"
    address = address_of(on, option)
    for name in ("INITIAL", "MAX"):  # read by Ray when it is imported
        os.environ.setdefault(f"RAY_CLIENT_{name}_CONNECTION_TIMEOUT_S", _TRY)
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError:
        raise RuntimeError(
            f"{option} needs Ray, which is not installed: "
            'pip install "ganglion-nn[ray]"'
        ) from None
    address = _resolved(option, address)
    _check_answers(option, address)
    _silence()
    try:
        _enter(option, ray, address)
        yield ray
    finally:
        ray.shutdown()  # also after a connection that failed halfway


def _enter(option: str, ray: Any, address: str) -> None:
    """Connect; try again if a busy cluster did not start our server in time."""
    for left in reversed(range(TRIES)):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what it warns of is in our error
                ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
            return
        except ConnectionAbortedError as error:
            ray.shutdown()
            if not left:
                raise _not_served(option, str(error).strip().splitlines()[-1]) from None
        except (ConnectionError, ImportError) as error:
            raise _unreachable(option, str(error).splitlines()[0]) from None


def _silence() -> None:
    """Keep Ray from printing messages about lost workers between our tables.

    Our callers report lost workers. Other versions of Ray may lack the function.
    """
    worker: Any = importlib.import_module("ray._private.worker")
    if hasattr(worker, "print_to_stdstream"):
        worker.print_to_stdstream = lambda *args, **kwargs: None


def _resolved(option: str, address: str) -> str:
    """Return the address of the cluster of this machine, HOST:PORT."""
    if address != "auto":
        return address
    if "://" in (variable := os.environ.get("RAY_ADDRESS", "")):
        return address_of(variable)
    services: Any = importlib.import_module("ray._private.services")
    try:
        address = services.canonicalize_bootstrap_address("auto")
    except ConnectionError:
        address = ""
    if not address:
        raise RuntimeError(
            f"{option}: no Ray cluster is running here. Start one with `ray start "
            "--head`, join one with `ray start --address HOST:PORT`, or give the "
            "address of one: --on ray://HOST:PORT."
        )
    return str(address)


def _check_answers(option: str, address: str) -> None:
    """Check that an address answers: Ray itself would wait for minutes."""
    host, _, port = address.rpartition("/")[2].rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), PATIENCE).close()
    except OSError as error:
        raise _unreachable(option, f"{host}:{port}: {error}") from None


def _unreachable(option: str, why: str) -> RuntimeError:
    return RuntimeError(
        f"{option}: no Ray cluster answers ({why}). Is it running, and is this the "
        f"port for clients ({PORT} unless it was started with another "
        "--ray-client-server-port)?"
    )


def _not_served(option: str, why: str) -> RuntimeError:
    return RuntimeError(
        f"{option}: the cluster could not start a server for this client, {TRIES} "
        f"times ({why}). Is it very busy? The logs are on its head node, "
        "ray_client_server_*.err."
    )
