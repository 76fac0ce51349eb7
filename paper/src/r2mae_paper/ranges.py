"""When is a range of ratios better than a fixed ratio? Answered by the formula over many random settings.

A setting is a spectrum, a number of rows, a noise variance and a range; its targets are five eigen-directions. Four
choices are compared: the range (each row draws its own ratio), the middle of the range as a fixed ratio, a fixed ratio
picked at random from the range, and the best of all fixed ratios.
"""

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from r2mae.masking.ratios import Uniform
from r2mae.report.style import BLUE
from r2mae.theory import Rotated, direction_risk
from r2mae_paper.drawing import BLACK, Figures
from r2mae_paper.rows import TableRow, Tables, column, joined, select
from r2mae_paper.studies import ENTRIES, Size
from r2mae_paper.study import NOISE, Parts, Study

_GRID = np.round(np.arange(0.02, 0.981, 0.02), 10)
_QUANTILES = (0.0, 0.02, 0.05, 0.1, 0.25)
_BLOCK = 100  # settings in one part of the computation
_WIDTHS = "widths"
_USEFUL = 0.95  # a direction counts as learnable if its lowest normalised risk is below this


@dataclass(frozen=True)
class Setting:
    """A random setting: eigenvalues, rows, noise variance, ridge, and the ends of a range."""

    kind: str
    eigenvalues: Float[np.ndarray, " d"]
    n: int
    noise: float
    ridge: float
    low: float
    high: float


def parts(size: Size) -> Parts:
    """Return parts of a hundred settings each, and one for the costs of widths."""
    blocks = {
        f"settings-{first}": partial(_compare_all, size, first, min(first + _BLOCK, size.settings))
        for first in range(0, size.settings, _BLOCK)
    }
    return {**blocks, _WIDTHS: lambda jobs: width_costs()}


def table(results: Mapping[str, list[TableRow]]) -> Tables:
    """Return the counts over all settings, the means over directions, and the costs of widths."""
    rows = joined({name: part for name, part in results.items() if name != _WIDTHS})
    return {"summary": summary(rows), "ranges": select(rows, target="mean"), "width": results[_WIDTHS]}


def _compare_all(size: Size, first: int, last: int, jobs: int) -> list[TableRow]:
    return [row for setting in islice(settings(size), first, last) for row in compare(setting)]


def settings(size: Size) -> Iterator[Setting]:
    """Draw settings: four kinds of spectra, d/n from 0.2 to 4, with and without noise and ridge."""
    rng = np.random.default_rng(0)
    for number in range(size.settings):
        kind = ("log-normal", "power law", "spikes", "Beta")[number % 4]
        values = _spectrum(kind, size.d, rng)
        low = float(rng.uniform(0.02, 0.85))
        yield Setting(
            kind,
            values,
            max(100, round(size.d * float(np.exp(rng.uniform(np.log(0.05), np.log(5)))))),
            float(rng.choice([0.0, 0.01, 0.1])) * float(values.mean()),
            float(rng.choice([0.0, 0.0, 1.0, 30.0])) * float(values.mean()),
            low,
            float(rng.uniform(low + 0.02, 0.98)),
        )


