"""A process that computes one run after the other: how it starts, what it tells, and how it ends.

A run has a process of its own. There it has a main thread and a fixed number of threads, its numbers do not depend on
the runs next to it, and its death costs no other run. One pipe connects the process with the thread that started it:
requests go down, progress and outcomes come up. If the upper end is closed, for which the death of the parent is
enough, the process saves its step and ends.
"""

import gc
import math
import multiprocessing
import os
import pickle
import queue
import signal
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r2mae.errors import UserError
from r2mae.sweep.worker_start import ONE_THREAD, STARTING, unset, with_variables, worker_context

if TYPE_CHECKING:
    from r2mae.training.progress import RunProgress

PATIENCE = 60.0  # seconds that a process may take to save its step
_IDLE = 300.0  # seconds without a request after which a process ends
_POLL = 0.2
_LOCK = 600.0  # seconds to wait for the lock of a process that was lost; that of a lost machine lasts minutes

Outcome = tuple[float, dict[str, float]]
"""Seconds and scores of a run."""

Report = Callable[[int, int], None]
"""Receives how many steps a run has done, and how many are planned."""


@dataclass(frozen=True)
class Request:
    """What a process needs to know to compute a run.

    Parameters
    ----------
    index : int
        Place of the run in its sweep.
    domain, fields, folder, baseline
        See :func:`r2mae.sweep.train_run.train_run`.
    fingerprint : str, optional
        Of the data; a machine that has others refuses the run.
    cwd : str
        The folder to which relative paths refer.
    environment : mapping
        Environment variables of the process.
    """

    index: int
    domain: str
    fields: dict[str, Any]
    folder: str
    baseline: str | None = None
    fingerprint: str | None = None
    cwd: str = field(default_factory=os.getcwd)
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))


class DiedError(UserError):
    """The process of a run ended before the run did."""


class RunProcess:
    """The upper end of a process that computes runs."""

    def __init__(self) -> None:
        with STARTING, with_variables(unset(ONE_THREAD)):
            context: Any = worker_context()
            self._pipe, below = context.Pipe()
            # Whatever ends the parent, multiprocessing or the pipe ends a daemon, too.
            self._process = context.Process(target=_serve, args=(below,), daemon=True)
            self._process.start()
            below.close()
        self._computes = False

    @property
    def lives(self) -> bool:
        """Whether the process can take a request."""
        return not self._computes and bool(self._process.is_alive())

    def compute(self, request: Request, report: Report, wanted: Callable[[], bool]) -> Outcome:
        """Compute a run; once it is not `wanted` any more, let it save its step and end.

        Raises
        ------
        DiedError
            If the process ended, asked to or not.
        """
        asked, self._computes = math.inf, True
        self._send(request)
        while True:
            if asked == math.inf and not wanted():
                asked = time.monotonic()
                self._send(None)
            elif time.monotonic() - asked > PATIENCE:
                self._process.kill()
            match self._receive():
                case ("steps", done, planned):
                    report(done, planned)
                case ("done", seconds, scores):
                    self._computes = False
                    return seconds, scores
                case ("failed", error):
                    self._computes = False
                    raise error
                case ("died",):
                    self._process.join()
                    raise DiedError(f"its process {_ending(self._process.exitcode)}")

    def close(self) -> None:
        """Let the process end."""
        self._send(None)
        self._process.join(PATIENCE)
        self._pipe.close()

    def _send(self, message: Request | None) -> None:
        with suppress(OSError):  # it has ended, as the next answer tells
            self._pipe.send(message)

    def _receive(self) -> tuple[Any, ...]:
        """Return the next message, an empty one if none comes soon, or ("died",)."""
        try:
            if self._pipe.poll(_POLL):
                message: tuple[Any, ...] = self._pipe.recv()
                return message
        except (EOFError, OSError):
            return ("died",)
        return () if self._process.is_alive() else ("died",)


_idle: list[RunProcess] = []


def compute_in_process(request: Request, report: Report, wanted: Callable[[], bool]) -> Outcome:
    """Compute a run in a process that waits for one, or in a new one (:meth:`RunProcess.compute`)."""
    process = next((one for one in iter(_take_idle, None) if one.lives), None) or RunProcess()
    try:
        return process.compute(request, report, wanted)
    finally:
        if process.lives:
            _idle.append(process)
        else:  # it has ended, or what failed is `report`: its run is not done
            process.close()


