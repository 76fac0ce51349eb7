"""Numbers and findings of a comparison as text, for the terminal, the figures and the report."""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from r2mae.evaluation.metrics import Metric
from r2mae.evaluation.multiple import ERROR
from r2mae.evaluation.pairing import SEEDS_AND_ITEMS

BEST_FIXED = "best fixed"
CONFIDENCE = 0.95
UNTRAINED = "untrained"
"""The baseline that says whether training paid."""
_UNITS = ((100.0, 1.0, "s"), (6_000.0, 60.0, "min"), (360_000.0, 3600.0, "h"), (float("inf"), 86_400.0, "days"))


def decimals(means: Iterable[float], half_widths: Iterable[float]) -> int:
    """Return the number of decimals for a metric: two digits of the median half-width of its intervals.

    Parameters
    ----------
    means, half_widths : iterable of float
        Means and half-widths of all variants. Without half-widths (one seed) the standard deviation of the means is
        used; if that is 0, four digits of the largest mean.
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
    """Return a number as text, with a true minus sign; a dash if it is not finite."""
    if not math.isfinite(value):
        return "–"  # noqa: RUF001
    text = f"{value:+.{places}f}" if signed else f"{value:.{places}f}"
    if float(text) == 0:
        text = text.lstrip("+-")
    return text.replace("-", "−")  # noqa: RUF001


def interval(low: float, high: float, places: int, *, signed: bool = False) -> str:
    """Return an interval as text, empty if an end is not finite."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return ""
    return f"{number(low, places, signed=signed)} to {number(high, places, signed=signed)}"


def difference_places(mean: float, low: float, high: float, places: int) -> int:
    """Return the number of decimals for a difference: enough that no end of an interval without 0 is rounded to 0."""
    half = (high - low) / 2
    if not (low > 0 or high < 0):
        return places
    for more in range(places, places + 4):
        distinct = f"{abs(mean):.{more}f}" != f"{half:.{more}f}"
        if distinct and all(float(f"{end:.{more}f}") != 0 for end in (low, high)):
            return more
    return places


