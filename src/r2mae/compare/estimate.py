"""What a comparison will cost: runs, steps, memory, time and disk, of a short timing of every variant."""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from r2mae.compare.compare import check_belongs
from r2mae.compare.finished import check_options_agree, finished_runs, shared_fields
from r2mae.compare.variants import baseline_variants, plan_variants
from r2mae.domains.contract import Domain
from r2mae.sweep.measure import check_baselines, log_notes
from r2mae.sweep.processes import Processes
from r2mae.sweep.run_states import last_step
from r2mae.sweep.runner import check_baseline_sizes, check_folders, check_sweep, finished
from r2mae.sweep.runs import SweepRun, runs_of
from r2mae.training.config import RunConfig
from r2mae.training.folder import RunFolder
from r2mae.training.memory_check import check_fits_memory
from r2mae.training.run import Run
from r2mae.training.scheme_defaults import ratios_of
from r2mae.training.timing import SECONDS, Timing, time_steps

_METRICS = 64  # bytes of a line in metrics.csv, about
_FILES = 16_384  # bytes of the small files of a run folder, about


@dataclass(frozen=True)
class VariantEstimate:
    """What a variant of a comparison takes.

    Parameters
    ----------
    label : str
        The variant.
    runs, finished : int
        Runs of the variant, and how many of them are finished already.
    steps, steps_left : int
        Optimiser steps of one run, and of all its unfinished runs together from where they are.
    seconds_per_run : float
        Training time of one whole run, with validation; measuring it comes on top.
    disk : int
        Bytes of a finished run's folder.
    timing : Timing
        From which this was computed.
    """

    label: str
    runs: int
    finished: int
    steps: int
    steps_left: int
    seconds_per_run: float
    disk: int
    timing: Timing


@dataclass(frozen=True)
class Estimate:
    """What a comparison takes.

    Parameters
    ----------
    variants : tuple of VariantEstimate
        Those that are pretrained and not yet finished.
    baselines, runs, finished : int
        Baselines to be measured (variants × seeds), runs in all, and those that are finished, baselines aside.
    jobs : int
        Runs at the same time.
    seconds, elapsed : float
        Training time of all unfinished runs together, and until the last of them ends.
    memory : int
        Bytes that `jobs` runs of the largest variant take at the same time, without the data.
    disk : int
        Bytes that unfinished runs will add to the folder.
    at_most : bool
        Whether early stopping may make runs shorter.
    """

    variants: tuple[VariantEstimate, ...]
    baselines: int
    runs: int
    finished: int
    jobs: int
    seconds: float
    elapsed: float
    memory: int
    disk: int
    at_most: bool

    def to_dict(self) -> dict[str, Any]:
        """Return plain types."""
        variants = [
            {**asdict(variant), "timing": {**asdict(variant.timing), "memory": variant.timing.memory}}
            for variant in self.variants
        ]
        return {"estimate": True, **asdict(self), "rows": variants}


