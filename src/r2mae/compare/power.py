"""What a planned comparison can decide, from the spread of a pilot's paired differences. Nothing is run or written."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from r2mae.compare.compare import check_belongs
from r2mae.compare.estimate import elapsed
from r2mae.compare.finished import check_folder, check_options_agree, finished_runs, read_shared_fields, shared_fields
from r2mae.compare.variants import plan_variants
from r2mae.domains.contract import Domain
from r2mae.domains.lookup import domain_of_run
from r2mae.errors import UserError, unknown
from r2mae.evaluation.metrics import Metric
from r2mae.evaluation.pairing import REASONS, SEEDS_AND_ITEMS, SampledOver
from r2mae.evaluation.pilot import Pilot, pilot_of
from r2mae.evaluation.power import CONFIDENCE, POWER
from r2mae.report.analysis import Analysis, analyse, fixed_labels, scores_by_seed
from r2mae.report.comparison import Comparison
from r2mae.report.differences import Reference
from r2mae.report.wording import listing
from r2mae.sweep.gather import items_by_run, ordered_runs, table_of
from r2mae.sweep.processes import Processes
from r2mae.sweep.runner import check_sweep, finished
from r2mae.sweep.runs import SweepRun, Variant, runs_of
from r2mae.training.config import RunConfig
from r2mae.training.scheme_defaults import ratios_of
from r2mae.training.scheme_options import as_used

FRACTION = 0.05
"""A difference matters by default from this share of the reference's distance to a perfect score."""
SURE = 0.8
"""Confidence of the upper limit of the pilot's spread."""
WORTH = 50
"""Seeds; no more are advised, whatever would decide a difference that matters."""
_YARDSTICK = "r2mae"  # the row that other schemes are compared with beside the best fixed ratio
_FEWEST = 2
_ENOUGH = 3  # seeds of the pilot that errors advise


@dataclass(frozen=True)
class Decision:
    """What the plan can decide about one difference.

    Parameters
    ----------
    metric, label, against : str
        Label minus `against`, in the unit of the metric.
    pairs : int
        Seeds of the pilot that have both.
    difference, sd, sd_high : float
        The pilot's mean difference, the standard deviation over its seeds, and the upper limit of that.
    items_sd : float
        What test items add to the standard error of the difference, whatever the number of seeds; NaN if the interval
        will be over seeds alone.
    decides, decides_high : float
        The smallest true difference that the planned seeds decide, for the spread `sd` and for its upper limit.
    matters : float
        The difference that matters.
    seeds, seeds_high : int or None
        How many seeds decide it, for either spread; None if more than anybody would run, if test items hide it at any
        number, or if nothing tells the spread.
    over, why : str
        What the interval under the planned seeds will be over, and why: as in the report.
    items : int
        How many test items the scores are means over; 0 if the interval will be over seeds alone.
    """

    metric: str
    label: str
    against: str
    pairs: int
    difference: float
    sd: float
    sd_high: float
    items_sd: float
    decides: float
    decides_high: float
    matters: float
    seeds: int | None
    seeds_high: int | None
    over: SampledOver
    why: str
    items: int


@dataclass(frozen=True)
class PowerPlan:
    """What a planned comparison can decide, and takes.

    Parameters
    ----------
    pilot : str
        Its folder.
    pilot_seeds, seeds : tuple of int
        Seeds of the pilot, and of the plan.
    metrics : tuple of Metric
        The first is that of the headline.
    decisions : tuple of Decision
        Metric by metric.
    given : mapping of str to float
        Differences that matter by metric, as given; others are :data:`FRACTION` of the distance to a perfect score.
    differs : tuple of str
        Fields in which the pilot's runs differ from the planned ones.
    runs, left : int
        Planned runs, and those that are not finished.
    seconds_per_seed, seconds, elapsed : float
        Training time by the pilot's runs: of all rows under one seed, of the runs left, and until the last of them ends
        with `jobs` at a time. NaN where the pilot does not tell, or its runs differ.
    jobs : int
        Runs at the same time.
    """

    pilot: str
    pilot_seeds: tuple[int, ...]
    seeds: tuple[int, ...]
    metrics: tuple[Metric, ...]
    decisions: tuple[Decision, ...]
    given: Mapping[str, float]
    differs: tuple[str, ...]
    runs: int
    left: int
    seconds_per_seed: float
    seconds: float
    elapsed: float
    jobs: int

    def of(self, metric: str) -> list[Decision]:
        """Return the decisions about one metric."""
        return [one for one in self.decisions if one.metric == metric]

    def to_dict(self) -> dict[str, Any]:
        """Return plain types."""
        told = asdict(self)
        metrics = [{"name": m.name, "label": m.label, "higher_is_better": m.higher_is_better} for m in self.metrics]
        return {"power": POWER, "confidence": CONFIDENCE, "sd_limit": SURE, **told, "metrics": metrics}


