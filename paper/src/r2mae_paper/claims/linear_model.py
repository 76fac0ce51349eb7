"""What the paper says of the isotropic and the spiked linear model: Theorem 1, Corollary 1, Figs. 1A to 1D and 3."""

from dataclasses import replace
from itertools import pairwise, starmap
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from r2mae_paper.claims.claim import Check, Claim, Found
from r2mae_paper.claims.judging import (
    above_lowest,
    by_limit,
    largest_fall,
    near_lowest,
    of_difference,
    of_errors,
    of_fit,
    of_most,
)
from r2mae_paper.claims.results import Results, UnavailableError

if TYPE_CHECKING:
    import pandas as pd

SUBSTANTIAL = 0.1
"""A risk below that of predicting zero by this share of it counts as substantially lower; the number is ours."""

Columns = dict[str, Float[np.ndarray, " n"]]


def columns(rows: "pd.DataFrame") -> Columns:
    """Return the columns of numbers as arrays, rows in the order of the ratio."""
    ordered = rows.sort_values("ratio")
    return {str(name): ordered[name].to_numpy(float) for name in ordered if ordered[name].dtype.kind in "fi"}


def _isotropic(results: Results) -> tuple["pd.DataFrame", bool]:
    rows = results.table("fig1a", "gamma", "n", "d", "ratio", "risk", "error", "theorem1")
    return rows, set(rows["n"]) == {2000, 4000}


def _overparametrised(results: Results) -> tuple[Columns, bool]:
    rows, same = _isotropic(results)
    own = rows[rows["gamma"] > 1]
    if not len(own):
        raise UnavailableError("fig1a has no setting with more features than samples")
    return columns(own), same


def _times(own: Columns) -> str:
    return f"{own['gamma'][0]:g}"


def _other_side(results: Results) -> tuple[Columns, float, bool]:
    rows, same = _isotropic(results)
    own = rows[rows["gamma"] < 1]
    if not len(own):
        raise UnavailableError("fig1a has no setting with fewer features than samples")
    return columns(own), float(own["gamma"].iloc[0]), same


def _theorem1(results: Results, claim: Claim) -> Found:
    rows, same = _isotropic(results)
    rows = rows[~np.isclose(rows["ratio"], rows["gamma"])]
    reason = "Means over masks of one design against the theorem; p = d/n itself is left out, where both diverge."
    return of_fit(rows["risk"].to_numpy(float), rows["theorem1"].to_numpy(float), reason, same=same)


def _rises_beyond_gamma(results: Results, claim: Claim) -> Found:
    own, gamma, same = _other_side(results)
    beyond = own["ratio"] > gamma + 1e-9
    ratio = own["ratio"][beyond]
    found, first, last = largest_fall(own["risk"][beyond], own["error"][beyond])
    reason = f"At d = {gamma:g} n the simulated risk changes by this much from p = {ratio[first]:g} to {ratio[last]:g}"
    reason += "." if found[2] >= 0 else ": it falls before it rises."
    formula = own["theorem1"][beyond]
    falls = bool((np.diff(formula) < 0).any())
    reason += f" Theorem 1's own formula {'falls somewhere, too' if falls else 'rises throughout'}."
    return of_difference(found, reason, same=same)


def _has_a_minimum(results: Results, claim: Claim) -> Found:
    own, same = _overparametrised(results)
    best = own["ratio"][own["risk"].argmin()]
    return of_difference(
        above_lowest(own["risk"], own["error"]),
        f"The lowest risk at d = {_times(own)} n is at p = {best:g}.",
        same=same,
    )


def _rises_throughout(results: Results, claim: Claim) -> Found:
    own, same = _overparametrised(results)
    found, first, last = largest_fall(own["risk"], own["error"])
    ratio = own["ratio"]
    reason = (
        f"At d = {_times(own)} n the simulated risk changes by this much from p = {ratio[first]:g} to {ratio[last]:g}"
    )
    reason += "." if found[2] >= 0 else ": it falls there. The same section says that it has a minimum."
    return of_difference(found, reason, same=same)


