"""Check the runs of a sweep before processes start, and run the unfinished ones."""

from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from r2mae.compare.progress_display import ProgressDisplay
from r2mae.compare.run import with_variables
from r2mae.compare.run_states import finished
from r2mae.compare.runs import SweepRun, data_key
from r2mae.domains.base import Domain
from r2mae.errors import UserError
from r2mae.registry import JOBS
from r2mae.terminal import Terminal
from r2mae.training.config import RunConfig
from r2mae.training.folder import FolderLock, RunFolder
from r2mae.training.pretraining import log_notes
from r2mae.training.run import check_fits_memory, torch_device

if TYPE_CHECKING:
    from r2mae.compare.dask_runner import DaskRunner
    from r2mae.compare.run import Processes


def check_sweep(base: RunConfig, *, here: bool = True) -> None:
    """Refuse options that runs of a sweep cannot have. Runs on another machine (not `here`) check their own device."""
    if base.machine.ranks > 1:
        instead = ", and use --jobs" if here else ""
        raise UserError(f"a comparison trains each run on one device: omit --devices and --nodes{instead}")
    if here or not base.machine.device.startswith("cuda"):
        torch_device(base.machine.device)


def check_data(runs: Sequence[SweepRun], domain: Domain, *, here: bool = True, jobs: int = 1) -> None:
    """Refuse unreadable data, and schedules, models, batches and baselines that do not fit, before processes start.

    Parameters
    ----------
    runs : sequence of SweepRun
        The runs to compute, all on the same data. The data are read once for each model, since its architecture
        depends on them.
    domain : Domain
        Domain of the data.
    here : bool
        Whether the runs are on this machine. Other machines check their own memory when a run starts.
    jobs : int
        Number of runs at a time.
    """
    waiting = [run for run in runs if not finished(run)]
    models: dict[Hashable, RunConfig] = {}
    for config in (run.config for run in (runs[0], *waiting)):
        models.setdefault((data_key(config), repr(config.model), config.optimizer.batch_size), config)
    for number, config in enumerate(models.values()):
        data = domain.load(config)
        if number == 0:
            log_notes(data)
            names = list(dict.fromkeys(run.variant.label for run in waiting if run.variant.baseline))
            if names and here:
                with with_variables({JOBS: str(min(jobs, len(waiting)))}):  # they share the memory
                    domain.check_baseline_sizes(config, names, data)
        if here:
            check_fits_memory(config, domain, data)
        del data  # before the next are read


def check_folders(runs: Sequence[SweepRun], domain: Domain) -> dict[str, list[str]]:
    """Refuse folders of other configurations or other data, or in use, before hours are spent on other runs.

    Returns
    -------
    dict of str to list of str
        The fingerprints of the data, by the name of their file, folder or set.
    """
    reads = configs_by_data(runs)
    known = {read: domain.fingerprint(config) for read, config in reads.items()}
    for run in runs:
        folder, fingerprint = RunFolder(run.folder), known[data_key(run.config)]
        if run.variant.baseline and folder.results is not None and folder.results.get("data") != fingerprint:
            raise UserError(
                f"{run.folder} was measured on other data: choose another --out, or remove it to measure again"
            )
        if folder.config_file.exists():
            with FolderLock(run.folder):
                folder.claim(run.config, fingerprint)
    found: dict[str, set[str]] = {}
    for read, config in reads.items():
        found.setdefault(Path(config.data.source).name, set()).add(known[read])
    return {name: sorted(prints) for name, prints in found.items()}


def configs_by_data(runs: Sequence[SweepRun]) -> dict[Hashable, RunConfig]:
    """Return one configuration for each data set that runs read, since computing a fingerprint may take long."""
    first: dict[Hashable, RunConfig] = {}
    for run in runs:
        first.setdefault(data_key(run.config), run.config)
    return first


def run_missing(
    runs: Sequence[SweepRun], domain: Domain, runner: "Processes | DaskRunner", *, console: Console | None = None
) -> None:
    """Run the unfinished runs. Interrupted runs are resumed; finished runs are never repeated.

    Parameters
    ----------
    runs : sequence of SweepRun
        The runs of one sweep, all with metrics of the same names.
    domain : Domain
        Domain of the data.
    runner : Processes or DaskRunner
        Computes the runs.
    console : Console, optional
        Shows the progress; by default standard error.
    """
    waiting = [run for run in runs if not finished(run)]
    metric = domain.metrics_of(runs[0].config)[0]
    with ProgressDisplay(runs, waiting, console or Terminal(stderr=True), metric) as display:
        if waiting:
            runner.run(waiting, domain, display)
