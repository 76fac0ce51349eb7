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
_CAVEAT_MANY = (
    "The formula describes a linear model that is trained to the end on fresh masks in every epoch. On networks of 14 "
    "sets its ratio cost 3 to 12 % after 256 epochs if nothing was missing in use (always 0.5: 11 to 127 %, mostly by "
    "images; over all sets the difference is undecided), and 1 to 9 % if 10 to 90 % was missing (always 0.5: 2 to "
    "5 %); after 64 epochs or fewer a constant ratio did as well (docs/theory/networks.md). To choose a ratio for "
    "pretraining, train: r2mae compare DATA --schemes fixed r2mae --ratios 0.1 0.3 0.5 0.7 0.9 --seeds 3."
)


def advice_text(
    data: str, notes: Sequence[str], advice: Advice, holds: bool, cautions: list[str], effective: float
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
    effective : float
        The effective ratio of U(0.1, 0.9), each mini-batch counting alike (:func:`r2mae.theory.effective_ratio`).
    """
    lead, features, best = advice.directions, advice.features, None
    answer = (
        f"Answer: no ratio for pretraining. Such advice failed for networks trained on {FAILED} of {SETS} sets, and "
        f"held in all {HELD} linear fits without nearly empty features"
    )
    if advice.masks > 1:
        answer = (
            f"Answer: for {advice.masks:,} masks a row the formula's ratio is {advice.ratio:.2f} "
            f"({span(*advice.as_good)} cost at most 5 % more); "
        )
        if advice.inputs.mean is None:
            answer += f"in a linear model a range is as good as its effective ratio, U(0.1, 0.9) as {effective:.2f}"
            if advice.inputs.rule != "rescaled":
                answer += " (with hidden entries at the mean, networks on 13 of 14 sets gained more, 8 % on average)"
        else:
            answer += "with zeros in data that are not centred a range may be better"
    words = (
        f"{data}: masked ridgeless regression on n = {advice.n:,} rows of d = {advice.d:,} standardised features can "
        f"learn {int(lead.learnable.sum())} of {len(lead.variance)} leading directions ({100 * advice.share:.0f} % of "
        f"the variance) and {int(features.learnable.sum()):,} of {advice.d:,} features from the others."
    )
    if not holds:
        answer += "; but these data have features that hardly ever vary (try a smaller --max-features)"
    else:
        means = {"directions": lead.mean, "features": features.weighted}
        best = {name: {"ratio": lead.ratio_of_lowest(mean), "risk": np.nanmin(mean)} for name, mean in means.items()}
        lowest = (f"{found['risk']:.3f} of the {name} at {found['ratio']:.2f}" for name, found in best.items())
        words += f" The lowest mean risks (1 is predicting zero): {', '.join(lowest)}."
        if not lead.learnable.any():
            answer += "; but here no direction can be learned"
    if advice.peak is not None:
        words += f" The risk diverges near ratio d/n = {advice.peak:.3g}, where kept rows equal features in number."
    return {
        "answer": f"{answer}.",
        "caveat": _CAVEAT if advice.masks == 1 else _CAVEAT_MANY,
        "held": {"pretraining": False, "linear_regression": holds},
        "data": data,
        "n": advice.n,
        "d": advice.d,
        "masks": advice.masks,
        "peak": advice.peak,
        "directions": len(lead.variance),
        "learnable_directions": int(lead.learnable.sum()),
        "learnable_features": int(features.learnable.sum()),
        "share_of_variance": advice.share,
        "ratio_of_many_masks": {"ratio": advice.ratio, "as_good": advice.as_good} if advice.masks > 1 else None,
        "best_fixed": best,
        "notes": list(notes),
        "cautions": cautions,
        "paragraph": words,
    }


def span(low: float, high: float) -> str:
    """Write a range of ratios; one number where both ends round to the same."""
    first, last = f"{low:.2f}", f"{high:.2f}"
    return first if first == last else f"{first} to {last}"
