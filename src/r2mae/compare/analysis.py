"""The analysis of a comparison: intervals, paired differences from the best fixed ratio, ranks, power.

Seeds are paired: runs of one seed share data split, order and masks. "Best fixed" is chosen for every seed by the mean
over the other seeds. If it were chosen on the same seed, the best of many ratios would look better than it is.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import nan, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from jaxtyping import Float64

from r2mae.compare.wording import BEST_FIXED, CONFIDENCE, decimals, listing
from r2mae.errors import UserError
from r2mae.evaluation.metrics import Metric
from r2mae.evaluation.multiple import ERROR, corrected_p_values, level_of_look
from r2mae.evaluation.pairing import REASONS, compare_paired
from r2mae.evaluation.power import detectable, seeds_needed
from r2mae.evaluation.statistics import (
    AVERAGE_RANK,
    AVERAGE_SCORE,
    Interval,
    best_fixed,
    mean_interval,
    paired_difference,
    rank_table,
    wider_partner,
)

if TYPE_CHECKING:
    from r2mae.compare.comparison import Comparison  # which offers the answers

SUMMARY_COLUMNS = ("label", "metric", "mean", "low", "high", "n", "method")
DIFFERENCE_COLUMNS = (
    "label", "metric", "against", "mean", "low", "high", "n", "method", "verdict", "decides", "over", "why", "items",
    "p", "p_corrected",
)  # fmt: skip


@dataclass(frozen=True)
class Reference:
    """The scores that variants are compared with in a metric.

    Parameters
    ----------
    name : str
        "best fixed", or the label of a variant.
    scores : mapping of int to float
        Score by seed. Of the best fixed ratio these are the seeds under which every fixed ratio has a score.
    labels : mapping of int to str
        Label of the variant of each score.
    pseudo : mapping of int to float, optional
        Pseudo-values of the scores, if the variant was chosen by its scores
        (:class:`r2mae.evaluation.statistics.BestFixed`).
    held_out : bool
        Whether a seed's variant was chosen without that seed. With one seed and several ratios this is impossible.
    """

    name: str
    scores: Mapping[int, float]
    labels: Mapping[int, str]
    pseudo: Mapping[int, float] | None = None
    held_out: bool = True

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


@dataclass(frozen=True)
class Analysis:
    """The findings of a comparison.

    Parameters
    ----------
    metrics : tuple of Metric
        The metrics with values. The first is that of the headline.
    summary : DataFrame
        :data:`SUMMARY_COLUMNS`: a line per label and metric, NaN if a label has no value.
    differences : DataFrame
        :data:`DIFFERENCE_COLUMNS`: label minus `against`, paired over the seeds that both have. `verdict` is "better",
        "worse", "undecided", or "same" if the label itself is the best fixed ratio under every seed. `decides` is the
        smallest true difference that as many seeds with this spread decide four times in five; NaN if the spread is
        unknown. `over` is "seeds" or "seeds and items": the units that the interval samples. `why` is the reason, and
        `items` the number of items (:mod:`r2mae.evaluation.pairing`). `p` is the p-value of
        the interval. `p_corrected`, of the rivals' differences that answer a question, counts all rivals and all looks
        (:mod:`r2mae.evaluation.multiple`), each question for itself; elsewhere it is NaN.
    questions : tuple of Metric
        The metrics that answer the questions of a comparison (better features? better filling in?), the primary first.
    against : tuple of str
        What variants are compared with: "best fixed", or the label of a variant. The first is that of the headline:
        the variant that ``--against`` names, else "best fixed".
    references : mapping of metric name to Reference
        The scores that the headline compares with, where there are any.
    rivals : tuple of str
        The schemes that the headline judges: all but fixed ratios and baselines; fixed ratios, too, if they are
        compared with a scheme.
    best_fixed : mapping of metric name to Reference
        The best fixed ratio in a metric, chosen for each seed. Empty without fixed ratios.
    ranks : DataFrame
        Means by label and metric name, with "average score" and "average rank" as in the paper's tables, for labels
        with a value of every ranked metric. The score is a plain mean over metrics, so it is meaningful only if they
        share a scale. It is NaN if metrics differ in direction. The rank has neither limit.
    decimals : mapping of metric name to int
        Decimals to show.
    """

    metrics: tuple[Metric, ...]
    summary: pd.DataFrame
    differences: pd.DataFrame
    questions: tuple[Metric, ...]
    against: tuple[str, ...]
    references: Mapping[str, Reference]
    rivals: tuple[str, ...]
    best_fixed: Mapping[str, Reference]
    ranks: pd.DataFrame
    decimals: Mapping[str, int]

    @property
    def primary(self) -> Metric:
        """The metric of the headline."""
        return self.metrics[0]

    @property
    def judged_metrics(self) -> tuple[Metric, ...]:
        """The metrics with a direction, higher or lower is better."""
        return tuple(metric for metric in self.metrics if metric.higher_is_better is not None)

    def interval(self, label: str, metric: str) -> dict[str, Any]:
        """Return the line of `summary` of a label and a metric."""
        return _matching_line(self.summary, label=label, metric=metric) or dict.fromkeys(SUMMARY_COLUMNS)

    def difference(self, label: str, metric: str, against: str | None = None) -> dict[str, Any] | None:
        """Return the line of `differences`, by default of the headline's; None if no seeds can be paired."""
        return _matching_line(self.differences, label=label, metric=metric, against=against or self.against[0])

    def decided(self, label: str, metric: str) -> str:
        """Return the headline's verdict on a label in a metric, "undecided" where the correction takes it back."""
        line = self.difference(label, metric)
        if line is None or line["p_corrected"] > ERROR:  # false for NaN
            return "undecided"
        return str(line["verdict"])

    def leaders(self, metric: str) -> set[str]:
        """Return the labels with the best mean: several if they tie, none if the metric has no direction."""
        rows = self.summary[self.summary["metric"] == metric]
        up = next(one for one in self.metrics if one.name == metric).higher_is_better
        if up is None:
            return set()
        return set(rows.loc[rows["mean"] == (rows["mean"].max() if up else rows["mean"].min()), "label"])

    def seeds(self, label: str) -> int:
        """Return the number of seeds of a label's primary mean, or without one, the largest of its other metrics."""
        first, *others = (int(self.interval(label, metric.name)["n"] or 0) for metric in self.metrics)
        return first or max(others, default=0)

    def average_rank(self, label: str) -> float:
        """Return a label's average rank, NaN if it lacks a metric."""
        return float(self.ranks[AVERAGE_RANK].to_dict().get(label, np.nan))


