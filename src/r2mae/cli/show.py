"""Scores on the terminal."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from r2mae.evaluation.metrics import Metric
from r2mae.files import jsonable

_ENDS = ("_donors_low", "_donors_high")


class Terminal(Console):
    """rich's console, which ends a command with code 1 where its reader has gone (``| head``); this one with 0."""

    def on_broken_pipe(self) -> None:
        """Send the rest nowhere, and end."""
        try:
            super().on_broken_pipe()
        except SystemExit:
            raise SystemExit(0) from None


def print_json(value: Any) -> None:
    """Print plain types as JSON, for scripts; NaN becomes null."""
    print(json.dumps(jsonable(value), indent=2, allow_nan=False))


def scores_table(columns: Mapping[str, Mapping[str, float]], metrics: Sequence[Metric]) -> None:
    """Print scores, a column for each model, the wing's headline metrics first and in words.

    Where ``name_donors_low`` and ``name_donors_high`` stand beside ``name``, they are shown as its interval.
    """
    table = Table(show_header=len(columns) > 1, box=None, pad_edge=False)
    labels = {metric.name: metric.label for metric in metrics}
    table.add_column("")
    for column in columns:
        table.add_column(column)
    every = dict.fromkeys(name for scores in columns.values() for name in scores)
    shown = [name for name in every if not name.endswith(_ENDS)]
    for name in [*(n for n in labels if n in shown), *(n for n in shown if n not in labels)]:
        table.add_row(labels.get(name, name), *(_estimate(scores, name) for scores in columns.values()))
    Terminal().print(table)


def _estimate(scores: Mapping[str, float], name: str) -> str:
    low, high = (scores.get(name + end) for end in _ENDS)
    ends = "" if low is None or high is None else f" ({low:.3f} to {high:.3f})"
    return f"{scores[name]:.5g}{ends}" if name in scores else ""
