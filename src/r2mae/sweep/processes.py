"""Run runs in processes of one thread each: what a run computes does not depend on what runs beside it."""

import gc
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from ctypes import c_longlong
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from r2mae.cores import cores
from r2mae.domains.contract import Domain
from r2mae.errors import UserError
from r2mae.registry import JOBS
from r2mae.sweep.measure import scores_of
from r2mae.sweep.progress_display import ProgressDisplay
from r2mae.sweep.runs import SweepRun
from r2mae.sweep.train_run import train_run
from r2mae.sweep.watch import Watch, end
from r2mae.sweep.worker_start import THREADS, load_ahead, unset, with_variables, worker_context
from r2mae.training.folder import RunFolder
from r2mae.training.progress import RunProgress

_POLL = 0.2
_NUMBERS = 3  # that a process tells of its run: steps done and planned, and its own number
_LAST = 1.0  # seconds that a process has to save its step when its parent has ended: both may have had a signal
_STOPPED = 1  # exit code of a process that was asked to end, and has saved its step
_ASKED = (_STOPPED, -signal.SIGTERM)
_LOST = 255  # exit code that multiprocessing reports of a forked process when another thread has read the true one
_CRASH = (
    "a process of the comparison ended unexpectedly (out of memory?): run the same command again to go on, with "
    "--jobs 1 if memory is short; finished runs are kept"
)