def plan_power(
    base: RunConfig,
    domain: Domain,
    *,
    schemes: Sequence[str],
    seeds: Sequence[int],
    out: Path,
    ratios: Sequence[float] | None = None,
    pilot: Path | None = None,
    matters: Mapping[str, float] | None = None,
    jobs: int | None = None,
) -> PowerPlan:
    """Return what a comparison with these arguments can decide; folders are only read.

    Parameters
    ----------
    base, domain, schemes, seeds, out, ratios, jobs
        As of :func:`r2mae.compare.compare.compare`.
    pilot : Path, optional
        Folder of a comparison with two or more seeds of every row; by default `out`.
    matters : mapping of str to float, optional
        By the name of a metric, or by "" for that of the headline, the difference that matters.

    Raises
    ------
    UserError
        If the pilot has no two seeds of a row, is of another domain, or there is nothing to compare.
    """
    check_sweep(base)
    processes = Processes(jobs, base.device)
    rows = plan_variants(base, ratios_of(domain, base), schemes, ratios)
    if len(rows) < _FEWEST:
        raise UserError("one row cannot be compared with anything: name more in --schemes, or --ratios")
    folder = out if pilot is None else pilot
    runs = _pilot_runs(folder, pilot is not None, domain, base, rows, seeds)
    _check_enough(runs, rows, base, schemes, ratios, folder)
    comparison = _comparison(runs, domain, base)
    analysis = analyse(comparison)
    given = _named(matters or {}, analysis)
    planned = runs_of(rows, seeds, out)
    waiting = [run for run in planned if not finished(run)]
    differs = _differing(runs, rows, domain)
    # Of runs of another length or size nothing is known of the planned ones' time.
    seconds = {} if differs else comparison.table.groupby("label")["seconds"].mean().to_dict()
    each = [float(seconds.get(run.variant.label, math.nan)) for run in waiting]
    at_once = processes.at_once(max(1, len(waiting)))
    return PowerPlan(
        pilot=str(folder),
        pilot_seeds=tuple(sorted({run.seed for run in runs})),
        seeds=tuple(seeds),
        metrics=analysis.judged_metrics,
        decisions=tuple(
            one for m in analysis.judged_metrics for one in _decisions(comparison, analysis, m, len(seeds), given)
        ),
        given=given,
        differs=differs,
        runs=len(planned),
        left=len(waiting),
        seconds_per_seed=sum(float(seconds.get(row.label, math.nan)) for row in rows),
        seconds=sum(each),
        elapsed=elapsed(each, at_once) if np.isfinite(each).all() else math.nan,
        jobs=at_once,
    )


def _pilot_runs(
    folder: Path, elsewhere: bool, domain: Domain, base: RunConfig, rows: Sequence[Variant], seeds: Sequence[int]
) -> list[SweepRun]:
    """Return the finished runs of the planned rows in the pilot's folder; none if there is no such folder."""
    labels = [row.label for row in rows]
    if elsewhere:
        check_folder(folder)
        shared = read_shared_fields(folder)
        if shared["domain"] != domain.name:
            raise UserError(
                f"{folder} compares runs of the domain {shared['domain']}, and not of {domain.name}: name another"
            )
        theirs = domain_of_run(shared, folder)
        there = domain.config.from_dict(
            {**theirs.config.old_measurement_settings, **shared}, source=str(folder / "compare.json")
        )
        found = finished_runs(folder, domain, there)
    elif folder.is_dir():
        check_belongs(folder, shared_fields(base), base.measurement_fields)
        found = finished_runs(folder, domain, base)
        check_options_agree([*found, *runs_of(rows, seeds, folder)], domain)
    else:
        found = []
    return [run for run in found if run.variant.label in labels and not run.variant.baseline]


