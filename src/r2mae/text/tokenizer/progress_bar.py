"""How tokenising, and the training of a tokenizer, show themselves."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from r2mae.text.encoding import Progress, Tokenised

if TYPE_CHECKING:
    from rich.console import Console


@contextmanager
def tokenising_bar(
    label: str, console: "Console | None" = None, *, clock: Callable[[], float] = time.monotonic
) -> Iterator[Progress]:
    """Show a bar with a time to finish, or in a file or pipe a line every ten seconds; nothing where nothing is done.

    Parameters
    ----------
    label : str
        What is done.
    console, clock
        As of :class:`r2mae.training.progress.ProgressBar`.
    """
    from rich.progress import Progress as Bar

    from r2mae.training.progress import LineTimer, time_columns

    with _console() if console is None else _as_it_is(console) as shown:
        bar = Bar(*time_columns(counted=False), console=shown, disable=not shown.is_terminal, transient=True)
        task = bar.add_task(label, total=1.0)
        stage, lines = "", LineTimer(clock)

        def update(now: Tokenised) -> None:
            nonlocal stage
            if bar.disable:
                if lines.due():
                    shown.print(_line(label, now), soft_wrap=True, highlight=False)
                return
            if not bar.live.is_started:
                bar.start()
            if now.stage != stage:  # whose pace is another
                stage = now.stage
                bar.reset(task, description=f"{label}, {stage}" if stage else label)
            bar.update(task, completed=now.fraction, total=None if now.fraction is None else 1.0)

        try:
            yield update
        finally:
            bar.stop()


def _line(label: str, now: Tokenised) -> str:
    what = f"{label}, {now.stage}" if now.stage else label
    if now.fraction is None or now.seconds_left is None:
        return f"{what}: {now.documents:,} documents in {timedelta(seconds=round(now.seconds))}"
    return f"{what}: {now.fraction:.0%}, {timedelta(seconds=round(now.seconds_left))} left"


@contextmanager
def _console() -> Iterator["Console"]:
    """A console on a copy of standard error, since training a tokenizer takes the original for its own messages."""
    from r2mae.terminal import Terminal

    try:
        number = os.dup(sys.stderr.fileno())
    except (OSError, ValueError, AttributeError):  # in notebooks and tests it is no file
        yield Terminal(stderr=True)
        return
    with os.fdopen(number, "w", encoding=sys.stderr.encoding, errors="replace") as file:
        yield Terminal(file=file)


@contextmanager
def _as_it_is(console: "Console") -> Iterator["Console"]:
    yield console
