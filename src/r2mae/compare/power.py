"""What the planned seeds of a comparison can decide, from the paired differences of runs that are finished."""

from collections.abc import Mapping, Sequence
from math import nan, sqrt
from pathlib import Path
from typing import Any

import pandas as pd

from r2mae.compare.analysis import analyse, scores_by_seed
from r2mae.compare.comparison import Comparison
from r2mae.compare.finished import check_options_agree, finished_runs
from r2mae.compare.gather import ordered_runs, table_of
from r2mae.compare.runs import Variant, runs_of
from r2mae.compare.wording import listing
from r2mae.domains.base import Domain
from r2mae.errors import UserError
from r2mae.evaluation.multiple import level_of_look
from r2mae.evaluation.power import detectable, seeds_needed
from r2mae.evaluation.statistics import Interval, paired_difference
from r2mae.training.config import RunConfig

_FEWEST = 2  # seeds of a variant that tell a standard deviation
_UNKNOWN = Interval(nan, nan, nan, 0, "none")


def plan_power(
    base: RunConfig,
    domain: Domain,
    variants: Sequence[Variant],
    seeds: Sequence[int],
    out: Path,
    against: str | None = None,
) -> list[dict[str, Any]]:
    """Compare variants as the headline does, by its metric and with intervals over seeds.

    Parameters
    ----------
    base, domain, seeds, out, against
        As of :func:`r2mae.compare.compare.compare`; `out` is only read.
    variants : sequence of Variant
        The planned ones.

    Returns
    -------
    list of dict
        For each variant: ``label``, ``against``, ``metric``; ``pairs``, the finished seeds of both; the mean
        ``difference`` and its standard deviation ``sd`` over these; ``decides``, the smallest true difference that
        the planned seeds decide four times in five; and ``seeds``, how many seeds would decide a true difference as
        large as the mean one (None: more than 10,000).

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
    metric, reference = analysis.primary.name, analysis.reference
    if reference is None or not analysis.rivals:
        partner = "the best fixed ratio: name fixed" if against is None else f"{against}: name it"
        raise UserError(f"--plan-power compares schemes with {partner} and another scheme in --schemes")
    table = scores_by_seed(comparison, metric)
    rows = []
    # What a first look decides for certain, whatever the other schemes give (r2mae.evaluation.multiple).
    confidence = 1 - level_of_look(1) / len(analysis.rivals)
    for label in analysis.rivals:
        own = table[label].dropna()
        pairs = [int(seed) for seed in own.index if int(seed) in reference.scores]
        mine = own[pairs].to_numpy(float)
        gap: Interval = paired_difference(mine, reference.partner(mine, pairs)) if pairs else _UNKNOWN
        sd, mean = gap.error * sqrt(gap.n), gap.mean
        rows.append({
            "label": label, "against": reference.name, "metric": metric, "pairs": len(pairs), "difference": mean,
            "sd": sd, "decides": detectable(sd, len(seeds), confidence=confidence),
            "seeds": seeds_needed(sd, abs(mean), confidence=confidence),
        })  # fmt: skip
    return rows


def print_power(rows: Sequence[Mapping[str, Any]], seeds: int) -> None:
    """Print a line for each variant."""
    from r2mae.terminal import print_table

    decided = f"{seeds} seeds decide", "seeds that decide the difference"
    cells = []
    for row in rows:
        needed = "more than 10,000" if row["seeds"] is None else f"{row['seeds']:,}"
        numbers = (f"{row['difference']:+.2g}", f"{row['sd']:.2g}", str(row["pairs"]), f"{row['decides']:.2g}", needed)
        cells.append((row["label"], *numbers))
    print(f"{rows[0]['metric']}, minus {rows[0]['against']}")
    print_table(("variant", "difference", "sd", "seeds so far", *decided), cells, numbers=True)
    print("decided four times in five at a first look, corrected for the schemes. Choose the seeds before they run")
