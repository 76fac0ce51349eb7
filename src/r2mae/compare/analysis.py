"""The analysis of a comparison: intervals, paired differences from the best fixed ratio, ranks, a headline.

Seeds are paired: runs of one seed share data split, order and masks. "Best fixed" is chosen for every seed by the mean
over the other seeds. If it were chosen on the same seed, the best of many ratios would look better than it is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float64

from r2mae.compare.comparison import BASELINE, Comparison
from r2mae.compare.wording import (
    BEST_FIXED,
    CONFIDENCE,
    choice_sentence,
    comparator,
    correction_sentence,
    decidable_differences,
    decimals,
    edge_warning,
    headline,
    interval_sentence,
    listing,
    training_sentence,
)
from r2mae.errors import UserError
from r2mae.evaluation.bn_statistics import NOTES
from r2mae.evaluation.metrics import Metric
from r2mae.evaluation.multiple import corrected_p_values
from r2mae.evaluation.pairing import REASONS, compare_paired
from r2mae.evaluation.spectrum import SPECTRUM
from r2mae.evaluation.statistics import (
    AVERAGE_RANK,
    AVERAGE_SCORE,
    best_fixed,
    mean_interval,
    rank_table,
    wider_partner,
)

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
        the interval. `p_corrected`, of the rivals' headline differences, counts all rivals and all looks
        (:mod:`r2mae.evaluation.multiple`); elsewhere it is NaN.
    against : tuple of str
        What variants are compared with: "best fixed", or the label of a variant. The first is that of the headline:
        the variant that ``--against`` names, else "best fixed".
    reference : Reference or None
        The scores that the headline compares with; None without any.
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
    headline : str
        The outcome in two sentences.
    notes : tuple of str
        Further sentences for the reader.
    """

    metrics: tuple[Metric, ...]
    summary: pd.DataFrame
    differences: pd.DataFrame
    against: tuple[str, ...]
    reference: Reference | None
    rivals: tuple[str, ...]
    best_fixed: Mapping[str, Reference]
    ranks: pd.DataFrame
    decimals: Mapping[str, int]
    headline: str
    notes: tuple[str, ...]

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


def scores_by_seed(comparison: Comparison, metric: str) -> pd.DataFrame:
    """Return a metric as a table of seeds × labels, in the order of display; NaN if a run has no value."""
    table = comparison.table
    if metric not in table:
        return pd.DataFrame(np.nan, index=sorted(set(table["seed"])), columns=comparison.labels)
    wide = table.pivot(index="seed", columns="label", values=metric)
    wide = wide.reindex(columns=comparison.labels).astype(float).sort_index()
    return wide.where(np.isfinite(wide))


def fixed_labels(comparison: Comparison) -> list[str]:
    """Return the labels of the variants at a fixed ratio."""
    table = comparison.table
    return list(dict.fromkeys(table.loc[table["ratio"].notna(), "label"]))


def analyse(comparison: Comparison) -> Analysis:
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
    fixed, primary = fixed_labels(comparison), metrics[0]
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
    rows = _rows_against(differences, primary, against[0])
    chances = rows.loc[rows["label"].isin(rivals), "p"].dropna()
    if len(chances):
        looks = [comparison.looks.get(str(label), 1) for label in rows.loc[chances.index, "label"]]
        differences.loc[chances.index, "p_corrected"] = corrected_p_values(chances, looks=looks)
        rows = _rows_against(differences, primary, against[0])
    first, choice = places[primary.name], chosen.get(primary.name)
    sentences = [
        choice_sentence(len(choice.scores)) if choice and choice.held_out and len(fixed) > 1 and not named else "",
        decidable_differences(rows, primary, [*rivals, *comparison.baselines], first),
        correction_sentence(rows, max(comparison.looks.values(), default=1)),
        interval_sentence(rows, primary),
        comparison.measured,
        *(f"{sentence}." for sentence in comparison.unread),
        *_notes(comparison, metrics, scores, choice),
    ]
    paid = training_sentence(rows, primary, first, comparator(against[0]))
    told = headline(primary, summary, rows, rivals, first, against[0], comparison.baselines)
    return Analysis(
        metrics=metrics,
        summary=summary,
        differences=differences,
        against=against,
        reference=next((one for one in references.get(primary.name, ()) if one.name == against[0]), None),
        rivals=tuple(rivals),
        best_fixed=chosen,
        ranks=_ranks(metrics, summary, comparison.labels),
        decimals=places,
        headline=" ".join(filter(None, (paid, told))),
        notes=tuple(sentence for sentence in sentences if sentence),
    )


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
    comparison: Comparison,
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
    comparison: Comparison, metric: Metric, scores: pd.DataFrame, reference: Reference, label: str, seeds: list[int]
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
    verdict, decides = ("same", np.nan) if itself else (one.verdict, found.smallest_detectable)
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


