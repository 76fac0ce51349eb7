"""Tables and the figure of the study on real data."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from r2mae.files import atomic_write, write_rows
from r2mae.report.style import BLUE, GREEN, ORANGE, PURPLE, VERMILION, figure_style, save_figure
from r2mae_paper.realdata.fits import RATIOS, Outcome

NEAR = 0.25  # relative distance of n·p from d that counts as near the peak
_DETAIL = (
    "data", "scaling", "n", "d", "kind", "target", "kurtosis", "ratio", "near_peak",
    "predicted", "real", "real_se", "gaussian", "gaussian_se",
)  # fmt: skip
_SUMMARY = (
    "data", "scaling", "n", "d", "top_share", "norm_spread", "kind", "formula_vs_real", "formula_vs_gaussian",
    "gaussian_vs_real", "real_over_formula", "within_10_percent", "near_peak_formula_vs_real", "best_ratio_agrees",
    "regret",
)  # fmt: skip
_COLOURS = (VERMILION, ORANGE, GREEN, BLUE, PURPLE)


def publish(outcomes: Sequence[Outcome], out: Path) -> None:
    """Write ``results.csv``, ``summary.csv``, ``summary.md`` and ``measured_vs_predicted`` (.png, .svg)."""
    write_rows(out / "results.csv", [row for outcome in outcomes for row in _details(outcome)], _DETAIL)
    rows = [row for outcome in outcomes for row in summarise(outcome)]
    write_rows(out / "summary.csv", rows, _SUMMARY)
    with atomic_write(out / "summary.md") as file:
        file.write(_markdown(outcomes, rows))
    save_figure(draw(outcomes), out, "measured_vs_predicted")


def near_peak(outcome: Outcome) -> Bool[np.ndarray, " P"]:
    """Return at which ratios n·p is close to d."""
    return np.asarray(np.abs(outcome.n * RATIOS / outcome.d - 1) < NEAR)


def summarise(outcome: Outcome) -> list[dict[str, Any]]:
    """Return a case's median relative errors, and how good the advised ratios are, for directions and features."""
    kinds = np.array([kind for kind, _ in outcome.targets])
    real, gaussian = outcome.real.mean(axis=0), outcome.gaussian.mean(axis=0)
    near, predicted = near_peak(outcome), outcome.predicted
    rows = []
    for kind in ("direction", "feature"):
        which = np.ix_(~near, kinds == kind)
        close = np.ix_(near, kinds == kind)
        error = np.abs(real / predicted - 1)
        advised, truly = predicted[which].argmin(axis=0), real[which].argmin(axis=0)
        regret = np.take_along_axis(real[which], advised[None], axis=0)[0] - real[which].min(axis=0)
        rows.append(
            {
                **_case(outcome),
                "top_share": f"{outcome.top_share:.3f}",
                "norm_spread": f"{outcome.norm_spread:.3g}",
                "kind": kind,
                "formula_vs_real": f"{np.median(error[which]):.3g}",
                "formula_vs_gaussian": f"{np.median(np.abs(gaussian / predicted - 1)[which]):.3g}",
                "gaussian_vs_real": f"{np.median(np.abs(real / gaussian - 1)[which]):.3g}",
                "real_over_formula": f"{np.median((real / predicted)[which]):.3g}",
                "within_10_percent": f"{(error[which] < 0.1).mean():.2f}",
                "near_peak_formula_vs_real": f"{np.median(error[close]):.3g}" if near.any() else "",
                "best_ratio_agrees": f"{(np.abs(advised - truly) <= 1).mean():.2f}",
                "regret": f"{regret.mean():.3g}",
            }
        )
    return rows


