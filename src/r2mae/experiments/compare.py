"""``compare``: schemes × seeds in parallel processes, resumable, and everything that is made of the outcome."""

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
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from rich.console import Console

from r2mae.errors import UserError
from r2mae.experiments.board import Board
from r2mae.experiments.cell import check_baselines, measure_baseline, pretrain, scores_of, tell
from r2mae.experiments.finished import agree, finished_cells, shared_fields
from r2mae.experiments.gather import gather
from r2mae.experiments.plan import Cell, baseline_rows, fixed_label, plan_cells, plan_rows
from r2mae.experiments.results import Comparison
from r2mae.experiments.watch import Watch, end
from r2mae.experiments.wing import HasBaselines, Wing
from r2mae.experiments.wings import get_wing
from r2mae.files import UNFINISHED, write_json
from r2mae.masking.schemes import RatioDefaults
from r2mae.registry import JOBS
from r2mae.training.config import RunConfig
from r2mae.training.devices import check_threads
from r2mae.training.folder import FolderLock, RunFolder, read_json
from r2mae.training.numbers import ratios_of
from r2mae.training.progress import Pace
from r2mae.training.room import check_room

_POLL = 0.2
_NUMBERS = 3  # that a process tells of its cell: steps done and planned, and its own number
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def compare(
    base: RunConfig,
    wing: Wing,
    *,
    schemes: Sequence[str],
    seeds: Sequence[int],
    out: Path,
    ratios: Sequence[float] | None = None,
    baselines: Sequence[str] = (),
    jobs: int | None = None,
    console: Console | None = None,
) -> Comparison:
    """Run what is missing of a comparison, and gather everything that is finished in its folder.

    Runs that are finished are never repeated, half-finished ones go on. Every one computes with one thread, so that
    its result does not depend on how many run beside it.

    Parameters
    ----------
    base : RunConfig
        What all runs share.
    wing : Wing
        Of the data.
    schemes, ratios
        See :func:`r2mae.experiments.plan.plan_rows`.
    baselines : sequence of str
        What to measure beside the schemes, of the wing's :meth:`~r2mae.experiments.wing.HasBaselines.baselines_of`.
    seeds : sequence of int
        Each seed draws weights, data order, masks and (for sets without an official test part) the split.
    out : Path
        Folder of the comparison.
    jobs : int, optional
        Processes; by default one per core, and one where an accelerator does the work.
    console : Console, optional
        Where progress is shown.

    Raises
    ------
    UserError
        If a run fails (the others are kept), or the folder belongs to other configurations.
    """
    if base.devices > 1:
        raise UserError("a comparison trains each run on one device: leave --devices out, and use --jobs")
    check_threads(base.threads)
    if jobs is not None and jobs < 1:
        raise UserError(f"jobs must be 1 or more, not {jobs}")
    base = replace(base, threads=base.threads or 1)
    rows = plan_rows(base, ratios_of(wing, base), schemes, ratios)
    check_baselines(base, wing, baselines)
    rows += baseline_rows(base, baselines, rows)
    cells = plan_cells(rows, seeds, out)
    with FolderLock(out):
        shared = shared_fields(base)
        _claim(out, shared, base.measured_with)
        # Data that cannot be read, and models that do not fit, are found before any process starts.
        check_room(cells[0].config, wing, tell(wing.load(cells[0].config)))
        print_of_data = wing.fingerprint(base)
        planned = {cell.folder for cell in cells}
        beside = finished_cells(out, wing, base, but=planned)
        for cell in [*cells, *beside]:  # the report will be of both
            _check(cell, print_of_data, ratios_of(wing, base))
        agree([*beside, *cells], wing)
        write_json(out / "compare.json", shared)
        waiting = [cell for cell in cells if not _finished(cell)]
        with Board(cells, waiting, console or Console(stderr=True), wing.metrics_of(base)[0]) as board:
            if waiting:
                with _one_interrupt():
                    _run(waiting, wing, board, min(_jobs(jobs, base.device), len(waiting)))
        labels = {"default_fixed_label": fixed_label(ratios_of(wing, base).fixed if base.ratio is None else base.ratio)}
        everything = finished_cells(out, wing, base, [row.label for row in rows])
        return gather(everything, wing, base, extra=labels)


_OURS = {"runs", "figures", "compare.json", "results.csv", "results.json", "report.html"}


