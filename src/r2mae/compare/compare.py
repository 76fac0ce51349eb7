"""``compare``: run schemes × seeds, resume what was interrupted, and gather all finished runs."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, SupportsFloat, SupportsIndex

from rich.console import Console

from r2mae.compare.checks import check_data, check_folders, check_sweep, run_missing
from r2mae.compare.cluster_options import ClusterOptions
from r2mae.compare.comparison import Comparison
from r2mae.compare.dask_runner import runner_of
from r2mae.compare.gather import gather
from r2mae.compare.measure import check_baselines
from r2mae.compare.run import Processes
from r2mae.compare.run_states import (
    check_options_agree,
    finished_runs,
    read_looks,
    read_shared_fields,
    shared_differences,
    shared_fields,
)
from r2mae.compare.runs import (
    against_label,
    baseline_variants,
    default_label,
    listed,
    plan_variants,
    runs_of,
    seeds_of,
)
from r2mae.domains.base import Domain
from r2mae.errors import UserError
from r2mae.files import UNFINISHED, write_json
from r2mae.spawned import end_if_started_by_script
from r2mae.training.config import RunConfig
from r2mae.training.folder import FolderLock


def compare(
    base: RunConfig,
    domain: Domain,
    *,
    schemes: str | Iterable[str],
    options: Mapping[str, Any] | None = None,
    seeds: SupportsIndex | Iterable[SupportsIndex],
    out: Path,
    ratios: SupportsFloat | Iterable[SupportsFloat] | None = None,
    baselines: str | Iterable[str] = (),
    against: float | str | None = None,
    jobs: int | None = None,
    cluster: ClusterOptions | None = None,
    console: Console | None = None,
) -> Comparison:
    """Run the missing runs of a comparison, and gather all finished runs in its folder.

    Finished runs are never repeated; interrupted runs are resumed. By default every run uses one thread, so that its
    result does not depend on the number of runs at a time.

    Parameters
    ----------
    base : RunConfig
        The fields that all runs share.
    domain : Domain
        Domain of the data.
    schemes, options, ratios
        See :func:`r2mae.compare.runs.plan_variants`.
    baselines : str or iterable of str
        Baselines to measure in addition, from :meth:`~r2mae.domains.base.Domain.baselines_of`.
    against : float or str, optional
        A fixed ratio or a scheme of the comparison, with which the headline compares the others. The default is the
        best fixed ratio.
    seeds : int or iterable of int
        Their number, or which. A seed determines weights, data order, masks and (for sets without an official test
        part) the split.
    out : Path
        Folder of the comparison.
    jobs : int, optional
        Number of processes. The default is one per core, or one with an accelerator.
    cluster : ClusterOptions, optional
        The cluster whose workers do the runs, instead of processes of this machine.
    console : Console, optional
        Where progress is shown.

    Raises
    ------
    UserError
        If a run fails (the others are kept), or the folder belongs to other configurations.
    """
    end_if_started_by_script()
    here = cluster is None
    check_sweep(base, here=here)
    runner = runner_of(cluster, jobs, base.machine.device, out)
    base = base.replace(threads=base.machine.threads or 1)
    variants, seeds = plan_variants(base, schemes, options, ratios), seeds_of(seeds)
    named = against_label(against, variants)
    baselines = listed("baselines", baselines, str)
    check_baselines(base, domain, baselines)
    variants += baseline_variants(base, baselines, variants)
    runs = runs_of(variants, seeds, out)
    at_once = runner.at_once(len(runs)) if isinstance(runner, Processes) else 1
    check_data(runs, domain, here=here, jobs=at_once)  # before the folder is made
    with FolderLock(out):
        _prepare_folder(out, base)
        earlier = finished_runs(out, domain, base, skip={run.folder for run in runs})
        check_folders([*runs, *earlier], domain)  # the report covers both
        check_options_agree([*earlier, *runs])
        write_json(out / "compare.json", shared_fields(base))
        run_missing(runs, domain, runner, console=console)
        labels = {"default_fixed_label": default_label(base, options), "against": named}
        everything = finished_runs(out, domain, base, [variant.label for variant in variants])
        return gather(everything, domain, base, extra=labels)


_COMPARISON_FILES = {
    "runs", "figures", "compare.json", "looks.json", "results.csv", "times.csv", "results.json", "report.html",
}  # fmt: skip


def _prepare_folder(out: Path, base: RunConfig) -> None:
    """Refuse a folder with other files, or with a comparison of another configuration; delete half-written files."""
    names = [entry.name for entry in out.iterdir() if not entry.name.startswith(".")]
    foreign, file = [name for name in names if name not in _COMPARISON_FILES], out / "compare.json"
    if foreign and not file.exists():
        raise UserError(f"{out} holds other files ({foreign[0]}) and no comparison: choose another --out")
    if file.exists():
        written = read_shared_fields(out)
        if written["domain"] != base.domain:
            raise UserError(f"{out} holds a comparison of the domain {written['domain']!r}: choose another --out")
        for name, (value, its) in shared_differences(base, type(base).from_dict(written, source=str(file))).items():
            raise UserError(
                f"{out} holds a comparison with another configuration ({name} is {its!r} there and "
                f"{value!r} here): choose another --out, or repeat its options"
            )
    read_looks(out)  # a damaged file is named before anything is trained
    for unfinished in out.glob(f".*{UNFINISHED}"):
        unfinished.unlink(missing_ok=True)
