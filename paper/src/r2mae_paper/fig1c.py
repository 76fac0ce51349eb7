"""Fig. 1C: the spiked model's test risk for weak and strong spikes."""

from collections.abc import Mapping

from r2mae_paper.artefact import Part, TableRow, Tables, joined
from r2mae_paper.drawing import Figures, panels
from r2mae_paper.spiked import SpikedSize, draw_risks, parts_of

TITLE = "Fig. 1C: spiked model, test risk for δ = 1, 10, 100"
DATA = "simulated"
COST = {"small": "seconds", "full": "minutes on a core, not measured"}
PAPER = "A stronger feature (larger δ) gives a steeper descent and a higher optimal mask ratio."
SIZE = SpikedSize


def parts(size: SpikedSize) -> list[Part]:
    """Return a part for each strength of the spike."""
    return parts_of(size, "uniform")


def table(results: Mapping[str, list[TableRow]]) -> Tables:
    """Return the rows of all strengths."""
    return {"fig1c": joined(results)}


def draw(tables: Tables, size: SpikedSize) -> Figures:
    """Draw a panel for β across the spike, and one for β along it."""
    figure, axes = panels(2, width=3.8, height=3.4)
    for panel, cosine in zip(axes, (0.0, 1.0), strict=True):
        draw_risks(panel, tables["fig1c"], cosine)
    return {"fig1c": figure}