def _spectrum(kind: str, d: int, rng: np.random.Generator) -> Float[np.ndarray, " d"]:
    if kind == "log-normal":
        return np.asarray(np.exp(rng.normal(size=d) * rng.uniform(0.2, 2.0)))
    if kind == "power law":
        return np.asarray(np.arange(1, d + 1) ** -rng.uniform(0.2, 1.5))
    if kind == "spikes":
        values = np.ones(d)
        values[: rng.integers(10, d // 4)] = np.exp(rng.uniform(1, 4))
        return values
    return np.asarray(1 + 9 * rng.beta(2, 6, d))


def compare(setting: Setting) -> list[TableRow]:
    """Return a row for each learnable direction, a row for their mean, and a row for their worst excess."""
    cov = Rotated(setting.eigenvalues)
    d = cov.d
    usable = _GRID[(np.abs(_GRID * setting.n / d - 1) > 0.05) | (setting.ridge > 0)]
    which = np.array([cov.at_quantile(q) for q in _QUANTILES])

    def risks(ratio: Any) -> Float[np.ndarray, "..."]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of rows near d or a dominant direction, which occur here
            return direction_risk(cov, setting.n, ratio, setting.noise, which=which, ridge=setting.ridge).normalised

    fixed = risks(usable)
    learnable = fixed.min(axis=0) < _USEFUL
    inside = (usable >= setting.low - 0.01) & (usable <= setting.high + 0.01)
    middle = (setting.low + setting.high) / 2
    if not learnable.any() or inside.sum() < 2 or (setting.ridge == 0 and abs(middle * setting.n / d - 1) < 0.05):
        return []
    fixed = fixed[:, learnable]
    drawn, centre = risks(Uniform(setting.low, setting.high))[learnable], risks(middle)[learnable]
    best = fixed.min(axis=0)
    common = {
        "kind": setting.kind,
        "rows_per_feature": round(setting.n / d, 4),
        "noise": round(setting.noise / float(setting.eigenvalues.mean()), 4),
        "ridge": round(setting.ridge / float(setting.eigenvalues.mean()), 4),
        "low": round(setting.low, 4),
        "high": round(setting.high, 4),
    }
    rows = []
    parts = [
        (f"direction {q:g}", fixed[:, [i]], drawn[[i]], centre[[i]])
        for i, q in enumerate(np.array(_QUANTILES)[learnable])
    ]
    for target, curve, ours, mid in [*parts, ("mean", fixed, drawn, centre), ("worst excess", fixed, drawn, centre)]:
        if target == "worst excess":
            over, own, at_middle = (curve - best).max(axis=1), (ours - best).max(), (mid - best).max()
        else:
            over, own, at_middle = curve.mean(axis=1), ours.mean(), mid.mean()
        blind = over[inside]
        rows.append(
            {
                **common,
                "target": target,
                "best_fixed": min(over.min(), at_middle),  # the middle of the range may be better than the grid's best
                "best_ratio": usable[over.argmin()],
                "range": own,
                "middle": at_middle,
                "blind": blind.mean(),
                "blind_worst": blind.max(),
            }
        )
    return [{k: float(f"{v:.6g}") if isinstance(v, float) else v for k, v in row.items()} for row in rows]


def summary(rows: list[TableRow]) -> dict[str, Any]:
    """Count how often a range is better than each alternative, over all settings and where the middle ratio learns."""
    counts: dict[str, Any] = {}
    for target in ("direction", "mean", "worst excess"):
        some = [row for row in rows if str(row["target"]).startswith(target)]
        limit = 1.0 if target != "worst excess" else 0.5
        sane = [row for row in some if row["middle"] < limit]
        counts[target] = {
            "cells": len(some),
            "better_than_best_fixed": sum(row["range"] < row["best_fixed"] - 1e-4 for row in some),
            "better_than_middle": _share(some, "middle"),
            "better_than_blind_pick": _share(some, "blind"),
            "where_the_middle_learns": {
                "cells": len(sane),
                "better_than_middle": _share(sane, "middle"),
                "better_than_blind_pick": _share(sane, "blind"),
                "median_saving_against_blind": _median(
                    [(row["blind"] - row["range"]) / max(row["blind"] - row["best_fixed"], 1e-9) for row in sane]
                ),
                "median_cost_against_middle": _median([row["range"] - row["middle"] for row in sane]),
            },
        }
    return counts


def _share(rows: list[TableRow], other: str) -> float:
    return round(float(np.mean([row["range"] < row[other] - 1e-6 for row in rows] or [0.0])), 4)


def _median(values: list[float]) -> float:
    return round(float(np.median(values)), 4) if values else float("nan")


def width_costs() -> list[TableRow]:
    """Return the cost of a range against its middle ratio, for common widths (Beta and latent-like spectra)."""
    rows = []
    quantiles, which = (0.0, 0.1), np.array([0, 100])
    for name, values in (
        ("Beta", 1 + 9 * np.random.default_rng(0).beta(2, 6, 1000)),
        ("latent", np.concatenate([np.linspace(9.8, 1.2, 500), np.ones(500)])),
    ):
        cov = Rotated(np.asarray(values))
        for n in (100, 200, 500):
            curve = direction_risk(cov, n, _GRID, NOISE, which=which).normalised
            for index, ratio in enumerate(map(float, _GRID[curve.argmin(axis=0)])):
                for width in (0.05, 0.1, 0.2, 0.3, 0.4):
                    low, high = ratio - width / 2, ratio + width / 2
                    if low <= 0 or high >= 1:
                        continue
                    risks = direction_risk(cov, n, [ratio, Uniform(low, high)], NOISE, which=which).normalised[:, index]
                    cost = risks[1] - risks[0]
                    row: TableRow = {"covariance": name, "rows_per_feature": n / 1000, "quantile": quantiles[index]}
                    row |= {"best_ratio": ratio, "width": width, "best": float(f"{risks[0]:.5g}")}
                    per_square = float(f"{cost / width**2:.4g}")
                    rows.append({**row, "cost": float(f"{cost:.4g}"), "cost_per_width_squared": per_square})
    return rows


def plot(tables: Tables, size: Size) -> Figures:
    """Draw the risk of ranges against that of each alternative."""
    figure = Figure(figsize=(8.4, 3.2), layout="constrained")
    panels = figure.subplots(1, 3, sharey=True)
    shown = [row for row in tables["ranges"] if row["middle"] < 1.0]
    ours = column(shown, "range")
    titles = {
        "blind": "a ratio picked blindly from it",
        "middle": "its middle ratio",
        "best_fixed": "the best fixed ratio",
    }
    for axes, (key, title) in zip(panels, titles.items(), strict=True):
        other = column(shown, key)
        axes.plot(other, ours, ".", markersize=2.5, color=BLUE, alpha=0.4, rasterized=True)
        axes.plot([0, 1.5], [0, 1.5], color=BLACK, linewidth=0.8)
        axes.set(xlim=(0, 1.5), ylim=(0, 1.5), xlabel=f"risk of {title}")
        better = float((ours < other - 1e-6).mean())
        axes.set_title(f"range better in {better:.0%}")
    panels[0].set_ylabel("risk of the range\n(mean over directions)")
    return {"ranges": figure}


STUDIES = (Study(ENTRIES["ranges"], plot, table, parts),)