def _notes(
    comparison: Comparison, metrics: Sequence[Metric], scores: Mapping[str, pd.DataFrame], choice: Reference | None
) -> list[str]:
    """Return sentences about options, missing values, and the choice of the best fixed ratio."""
    notes, primary = _given_options_sentences(comparison.config.get("rows") or {}), metrics[0]
    if comparison.config.get("mask_input"):
        notes.append("The pretrained models receive the mask as additional inputs (mask_input).")
    if comparison.by_sample and comparison.measured == NOTES["yes"]:
        notes.append(f"For errors of {listing(comparison.by_sample)} at mask ratios see --bn-statistics both.")
    absent = [metric.label for metric in comparison.metrics if metric not in metrics and not metric.optional]
    if absent:
        notes.append(f"No run has a value of {listing(absent)}; the headline is about {primary.label}.")
    table = scores[primary.name]
    for label in table:
        missing = list(table.index[table[label].isna()])
        # A baseline such as the mean image has no embedding to probe: nothing is missing.
        if missing and not (label in comparison.baselines and len(missing) == len(table)):
            notes.append(f"{_lacks(label, primary, missing)}: means and pairs omit the missing runs.")
    for metric in metrics:  # only a collapsed model lacks a measured effective rank
        if metric.name in SPECTRUM:
            runs = comparison.table
            lacking = runs[runs[metric.name].isna() & (runs["scheme"] != BASELINE)]
            for label, part in lacking.groupby("label", sort=False):
                notes.append(f"{_lacks(label, metric, list(part['seed']))}: all its features are zero.")
    if choice and not choice.held_out:
        notes.append("With one seed, the best fixed ratio is chosen on the seed that it is compared on.")
    ratios = comparison.table.drop_duplicates("label").set_index("label")["ratio"].dropna().to_dict()
    means = {float(ratio): float(table[label].mean()) for label, ratio in ratios.items()}
    if primary.higher_is_better is not None and (edge := edge_warning(means, up=primary.higher_is_better)):
        notes.append(edge)
    return notes


def _lacks(label: Any, metric: Metric, seeds: Sequence[Any]) -> str:
    """Return "r2mae has no accuracy for seeds 0 and 1"."""
    return f"{label} has no {metric.label} for {'seed' if len(seeds) == 1 else 'seeds'} {listing([*map(str, seeds)])}"


def _given_options_sentences(rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return a sentence that names the variants that use each given option: not every scheme takes every option."""
    takers: dict[str, list[str]] = {}
    for label, row in rows.items():
        for option in row.get("given", ()):
            takers.setdefault(f"{option} {row[option]}", []).append(label)
    uses = "; ".join(f"{option} ({listing(labels)})" for option, labels in takers.items())
    return [f"Given options, and the variants that use them: {uses}."] if uses else []


def _matching_line(table: pd.DataFrame, **where: str) -> dict[str, Any] | None:
    for column, value in where.items():
        table = table[table[column] == value]
    return {str(key): value for key, value in table.iloc[0].to_dict().items()} if len(table) else None