def listing(words: Sequence[str]) -> str:
    """Join words as in a sentence: a, b and c."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def sentence_case(text: str) -> str:
    """Return text with a capital first letter, unless its first word already has capitals, such as k-NN."""
    first = text.split(" ", 1)[0]
    return text if first != first.lower() else text[:1].upper() + text[1:]


def duration(seconds: float) -> str:
    """Return a duration in the largest unit that suits it: ``3.2 h``."""
    _, unit, name = next(one for one in _UNITS if seconds < one[0])
    return f"{float(f'{seconds / unit:.2g}'):,g} {name}"


def seeds(count: int) -> str:
    """Return "1 seed" or "3 seeds"."""
    return f"{count} seed" if count == 1 else f"{count} seeds"


def comparator(against: str) -> str:
    """Return what variants are compared with, as sentences name it."""
    return "the best fixed ratio" if against == BEST_FIXED else against


def choice_sentence(count: int) -> str:
    """Return sentences on what the difference from the best fixed ratio estimates with so many seeds."""
    others = "the other seed" if count == 2 else f"the other {count - 1} seeds"
    return (
        f"The best fixed ratio of a seed is chosen on {others}. A wrong choice favours the other schemes, with three "
        "seeds by up to 0.3 to 0.5 of a seed's standard deviation, with ten by half of that. --against RATIO compares "
        "with a ratio that you name."
    )


def headline(
    metric: Metric,
    summary: pd.DataFrame,
    differences: pd.DataFrame,
    rivals: Sequence[str],
    places: int,
    against: str = BEST_FIXED,
    baselines: Sequence[str] = (),
) -> str:
    """Return the headline: which pretrained variant leads, whether the best rival beats what it is compared with.

    Parameters
    ----------
    metric : Metric
        The primary one.
    summary : DataFrame
        As in :class:`r2mae.compare.analysis.Analysis`.
    differences : DataFrame
        The differences in the metric from `against`.
    rivals : sequence of str
        Labels that are compared with it.
    places : int
        Decimals of the metric.
    against : str
        "best fixed", or the label of a variant.
    baselines : sequence of str
        Labels of the baselines; those that lead are named.
    """
    rows = summary[(summary["metric"] == metric.name) & (summary["n"] > 0)].set_index("label")
    baseline_means = rows.loc[rows.index.isin(list(baselines)), "mean"]
    rows = rows[~rows.index.isin(list(baselines))]
    means = rows["mean"]
    if means.empty:
        return f"No pretrained model has a value of {metric.label}."
    best = means.max() if metric.higher_is_better else means.min()
    leaders = [str(label) for label in means.index[means == best]]
    verb = "has" if len(leaders) == 1 else "share"
    whose = "Of the pretrained models, " if len(baseline_means) else ""
    first = f"{whose}{listing(leaders)} {verb} the best mean {metric.label}: {number(best, places)}"
    if len(leaders) == 1:
        row = rows.loc[[leaders[0]]].iloc[0].to_dict()
        ends = interval(row["low"], row["high"], places)
        first += f" ({CONFIDENCE:.0%} interval {ends}, {seeds(row['n'])})" if ends else " (one seed: no interval)"
    ahead = baseline_means[baseline_means > best] if metric.higher_is_better else baseline_means[baseline_means < best]
    if len(ahead):
        named = [f"{label} ({number(value, places)})" for label, value in ahead.items()]
        words = ("baselines", "are") if len(named) > 1 else ("baseline", "is")
        first += f"; the {words[0]} {listing(named)} {words[1]} ahead"
    others = [str(label) for label in means.index if label in rivals]
    if against == BEST_FIXED and len(others) == len(means):
        return f"{first}. There is no fixed ratio to compare with: add fixed to the schemes."
    if not others:
        only = "There are only fixed ratios" if against == BEST_FIXED else f"There is no scheme besides {against}"
        return f"{first}. {only}: add other schemes to compare."
    challenger = next((label for label in leaders if label in others), None)
    if challenger is None:
        challenger = str(means[others].idxmax() if metric.higher_is_better else means[others].idxmin())
        lead_in = f"Of the other schemes {challenger} comes nearest; it"
    else:
        lead_in = "It" if len(leaders) == 1 else challenger
    own = differences[differences["label"] == challenger]
    if own.empty:
        partner = "the fixed ratios" if against == BEST_FIXED else against
        return f"{first}. {lead_in} has no seed in common with {partner}."
    difference = own.iloc[0].to_dict()
    sentences = f"{first}. {lead_in} {_difference_phrase(difference, places, comparator(against))}."
    if difference["verdict"] == "better" and math.isfinite(difference["p_corrected"]):
        holds = "so it is" if difference["p_corrected"] <= ERROR else "so it is not"
        sentences += (
            f" Corrected for the number of schemes and of looks, p is {chance(difference['p_corrected'])}, {holds} "
            "decided."
        )
    return sentences


def training_sentence(differences: pd.DataFrame, metric: Metric, places: int, against: str) -> str:
    """Return a sentence that says whether training paid: how the untrained network compares; "" if that is unknown.

    Parameters
    ----------
    differences, metric, places, against
        As for :func:`headline`.
    """
    own = differences[(differences["label"] == UNTRAINED) & differences["low"].notna()]
    if own.empty:
        return ""
    row = own.iloc[0].to_dict()
    mean, low, high = (float(row[name]) for name in ("mean", "low", "high"))
    places = difference_places(mean, low, high, places)
    ends = interval(low, high, places, signed=True)
    gap = f"untrained minus {against}: {number(mean, places, signed=True)}, {ends}"
    told = {
        "worse": "Training pays on this set",
        "better": f"Training harms on this set: the untrained network has a better {metric.label}",
        "undecided": f"Trained models are not shown to have a better {metric.label} than the untrained network",
    }
    return f"{told[row['verdict']]} ({gap})."


def chance(p: float) -> str:
    """Return a p-value as text; a dash if it is not finite."""
    if not math.isfinite(p):
        return "–"  # noqa: RUF001
    return "below 0.001" if p < 0.001 else f"{p:.3f}"


def correction_sentence(differences: pd.DataFrame, looks: int) -> str:
    """Return a sentence on the corrected p-values of the schemes; "" if there is nothing to correct.

    Parameters
    ----------
    differences
        As for :func:`headline`.
    looks : int
        How many times findings were shown, each time with other seeds or another reference.
    """
    rows = differences[np.isfinite(differences["p_corrected"].astype(float))]
    lost = rows[(rows["verdict"] != "undecided") & (rows["p_corrected"] > ERROR)]
    if rows.empty or (len(rows) == 1 and looks == 1 and lost.empty):
        return ""
    counted = [f"{len(rows)} schemes (Holm)"] if len(rows) > 1 else []
    counted += [f"{looks} looks"] if looks > 1 else []
    decided = [str(label) for label in rows.loc[rows["p_corrected"] <= ERROR, "label"]]
    marks = "; * marks verdicts that do not hold then" if len(lost) else ""
    outcome = f"these are still decided: {listing(decided)}" if decided else "no difference is decided"
    return (
        "Each interval and verdict is of one comparison. "
        f"Corrected for {listing(counted or ['later looks'])}, {outcome}, with p at most {ERROR:g}{marks}."
    )


def decidable_differences(differences: pd.DataFrame, metric: Metric, labels: Sequence[str], places: int) -> str:
    """Return a sentence on the smallest differences that these seeds decide; "" if no label is undecided.

    Parameters
    ----------
    differences, metric, places
        As for :func:`headline`.
    labels : sequence of str
        The labels.
    """
    rows = differences[differences["label"].isin(list(labels))]
    rows = rows[(rows["verdict"] == "undecided") & np.isfinite(rows["decides"].astype(float))]
    if rows.empty:
        return ""
    sizes = [f"{number(size, places)} for {label}" for label, size in zip(rows["label"], rows["decides"], strict=True)]
    counts = sorted(set(rows["n"]))
    many = seeds(counts[0]) if len(counts) == 1 else f"{counts[0]} to {seeds(counts[-1])}"
    if (rows["over"] == SEEDS_AND_ITEMS).all():
        many += " and their test items"
    return (
        f"Undecided does not mean equal: these {many} decide a true difference in {metric.label} four times in five "
        f"only if it is at least {listing(sizes)}."
    )


def interval_sentence(differences: pd.DataFrame, metric: Metric) -> str:
    """Return a sentence that says whether intervals are over seeds, or seeds and items, and why; "" without any.

    Parameters
    ----------
    differences, metric
        As for :func:`headline`.
    """
    groups = [*differences[differences["low"].notna()].groupby(["over", "why"], sort=False)]
    parts = []
    for (over, why), part in groups:
        whose = "" if len(groups) == 1 else f" for {listing([str(label) for label in part['label']])}"
        units = f"seeds and the {int(part['items'].max()):,} test items" if over == SEEDS_AND_ITEMS else "seeds alone"
        parts.append(f"over {units}{whose}, as {why}")
    return f"Intervals of the differences in {metric.label} are {'; '.join(parts)}." if parts else ""


def edge_warning(means: Mapping[float, float], *, up: bool) -> str | None:
    """Return a warning if the best fixed ratio is the lowest or highest that ran, with ratios to add; else None.

    Parameters
    ----------
    means : mapping of ratio to mean score
        Mean score of each fixed ratio.
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
    room = edge if lowest else 1 - edge  # two more ratios divide the rest of the axis
    further = [room * share if lowest else 1 - room * share for share in (0.2, 0.6)]
    grid = " ".join(f"{ratio:g}" for ratio in sorted({*ratios, *(float(f"{ratio:.3g}") for ratio in further)}))
    return (
        f"The best fixed ratio, {edge:g}, is the {'lowest' if lowest else 'highest'} that ran: a "
        f"{'lower' if lowest else 'higher'} ratio may be better. To try some, repeat the command with --ratios {grid}"
    )


def _difference_phrase(difference: Mapping[Hashable, Any], places: int, against: str) -> str:
    mean, low, high = (float(difference[key]) for key in ("mean", "low", "high"))
    if not math.isfinite(low):
        gap, count = number(mean, places, signed=True), difference["n"]
        where = "on one seed, which decides nothing: use three or more"
        if count > 1:
            where = f"under each of {seeds(count)}, which shows no spread and decides nothing: use more seeds"
        return f"differs from {against} by {gap} {where}"
    places = difference_places(mean, low, high, places)
    verdict = difference["verdict"]
    if verdict == "undecided":
        gap, ends = number(mean, places, signed=True), interval(low, high, places, signed=True)
        return f"differs from {against} by {gap} ({ends}), which is undecided: the interval contains 0"
    if mean < 0:
        mean, low, high = -mean, -high, -low
    word = "beats" if verdict == "better" else "is worse than"
    return f"{word} {against} by {number(mean, places)} ({interval(low, high, places)})"


def _digits(size: float, significant: int) -> int:
    return min(max(significant - 1 - math.floor(math.log10(size)), 0), 6)


def _finite(values: Iterable[float]) -> list[float]:
    return [float(value) for value in values if math.isfinite(value)]
