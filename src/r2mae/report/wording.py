"""Numbers and findings of a comparison in words, the same in the console, the figures and the report."""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from r2mae.evaluation.metrics import Metric
from r2mae.evaluation.pairing import BOTH

BEST_FIXED = "best fixed"
CONFIDENCE = 0.95


def decimals(means: Iterable[float], half_widths: Iterable[float]) -> int:
    """Return how many decimals a metric is shown with: two digits of the usual uncertainty.

    Parameters
    ----------
    means, half_widths : iterable of float
        Of all rows; without a half-width (one seed) the spread of the means counts, and without that their size.
    """
    centres = _finite(means)
    spreads = [width for width in _finite(half_widths) if width > 0]
    if spreads:
        return _digits(float(np.median(spreads)), 2)
    spread = float(np.std(centres)) if centres else 0.0
    size = max((abs(centre) for centre in centres), default=0.0)
    if spread > 1e-9 * size:
        return _digits(spread, 2)
    return _digits(size, 4) if size > 0 else 1


def number(value: float, places: int, *, signed: bool = False) -> str:
    """Write a number with a true minus sign; a missing one is a dash."""
    if not math.isfinite(value):
        return "–"  # noqa: RUF001
    text = f"{value:+.{places}f}" if signed else f"{value:.{places}f}"
    if float(text) == 0:
        text = text.lstrip("+-")
    return text.replace("-", "−")  # noqa: RUF001


def interval(low: float, high: float, places: int, *, signed: bool = False) -> str:
    """Write an interval, or nothing where there is none."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return ""
    return f"{number(low, places, signed=signed)} to {number(high, places, signed=signed)}"


def difference_places(mean: float, low: float, high: float, places: int) -> int:
    """Return enough decimals that rounding does not move an end of a difference's interval onto 0."""
    half = (high - low) / 2
    if not (low > 0 or high < 0):
        return places
    for more in range(places, places + 4):
        told_apart = f"{abs(mean):.{more}f}" != f"{half:.{more}f}"
        if told_apart and all(float(f"{end:.{more}f}") != 0 for end in (low, high)):
            return more
    return places