def _check_enough(
    runs: Sequence[SweepRun],
    rows: Sequence[Variant],
    base: RunConfig,
    schemes: Sequence[str],
    ratios: Sequence[float] | None,
    folder: Path,
) -> None:
    """Refuse a pilot that lacks a row, or has one seed of it; the message says how to make one."""
    lacking = [row.label for row in rows if sum(run.variant.label == row.label for run in runs) < _FEWEST]
    if not lacking:
        return
    grid = "" if ratios is None else f" --ratios {' '.join(f'{ratio:g}' for ratio in ratios)}"
    command = (
        f"r2mae compare {base.domain} {base.data} --schemes {' '.join(schemes)}{grid} --seeds {_ENOUGH} --out {folder}"
    )
    raise UserError(
        f"a pilot needs two or more seeds of every row, and {folder} has no two of {listing(lacking)}: make one with "
        f"{command}, and the options of the plan"
    )


def _comparison(runs: Sequence[SweepRun], domain: Domain, base: RunConfig) -> Comparison:
    curves = pd.DataFrame(columns=["label", "seed", "step", "loss", "validation_loss"])
    items = items_by_run(runs)
    return Comparison(Path(base.data).name, domain.metrics_of(base), table_of(ordered_runs(runs)), curves, items=items)


def _named(matters: Mapping[str, float], analysis: Analysis) -> dict[str, float]:
    """Return the differences that matter by the names of metrics."""
    known = [metric.name for metric in analysis.judged_metrics]
    given = {}
    for name, size in matters.items():
        if name and name not in known:
            raise unknown("metric", name, known)
        given[name or known[0]] = size
    return given


def _decisions(
    comparison: Comparison, analysis: Analysis, metric: Metric, seeds: int, given: Mapping[str, float]
) -> list[Decision]:
    """Return what can be decided about every scheme against the best fixed ratio, and against R²MAE."""
    table, fixed = scores_by_seed(comparison, metric.name), fixed_labels(comparison)
    choice = analysis.best_fixed.get(metric.name)
    references = [] if choice is None else [choice.reference]
    if _YARDSTICK in table:
        references.append(Reference.of_label(_YARDSTICK, table[_YARDSTICK].dropna()))
    found = []
    for reference in references:
        size = given.get(metric.name) or matters_by_default(metric, float(np.mean(list(reference.scores.values()))))
        for label in table:
            if label in fixed or label == reference.name:
                continue
            own = table[label].dropna()
            pairs = [int(seed) for seed in own.index if int(seed) in reference.scores]
            if len(pairs) < _FEWEST:
                continue
            mine = own[pairs].to_numpy(float)
            pilot = pilot_of(
                mine,
                reference.partner(mine, pairs),
                [comparison.items.get((str(label), seed)) for seed in pairs],
                [comparison.items.get((reference.labels[seed], seed)) for seed in pairs],
                metric.name,
            )
            found.append(_decision(metric.name, str(label), reference.name, pilot, seeds, size))
    return found


def matters_by_default(metric: Metric, mean: float) -> float:
    """Return :data:`FRACTION` of the distance of a mean to a perfect score; of its size where no score is perfect."""
    perfect = metric.bounds[1 if metric.higher_is_better else 0]
    return FRACTION * abs((perfect if math.isfinite(perfect) else 0.0) - mean)


def _decision(metric: str, label: str, against: str, pilot: Pilot, seeds: int, matters: float) -> Decision:
    high = pilot.with_upper_limits(SURE)
    over, reason = pilot.over(seeds)
    items = 0 if pilot.squares is None or over != SEEDS_AND_ITEMS else pilot.squares.total_items
    return Decision(
        metric=metric,
        label=label,
        against=against,
        pairs=pilot.pairs,
        difference=pilot.difference,
        sd=pilot.sd,
        sd_high=high.sd,
        items_sd=pilot.items_sd if items else math.nan,
        decides=pilot.smallest_detectable(seeds),
        decides_high=high.smallest_detectable(seeds),
        matters=matters,
        seeds=pilot.seeds_needed(matters),
        seeds_high=high.seeds_needed(matters),
        over=over,
        why=REASONS[reason],
        items=items,
    )


def _differing(runs: Sequence[SweepRun], rows: Sequence[Variant], domain: Domain) -> tuple[str, ...]:
    """Return the fields in which runs of the pilot differ from planned ones, but for what makes no difference."""
    planned = {row.label: row.config for row in rows}
    found: dict[str, None] = {}
    for run in runs:
        mine, theirs = (as_used(one, ratios_of(domain, one)) for one in (planned[run.variant.label], run.config))
        found |= dict.fromkeys(name for name in mine.differences(theirs) if name != "seed")
        how, other = mine.measurement_settings(), theirs.measurement_settings()
        found |= dict.fromkeys(name for name in how if how[name] != other.get(name))
    return tuple(found)
