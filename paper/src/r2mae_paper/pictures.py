"""Figs. 8 and 9: what models trained at several mask ratios make of the same masked images."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from r2mae.domains.lookup import get_domain
from r2mae.errors import UserError
from r2mae.images.config import ImagesConfig
from r2mae.sweep.runs import SweepRun
from r2mae_paper.bases import faces, image_presets, runs_by_ratio
from r2mae_paper.drawing import Figures
from r2mae_paper.rows import Tables
from r2mae_paper.studies import ENTRIES, Size
from r2mae_paper.study import Study

_SCORES = ("masked_mse", "clean_mse")


def runs(size: Size, out: Path) -> list[SweepRun]:
    """Return a run for each ratio, all with seed 0."""
    reading: dict[str, Any] = {"resize": size.side, "resize_mode": "crop"} if size.side else {}
    base = ImagesConfig.make(data=faces(size.data), scheme="fixed", steps=size.steps or None, **reading)
    return runs_by_ratio(base, "preset", image_presets([size.preset], {}), size, out)


def table(results: pd.DataFrame, *, name: str) -> Tables:
    """Return the errors of each model: of hidden pixels, at each ratio that was measured, and of whole images."""
    shown = [str(score) for score in results if str(score).startswith(_SCORES)]
    errors = results[["ratio", *shown]].astype(float).rename(columns={"ratio": "training_ratio"})
    return {name: errors.to_dict("records")}


def plot_runs(runs: Sequence[SweepRun], size: Size, *, name: str) -> Figures:
    """Draw examples (a row each): original, masked, and as the model of each ratio completes them."""
    from r2mae.compare.gather import examples_of
    from r2mae.report.pictures import draw_pictures, to_reconstructions

    named = [
        replace(run, variant=replace(run.variant, label=f"trained at {run.variant.values['ratio']}")) for run in runs
    ]
    examples = examples_of(named, get_domain(ImagesConfig.domain), ratio=size.hidden)
    if examples is None:
        raise UserError(f"{size.preset} makes no pictures: take a preset of mlp or unet")
    return {name: draw_pictures(to_reconstructions(examples), along="columns")}


STUDIES = tuple(
    Study(ENTRIES[name], table=partial(table, name=name), runs=runs, plot_runs=partial(plot_runs, name=name))
    for name in ("fig8", "fig9")
)
