"""How the processes of a sweep are started: forked from a server that has loaded the libraries, where that is safe.

A process that is spawned loads torch and Lightning for itself, which takes seconds of a processor each time. The server
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

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Variables of the environment, read when a library is loaded: the processes of a sweep have one thread each."""

_LIBRARIES = ("r2mae.sweep.processes", "r2mae.evaluation.probes")
_ALONE = {"JE_ARROW_MALLOC_CONF": "background_thread:false"}  # else pyarrow's memory has a thread of its own
_ACCELERATORS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")  # drivers of NVIDIA and AMD, and of either under Windows


def worker_context() -> BaseContext:
    """Return the context of ``multiprocessing`` that starts the processes of a sweep, and start its server."""
    load_ahead()
    return multiprocessing.get_context("forkserver" if _can_fork() and not _refused else "spawn")


def load_ahead() -> None:
    """Let the server begin to load the libraries, if it is not there yet; this returns at once.

    Called before this process loads them itself, both load at the same time.
    """
    global _refused  # noqa: PLW0603  (there is one server)
    if _can_fork() and not _refused:
        multiprocessing.get_context("forkserver").set_forkserver_preload(list(_LIBRARIES))
        with with_variables(unset({**dict.fromkeys(THREADS, "1"), **_ALONE})), _no_interrupt():
            try:
                forkserver.ensure_running()
            except OSError:  # its socket lies in the folder for temporary files, whose path may be too long for one
                _refused = True


_refused = False


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
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)
