"""Scores on the terminal."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from r2mae.evaluation.metrics import Metric
from r2mae.files import jsonable


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


def scores_table(scores: Mapping[str, float], metrics: Sequence[Metric]) -> None:
    """Print scores, the wing's headline metrics first and in words."""
    table = Table(show_header=False, box=None, pad_edge=False)
    labels = {metric.name: metric.label for metric in metrics}
    for name in [*(n for n in labels if n in scores), *(n for n in scores if n not in labels)]:
        table.add_row(labels.get(name, name), f"{scores[name]:.5g}")
    Terminal().print(table)
