"""What the paper says of general covariances in the linear model: Figs. 1E to 1G and 4, Tables 5 and 9."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from scipy import stats

from r2mae_paper.claims.claim import Check, Claim, Found, Word, typeset
from r2mae_paper.claims.judging import (
    above_lowest,
    by_limit,
    of_difference,
    of_errors,
    of_fit,
    of_level,
    of_most,
    of_share,
    over,
    share_of,
)
from r2mae_paper.claims.linear_model import Columns, columns, later
from r2mae_paper.claims.results import Results, UnavailableError
from r2mae_paper.published import Model, published

if TYPE_CHECKING:
    import pandas as pd

Table = Literal["table5", "table9"]

PLATEAU = 0.1
"""A plateau must be this wide, in units of the ratio, to count as one: two steps of the grid; the number is ours."""

_FIRST, _GRID = 0.05, 0.05  # lowest ratio and step of the curves of Fig. 1G
_STARTED = 0.25  # of the descent: with less of it behind, a ratio counts as degenerate; the number is ours
_PRECISE = 0.15  # of the paper's level: a wider interval agrees with any; the number is ours
_NARROW = 0.1  # width of the paper's ranges in the linear model
_SEEDS = 5  # of the paper's Tables 5 and 9, for each model


def _models(results: Results) -> tuple[dict[str, list[Columns]], bool]:
    """Return each covariance model's curves, from the weakest signal to the strongest; equal eigenvalues count once."""
    table = results.table("fig1e", "model", "quantile", "eigenvalue", "ratio", "normalised_risk", "error")
    thresholds = results.table("fig1e", "gamma", "n", name="fig1e-thresholds")
    models: dict[str, list[Columns]] = {}
    for model, rows in table.groupby("model", sort=False):
        signals = [columns(group) for _, group in rows.groupby("quantile", sort=True)]
        strong = {round(float(own["eigenvalue"][0]), 4): own for own in reversed(signals)}
        models[str(model)] = [strong[value] for value in sorted(strong)]
    return models, bool(thresholds["n"].iloc[0] == 500)


def _of_models(results: Results, judge: Any, reason: str) -> Found:
    models, same = _models(results)
    found = {name: judge(curves, same) for name, curves in models.items()}
    said = "; ".join(f"{name}: {one.reason}" if one.reason else name for name, one in found.items())
    return of_most(list(found.values()), f"{reason} {said}.")


def _non_monotonic(results: Results, claim: Claim) -> Found:
    def judge(curves: Sequence[Columns], same: bool) -> Found:
        own = curves[-1]
        best = own["ratio"][own["normalised_risk"].argmin()]
        return of_difference(above_lowest(own["normalised_risk"], own["error"]), f"p = {best:g}", same=same)

    return _of_models(results, judge, "Largest eigenvalue; the lowest risk is at")


def _stronger_deeper(results: Results, claim: Claim) -> Found:
    def judge(curves: Sequence[Columns], same: bool) -> Found:
        lowest = [
            (float(own["normalised_risk"].min()), float(own["error"][own["normalised_risk"].argmin()]))
            for own in curves
        ]
        steps = [of_errors(a - b, e, f) for (a, e), (b, f) in pairwise(lowest)]
        said = ", ".join(f"{value:.2f}" for value, _ in lowest)
        return of_most([of_difference(step, "", same=same) for step in steps], said)

    return _of_models(results, judge, "Lowest normalised risk from the weakest to the strongest eigenvector.")


def _stronger_later(results: Results, claim: Claim) -> Found:
    def judge(curves: Sequence[Columns], same: bool) -> Found:
        renamed = [{"ratio": own["ratio"], "risk": own["normalised_risk"], "error": own["error"]} for own in curves]
        found = later(renamed, "", key="", same=same)
        return replace(found, reason=found.reason.split(": ")[-1].rstrip("."))

    return _of_models(results, judge, "Best ratios from the weakest to the strongest eigenvector.")


def _threshold(results: Results, claim: Claim) -> Found:
    rows = results.table("fig1e", "model", "n", "threshold", "threshold_over_mean", name="fig1e-thresholds")
    rows = rows.groupby("model", sort=False).head(1)  # the first of each model is the one that is drawn
    spread = float(rows["threshold_over_mean"].max() / rows["threshold_over_mean"].min())
    said = ", ".join(f"{row.threshold:.2f} ({row.model})" for row in rows.itertuples())
    reason = f"Largest threshold over the smallest, in units of the mean eigenvalue; eigenvalues: {said}. "
    reason += "A spread of a tenth would count as one threshold. "
    reason += "It depends on the spectrum by a law (paper/results/theory)."
    same = bool(rows["n"].iloc[0] == 500)
    return by_limit(spread <= 1.1, reason, spread, same=same)


