"""What Figs. 8 and 9 have in common: one model at several fixed ratios, and what each makes of the same images."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from r2mae.domains.lookup import get_domain
from r2mae.errors import UserError
from r2mae.images.config import ImagesConfig
from r2mae.images.domain import DOMAIN
from r2mae.sweep.runs import SweepParameter, SweepRun, grid, runs_of
from r2mae_paper.artefact import Size, TableRow
from r2mae_paper.drawing import Figures

if TYPE_CHECKING:
    import pandas as pd

_SCORES = ("masked_mse", "clean_mse")


@dataclass(frozen=True)
class PicturesSize(Size):
    """How much is trained.

    Attributes
    ----------
    data : str
        The images.
    preset : str
        Of the model and its recipe.
    side : int, optional
        Of the images, in pixels: the middle square of each, brought to this size; by default they stay as they are.
    ratios : tuple of float
        Fixed ratios of training.
    hidden : float
        What part of the shown images is hidden. The paper does not say it.
    steps : int, optional
        Instead of the preset's epochs.
    """

    data: str = ""
    preset: str = ""
    side: int | None = None
    ratios: tuple[float, ...] = tuple(round(0.1 * k, 1) for k in range(1, 10))
    hidden: float = 0.7
    steps: int | None = None

    digits: ClassVar[int] = 4


def cells_at_ratios(size: PicturesSize, data: str, out: Path) -> list[SweepRun]:
    """Return a run for each ratio, all with seed 0."""
    reading: dict[str, Any] = {} if size.side is None else {"resize": size.side, "resize_mode": "crop"}
    base = ImagesConfig.make(data=data, scheme="fixed", steps=size.steps, **reading)
    model = SweepParameter("preset", {size.preset: {**DOMAIN.presets[size.preset], "preset": size.preset}})
    return runs_of(grid(base, [model, SweepParameter.over("ratio", size.ratios)]), [0], out)


def rows_by_ratio(results: "pd.DataFrame") -> list[TableRow]:
    """Return the errors of each model: of hidden pixels, at each ratio that was measured, and of whole images."""
    shown = [str(name) for name in results if str(name).startswith(_SCORES)]
    return [
        {"training_ratio": float(row["ratio"]), **{name: float(row[name]) for name in shown}}
        for _, row in results.iterrows()
    ]


def draw_cells(cells: Sequence[SweepRun], size: PicturesSize, name: str) -> Figures:
    """Draw examples (a row each): original, masked, and as the model of each ratio completes them."""
    from r2mae.report.pictures import draw_pictures, to_reconstructions
    from r2mae.sweep.examples import examples_of

    named = [
        replace(cell, variant=replace(cell.variant, label=f"trained at {cell.variant.values['ratio']}"))
        for cell in cells
    ]
    examples = examples_of(named, get_domain(ImagesConfig.domain), ratio=size.hidden)
    if examples is None:
        raise UserError(f"{size.preset} makes no pictures: take a preset of mlp or unet")
    return {name: draw_pictures(to_reconstructions(examples), along="columns")}