def draw(outcomes: Sequence[Outcome]) -> Figure:
    """Draw measured against predicted normalised risk, one panel per data set and sample size."""
    panels: dict[tuple[str, bool], list[Outcome]] = {}
    for outcome in outcomes:
        panels.setdefault((outcome.case.short, outcome.case.wide), []).append(outcome)
    lines = -(-len(panels) // 4)
    with figure_style():
        figure = Figure(figsize=(10.4, 0.8 + 2.7 * lines), dpi=160, layout="constrained")
        grid = figure.subplots(lines, 4, squeeze=False)
        for axes, ((short, _), group) in zip(grid.flat, panels.items(), strict=False):
            for outcome in group:
                _scatter(axes, outcome)
            axes.plot([0.005, 20], [0.005, 20], color="#333333", lw=0.8, zorder=0)
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.set_xlim(0.012, 8)
            axes.set_ylim(0.012, 8)
            for axis in (axes.xaxis, axes.yaxis):
                axis.set_major_locator(LogLocator(subs=(1.0,)))
                axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
                axis.set_minor_locator(NullLocator())
            axes.grid()
            axes.set_title(f"{short}\nn = {group[0].n}, d = {group[0].d}", fontsize=10)
        for axes in list(grid.flat)[len(panels) :]:
            axes.set_visible(False)
        for axes in grid[-1]:
            axes.set_xlabel("risk by the formula", fontsize=9)
        for axes in grid[:, 0]:
            axes.set_ylabel("measured on real rows", fontsize=9)
        ranks = max(([name for kind, name in o.targets if kind == "direction"] for o in outcomes), key=len)
        handles = [
            Line2D([], [], ls="", marker="o", ms=5, color=colour, label=f"direction {rank}")
            for rank, colour in zip(ranks, _COLOURS, strict=False)
        ]
        handles.append(Line2D([], [], ls="", marker="o", ms=5, color="#9a9a9a", label="feature"))
        handles.append(Line2D([], [], ls="", marker="o", ms=5, color="#333333", label="standardised"))
        handles.append(Line2D([], [], ls="", marker="o", ms=5, mfc="none", color="#333333", label="raw"))
        handles.append(Line2D([], [], ls="", marker="x", ms=5, color="#333333", label="n·p within 25 % of d"))
        handles.append(Line2D([], [], ls="", marker="^", ms=5, color="#333333", label="beyond the panel"))
        figure.legend(handles=handles, loc="outside lower center", ncols=5)
    return figure


def _scatter(axes: Any, outcome: Outcome) -> None:
    mean = outcome.real.mean(axis=0)
    error = outcome.real.std(axis=0, ddof=1) / np.sqrt(len(outcome.real))
    near, directions = near_peak(outcome), 0
    for m, (kind, _) in enumerate(outcome.targets):
        colour, size, front = "#9a9a9a", 2.5, 2
        if kind == "direction":
            colour, size, front = _COLOURS[directions % len(_COLOURS)], 4.0, 3
            directions += 1
        face = colour if outcome.case.standardised else "none"
        style = {
            "color": colour,
            "mfc": face,
            "ms": size,
            "mew": 0.7,
            "elinewidth": 0.6,
            "zorder": front,
            "rasterized": kind == "feature",
        }
        for which, marker in ((~near, "o"), (near, "x")):
            inside = which & (mean[:, m] < 8)
            if inside.any():
                axes.errorbar(outcome.predicted[inside, m], mean[inside, m], error[inside, m], fmt=marker, **style)
        # A risk thousands of times the null risk is shown as an arrow at the top of its panel.
        beyond = mean[:, m] >= 8
        axes.plot(
            outcome.predicted[beyond, m],
            np.full(int(beyond.sum()), 6.8),
            "^",
            color=colour,
            mfc=face,
            ms=size,
            rasterized=True,
        )


def _details(outcome: Outcome) -> Iterator[dict[str, Any]]:
    near, root = near_peak(outcome), np.sqrt(len(outcome.real))
    arrays = {
        "predicted": outcome.predicted,
        "real": outcome.real.mean(axis=0),
        "real_se": outcome.real.std(axis=0, ddof=1) / root,
        "gaussian": outcome.gaussian.mean(axis=0),
        "gaussian_se": outcome.gaussian.std(axis=0, ddof=1) / root,
    }
    for m, (kind, name) in enumerate(outcome.targets):
        for index, ratio in enumerate(RATIOS):
            yield {
                **_case(outcome),
                "kind": kind,
                "target": name,
                "kurtosis": f"{outcome.kurtosis[m]:.4g}",
                "ratio": f"{ratio:g}",
                "near_peak": int(near[index]),
                **{key: f"{values[index, m]:.5g}" for key, values in arrays.items()},
            }


def _case(outcome: Outcome) -> dict[str, Any]:
    scaling = "standardised" if outcome.case.standardised else "raw"
    return {"data": outcome.case.short, "scaling": scaling, "n": outcome.n, "d": outcome.d}


def _markdown(outcomes: Sequence[Outcome], rows: Sequence[dict[str, Any]]) -> str:
    """Return the summary as tables: by data set, by direction and by ratio."""
    lines = [
        "Median |relative error| away from the peak (n·p not within 25 % of d); N times: the measured risk is about N",
        "times the predicted. Best ratio agrees: share of targets whose lowest measured risk lies within 0.1 of the",
        "ratio that the formula advises; regret: measured normalised risk at the advised ratio minus the lowest",
        "measured one, mean over targets (both away from the peak).",
        "",
        "| data | scaling | n | d | top direction's share | norm spread | targets | formula vs real | "
        "formula vs Gaussian | Gaussian vs real | near the peak | best ratio agrees | regret |",
        "|" + "---|" * 13,
    ]
    keys = ("data", "scaling", "n", "d", "top_share", "norm_spread", "kind")
    errors = ("formula_vs_real", "formula_vs_gaussian", "gaussian_vs_real", "near_peak_formula_vs_real")
    for row in rows:
        cells = [str(row[key]) for key in keys] + [_percent(row[key]) for key in errors]
        cells += [f"{float(row['best_ratio_agrees']):.0%}", row["regret"]]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "Real rows: measured over predicted, less one; median over the ratios, by direction.", ""]
    lines += _by(outcomes, "direction", [f"direction {rank}" for rank in ("1", "2", "5", "10", "50")], _of_direction)
    lines += ["", "The same by ratio: median over directions and features, with the neighbourhood of the peak.", ""]
    lines += _by(outcomes, "ratio", [f"{ratio:g}" for ratio in RATIOS], _of_ratio)
    return "\n".join(lines) + "\n"


