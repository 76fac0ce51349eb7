"""What the paper says of the estimate itself: its bias (Sec. 3.5), and two ways to the same one (App. C)."""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from r2mae.reproduce.claims.claim import Check, Claim, Found
from r2mae.reproduce.claims.judging import by_limit, of_difference, of_errors, of_most, of_none
from r2mae.reproduce.claims.linear_model import columns
from r2mae.reproduce.claims.results import Results, UnavailableError

if TYPE_CHECKING:
    import pandas as pd

NO_BIAS = 0.01
"""A bias below this share of the null risk counts as none; the number is ours."""

NEGLIGIBLE = 1.0
"""A risk that changes by at most this, in %, changes negligibly; the number is ours."""

_INDEPENDENT = "identity"  # its features say nothing of each other: masking has nothing to gain


def _bias(results: Results, claim: Claim) -> Found:
    """Judge both halves of the sentence; a half that is refuted counts as a part that is missing."""
    parts = [f"{part}{suffix}" for part in ("bias", "variance") for suffix in ("", "_error")]
    rows = results.table("bias-variance", "side", "model", "n", "d", "ratio", *parts)
    wide, tall = (rows[rows["side"] == side] for side in ("d > n", "d < n"))
    if not len(wide) or not len(tall):
        raise UnavailableError("bias-variance has one side alone")
    same = set(wide["n"]) == {200}
    lowers = _lowered(wide[wide["model"] != _INDEPENDENT], same)
    absent, told = _absent(tall, same)
    first = replace(lowers, reason=f"{lowers.reason} {told}")
    if absent.verdict in ("reproduced", "direction only"):
        return first
    if lowers.verdict == "reproduced" and absent.verdict == "not reproduced":
        return replace(first, verdict="direction only")
    return of_most([first, absent], first.reason)


def _lowered(rows: "pd.DataFrame", same: bool) -> Found:
    """Judge whether the bias falls from the lowest ratio to that of the lowest risk, where features are dependent."""
    found, rises = [], []
    for _, own in ((name, columns(group)) for name, group in rows.groupby("model", sort=False)):
        best = int((own["bias"] + own["variance"]).argmin())
        fall, errors = own["bias"][0] - own["bias"][best], (own["bias_error"][0], own["bias_error"][best])
        found.append(of_difference(of_errors(float(fall), *errors), "", same=same))
        rises.append(own["variance"][best] - own["variance"][0])
    reason = f"Over the null risk; the smallest fall of {len(found)} covariances with dependent features. "
    way = "rises in all of them" if min(rises) > 0 else f"changes by {min(rises):.3f} to {max(rises):.3f}"
    return of_most(found, f"{reason}The variance {way}: what masking gains, the bias gives.")


def _absent(rows: "pd.DataFrame", same: bool) -> tuple[Found, str]:
    """Judge whether data with more kept rows than features have no bias; also tell the largest bias of each model."""
    found, told = [], []
    for name, own in ((str(name), columns(group)) for name, group in rows.groupby("model", sort=False)):
        most = int(own["bias"].argmax())
        interval = of_errors(float(own["bias"][most]), own["bias_error"][most], comparisons=len(own["bias"]))
        found.append(of_none(interval, "", margin=NO_BIAS, same=same))
        size = f"{max(0.0, round(own['bias'][most], 9)):.2g}"  # what rounding leaves of zero is zero
        told.append(f"{name} {size} (p = {own['ratio'][most]:g})")
    n, d = rows["n"].iloc[0], rows["d"].iloc[0]
    said = f"With d = {d}, n = {n}, where more rows are kept than there are features, the largest bias is: "
    return of_most(found, ""), f"{said}{', '.join(told)}. Less than {NO_BIAS:g} counts as none."


def _collapsed(results: Results, claim: Claim) -> Found:
    rows = results.table("estimators", "model", "n", "ratio", "range_minus_ratio")
    most = float(rows["range_minus_ratio"].abs().max())
    reason = f"In every repetition, {rows['model'].nunique()} covariances, {rows['ratio'].nunique()} ratios."
    return by_limit(most == 0, reason, most, same=_at_paper_size(rows))


def _pseudo_inverse(results: Results, claim: Claim) -> Found:
    rows = results.table("estimators", "model", "n", "d", "ratio", "pseudo_inverse", "ridge_minus_pseudo_inverse")
    change = 100 * (rows["ridge_minus_pseudo_inverse"] / rows["pseudo_inverse"]).abs().to_numpy(float)
    worst = rows.iloc[int(np.argmax(change))]
    reason = (
        f"Largest for {worst['model']} (d = {worst['d']}, n = {worst['n']}) at p = {worst['ratio']:g}; half of the "
        f"{len(rows)} settings change by at most {np.median(change):.2g} %. Up to {NEGLIGIBLE:g} % counts as "
        "negligible."
    )
    return by_limit(float(change.max()) <= NEGLIGIBLE, reason, float(change.max()), same=_at_paper_size(rows))


def _at_paper_size(rows: "pd.DataFrame") -> bool:
    return int(rows["n"].min()) == 200


CHECKS: dict[str, Check] = {
    "bias-overparametrised": _bias,
    "collapsed-range": _collapsed,
    "pseudo-inverse": _pseudo_inverse,
}
