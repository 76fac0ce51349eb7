"""What the paper says of networks at fixed ratios: MLPs (Figs. 2A, 2D), U-Nets on faces (2B, 5 to 7)."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from r2mae.evaluation.statistics import best_fixed
from r2mae_paper.by_ratio import AS_TRAINED
from r2mae_paper.claims.claim import Check, Claim, Found
from r2mae_paper.claims.judging import (
    Interval,
    of_clearest,
    of_difference,
    of_each,
    of_level,
    of_most,
    of_none,
    over,
)
from r2mae_paper.claims.results import Results, UnavailableError
from r2mae_paper.claims.runs import best_of_seeds, by_ratio, grid_step, minus, on_grid

if TYPE_CHECKING:
    import pandas as pd

_PROBE, _ENTROPY, _WHOLE, _ATTRIBUTES = "probe_accuracy", "spectral_entropy", "clean_mse", "attribute_accuracy"
_WIDE, _NARROW, _TINY = 512, 16, 16
_STEP = 0.15  # closer best ratios count as equal: one and a half steps of the paper's grid
_NO_GAIN = 0.01  # a smaller gain in accuracy counts as none; the number is ours
_RATIOS = 9  # of the paper's sweeps
_CHANNELS = {8: 0.6, 16: 0.7, 32: 0.8}  # the paper's best ratios of U-Nets by their base channels
Scores = Float[np.ndarray, "seeds ratios"]
Widths = Mapping[int, "pd.DataFrame"]
Judge = Callable[[Scores, int], Found]
"""Takes scores of seeds and ratios, and for how many comparisons the intervals are corrected."""


def _mlps(results: Results, hidden: int, *, alone: bool = False) -> tuple[Widths, bool, str]:
    """Return the runs of MLPs by the width of the second layer, whether they are the paper's, and words for them.

    Without the sweep over widths a comparison on MNIST has one of them, if `alone` says that one is of use. It is never
    the paper's experiment.
    """
    try:
        runs = results.table("fig2a", "hidden", "latent", "ratio", "seed", name="fig2a-runs")
    except UnavailableError:
        one = _mnist(results) if alone else None
        if one is None:
            raise
        return one
    own = runs[runs["hidden"] == hidden]
    if not len(own):
        raise UnavailableError(f"fig2a has no model with a first layer of {hidden}")
    widths = {int(group["latent"].iloc[0]): group for _, group in own.groupby("latent")}
    same = results.as_the_paper("fig2a") and runs["ratio"].nunique() >= _RATIOS and len(widths) == 5
    return widths, same, f"Second layers {_listed(widths)}."


def _mnist(results: Results) -> tuple[Widths, bool, str] | None:
    """Return the fixed rows of a comparison on MNIST that has scores with the batch statistics of training.

    A comparison says its data and widths in its files; of one without such files the name of its folder does.
    """
    found = []
    for one, table in results.tables_of_comparisons("scheme", "ratio", AS_TRAINED + _PROBE)[0]:
        by_name = not one.config and "mnist" in one.folder.resolve().parts[-2:]
        if one.config.get("hidden", _WIDE) == _WIDE and (one.data == "mnist" or by_name):
            found.append((one, table[table["scheme"] == "fixed"]))
    if not found:
        return None
    one, rows = found[0]
    latent = one.config.get("latent")
    size = f"512 and {latent}" if latent else "by its folder's name 512 and 256"
    said = f"A comparison on MNIST stands in, with one width of five ({size}{', ' * bool(one.steps)}{one.steps})."
    said += "".join(f" {other.folder.name} is left out: it is on MNIST, too." for other, _ in found[1:])
    return {int(latent or 256): rows}, False, said


def _listed(widths: Widths) -> str:
    return ", ".join(map(str, sorted(widths)))


def _gain_over_lowest(scores: Scores, comparisons: int) -> Interval:
    """Return the gain of the best larger ratio, chosen on the other seeds, over the smallest."""
    return over(best_fixed(scores[:, 1:]).partner(scores[:, 0]) - scores[:, 0], comparisons)


def _of_widths(widths: Widths, score: str, judge: Judge, reason: str) -> Found:
    """Judge all widths with the batch statistics of training, as the paper; say what re-estimated ones give.

    To show a sentence every width must show it. To refute it one is enough, and that is the worst of several: its
    interval is corrected for their number.
    """
    found = []
    for runs in widths.values():
        scores = by_ratio(runs, AS_TRAINED + score)[1]
        one, corrected = judge(scores, 1), judge(scores, len(widths))
        found.append(one if one.verdict != "not reproduced" else corrected)
    words = [one.verdict for one in found]
    said = reason if len(widths) == 1 else f"{reason} Shown is the weakest width."
    try:
        again = [judge(by_ratio(runs, score)[1], 1) for runs in widths.values()]
    except UnavailableError:
        again = []
    if again:
        shown = sum(one.verdict in ("reproduced", "direction only") for one in again)
        own = sum(word in ("reproduced", "direction only") for word in words)
        said += f" Shown by {own} of {len(words)}, with re-estimated batch statistics by {shown}."
    return of_most(found, said)


def _descent(results: Results, claim: Claim) -> Found:
    widths, same, said = _mlps(results, _WIDE, alone=True)

    def judge(scores: Scores, comparisons: int) -> Found:
        return of_difference(_gain_over_lowest(scores, comparisons), "", same=same)

    return _of_widths(widths, _PROBE, judge, f"{said} The best ratio of a seed is chosen on the other seeds.")


def _no_gain(results: Results, claim: Claim) -> Found:
    widths, same, said = _mlps(results, _NARROW)

    def judge(scores: Scores, comparisons: int) -> Found:
        found = of_none(_gain_over_lowest(scores, comparisons), "", margin=_NO_GAIN, one_sided=True, same=same)
        return replace(found, ours=-found.ours, low=-found.high, high=-found.low)

    reason = f"{said} First layer 16; the lowest ratio stands for no masking. A gain of less than {_NO_GAIN:g} counts "
    return _of_widths(widths, _PROBE, judge, f"{reason}as none. The best ratio of a seed is chosen on the other seeds.")


def _rises_at_last(results: Results, claim: Claim) -> Found:
    """Judge that the accuracy of insufficient models falls from the middle of the ratios on."""
    widths, same, said = _mlps(results, _NARROW)

    def judge(scores: Scores, comparisons: int) -> Found:
        half = scores[:, scores.shape[1] // 2 :]
        count = half.shape[1] - 1
        steps = [over(half[:, i] - half[:, i + 1], comparisons * count) for i in range(count)]
        against = [step for step in steps if step[2] < 0]
        whole = over(half[:, 0] - half[:, -1], comparisons)
        return of_difference(against[0] if against else whole, "", same=same)

    return _of_widths(widths, _PROBE, judge, f"{said} First layer 16; no step between neighbouring ratios may go up.")


def _rank_falls(results: Results, claim: Claim) -> Found:
    widths, same, said = _mlps(results, _WIDE, alone=True)
    large = {width: runs for width, runs in widths.items() if width > _TINY}

    def judge(scores: Scores, comparisons: int) -> Found:
        return of_difference(over(scores[:, 0] - scores[:, -1], comparisons), "", same=same)

    return _of_widths(large, _ENTROPY, judge, f"{said} The entropy of singular values, as the paper defines the rank.")


def _rank_of_tiny(results: Results, claim: Claim) -> Found:
    widths, same, _ = _mlps(results, _WIDE)
    if _TINY not in widths:
        raise UnavailableError("fig2a has no model with a second layer of 16")

    def judge(scores: Scores, comparisons: int) -> Found:
        return of_difference(over(scores[:, -1] - scores[:, 0], comparisons), "", same=same)

    return _of_widths({_TINY: widths[_TINY]}, _ENTROPY, judge, "First layer 512, second 16.")


def _best_as_trained(runs: "pd.DataFrame", score: str, *, higher: bool) -> "pd.Series[float]":
    """Return the best ratio under each seed with the batch statistics of training."""
    return best_of_seeds(runs, AS_TRAINED + score, higher=higher)


def _flat(widths: Widths, score: str) -> str:
    """Return a sentence that names the widths where a seed has one value at all ratios, and so no best one."""
    scores = {width: by_ratio(runs, AS_TRAINED + score)[1] for width, runs in widths.items()}
    found = {width: runs for width, runs in widths.items() if not np.ptp(scores[width], axis=1).all()}
    return f"The probe has the same value at all ratios under a seed or more (width {_listed(found)})." if found else ""


def _task_decides(widths: Widths, reason: str, second: str, *, same: bool) -> Found:
    """Judge that the best ratio for one score is not that for the unmasked error of the same models.

    One width with a difference shows it, whatever its sign: intervals are corrected for all widths and both signs. It
    is refuted where that of every width lies within a step of the grid, at each end of which the interval is uncertain.
    """
    if flat := _flat(widths, second):
        return Found("undecided", f"{reason} {flat}", elsewhere=not same)
    count = 2 * len(widths)
    gaps = {}
    for width, runs in widths.items():
        both = _best_as_trained(runs, second, higher=True), _best_as_trained(runs, _WHOLE, higher=False)
        gaps[f"width {width}"] = on_grid(minus(*both), grid_step(runs), count)
    return of_clearest(gaps, reason, within=_STEP, corrected="widths and both signs", same=same)


def _task_of_mlps(results: Results, claim: Claim) -> Found:
    widths, same, said = _mlps(results, _WIDE, alone=True)
    reason = "MLPs are our addition: Sec. 3.5 speaks of CNNs and RoBERTas. MNIST: linear probe and whole images. "
    return _task_decides(widths, reason + said, _PROBE, same=same)


def _unets(results: Results) -> tuple[Widths, bool]:
    runs = results.table("fig2b", "channels", "ratio", "seed", name="fig2b-runs")
    widths = {int(group["channels"].iloc[0]): group for _, group in runs.groupby("channels")}
    return widths, set(widths) == set(_CHANNELS) and runs["ratio"].nunique() >= _RATIOS


def _task_of_unets(results: Results, claim: Claim) -> Found:
    widths, same = _unets(results)
    return _task_decides(widths, f"Faces, base channels {_listed(widths)}.", _ATTRIBUTES, same=same)


def _intermediate(results: Results, claim: Claim) -> Found:
    """Judge that the error of whole images has its minimum inside of the ratios, for every width."""
    widths, same = _unets(results)

    def judge(scores: Scores, comparisons: int) -> Found:
        inner = best_fixed(scores[:, 1:-1], higher_is_better=False)
        gaps = [one - inner.partner(one) for one in (scores[:, 0], scores[:, -1])]
        return of_most(of_each(gaps, same=same, comparisons=comparisons), "")

    return _of_widths(
        widths, _WHOLE, judge, f"Base channels {_listed(widths)}; the best inner ratio against both ends."
    )


def _grows(results: Results, claim: Claim) -> Found:
    widths, same = _unets(results)
    best = {width: _best_as_trained(runs, _WHOLE, higher=False) for width, runs in widths.items()}
    gaps = minus(best[max(best)], best[min(best)])
    said = ", ".join(f"{best[width].mean():.2f} ({width})" for width in sorted(best))
    allowed = max(grid_step(widths[width]) for width in (min(best), max(best)))
    return of_difference(on_grid(gaps, allowed), f"Best ratios for whole images by base channels: {said}.",
                         paper=_CHANNELS[32] - _CHANNELS[8], same=same)  # fmt: skip


def _best_of_width(results: Results, claim: Claim, channels: int) -> Found:
    widths, same = _unets(results)
    if channels not in widths:
        raise UnavailableError(f"fig2b has no U-Net of {channels} channels")
    step = grid_step(widths[channels])
    found = on_grid(_best_as_trained(widths[channels], _WHOLE, higher=False).to_numpy(float), step / 2)
    reason = f"With the batch statistics of training; each seed chooses from a grid in steps of {step:g}. The paper "
    reason += "names one best ratio for a network, after whole images and probes; here it is that for whole images."
    return of_level(found, reason, paper=_CHANNELS[channels], precise=2.5 * step, same=same)


def _jump(results: Results, claim: Claim) -> Found:
    """Judge that the probe's accuracy rises mostly in one step of the ratio, whose place differs between widths."""
    widths, same = _unets(results)
    if flat := _flat(widths, _ATTRIBUTES):
        return Found("undecided", flat, elsewhere=not same)
    largest, places, shares = [], [], []
    for runs in widths.values():
        ratios, scores, _ = by_ratio(runs, AS_TRAINED + _ATTRIBUTES)
        steps = np.diff(scores, axis=1)
        largest.append(best_fixed(steps).partner(np.zeros(len(steps))))
        mean = scores.mean(0)
        places.append(float(ratios[1:][steps.mean(0).argmax()]))
        shares.append(float(steps.mean(0).max() / max(mean.max() - mean[0], 1e-12)))
    said = ", ".join(f"to {place:g}, {100 * min(share, 9.99):.0f} % of the whole rise ({width})"
                     for place, share, width in zip(places, shares, widths, strict=True))  # fmt: skip
    worst = of_most(
        of_each(largest, same=same),
        f"Largest step of the median accuracy by base channels: {said}. Sudden is half of the rise or more.",
    )
    sudden = min(shares) >= 0.5 and len(set(places)) == len(places)
    if worst.verdict in ("reproduced", "direction only") and not sudden:
        reason = f"{worst.reason} Not all are sudden, or at a place of their own."
        return replace(worst, verdict="direction only", reason=reason)
    return worst


CHECKS: dict[str, Check] = {
    "mlp-sufficient": _descent,
    "mlp-insufficient": _rises_at_last,
    "only-overparametrised": _no_gain,
    "unet-intermediate": _intermediate,
    "unet-grows": _grows,
    **{f"unet-{channels}": partial(_best_of_width, channels=channels) for channels in _CHANNELS},
    "unet-jump": _jump,
    "task-mlp": _task_of_mlps,
    "task-unet": _task_of_unets,
    "rank-falls": _rank_falls,
    "rank-of-16": _rank_of_tiny,
}
