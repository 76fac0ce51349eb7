"""Table 1 on Tiny-ImageNet: every scheme with ViT-MAE; and how much the loss jumps, by the way ratios are drawn."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from r2mae.catalogue import data_root
from r2mae.images.config import ImagesConfig
from r2mae.sweep.runs import SweepRun, runs_of
from r2mae_paper.bases import few_classes
from r2mae_paper.drawing import Figures
from r2mae_paper.randomness import jumps_of_run
from r2mae_paper.rows import Tables
from r2mae_paper.scheme_table import CURRICULA, dots, schemes, tables_of, variants_of
from r2mae_paper.studies import ENTRIES, Size
from r2mae_paper.study import Study

UNTRAINED = "not pretrained"
ROWS: Mapping[str, Mapping[str, Any]] = {
    **schemes((0.5, 0.75, 0.9), "dynamic", "mdlm", "r2mae"),
    "r2mae stratified": {"scheme": "r2mae", "sampling": "stratified"},
    "r2mae per sample": {"scheme": "r2mae", "per": "sample"},
    **schemes((), *CURRICULA),
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


def runs(size: Size, out: Path) -> list[SweepRun]:
    """Return a run for each row and seed, and the baselines."""
    data = few_classes(out, size.classes) if size.classes else str(data_root() / "imagenet")
    base = ImagesConfig.make(data=data, finetune_epochs=size.finetune_epochs)
    rows = variants_of(base, {name: {**size.settings, **ROWS[name]} for name in size.rows or ROWS})
    plain = rows[0].config.replace(finetune_epochs=0.0)
    return runs_of([*rows, *variants_of(plain, {}, ("pixels", "pca"))], range(size.seeds), out)


def table(results: pd.DataFrame) -> Tables:
    """Return means, intervals and differences of every score, and all runs."""
    return tables_of(results, "table1", list(TITLES), REFERENCE, baseline=UNTRAINED, lower=_LOWER)


def plot(tables: Tables, size: Size) -> Figures:
    """Draw every score of every row; the dashed line is the network before training."""
    shown = {name: title for name, title in TITLES.items() if name != "finetune_top5"}
    # Its error is twice that of all others, which would overlap.
    rows = [row for row in tables["table1"] if (row["label"], row["score"]) != (UNTRAINED, "masked_mse")]
    return {"table1": dots(rows, shown, UNTRAINED, columns=3)}


STUDIES = (Study(ENTRIES["table1"], plot, table, runs=runs, scores_of_run=jumps_of_run),)
