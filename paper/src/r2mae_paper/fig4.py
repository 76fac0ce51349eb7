"""Fig. 4: another sample of Fig. 1G's model."""

from collections.abc import Mapping

import numpy as np

from r2mae.report.style import BLUE, VERMILION
from r2mae_paper.artefact import Part, TableRow, Tables
from r2mae_paper.curves import draw_over, likeness
from r2mae_paper.drawing import BLACK, Figures, panels, predicted, simulated
from r2mae_paper.plateau import (
    READINGS,
    PlateauSize,
    apart,
    describe,
    finish,
    published,
    samples,
    with_curves,
)

__all__ = ["COST", "DATA", "PAPER", "SIZE", "TITLE", "draw", "parts", "table", "with_curves"]

TITLE = "Fig. 4: two samples of the latent space model that differ most"
DATA = "simulated; beside it a table of accuracies, if you have one (--curve FILE.csv)"
COST = {"small": "seconds", "full": "minutes on a core, not measured"}
PAPER = "Another sample of Fig. 1G's model gives a different curve, like MAE's linear probing accuracy."
SIZE = PlateauSize


def parts(size: PlateauSize) -> list[Part]:
    """Return a part for each sample, and one for published accuracies."""
    return [*samples(size), *published(size)]


def table(results: Mapping[str, list[TableRow]]) -> Tables:
    """Return the two samples that differ most, the plateaus of all, and how alike published curves are, if any."""
    rows, others = apart(results)
    plateaus = describe(rows)
    chosen = [row for row in rows if row["sample"] in _extremes(plateaus, row["reading"])]
    tables = {"fig4": chosen, "fig4-plateaus": plateaus}
    if not others:
        return tables
    curves = {}
    for reading, sample in dict.fromkeys((row["reading"], row["sample"]) for row in chosen):
        own = [row for row in chosen if (row["reading"], row["sample"]) == (reading, sample)]
        at, risks = (np.array([row[key] for row in own]) for key in ("ratio", "normalised_risk"))
        curves[f"sample {sample}, {READINGS[reading]}"] = (at, risks)
    return {**tables, "fig4-published": others, "fig4-likeness": likeness(others, curves)}


def draw(tables: Tables, size: PlateauSize) -> Figures:
    """Draw a panel for each reading of the model, with published error rates over it."""
    rows, plateaus = tables["fig4"], tables["fig4-plateaus"]
    figure, axes = panels(2, width=4.0, height=4.0)
    for panel, (reading, title) in zip(axes, READINGS.items(), strict=True):
        for colour, sample in zip((BLUE, VERMILION), _extremes(plateaus, reading), strict=True):
            own = [row for row in rows if (row["reading"], row["sample"]) == (reading, sample)]
            ratio, mean, deviation = (
                np.array([row[key] for row in own]) for key in ("ratio", "normalised_risk", "deviation")
            )
            simulated(panel, ratio, mean, deviation, colour, f"sample {sample} ± sd over masks")
        predicted(panel, ratio, np.array([row["formula"] for row in own]), BLACK, "formula (mean over designs)")
        finish(panel, title)
        draw_over(panel, tables.get("fig4-published", []))
    return {"fig4": figure}


def _extremes(plateaus: list[TableRow], reading: str) -> tuple[int, int]:
    """Return the two samples whose near-optimal ranges have the lowest and the highest centre."""
    own = [row for row in plateaus if row["reading"] == reading and row["sample"] != "formula"]
    own.sort(key=lambda row: (row["near_best_from"] + row["near_best_until"], row["best_risk"]))
    return own[0]["sample"], own[-1]["sample"]
