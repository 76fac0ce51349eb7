"""Scores on the terminal."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.table import Table

from r2mae.evaluation.metrics import Metric
from r2mae.files import jsonable

_PAUSE = 10.0  # seconds between lines where there is no terminal for a bar
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


@contextmanager
def counting_bar(label: str, *, counted: bool = True, transient: bool = False) -> Iterator[Callable[[int, int], None]]:
    """Show a bar with a time to finish, or a line now and then in a file or pipe.

    Parameters
    ----------
    label : str
        What is done.
    counted : bool
        Whether the numbers mean something to people; otherwise their ratio is shown.
    transient : bool
        Whether the bar goes away in the end.

    Yields
    ------
    callable
        To be told what is done, and what there is to do.
    """
    from rich.progress import Progress

    from r2mae.training.progress import time_columns

    console, told = Console(stderr=True), time.monotonic()
    columns = time_columns(counted=counted)
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=transient) as bar:
        task = bar.add_task(label, total=None)

        def update(done: int, total: int) -> None:
            nonlocal told
            bar.update(task, completed=done, total=total)
            if bar.disable and time.monotonic() - told > _PAUSE:
                told = time.monotonic()
                console.print(
                    f"{label}: {done}/{total}" if counted else f"{label}: {done / total:.0%}",
                    soft_wrap=True,
                    highlight=False,
                )

        yield update


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
