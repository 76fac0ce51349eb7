"""How the processes of a sweep are started: forked from a server that has loaded the libraries, where that is safe.

A process that is spawned loads torch for itself, which takes seconds of a processor each time. The server
(``multiprocessing``'s forkserver) loads them once, does nothing else and has one thread. Imports touch no accelerator;
where there is one, processes are spawned nevertheless, since its driver cannot be forked.
"""

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import forkserver
from multiprocessing.context import BaseContext
from pathlib import Path

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""Variables of the environment, read when a library is loaded: the processes of a sweep have one thread each."""

STARTING = threading.Lock()
"""Held by a thread that changes the environment to start a process."""

_LIBRARIES = ("r2mae.sweep.train_run", "r2mae.sweep.run_process", "r2mae.evaluation.probes")
_ALONE = {"JE_ARROW_MALLOC_CONF": "background_thread:false"}  # else pyarrow's memory has a thread of its own
_ACCELERATORS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")  # drivers of NVIDIA and AMD, and of either under Windows


def load_ahead() -> None:
    """Start the server, if it is not there yet, which begins to load the libraries; this returns at once.

    Called before this process loads them itself, both load at the same time.
    """
    global _has_server  # noqa: PLW0603  (there is one server)
    if not _can_fork():
        return
    multiprocessing.get_context("forkserver").set_forkserver_preload(list(_LIBRARIES))
    with with_variables(unset({**ONE_THREAD, **_ALONE})), _no_interrupt():
        try:
            forkserver.ensure_running()
        except OSError:  # its socket is in the folder for temporary files, whose path may be too long for one
            return
    _has_server = True


_has_server = False


def worker_context() -> BaseContext:
    """Return the context of ``multiprocessing`` that starts the processes of a sweep."""
    return multiprocessing.get_context("forkserver" if _has_server else "spawn")


def _can_fork() -> bool:
    return sys.platform == "linux" and not any(Path(device).exists() for device in _ACCELERATORS)


def unset(values: Mapping[str, str]) -> dict[str, str]:
    """Return those variables of the environment that the user has not set."""
    return {name: value for name, value in values.items() if name not in os.environ}


@contextmanager
def with_variables(values: Mapping[str, str]) -> Iterator[None]:
    """Within the block, this process and those that it starts have these variables of the environment."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _no_interrupt() -> Iterator[None]:
    """Within the block, processes that are started inherit that Ctrl-C is ignored: it is their parent's business."""
    main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if main else None
    try:
        yield
    finally:
        if main:
            signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)
