"""From numbers to verdicts: the few rules that all checks share."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
from jaxtyping import Bool, Float
from scipy import stats

from r2mae.evaluation.statistics import mean_interval
from r2mae_paper.claims.claim import Found, Word, typeset

Interval: TypeAlias = tuple[float, float, float]
"""Mean, low and high; the ends are NaN where there is no interval."""

WITHIN = 2.0, 10.0
"""A formula describes a simulation if half of the points deviate by at most the first, and all by the second, in %."""


def over(values: Sequence[float] | Float[np.ndarray, " n"], comparisons: int = 1) -> Interval:
    """Return the mean of independent values with its 95 % interval.

    Equal values say nothing of a spread, and have no interval. It is corrected for the worst of several comparisons.
    """
    array = np.asarray(values, dtype=float)
    found = mean_interval(array, confidence=1 - 0.05 / comparisons)
    if found.n > 1 and np.ptp(array) <= 1e-9 * max(float(np.abs(array).max()), 1e-300):
        return found.mean, math.nan, math.nan
    return found.mean, found.low, found.high


def of_errors(mean: float, *errors: float, comparisons: int = 1) -> Interval:
    """Return a mean with the normal 95 % interval of independent standard errors, corrected for the best of several."""
    half = float(stats.norm.ppf(1 - 0.025 / comparisons)) * math.sqrt(sum(error**2 for error in errors))
    return mean, mean - half, mean + half


def of_difference(found: Interval, reason: str, *, paper: float | None = None, same: bool = True) -> Found:
    """Judge a measure that is positive where the sentence is right.

    Parameters
    ----------
    found : tuple of three floats
        The measure and its interval.
    reason : str
        What was measured, and on what.
    paper : float, optional
        The paper's number.
    same : bool
        Whether data and scale are the paper's. If not, nothing is "reproduced", and the paper's number decides nothing.
    """
    mean, low, high = found
    if not (math.isfinite(low) and math.isfinite(high)):
        return Found("undecided", f"{reason} One value has no interval.", mean, elsewhere=not same)
    word: Word = "reproduced" if low > 0 else "not reproduced" if high < 0 else "undecided"
    if not same:
        return Found("direction only" if low > 0 else word, reason, *found, elsewhere=True)
    if paper is None or high < 0 or low <= paper <= high:
        return Found(word, reason, *found)
    word = "direction only" if low > 0 else "not reproduced"
    return Found(word, f"{reason} The interval excludes the paper's number.", *found)


def of_level(found: Interval, reason: str, *, paper: float, precise: float, same: bool = True) -> Found:
    """Judge a number that the paper prints, which has no direction: other data or sizes say nothing of it.

    To agree with it the interval must contain it, and reach at most `precise` to either side: a wide one agrees with
    any number.
    """
    _, low, high = found
    if not same or not (math.isfinite(low) and math.isfinite(high)):
        return Found("undecided", reason, *found, elsewhere=not same)
    if not low <= paper <= high:
        return Found("not reproduced", reason, *found)
    if (high - low) / 2 > precise:
        return Found("undecided", f"{reason} The interval is too wide: it may reach {precise:.2g} to a side.", *found)
    return Found("reproduced", reason, *found)


def share_of(count: int, total: int) -> Interval:
    """Return a share with its exact 95 % interval."""
    exact = stats.binomtest(count, total).proportion_ci()
    return count / total, float(exact.low), float(exact.high)


def of_share(count: int, total: int, reason: str, *, paper: float | None = None, same: bool = True) -> Found:
    """Judge that something holds in most cases, by the exact interval of a share."""
    share, low, high = share_of(count, total)
    half = None if paper is None else paper - 0.5
    found = of_difference((share - 0.5, low - 0.5, high - 0.5), reason, paper=half, same=same)
    return replace(found, ours=share, low=low, high=high)


def of_none(found: Interval, reason: str, *, margin: float, one_sided: bool = False, same: bool = True) -> Found:
    """Judge a sentence that says that there is no difference: the interval must lie within a margin.

    It is refuted where the interval lies outside of the margin. One-sided, for a sentence that says that there is no
    gain, any loss is as good as none.
    """
    _, low, high = found
    said = f"{reason} A {'gain' if one_sided else 'difference'} of less than {margin:g} counts as none."
    if not (math.isfinite(low) and math.isfinite(high)):
        return Found("undecided", f"{said} One value has no interval.", *found, elsewhere=not same)
    word: Word = "undecided"
    if (one_sided or -margin <= low) and high <= margin:
        word = "reproduced" if same else "direction only"
    elif low > margin or (high < -margin and not one_sided):
        word = "not reproduced"
    return Found(word, said, *found, elsewhere=not same)


def by_limit(within: bool, reason: str, measure: float, *, same: bool = True) -> Found:
    """Judge a number without an interval by a limit, which the reason states."""
    word: Word = "not reproduced" if not within else "reproduced" if same else "direction only"
    return Found(word, reason, measure, elsewhere=not same)


def of_fit(
    simulated: Float[np.ndarray, " n"], predicted: Float[np.ndarray, " n"], reason: str, *, same: bool = True
) -> Found:
    """Judge how well a formula describes a simulation, by :data:`WITHIN`; the measure is the median in per cent."""
    off = 100 * np.abs(simulated / predicted - 1)
    median, worst = float(np.median(off)), float(off.max())
    said = f"{reason} Largest deviation {worst:.1f} %, of {len(off)} points."
    said += f" Half within {WITHIN[0]:g} % and all within {WITHIN[1]:g} % count as a fit."
    return by_limit(median <= WITHIN[0] and worst <= WITHIN[1], said, median, same=same)


def of_most(found: Sequence[Found], reason: str) -> Found:
    """Judge a sentence about several cases: it is as good as its weakest case, whose number is shown."""
    return replace(weakest(found), reason=reason)


def weakest(found: Sequence[Found]) -> Found:
    """Return the case that shows a sentence least."""
    order = ("not reproduced", "undecided", "direction only", "reproduced")
    return min(found, key=lambda one: (order.index(one.verdict), one.low if math.isfinite(one.low) else -math.inf))


def of_clearest(
    gaps: Mapping[str, Interval], reason: str, *, within: float, corrected: str, same: bool = True
) -> Found:
    """Judge that ratios differ, whatever the sign, in one case of several at least; the clearest one is shown.

    It is refuted where the interval of every case lies within a margin.

    Parameters
    ----------
    gaps : mapping
        Differences with intervals that are corrected for the number of cases and both signs, by the name of the case.
    reason : str
        What was measured, and on what.
    within : float
        The margin.
    corrected : str
        What the intervals are corrected for, in words.
    same : bool
        Whether data and scale are the paper's.
    """
    known = {one: gap for one, gap in gaps.items() if np.isfinite(gap[1])}
    equal = "; ".join(f"{one}: {gaps[one][0]:+.1f} under every seed" for one in gaps if one not in known)
    note = typeset(f" Cases without a spread have no interval ({equal}).") if equal else ""
    if not known:
        return Found("undecided", f"{reason}{note}", elsewhere=not same)
    case = max(known, key=lambda one: max(known[one][1], -known[one][2]))
    mean, low, high = gaps[case]
    said = f"{reason} Shown is {case}, the clearest; corrected for {corrected}.{note}"
    if low > 0 or high < 0:
        return Found("reproduced" if same else "direction only", said, mean, low, high, elsewhere=not same)
    none = len(known) == len(gaps) and all(one >= -within and other <= within for _, one, other in gaps.values())
    word: Word = "not reproduced" if none else "undecided"
    return Found(word, f"{said} Within {within:g} counts as none.", mean, low, high, elsewhere=not same)


def of_each(cases: Sequence[Float[np.ndarray, " n"]], *, same: bool, comparisons: int = 1) -> list[Found]:
    """Judge differences of cases that a sentence says something of all of.

    To show it, every case must show it, each by its own interval. One is enough to refute it, and that is the worst of
    several: its interval is corrected for their number, times the `comparisons` that the cases are one of.
    """
    found = [of_difference(over(values), "", same=same) for values in cases]
    corrected = (of_difference(over(values, len(cases) * comparisons), "", same=same) for values in cases)
    return [one if one.verdict != "not reproduced" else other for one, other in zip(found, corrected, strict=True)]


def largest_fall(values: Float[np.ndarray, " n"], errors: Float[np.ndarray, " n"]) -> tuple[Interval, int, int]:
    """Return the largest fall from one place to a later one as a negative number, with its interval and both places.

    The interval is corrected for the number of pairs. A curve that rises throughout has its smallest rise.
    """
    steps = values[None, :] - values[:, None]
    pairs = np.triu(np.ones_like(steps, dtype=bool), 1)
    first, last = np.unravel_index(np.where(pairs, steps, np.inf).argmin(), steps.shape)
    found = of_errors(float(steps[first, last]), errors[first], errors[last], comparisons=int(pairs.sum()))
    return found, int(first), int(last)


def above_lowest(values: Float[np.ndarray, " n"], errors: Float[np.ndarray, " n"]) -> Interval:
    """Return by how much the lower end of a curve lies above its lowest inner point.

    The interval is corrected for the number of inner points, of which the lowest was chosen.
    """
    lowest = int(values[1:-1].argmin()) + 1
    end = 0 if values[0] <= values[-1] else len(values) - 1
    return of_errors(
        float(values[end] - values[lowest]), errors[end], errors[lowest], comparisons=max(len(values) - 2, 1)
    )


def near_lowest(values: Float[np.ndarray, " n"], errors: Float[np.ndarray, " n"]) -> Bool[np.ndarray, " n"]:
    """Return which places may be the lowest: those whose distance from it has an interval that contains zero."""
    lowest = int(values.argmin())
    return np.asarray(values - values[lowest] <= 1.96 * np.hypot(errors, errors[lowest]))
