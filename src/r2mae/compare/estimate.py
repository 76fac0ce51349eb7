"""What a planned comparison takes and decides: the time of one short run times the number of runs, and its power."""

import tempfile
from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

import pandas as pd

from r2mae.compare.analysis import analyse, power_of
from r2mae.compare.checks import check_sweep
from r2mae.compare.comparison import Comparison
from r2mae.compare.gather import ordered_runs, table_of
from r2mae.compare.run import Processes
from r2mae.compare.run_states import check_options_agree, finished, finished_runs
from r2mae.compare.runs import Variant, runs_of
from r2mae.compare.wording import duration, listing
from r2mae.domains.base import Domain
from r2mae.errors import UserError
from r2mae.training.config import RunConfig
from r2mae.training.loop import fit
from r2mae.training.run import check_fits_memory

WARM_UP = 5  # optimiser steps that are not timed
ENOUGH = 1.0  # seconds of timed steps; of fewer, the noise of the clock and the last checkpoint would be a large share


def estimate(
    base: RunConfig,
    domain: Domain,
    variants: Sequence[Variant],
    seeds: Sequence[int],
    out: Path,
    *,
    jobs: int | None = None,
) -> dict[str, Any]:
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

    Returns
    -------
    dict
        ``runs``, without baselines; ``finished`` of them, and ``jobs``, how many run at the same time; ``timed``, the
        variant whose steps were timed; ``steps`` of one of its runs, and ``seconds_per_step``, with the making of
        batches; ``seconds``, the training time of all unfinished runs together, and ``elapsed``, with ``jobs`` of them
        at the same time.

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
    return {
        "runs": len(runs),
        "finished": len(runs) - len(waiting),
        "jobs": at_once,
        "timed": variants[0].label,
        "steps": steps,
        "seconds_per_step": per_step,
        "seconds": sum(each),
        "elapsed": max([sum(each) / at_once, *each]),
    }


def print_estimate(found: Mapping[str, Any]) -> None:
    """Print the time of one run, and of all."""
    done = f", {found['finished']} of them finished" if found["finished"] else ""
    per_run = duration(found["steps"] * found["seconds_per_step"])
    print(f"{found['runs']} runs{done}; a run of {found['timed']} takes about {per_run} ({found['steps']:,} steps)")
    print(
        f"training: about {duration(found['seconds'])} in all, {duration(found['elapsed'])} with {found['jobs']} at a "
        "time; start-up, validation and measuring come on top. Nothing was written"
    )


_FEWEST = 2  # seeds of a variant that tell a standard deviation


def plan_power(
    base: RunConfig,
    domain: Domain,
    variants: Sequence[Variant],
    seeds: Sequence[int],
    out: Path,
    against: str | None = None,
) -> list[dict[str, Any]]:
    """Compare variants as the headline does, by its metrics and with intervals over seeds.

    Parameters
    ----------
    base, domain, seeds, out, against
        As of :func:`r2mae.compare.compare.compare`; `out` is only read.
    variants : sequence of Variant
        The planned ones.

    Returns
    -------
    list of dict
        For each question and variant, as of :func:`r2mae.compare.analysis.power_of`.

    Raises
    ------
    UserError
        If fewer than two seeds of a variant are finished, or there is nothing to compare with, or no scheme to compare.
    """
    labels = [variant.label for variant in variants]
    found = finished_runs(out, domain, base) if out.is_dir() else []
    check_options_agree([*found, *runs_of(variants, seeds, out)])
    runs = [run for run in found if run.variant.label in labels and not run.variant.baseline]
    lacking = [label for label in labels if sum(run.variant.label == label for run in runs) < _FEWEST]
    if lacking:
        raise UserError(
            f"--plan-power needs two finished seeds of every variant, and {out} has no two of {listing(lacking)}: run "
            "the same command with --seeds 3 and without --plan-power first"
        )
    no_curves = pd.DataFrame(columns=["label", "seed", "step", "loss", "validation_loss"])
    comparison = Comparison(
        Path(base.data.source).name,
        domain.metrics_of(base),
        table_of(ordered_runs(runs)),
        no_curves,
        config={"against": against},
    )
    analysis = analyse(comparison)
    if not (analysis.references and analysis.rivals):
        partner = "the best fixed ratio: name fixed" if against is None else f"{against}: name it"
        raise UserError(f"--plan-power compares schemes with {partner} and another scheme in --schemes")
    return [row for metric in analysis.questions for row in power_of(comparison, analysis, metric, len(seeds))]


def print_power(rows: Sequence[Mapping[str, Any]], seeds: int) -> None:
    """Print a table, a line for each measure and variant, and its legend."""
    from r2mae.terminal import print_table

    cells = []
    for row in rows:
        needed = "over 10,000" if row["seeds"] is None else f"{row['seeds']:,}"
        size = f"{row['decides']:.2g}" if isfinite(row["decides"]) else "nothing"
        numbers = (f"{row['difference']:+.2g}", f"{row['sd']:.2g}", str(row["pairs"]), size, needed)
        cells.append((row["metric"], row["label"], *numbers))
    headings = (
        "measure",
        "variant",
        f"minus {rows[0]['against']}",
        "sd",
        "seeds so far",
        f"{seeds} seeds decide",
        "needed",
    )
    print_table(headings, cells, numbers=True)
    print(_LEGEND)


_LEGEND = """sd: of the difference, over seeds. decide: the smallest true difference that is decided four times in five,
at a first look and corrected for the schemes. needed: seeds for a true difference as large as the one so far."""