def _peaks_at_gamma(results: Results, claim: Claim) -> Found:
    own, gamma, same = _other_side(results)
    ratio, risk, error = own["ratio"], own["risk"], own["error"]
    sides = []
    for side, nearest in ((ratio < gamma - 1e-9, -1), (ratio > gamma + 1e-9, 0)):
        place = np.flatnonzero(side)[nearest]
        others = np.setdiff1d(np.flatnonzero(side), place)
        lowest = others[risk[others].argmin()]
        gap = float(risk[place] - risk[lowest])  # the lowest was chosen
        sides.append(of_errors(gap, error[place], error[lowest], comparisons=len(others)))
    reason = f"By how much the risk beside p = d/n = {gamma:g} is above the lowest on its side, the smaller of both."
    return of_most([of_difference(one, "", same=same) for one in sides], reason)


def _no_use(results: Results, claim: Claim) -> Found:
    rows, same = _isotropic(results)
    each = [group for _, group in rows.groupby("gamma")]
    gains = {float(group["gamma"].iloc[0]): 1 - float(group["risk"].min()) for group in each}
    said = ", ".join(f"{100 * gain:.0f} % at d = {gamma:g} n" for gamma, gain in sorted(gains.items(), reverse=True))
    small = [gain < SUBSTANTIAL for gain in gains.values()]
    reason = (
        f"The lowest risk is below that of predicting zero by {said}; {100 * SUBSTANTIAL:.0f} % counts as substantial."
    )
    return by_limit(all(small), reason, max(gains.values()), same=same)


def _spiked(results: Results, target: str) -> tuple["pd.DataFrame", bool]:
    rows = results.table(
        target, "delta", "cosine", "ratio", "null", "risk", "error", "fresh_risk", "fresh_error", "formula"
    )
    rows = rows.dropna(subset=["fresh_risk"])
    # The table of the small scale has a fifth of the ratios of the formula.
    return rows, len(results.table(target, "ratio")["ratio"].unique()) > 50


def _curve(rows: "pd.DataFrame", delta: float, cosine: float) -> Columns:
    own = rows[(rows["delta"] == delta) & (rows["cosine"] == cosine)]
    if not len(own):
        raise UnavailableError(f"there is no curve for δ = {delta:g} and cos(β, v) = {cosine:g}")
    return columns(own)


def _corollary1(results: Results, claim: Claim) -> Found:
    rows, same = _spiked(results, "fig1b")
    predicted = results.table("fig1b", "corollary1").loc[rows.index, "corollary1"].to_numpy(float)
    fresh = of_fit(rows["fresh_risk"].to_numpy(float), predicted, "", same=same)
    own = rows["risk"].to_numpy(float)
    one = of_fit(own, predicted, "", same=same)
    most = float(100 * np.abs(own / predicted - 1).max())
    reason = (
        f"Means over fresh designs against the corollary, δ = 10, at three angles.{fresh.reason} With one design, as "
    )
    reason += (
        f"App. C has it, the median is {one.ours:.1f} %, and the largest deviation {most:.1f} %.{_stronger(results)}"
    )
    word = "direction only" if fresh.verdict == "reproduced" != one.verdict else fresh.verdict
    return replace(fresh, verdict=word, reason=reason)


def _stronger(results: Results) -> str:
    """Return how far the general formula is off at the strongest spike of Fig. 1C, in words."""
    try:
        rows, _ = _spiked(results, "fig1c")
    except UnavailableError:
        return ""
    own = rows[rows["delta"] == rows["delta"].max()]
    off = 100 * (own["fresh_risk"] / own["formula"] - 1).abs()
    return (
        f" At δ = {own['delta'].max():g} (Fig. 1C) our general formula is off by {off.median():.1f} % in the median, "
        f"and by {off.max():.0f} % at most."
    )


