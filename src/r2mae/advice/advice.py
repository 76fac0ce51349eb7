"""Advice on the mask ratio in words and as tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from r2mae.advice import held
from r2mae.advice.matrix import Matrix
from r2mae.advice.trustworthiness import SEEN, Shape, shape_of
from r2mae.files import write_json, write_rows
from r2mae.theory.advise import PEAK, Advice, Curves, Stakes, advise
from r2mae.theory.sample import from_data

USUAL = (0.15, 0.5, 0.75)  # BERT's, half, and the image autoencoders'


@dataclass(frozen=True, eq=False)
class Report:
    """Advice, with the properties of the data on which its reliability depends.

    Attributes
    ----------
    data : Matrix
    standardised : bool
    advice : Advice
    shape : Shape
    """

    data: Matrix
    standardised: bool
    advice: Advice
    shape: Shape

    @property
    def holds(self) -> bool:
        """Whether advice for masked linear regression was right on similar data; for pretraining it never was."""
        return held.holds_for_regression(self.advice, self.shape)


def make_report(
    data: Matrix,
    *,
    n: int | None = None,
    directions: int = 20,
    tolerance: float = 0.05,
    standardise: bool = True,
    ratios: Float[np.ndarray, " P"] | None = None,
) -> Report:
    """Advise on data; Σ is their Ledoit–Wolf covariance.

    Parameters
    ----------
    data : Matrix
    n : int, optional
        Rows before masking; by default the number of samples.
    directions, tolerance, ratios
        As :func:`r2mae.theory.advise`.
    standardise : bool
        Divide every feature by its standard deviation. This is also faster, as every ratio then costs O(d²).

    Raises
    ------
    ValueError
        As :func:`r2mae.theory.advise`.
    """
    cov = from_data(data.values, scale=standardise)
    rows = len(data.values) if n is None else n
    advice = advise(cov, rows, directions=directions, tolerance=tolerance, ratios=ratios)
    return Report(data, standardise, advice, shape_of(data.values, cov, rows, standardised=standardise))


def opening(report: Report) -> list[str]:
    """Return the first lines: the suggestion and how reliable such advice was; then the caveat, and what to do."""
    return [held.answer(report.advice, report.shape), held.caveat(), held.what_to_do()]


def paragraph(report: Report) -> str:
    """Return in words what the formula says about masked linear regression on these data."""
    advice = report.advice
    kind = "standardised" if report.standardised else "raw"
    lead = advice.directions
    count, learnable = len(lead.variance), int(lead.learnable.sum())
    words = [
        f"{report.data.name}: masked ridgeless regression on n = {advice.n:,} rows of d = {advice.d:,} {kind} features "
        f"can learn {_of(learnable, count)} leading directions ({100 * advice.share:.0f} % of the variance)"
        f" and {_of(int(advice.features.learnable.sum()), advice.d)} features from the others."
    ]
    if not report.holds:
        words.append("No ratio is given, as advice has not held on data like these; the caution below says why.")
    elif learnable == 0:
        words.append(
            "Predicting zero is about as good as any ratio, so there is no range to suggest: it takes more rows."
        )
    else:
        words += [*_best(advice), _common_ground(advice), _mistuned(advice), *_range(advice)]
    if advice.peak is not None and advice.peak > 0.9 * advice.ratios[0]:
        words.append(
            f"The risk diverges at ratio d/n = {advice.peak:.3g}, where kept rows and features are equal in number; "
            f"ratios within {100 * PEAK:.0f} % of it are left out."
        )
    return " ".join(words)


def cautions(report: Report) -> list[str]:
    """Return the reasons why the formula may be wrong for these data, one sentence each."""
    shape, advice, lines = report.shape, report.advice, []
    there = len(report.data.values)
    if advice.n > there:
        lines.append(
            f"The data have {there:,} rows. The risks are those of training on {advice.n:,} rows like them, whose "
            f"covariance is estimated from the {there:,} that are there."
        )
    if advice.peak is not None and shape.rare:
        lines.append(
            f"{shape.rare:,} of {advice.d:,} features hardly ever vary (they differ from their usual value in fewer "
            f"than about {SEEN} of {advice.n:,} rows). With n > d ridgeless regression can have a far larger risk on "
            "such features than the formula says: compare with a smaller --max-features (the most variable ones)."
        )
    elif advice.peak is None and shape.unseen > 0.05 * advice.d:
        lines.append(
            f"{shape.unseen:,} of {advice.d:,} features vary in less than about one of {advice.n:,} rows: expect "
            "errors of 10 % to 50 %, or compare with a smaller --max-features, which keeps the most variable ones."
        )
    if shape.norm_spread > 3:
        much = "5 % to 15 %" if shape.norm_spread < 100 else "tens of percent"
        lines.append(
            f"The lengths of the rows vary {shape.norm_spread:,.0f} times as much as Gaussian ones would: in our "
            f"trials the risks of the leading directions were then off by {much}, mostly too low."
        )
    if shape.rows_per_feature < 2:
        lines.append(
            f"Σ itself is an estimate from {shape.rows_per_feature:.2g} rows a feature: take the risks of all but the "
            "leading directions as rough."
        )
    return lines


def choices(report: Report) -> list[dict[str, Any]]:
    """Return a row for each way of choosing the ratio: its risks and, for a fixed ratio, its worst excess risk.

    All are for masked linear regression. The list is empty if advice was wrong on similar data.
    """
    advice = report.advice
    if not report.holds:
        return []
    lead, features = advice.directions, advice.features
    fixed = [
        ("best fixed, directions", lead.ratio_of_lowest(lead.mean)),
        ("best fixed, features", features.ratio_of_lowest(features.weighted)),
    ]
    if advice.suggested is not None:
        fixed.append(("least worst excess", advice.minimax_ratio))
    rows: list[dict[str, Any]] = []
    for choice, ratio in fixed:
        index = int(np.argmin(np.abs(advice.ratios - ratio)))
        risks = (float(lead.mean[index]), float(features.weighted[index]), float(lead.worst_excess[index]))
        rows.append(_choice(choice, _ratio(ratio), *risks))
    one, other = advice.direction_stakes, advice.feature_stakes
    if advice.suggested is not None and one is not None and other is not None:
        drawn_from = held.span(advice.suggested.low, advice.suggested.high)
        rows.append(_choice("one fixed, picked blindly", drawn_from, one.blind, other.blind, None))
        rows.append(_choice("drawn for every row", drawn_from, one.drawn, other.drawn, None))
    return rows


def write(report: Report, out: Path) -> list[Path]:
    """Write ``advice.json``, ``curves.csv``, ``targets.csv`` and the figure ``advice`` to a folder."""
    from r2mae.advice.advice_figure import draw
    from r2mae.report.style import save_figure

    advice = report.advice
    rows, columns = _curve_rows(advice)
    write_rows(out / "curves.csv", rows, columns)
    targets = _target_rows(report)
    write_rows(out / "targets.csv", targets, list(targets[0]))
    write_json(out / "advice.json", to_json(report))
    figure = draw(advice, _short(report.data.name), holds=report.holds)
    return [out / "advice.json", out / "curves.csv", out / "targets.csv", *save_figure(figure, out, "advice")]


def to_json(report: Report) -> dict[str, Any]:
    """Return the advice as dictionaries, lists, numbers and text."""
    advice = report.advice
    suggested = advice.suggested if report.holds else None
    within = advice.ratios[advice.within] if report.holds else []
    line, caveat, hint = opening(report)
    return {
        "answer": line,
        "caveat": caveat,
        "what_to_do": hint,
        "held": {"pretraining": False, "linear_regression": report.holds},
        "evidence": held.evidence(),
        "data": report.data.name,
        "n": advice.n,
        "d": advice.d,
        "standardised": report.standardised,
        "tolerance": advice.tolerance,
        "peak": advice.peak,
        "directions": len(advice.directions.variance),
        "learnable_directions": int(advice.directions.learnable.sum()),
        "learnable_features": int(advice.features.learnable.sum()),
        "share_of_variance": advice.share,
        "within_tolerance": [float(ratio) for ratio in within],
        "minimax": {"excess": advice.minimax, "ratio": advice.minimax_ratio} if report.holds else None,
        "suggested_for_pretraining": None,
        "suggested_for_linear_regression": None
        if suggested is None
        else {"low": suggested.low, "high": suggested.high, "excess": advice.allowed},
        "risk_of_directions": _stakes(advice.direction_stakes) if report.holds else None,
        "risk_of_features": _stakes(advice.feature_stakes) if report.holds else None,
        "choices": choices(report),
        "shape": vars(report.shape),
        "notes": list(report.data.notes),
        "cautions": cautions(report),
        "paragraph": paragraph(report),
    }


def _best(advice: Advice) -> list[str]:
    lead, features = advice.directions, advice.features
    own = lead.best_ratio[lead.learnable]
    one, other = lead.ratio_of_lowest(lead.mean), features.ratio_of_lowest(features.weighted)
    parts = [
        f"The directions' own best ratios: {held.span(own.min(), own.max())}; the best fixed ratio for their mean is "
        f"{_ratio(one)} (normalised risk {_risk(float(np.nanmin(lead.mean)))}, where 1 is predicting zero)."
    ]
    lowest = float(np.nanmin(features.weighted))
    if lowest < 1 - advice.tolerance:
        parts.append(f"For predicting features it is {_ratio(other)} ({_risk(lowest)}).")
    else:
        parts.append(
            f"Features are hardly predictable without a ridge: their mean risk is {_risk(lowest)} at the best ratio."
        )
    return parts


def _common_ground(advice: Advice) -> str:
    fine = advice.ratios[advice.within]
    if len(fine):
        gap = bool((np.diff(np.flatnonzero(advice.within)) > 1).any())
        first, last = _ratio(fine[0]), _ratio(fine[-1])
        where = f"from {first} to {last}" if first != last else f"at {first} only"
        return (
            f"Every learnable direction is within {advice.tolerance:g} of its own best {where}"
            f"{' (with gaps)' if gap else ''}; at {_ratio(advice.minimax_ratio)} the worst-served one loses least, "
            f"{_risk(advice.minimax)}."
        )
    return (
        f"No ratio is within {advice.tolerance:g} of every learnable direction's best: the smallest tolerance that has "
        f"one is {_risk(advice.minimax)}, at {_ratio(advice.minimax_ratio)}."
    )


def _mistuned(advice: Advice) -> str:
    parts = []
    for ratio in USUAL:
        index = int(np.argmin(np.abs(advice.ratios - ratio)))
        if advice.usable[index] and abs(advice.ratios[index] - ratio) < 0.026:
            mean, worst = advice.directions.mean_excess[index], advice.directions.worst_excess[index]
            parts.append(f"{_risk(mean)} on average and {_risk(worst)} at worst at {_ratio(ratio)}")
    return f"A mistuned ratio costs the directions {_listed(parts)}." if parts else ""


def _range(advice: Advice) -> list[str]:
    suggested, stakes = advice.suggested, advice.direction_stakes
    assert suggested is not None and stakes is not None
    if suggested.high - suggested.low < 0.015:
        return [f"So there is no range to suggest: linear regression does best at {_ratio(suggested.low)}."]
    return [
        f"Range for masked linear regression: {held.span(suggested.low, suggested.high)}, all of whose ratios cost "
        f"every learnable direction at most {_risk(advice.allowed)}. With a ratio drawn from it for every row the "
        f"directions' mean risk is {_risk(stakes.drawn)}; with one fixed ratio picked blindly from it, "
        f"{_risk(stakes.blind)} on average and {_risk(stakes.blind_worst)} at worst; with the best fixed ratio, "
        f"{_risk(stakes.best)}.",
        "By the formula no range beats the best fixed ratio for one goal: a range helps if that ratio is not known.",
    ]


def _curve_rows(advice: Advice) -> tuple[list[dict[str, Any]], list[str]]:
    lead, features = advice.directions, advice.features
    quantiles = features.quantiles(np.array([0.1, 0.5, 0.9]))
    columns: dict[str, Float[np.ndarray, " P"]] = {
        "ratio": advice.ratios,
        "directions_mean": lead.mean,
        "features_weighted": features.weighted,
        "features_mean": features.mean,
        **{f"features_q{level}": values for level, values in zip((10, 50, 90), quantiles, strict=True)},
        "mean_excess": lead.mean_excess,
        "worst_excess": lead.worst_excess,
        "features_mean_excess": features.mean_excess,
        **{f"direction_{index + 1}": lead.normalised[:, index] for index in range(lead.normalised.shape[1])},
    }
    rows = [
        {name: "" if np.isnan(values[index]) else f"{values[index]:.6g}" for name, values in columns.items()}
        for index in range(len(advice.ratios))
    ]
    return rows, list(columns)


def _target_rows(report: Report) -> list[dict[str, Any]]:
    advice = report.advice
    names = [f"direction {index + 1}" for index in range(len(advice.directions.variance))]
    return [*_targets(advice.directions, names), *_targets(advice.features, report.data.features)]


def _targets(curves: Curves, names: Sequence[str]) -> list[dict[str, Any]]:
    best, lowest = curves.best_ratio, curves.lowest
    return [
        {
            "target": name,
            "variance": f"{curves.variance[m]:.6g}",
            "best_ratio": f"{best[m]:.4g}",
            "lowest_risk": f"{lowest[m]:.6g}",
            "learnable": int(curves.learnable[m]),
        }
        for m, name in enumerate(names)
    ]


def _choice(choice: str, ratio: str, directions: float, features: float, worst: float | None) -> dict[str, Any]:
    return {"choice": choice, "ratio": ratio, "directions": directions, "features": features, "worst_excess": worst}


def _stakes(stakes: Stakes | None) -> dict[str, float] | None:
    return None if stakes is None else dict(vars(stakes))


def _of(count: int, total: int) -> str:
    return f"all {total:,}" if count == total else f"{count:,} of {total:,}"


def _ratio(value: float) -> str:
    return f"{value:.2f}"


def _risk(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.3g}"


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])}, and {parts[-1]}"


def _short(name: str) -> str:
    return name if len(name) <= 28 else f"{name[:27]}…"
