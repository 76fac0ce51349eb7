"""The paired differences of a comparison: each variant against the best fixed ratio, and the default fixed ratio."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float64

from r2mae.evaluation.metrics import Metric
from r2mae.evaluation.pairing import REASONS, SEEDS_AND_ITEMS, compare_paired
from r2mae.evaluation.statistics import wider_partner
from r2mae.report.comparison import Comparison
from r2mae.report.wording import BEST_FIXED, CONFIDENCE, listing

DIFFERENCE_COLUMNS = (
    "label", "metric", "against", "mean", "low", "high", "n", "method", "verdict", "decides", "over", "why", "items",
)  # fmt: skip
_FLOAT_COLUMNS = ("mean", "low", "high", "decides")


@dataclass(frozen=True)
class Reference:
    """The scores that variants are compared with in a metric.

    Parameters
    ----------
    name : str
        "best fixed", or the label of a variant.
    scores : mapping of int to float
        Score by seed.
    labels : mapping of int to str
        Label of the variant of each score.
    pseudo : mapping of int to float, optional
        Pseudo-values of the scores, if the variant was chosen by its scores.
    """

    name: str
    scores: Mapping[int, float]
    labels: Mapping[int, str]
    pseudo: Mapping[int, float] | None = None

    @classmethod
    def of_label(cls, label: str, scores: "pd.Series[float]") -> "Reference":
        """Return a single variant as a reference."""
        by_seed = {int(str(seed)): float(score) for seed, score in scores.items()}
        return cls(label, by_seed, dict.fromkeys(by_seed, label))

    @property
    def single(self) -> str | None:
        """The label of all scores if there is only one, else None."""
        found = set(self.labels.values())
        return found.pop() if len(found) == 1 else None

    def partner(self, values: Float64[np.ndarray, " seeds"], seeds: Sequence[int]) -> Float64[np.ndarray, " seeds"]:
        """Return the values that a variant's scores under these seeds are paired with; their mean is the reference's.

        They are the reference's scores, or its pseudo-values where these give the wider interval
        (:func:`r2mae.evaluation.statistics.wider_partner`).
        """
        scores = np.array([self.scores[seed] for seed in seeds])
        if self.pseudo is None:
            return scores
        pseudo = np.array([self.pseudo[seed] for seed in seeds])
        return wider_partner(values, scores, pseudo + (scores.mean() - pseudo.mean()))


def differences_of(
    comparison: Comparison, metric: Metric, scores: pd.DataFrame, references: Sequence[Reference]
) -> list[tuple[Any, ...]]:
    """Return the lines of :data:`DIFFERENCE_COLUMNS` for a metric with a direction.

    Parameters
    ----------
    comparison : Comparison
        The runs to compare.
    metric : Metric
        Metric of the scores.
    scores : DataFrame, seeds × labels
        NaN if a run has no score.
    references : sequence of Reference
        References for every variant but the reference itself.
    """
    lines = []
    recorded = _recorded_lines(comparison)
    for reference in references:
        for label in map(str, scores.columns):
            seeds = [int(seed) for seed in scores.index[scores[label].notna()] if int(seed) in reference.scores]
            if label == reference.name or not seeds:
                continue
            written = recorded.get((label, metric.name, reference.name))
            lines.append(written or _line(comparison, metric, scores, reference, label, seeds))
    return lines


def _line(
    comparison: Comparison, metric: Metric, scores: pd.DataFrame, reference: Reference, label: str, seeds: list[int]
) -> tuple[Any, ...]:
    values = scores.loc[seeds, label].to_numpy(dtype=np.float64)
    itself = reference.name == BEST_FIXED and label == reference.single
    found = compare_paired(
        values,
        values if itself else reference.partner(values, seeds),
        [comparison.items.get((label, seed)) for seed in seeds],
        [comparison.items.get((reference.labels[seed], seed)) for seed in seeds],
        metric.name,
        higher_is_better=bool(metric.higher_is_better),
        confidence=CONFIDENCE,
    )
    one = found.difference
    verdict, decides = ("same", np.nan) if itself else (one.verdict, found.smallest_detectable)
    numbers = (one.mean, one.low, one.high, one.n, one.method)
    return (
        label,
        metric.name,
        reference.name,
        *numbers,
        verdict,
        decides,
        found.over,
        REASONS[found.reason],
        found.items,
    )


def _recorded_lines(comparison: Comparison) -> dict[tuple[str, str, str], tuple[Any, ...]]:
    """Return the recorded lines of a comparison that was read without its runs, by label, metric and reference."""
    if comparison.recorded is None:
        return {}
    lines = comparison.recorded[list(DIFFERENCE_COLUMNS)].itertuples(index=False, name=None)
    return {(line[0], line[1], line[2]): line for line in lines}


def read_differences(records: Any) -> pd.DataFrame | None:
    """Return the differences in ``results.json``; None if an older version wrote it, with intervals over seeds alone.

    Raises
    ------
    TypeError, ValueError
        If `records` are no table of differences.
    """
    table = pd.DataFrame(records)
    if not set(DIFFERENCE_COLUMNS) <= set(table.columns):
        return None
    integers = {"n": int, "items": int}
    return table[list(DIFFERENCE_COLUMNS)].astype({**dict.fromkeys(_FLOAT_COLUMNS, float), **integers})


def interval_sentences(differences: pd.DataFrame, metric: Metric, against: str) -> list[str]:
    """Return a sentence that says whether a metric's intervals are over seeds, or seeds and items, and why.

    The list is empty without intervals.
    """
    rows = intervals_against(differences, metric, against)
    groups = [
        (str(over), str(why), part) for (over, why), part in rows.groupby(["over", "why"], sort=False, dropna=False)
    ]
    parts = []
    for over, why, part in groups:
        whose = "" if len(groups) == 1 else f" for {listing([str(label) for label in part['label']])}"
        if over == SEEDS_AND_ITEMS:
            parts.append(f"over seeds and the {int(part['items'].max()):,} test items{whose}, as {why}")
        else:
            parts.append(f"over seeds alone{whose}, as {why}")
    return [f"Intervals of the differences in {metric.label} are {'; '.join(parts)}."] if parts else []


def intervals_against(differences: pd.DataFrame, metric: Metric, against: str) -> pd.DataFrame:
    """Return the differences from one reference in a metric that have an interval."""
    return differences[
        (differences["metric"] == metric.name)
        & (differences["against"] == against)
        & (differences["n"] > 1)
        & (differences["verdict"] != "same")
    ]
