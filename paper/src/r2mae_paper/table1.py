"""Table 1 on Tiny-ImageNet: every scheme with ViT-MAE; and how much the loss jumps, by the way ratios are drawn."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd

from r2mae.catalogue import data_root
from r2mae.evaluation.fluctuation import loss_fluctuation
from r2mae.images.config import ImagesConfig
from r2mae.images.domain import DOMAIN
from r2mae.sweep.gather import metrics_of
from r2mae.sweep.runs import SweepRun, runs_of
from r2mae_paper.drawing import Figures
from r2mae_paper.rows import Tables
from r2mae_paper.scheme_table import dots, tables_of, variants_of
from r2mae_paper.studies import ENTRIES
from r2mae_paper.study import Size, Study
from r2mae_paper.subsets import some_classes

UNTRAINED = "not pretrained"
ROWS: Mapping[str, Mapping[str, Any]] = {
    **{f"fixed {ratio:.2f}": {"scheme": "fixed", "ratio": ratio} for ratio in (0.5, 0.75, 0.9)},
    **{name: {"scheme": name} for name in ("dynamic", "mdlm", "r2mae")},
    "r2mae stratified": {"scheme": "r2mae", "sampling": "stratified"},
    "r2mae per sample": {"scheme": "r2mae", "per": "sample"},
    **{name: {"scheme": name} for name in ("r2mae-dynamic", "cl", "cl-k0", "r2mae-cl", "r2mae-cl-k0")},
    UNTRAINED: {"scheme": "fixed", "ratio": 0.75, "steps": 1, "base_lr": 1e-12},
}
"""Rows by name. One step at a rate of nothing leaves the weights as they were drawn."""

REFERENCE = "fixed 0.75"
TITLES = {
    "finetune_top1": "top-1, fine-tuned",
    "finetune_top5": "top-5, fine-tuned",
    "probe_accuracy": "top-1, linear probe",
    "knn_accuracy": "top-1, nearest neighbours",
    "masked_mse": "error of hidden patches",
    "loss_sd": "jumps of the loss,\ntrend removed",
    "loss_sd_beside_ratio": "jumps of the loss,\ntrend and ratio removed",
}
_LOWER = ("masked_mse", "loss_sd")


def _preset(name: str, **changes: Any) -> dict[str, Any]:
    return {**DOMAIN.presets[name], "preset": name, **changes}


# A class has 200 images: small batches make steps of them, and MAE's rate for 4096 images is too low for so few.
_TINY = _preset("vit-mae-tiny", batch_size=32, base_lr=3e-3, epochs=8.0, precision="bf16")
_SMOKE = _preset("vit-mae-tiny", batch_size=8, steps=70, **{"model.width": 48, "model.layers": 1})


@dataclass(frozen=True)
class ViTSize(Size):
    """How much is trained.

    Attributes
    ----------
    classes : int, optional
        Evenly spaced classes of `tiny-imagenet`; without a number the folder `imagenet` of the data folder, which must
        hold ImageNet-1K as `train` and `val`.
    rows : tuple of str
        Names of :data:`ROWS`; by default all.
    seeds : int
        Runs of each row.
    finetune_epochs : float
        Of fine-tuning; the paper: 100.
    settings : mapping
        Fields of the configuration; by default the paper's network and recipe.
    """

    classes: int | None = None
    rows: tuple[str, ...] | None = None
    seeds: int = 3
    finetune_epochs: float = 100.0
    settings: Mapping[str, Any] = field(default_factory=lambda: _preset("vit-mae-base"))

    small: ClassVar[Mapping[str, Any]] = {"classes": 10, "finetune_epochs": 2.0, "settings": _TINY}
    smoke: ClassVar[Mapping[str, Any]] = {
        **{"classes": 2, "rows": (REFERENCE, "r2mae per sample", UNTRAINED), "seeds": 1, "finetune_epochs": 0.1},
        "settings": _SMOKE,
    }


def runs(size: ViTSize, out: Path) -> list[SweepRun]:
    """Return a run for each row and seed, and the baselines."""
    data = (
        data_root() / "imagenet"
        if size.classes is None
        else some_classes(size.classes, out.absolute() / f"classes-{size.classes}.tar")
    )
    base = ImagesConfig.make(data=str(data), finetune_epochs=size.finetune_epochs)
    rows = variants_of(base, {name: {**size.settings, **ROWS[name]} for name in size.rows or ROWS})
    plain = rows[0].config.replace(finetune_epochs=0.0)
    return runs_of([*rows, *variants_of(plain, {}, ("pixels", "pca"))], range(size.seeds), out)


def scores_of_run(run: SweepRun) -> Mapping[str, float]:
    """Return how much the loss of a run jumps; nothing of runs of few steps, and of baselines."""
    if run.variant.baseline or run.variant.label == UNTRAINED:
        return {}
    steps = metrics_of(run)
    found = loss_fluctuation(steps["loss"].to_numpy(float), steps["ratio"].to_numpy(float))
    return {"loss_sd": found.around_trend, "loss_sd_beside_ratio": found.around_trend_and_ratio}


def table(results: pd.DataFrame) -> Tables:
    """Return means, intervals and differences of every score, and all runs."""
    return tables_of(results, "table1", list(TITLES), REFERENCE, baseline=UNTRAINED, lower=_LOWER)


def plot(tables: Tables, size: ViTSize) -> Figures:
    """Draw every score of every row; the dashed line is the network before training."""
    shown = {name: title for name, title in TITLES.items() if name != "finetune_top5"}
    # Its error is twice that of all others, which would overlap.
    rows = [row for row in tables["table1"] if (row["label"], row["score"]) != (UNTRAINED, "masked_mse")]
    return {"table1": dots(rows, shown, UNTRAINED, columns=3)}


STUDIES = (Study(ENTRIES["table1"], ViTSize, plot, table, runs=runs, scores_of_run=scores_of_run),)
