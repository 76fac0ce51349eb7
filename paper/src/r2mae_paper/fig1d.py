"""Fig. 1D: the size of predictions for signals across and along the spike."""

from collections.abc import Mapping

from r2mae_paper.artefact import Part, TableRow, Tables, joined
from r2mae_paper.drawing import Figures, panels
from r2mae_paper.spiked import SpikedSize, draw_ratio, magnitude_ratios, parts_of

TITLE = "Fig. 1D: spiked model, prediction magnitude of cos(β, v) = 0 over cos(β, v) = 1"
DATA = "simulated"
COST = {"small": "seconds", "full": "minutes on a core, not measured"}
PAPER = "Higher masking gives a greater disparity of magnitude between signals along the spike and across it."
SIZE = SpikedSize


def parts(size: SpikedSize) -> list[Part]:
    """Return a part for each strength of the spike."""
    return parts_of(size, "uniform")


def table(results: Mapping[str, list[TableRow]]) -> Tables:
    """Return the ratios of magnitudes."""
    return {"fig1d": magnitude_ratios(joined(results))}


def draw(tables: Tables, size: SpikedSize) -> Figures:
    """Draw the ratios of magnitudes."""
    figure, axes = panels(1, width=4.4, height=3.6)
    draw_ratio(axes[0], tables["fig1d"])
    return {"fig1d": figure}
