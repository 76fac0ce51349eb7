"""Fig. 2B and Figs. 5 to 7: U-Nets of several widths on faces, at nine fixed mask ratios."""

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from r2mae.evaluation.bn_statistics import AS_TRAINED
from r2mae.images.config import ImagesConfig
from r2mae.sweep.runs import SweepRun
from r2mae_paper.bases import faces, image_presets, runs_by_ratio
from r2mae_paper.by_ratio import BARS, best_ratios, by_seed, curve, means, measured
from r2mae_paper.drawing import COLOURS, Figure, Figures, panels, ratio_axis
from r2mae_paper.rows import TableRow, Tables, select, unique
from r2mae_paper.studies import ENTRIES, Size
from r2mae_paper.study import Study
from r2mae_paper.subsets import first_faces

_ERROR, _SCALED, _AUROC = "clean_mse", "attribute_accuracy", "attribute_auroc"
_SCORES = {
    _ERROR: "squared error of whole images",
    _SCALED: "median scaled accuracy",
    "attribute_accuracy_raw": "median accuracy",
    _AUROC: "mean AUROC",
}
_PAPER_BEST = {8: 0.6, 16: 0.7, 32: 0.8}


def runs(size: Size, out: Path) -> list[SweepRun]:
    """Return a run for each width, ratio and seed; scores are taken with either kind of batch statistics."""
    data = faces(size.data)
    if size.faces and not size.data:
        data = str(first_faces(size.faces, out.absolute() / f"faces-{size.faces}"))
    base = ImagesConfig.make(data=data, resize=size.side, resize_mode="crop", scheme="fixed", bn_statistics="both")
    names = [f"unet-{channels}" for channels in size.channels]
    return runs_by_ratio(base, "preset", image_presets(names, size.settings), size, out)


def table(results: pd.DataFrame) -> Tables:
    """Return all runs; means and deviations over seeds; and for each width the best ratio of every seed."""
    results = results.assign(
        channels=[int(str(preset).removeprefix("unet-")) for preset in results["preset"]],
        ratio=results["ratio"].astype(float),
    )
    scores = measured(results, list(_SCORES))
    columns = ["preset", "channels", "ratio", "seed", *scores]
    by_ratio = means(results, ("channels", "ratio"), scores)
    best = [
        row for score in scores for _, group in results.groupby("channels") if (row := _best(group, score)) is not None
    ]
    return {"fig2b": by_ratio, "fig2b-best": best, "fig2b-runs": results[columns].to_dict("records")}


def plot(tables: Tables, size: Size) -> Figures:
    """Draw the error of whole images (Fig. 2B) and, where there are attributes, a panel for each width (Figs. 5–7)."""
    rows: list[TableRow] = tables["fig2b"]
    figure, (axes,) = panels(1, width=5.0, height=3.8)
    for colour, channels in zip(COLOURS, sorted(unique(rows, "channels")), strict=False):
        own = select(rows, channels=channels)
        curve(axes, own, _ERROR, colour, f"{channels} channels")
        curve(axes, own, AS_TRAINED + _ERROR, colour, None, "--")
    axes.set_yscale("log")
    # Bars as long as their mean would reach far below all points.
    axes.set_ylim(bottom=0.6 * min(row[name] for row in rows for name in (_ERROR, AS_TRAINED + _ERROR) if name in row))
    ratio_axis(axes)
    axes.set_ylabel(_SCORES[_ERROR])
    axes.set_title("Unmasked reconstruction\n(dashed: batch statistics of training)")
    axes.legend(title=BARS, title_fontsize=8)
    figures = {"fig2b": figure}
    if any(_SCALED in row for row in rows):
        figures["fig5-7"] = _attributes(rows)
    return figures


def _attributes(rows: Sequence[TableRow]) -> Figure:
    """Draw the paper's score of the attribute probe, and below it the AUROC, which moves where that is still zero."""
    scores = [score for score in (_SCALED, _AUROC) if any(score in row for row in rows)]
    widths = sorted(unique(rows, "channels"))
    figure, grid_of_axes = panels(len(widths), len(scores), width=3.4, height=3.0)
    places = [(score, *width) for score in scores for width in zip(widths, itertools.cycle(COLOURS))]
    for panel, (score, channels, colour) in zip(grid_of_axes, places, strict=True):
        own = select(rows, channels=channels)
        curve(panel, own, score, colour, "re-estimated batch statistics")
        curve(panel, own, AS_TRAINED + score, colour, "those of training", "--")
        ratio_axis(panel)
        panel.set_ylabel(_SCORES[score])
        panel.set_title(f"{channels} channels")
    handles, labels = grid_of_axes[0].get_legend_handles_labels()
    bars = BARS.replace("\n", " ")
    figure.legend(handles, labels, title=bars, loc="outside lower center", ncols=2, fontsize=8, title_fontsize=8)
    return figure


def _best(group: pd.DataFrame, score: str) -> TableRow | None:
    """Return the best ratio of each seed for a score and width, if there is one, and where the mean rises most."""
    values, ratios, _ = by_seed(group, score)
    if not len(values) or not np.ptp(values, axis=1).all():
        return None  # one value at all ratios: none of them is the best
    lower = score.endswith(_ERROR)
    chosen = best_ratios(values, ratios, higher=not lower)
    channels = int(group["channels"].iloc[0])
    row: TableRow = {
        "score": score,
        "channels": channels,
        "best_ratio": float(np.mean(chosen)),
        "best_ratio_lowest": float(chosen.min()),
        "best_ratio_highest": float(chosen.max()),
        "paper_best_ratio": _PAPER_BEST.get(channels, float("nan")) if lower else float("nan"),
    }
    if not lower and len(ratios) > 1:
        steps = np.diff(values.mean(0))
        row |= {"largest_rise": float(steps.max()), "largest_rise_after": ratios[int(steps.argmax())]}
    return row


STUDIES = (Study(ENTRIES["fig2b"], plot, table, runs=runs),)
