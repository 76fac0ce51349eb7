"""What advice on mask ratios says, in words and as plain types."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from r2mae.theory.advise import Advice

FAILED, SETS, HELD = 6, 6, 16
"""Sets of paper/results/randomness on which advice was wrong for networks; fits of paper/results/theory/realdata."""
_CAVEAT = (
    "The formula describes a linear model without a ridge, with each row masked once. A network sees every row under "
    "many masks, and its training regularises it. To choose a ratio for pretraining, train: r2mae compare DATA "
    "--schemes fixed r2mae --ratios 0.1 0.3 0.5 0.7 0.9 --seeds 3. Until then, take the default range of r2mae."
)


def advice_text(
    data: str, notes: Sequence[str], advice: Advice, holds: bool, cautions: list[str], kind: str
) -> dict[str, Any]:
    """Return all that is said, as plain types; no ratio where such advice was wrong on similar data.

    Parameters
    ----------
    data : str
        Name of the data.
    notes : sequence of str
        What was done to the data, in words.
    advice : Advice
    holds : bool
        Whether such advice held on similar data.
    cautions : list of str
        Cautions, in words.
    kind : str
        "raw" or "standardised" features.
    """
    lead, features, plateau = advice.directions, advice.features, advice.suggested if holds else None
    best, drawn = None, None
    answer = (
        f"Answer: no ratio for pretraining. Such advice failed for networks trained on {FAILED} of {SETS} sets, and "
        f"held in all {HELD} linear fits without nearly empty features"
    )
    words = (
        f"{data}: masked ridgeless regression on n = {advice.n:,} rows of d = {advice.d:,} {kind} features can "
        f"learn {int(lead.learnable.sum())} of {len(lead.variance)} leading directions ({100 * advice.share:.0f} % of "
        f"the variance) and {int(features.learnable.sum()):,} of {advice.d:,} features from the others."
    )
    if holds:
        means = {"directions": lead.mean, "features": features.weighted}
        best = {name: {"ratio": lead.ratio_of_lowest(mean), "risk": np.nanmin(mean)} for name, mean in means.items()}
        told = (f"{found['risk']:.3f} of the {name} at {found['ratio']:.2f}" for name, found in best.items())
        words += f" The lowest mean risks (1 is predicting zero): {', '.join(told)}."
    if plateau is not None and advice.drawn is not None:
        within, own = span(plateau.low, plateau.high), lead.best_ratio[lead.learnable]
        drawn = dict(zip(("directions", "features"), advice.drawn, strict=True))
        answer += f": for linear regression {within}."
        words += (
            f" The directions' own best ratios are {span(own.min(), own.max())}; at {advice.minimax_ratio:.2f} the "
            f"worst-served one loses least, {advice.minimax:.3f}, and in the range {within} at most "
            f"{advice.allowed:.3f}. With a ratio drawn from it for every row, the mean risks are "
            f"{drawn['directions']:.3f} and {drawn['features']:.3f}. By the formula no range beats the best fixed "
            "ratio for one goal: a range helps if that ratio is not known."
        )
    elif holds:
        answer += "; but here no direction can be learned: no ratio for linear regression either."
    else:
        answer += (
            "; these data have such features: no ratio for linear regression either (try a smaller --max-features)."
        )
    if advice.peak is not None:
        words += f" The risk diverges near ratio d/n = {advice.peak:.3g}, where kept rows equal features in number."
    return {
        "answer": answer,
        "caveat": _CAVEAT,
        "held": {"pretraining": False, "linear_regression": holds},
        "data": data,
        "n": advice.n,
        "d": advice.d,
        "standardised": kind == "standardised",
        "tolerance": advice.tolerance,
        "peak": advice.peak,
        "directions": len(lead.variance),
        "learnable_directions": int(lead.learnable.sum()),
        "learnable_features": int(features.learnable.sum()),
        "share_of_variance": advice.share,
        "minimax": {"excess": advice.minimax, "ratio": advice.minimax_ratio} if holds else None,
        "suggested_for_pretraining": None,
        "suggested_for_linear_regression": plateau and {**vars(plateau), "excess": advice.allowed},
        "best_fixed": best,
        "drawn_for_every_row": drawn,
        "notes": list(notes),
        "cautions": cautions,
        "paragraph": words,
    }


def span(low: float, high: float) -> str:
    """Write a range of ratios; one number where both ends round to the same."""
    first, last = f"{low:.2f}", f"{high:.2f}"
    return first if first == last else f"{first} to {last}"