def _ends(results: Results, claim: Claim) -> Found:
    """Judge that the risk is near that of predicting zero at the lowest ratio and far above it at the highest."""
    models, same = _models(results)
    strongest = [curves[-1] for curves in models.values()]
    start = [float((1 - own["normalised_risk"][0]) / (1 - own["normalised_risk"].min())) for own in strongest]
    steps = [of_errors(float(own["normalised_risk"][-1] - 1), own["error"][-1]) for own in strongest]
    reason = (
        f"At p = 0.05 the largest eigenvector has {100 * min(start):.0f} to {100 * max(start):.0f} % of its descent "
    )
    reason += "behind it; at p = 0.95 its risk exceeds the null risk by at least the number shown. "
    reason += f"Less than {100 * _STARTED:.0f} % of the descent counts as degenerate."
    found = of_most([of_difference(step, "", same=same) for step in steps], reason)
    return found if max(start) < _STARTED else replace(found, verdict="not reproduced")


def _plateaus(results: Results, reading: str) -> "pd.DataFrame":
    rows = results.table(
        "fig1g",
        "reading",
        "sample",
        "first_until",
        "near_best_from",
        "near_best_until",
        "best_ratio",
        "best_risk",
        name="fig1g-plateaus",
    )
    rows = rows[(rows["reading"] == reading) & (rows["sample"] != "formula")]
    if not len(rows):
        raise UnavailableError(f"fig1g has no samples of the reading {reading}")
    return rows


def _of_readings(results: Results, measure: Any, reason: str) -> Found:
    """Judge both readings of the model by the one that supports the sentence better."""
    same = len(_plateaus(results, "D")) >= 10
    found = []
    for reading in ("D", "WW"):
        widths = np.asarray(measure(_plateaus(results, reading)), dtype=float)
        mean, low, high = over(widths)
        if np.isnan(low):  # all samples alike
            low = high = mean
        judged = of_difference((mean - PLATEAU, low - PLATEAU, high - PLATEAU), "", same=same)
        said = f"{reason} {int((widths >= PLATEAU).sum())} of {len(widths)} samples have one of {PLATEAU:g} or more."
        found.append(Found(judged.verdict, said, mean, low, high, elsewhere=not same))
    order = ("reproduced", "direction only", "undecided", "not reproduced")
    return min(found, key=lambda one: (order.index(one.verdict), -one.ours))


def _first_plateau(results: Results, claim: Claim) -> Found:
    reason = "From p = 0.05 to where a tenth of the descent is behind; the better of two readings of the text."
    return _of_readings(results, lambda rows: rows["first_until"] - 0.05, reason)


def _best_plateau(results: Results, claim: Claim) -> Found:
    """Judge that the curve is flatter before its minimum than the parabola from its start at p = 0.05 to that minimum.

    Any smooth minimum has ratios within a tenth of the descent. Those of the parabola begin √0.1 of the way before it.
    """

    def wider(rows: "pd.DataFrame") -> "pd.Series[float]":
        return rows["best_ratio"] - rows["near_best_from"] - math.sqrt(0.1) * (rows["best_ratio"] - _FIRST)

    same = len(_plateaus(results, "D")) >= 10
    found = []
    for reading in ("D", "WW"):
        rows = _plateaus(results, reading)
        mean, low, high = over(np.asarray(wider(rows), dtype=float))
        width = float((rows["near_best_until"] - rows["near_best_from"]).mean())
        reason = (
            "From the first ratio within a tenth of the descent of the best to the best one, minus what a parabola "
        )
        reason += (
            f"from p = {_FIRST:g} to the same minimum has; the better of two readings. The whole range is {width:.2f}"
        )
        reason += f" wide. Ratios lie {_GRID:g} apart, by which the range may begin earlier."
        judged = of_difference((mean, low, high + _GRID), typeset(reason), same=same)
        found.append(judged)
    order = ("reproduced", "direction only", "undecided", "not reproduced")
    return min(found, key=lambda one: (order.index(one.verdict), -one.ours))


