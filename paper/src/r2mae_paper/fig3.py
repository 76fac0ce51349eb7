"""Fig. 3: the spiked model with all entries of v equal to 1/√d."""

from collections.abc import Mapping

from r2mae_paper.artefact import Part, TableRow, Tables, joined
from r2mae_paper.drawing import Figures, panels
from r2mae_paper.spiked import SpikedSize, draw_ratio, draw_risks, magnitude_ratios, parts_of

TITLE = "Fig. 3: spiked model with v all ones, test risk and magnitude ratio for δ = 1, 10, 100"
DATA = "simulated"
COST = {"small": "seconds", "full": "minutes on a core, not measured"}
PAPER = "As Figs. 1C and 1D, for a spike with equal entries."
SIZE = SpikedSize


def parts(size: SpikedSize) -> list[Part]:
    """Return a part for each strength of the spike."""
    return parts_of(size, "ones")


def table(results: Mapping[str, list[TableRow]]) -> Tables:
    """Return the risks, and the ratios of magnitudes."""
    rows = joined(results)
    return {"fig3": rows, "fig3-magnitude": magnitude_ratios(rows)}


def draw(tables: Tables, size: SpikedSize) -> Figures:
    """Draw the risks across and along the spike, and the ratios of magnitudes."""
    figure, axes = panels(3, width=3.5, height=3.4)
    draw_risks(axes[0], tables["fig3"], 0.0)
    draw_risks(axes[1], tables["fig3"], 1.0)
    draw_ratio(axes[2], tables["fig3-magnitude"])
    return {"fig3": figure}
