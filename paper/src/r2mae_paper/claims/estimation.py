"""What the paper says of the estimate itself: its bias (Sec. 3.5), and two ways to the same one (App. C)."""

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from jaxtyping import Float
from scipy import stats

from r2mae_paper.claims.claim import Check, Claim, Found
from r2mae_paper.claims.judging import Interval, by_limit, of_difference, of_most, of_none
from r2mae_paper.claims.linear_model import columns
from r2mae_paper.claims.results import Results, UnavailableError

if TYPE_CHECKING:
    import pandas as pd

Values: TypeAlias = Float[np.ndarray, " n"]

NO_BIAS = 0.01
"""A bias below this share of the null risk counts as none; the number is ours."""

NEGLIGIBLE = 1.0
"""A risk that changes by at most this, in %, changes negligibly; the number is ours."""

_INDEPENDENT = "identity"  # its features say nothing of each other: masking has nothing to gain


def _side(results: Results, side: str) -> tuple["pd.DataFrame", bool]:
    """Return the rows of wide or of tall data, and whether the sizes are the paper's."""
    parts = ("bias", "bias_error", "bias_formula", "bias_whole", "variance", "variance_error")
    rows = results.table("bias-variance", "side", "model", "n", "d", "ratio", "draws", *parts)
    own = rows[rows["side"] == side]
    if not len(own):
        raise UnavailableError(f"bias-variance has no rows with {side}")
    return own, int(rows["n"].min()) == 200


def _bias(results: Results, claim: Claim) -> Found:
    rows, same = _side(results, "d > n")
    return _lowered(rows[rows["model"] != _INDEPENDENT], same)


def _no_bias(results: Results, claim: Claim) -> Found:
    return _absent(*_side(results, "d < n"))


def _lowered(rows: "pd.DataFrame", same: bool) -> Found:
    """Judge whether the bias falls from the lowest ratio to that of the lowest risk, where features are dependent."""
    found, rises, masked = [], [], []
    for _, own in ((name, columns(group)) for name, group in rows.groupby("model", sort=False)):
        best = int((own["bias"] + own["variance"]).argmin())
        if best == 0:
            found.append(Found("not reproduced", "", 0.0, elsewhere=not same))
        else:
            found.append(of_difference(_fall(own["bias"], own["bias_error"], best, own["draws"][0]), "", same=same))
        rises.append(own["variance"][best] - own["variance"][0])
        masked.append(own["bias_formula"][best] > own["bias_whole"][best])
    way = "rises in all" if min(rises) > 0 else f"changes by {min(rises):.3f} to {max(rises):.3f}"
    return of_most(
        found,
        f"Over the null risk; the smallest fall of {len(found)} covariances with dependent features. The variance "
        f"{way}. A higher ratio also keeps more rows: by the formula as many whole rows have a lower bias in "
        f"{sum(masked)} of them.",
    )


def _fall(values: Values, errors: Values, place: int, draws: float) -> Interval:
    """Return the first value minus another, with an interval by Student's t of one mean's degrees of freedom."""
    fall = float(values[0] - values[place])
    half = float(stats.t.ppf(0.975, draws - 1) * np.hypot(errors[0], errors[place]))
    return fall, fall - half, fall + half


def _absent(rows: "pd.DataFrame", same: bool) -> Found:
    """Judge whether masked data with more kept rows than features have no bias."""
    found, told = [], []
    for name, own in ((str(name), columns(group)) for name, group in rows.groupby("model", sort=False)):
        most = int(own["bias"].argmax())
        half = float(stats.t.ppf(1 - 0.025 / len(own["bias"]), own["draws"][0] - 1)) * own["bias_error"][most]
        size = float(own["bias"][most])
        found.append(of_none((size, size - half, size + half), "", margin=NO_BIAS, same=same))
        none = round(size, 9) <= 0  # but for rounding
        told.append(f"{name} 0" if none else f"{name} {size:.2g} (p = {own['ratio'][most]:g})")
    n, d = rows["n"].iloc[0], rows["d"].iloc[0]
    said = f"With d = {d}, n = {n}, where more rows are kept than there are features, the largest bias is: "
    return of_most(found, f"{said}{', '.join(told)}. Less than {NO_BIAS:g} counts as none.")


def _collapsed(results: Results, claim: Claim) -> Found:
    rows = results.table("estimators", "model", "n", "ratio", "range_minus_ratio")
    most = float(rows["range_minus_ratio"].abs().max())
    reason = f"In every repetition of {rows['model'].nunique()} settings at {rows['ratio'].nunique()} ratios. Here it "
    reason += "holds by construction, since both take the same uniform numbers, as in the paper."
    return by_limit(most == 0, reason, most, same=_at_paper_size(rows))


def _pseudo_inverse(results: Results, claim: Claim) -> Found:
    names = ("ridge_changes_percent", "ridge_changes_at_most")
    rows = results.table("estimators", "model", "n", "d", "ratio", *names)
    change, most = (rows[name].to_numpy(float) for name in names)
    worst = rows.iloc[int(np.argmax(change))]
    reason = (
        f"Of the median mask; largest for {worst['model']} (d = {worst['d']}, n = {worst['n']}) at p = "
        f"{worst['ratio']:g}. Half of the {len(rows)} settings change by at most {np.median(change):.2g} %, a single "
        f"mask by {most.max():.2g} %. Up to {NEGLIGIBLE:g} % of the median mask counts as negligible."
    )
    return by_limit(float(change.max()) <= NEGLIGIBLE, reason, float(change.max()), same=_at_paper_size(rows))


def _at_paper_size(rows: "pd.DataFrame") -> bool:
    return int(rows["n"].min()) == 200


CHECKS: dict[str, Check] = {
    "bias-overparametrised": _bias,
    "bias-alone": _no_bias,
    "collapsed-range": _collapsed,
    "pseudo-inverse": _pseudo_inverse,
}
