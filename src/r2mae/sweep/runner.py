"""Run the cells of a sweep that are not finished, on any runner."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from rich.console import Console

from r2mae.errors import UserError
from r2mae.masking.defaults import RatioDefaults
from r2mae.sweep.cells import Cell
from r2mae.sweep.measure import log_notes
from r2mae.sweep.progress_board import Board
from r2mae.training.config import RunConfig
from r2mae.training.devices import check_threads
from r2mae.training.folder import FolderLock, RunFolder
from r2mae.training.memory_check import check_fits_memory
from r2mae.training.numbers import ratios_of
from r2mae.wings.contract import Wing


@runtime_checkable
class Runner(Protocol):
    """What computes cells: processes of this machine, for example."""

    def run(self, waiting: Sequence[Cell], wing: Wing, board: Board) -> None:
        """Run every cell into its folder, and report each that ends to the board.

        Raises
        ------
        UserError
            If a cell failed. All other cells have run nevertheless.
        """


def check_sweep(base: RunConfig) -> None:
    """Refuse options that no run of a sweep can have."""
    if base.devices > 1:
        raise UserError("a comparison trains each run on one device: leave --devices out, and use --jobs")
    check_threads(base.threads)


def check_cells(cells: Sequence[Cell], wing: Wing, *, beside: Sequence[Cell] = ()) -> None:
    """Check data, memory and folders before any process starts.

    Refused are data that cannot be read, models that do not fit into memory, and folders of other runs.

    Parameters
    ----------
    cells : sequence of Cell
        The cells to run, all on the same data.
    wing : Wing
        Of the data.
    beside : sequence of Cell
        Finished cells that will be in the same report.
    """
    first = cells[0].config
    check_fits_memory(first, wing, log_notes(wing.load(first)))
    fingerprint = wing.fingerprint(first)
    for cell in [*cells, *beside]:
        _check(cell, fingerprint, ratios_of(wing, cell.config))


def run_missing(cells: Sequence[Cell], wing: Wing, runner: Runner, *, console: Console | None = None) -> None:
    """Run the cells that are not finished. Half-finished ones go on; finished ones are never repeated.

    Parameters
    ----------
    cells : sequence of Cell
        Of one sweep, all with metrics of the same names.
    wing : Wing
        Of the data.
    runner : Runner
        Where they are computed.
    console : Console, optional
        Where progress is shown; by default standard error.
    """
    waiting = [cell for cell in cells if not finished(cell)]
    metric = wing.metrics_of(cells[0].config)[0]
    with Board(cells, waiting, console or Console(stderr=True), metric) as board:
        if waiting:
            runner.run(waiting, wing, board)


def _check(cell: Cell, fingerprint: str, defaults: RatioDefaults) -> None:
    """Refuse a folder of another configuration now, before hours are spent on other cells."""
    folder = RunFolder(cell.folder)
    if cell.row.baseline and folder.results is not None and folder.results.get("data") != fingerprint:
        raise UserError(f"{cell.folder} was measured on other data: choose another --out, or remove it to measure anew")
    if folder.config_file.exists():
        with FolderLock(cell.folder):
            folder.claim(cell.config, fingerprint, defaults)


def finished(cell: Cell) -> bool:
    """Return whether a cell has been trained and measured."""
    folder = RunFolder(cell.folder)
    if cell.row.baseline:
        return folder.results is not None
    return folder.trained and folder.results_for(cell.config) is not None
