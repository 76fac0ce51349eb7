"""Gather the run folders of a sweep into one table and its training curves."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from r2mae.evaluation.items import ItemScores
from r2mae.sweep.measure import scores_of
from r2mae.sweep.runs import SweepRun
from r2mae.training.folder import RunFolder
from r2mae.training.measure import items_of
from r2mae.training.metrics import read_metrics

_POINTS = 200


def ordered_runs(runs: Sequence[SweepRun]) -> list[SweepRun]:
    """Return the runs sorted by variant, in the order of the variants' first runs, then by seed."""
    order = {label: position for position, label in enumerate(dict.fromkeys(run.variant.label for run in runs))}
    return sorted(runs, key=lambda run: (order[run.variant.label], run.seed))


def table_of(runs: Sequence[SweepRun]) -> pd.DataFrame:
    """Return one line per run: label, the variant's values, seed, seconds of training, and scores."""
    return pd.DataFrame([_line(run) for run in runs])


def curves_of(trained: Sequence[SweepRun]) -> pd.DataFrame:
    """Return thinned training curves: label, seed, step, loss, validation_loss."""
    return pd.concat([_curve(run) for run in trained], ignore_index=True)


def items_by_run(runs: Sequence[SweepRun]) -> dict[tuple[str, int], ItemScores]:
    """Return the scores of single test items by label and seed, for the runs that have some."""
    found = {(run.variant.label, run.seed): items_of(RunFolder(run.folder)) for run in runs}
    return {run: items for run, items in found.items() if items is not None}


def _line(run: SweepRun) -> dict[str, Any]:
    folder = RunFolder(run.folder)
    variant = run.variant
    return {
        "label": variant.label,
        **variant.values,
        "seed": run.seed,
        "seconds": float((folder.results or {}).get("seconds") or np.nan),
        **scores_of(folder),
    }


def metrics_of(run: SweepRun) -> pd.DataFrame:
    """Return a table of a run's steps: step, ratio, loss and validation loss."""
    return read_metrics(RunFolder(run.folder).metrics_file)[["step", "ratio", "loss", "validation_loss"]]


def _curve(run: SweepRun) -> pd.DataFrame:
    """Return a training curve as means over windows: with a random ratio, single losses are noisy."""
    steps = metrics_of(run)
    window = np.arange(len(steps)) * _POINTS // max(len(steps), _POINTS)
    means = steps.groupby(window)[["loss", "validation_loss"]].mean()
    means.insert(0, "step", steps.groupby(window)["step"].max())
    means.insert(0, "seed", run.seed)
    means.insert(0, "label", run.variant.label)
    return means