def scores_by_seed(comparison: "Comparison", metric: str) -> pd.DataFrame:
    """Return a metric as a table of seeds × labels, in the order of display; NaN if a run has no value."""
    table = comparison.table
    if metric not in table:
        return pd.DataFrame(np.nan, index=sorted(set(table["seed"])), columns=comparison.labels)
    wide = table.pivot(index="seed", columns="label", values=metric)
    wide = wide.reindex(columns=comparison.labels).astype(float).sort_index()
    return wide.where(np.isfinite(wide))


def fixed_labels(comparison: "Comparison") -> list[str]:
    """Return the labels of the variants at a fixed ratio."""
    table = comparison.table
    return list(dict.fromkeys(table.loc[table["ratio"].notna(), "label"]))


def analyse(comparison: "Comparison") -> Analysis:
    """Compute all findings of the table, the figures and the report.

    Parameters
    ----------
    comparison : Comparison
        Finished runs. Missing runs and missing values are omitted from means and pairs.

    Raises
    ------
    UserError
        If no run has a score.
    """
    every = {metric.name: scores_by_seed(comparison, metric.name) for metric in comparison.metrics}
    metrics = tuple(metric for metric in comparison.metrics if every[metric.name].notna().to_numpy().any())
    if not metrics:
        names = listing([metric.name for metric in comparison.metrics])
        raise UserError(f"the comparison {comparison.title!r} has no value of {names}: finish its runs first")
    scores = {metric.name: every[metric.name] for metric in metrics}
    fixed = fixed_labels(comparison)
    summary = _summary(metrics, scores)
    chosen = {
        metric.name: choice for metric in metrics if (choice := choose_best_fixed(metric, scores[metric.name], fixed))
    }
    named, default = (comparison.config.get(key) for key in ("against", "default_fixed_label"))
    against = (str(named), BEST_FIXED) if named else (BEST_FIXED, *([default] if default in comparison.labels else []))
    references = {
        metric.name: [
            found for name in against if (found := _reference(name, scores[metric.name], chosen.get(metric.name)))
        ]
        for metric in metrics
        if metric.higher_is_better is not None
    }
    differences = _differences(comparison, metrics, scores, references)
    places = {
        str(name): decimals(part["mean"], (part["high"] - part["low"]) / 2) for name, part in summary.groupby("metric")
    }
    judged = [label for label in comparison.labels if label not in comparison.baselines and label != against[0]]
    against_fixed = against[0] in {BEST_FIXED, *fixed}
    rivals = [label for label in judged if not (against_fixed and label in fixed)]
    questions = _questions(metrics)
    for metric in questions:
        rows = _rows_against(differences, metric, against[0])
        chances = rows.loc[rows["label"].isin(rivals), "p"].dropna()
        if len(chances):
            looks = [comparison.looks.get(str(label), 1) for label in rows.loc[chances.index, "label"]]
            differences.loc[chances.index, "p_corrected"] = corrected_p_values(chances, looks=looks)
    return Analysis(
        metrics=metrics,
        summary=summary,
        differences=differences,
        questions=questions,
        against=against,
        references={name: one for name, found in references.items() for one in found if one.name == against[0]},
        rivals=tuple(rivals),
        best_fixed=chosen,
        ranks=_ranks(metrics, summary, comparison.labels),
        decimals=places,
    )


