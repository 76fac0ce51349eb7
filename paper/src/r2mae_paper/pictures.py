"""Figs. 8 and 9: what models trained at several mask ratios make of the same masked images."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd

from r2mae.catalogue import data_root
from r2mae.domains.lookup import get_domain
from r2mae.errors import UserError
from r2mae.images.config import ImagesConfig
from r2mae.images.domain import DOMAIN
from r2mae.sweep.runs import SweepParameter, SweepRun, grid, runs_of
from r2mae_paper.drawing import Figures
from r2mae_paper.rows import Tables
from r2mae_paper.studies import ENTRIES
from r2mae_paper.study import Size, Study

_SCORES = ("masked_mse", "clean_mse")


@dataclass(frozen=True)
class PicturesSize(Size):
    """How much is trained.

    Attributes
    ----------
    data : str
        The images; without a name the folder `celeba-aligned` of the data folder, which must hold all of CelebA.
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


@dataclass(frozen=True)
class DigitsSize(PicturesSize):
    """How much is trained. The paper's model has two hidden layers of 512 and 256, and sees MNIST for 15 epochs."""

    data: str = "mnist"
    preset: str = "mlp-512-256"

    small: ClassVar = {"ratios": (0.1, 0.3, 0.5, 0.7, 0.9), "steps": 469}
    smoke: ClassVar = {"data": "digits", "ratios": (0.3, 0.7), "steps": 2}


@dataclass(frozen=True)
class FacePicturesSize(PicturesSize):
    """How much is trained; see :class:`PicturesSize`."""

    preset: str = "unet-16"
    side: int | None = 128

    small: ClassVar = {"data": "celeba", "side": 64, "preset": "unet-4", "ratios": (0.1, 0.3, 0.5, 0.7, 0.9)}
    smoke: ClassVar = {**small, "side": 32, "ratios": (0.3, 0.7), "steps": 2}


def runs(size: PicturesSize, out: Path) -> list[SweepRun]:
    """Return a run for each ratio, all with seed 0."""
    reading: dict[str, Any] = {} if size.side is None else {"resize": size.side, "resize_mode": "crop"}
    data = size.data or str(data_root() / "celeba-aligned")
    base = ImagesConfig.make(data=data, scheme="fixed", steps=size.steps, **reading)
    model = SweepParameter("preset", {size.preset: {**DOMAIN.presets[size.preset], "preset": size.preset}})
    return runs_of(grid(base, [model, SweepParameter.over("ratio", size.ratios)]), [0], out)


def table(results: pd.DataFrame, *, name: str) -> Tables:
    """Return the errors of each model: of hidden pixels, at each ratio that was measured, and of whole images."""
    shown = [str(score) for score in results if str(score).startswith(_SCORES)]
    errors = results[["ratio", *shown]].astype(float).rename(columns={"ratio": "training_ratio"})
    return {name: errors.to_dict("records")}


def plot_runs(runs: Sequence[SweepRun], size: PicturesSize, *, name: str) -> Figures:
    """Draw examples (a row each): original, masked, and as the model of each ratio completes them."""
    from r2mae.report.pictures import draw_pictures, to_reconstructions
    from r2mae.sweep.examples import examples_of

    named = [
        replace(run, variant=replace(run.variant, label=f"trained at {run.variant.values['ratio']}")) for run in runs
    ]
    examples = examples_of(named, get_domain(ImagesConfig.domain), ratio=size.hidden)
    if examples is None:
        raise UserError(f"{size.preset} makes no pictures: take a preset of mlp or unet")
    return {name: draw_pictures(to_reconstructions(examples), along="columns")}


STUDIES = tuple(
    Study(ENTRIES[name], size, table=partial(table, name=name), runs=runs, plot_runs=partial(plot_runs, name=name))
    for name, size in (("fig8", DigitsSize), ("fig9", FacePicturesSize))
)
