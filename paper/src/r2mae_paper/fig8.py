"""Fig. 8: what MLPs trained at several mask ratios make of masked digits."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from r2mae.sweep.runs import SweepRun
from r2mae_paper.artefact import Tables
from r2mae_paper.drawing import Figures
from r2mae_paper.reconstructions import PicturesSize, cells_at_ratios, draw_cells, rows_by_ratio

if TYPE_CHECKING:
    import pandas as pd

TITLE = "Fig. 8: masked digits as MLPs complete them, by the mask ratio of their training"
DATA = "mnist"
COST = {
    "smoke": "seconds",
    "small": "5 runs, 2 min on a core",
    "full": "9 runs, about a minute each on a core",
}
PAPER = (
    "Original, masked, and the reconstructions of overparametrized MLPs (second layer 256), by their training ratio."
)


@dataclass(frozen=True)
class DigitsSize(PicturesSize):
    """How much is trained. The paper's model has two hidden layers of 512 and 256, and sees MNIST for 15 epochs."""

    data: str = "mnist"
    preset: str = "mlp-512-256"

    small: ClassVar = {"ratios": (0.1, 0.3, 0.5, 0.7, 0.9), "steps": 469}
    smoke: ClassVar = {"data": "digits", "ratios": (0.3, 0.7), "steps": 2}


SIZE = DigitsSize


def cells(size: DigitsSize, out: Path) -> list[SweepRun]:
    """Return a run for each ratio."""
    return cells_at_ratios(size, size.data, out)


def table(results: "pd.DataFrame") -> Tables:
    """Return the errors of each model."""
    return {"fig8": rows_by_ratio(results)}


def draw(tables: Tables, size: DigitsSize) -> Figures:
    """Return no figure: the pictures are drawn from the runs."""
    return {}


def draw_runs(cells: Sequence[SweepRun], size: DigitsSize) -> Figures:
    """Draw the pictures."""
    return draw_cells(cells, size, "fig8")
