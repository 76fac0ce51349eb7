"""Connect to a Dask cluster, or start one, for the time of a sweep."""

import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

from rich.console import Console

from r2mae.errors import UserError
from r2mae.sweep.cluster_options import ENGINES, ClusterOptions, engine_class

_CONNECT = 60.0  # seconds until a scheduler must have answered
_CLOSE = 10.0
_KNOCK = ("tcp", "tls", "ws", "wss")  # an address of another kind may have no socket of TCP
# Dask logs what goes wrong with a connection in many lines; a sweep says it in one.
_LOUD = ("client", "core", "comm", "batched", "utils", "scheduler", "deploy")


@contextmanager
def connected(options: ClusterOptions, console: Console) -> Iterator[Any]:
    """Give a client of the cluster (`distributed.Client`), and print where its dashboard is.

    A cluster that was started here is closed at the end; one that was there stays.

    Raises
    ------
    UserError
        If no scheduler answers, or no cluster can be started.
    """
    with quiet_dask():
        cluster = _start(options) if options.where in ENGINES else None
        try:
            client = _client(options, cluster)
            try:
                say(console, f"cluster: {client.scheduler.address}, {_dashboard(client)}")
                yield client
            finally:
                with suppress(Exception):  # of a connection that is lost already
                    client.close(timeout=_CLOSE)
        finally:
            if cluster is not None:
                with suppress(Exception):
                    cluster.close(timeout=_CLOSE)


def say(console: Console, line: str) -> None:
    """Print a line as it is."""
    console.print(line, soft_wrap=True, markup=False, highlight=False)


@contextmanager
def quiet_dask() -> Iterator[None]:
    """Hide what Dask logs below an emergency."""
    import distributed  # noqa: F401  (which sets the levels of its loggers when it is imported)

    loggers = [logging.getLogger(f"distributed.{name}") for name in _LOUD]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


def _dashboard(client: Any) -> str:
    with suppress(KeyError, AttributeError, OSError):
        link = client.dashboard_link
        return f"dashboard at {link}" if link else "without a dashboard"
    return "without a dashboard"


def _start(options: ClusterOptions) -> Any:
    try:
        return engine_class(ENGINES[options.where])(**options.settings)
    except Exception as error:  # of a library that we know only by name: whatever it says of its settings
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise UserError(f"no cluster of {options.where} could be started: {reason}") from None


def _client(options: ClusterOptions, cluster: Any) -> Any:
    from distributed import Client

    try:
        if cluster is None:
            _knock(options.where)
        connect: Any = Client
        return connect(cluster or options.where, timeout=_CONNECT, set_as_default=False)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:200] or "no answer"
        raise UserError(f"no scheduler answers at {options.where} ({reason}): start one with dask scheduler") from None


def _knock(address: str) -> None:
    """Raise an OSError if nothing listens at an address, at once: Dask would try for a minute."""
    found = urlsplit(address)
    if found.scheme not in _KNOCK:
        return
    with socket.create_connection((found.hostname, found.port), timeout=_CONNECT):
        pass
