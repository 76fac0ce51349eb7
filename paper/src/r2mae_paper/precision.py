"""Products in bf16 against 32 bits on a processor: what the studies of all domains share.

Runs differ in the number format alone: weights, order and masks of a seed are the same. Two formats give equal results
if the interval of their difference lies within the seeds' noise, one standard deviation of the runs in 32 bits. A
processor without bf16 instructions refuses the runs in bf16.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from r2mae.evaluation.statistics import paired_difference
from r2mae.sweep.gather import metrics_of
from r2mae.sweep.runs import SweepParameter, SweepRun, grid, runs_of_groups
from r2mae_paper.artefact import Size, TableRow, Tables
from r2mae_paper.drawing import COLOURS, GREY, Figures, panels

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from r2mae.training.config import RunConfig

PAPER = "Not in the paper, whose runs are on GPUs."
EXACT, QUICK = "32 bits", "bf16"
FORMATS: Mapping[str, Mapping[str, Any]] = {
    EXACT: {"precision": "32", "device": "cpu"},
    QUICK: {"precision": "bf16", "device": "cpu"},
}
FINAL_LOSS = "final_loss"
"""Name of the mean training loss over the last tenth of a run."""


@dataclass(frozen=True)
class PrecisionSize(Size):
    """How much is trained.

    Attributes
    ----------
    seeds : int
        Runs in each format.
    settings : mapping of mappings
        Fields of the configuration by the name of a model.
    """

    seeds: int = 5
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def final_loss(cell: SweepRun) -> Mapping[str, float]:
    """Return the mean training loss over the last tenth of a run."""
    losses = metrics_of(cell)["loss"].to_numpy(float)
    return {FINAL_LOSS: float(losses[-max(1, len(losses) // 10) :].mean())}


@dataclass(frozen=True)
class PrecisionStudy:
    """The study of a domain: its methods are the functions of an artefact's module.

    Attributes
    ----------
    name : str
        Of its tables and figures.
    scores : tuple of str
        Scores of the domain; :data:`FINAL_LOSS` comes first.
    bases : callable
        Takes a size and the folder of the study; returns the configuration of each model by its name.
    """

    name: str
    scores: tuple[str, ...]
    bases: "Callable[[Any, Path], Mapping[str, RunConfig]]"

    def cells(self, size: PrecisionSize, out: Path) -> list[SweepRun]:
        """Return a run for each model, format and seed, each model in a folder of its own."""
        formats = SweepParameter("format", FORMATS)
        groups = {
            name: [replace(row, values={"model": name, **row.values}) for row in grid(base, [formats])]
            for name, base in self.bases(size, out).items()
        }
        return runs_of_groups(groups, range(size.seeds), out)

    def table(self, results: "pd.DataFrame") -> Tables:
        """Return for each model and score the difference bf16 − 32 bits, paired over seeds, and all runs."""
        measured = [score for score in (FINAL_LOSS, *self.scores) if score in results and results[score].notna().any()]
        rows = [
            {"model": model, **row}
            for model, group in results.groupby("model", sort=False)
            for score in measured
            if (row := _row(group, score)) is not None
        ]
        runs = results[["model", "format", "seed", *measured]].to_dict("records")
        return {self.name: rows, f"{self.name}-runs": runs}

    def draw(self, tables: Tables, size: PrecisionSize) -> Figures:
        """Draw every difference in standard deviations of the seeds: between −1 and 1 where results are equal."""
        rows = [row for row in tables[self.name] if row["sd_32"] > 0]
        figure, (axes,) = panels(1, width=5.6, height=1.2 + 0.26 * max(1, len(rows)))
        for place, row in enumerate(rows):
            _difference(axes, place, row)
        axes.axvspan(-1, 1, color=GREY, alpha=0.15, linewidth=0, zorder=0)
        axes.axvline(0, color=GREY, linestyle="--", linewidth=1, zorder=0)
        axes.set_yticks(range(len(rows)), [f"{row['model']}: {row['score'].replace('_', ' ')}" for row in rows])
        axes.set_ylim(max(1, len(rows)) - 0.5, -0.5)
        axes.locator_params(axis="x", nbins=5)
        axes.set_xlabel("bf16 minus 32 bits, over the seeds' deviation\n(grey: within their noise)")
        return {self.name: figure}


def _row(results: "pd.DataFrame", score: str) -> TableRow | None:
    both = results.pivot_table(index="seed", columns="format", values=score).reindex(columns=list(FORMATS)).dropna()
    if not len(both):
        return None
    exact, quick = both[EXACT].to_numpy(float), both[QUICK].to_numpy(float)
    found = paired_difference(quick, exact)
    noise = float(exact.std(ddof=1)) if len(exact) > 1 else float("nan")
    row: TableRow = {"score": score, "seeds": len(both), "mean_32": float(exact.mean()), "sd_32": noise}
    row |= {"mean_bf16": float(quick.mean()), "difference": found.mean, "low": found.low, "high": found.high}
    return {**row, "is": _verdict(found.low, found.high, noise)}


def _verdict(low: float, high: float, noise: float) -> str:
    """Return where the interval of a difference lies, compared with the seeds' noise."""
    if -noise <= low and high <= noise:
        return "equal"
    if low > noise or high < -noise:
        return "different"
    return "undecided"


def _difference(axes: "Axes", place: int, row: TableRow) -> None:
    middle, low, high = (row[key] / row["sd_32"] for key in ("difference", "low", "high"))
    ends = None if np.isnan([low, high]).any() else [[middle - low], [high - middle]]
    axes.errorbar(middle, place, xerr=ends, fmt="o", color=COLOURS[0], markersize=4, capsize=2)