def _another_sample(results: Results, claim: Claim) -> Found:
    """Judge that two samples of one model differ, at the ratio where they differ most for their errors.

    Ratios at which either risk exceeds the null risk are left out: there it explodes. The interval is corrected for the
    other ratios and for all pairs of samples that the two were chosen from.
    """
    table = results.table("fig4", "reading", "sample", "ratio", "normalised_risk", "error")
    same = len(_plateaus_of(results)) >= 10
    found, places = [], []
    samples = len(_plateaus(results, "D"))
    for reading, rows in table.groupby("reading", sort=False):
        first, second = (columns(group) for _, group in rows.groupby("sample"))
        a, b = first["normalised_risk"], second["normalised_risk"]
        below = np.flatnonzero((a <= 1) & (b <= 1))
        if not len(below):
            raise UnavailableError("fig4 has no ratio at which both risks are below the null risk")
        count = len(below) * math.comb(max(samples, 2), 2)
        gaps = {place: of_errors(abs(float(a[place] - b[place])), first["error"][place], second["error"][place],
                                 comparisons=count) for place in below}  # fmt: skip
        place = max(gaps, key=lambda one: gaps[one][1])
        found.append(gaps[place])
        places.append(f"p = {first['ratio'][place]:g} ({reading})")
    reason = (
        f"The two samples of {samples} whose nearly best ratios lie farthest apart, at the ratio where they differ "
        f"most clearly, of those at which neither exceeds the null risk: {', '.join(places)}, by reading. Corrected "
        "for these ratios and all pairs of samples."
    )
    return of_most([of_difference(gap, "", same=same) for gap in found], reason)


def _plateaus_of(results: Results) -> "pd.DataFrame":
    rows = results.table("fig4", "best_ratio", name="fig4-plateaus")
    return rows[rows["reading"] == "D"]


def _cells(results: Results, claim: Claim) -> tuple["pd.DataFrame", bool]:
    rows = results.table(claim.target, "model", "seed", "gain", "over_best", "r2mae")
    return rows, len(rows) >= 2 * _SEEDS


def _over_middle(results: Results, claim: Claim) -> Found:
    rows, same = _cells(results, claim)
    better = int((rows["gain"] < 0).sum())
    reason = f"R²MAE is better in {better} of {len(rows)} cells of the table, and in all of the paper's."
    reason += _twice(results, claim.target)
    return of_difference(over(-rows["gain"].to_numpy(float)), reason, paper=claim.paper, same=same)


def _twice(results: Results, target: str) -> str:
    """Return what comes out if the number that gives a row its ratio also decides whether it is kept."""
    try:
        rules = results.table("r2mae-vs-fixed", "table", "reading", "difference")
    except UnavailableError:
        return ""
    own = rules[(rules["table"] == target) & (rules["reading"] == "same number twice")]
    if not len(own):
        return ""
    return typeset(
        f" If one random number serves twice, it is {-own['difference'].mean():.4f} (docs/theory/r2mae-vs-fixed.md)."
    )


def _over_best(results: Results, claim: Claim) -> Found:
    rows, same = _cells(results, claim)
    better = int((rows["over_best"] < 0).sum())
    mean, low, high = over(-rows["over_best"].to_numpy(float))
    reason = f"In {better} of {len(rows)} cells of the table. The best ratio's risk minus R²MAE's is {mean:.4f} "
    reason += (
        f"({low:.4f} to {high:.4f}), the paper's {_paper_gap(claim.target):.4f}; our best ratio is chosen on other "
    )
    reason += "masks than it is measured on."
    return of_share(better, len(rows), typeset(reason), paper=claim.paper, same=same)


def _misaligned(results: Results, claim: Claim) -> Found:
    """Judge R²MAE against the best fixed ratio in those cells of both tables whose best ratio is not in its range."""
    better = count = papers = printed = 0
    same = True
    for name in ("table5", "table9"):
        rows = results.table(name, "over_best", "best_ratio")
        low, high = published(name).low, published(name).high
        own = rows[(rows["best_ratio"] < low - 1e-9) | (rows["best_ratio"] > high + 1e-9)]
        better, count = better + int((own["over_best"] < 0).sum()), count + len(own)
        same = same and len(rows) >= 2 * _SEEDS
        cells = [cell for each in published(name).entries.values() for cell in each.values()]
        beside = [cell for cell in cells if not low <= cell.best_ratio <= high]
        papers, printed = papers + sum(cell.r2mae < cell.best for cell in beside), printed + len(beside)
    if not count:
        raise UnavailableError("in no cell of Tables 5 and 9 is the best ratio outside of R²MAE's range")
    reason = (
        f"R²MAE is better in {better} of {count} cells of Tables 5 and 9 whose best ratio is outside of its range; in "
    )
    reason += f"the paper's tables in {papers} of {printed}."
    found = of_level(share_of(better, count), reason, paper=papers / printed, precise=0.2, same=same)
    if not better:
        none = f"{found.reason} It says that R²MAE can beat it, which no cell of ours shows."
        word: Word = "undecided" if found.verdict == "reproduced" else found.verdict
        return replace(found, verdict=word, reason=none)
    return replace(found, verdict="direction only") if found.verdict == "not reproduced" and better else found


