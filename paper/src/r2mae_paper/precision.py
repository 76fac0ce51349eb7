"""Products in bf16 against 32 bits on a processor, for the models of images, cells, text and genomes.

Runs differ in the number format alone: weights, order and masks of a seed are the same. Two formats give equal results
if the interval of their difference lies within the seeds' noise, one standard deviation of the runs in 32 bits. A
processor without bf16 instructions refuses the runs in bf16.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from r2mae.evaluation.statistics import paired_difference
from r2mae.genome.config import GenomeConfig
from r2mae.images.config import ImagesConfig
from r2mae.sweep.gather import metrics_of
from r2mae.sweep.runs import SweepParameter, SweepRun, grid, runs_of_groups
from r2mae.training.config import RunConfig
from r2mae_paper import genomes
from r2mae_paper.bases import Fields, cells, few_classes, image_presets, text
from r2mae_paper.drawing import COLOURS, GREY, Figures, interval, name_rows, panels
from r2mae_paper.rows import TableRow, Tables
from r2mae_paper.studies import ENTRIES, Size
from r2mae_paper.study import Study

Base = Callable[[str, Fields, Path], RunConfig]

EXACT, QUICK = "32 bits", "bf16"
FORMATS: Mapping[str, Mapping[str, Any]] = {
    EXACT: {"precision": "32", "device": "cpu"},
    QUICK: {"precision": "bf16", "device": "cpu"},
}
FINAL_LOSS = "final_loss"
"""Name of the mean training loss over the last tenth of a run."""


def _images(name: str, settings: Fields, out: Path) -> RunConfig:
    if name == "mlp":
        return ImagesConfig.make(data="mnist", **settings)
    return ImagesConfig.make(data=few_classes(out), **image_presets([name], settings)[name])


def _genome(name: str, settings: Fields, out: Path) -> RunConfig:
    return GenomeConfig.make(data=str(genomes.store_of(genomes.SARBECOVIRUSES, out).folder), **settings)


def final_loss(run: SweepRun) -> Mapping[str, float]:
    """Return the mean training loss over the last tenth of a run."""
    losses = metrics_of(run)["loss"].to_numpy(float)
    return {FINAL_LOSS: float(losses[-max(1, len(losses) // 10) :].mean())}


def runs(size: Size, out: Path, *, base: Base) -> list[SweepRun]:
    """Return a run for each model, format and seed, each model in a folder of its own.

    `base` takes a name of the settings, its settings, and the folder, and returns the configuration.
    """
    formats = SweepParameter("format", FORMATS)
    groups = {
        name: [replace(row, values={"model": name, **row.values}) for row in grid(base(name, settings, out), [formats])]
        for name, settings in size.settings.items()
    }
    return runs_of_groups(groups, range(size.seeds), out)


def table(results: pd.DataFrame, *, name: str, scores: tuple[str, ...]) -> Tables:
    """Return for each model and score the difference bf16 − 32 bits, paired over seeds, and all runs."""
    measured = [score for score in (FINAL_LOSS, *scores) if score in results and results[score].notna().any()]
    rows = [
        {"model": model, **row}
        for model, group in results.groupby("model", sort=False)
        for score in measured
        if (row := _row(group, score)) is not None
    ]
    return {name: rows, f"{name}-runs": results[["model", "format", "seed", *measured]].to_dict("records")}


def plot(tables: Tables, size: Size, *, name: str) -> Figures:
    """Draw every difference in standard deviations of the seeds: between −1 and 1 where results are equal."""
    rows = [row for row in tables[name] if row["sd_32"] > 0]
    figure, (axes,) = panels(1, width=5.6, height=1.2 + 0.26 * max(1, len(rows)))
    for place, row in enumerate(rows):
        middle, low, high = (row[key] / row["sd_32"] for key in ("difference", "low", "high"))
        interval(axes, middle, low, high, place, color=COLOURS[0])
    axes.axvspan(-1, 1, color=GREY, alpha=0.15, linewidth=0, zorder=0)
    name_rows(axes, [f"{row['model']}: {row['score'].replace('_', ' ')}" for row in rows], 0)
    axes.locator_params(axis="x", nbins=5)
    axes.set_xlabel("bf16 minus 32 bits, over the seeds' deviation\n(grey: within their noise)")
    return {name: figure}


def _row(results: pd.DataFrame, score: str) -> TableRow | None:
    """Return the difference, and where its interval lies, compared with the seeds' noise."""
    both = results.pivot_table(index="seed", columns="format", values=score).reindex(columns=list(FORMATS)).dropna()
    if not len(both):
        return None
    exact, quick = both[EXACT].to_numpy(float), both[QUICK].to_numpy(float)
    found = paired_difference(quick, exact)
    noise = float(exact.std(ddof=1)) if len(exact) > 1 else float("nan")
    row: TableRow = {"score": score, "seeds": len(both), "mean_32": float(exact.mean()), "sd_32": noise}
    row |= {"mean_bf16": float(quick.mean()), "difference": found.mean, "low": found.low, "high": found.high}
    inside, outside = -noise <= found.low and found.high <= noise, found.low > noise or found.high < -noise
    return {**row, "is": "equal" if inside else "different" if outside else "undecided"}


def _study(domain: str, base: Base, *scores: str) -> Study:
    """Return the study of a domain, by its scores in addition to :data:`FINAL_LOSS`, which comes first."""
    name = f"precision-{domain}"
    return Study(
        ENTRIES[name],
        partial(plot, name=name),
        partial(table, name=name, scores=scores),
        runs=partial(runs, base=base),
        scores_of_run=final_loss,
    )


STUDIES = (
    _study("images", _images, "masked_mse", "probe_accuracy", "knn_accuracy"),
    _study("cells", lambda name, settings, out: cells(name, settings), "masked_loss", "score"),
    _study("text", lambda name, settings, out: text("wiki", name, settings), "loss", "accuracy"),
    _study("genome", _genome, "masked_loss", "accuracy"),
)