def _weak_spike(results: Results, claim: Claim) -> Found:
    rows, same = _spiked(results, "fig1c")
    descents = {}
    for delta in (1.0, 10.0):
        own = _curve(rows, delta, 1.0)
        descents[delta] = 1 - float(own["fresh_risk"].min()) / float(own["null"][0])
    reason = (
        f"The descent of the risk along a spike of δ = 1, as a share of the null risk; {descents[10.0]:.2f} at δ = 10. "
    )
    reason += f"We count {SUBSTANTIAL:g} as substantial."
    return by_limit(descents[1.0] < SUBSTANTIAL, reason, descents[1.0], same=same)


def _sweet_spot(results: Results, claim: Claim) -> Found:
    rows, same = _spiked(results, "fig1c")
    own = _curve(rows, 100.0, 1.0)
    null, lowest = float(own["null"][0]), int(own["fresh_risk"].argmin())
    share, error = float(own["fresh_risk"][lowest]) / null, float(own["fresh_error"][lowest]) / null
    interior = of_difference(above_lowest(own["fresh_risk"], own["fresh_error"]), "", same=same)
    reason = f"The lowest risk along a spike of δ = 100 over the null risk, at p = {own['ratio'][lowest]:g}. "
    reason += "We count 0.05 as near zero; the bias is not measured apart."
    word = interior.verdict if share < 0.05 else "not reproduced"
    return Found(word, reason, *of_errors(share, error), elsewhere=not same)


def _lowest(own: Columns) -> tuple[float, float]:
    place = int(own["fresh_risk"].argmin())
    return float(own["fresh_risk"][place] / own["null"][0]), float(own["fresh_error"][place] / own["null"][0])


def _deeper(curves: list[Columns], reason: str, *, same: bool) -> Found:
    """Judge that each curve descends deeper than the one before it, of the null risk."""
    lowest = [_lowest(own) for own in curves]
    said = ", ".join(f"{value:.3f}" for value, _ in lowest)
    steps = [of_errors(a - b, e, f) for (a, e), (b, f) in pairwise(lowest)]
    return of_most(
        [of_difference(step, "", same=same) for step in steps], f"{reason} The lowest risks over the null risk: {said}."
    )


def later(curves: list[Columns], reason: str, *, key: str = "fresh_", same: bool) -> Found:
    """Judge that the best ratio grows from curve to curve.

    The best ratio of a curve is known up to the ratios whose risk cannot be told from the lowest. It grows if those of
    the last curve are all above those of the first, and no step in between goes clearly down. Ratios lie on a grid, so
    that both ends of a difference are uncertain by its step.
    """
    places = []
    for own in curves:
        near = own["ratio"][near_lowest(own[f"{key}risk"], own[f"{key}error"])]
        places.append((float(own["ratio"][own[f"{key}risk"].argmin()]), float(near.min()), float(near.max())))
    said = ", ".join(f"{best:g}" for best, _, _ in places)
    grid = float(np.diff(curves[0]["ratio"]).min())

    def step(before: tuple[float, float, float], after: tuple[float, float, float]) -> tuple[float, float, float]:
        return after[0] - before[0], after[1] - before[2] - grid, after[2] - before[1] + grid

    down = [one for one in starmap(step, pairwise(places)) if one[2] < 0]
    found = min(down) if down else step(places[0], places[-1])
    return of_difference(found, f"{reason} Best ratios: {said}.", same=same)


def _by_angle(results: Results) -> tuple[list[Columns], bool]:
    rows, same = _spiked(results, "fig1b")
    cosines = sorted(rows["cosine"].unique())
    return [_curve(rows, 10.0, cosine) for cosine in cosines], same


def _by_strength(results: Results, target: str) -> tuple[list[Columns], bool]:
    rows, same = _spiked(results, target)
    return [_curve(rows, delta, 1.0) for delta in sorted(rows["delta"].unique())], same