@dataclass(frozen=True)
class Processes:
    """Runs runs in processes of this machine (a :class:`r2mae.sweep.runner.Runner`).

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
        """Run all runs; if some fail, the error of the first is raised after the others have run."""
        with one_interrupt():
            _run(waiting, domain, display, self.at_once(len(waiting)))

    def at_once(self, runs: int) -> int:
        """Return how many of so many runs run at the same time."""
        return min(_jobs(self.jobs, self.device), runs)


def _jobs(jobs: int | None, device: str) -> int:
    if jobs is not None:
        return jobs
    accelerated = device not in ("auto", "cpu") or (device == "auto" and torch.cuda.is_available())
    return 1 if accelerated else cores()


def _run(waiting: Sequence[SweepRun], domain: Domain, display: ProgressDisplay, jobs: int) -> None:
    with with_variables({JOBS: str(jobs), **unset(dict.fromkeys(THREADS, "1"))}):
        sweep = _Sweep(waiting, domain, display, jobs)
        left = list(range(len(waiting)))
        while left:
            left = sweep.run(left)
    raise_first(sweep.failed)


class _Sweep:
    """Cells on their way through processes.

    A process takes run after run. When one crashes, ``concurrent.futures`` ends the others, which save their step.
    The run of the crashed process has failed, and the rest goes on in new processes.
    """

    def __init__(self, waiting: Sequence[SweepRun], domain: Domain, display: ProgressDisplay, jobs: int) -> None:
        self.waiting, self.domain, self.display, self.jobs = waiting, domain, display, jobs
        self.failed: list[tuple[SweepRun, Exception]] = []
        self.watch = Watch(waiting)
        self._context = worker_context()
        # Three numbers for each run: steps done, steps planned, process id. Only the cell's own process writes them,
        # so there is no lock that a crash could leave held.
        self._shared = self._context.RawArray(c_longlong, _NUMBERS * len(waiting))
        self._ended: set[int] = set()
        self._processes: set[BaseProcess] = set()

    def run(self, places: Sequence[int]) -> list[int]:
        """Run the runs at these places until all have ended or a process crashes; return those that are left."""
        load_ahead()  # again, if the server has ended meanwhile
        others = set(multiprocessing.active_children())
        for place in places:
            self._shared[_NUMBERS * place + 2] = 0
        start = (self._shared, dict(os.environ))
        pool = ProcessPoolExecutor(min(self.jobs, len(places)), self._context, _start_worker, start)
        self._processes = set()
        try:
            futures = {pool.submit(_train_run, place, *self._task(place)): place for place in places}
            pending: set[Future[float]] = set(futures)
            while pending:
                check_interrupt()
                done, pending = wait(pending, timeout=_POLL, return_when=FIRST_COMPLETED)
                self._processes |= set(multiprocessing.active_children()) - others
                self._show()
                for future in sorted(done, key=lambda one: isinstance(one.exception(), BrokenProcessPool)):
                    self._take(futures[future], future)
            pool.shutdown()
        except BaseException as reason:
            self._processes |= set(multiprocessing.active_children()) - others
            crashed = isinstance(reason, BrokenProcessPool)
            if not crashed:  # else the pool asks them to end, and a second time would mean at once
                for process in self._processes:
                    process.terminate()
            pool.shutdown(wait=False, cancel_futures=True)
            killed = end(self._processes, self.watch, self.display.console)
            if not crashed:
                raise
            if not self._blame(places, killed):
                raise UserError(_CRASH) from None
        return [place for place in places if place not in self._ended]

    def _task(self, place: int) -> tuple[str, dict[str, Any], str, str | None]:
        run = self.waiting[place]
        return (
            self.domain.name,
            run.config.to_dict(),
            str(run.folder),
            run.variant.label if run.variant.baseline else None,
        )

    def _show(self) -> None:
        numbers = range(0, len(self._shared), _NUMBERS)
        states = [tuple(self._shared[first : first + _NUMBERS]) for first in numbers]
        self.display.update([(done, planned) for done, planned, _ in states])
        for line in self.watch.look(states):
            self.display.console.print(line, soft_wrap=True, markup=False, highlight=False)

    def _take(self, place: int, future: "Future[float]") -> None:
        run = self.waiting[place]
        try:
            seconds = future.result()
            self.display.finished(run, seconds, scores_of(RunFolder(run.folder)))
        except BrokenProcessPool:
            raise
        except Exception as error:  # one cell's failure must not cost the others
            self._fail(run, error)
        self._ended.add(place)
        self.watch.ended(run)

    def _fail(self, run: SweepRun, error: Exception) -> None:
        self.failed.append((run, error))
        self.display.failed(run, error)

    def _blame(self, places: Sequence[int], killed: Iterable[int]) -> bool:
        """Take down as failed the runs whose processes crashed, and return whether there are any.

        Processes that were asked to end, or `killed` because they took too long for it, did not crash. Of a forked one
        the exit code may be lost: such runs are taken only if there is no other culprit.
        """
        codes = {process.pid: process.exitcode for process in self._processes}
        asked = {number for number, code in codes.items() if code in _ASKED} | set(killed)
        begun = [place for place in places if place not in self._ended and self._number(place) not in (0, *asked)]
        crashed = [place for place in begun if codes.get(self._number(place)) != _LOST] or begun
        for place in crashed:
            run = self.waiting[place]
            self._fail(run, UserError(_CRASH))
            self._ended.add(place)
            self.watch.ended(run)
        return bool(crashed)

    def _number(self, place: int) -> int:
        return int(self._shared[_NUMBERS * place + 2])


class FailedRunsError(UserError):
    """Some runs failed; the others are finished."""


def raise_first(failed: Sequence[tuple[SweepRun, Exception]]) -> None:
    """Raise the error of the first run that failed, if any did, and say how many more there are."""
    if failed:
        run, first = failed[0]
        if not isinstance(first, UserError):
            raise first
        more = f" ({len(failed) - 1} more failed)" if len(failed) > 1 else ""
        raise FailedRunsError(f"{run.variant.label}, seed {run.seed}: {first}{more}; the other runs are kept")


_interrupted = threading.Event()


def check_interrupt() -> None:
    """Raise KeyboardInterrupt once more, if one was heard within :func:`one_interrupt` and came to nothing.

    It is lost if it meets code that cannot raise, such as a callback of the garbage collector.
    """
    if _interrupted.is_set():
        raise KeyboardInterrupt


@contextmanager
def one_interrupt() -> Iterator[None]:
    """React to the first Ctrl-C only: a second one must not interrupt the code that ends the processes."""

    def first(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        _interrupted.set()
        raise KeyboardInterrupt

    _interrupted.clear()
    default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if default and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, first)
    try:
        yield
    finally:
        if default and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.default_int_handler)


_shared: Any = None


def _start_worker(shared: Any, environment: Mapping[str, str]) -> None:
    """Prepare a worker: it has its parent's environment, leaves Ctrl-C to it, and ends when it does."""
    global _shared  # noqa: PLW0603  (one array of progress in each process)
    _shared = shared
    os.environ.clear()  # a server that forks has the environment of the time when it was started
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    threading.Thread(target=_follow, daemon=True).start()


def _follow() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    time.sleep(_LAST)
    os._exit(1)


class _SharedProgress:
    """Reports to the parent how far a run is."""

    def __init__(self, index: int) -> None:
        self.index = index

    def start(self, step: int, total: int) -> None:
        _shared[_NUMBERS * self.index], _shared[_NUMBERS * self.index + 1] = step, total

    def update(self, pace: RunProgress) -> None:
        _shared[_NUMBERS * self.index] = pace.step

    def stop(self) -> None:
        return


def _train_run(index: int, domain_name: str, fields: dict[str, Any], folder: str, baseline: str | None) -> float:
    """Run a run in a worker process, and return its seconds."""
    began = time.perf_counter()
    _shared[_NUMBERS * index + 2] = os.getpid()
    try:
        train_run(domain_name, fields, Path(folder), baseline, _SharedProgress(index))
    except SystemExit:  # stopped by a signal, and saved; the pool would catch this, and go on to the next run
        os._exit(_STOPPED)
    gc.collect()  # a trainer and its data are a cycle, and would stay while the next run loads its own
    return time.perf_counter() - began
