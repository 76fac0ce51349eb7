"""Display the progress of a sweep."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, TextColumn

from r2mae.compare.runs import SweepRun
from r2mae.compare.wording import duration
from r2mae.evaluation.metrics import Metric
from r2mae.progress import time_columns

_MEASURING = 0.15  # time of measuring, as a share of the time of training
_LINE_INTERVAL = 60.0  # seconds between lines if there is no terminal for a bar


class ProgressDisplay:
    """Shows a bar for all runs, with the time left; in a file or pipe, a line every minute. Each run that ends has one.

    Parameters
    ----------
    runs, waiting : sequence of SweepRun
        All runs, and the unfinished ones.
    console : Console
        Console of the display.
    metric : Metric
        The metric that is shown for a finished run.
    clock : callable
        Returns the time in seconds.
    """

    def __init__(
        self,
        runs: Sequence[SweepRun],
        waiting: Sequence[SweepRun],
        console: Console,
        metric: Metric,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.runs, self.waiting, self.console, self.metric = runs, list(waiting), console, metric
        self.clock = clock
        self._index = {run.folder: index for index, run in enumerate(self.waiting)}
        self._done = len(runs) - len(waiting)
        self._first: dict[int, float] = {}  # the share of each run that an earlier call has done
        self._progress = Progress(
            *time_columns(counted=False),
            TextColumn("{task.fields[note]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._ended: set[int] = set()
        self._failed: set[int] = set()

    def __enter__(self) -> "ProgressDisplay":
        """Open the display."""
        if self._done:
            self.say(f"{self._done} of {len(self.runs)} runs are finished already")
        self._began = self._last_line = self.clock()
        self._progress.start()
        self._bar = self._progress.add_task("all runs", total=None, note="", visible=bool(self.waiting))
        return self

    def __exit__(self, *_: object) -> None:
        """Close the display."""
        self._progress.stop()

    def say(self, line: str) -> None:
        """Print a line as it is."""
        self.console.print(line, soft_wrap=True, markup=False, highlight=False)

    def update(self, steps: Sequence[tuple[int, int]]) -> None:
        """Show the steps done and planned of every waiting run (0 planned: not started)."""
        shares = [self._share(index, *step) for index, step in enumerate(steps)]
        for index, (_, planned) in enumerate(steps):
            if planned and index not in self._ended:
                self._first.setdefault(index, shares[index])
        running = {index: step for index, step in enumerate(steps) if step[1] and index not in self._ended}
        measured = sum(done == planned for done, planned in running.values())
        note = f"{self._done} of {len(self.runs)} finished" + (f", {measured} measuring" if measured else "")
        self._progress.update(self._bar, completed=sum(shares), total=len(steps), note=note)
        now = self.clock()
        if self._progress.disable and now - self._last_line >= _LINE_INTERVAL and len(self._ended) < len(steps):
            self._last_line = now
            self.say(f"all runs: {note}{self._time_left(now, shares) or f', {sum(shares) / len(steps):.0%} done'}")

    def _share(self, index: int, done: int, planned: int) -> float:
        """Return the share of a run that is done."""
        if index in self._ended:
            return 1.0
        return done / planned / (1 + _MEASURING) if planned else 0.0

    def _time_left(self, now: float, shares: Sequence[float]) -> str:
        """Return the time left at the pace so far, once a run is finished."""
        if not self._ended - self._failed:
            return ""
        work = sum(one - self._first.get(i, 0.0) for i, one in enumerate(shares) if i not in self._failed)
        return f", about {duration((now - self._began) * (len(shares) - sum(shares)) / work)} left"

    def finished(self, run: SweepRun, seconds: float, scores: dict[str, float]) -> None:
        """Print a line about a finished run."""
        self._done += 1
        self._ended.add(self._index[run.folder])
        score = scores.get(self.metric.name)
        result = "" if score is None else f": {self.metric.label} {score:.4f}"
        self.say(f"[{self._done}/{len(self.runs)}] {self.name_of(run)}{result} ({seconds:.0f} s)")

    def failed(self, run: SweepRun, error: Exception) -> None:
        """Print a line about a failed run."""
        self._ended.add(self._index[run.folder])
        self._failed.add(self._index[run.folder])
        self.say(f"failed: {self.name_of(run)}: {error}")

    def name_of(self, run: SweepRun) -> str:
        """Return a run's variant and seed, preceded by its data if the sweep has several data sets."""
        several = len({one.config.data.source for one in self.runs}) > 1
        return f"{Path(run.config.data.source).name + ', ' if several else ''}{run.variant.label}, seed {run.seed}"