_ANGLES = "Spike of δ = 10, cos(β, v) = 0, 0.5, 1."
_STRENGTHS = "β along the spike, δ = 1, 10, 100."


def _deeper_by_angle(results: Results, claim: Claim) -> Found:
    curves, same = _by_angle(results)
    return _deeper(curves, _ANGLES, same=same)


def _later_by_angle(results: Results, claim: Claim) -> Found:
    curves, same = _by_angle(results)
    return _with_formula(later(curves, _ANGLES, same=same), results, "fig1b", "cosine")


def _with_formula(found: Found, results: Results, target: str, by: str) -> Found:
    """Add the best ratios by the formula, whose grid is finer; they must grow from curve to curve, too."""
    rows = results.table(target)
    rows = rows[rows["cosine"] == 1] if by == "delta" else rows
    best = [float(group["ratio"].iloc[int(group["formula"].argmin())]) for _, group in rows.groupby(by)]
    reason = f"{found.reason} By the formula, on a finer grid: {', '.join(f'{ratio:g}' for ratio in best)}."
    grows = all(after > before for before, after in pairwise(best))
    word = "direction only" if found.verdict == "reproduced" and not grows else found.verdict
    return replace(found, verdict=word, reason=reason)


def _deeper_by_strength(results: Results, claim: Claim) -> Found:
    curves, same = _by_strength(results, "fig1c")
    return _deeper(curves, _STRENGTHS, same=same)


def _later_by_strength(results: Results, claim: Claim) -> Found:
    curves, same = _by_strength(results, "fig1c")
    return _with_formula(later(curves, _STRENGTHS, same=same), results, "fig1c", "delta")


def _as_with_ones(results: Results, claim: Claim) -> Found:
    curves, same = _by_strength(results, "fig3")
    return _deeper(curves, f"v = 1/√d. {_STRENGTHS}", same=same)


def _disparity(results: Results, target: str, name: str) -> Found:
    """Judge that the magnitude across the spike over that along it falls with the ratio, for every strength."""
    rows = results.table(target, "delta", "ratio", "magnitude_ratio", "fresh_magnitude_ratio", name=name).dropna()
    grows, said = [], []
    for delta, group in rows.groupby("delta"):
        own = columns(group)
        both = [bool(own[key][own["ratio"] > 0.5].mean() < own[key][own["ratio"] < 0.5].mean())
                for key in ("magnitude_ratio", "fresh_magnitude_ratio")]  # fmt: skip
        grows.append(all(both))
        said.append(f"at δ = {delta:g} it is greatest at p = {own['ratio'][own['fresh_magnitude_ratio'].argmin()]:g}")
    share = sum(grows) / len(grows)
    reason = f"For {sum(grows)} of {len(grows)} strengths the disparity is greater over p > 0.5 than over p < 0.5; "
    same = len(results.table(target, "ratio", name=name)["ratio"].unique()) > 50
    return by_limit(share == 1, f"{reason}{', '.join(said)}.", share, same=same)


CHECKS: dict[str, Check] = {
    "theorem-1": _theorem1,
    "rise-underparametrised": _rises_beyond_gamma,
    "minimum-overparametrised": _has_a_minimum,
    "rise-overparametrised": _rises_throughout,
    "transition": _peaks_at_gamma,
    "isotropic-useless": _no_use,
    "corollary-1": _corollary1,
    "weak-spike": _weak_spike,
    "sweet-spot": _sweet_spot,
    "deeper-aligned": _deeper_by_angle,
    "later-aligned": _later_by_angle,
    "deeper-strong": _deeper_by_strength,
    "later-strong": _later_by_strength,
    "disparity": lambda results, claim: _disparity(results, "fig1d", ""),
    "ones": _as_with_ones,
    "ones-disparity": lambda results, claim: _disparity(results, "fig3", "fig3-magnitude"),
}
