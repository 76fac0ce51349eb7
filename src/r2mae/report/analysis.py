"""The analysis of a comparison: intervals, paired differences from the best fixed ratio, ranks, a headline.

Seeds are paired: runs of one seed share data split, order and masks. "Best fixed" is chosen for every seed by the mean
over the other seeds. If it were chosen on the same seed, the best of many ratios would look better than it is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from r2mae.errors import UserError
from r2mae.evaluation.metrics import Metric
from r2mae.evaluation.spectrum import SPECTRUM
from r2mae.evaluation.statistics import (
    AVERAGE_RANK,
    AVERAGE_SCORE,
    best_fixed,
    mean_interval,
    rank_table,
)
from r2mae.report.comparison import BASELINE, Comparison
from r2mae.report.differences import (
    DIFFERENCE_COLUMNS,
    Reference,
    differences_of,
    interval_sentences,
    intervals_against,
)
from r2mae.report.wording import (
    BEST_FIXED,
    CONFIDENCE,
    decidable_differences,
    decimals,
    edge_warning,
    headline,
    listing,
    standings,
)

SUMMARY_COLUMNS = ("label", "metric", "mean", "low", "high", "n", "method")


@dataclass(frozen=True)
class BestFixedChoice:
    """The best fixed ratio in a metric, chosen for each seed.

    Parameters
    ----------
    seeds : tuple of int
        Seeds under which every fixed ratio has a score.
    labels : tuple of str
        The chosen fixed ratio of each of these seeds.
    scores : tuple of float
        Its score under that seed.
    pseudo : tuple of float
        Its pseudo-values, see :class:`r2mae.evaluation.statistics.BestFixed`.
    held_out : bool
        Whether a seed's ratio was chosen without that seed. With one seed and several ratios this is impossible.
    """

    seeds: tuple[int, ...]
    labels: tuple[str, ...]
    scores: tuple[float, ...]
    pseudo: tuple[float, ...]
    held_out: bool

    @property
    def reference(self) -> Reference:
        """The reference that variants are compared with."""
        scores, pseudo = (dict(zip(self.seeds, one, strict=True)) for one in (self.scores, self.pseudo))
        return Reference(BEST_FIXED, scores, dict(zip(self.seeds, self.labels, strict=True)), pseudo)


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
        :data:`DIFFERENCE_COLUMNS`: label minus `against` ("best fixed", or the label of the default fixed ratio),
        paired over the seeds that both have. `verdict` is "better", "worse", "undecided", or "same" if the label
        itself is the best fixed ratio under every seed. `decides` is the smallest true difference that as many seeds
        with this spread decide four times in five; NaN if the spread is unknown. `over` is "seeds" or "seeds and
        items": the units that the interval samples. `why` is the reason, and `items` the number of items
        (:mod:`r2mae.evaluation.pairing`).
    best_fixed : mapping of metric name to BestFixedChoice
        Empty without fixed ratios.
    default_fixed : str or None
        Label of the default fixed ratio, if it is one of the variants.
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
    best_fixed: Mapping[str, BestFixedChoice]
    default_fixed: str | None
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

    def difference(self, label: str, metric: str, against: str = BEST_FIXED) -> dict[str, Any] | None:
        """Return the line of `differences`; None if no seeds can be paired."""
        return _matching_line(self.differences, label=label, metric=metric, against=against)

    def interval_units(self, against: str) -> dict[str, str]:
        """Return the units that the interval of each label's primary difference samples; no entry without interval."""
        rows = intervals_against(self.differences, self.primary, against)
        return {str(label): str(over) for label, over in zip(rows["label"], rows["over"], strict=True)}

    def leaders(self, metric: str) -> set[str]:
        """Return the labels with the best mean: several if they tie, none if the metric has no direction."""
        rows, up = self.summary[self.summary["metric"] == metric], _metric(self.metrics, metric).higher_is_better
        if up is None:
            return set()
        best = rows["mean"].max() if up else rows["mean"].min()
        return set(rows.loc[rows["mean"] == best, "label"])

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


