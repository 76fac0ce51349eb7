"""Fig. 1D: how large predictions are across and along the spike."""

from pathlib import Path

from r2mae.report.style import figure_style, save_figure
from r2mae.reproduce.artefact import Progress, Scale, Tally, write_table
from r2mae.reproduce.drawing import panels
from r2mae.reproduce.spiked import SIZES, Size, draw_ratio, magnitude_ratios, measure, steps

TITLE = "Fig. 1D: spiked model, prediction magnitude of cos(β, v) = 0 over cos(β, v) = 1"
PAPER = "Higher masking gives a greater disparity of magnitude between signals along the spike and across it."


def run(
    out: Path,
    *,
    scale: Scale = "full",
    jobs: int = 1,
    progress: Progress | None = None,
    size: Size | None = None,
) -> list[Path]:
    """Write fig1d.csv and its figure."""
    size = SIZES[scale] if size is None else size
    rows = measure(size, "uniform", size.deltas, (0.0, 1.0), jobs, Tally(progress, steps(size, size.deltas)))
    ratios = magnitude_ratios(rows)
    with figure_style():
        figure, axes = panels(1, width=4.4, height=3.6)
        draw_ratio(axes[0], ratios)
    return [write_table(out, "fig1d", ratios), *save_figure(figure, out, "fig1d")]
