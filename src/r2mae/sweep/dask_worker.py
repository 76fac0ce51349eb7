"""What runs on a worker of a Dask cluster: a task hands its run to a process of its own, and watches it.

A thread of a worker cannot be ended, hears no signals, and shares its process with other tasks. So each task has a
process (:mod:`r2mae.sweep.run_process`), which is kept for the next run: libraries are loaded once.
"""

import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from r2mae.registry import JOBS

TOPIC = "r2mae-sweep-"
"""Events of a cluster whose topic begins with this tell how far the runs of a sweep are."""

_LOOK = 0.3  # seconds between looks at whether the run is still wanted
_PAUSE = 0.5  # seconds between reports of steps
_END = 60.0  # seconds that a process may take to save its step
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

_idle: list["RunProcess"] = []
_busy: dict["RunProcess", str] = {}  # and the topic of the sweep for which each works
_lock = threading.Lock()


class RunProcess:
    """A process that runs one run after the other.

    Parameters
    ----------
    environment : mapping
        Variables that it gets where the worker has no value for them.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "r2mae.sweep.run_process", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**environment, **dict.fromkeys(_THREADS, "1"), **os.environ},
        )
        self.environment = dict(environment)
        self._read = b""

    def send(self, request: Mapping[str, Any]) -> None:
        """Send a request; raise an OSError if the process has ended."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()

    def receive(self, seconds: float) -> dict[str, Any] | None:
        """Return the next message, an empty one if the process has ended, or None if none comes within the time."""
        assert self.process.stdout is not None
        handle, until = self.process.stdout.fileno(), time.monotonic() + seconds
        while b"\n" not in self._read:
            if not select.select([handle], [], [], max(0.0, until - time.monotonic()))[0]:
                return None
            more = os.read(handle, 1 << 16)
            if not more:
                return {}
            self._read += more
        line, self._read = self._read.split(b"\n", 1)
        message: dict[str, Any] = json.loads(line)
        return message

    def end(self, patience: float = _END) -> int:
        """Ask the process to save its step and to end; kill it if it takes too long. Return its exit code."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(patience)
            except subprocess.TimeoutExpired:
                self.process.kill()
        code = self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            with suppress(OSError):  # what was not sent any more
                stream.close()
        return code


def about() -> dict[str, Any]:
    """Return the versions on which the numbers of a run depend, and the machine's name. No library is loaded."""
    import socket
    from importlib.metadata import PackageNotFoundError, version

    import r2mae

    try:
        torch = version("torch").split("+")[0]
    except PackageNotFoundError:
        torch = "none"
    return {"r2mae": r2mae.__version__, "torch": torch, "host": socket.gethostname()}


def work(request: Mapping[str, Any]) -> dict[str, Any]:
    """Do a request in a process of this worker: the body of a task.

    Parameters
    ----------
    request : mapping
        See :func:`r2mae.sweep.run_process.answer`; and `topic` and `index`, with which progress is reported, and the
        `environment` of the process.

    Returns
    -------
    dict
        `state`: "finished" (with what was asked for), "failed", "broken" or "full", where a disk is (`told` says why),
        "stopped" (saved, after a signal), or "died" (with the exit `code` of the process).
    """
    from distributed import get_worker

    worker: Any = get_worker()
    key = worker.get_current_task()
    process = _begin(request, _runs(worker))
    told, kept = 0.0, False
    try:
        if request["do"] == "check":
            worker.log_event(request["topic"], {"index": request["index"], "worker": worker.address})
        while True:
            message = process.receive(_LOOK)
            if _unwanted(worker, key):
                return {"state": "stopped"}
            if message is None:
                continue
            if not message:
                return {"state": "died", "code": process.end()}
            if "end" in message:
                outcome: dict[str, Any] = message["end"]
                kept = outcome["state"] != "stopped"
                return outcome
            steps = message.get("steps")
            if steps is None or steps[0] in (0, steps[1]) or time.monotonic() - told > _PAUSE:
                told = time.monotonic()
                worker.log_event(
                    request["topic"], {"index": request["index"], "process": process.process.pid, **message}
                )
    finally:
        if not kept:
            process.end()
        with _lock:
            _busy.pop(process, None)
            if kept:
                _idle.append(process)


def busy(topic: str) -> int:
    """Return how many processes of this worker work for the sweeps whose topic begins so."""
    with _lock:
        return sum(one.startswith(topic) for one in _busy.values())


def close() -> None:
    """End the processes that wait for a run."""
    with _lock:
        ended = [_idle.pop() for _ in range(len(_idle))]
    for process in ended:
        process.end(patience=1.0)


def _begin(request: Mapping[str, Any], count: int) -> RunProcess:
    """Return a process that has got the request: one that waits and has the same environment, or a new one."""
    environment = {JOBS: str(count), **request["environment"]}
    while True:
        with _lock:
            process = next((one for one in _idle if one.environment == environment), None)
            if process is not None:
                _idle.remove(process)
        if process is None:
            break
        try:
            process.send(request)
        except OSError:  # it has ended, having waited for long
            process.end()
            continue
        with _lock:
            _busy[process] = request["topic"]
        return process
    process = RunProcess(environment)
    with _lock:
        _busy[process] = request["topic"]
    with suppress(OSError):  # what it died of is found by the one who waits for its messages
        process.send(request)
    return process


def _runs(worker: Any) -> int:
    """Return how many runs this machine does at once, as far as a worker knows: more workers may share its memory."""
    from distributed.system import MEMORY_LIMIT

    threads, limit = worker.state.nthreads, worker.memory_manager.memory_limit
    return max(threads, round(MEMORY_LIMIT / limit) * threads) if limit else int(threads)


def _unwanted(worker: Any, key: Any) -> bool:
    """Return whether the worker closes, or the task was cancelled: by its client, or because that has ended."""
    if worker.status.name not in ("running", "paused"):
        return True
    task = worker.state.tasks.get(key)
    return task is None or task.state in ("cancelled", "resumed", "released", "forgotten")