def measured_metrics(comparison: Comparison) -> tuple[Metric, ...]:
    """Return the metrics for which some run has a value.

    Raises
    ------
    UserError
        If there are none.
    """
    found = tuple(m for m in comparison.metrics if scores_by_seed(comparison, m.name).notna().to_numpy().any())
    if not found:
        names = listing([metric.name for metric in comparison.metrics])
        raise UserError(f"the comparison {comparison.title!r} has no value of {names}: finish its runs first")
    return found


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
    metrics = measured_metrics(comparison)
    scores = {metric.name: scores_by_seed(comparison, metric.name) for metric in metrics}
    fixed = fixed_labels(comparison)
    summary = _summary(metrics, scores)
    chosen = {
        name: choice
        for name, table in scores.items()
        if (choice := _best_fixed_choice(_metric(metrics, name), table, fixed))
    }
    default = comparison.config.get("default_fixed_label")
    default = default if default in comparison.labels else None
    differences = _differences(comparison, metrics, scores, chosen, default)
    places = {
        str(name): decimals(part["mean"], (part["high"] - part["low"]) / 2) for name, part in summary.groupby("metric")
    }
    primary = metrics[0]
    return Analysis(
        metrics=metrics,
        summary=summary,
        differences=differences,
        best_fixed=chosen,
        default_fixed=default,
        ranks=_ranks(metrics, summary, comparison.labels),
        decimals=places,
        headline=headline(primary, summary, differences, fixed, places[primary.name], comparison.baselines),
        notes=(
            *_standing_sentences(comparison, primary, differences, fixed, places[primary.name]),
            *interval_sentences(differences, primary, BEST_FIXED),
            *_notes(comparison, metrics, scores, chosen),
        ),
    )


def _metric(metrics: Sequence[Metric], name: str) -> Metric:
    return next(metric for metric in metrics if metric.name == name)


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


def _best_fixed_choice(metric: Metric, scores: pd.DataFrame, fixed: Sequence[str]) -> BestFixedChoice | None:
    """Return the best of the fixed ratios that have values, over the seeds that all of them have; None without any."""
    table = scores[list(fixed)].dropna(axis="columns", how="all").dropna()
    if table.empty or metric.higher_is_better is None:
        return None
    values = table.to_numpy()
    labels = [str(label) for label in table.columns]
    held_out = len(table) > 1 or len(labels) == 1
    if len(table) > 1:
        best = best_fixed(values, higher_is_better=metric.higher_is_better)
        columns, picked, pseudo = best.chosen, best.scores, best.pseudo
    else:
        columns = (values.argmax if metric.higher_is_better else values.argmin)(axis=1)
        picked = pseudo = values[np.arange(len(values)), columns]
    return BestFixedChoice(
        seeds=tuple(int(seed) for seed in table.index),
        labels=tuple(labels[int(column)] for column in columns),
        scores=tuple(float(score) for score in picked),
        pseudo=tuple(float(score) for score in pseudo),
        held_out=held_out,
    )


def _differences(
    comparison: Comparison,
    metrics: Sequence[Metric],
    scores: Mapping[str, pd.DataFrame],
    chosen: Mapping[str, BestFixedChoice],
    default: str | None,
) -> pd.DataFrame:
    lines: list[tuple[Any, ...]] = []
    for metric in metrics:
        if metric.higher_is_better is None:
            continue
        table, references = scores[metric.name], []
        if choice := chosen.get(metric.name):
            references.append(choice.reference)
        if default is not None:
            references.append(Reference.of_label(default, table[default].dropna()))
        lines += differences_of(comparison, metric, table, references)
    return pd.DataFrame(lines, columns=list(DIFFERENCE_COLUMNS))


def _ranks(metrics: Sequence[Metric], summary: pd.DataFrame, labels: Sequence[str]) -> pd.DataFrame:
    directions = {m.name: m.higher_is_better for m in metrics if m.higher_is_better is not None and m.ranked}
    names = list(directions)
    means = summary.pivot(index="label", columns="metric", values="mean").reindex(index=list(labels), columns=names)
    complete = means.dropna().rename_axis(index=None, columns=None)
    if complete.empty:
        return complete.assign(**{AVERAGE_SCORE: [], AVERAGE_RANK: []})
    return rank_table(complete, directions)


