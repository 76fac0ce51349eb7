"""How long a comparison will take: the time of one short run, times the number of runs."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from r2mae.compare.checks import check_sweep
from r2mae.compare.run import Processes
from r2mae.compare.run_states import finished
from r2mae.compare.runs import Variant, runs_of
from r2mae.compare.wording import duration
from r2mae.domains.base import Domain
from r2mae.training.config import RunConfig
from r2mae.training.loop import fit
from r2mae.training.run import check_fits_memory

WARM_UP = 5  # optimiser steps that are not timed
ENOUGH = 1.0  # seconds of timed steps; of fewer, the noise of the clock and the last checkpoint would be a large share


@dataclass(frozen=True)
class Estimate:
    """What a comparison takes.

    Parameters
    ----------
    runs, finished, jobs : int
        Runs in all without baselines, those that are finished, and how many run at the same time.
    timed : str
        The variant whose steps were timed.
    steps : int
        Optimiser steps of one of its runs.
    seconds_per_step : float
        Of its optimiser steps, with the making of batches.
    seconds, elapsed : float
        Training time of all unfinished runs together, and with `jobs` of them at the same time.
    """

    runs: int
    finished: int
    jobs: int
    timed: str
    steps: int
    seconds_per_step: float
    seconds: float
    elapsed: float


def estimate(
    base: RunConfig,
    domain: Domain,
    variants: Sequence[Variant],
    seeds: Sequence[int],
    out: Path,
    *,
    jobs: int | None = None,
) -> Estimate:
    """Time a few steps of the first variant, in a temporary folder; `out` is only read.

    The number of timed steps grows until they take :data:`ENOUGH`. A first run is not timed, since it imports and
    compiles what later ones have. Validation, measuring and start-up of runs come on top, and runs at the same time
    share a machine.

    Parameters
    ----------
    base, domain, seeds, out, jobs
        As of :func:`r2mae.compare.compare.compare`.
    variants : sequence of Variant
        The planned ones.

    Raises
    ------
    UserError
        For options and data that the comparison would refuse.
    """
    check_sweep(base)
    runner = Processes(jobs, base.machine.device)
    config = variants[0].config.replace(threads=base.machine.threads or 1, seed=seeds[0])
    data = domain.load(config)
    check_fits_memory(config, domain, data)
    runs = runs_of(variants, seeds, out)
    waiting = [run for run in runs if not finished(run)]
    steps = config.optimizer.total_steps(len(data.train))
    short = config.replace(steps=WARM_UP, epochs=1, validation=0.0, validate_every=None, patience=None, logger="none")
    with tempfile.TemporaryDirectory() as temporary:

        def seconds_of(count: int, name: str) -> float:
            return fit(short.replace(steps=count), domain, Path(temporary) / name, data=data).seconds

        seconds_of(WARM_UP, "first")
        before, timed, taken = seconds_of(WARM_UP, "warm-up"), 0, 0.0
        while taken < ENOUGH and timed < steps:
            timed = max(4 * timed, 10)
            taken = seconds_of(WARM_UP + timed, str(timed)) - before
    per_step = max(taken, 0.0) / timed
    at_once = runner.at_once(max(1, len(waiting)))
    each = [per_step * run.config.optimizer.total_steps(len(data.train)) for run in waiting]
    return Estimate(
        runs=len(runs),
        finished=len(runs) - len(waiting),
        jobs=at_once,
        timed=variants[0].label,
        steps=steps,
        seconds_per_step=per_step,
        seconds=sum(each),
        elapsed=max([sum(each) / at_once, *each]),
    )


def print_estimate(estimate: Estimate) -> None:
    """Print the time of one run, and of all."""
    done = f", {estimate.finished} of them finished" if estimate.finished else ""
    per_run = duration(estimate.steps * estimate.seconds_per_step)
    print(f"{estimate.runs} runs{done}; a run of {estimate.timed} takes about {per_run} ({estimate.steps:,} steps)")
    print(
        f"training: about {duration(estimate.seconds)} in all, {duration(estimate.elapsed)} with {estimate.jobs} at a "
        "time; start-up, validation and measuring come on top. Nothing was written"
    )
