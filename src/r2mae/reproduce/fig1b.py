"""Fig. 1B: the spiked model, Corollary 1 and the general formula against simulation."""

from pathlib import Path

from r2mae.reproduce.artefact import Progress, Scale, Tally, write_table
from r2mae.reproduce.spiked import SIZES, Size, add_corollary, draw_angles, measure, steps

TITLE = "Fig. 1B: spiked model (δ = 10), Corollary 1 against simulation"
PAPER = "Simulation follows Corollary 1; the better β is aligned with v, the deeper the descent and the later its end."

_DELTAS = (10.0,)
_COSINES = (0.0, 0.5, 1.0)  # the paper's legend is in its figure only; these span what it speaks of


def run(
    out: Path,
    *,
    scale: Scale = "full",
    jobs: int = 1,
    progress: Progress | None = None,
    size: Size | None = None,
) -> list[Path]:
    """Write fig1b.csv and its figure."""
    size = SIZES[scale] if size is None else size
    rows = measure(size, "uniform", _DELTAS, _COSINES, jobs, Tally(progress, steps(size, _DELTAS)))
    add_corollary(size, rows)
    return [write_table(out, "fig1b", rows), *draw_angles(size, rows, out, "fig1b")]
