"""From the run folders of a sweep to one table and its training curves."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from r2mae.evaluation.items import ItemScores
from r2mae.sweep.cells import Cell
from r2mae.sweep.measure import items_of, scores_of
from r2mae.training.folder import RunFolder
from r2mae.training.metrics import read_metrics

_POINTS = 200


def in_order(cells: Sequence[Cell]) -> list[Cell]:
    """Return cells row by row, the rows in the order of their first cells, and within a row by seed."""
    order = {label: position for position, label in enumerate(dict.fromkeys(cell.row.label for cell in cells))}
    return sorted(cells, key=lambda cell: (order[cell.row.label], cell.seed))


def table_of(cells: Sequence[Cell]) -> pd.DataFrame:
    """Return one line a cell: its label, the values of its row, seed, seconds of training, and its scores."""
    return pd.DataFrame([_line(cell) for cell in cells])


def curves_of(trained: Sequence[Cell]) -> pd.DataFrame:
    """Return thinned training curves: label, seed, step, loss, validation_loss."""
    return pd.concat([_curve(cell) for cell in trained], ignore_index=True)


def items_by_run(cells: Sequence[Cell]) -> dict[tuple[str, int], ItemScores]:
    """Return the scores of single test items by label and seed, of the runs that kept some."""
    found = {(cell.row.label, cell.seed): items_of(RunFolder(cell.folder)) for cell in cells}
    return {run: items for run, items in found.items() if items is not None}


def _line(cell: Cell) -> dict[str, Any]:
    folder = RunFolder(cell.folder)
    row = cell.row
    return {
        "label": row.label,
        **row.values,
        "seed": cell.seed,
        "seconds": float((folder.results or {}).get("seconds") or np.nan),
        **scores_of(folder),
    }


def metrics_of(cell: Cell) -> pd.DataFrame:
    """Return step, ratio, loss and validation loss of every step of a run."""
    return read_metrics(RunFolder(cell.folder).metrics_file)[["step", "ratio", "loss", "validation_loss"]]


def _curve(cell: Cell) -> pd.DataFrame:
    """Thin a training curve to means over windows: a random ratio makes single losses jump."""
    steps = metrics_of(cell)
    window = np.arange(len(steps)) * _POINTS // max(len(steps), _POINTS)
    means = steps.groupby(window)[["loss", "validation_loss"]].mean()
    means.insert(0, "step", steps.groupby(window)["step"].max())
    means.insert(0, "seed", cell.seed)
    means.insert(0, "label", cell.row.label)
    return means
