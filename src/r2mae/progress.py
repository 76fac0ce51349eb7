"""Show the progress of a run."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:  # training knows this module, and does not need rich
    from rich.console import Console
    from rich.progress import ProgressColumn

SECONDS_BETWEEN_LINES = 10.0  # without a terminal for a bar
LONG = 600.0  # seconds of training from which a line warns


@dataclass(frozen=True)
class RunProgress:
    """Optimiser steps done and in total, loss and ratio of the last one, and throughput since the last report."""

    step: int
    total: int
    loss: float
    ratio: float
    samples_per_second: float


@runtime_checkable
class Reporter(Protocol):
    """Receives the progress of a run."""

    def start(self, step: int, total: int) -> None:
        """Called when a run starts or resumes at `step`."""

    def update(self, progress: RunProgress) -> None:
        """Called with the progress."""

    def stop(self) -> None:
        """Called at the end."""


def time_columns(counted: bool = True) -> "list[ProgressColumn]":
    """Return the columns of a bar that fits a narrow terminal: name, bar, count, and time left (at the end, taken)."""
    from rich.progress import BarColumn, MofNCompleteColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.table import Column

    count = MofNCompleteColumn() if counted else TaskProgressColumn()
    name = TextColumn("{task.description}", table_column=Column(no_wrap=True))
    return [name, BarColumn(12), count, TimeRemainingColumn(elapsed_when_finished=True)]


class _Bar:
    """A bar of rich with the time left, by default on standard error; in a file or pipe, a line every ten seconds.

    With `at_once` the first line is due at once; otherwise after ten seconds, so that short work prints nothing.
    """

    def __init__(
        self,
        label: str,
        *columns: "ProgressColumn",
        console: "Console | None" = None,
        clock: Callable[[], float] = time.monotonic,
        at_once: bool = False,
        **options: Any,
    ) -> None:
        from rich.progress import Progress

        from r2mae.terminal import Terminal

        self.label, self.clock, self.console = label, clock, console or Terminal(stderr=True)
        self.bar = Progress(*columns, console=self.console, disable=not self.console.is_terminal, **options)
        self._last_line = -math.inf if at_once else clock()

    def line(self, text: str) -> None:
        """Print a line, if there is no bar and a line is due."""
        if self.bar.disable and self.clock() - self._last_line > SECONDS_BETWEEN_LINES:
            self._last_line = self.clock()
            self.console.print(f"{self.label}: {text}", soft_wrap=True, highlight=False)


@contextmanager
def counting_bar(
    label: str, *, counted: bool = True, transient: bool = False
) -> Iterator[Callable[[int, int | None], None]]:
    """Show a bar with the time left; in a file or pipe, print a line every ten seconds.

    It shows the amounts done and in total, or if not `counted`, a percentage; a `transient` bar disappears at the end.
    The yielded function updates it, given the amount done and the total, which is None if it is unknown.
    """
    shown = _Bar(label, *time_columns(counted=counted), transient=transient)
    task = shown.bar.add_task(label, total=None)

    def update(done: int, total: int | None) -> None:
        if not shown.bar.live.is_started:  # not earlier: previous work may show another bar
            shown.bar.start()
        shown.bar.update(task, completed=done, total=total)
        shown.line(f"{done:,}" if total is None else f"{done}/{total}" if counted else f"{done / total:.0%}")

    try:
        yield update
    finally:
        shown.bar.stop()


def counter(update: Callable[[int, int], None] | None, total: int) -> Callable[[int], None]:
    """Return a function that adds finished parts of so many, and tells `update` of them, if there is one."""
    done = 0

    def add(parts: int) -> None:
        nonlocal done
        done = min(done + parts, total)
        if update is not None:
            update(done, total)

    return add


class ProgressBar(_Bar):
    """Shows a bar with loss, ratio, speed and time left; in a file or pipe, a line with these every ten seconds."""

    def __init__(
        self, label: str, console: "Console | None" = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        from rich.progress import TextColumn
        from rich.table import Column

        note = TextColumn("{task.fields[note]}", table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1))
        super().__init__(label, *time_columns(), note, console=console, clock=clock, at_once=True, expand=True)
        self._paced: tuple[int, float] | None = None
        self._warned = False

    def start(self, step: int, total: int) -> None:
        """Open the bar."""
        self._task = self.bar.add_task(self.label, total=total, completed=step, note="")
        self.bar.start()
        self._first, self._began, self._paced = step, self.clock(), None
        if step and self.bar.disable:
            self.console.print(f"{self.label}: resumes at step {step} of {total}", soft_wrap=True)

    def update(self, progress: RunProgress) -> None:
        """Move the bar."""
        ratio = f"ratio {progress.ratio:.2f}  " if progress.ratio else ""  # 0 for a run that hides nothing
        note = f"loss {progress.loss:.4g}  {ratio}{progress.samples_per_second:,.0f} samples/s"
        self.bar.update(self._task, completed=progress.step, note=note)
        self._warn_if_long(progress)
        done, rest = progress.step - self._first, progress.total - progress.step
        seconds = round((self.clock() - self._began) / max(done, 1) * rest)  # at the mean speed since the start
        left = f"  {timedelta(seconds=seconds)} left" if rest else ""
        self.line(f"step {progress.step}/{progress.total}  {note}{left}")

    def _warn_if_long(self, progress: RunProgress) -> None:
        """Print once how long the run will take, if that is long, by the steps after the first report.

        The first steps also compile and read.
        """
        if self._warned or self._paced is None:
            self._paced = self._paced or (progress.step, self.clock())
            return
        steps, seconds = progress.step - self._paced[0], self.clock() - self._paced[1]
        if steps < 1 or seconds < SECONDS_BETWEEN_LINES / 2:
            return
        self._warned, left = True, seconds / steps * (progress.total - progress.step)
        if left > LONG:
            self.console.print(
                f"{self.label}: takes about {timedelta(seconds=round(left, -1))} more on this machine "
                f"({seconds / steps:.2g} s a step): give fewer --steps or --epochs, a smaller --preset, or a GPU",
                soft_wrap=True,
                highlight=False,
            )

    def stop(self) -> None:
        """Close the bar."""
        self.bar.stop()
