"""Run the cells of a sweep that are not finished, on any runner."""

from collections.abc import Hashable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Protocol, runtime_checkable

from rich.console import Console

from r2mae.errors import UserError
from r2mae.masking.defaults import RatioDefaults
from r2mae.registry import JOBS
from r2mae.sweep.cells import Cell, reading_of
from r2mae.sweep.measure import check_sizes, log_notes
from r2mae.sweep.progress_board import Board
from r2mae.sweep.worker_start import with_variables
from r2mae.training.config import MACHINE_FIELDS, RunConfig
from r2mae.training.devices import check_threads, torch_device
from r2mae.training.folder import FolderLock, RunFolder
from r2mae.training.memory_check import check_fits_memory
from r2mae.training.models import architecture_of
from r2mae.training.numbers import ratios_of
from r2mae.training.scheme_options import OPTION_FIELDS, check_schedule, scheme_of
from r2mae.training.task import Data
from r2mae.wings.contract import Wing

_SAME_SIZE = {*MACHINE_FIELDS, *OPTION_FIELDS, "scheme", "seed"}  # none of them makes a model larger


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


def check_sweep(base: RunConfig, *, here: bool = True) -> None:
    """Refuse options that no run of a sweep can have. Runs that are not `here` look for their device themselves."""
    if base.ranks > 1:
        instead = ", and use --jobs" if here else ""
        raise UserError(f"a comparison trains each run on one device: leave --devices and --nodes out{instead}")
    check_threads(base.threads)
    if here or not base.device.startswith("cuda"):
        torch_device(base.device)


def check_data(cells: Sequence[Cell], wing: Wing, *, here: bool = True, jobs: int = 1) -> None:
    """Refuse data that cannot be read, and what does not fit into memory, before any process starts.

    These are models, batches, and baselines.

    Parameters
    ----------
    cells : sequence of Cell
        The cells to run, all on the same data. They are read once for each model, since they say what it is built from.
    wing : Wing
        Of the data.
    here : bool
        Whether the runs are on this machine; others look at their own memory when a run starts.
    jobs : int
        How many cells run at the same time.
    """
    scheduled = _not_begun(cells)
    models: dict[str, dict[str, RunConfig]] = {}
    for cell in [cells[0], *(cell for cell in cells[1:] if not finished(cell))]:
        model, size = _size(cell.config)
        models.setdefault(model, {}).setdefault(size, cell.config)
    for number, sizes in enumerate(models.values()):
        first, *others = sizes.values()
        data = log_notes(wing.load(first))
        if number == 0:
            for config in scheduled:
                check_schedule(scheme_of(config, ratios_of(wing, config)).bind(config.total_steps(len(data.train))))
        if not here:
            continue
        if number == 0:  # baselines have no model
            check_baseline_sizes(cells, wing, data, jobs)
        check_fits_memory(first, wing, data)
        for config in others:
            check_fits_memory(config, wing, data, architecture={**data.architecture, **architecture_of(config)})


def _not_begun(cells: Sequence[Cell]) -> list[RunConfig]:
    """Return a configuration of each row that says when its schedule begins or ends, and of which no run has begun."""
    rows: dict[str, list[Cell]] = {}
    for cell in cells:
        if not cell.row.baseline:
            rows.setdefault(cell.row.label, []).append(cell)
    new = [own[0].config for own in rows.values() if not any(cell.folder.exists() for cell in own)]
    return [config for config in new if config.hides and (config.cl_start, config.cl_end) != (None, None)]


def check_baseline_sizes(cells: Sequence[Cell], wing: Wing, data: Data, jobs: int) -> None:
    """Refuse baselines that are still to be measured if they do not fit into the memory that `jobs` cells divide."""
    waiting = [cell for cell in cells if not finished(cell)]
    baselines = [cell for cell in waiting if cell.row.baseline]
    if baselines:
        with with_variables({JOBS: str(min(jobs, len(waiting)))}):
            check_sizes(baselines[0].config, wing, [*dict.fromkeys(cell.row.label for cell in baselines)], data)


def check_folders(cells: Sequence[Cell], wing: Wing, *, locked: bool = True) -> dict[str, list[str]]:
    """Refuse folders of other configurations or data now, before hours are spent on other cells.

    With `locked`, also those that another process works in; without, nothing is written, no lock either. Return the
    fingerprints of the data by the name of their file, folder or set.
    """
    reads = readings(cells)
    known = {read: wing.fingerprint(config) for read, config in reads.items()}
    for cell in cells:
        _check(cell, known[reading_of(cell.config)], ratios_of(wing, cell.config), locked=locked)
    found: dict[str, set[str]] = {}
    for read, config in reads.items():
        found.setdefault(Path(config.data).name, set()).add(known[read])
    return {name: sorted(prints) for name, prints in found.items()}


def readings(cells: Sequence[Cell]) -> dict[Hashable, RunConfig]:
    """Return a configuration for each set of data that cells read: most read the same, and a look may take long."""
    first: dict[Hashable, RunConfig] = {}
    for cell in cells:
        first.setdefault(reading_of(cell.config), cell.config)
    return first


def _size(config: RunConfig) -> tuple[str, str]:
    """Return what tells the model of a configuration from others, and its size and batches from those of others."""
    own = architecture_of(config)
    if own:
        return str(own["model"]), repr((own, config.batch_size, config.accumulate))
    whole = {name: value for name, value in config.to_dict().items() if name not in _SAME_SIZE}
    return repr(whole), ""


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


def _check(cell: Cell, fingerprint: str, defaults: RatioDefaults, *, locked: bool) -> None:
    folder = RunFolder(cell.folder)
    if cell.row.baseline and folder.results is not None and folder.results.get("data") != fingerprint:
        raise UserError(f"{cell.folder} was measured on other data: choose another --out, or remove it to measure anew")
    if folder.config_file.exists():
        with FolderLock(cell.folder) if locked else nullcontext():
            folder.claim(cell.config, fingerprint, defaults)


def finished(cell: Cell) -> bool:
    """Return whether a cell has been trained and measured."""
    folder = RunFolder(cell.folder)
    if cell.row.baseline:
        return folder.baseline_for(cell.config) is not None
    return folder.trained and folder.results_for(cell.config) is not None