def close_idle() -> int:
    """End the processes that wait for a run; return how many are left, which compute one."""
    while (process := _take_idle()) is not None:
        process.close()
    return len(multiprocessing.active_children())


def _take_idle() -> RunProcess | None:
    with suppress(IndexError):  # two threads may meet here
        return _idle.pop()
    return None


def _ending(code: int | None) -> str:
    """Return in words how a process ended, given its exit code."""
    if code is None or code >= 0:
        return f"ended with exit code {code}"
    memory = " (out of memory?)" if -code == signal.SIGKILL else ""
    return f"was killed by {signal.Signals(-code).name}{memory}"


def _serve(pipe: Connection) -> None:
    """Be the process: compute the runs that are asked for, one after the other."""
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the business of the parent, which asks once
    multiprocessing.current_process().daemon = False  # it may have processes that load data
    torch.set_num_threads(1)
    requests: queue.SimpleQueue[Request] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(pipe, requests), daemon=True).start()
    with suppress(queue.Empty, OSError):  # nothing more to do, or nobody to tell
        while True:
            pipe.send(_answer(requests.get(timeout=_IDLE), pipe))
            gc.collect()  # a model and its data may be a cycle, and would stay while the next run loads its own


def _listen(pipe: Connection, requests: "queue.SimpleQueue[Request]") -> None:
    """Pass requests on; when the parent asks for the end, or has ended, end the process."""
    with suppress(EOFError, OSError):
        while (request := pipe.recv()) is not None:
            requests.put(request)
    _end()


def _end() -> None:
    """End this process; if a run trains, let it save its step first, unless a signal has asked it to already."""
    from r2mae.training.interrupt import StopRequest

    handler = signal.getsignal(signal.SIGTERM)
    training = getattr(handler, "__self__", None)
    if callable(handler) and isinstance(training, StopRequest):
        if training.number is None:
            handler(signal.SIGTERM, None)
        time.sleep(PATIENCE)  # the main thread ends the process
    os._exit(1)


def _answer(request: Request, pipe: Connection) -> tuple[Any, ...]:
    """Compute a run, and return the message that tells its outcome."""
    os.environ.clear()  # a server that forks has the environment of the time when it was started
    os.environ.update({**ONE_THREAD, **request.environment})
    try:
        return ("done", *_compute(request, pipe))
    except SystemExit:  # stopped by a signal, and saved
        os._exit(1)
    except Exception as error:
        error.add_note(traceback.format_exc())
        with suppress(Exception):
            pickle.loads(pickle.dumps(error))
            return ("failed", error)
        return ("failed", RuntimeError(traceback.format_exc()))


def _compute(request: Request, pipe: Connection) -> Outcome:
    from r2mae.domains.lookup import get_domain
    from r2mae.sweep.measure import scores_of
    from r2mae.sweep.run_states import is_locked
    from r2mae.sweep.train_run import train_run
    from r2mae.training.folder import RunFolder

    began = time.perf_counter()
    if Path(request.cwd).is_dir():
        os.chdir(request.cwd)
    if request.fingerprint is not None:
        domain = get_domain(request.domain)
        config = domain.config.from_dict(request.fields)
        if domain.fingerprint(config) != request.fingerprint:
            raise UserError(
                f"{config.data.source} is not the same there: give all machines the same data (files over 1 GiB with the same "
                "modification time, as rsync -t keeps it)"
            )
    folder = RunFolder(Path(request.folder))
    while is_locked(folder) and time.perf_counter() - began < _LOCK:  # of a lost worker
        time.sleep(_POLL)
    train_run(request.domain, request.fields, folder.path, request.baseline, _PipeReporter(pipe))
    return time.perf_counter() - began, scores_of(folder)


class _PipeReporter:
    """Tells the parent how far a run is, at most a few times a second."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe, self._last = pipe, 0.0

    def start(self, step: int, total: int) -> None:
        """Tell where the run is."""
        with suppress(OSError):  # the parent has ended; the step is saved nevertheless
            self._pipe.send(("steps", step, total))

    def update(self, pace: "RunProgress") -> None:
        """Tell where the run is."""
        now = time.monotonic()
        if now - self._last > _POLL or pace.step == pace.total:
            self._last = now
            self.start(pace.step, pace.total)

    def stop(self) -> None:
        """Do nothing."""
