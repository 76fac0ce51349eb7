"""Fig. 1C: the spiked model's test risk for weak and strong spikes."""

from pathlib import Path

from r2mae.report.style import figure_style, save_figure
from r2mae.reproduce.artefact import Progress, Scale, Tally, write_table
from r2mae.reproduce.drawing import panels
from r2mae.reproduce.spiked import SIZES, Size, draw_risks, measure, steps

TITLE = "Fig. 1C: spiked model, test risk for δ = 1, 10, 100"
PAPER = "A stronger feature (larger δ) gives a steeper descent and a higher optimal mask ratio."


def run(
    out: Path,
    *,
    scale: Scale = "full",
    jobs: int = 1,
    progress: Progress | None = None,
    size: Size | None = None,
) -> list[Path]:
    """Write fig1c.csv and its figure."""
    size = SIZES[scale] if size is None else size
    rows = measure(size, "uniform", size.deltas, (0.0, 1.0), jobs, Tally(progress, steps(size, size.deltas)))
    with figure_style():
        figure, axes = panels(2, width=3.8, height=3.4)
        for panel, cosine in zip(axes, (0.0, 1.0), strict=True):
            draw_risks(panel, rows, cosine)
    return [write_table(out, "fig1c", rows), *save_figure(figure, out, "fig1c")]
