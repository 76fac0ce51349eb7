"""The body of a Dask task: it hands a run to a process below the worker.

A task is a thread of its worker: it hears no signals, cannot be ended, and shares its process with other tasks.
"""

import multiprocessing
import os
import socket
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from r2mae.errors import UserError
from r2mae.registry import JOBS
from r2mae.sweep.run_process import DiedError, Outcome, Request, compute_in_process

_AWAY = 10.0  # seconds for which a worker that does not see the folder keeps a run, lest it come back at once


def compute_on_worker(request: Request, shared: Path) -> Outcome:
    """Compute a run in a process below this worker.

    Parameters
    ----------
    request : Request
        The run.
    shared : Path
        A file in the folder of the sweep. Its name is the topic of the events that tell how far runs are.

    Raises
    ------
    distributed.Reschedule
        If this worker does not see the file: another may take the run.
    """
    import distributed

    worker: Any = distributed.get_worker()
    key, host = worker.get_current_task(), socket.gethostname()
    if not shared.exists():
        told = f"worker {worker.address} on {host} does not see {shared.parent}: it computes no runs"
        distributed.print(f"r2mae: {told}", file=sys.stderr)
        time.sleep(_AWAY)
        raise distributed.Reschedule
    multiprocessing.current_process().daemon = False  # as Dask starts its workers; a daemon can have no processes
    environment = {**request.environment, **os.environ, JOBS: str(runs_at_once(worker))}
    try:
        return compute_in_process(
            replace(request, environment=environment),
            lambda done, planned: worker.log_event(shared.name, (request.index, done, planned)),
            lambda: _is_wanted(worker, key),
        )
    except UserError as error:
        raise (DiedError if isinstance(error, DiedError) else UserError)(f"{error} (on {host})") from None


def runs_at_once(worker: Any) -> int:
    """Return how many runs this machine does at once, as far as a worker knows: more workers may share its memory."""
    from distributed.system import MEMORY_LIMIT

    threads, limit = worker.state.nthreads, worker.memory_manager.memory_limit
    return max(threads, round(MEMORY_LIMIT / limit) * threads) if limit else int(threads)


def _is_wanted(worker: Any, key: Any) -> bool:
    """Return whether the worker stays, and the task was not cancelled: by its client, or because that has ended."""
    task = worker.state.tasks.get(key)
    running = task is not None and task.state in ("executing", "long-running")
    return running and worker.status.name in ("running", "paused")