def listing(words: Sequence[str]) -> str:
    """Join words as in a sentence: a, b and c."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def sentence_case(text: str) -> str:
    """Raise the first letter, and leave all others: a first word with capitals of its own, such as k-NN, stays."""
    first = text.split(" ", 1)[0]
    return text if first != first.lower() else text[:1].upper() + text[1:]


def seeds(count: int) -> str:
    """Say "1 seed" or "3 seeds"."""
    return f"{count} seed" if count == 1 else f"{count} seeds"


def headline(
    metric: Metric,
    summary: pd.DataFrame,
    differences: pd.DataFrame,
    fixed: Sequence[str],
    places: int,
    baselines: Sequence[str] = (),
) -> str:
    """Say which pretrained row has the best mean, whether it beats the best fixed ratio, and which baselines beat it.

    Parameters
    ----------
    metric : Metric
        The primary one.
    summary, differences : DataFrame
        As in :class:`r2mae.report.analysis.Analysis`.
    fixed : sequence of str
        Labels of the fixed ratios.
    places : int
        Decimals of the metric.
    baselines : sequence of str
        Labels of rows that were not pretrained.
    """
    rows = summary[(summary["metric"] == metric.name) & (summary["n"] > 0)].set_index("label")
    beside = rows.loc[rows.index.isin(list(baselines)), "mean"]
    rows = rows[~rows.index.isin(list(baselines))]
    means = rows["mean"]
    if means.empty:
        return f"No pretrained model has a value of {metric.label}."
    best = means.max() if metric.higher_is_better else means.min()
    leaders = [str(label) for label in means.index[means == best]]
    verb = "has" if len(leaders) == 1 else "share"
    whose = "Of the pretrained models, " if len(beside) else ""
    first = f"{whose}{listing(leaders)} {verb} the best mean {metric.label}: {number(best, places)}"
    if len(leaders) == 1:
        row = rows.loc[[leaders[0]]].iloc[0].to_dict()
        ends = interval(row["low"], row["high"], places)
        first += f" ({CONFIDENCE:.0%} interval {ends}, {seeds(row['n'])})" if ends else " (one seed: no interval)"
    ahead = beside[beside > best] if metric.higher_is_better else beside[beside < best]
    if len(ahead):
        told = [f"{label} ({number(value, places)})" for label, value in ahead.items()]
        words = ("baselines", "are") if len(told) > 1 else ("baseline", "is")
        first += f"; the {words[0]} {listing(told)} {words[1]} ahead"
    others = [str(label) for label in means.index if label not in fixed]
    if not set(fixed) & set(means.index):
        return f"{first}. There is no fixed ratio to compare with: add fixed to the schemes."
    if not others:
        return f"{first}. There are only fixed ratios: add other schemes to compare them with."
    challenger = next((label for label in leaders if label in others), None)
    if challenger is None:
        challenger = str(means[others].idxmax() if metric.higher_is_better else means[others].idxmin())
        lead_in = f"Of the other schemes {challenger} comes nearest; it"
    else:
        lead_in = "It" if len(leaders) == 1 else challenger
    against_best = differences[
        (differences["label"] == challenger)
        & (differences["metric"] == metric.name)
        & (differences["against"] == BEST_FIXED)
    ]
    if against_best.empty:
        return f"{first}. {lead_in} has no seed in common with the fixed ratios."
    sentences = f"{first}. {lead_in} {_difference_phrase(against_best.iloc[0].to_dict(), places)}."
    if len(others) > 1 and against_best.iloc[0]["verdict"] == "better":
        sentences += f" It is the best of {len(others)} schemes, and the interval is not corrected for that choice."
    return sentences


def standings(differences: pd.DataFrame, metric: Metric, labels: Sequence[str], lead: str) -> str | None:
    """Say which rows are better, undecided or worse than the best fixed ratio; None where there is only one seed.

    Parameters
    ----------
    differences : DataFrame
        As in :class:`r2mae.report.analysis.Analysis`.
    metric : Metric
        The primary one.
    labels : sequence of str
        The rows.
    lead : str
        How the sentence begins.
    """
    rows = _differences_from_best_fixed(differences, metric, labels)
    if rows.empty or rows["n"].max() < 2:
        return None
    groups = {verdict: list(part["label"]) for verdict, part in rows.groupby("verdict")}
    parts = [
        f"{listing(groups[verdict])} {'is' if len(groups[verdict]) == 1 else 'are'} {verdict}"
        for verdict in ("better", "undecided", "worse")
        if verdict in groups
    ]
    return f"{lead} the best fixed ratio in {metric.label}: {'; '.join(parts)}."


def decidable_differences(differences: pd.DataFrame, metric: Metric, labels: Sequence[str], places: int) -> str | None:
    """Say how large a difference must be for these seeds to decide it; None where no row is undecided.

    Parameters
    ----------
    differences : DataFrame
        As in :class:`r2mae.report.analysis.Analysis`.
    metric : Metric
        The primary one.
    labels : sequence of str
        The rows.
    places : int
        Decimals of the metric.
    """
    rows = _differences_from_best_fixed(differences, metric, labels)
    rows = rows[(rows["verdict"] == "undecided") & np.isfinite(rows["decides"].astype(float))]
    if rows.empty:
        return None
    told = [f"{number(size, places)} for {label}" for label, size in zip(rows["label"], rows["decides"], strict=True)]
    counts = sorted(set(rows["n"]))
    many = seeds(counts[0]) if len(counts) == 1 else f"{counts[0]} to {seeds(counts[-1])}"
    if (rows["over"] == BOTH).all():
        many += " and their test items"
    return (
        f"Undecided is not equal: by the spread of these {many}, they decide a true difference in {metric.label} four "
        f"times in five only if it is {listing(told)}, or larger."
    )


def _differences_from_best_fixed(differences: pd.DataFrame, metric: Metric, labels: Sequence[str]) -> pd.DataFrame:
    """Return the differences of these rows from the best fixed ratio in a metric."""
    return differences[
        (differences["metric"] == metric.name)
        & (differences["against"] == BEST_FIXED)
        & differences["label"].isin(list(labels))
    ]


def edge_warning(means: Mapping[float, float], *, up: bool) -> str | None:
    """Warn if the best fixed ratio is the lowest or highest that ran, and say how to look further; else return None.

    Parameters
    ----------
    means : mapping of ratio to mean score
        Of the fixed ratios.
    up : bool
        Whether higher is better.
    """
    known = {ratio: mean for ratio, mean in sorted(means.items()) if math.isfinite(mean)}
    ratios = list(known)
    best = max(known.values(), default=0.0) if up else min(known.values(), default=0.0)
    leaders = [ratio for ratio, mean in known.items() if mean == best]
    if len(ratios) < 2 or len(leaders) != 1 or leaders[0] not in (ratios[0], ratios[-1]):
        return None
    edge, lowest = leaders[0], leaders[0] == ratios[0]
    room = edge if lowest else 1 - edge  # two more ratios share what is left of the axis
    further = [room * share if lowest else 1 - room * share for share in (0.2, 0.6)]
    grid = " ".join(f"{ratio:g}" for ratio in sorted({*ratios, *(float(f"{ratio:.3g}") for ratio in further)}))
    return (
        f"The best fixed ratio, {edge:g}, is the {'lowest' if lowest else 'highest'} that ran: one still "
        f"{'lower' if lowest else 'higher'} may be better. To look further, repeat the command with --ratios {grid}"
    )


def _difference_phrase(difference: Mapping[Hashable, Any], places: int) -> str:
    mean, low, high = (float(difference[key]) for key in ("mean", "low", "high"))
    if difference["n"] < 2:
        gap = number(mean, places, signed=True)
        return f"differs from the best fixed ratio by {gap} on one seed, which decides nothing: use three or more"
    places = difference_places(mean, low, high, places)
    verdict = difference["verdict"]
    if verdict == "undecided":
        gap, ends = number(mean, places, signed=True), interval(low, high, places, signed=True)
        return f"differs from the best fixed ratio by {gap} ({ends}), which is undecided: the interval contains 0"
    if mean < 0:
        mean, low, high = -mean, -high, -low
    word = "beats the best fixed ratio" if verdict == "better" else "is worse than the best fixed ratio"
    return f"{word} by {number(mean, places)} ({interval(low, high, places)})"


def _digits(size: float, significant: int) -> int:
    return min(max(significant - 1 - math.floor(math.log10(size)), 0), 6)


def _finite(values: Iterable[float]) -> list[float]:
    return [float(value) for value in values if math.isfinite(value)]
