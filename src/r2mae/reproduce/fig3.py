"""Fig. 3: the spiked model with v = 1/√d."""

from pathlib import Path

from r2mae.report.style import figure_style, save_figure
from r2mae.reproduce.artefact import Progress, Scale, Tally, write_table
from r2mae.reproduce.drawing import panels
from r2mae.reproduce.spiked import SIZES, Size, draw_ratio, draw_risks, magnitude_ratios, measure, steps

TITLE = "Fig. 3: spiked model with v all ones, test risk and magnitude ratio for δ = 1, 10, 100"
PAPER = "As Figs. 1C and 1D, for a spike with equal entries."


def run(
    out: Path,
    *,
    scale: Scale = "full",
    jobs: int = 1,
    progress: Progress | None = None,
    size: Size | None = None,
) -> list[Path]:
    """Write fig3.csv, fig3-magnitude.csv and the figure."""
    size = SIZES[scale] if size is None else size
    rows = measure(size, "ones", size.deltas, (0.0, 1.0), jobs, Tally(progress, steps(size, size.deltas)))
    ratios = magnitude_ratios(rows)
    with figure_style():
        figure, axes = panels(3, width=3.5, height=3.4)
        draw_risks(axes[0], rows, 0.0)
        draw_risks(axes[1], rows, 1.0)
        draw_ratio(axes[2], ratios)
    tables = [write_table(out, "fig3", rows), write_table(out, "fig3-magnitude", ratios)]
    return [*tables, *save_figure(figure, out, "fig3")]
