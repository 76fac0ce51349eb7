"""How a run shows itself while it works."""

import time
from dataclasses import dataclass
from typing import Protocol, TextIO, runtime_checkable

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


@dataclass(frozen=True)
class Pace:
    """Where a run stands.

    Parameters
    ----------
    step, total : int
        Optimiser steps done, and of the whole run.
    loss, ratio : float
        Of the last step.
    samples_per_second : float
        Since the last report.
    """

    step: int
    total: int
    loss: float
    ratio: float
    samples_per_second: float


@runtime_checkable
class Reporter(Protocol):
    """Whoever listens to a run."""

    def start(self, step: int, total: int) -> None:
        """Take note that a run begins, or goes on, at `step`."""

    def update(self, pace: Pace) -> None:
        """Take note of progress."""

    def stop(self) -> None:
        """Take note of the end."""


class Silent:
    """Shows nothing."""

    def start(self, step: int, total: int) -> None:
        """Do nothing."""

    def update(self, pace: Pace) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Do nothing."""


class ProgressBar:
    """One bar with loss, ratio, throughput and a time to finish; in a file or pipe, a line every ten seconds.

    Parameters
    ----------
    label : str
        What is trained.
    file : TextIO, optional
        Where to show it; standard error by default.
    """

    def __init__(self, label: str, file: TextIO | None = None) -> None:
        self.console = Console(file=file, stderr=file is None)
        self.label = label
        self._told = 0.0
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(elapsed_when_finished=False),
            console=self.console,
            disable=not self.console.is_terminal,
        )

    def start(self, step: int, total: int) -> None:
        """Open the bar."""
        self._task = self._bar.add_task(self.label, total=total, completed=step, note="")
        self._bar.start()
        if step and self._bar.disable:
            self.console.print(f"{self.label}: goes on at step {step} of {total}", soft_wrap=True)

    def update(self, pace: Pace) -> None:
        """Move the bar."""
        note = f"loss {pace.loss:.4g}  ratio {pace.ratio:.2f}  {pace.samples_per_second:,.0f} samples/s"
        self._bar.update(self._task, completed=pace.step, note=note)
        if self._bar.disable and time.monotonic() - self._told > 10:
            self._told = time.monotonic()
            self.console.print(f"{self.label}: step {pace.step}/{pace.total}  {note}", soft_wrap=True)

    def stop(self) -> None:
        """Close the bar."""
        self._bar.stop()