def estimate(
    base: RunConfig,
    domain: Domain,
    *,
    schemes: Sequence[str],
    seeds: Sequence[int],
    out: Path,
    ratios: Sequence[float] | None = None,
    baselines: Sequence[str] = (),
    jobs: int | None = None,
    seconds: float = SECONDS,
    progress: Callable[[int, int], None] | None = None,
) -> Estimate:
    """Return what :func:`r2mae.compare.compare.compare` would do with these arguments; `out` is only read.

    Every variant with unfinished runs is trained for a few steps. Runs at the same time share a machine, so that each
    may be slower than this.

    Parameters
    ----------
    base, domain, schemes, seeds, out, ratios, baselines, jobs
        As there.
    seconds : float
        Time for each variant.
    progress : callable, optional
        Called with the number of variants that are timed, and of all that will be.

    Raises
    ------
    UserError
        For all that the comparison would refuse, but for a folder that another process works in.
    """
    check_sweep(base)
    runner = Processes(jobs, base.device)
    base = replace(base, threads=base.threads or 1)
    numbers = ratios_of(domain, base)
    variants = plan_variants(base, numbers, schemes, ratios)
    check_baselines(base, domain, baselines)
    beside = baseline_variants(base, baselines, variants)
    runs = runs_of([*variants, *beside], seeds, out)
    data = log_notes(domain.load(runs[0].config))
    check_baseline_sizes(runs, domain, data, runner.at_once(len(runs)))
    check_fits_memory(base, domain, data)
    _check_folder(out, runs, domain, base)
    waiting = [run for run in runs if not finished(run)]
    training = [run for run in waiting if not run.variant.baseline]
    timed = [variant for variant in variants if any(run.variant is variant for run in training)]
    found: list[VariantEstimate] = []
    for variant in timed:
        if progress is not None:
            progress(len(found), len(timed))
        timing = time_steps(
            Run.resolve(replace(variant.config, seed=seeds[0]), domain, single_process=True), data, seconds=seconds
        )
        ours = [run for run in training if run.variant is variant]
        found.append(_row(ours, len(seeds), timing, len(data.train), held_out=data.validation is not None))
    at_once = runner.at_once(max(1, len(waiting)))
    lasting = {one.label: one.seconds_per_run / one.steps for one in found}
    each = [lasting[run.variant.label] * _left(run, len(data.train)) for run in training]
    return Estimate(
        variants=tuple(found),
        baselines=len(waiting) - len(training),
        runs=len(variants) * len(seeds),
        finished=len(variants) * len(seeds) - len(training),
        jobs=at_once,
        seconds=sum(each),
        elapsed=elapsed(each, at_once),
        memory=min(at_once, len(training)) * max((one.timing.memory for one in found), default=0),
        disk=sum((one.runs - one.finished) * one.disk for one in found),
        at_most=base.patience is not None,
    )


def elapsed(seconds: Sequence[float], jobs: int) -> float:
    """Return when the last of some runs ends, if `jobs` of them run at a time, each begun as soon as there is room."""
    ends = [0.0] * max(1, jobs)
    for one in seconds:
        heapq.heapreplace(ends, ends[0] + one)
    return max(ends)


def _row(runs: Sequence[SweepRun], seeds: int, timing: Timing, samples: int, *, held_out: bool) -> VariantEstimate:
    """Put a variant together from its unfinished runs."""
    config = runs[0].config
    steps = config.total_steps(samples)
    validations = -(-steps // config.steps_between_validations(samples)) if held_out else 0
    kept = steps // config.keep_every if config.keep_every else 0
    best = timing.model if config.keep == "best" else 0
    return VariantEstimate(
        label=runs[0].variant.label,
        runs=seeds,
        finished=seeds - len(runs),
        steps=steps,
        steps_left=sum(_left(run, samples) for run in runs),
        seconds_per_run=steps * timing.seconds_per_step + validations * timing.seconds_per_validation,
        disk=(1 + kept) * timing.checkpoint + timing.model + best + steps * _METRICS + _FILES,
        timing=timing,
    )


def _left(run: SweepRun, samples: int) -> int:
    """Return the steps that a run has left; it goes on from a checkpoint, a little before where its metrics end."""
    folder = RunFolder(run.folder)
    steps = run.config.total_steps(samples)
    if folder.trained:
        return 0
    return max(0, steps - last_step(folder)) if folder.checkpoint.exists() else steps


def _check_folder(out: Path, runs: Sequence[SweepRun], domain: Domain, base: RunConfig) -> None:
    """Refuse what the comparison would refuse of its folder, without a lock, which would be written."""
    if not out.is_dir():
        return
    check_belongs(out, shared_fields(base), base.measurement_fields)
    there = finished_runs(out, domain, base, skip={run.folder for run in runs})
    check_folders(runs, domain, locked=False)
    check_options_agree([*there, *runs], domain)