def _questions(metrics: Sequence[Metric]) -> tuple[Metric, ...]:
    """Return the first metric of every question; the first metric asks one even if it names none."""
    asked: dict[str, Metric] = {}
    for metric in metrics:
        if metric.higher_is_better is not None and (metric == metrics[0] or metric.question):
            asked.setdefault(metric.question, metric)
    return tuple(asked.values())


def possible(size: float, metric: Metric, scores: Iterable[float]) -> float:
    """Return the size of a difference from these scores; NaN if the metric's bounds leave no room for it."""
    base, (low, high) = float(np.mean([*scores])), metric.bounds
    return size if size <= max(high - base, base - low) else nan


def power_of(comparison: "Comparison", analysis: Analysis, metric: Metric, seeds: int) -> list[dict[str, Any]]:
    """Return what a number of seeds decides of each rival in a metric, from the differences so far, over seeds only.

    Returns
    -------
    list of dict
        For each rival: ``label``, ``against``, ``metric``; ``pairs``, the seeds of both; the mean ``difference`` and
        its standard deviation ``sd`` over these; ``decides``, the smallest true difference that `seeds` decide four
        times in five (NaN if none that is possible); and ``seeds``, how many seeds would decide a true difference as
        large as the mean one (None: more than 10,000). Decided is what a first look decides for certain, whatever the
        other schemes give (:mod:`r2mae.evaluation.multiple`).
    """
    table, reference = scores_by_seed(comparison, metric.name), analysis.references.get(metric.name)
    confidence, rows = 1 - level_of_look(1) / max(len(analysis.rivals), 1), []
    if reference is None:
        return []
    for label in analysis.rivals:
        own = table[label].dropna()
        pairs = [int(seed) for seed in own.index if int(seed) in reference.scores]
        mine = own[pairs].to_numpy(float)
        gap: Interval = paired_difference(mine, reference.partner(mine, pairs)) if pairs else _UNKNOWN
        sd, mean = gap.error * sqrt(gap.n), gap.mean
        rows.append({
            "label": label, "against": reference.name, "metric": metric.name, "pairs": len(pairs), "difference": mean,
            "sd": sd,
            "decides": possible(detectable(sd, seeds, confidence=confidence), metric, reference.scores.values()),
            "seeds": seeds_needed(sd, abs(mean), confidence=confidence),
        })  # fmt: skip
    return rows


_UNKNOWN = Interval(nan, nan, nan, 0, "none")


