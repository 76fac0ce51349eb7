"""Run cells in processes of one thread each: what a run computes does not depend on what runs beside it."""

import gc
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from ctypes import c_longlong
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from r2mae.errors import UserError
from r2mae.registry import JOBS
from r2mae.sweep.cells import Cell
from r2mae.sweep.measure import scores_of
from r2mae.sweep.progress_board import Board
from r2mae.sweep.run_cell import run_cell
from r2mae.sweep.watch import Watch, end
from r2mae.training.folder import RunFolder
from r2mae.training.progress import Pace
from r2mae.wings.contract import Wing

_POLL = 0.2
_NUMBERS = 3  # that a process tells of its cell: steps done and planned, and its own number
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Variables of the environment, read when a library is loaded: the processes of a sweep have one thread each."""


@dataclass(frozen=True)
class Processes:
    """Runs cells in processes of this machine (a :class:`r2mae.sweep.runner.Runner`).

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

    def run(self, waiting: Sequence[Cell], wing: Wing, board: Board) -> None:
        """Run all cells; if some fail, the error of the first is raised after the others have run."""
        with one_interrupt():
            _run(waiting, wing, board, min(_jobs(self.jobs, self.device), len(waiting)))


def _jobs(jobs: int | None, device: str) -> int:
    if jobs is not None:
        return jobs
    accelerated = device not in ("auto", "cpu") or (device == "auto" and torch.cuda.is_available())
    return 1 if accelerated else len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


def _run(waiting: Sequence[Cell], wing: Wing, board: Board, jobs: int) -> None:
    context = multiprocessing.get_context("spawn")
    os.environ[JOBS] = str(jobs)
    for name in THREADS:
        os.environ.setdefault(name, "1")
    # Three numbers for each cell: steps done, steps planned, process id. Only the cell's own process writes them, so
    # there is no lock that a crash could leave held.
    shared = context.RawArray(c_longlong, _NUMBERS * len(waiting))
    watch = Watch(waiting)
    failed: list[tuple[Cell, Exception]] = []
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(jobs, context, _start_worker, (shared, os.getpid()))
    try:
        futures = {
            pool.submit(
                _run_cell,
                index,
                wing.name,
                cell.config.to_dict(),
                str(cell.folder),
                cell.row.label if cell.row.baseline else None,
            ): cell
            for index, cell in enumerate(waiting)
        }
        pending: set[Future[float]] = set(futures)
        while pending:
            done, pending = wait(pending, timeout=_POLL, return_when=FIRST_COMPLETED)
            states = [tuple(shared[_NUMBERS * i : _NUMBERS * (i + 1)]) for i in range(len(waiting))]
            board.update([(done_, planned) for done_, planned, _ in states])
            for line in watch.look(states):
                board.console.print(line, soft_wrap=True, markup=False, highlight=False)
            for future in done:
                cell = futures[future]
                watch.ended(cell)
                try:
                    board.finished(cell, future.result(), scores_of(RunFolder(cell.folder)))
                except BrokenProcessPool:
                    raise
                except Exception as error:  # one cell's failure must not cost the others
                    failed.append((cell, error))
                    board.failed(cell, error)
        pool.shutdown()
    except BaseException as reason:
        ours = set(multiprocessing.active_children()) - others
        for process in ours:
            process.terminate()
        pool.shutdown(wait=False, cancel_futures=True)
        end(ours, watch, board.console)
        if isinstance(reason, BrokenProcessPool):
            raise UserError(
                "a process of the comparison ended unexpectedly (out of memory?): run the same command again to go on, "
                "with --jobs 1 if memory is short; finished runs are kept"
            ) from None
        raise
    raise_first(failed)


def raise_first(failed: Sequence[tuple[Cell, Exception]]) -> None:
    """Raise the error of the first cell that failed, if any did, and say how many more there are."""
    if failed:
        cell, first = failed[0]
        if not isinstance(first, UserError):
            raise first
        more = f" ({len(failed) - 1} more failed)" if len(failed) > 1 else ""
        raise UserError(f"{cell.row.label}, seed {cell.seed}: {first}{more}; the other runs are kept")


@contextmanager
def one_interrupt() -> Iterator[None]:
    """React to the first Ctrl-C only: a second one must not interrupt the code that ends the processes."""

    def first(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise KeyboardInterrupt

    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if usual and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, first)
    try:
        yield
    finally:
        if usual and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.default_int_handler)


_shared: Any = None


def _start_worker(shared: Any, parent: int) -> None:
    """Prepare a worker: it ignores Ctrl-C, which its parent handles, and it ends when its parent does."""
    global _shared  # noqa: PLW0603  (one array of progress in each process)
    _shared = shared
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    threading.Thread(target=_follow, args=(parent,), daemon=True).start()


def _follow(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


class _SharedProgress:
    """Reports to the parent how far a cell is."""

    def __init__(self, index: int) -> None:
        self.index = index

    def start(self, step: int, total: int) -> None:
        _shared[_NUMBERS * self.index], _shared[_NUMBERS * self.index + 1] = step, total

    def update(self, pace: Pace) -> None:
        _shared[_NUMBERS * self.index] = pace.step

    def stop(self) -> None:
        return


def _run_cell(index: int, wing_name: str, fields: dict[str, Any], folder: str, baseline: str | None) -> float:
    """Run a cell in a worker process, and return its seconds."""
    began = time.perf_counter()
    _shared[_NUMBERS * index + 2] = os.getpid()
    try:
        run_cell(wing_name, fields, Path(folder), baseline, _SharedProgress(index))
    except SystemExit:  # stopped by a signal, and saved; the pool would catch this, and go on to the next cell
        os._exit(1)
    gc.collect()  # a trainer and its data are a cycle, and would stay while the next cell loads its own
    return time.perf_counter() - began
