"""Fig. 9: what U-Nets trained at several mask ratios make of masked faces."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from r2mae.catalogue import data_root
from r2mae.sweep.runs import SweepRun
from r2mae_paper.artefact import Tables
from r2mae_paper.drawing import Figures
from r2mae_paper.reconstructions import PicturesSize, cells_at_ratios, draw_cells, rows_by_ratio

if TYPE_CHECKING:
    import pandas as pd

TITLE = "Fig. 9: masked faces as U-Nets complete them, by the mask ratio of their training"
DATA = "faces: the set celeba; full: all of CelebA"
COST = {
    "smoke": "a minute",
    "small": "5 runs, half an hour of a core",
    "full": "9 runs, an hour each on a GPU (the paper)",
}
PAPER = "Original, masked, and the reconstructions of U-Nets of base channel 16, by their training ratio."


@dataclass(frozen=True)
class FacePicturesSize(PicturesSize):
    """How much is trained.

    Without a name of the data, these are the folder `celeba-aligned` of the data folder, which must hold all of CelebA.
    """

    preset: str = "unet-16"
    side: int | None = 128

    small: ClassVar = {"data": "celeba", "side": 64, "preset": "unet-4", "ratios": (0.1, 0.3, 0.5, 0.7, 0.9)}
    smoke: ClassVar = {**small, "side": 32, "ratios": (0.3, 0.7), "steps": 2}


SIZE = FacePicturesSize


def cells(size: FacePicturesSize, out: Path) -> list[SweepRun]:
    """Return a run for each ratio."""
    return cells_at_ratios(size, size.data or str(data_root() / "celeba-aligned"), out)


def table(results: "pd.DataFrame") -> Tables:
    """Return the errors of each model."""
    return {"fig9": rows_by_ratio(results)}


def draw(tables: Tables, size: FacePicturesSize) -> Figures:
    """Return no figure: the pictures are drawn from the runs."""
    return {}


def draw_runs(cells: Sequence[SweepRun], size: FacePicturesSize) -> Figures:
    """Draw the pictures."""
    return draw_cells(cells, size, "fig9")
