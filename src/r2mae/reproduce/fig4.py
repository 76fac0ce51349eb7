"""Fig. 4: another sample of Fig. 1G's model."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from r2mae.report.style import BLUE, VERMILION, figure_style, save_figure
from r2mae.reproduce.artefact import Progress, Scale, Tally, write_table
from r2mae.reproduce.drawing import BLACK, panels, predicted, simulated
from r2mae.reproduce.plateau import READINGS, SIZES, Row, Size, describe, finish, measure, steps

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Fig. 4: two samples of the latent space model that differ most"
PAPER = "Another sample of Fig. 1G's model gives a different curve, like MAE's linear probing accuracy."


def run(
    out: Path,
    *,
    scale: Scale = "full",
    jobs: int = 1,
    progress: Progress | None = None,
    size: Size | None = None,
) -> list[Path]:
    """Write fig4.csv, fig4-plateaus.csv and the figure."""
    size = SIZES[scale] if size is None else size
    rows = measure(size, jobs, Tally(progress, steps(size)))
    found = describe(rows)
    chosen = [row for row in rows if row["sample"] in _extremes(found, row["reading"])]
    return [
        write_table(out, "fig4", chosen),
        write_table(out, "fig4-plateaus", found),
        *save_figure(_draw(chosen, found), out, "fig4"),
    ]


def _extremes(found: list[Row], reading: str) -> tuple[int, int]:
    """Return the samples whose near-optimal range is centred lowest and highest."""
    own = [row for row in found if row["reading"] == reading and row["sample"] != "formula"]
    own.sort(key=lambda row: (row["near_best_from"] + row["near_best_until"], row["best_risk"]))
    return own[0]["sample"], own[-1]["sample"]


def _draw(rows: list[Row], found: list[Row]) -> "Figure":
    with figure_style():
        figure, axes = panels(2, width=4.0, height=4.0)
        for panel, (reading, title) in zip(axes, READINGS.items(), strict=True):
            for colour, sample in zip((BLUE, VERMILION), _extremes(found, reading), strict=True):
                own = [row for row in rows if (row["reading"], row["sample"]) == (reading, sample)]
                ratio, mean, deviation = (
                    np.array([row[key] for row in own]) for key in ("ratio", "normalised_risk", "deviation")
                )
                simulated(panel, ratio, mean, deviation, colour, f"sample {sample} ± sd over masks")
            predicted(panel, ratio, np.array([row["formula"] for row in own]), BLACK, "formula (mean over designs)")
            finish(panel, title)
    return figure