def _summary(metrics: Sequence[Metric], scores: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    lines = []
    for metric in metrics:
        for label, column in scores[metric.name].items():
            values = column.dropna().to_numpy()
            if len(values):
                estimate = mean_interval(values, confidence=CONFIDENCE)
                low, high = np.clip([estimate.low, estimate.high], *metric.bounds)
                lines.append((label, metric.name, estimate.mean, float(low), float(high), estimate.n, estimate.method))
            else:
                lines.append((label, metric.name, np.nan, np.nan, np.nan, 0, "none"))
    return pd.DataFrame(lines, columns=list(SUMMARY_COLUMNS))


def choose_best_fixed(metric: Metric, scores: pd.DataFrame, fixed: Sequence[str]) -> Reference | None:
    """Return the best of the fixed ratios that have values, over the seeds that all of them have; None without any."""
    table = scores[list(fixed)].dropna(axis="columns", how="all").dropna()
    if table.empty or metric.higher_is_better is None:
        return None
    values = table.to_numpy()
    if len(table) > 1:
        best = best_fixed(values, higher_is_better=metric.higher_is_better)
        columns, picked, pseudo = best.chosen, best.scores, best.pseudo
    else:
        columns = (values.argmax if metric.higher_is_better else values.argmin)(axis=1)
        picked = pseudo = values[np.arange(len(values)), columns]
    seeds = [int(seed) for seed in table.index]
    return Reference(
        BEST_FIXED,
        scores=dict(zip(seeds, map(float, picked), strict=True)),
        labels={seed: str(table.columns[column]) for seed, column in zip(seeds, columns, strict=True)},
        pseudo=dict(zip(seeds, map(float, pseudo), strict=True)),
        held_out=len(table) > 1 or len(table.columns) == 1,
    )


def _reference(name: str, scores: pd.DataFrame, best: Reference | None) -> Reference | None:
    """Return the reference of this name: the best fixed ratio, or a variant, if it has scores."""
    if name == BEST_FIXED:
        return best
    own = {int(str(seed)): float(score) for seed, score in scores[name].dropna().items()} if name in scores else {}
    return Reference(name, own, dict.fromkeys(own, name)) if own else None


def _differences(
    comparison: "Comparison",
    metrics: Sequence[Metric],
    scores: Mapping[str, pd.DataFrame],
    references: Mapping[str, Sequence[Reference]],
) -> pd.DataFrame:
    """Return the differences of all variants from the references of each metric, but for a reference itself."""
    lines: list[tuple[Any, ...]] = []
    for metric in metrics:
        table = scores[metric.name]
        for reference in references.get(metric.name, ()):
            for label in map(str, table.columns):
                seeds = [int(seed) for seed in table.index[table[label].notna()] if int(seed) in reference.scores]
                if label != reference.name and seeds:
                    lines.append(_difference(comparison, metric, table, reference, label, seeds))
    return pd.DataFrame(lines, columns=list(DIFFERENCE_COLUMNS))


def _difference(
    comparison: "Comparison", metric: Metric, scores: pd.DataFrame, reference: Reference, label: str, seeds: list[int]
) -> tuple[Any, ...]:
    """Return a line of :data:`DIFFERENCE_COLUMNS`."""
    values = scores.loc[seeds, label].to_numpy(dtype=np.float64)
    itself = set(reference.labels.values()) == {label}
    compared = np.array([reference.scores[seed] for seed in seeds])
    found = compare_paired(
        values,
        compared if itself else reference.partner(values, seeds),
        [comparison.items.get((label, seed)) for seed in seeds],
        [comparison.items.get((reference.labels[seed], seed)) for seed in seeds],
        metric.name,
        higher_is_better=bool(metric.higher_is_better),
        confidence=CONFIDENCE,
        scores_b=compared,
    )
    one = found.difference
    verdict, decides = ("same", nan) if itself else (one.verdict, possible(found.smallest_detectable, metric, compared))
    numbers = (one.mean, one.low, one.high, one.n, one.method, verdict, decides)
    units = (found.over, REASONS[found.reason], found.items)
    return (label, metric.name, reference.name, *numbers, *units, np.nan if itself else one.p, np.nan)


def _rows_against(differences: pd.DataFrame, metric: Metric, against: str) -> pd.DataFrame:
    """Return the differences in a metric from a reference, without those that are the best fixed ratio themselves."""
    rows = differences[(differences["metric"] == metric.name) & (differences["against"] == against)]
    return rows[rows["verdict"] != "same"]


def _ranks(metrics: Sequence[Metric], summary: pd.DataFrame, labels: Sequence[str]) -> pd.DataFrame:
    directions = {m.name: m.higher_is_better for m in metrics if m.higher_is_better is not None and m.ranked}
    names = list(directions)
    means = summary.pivot(index="label", columns="metric", values="mean").reindex(index=list(labels), columns=names)
    complete = means.dropna().rename_axis(index=None, columns=None)
    if complete.empty:
        return complete.assign(**{AVERAGE_SCORE: [], AVERAGE_RANK: []})
    return rank_table(complete, directions)


def _matching_line(table: pd.DataFrame, **where: str) -> dict[str, Any] | None:
    for column, value in where.items():
        table = table[table[column] == value]
    return {str(key): value for key, value in table.iloc[0].to_dict().items()} if len(table) else None
