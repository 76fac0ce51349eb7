"""Table 2: every scheme of the paper with RoBERTa, by masked loss, and by fine-tuning or linear probes on GLUE."""

from dataclasses import replace
from pathlib import Path

import pandas as pd

from r2mae.sweep.runs import SweepRun, runs_of_groups
from r2mae_paper.bases import text
from r2mae_paper.drawing import Figures
from r2mae_paper.rows import TableRow, Tables, select, unique
from r2mae_paper.scheme_table import average_ranks, dots, schemes, tables_of, variants_of
from r2mae_paper.studies import ENTRIES, Size
from r2mae_paper.study import Study

SCHEMES = schemes((0.15, 0.4), "mdlm", "dynamic", "r2mae")
UNTRAINED = "not pretrained"
ROWS = {**SCHEMES, UNTRAINED: {"scheme": "fixed", "ratio": 0.15, "steps": 1, "lr": 1e-12}}
"""The paper's rows, and the weights as they were drawn: what probes find in random features of words."""
REFERENCE = "fixed 0.15"
_GLUE = {"mnli": "MNLI", "qqp": "QQP", "sst2": "SST-2", "qnli": "QNLI"}
GLUE_ACCURACIES = {
    **{f"{name}_accuracy": f"{title}, accuracy" for name, title in _GLUE.items()},
    **{f"{name}_probe_accuracy": f"{title}, accuracy of a probe" for name, title in _GLUE.items()},
}
"""Titles of accuracies on the paper's tasks, fine-tuned or probed."""
LOSS_RATIOS = (0.15, 0.4, 0.8)
"""Shares of hidden tokens at which the masked loss is measured."""
TITLES = {
    **GLUE_ACCURACIES,
    "glue_probe": "probes, mean accuracy",
    "loss": "masked loss, mean",
    **{f"loss_{ratio:g}": f"masked loss at {ratio:g}" for ratio in LOSS_RATIOS},
    "accuracy": "masked accuracy, mean",
}
_LOWER = ("loss",)


def runs(size: Size, out: Path) -> list[SweepRun]:
    """Return a run for each model, scheme and seed, each model in a folder of its own."""
    groups = {}
    for model in size.models:
        base = text(size.data, model, {"glue": size.glue, "glue_probes": size.probes, **size.settings})
        rows = variants_of(base, {label: ROWS[label] for label in size.rows or SCHEMES}, model=model)
        groups[model] = [
            replace(row, values={**row.values, "scheme": "none"}) if row.label == UNTRAINED else row for row in rows
        ]
    return runs_of_groups(groups, range(size.seeds), out)


def table(results: pd.DataFrame) -> Tables:
    """Return for each model means, intervals and differences of every score, ranks over GLUE, and all runs."""
    tables: dict[str, list[TableRow]] = {"table2": [], "table2-runs": []}
    for model, group in results.groupby("model", sort=False):
        found = tables_of(group, "table2", list(TITLES), REFERENCE, baseline=UNTRAINED, lower=_LOWER)
        for name, rows in found.items():
            tables[name] += [{"model": model, **row} for row in rows]
        for title, score in (("rank", "accuracy"), ("probe_rank", "probe_accuracy")):
            trained = group[group["label"] != UNTRAINED]
            ranks = average_ranks(trained, [f"{name}_{score}" for name in _GLUE])
            tables["table2"] += [
                {"model": model, "label": label, "score": title, "mean": rank} for label, rank in ranks.items()
            ]
    return tables


def plot(tables: Tables, size: Size) -> Figures:
    """Draw every score of every scheme, a figure for each model; the dashed line is a model before training."""
    # A loss of the logarithm of the vocabulary would press all others together.
    rows = [row for row in tables["table2"] if row["label"] != UNTRAINED or "probe" in row["score"]]
    return {f"table2-{model}": dots(select(rows, model=model), TITLES, UNTRAINED) for model in unique(rows, "model")}


STUDIES = (Study(ENTRIES["table2"], plot, table, runs=runs),)
