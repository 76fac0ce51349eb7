"""Table 2: every scheme of the paper with RoBERTa, by masked loss, and by fine-tuning or linear probes on GLUE."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd

from r2mae.sweep.runs import SweepRun, runs_of_groups
from r2mae.text.config import TextConfig
from r2mae.text.domain import DOMAIN
from r2mae.text.sets import SET_DEFAULTS
from r2mae_paper.drawing import Figures
from r2mae_paper.rows import TableRow, Tables, select, unique
from r2mae_paper.scheme_table import average_ranks, dots, tables_of, variants_of
from r2mae_paper.studies import ENTRIES
from r2mae_paper.study import Size, Study

SCHEMES: Mapping[str, Mapping[str, Any]] = {
    **{f"fixed {ratio:.2f}": {"scheme": "fixed", "ratio": ratio} for ratio in (0.15, 0.4)},
    **{name: {"scheme": name} for name in ("mdlm", "dynamic", "r2mae")},
}
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

# A small vocabulary, short sequences and a high rate: with these a model of this size leaves the plateau of word
# frequencies after 1,400 to 2,000 steps. With 8,000 tokens it is still on the plateau after 3,000.
SMALL = {
    **{"vocab_size": 2000, "sequence_length": 32, "batch_size": 64, "steps": 4000},
    **{"lr": 2e-3, "dropout": 0.0, "glue_limit": 9000},
}
SMOKE = {
    **{"hidden_size": 16, "layers": 1, "heads": 2, "intermediate_size": 32, "vocab_size": 400},
    **{"sequence_length": 32, "batch_size": 4, "steps": 2},
}


@dataclass(frozen=True)
class TextSize(Size):
    """How much is trained.

    Attributes
    ----------
    data : str
        The corpus.
    models : tuple of str
        Presets.
    rows : tuple of str
        Names of :data:`ROWS`; by default those of the paper.
    glue : tuple of str
        Tasks that models are fine-tuned on.
    probes : tuple of str
        Tasks on which their frozen features are probed.
    seeds : int
        Runs of each row.
    settings : mapping
        Fields of the configuration in place of the presets'.
    """

    data: str = "fineweb"
    models: tuple[str, ...] = ("roberta-medium", "roberta-base")
    rows: tuple[str, ...] | None = None
    glue: tuple[str, ...] = tuple(_GLUE)
    probes: tuple[str, ...] = ()
    seeds: int = 3
    settings: Mapping[str, Any] = field(default_factory=dict)

    small: ClassVar[Mapping[str, Any]] = {
        "data": "wiki",
        "models": ("tiny",),
        "rows": tuple(ROWS),
        "glue": (),
        "probes": tuple(_GLUE),
        "seeds": 5,
        "settings": SMALL,
    }
    smoke: ClassVar[Mapping[str, Any]] = {
        **{"data": "wikitext2", "models": ("tiny",), "rows": (REFERENCE, "r2mae"), "glue": (), "seeds": 1},
        "settings": SMOKE,
    }


def runs(size: TextSize, out: Path) -> list[SweepRun]:
    """Return a run for each model, scheme and seed, each model in a folder of its own."""
    groups = {}
    for model in size.models:
        preset = {**SET_DEFAULTS.get(size.data, {}), **DOMAIN.presets[model], "preset": model, **size.settings}
        base = TextConfig.make(data=size.data, glue=size.glue, glue_probes=size.probes, **preset)
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


def plot(tables: Tables, size: TextSize) -> Figures:
    """Draw every score of every scheme, a figure for each model; the dashed line is a model before training."""
    # A loss of the logarithm of the vocabulary would press all others together.
    rows = [row for row in tables["table2"] if row["label"] != UNTRAINED or "probe" in row["score"]]
    return {f"table2-{model}": dots(select(rows, model=model), TITLES, UNTRAINED) for model in unique(rows, "model")}


STUDIES = (Study(ENTRIES["table2"], TextSize, plot, table, runs=runs),)