def _claim(out: Path, shared: dict[str, Any], measured_with: Sequence[str]) -> None:
    """Refuse a folder that belongs to something else, or to a comparison under another configuration."""
    foreign = [entry.name for entry in out.iterdir() if not entry.name.startswith(".") and entry.name not in _OURS]
    file = out / "compare.json"
    if foreign and not file.exists():
        raise UserError(f"{out} holds other files ({foreign[0]}) and no comparison: choose another --out")
    there = read_json(file) if file.exists() else shared
    for name, value in shared.items():
        if name not in measured_with and there.get(name, value) != value:
            raise UserError(
                f"{out} belongs to a comparison under another configuration ({name} is {there[name]!r} there and "
                f"{value!r} here): choose another --out, or repeat its options"
            )
    for left in out.glob(f".*{UNFINISHED}"):
        left.unlink()


def _check(cell: Cell, fingerprint: str, defaults: RatioDefaults) -> None:
    """Refuse a folder of another configuration before hours are spent on the others."""
    folder = RunFolder(cell.folder)
    if cell.row.baseline and folder.results is not None and folder.results.get("data") != fingerprint:
        raise UserError(f"{cell.folder} was measured on other data: choose another --out, or remove it to measure anew")
    if folder.config_file.exists():
        with FolderLock(cell.folder):
            folder.claim(cell.config, fingerprint, defaults)


def _finished(cell: Cell) -> bool:
    folder = RunFolder(cell.folder)
    if cell.row.baseline:
        return folder.results is not None
    return folder.trained and folder.results_for(cell.config) is not None


def _jobs(jobs: int | None, device: str) -> int:
    if jobs is not None:
        return jobs
    accelerated = device not in ("auto", "cpu") or (device == "auto" and torch.cuda.is_available())
    return 1 if accelerated else len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


def _run(waiting: Sequence[Cell], wing: Wing, board: Board, jobs: int) -> None:
    context = multiprocessing.get_context("spawn")
    os.environ[JOBS] = str(jobs)
    for name in _THREADS:  # read when a library is loaded, so before the processes start
        os.environ.setdefault(name, "1")
    # Three numbers a cell, steps done and planned and the process, written by one process each: no lock that a crash
    # could leave held.
    shared = context.RawArray(c_longlong, _NUMBERS * len(waiting))
    watch = Watch(waiting)
    failed: list[tuple[Cell, Exception]] = []
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(jobs, context, _start_worker, (shared, os.getpid()))
    try:
        futures = {
            pool.submit(
                _run_cell,
                place,
                wing.name,
                cell.config.to_dict(),
                str(cell.folder),
                cell.row.label if cell.row.baseline else None,
            ): cell
            for place, cell in enumerate(waiting)
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
    if failed:
        cell, first = failed[0]
        if not isinstance(first, UserError):
            raise first
        more = f" ({len(failed) - 1} more failed)" if len(failed) > 1 else ""
        raise UserError(f"{cell.row.label}, seed {cell.seed}: {first}{more}; the other runs are kept")


@contextmanager
def _one_interrupt() -> Iterator[None]:
    """Answer the first Ctrl-C alone: a second must not break off what ends the processes."""

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
    """Prepare a process: the parent alone answers Ctrl-C, and none outlives it."""
    global _shared  # noqa: PLW0603  (a process has one place for progress)
    _shared = shared
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    threading.Thread(target=_follow, args=(parent,), daemon=True).start()


def _follow(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


class _SharedProgress:
    """Tells the parent how far a cell is."""

    def __init__(self, place: int) -> None:
        self.place = place

    def start(self, step: int, total: int) -> None:
        _shared[_NUMBERS * self.place], _shared[_NUMBERS * self.place + 1] = step, total

    def update(self, pace: Pace) -> None:
        _shared[_NUMBERS * self.place] = pace.step

    def stop(self) -> None:
        return


def _run_cell(place: int, wing_name: str, fields: dict[str, Any], folder: str, baseline: str | None) -> float:
    """Run a cell in a worker process, and return its seconds."""
    began = time.perf_counter()
    _shared[_NUMBERS * place + 2] = os.getpid()
    wing = get_wing(wing_name)
    config = wing.config.from_dict(fields)
    if baseline is None:
        try:
            pretrain(config, wing, Path(folder), reporter=_SharedProgress(place))
        except SystemExit:  # stopped by a signal, and saved; the pool would catch this, and go on to the next cell
            os._exit(1)
    else:
        assert isinstance(wing, HasBaselines)
        measure_baseline(config, wing, baseline, wing.load(config), Path(folder), wing.fingerprint(config))
    gc.collect()  # a trainer and its data are a cycle, and would stay while the next cell loads its own
    return time.perf_counter() - began
