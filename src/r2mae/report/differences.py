"""The paired differences of a comparison: each row against the best fixed ratio, and against the default one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float64

from r2mae.evaluation.metrics import Metric
from r2mae.evaluation.pairing import BOTH, WHY, paired
from r2mae.evaluation.statistics import wider_partner
from r2mae.report.comparison import Comparison
from r2mae.report.wording import BEST_FIXED, CONFIDENCE, listing

DIFFERENCE_COLUMNS = (
    "label", "metric", "against", "mean", "low", "high", "n", "method", "verdict", "decides", "over", "why", "items",
)  # fmt: skip
_FLOAT_COLUMNS = ("mean", "low", "high", "decides")


@dataclass(frozen=True)
class Reference:
    """What rows are compared with in a metric.

    Parameters
    ----------
    name : str
        "best fixed", or the label of a row.
    scores : mapping of int to float
        By seed.
    labels : mapping of int to str
        The row that each score is of.
    pseudo : mapping of int to float, optional
        Pseudo-values of the scores, where the row was chosen.
    """

    name: str
    scores: Mapping[int, float]
    labels: Mapping[int, str]
    pseudo: Mapping[int, float] | None = None

    @classmethod
    def of_label(cls, label: str, scores: "pd.Series[float]") -> "Reference":
        """Return a row as a reference."""
        by_seed = {int(str(seed)): float(score) for seed, score in scores.items()}
        return cls(label, by_seed, dict.fromkeys(by_seed, label))

    @property
    def single(self) -> str | None:
        """The row that all scores are of, if it is one."""
        found = set(self.labels.values())
        return found.pop() if len(found) == 1 else None

    def partner(self, mine: Float64[np.ndarray, " seeds"], seeds: Sequence[int]) -> Float64[np.ndarray, " seeds"]:
        """Return what the scores of a row under these seeds are paired with; its mean is that of the scores here."""
        scores = np.array([self.scores[seed] for seed in seeds])
        if self.pseudo is None:
            return scores
        pseudo = np.array([self.pseudo[seed] for seed in seeds])
        return wider_partner(mine, scores, pseudo + (scores.mean() - pseudo.mean()))


def differences_of(
    comparison: Comparison, metric: Metric, scores: pd.DataFrame, references: Sequence[Reference]
) -> list[tuple[Any, ...]]:
    """Return the lines of :data:`DIFFERENCE_COLUMNS` of a metric, which has a better and a worse.

    Parameters
    ----------
    comparison : Comparison
        Whose runs are compared.
    metric : Metric
        Of the scores.
    scores : DataFrame, seeds × labels
        NaN where a run has none.
    references : sequence of Reference
        What every row but the reference itself is compared with.
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
    mine = scores.loc[seeds, label].to_numpy(dtype=np.float64)
    itself = reference.name == BEST_FIXED and label == reference.single
    found = paired(
        mine,
        mine if itself else reference.partner(mine, seeds),
        [comparison.items.get((label, seed)) for seed in seeds],
        [comparison.items.get((reference.labels[seed], seed)) for seed in seeds],
        metric.name,
        higher_is_better=bool(metric.higher_is_better),
        confidence=CONFIDENCE,
    )
    one = found.difference
    verdict, decides = ("same", np.nan) if itself else (one.verdict, found.decides)
    numbers = (one.mean, one.low, one.high, one.n, one.method)
    return (label, metric.name, reference.name, *numbers, verdict, decides, found.over, WHY[found.reason], found.items)


def _recorded_lines(comparison: Comparison) -> dict[tuple[str, str, str], tuple[Any, ...]]:
    """Return the lines that were written of a comparison whose runs are not here, by row, metric and reference."""
    if comparison.recorded is None:
        return {}
    lines = comparison.recorded[list(DIFFERENCE_COLUMNS)].itertuples(index=False, name=None)
    return {(line[0], line[1], line[2]): line for line in lines}


def read_differences(said: Any) -> pd.DataFrame | None:
    """Return the differences that ``results.json`` tells; None if an older version wrote it, which took seeds alone.

    Raises
    ------
    TypeError, ValueError
        If they are no table of differences.
    """
    table = pd.DataFrame(said)
    if not set(DIFFERENCE_COLUMNS) <= set(table.columns):
        return None
    whole = {"n": int, "items": int}
    return table[list(DIFFERENCE_COLUMNS)].astype({**dict.fromkeys(_FLOAT_COLUMNS, float), **whole})


def interval_sentences(differences: pd.DataFrame, metric: Metric, against: str) -> list[str]:
    """Say whether the intervals of the differences in a metric are over seeds alone or over items, too, and why.

    Nothing is said where there is no interval.
    """
    rows = intervals_against(differences, metric, against)
    groups = [
        (str(over), str(why), part) for (over, why), part in rows.groupby(["over", "why"], sort=False, dropna=False)
    ]
    told = []
    for over, why, part in groups:
        whose = "" if len(groups) == 1 else f" for {listing([str(label) for label in part['label']])}"
        if over == BOTH:
            told.append(f"over seeds and the {int(part['items'].max()):,} test items{whose}, as {why}")
        else:
            told.append(f"over seeds alone{whose}, as {why}")
    return [f"Intervals of the differences in {metric.label} are {'; '.join(told)}."] if told else []


def intervals_against(differences: pd.DataFrame, metric: Metric, against: str) -> pd.DataFrame:
    """Return the differences in a metric from one reference that have an interval."""
    return differences[
        (differences["metric"] == metric.name)
        & (differences["against"] == against)
        & (differences["n"] > 1)
        & (differences["verdict"] != "same")
    ]
