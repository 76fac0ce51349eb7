"""Fig. 2C: fine-tuning accuracy of language models of several sizes against the mask ratio of pretraining."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from r2mae.errors import UserError
from r2mae_paper.artefact import Part, Size, TableRow, Tables, joined
from r2mae_paper.curves import Accuracies, expected, models_by_task, read_curves
from r2mae_paper.drawing import Figures

TITLE = "Fig. 2C: fine-tuned language models of several sizes, of your table (--curve FILE.csv)"
DATA = "a table of accuracies (--curve FILE.csv)"
COST = {"small": "seconds", "full": "seconds"}
PAPER = "Larger RoBERTas have a higher best ratio, which depends on the task (curves of Wettig et al., 2022)."
_NAMES = ("model", "task")


@dataclass(frozen=True)
class ModelsSize(Size):
    """The accuracies that are drawn; this artefact trains nothing.

    Attributes
    ----------
    rows : tuple of (str, str, float, float)
        Model, task, ratio and accuracy of each row of the tables.
    """

    rows: Accuracies = ()


SIZE = ModelsSize


def with_curves(size: ModelsSize, files: Sequence[Path]) -> ModelsSize:
    """Return the size with tables of accuracies that have the columns model, task, ratio and accuracy (fractions).

    Models are drawn in the order in which the tables name them: begin with the smallest.

    Raises
    ------
    UserError
        If there is no file; and as :func:`r2mae_paper.curves.read_curves`.
    """
    if not files:
        raise UserError(
            f"fig2c needs a table of accuracies: --curve FILE.csv ({expected(_NAMES)}); "
            "for curves of our own: r2mae reproduce text-ratios"
        )
    return ModelsSize(read_curves(files, _NAMES))


def parts(size: ModelsSize) -> list[Part]:
    """Return one part."""
    return [Part("curves", 0, lambda jobs, tally: _means(size.rows))]


def table(results: Mapping[str, list[TableRow]]) -> Tables:
    """Return the mean accuracy of each model, task and ratio, and the best ratio of each model on each task.

    Ratios whose accuracy is within 0.002 of the best one's are told, too: published tables have three digits.
    """
    rows = joined(results)
    best = []
    for model, task in dict.fromkeys((row["model"], row["task"]) for row in rows):
        own = [row for row in rows if (row["model"], row["task"]) == (model, task)]
        top = max(own, key=lambda row: row["accuracy"])
        near = [row["ratio"] for row in own if row["accuracy"] >= top["accuracy"] - 0.002]
        best.append(
            {
                "model": model,
                "task": task,
                "ratios": len(own),
                "best_ratio": top["ratio"],
                "best_accuracy": top["accuracy"],
                "near_best_from": min(near),
                "near_best_until": max(near),
            }
        )
    return {"fig2c": rows, "fig2c-best": best}


def draw(tables: Tables, size: ModelsSize) -> Figures:
    """Draw a panel for each task with a curve for each model; a ring marks the best ratio of each."""
    figure, axes = models_by_task(tables["fig2c"], tables["fig2c-best"], columns=3)
    for panel in axes:
        panel.legend(fontsize=8, title="ring: the best ratio", title_fontsize=8)
    return {"fig2c": figure}


def _means(rows: Accuracies) -> list[TableRow]:
    """Return the mean over rows (seeds) of one model, task and ratio, ratios in ascending order."""
    found: dict[tuple[object, ...], list[float]] = {}
    order = list(dict.fromkeys((model, task) for model, task, *_ in rows))
    for model, task, ratio, accuracy in sorted(rows, key=lambda row: (order.index((row[0], row[1])), row[2])):
        found.setdefault((model, task, ratio), []).append(float(accuracy))
    return [
        {"model": model, "task": task, "ratio": ratio, "accuracy": float(np.mean(values))}
        for (model, task, ratio), values in found.items()
    ]
