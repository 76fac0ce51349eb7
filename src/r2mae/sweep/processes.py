"""Compute the runs of a sweep in processes of this machine."""

import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch

from r2mae.cores import cores
from r2mae.domains.base import Domain
from r2mae.errors import UserError
from r2mae.registry import JOBS
from r2mae.sweep.dispatch import Progress, Submit, compute_all, request_of
from r2mae.sweep.progress_display import ProgressDisplay
from r2mae.sweep.run_process import DiedError, close_idle, compute_in_process
from r2mae.sweep.runs import SweepRun
from r2mae.sweep.worker_start import load_ahead


@dataclass(frozen=True)
class Processes:
    """Computes runs in processes of this machine (a :class:`r2mae.sweep.runner.Runner`).

    Parameters
    ----------
    jobs : int, optional
        How many; by default one per core, and one where an accelerator does the work.
    device : str
        Of the runs.
    """

    jobs: int | None = None
    device: str = "cpu"

    def __post_init__(self) -> None:
        if self.jobs is not None and self.jobs < 1:
            raise UserError(f"jobs must be 1 or more, not {self.jobs}")

    def run(self, waiting: Sequence[SweepRun], domain: Domain, display: ProgressDisplay) -> None:
        """Compute all runs (:func:`r2mae.sweep.dispatch.compute_all`)."""
        jobs = self.at_once(len(waiting))
        environment = {**os.environ, JOBS: str(jobs)}
        requests = [request_of(run, index, domain, environment=environment) for index, run in enumerate(waiting)]
        compute_all(waiting, requests, display, partial(_executor, jobs))

    def at_once(self, runs: int) -> int:
        """Return how many of so many runs run at the same time."""
        return min(_jobs(self.jobs, self.device), runs)


def _jobs(jobs: int | None, device: str) -> int:
    if jobs is not None:
        return jobs
    accelerated = device not in ("auto", "cpu") or (device == "auto" and torch.cuda.is_available())
    return 1 if accelerated else cores()


@contextmanager
def _executor(jobs: int, progress: Progress) -> Iterator[tuple[Submit, tuple[type[Exception], ...]]]:
    """Give an executor of threads, each of which waits for a process."""
    threads, stopping = ThreadPoolExecutor(jobs), threading.Event()
    load_ahead()
    try:
        yield (
            lambda request: threads.submit(
                compute_in_process, request, partial(progress, request.index), lambda: not stopping.is_set()
            ),
            (DiedError,),
        )
    finally:
        stopping.set()
        threads.shutdown(cancel_futures=True)
        close_idle()