def _theorem3(results: Results, claim: Claim) -> Found:
    """Judge our general formula at eigenvectors; it is the limit of what Theorem 3 says of one design."""
    rows = results.table("validation", "model", "signal", "simulated", "formula")
    fixed = np.array([_is_number(value) for value in rows["ratio"]])
    own = rows[(rows["signal"] != "random") & fixed]
    if not len(own):
        raise UnavailableError("validation has no eigenvectors at fixed ratios")
    reason = (
        "Our general formula at eigenvectors and fixed ratios; the theorem is of one design, whose mean over designs "
    )
    reason += "tends to it. The theorem's own terms are not printed."
    found = of_fit(own["simulated"].to_numpy(float), own["formula"].to_numpy(float), reason)
    return replace(found, verdict="direction only") if found.verdict == "reproduced" else found


def _is_number(value: object) -> bool:
    try:
        return math.isfinite(float(str(value)))
    except ValueError:
        return False


def _paper_gap(table: str) -> float:
    cells = [cell for cells in published(cast(Table, table)).entries.values() for cell in cells.values()]
    return float(np.mean([cell.best - cell.r2mae for cell in cells]))


def _level(results: Results, claim: Claim, model: Model) -> Found:
    rows, same = _cells(results, claim)
    own = rows[rows["model"] == model]
    if not len(own) or claim.paper is None:
        raise UnavailableError(f"{claim.target} has no rows of the model {model}")
    printed = [cell.r2mae for cell in published(cast(Table, claim.target)).entries[model].values()]
    ours = own["r2mae"].to_numpy(float)
    reason = "Each seed has a covariance of its own. "
    if model == "beta":
        reason += "No reading of the Beta spectrum that was tried gives the levels of both tables (docs/theory/"
        reason += "r2mae-vs-fixed.md). "
    found = of_level(over(ours), reason.strip(), paper=claim.paper, precise=math.inf, same=same)
    if not same or not math.isfinite(found.low):
        return found
    apart = stats.ttest_ind(ours, printed, equal_var=False).confidence_interval()
    low, high = float(apart.low), float(apart.high)
    reason += f"Ours minus the five printed cells has the interval {low:.3f} to {high:.3f} (Welch), which decides."
    judged = of_level(
        (0.0, low, high), reason, paper=0.0, precise=_PRECISE * claim.paper
    )  # a difference of 0 is the paper's level
    return replace(found, verdict=judged.verdict, reason=typeset(judged.reason))


def _ranges(results: Results, claim: Claim) -> Found:
    rows = results.table("ranges", "best_fixed", "range", "best_ratio", "low", "high")
    rows = rows[(rows["low"] < rows["best_ratio"]) & (rows["best_ratio"] < rows["high"])]
    better, count = int((rows["range"] < rows["best_fixed"]).sum()), len(rows)
    if not count:
        raise UnavailableError("no range of the settings holds the best ratio")
    width = rows["high"] - rows["low"]
    narrow = rows[width <= _NARROW + 1e-9]
    among = int((narrow["range"] < narrow["best_fixed"]).sum())
    reason = f"By our general formula, over directions, in {better} of {count} random settings whose range holds the "
    reason += f"best ratio; the median range is {width.median():.2f} wide. Of {len(narrow)} that are as narrow as the "
    reason += f"paper's ({_NARROW:g}) in {among}."
    return of_share(better, count, reason, same=False)


CHECKS: dict[str, Check] = {
    "non-monotonic": _non_monotonic,
    "stronger-deeper": _stronger_deeper,
    "stronger-later": _stronger_later,
    "threshold": _threshold,
    "first-plateau": _first_plateau,
    "best-plateau": _best_plateau,
    "another-sample": _another_sample,
    "ends-degenerate": _ends,
    "table5-middle": _over_middle,
    "table5-best": _over_best,
    "table5-beta": partial(_level, model="beta"),
    "table5-latent": partial(_level, model="latent"),
    "table9-middle": _over_middle,
    "table9-best": _over_best,
    "table9-beta": partial(_level, model="beta"),
    "table9-latent": partial(_level, model="latent"),
    "misaligned": _misaligned,
    "theorem-3": _theorem3,
    "ranges": _ranges,
}