def _standing_sentences(
    comparison: Comparison, primary: Metric, differences: pd.DataFrame, fixed: Sequence[str], places: int
) -> list[str]:
    """Return sentences that compare schemes and baselines with the best fixed ratio, and name decidable differences.

    The headline already covers a single scheme.
    """
    others = [label for label in comparison.labels if label not in {*fixed, *comparison.baselines}]
    sentences = [standings(differences, primary, others, "Against")] if len(others) > 1 else []
    sentences.append(standings(differences, primary, comparison.baselines, "Baselines, against"))
    sentences.append(decidable_differences(differences, primary, [*others, *comparison.baselines], places))
    return [sentence for sentence in sentences if sentence]


def _notes(
    comparison: Comparison,
    metrics: Sequence[Metric],
    scores: Mapping[str, pd.DataFrame],
    chosen: Mapping[str, BestFixedChoice],
) -> list[str]:
    notes = [comparison.measured] if comparison.measured else []
    notes += [f"{sentence}." for sentence in comparison.unread]
    primary = metrics[0]
    notes += _given_options_sentences(comparison.config.get("rows") or {})
    if comparison.config.get("mask_input"):
        notes.append("The pretrained models receive the mask as additional inputs (mask_input).")
    absent = [metric.label for metric in comparison.metrics if metric not in metrics and not metric.optional]
    if absent:
        notes.append(f"No run has a value of {listing(absent)}; the headline is about {primary.label}.")
    table = scores[primary.name]
    for label in table:
        if label in comparison.baselines and table[label].isna().all():
            continue  # the mean image has no embedding to probe: nothing is missing
        missing = [str(seed) for seed in table.index[table[label].isna()]]
        if missing:
            word = "seed" if len(missing) == 1 else "seeds"
            notes.append(
                f"{label} has no {primary.label} for {word} {listing(missing)}: means and pairs omit the missing runs."
            )
    notes += _collapsed_sentences(comparison, metrics)
    choice = chosen.get(primary.name)
    if choice and not choice.held_out:
        notes.append("With one seed, the best fixed ratio is chosen on the seed that it is compared on.")
    ratios = comparison.table.drop_duplicates("label").set_index("label")["ratio"].dropna().to_dict()
    means = {float(ratio): float(table[label].mean()) for label, ratio in ratios.items()}
    if primary.higher_is_better is not None and (edge := edge_warning(means, up=primary.higher_is_better)):
        notes.append(edge)
    return notes


def _collapsed_sentences(comparison: Comparison, metrics: Sequence[Metric]) -> list[str]:
    """Return a sentence for each variant with collapsed models: only these lack a measured effective rank."""
    notes, table = [], comparison.table
    for metric in metrics:
        if metric.name in SPECTRUM:
            lacking = table[table[metric.name].isna() & (table["scheme"] != BASELINE)]
            for label, part in lacking.groupby("label", sort=False):
                seeds = [str(seed) for seed in part["seed"]]
                word = "seed" if len(seeds) == 1 else "seeds"
                notes.append(f"{label} has no {metric.label} for {word} {listing(seeds)}: all its features are zero.")
    return notes


def _given_options_sentences(rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return a sentence that names the variants that use each given option: not every scheme takes every option."""
    takers: dict[str, list[str]] = {}
    for label, row in rows.items():
        for option in row.get("given", ()):
            takers.setdefault(f"{option} {row[option]}", []).append(label)
    if not takers:
        return []
    return [
        f"Given options, and the variants that use them: {'; '.join(f'{o} ({listing(r)})' for o, r in takers.items())}."
    ]


def _matching_line(table: pd.DataFrame, **where: str) -> dict[str, Any] | None:
    for column, value in where.items():
        table = table[table[column] == value]
    return {str(key): value for key, value in table.iloc[0].to_dict().items()} if len(table) else None