def _by(
    outcomes: Sequence[Outcome], what: str, names: Sequence[str], values: Callable[[Outcome], Float[np.ndarray, " k"]]
) -> list[str]:
    lines = [f"| data | scaling | n | {' | '.join(names)} |", "|" + "---|" * (3 + len(names))]
    for outcome in outcomes:
        case, medians = _case(outcome), values(outcome)
        cells = [_percent(f"{value:.3g}") for value in medians] + [""] * (len(names) - len(medians))
        lines.append(f"| {case['data']} | {case['scaling']} | {case['n']} | {' | '.join(cells)} |")
    return lines


def _of_direction(outcome: Outcome) -> Float[np.ndarray, " k"]:
    error = (outcome.real.mean(axis=0) / outcome.predicted - 1)[~near_peak(outcome)]
    which = [m for m, (kind, _) in enumerate(outcome.targets) if kind == "direction"]
    return np.asarray(np.median(error[:, which], axis=0))


def _of_ratio(outcome: Outcome) -> Float[np.ndarray, " P"]:
    return np.asarray(np.median(outcome.real.mean(axis=0) / outcome.predicted - 1, axis=1))


def _percent(value: str) -> str:
    if not value:
        return ""
    number = float(value)
    return f"{number:.1%}".replace("%", " %") if abs(number) < 10 else f"{number + 1:,.0f} times"
