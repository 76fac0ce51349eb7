"""Display the progress of a sweep."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, TaskID, TextColumn

from r2mae.compare.runs import SweepRun
from r2mae.compare.wording import duration
from r2mae.evaluation.metrics import Metric
from r2mae.progress import time_columns

_MEASURING = 0.15  # time of measuring, as a share of the time of training
_LINE_INTERVAL = 60.0  # seconds between lines if there is no terminal for bars
_MOST_NAMED = 4  # runs that a line names


class ProgressDisplay:
    """Shows a bar for all runs, with the time left, and a bar for each run in progress.

    In a file or pipe there are no bars: a line is printed for each finished run, and every minute one with the time
    left.

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
        self._bars: dict[int, TaskID] = {}
        self._ended: set[int] = set()
        self._failed: set[int] = set()

    def __enter__(self) -> "ProgressDisplay":
        """Open the display."""
        if self._done:
            self.say(f"{self._done} of {len(self.runs)} runs are finished already")
        self._began = self._last_line = self.clock()
        self._progress.start()
        self._all = self._progress.add_task("all runs", total=None, note=self._note(), visible=bool(self.waiting))
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
            if planned:
                self._first.setdefault(index, shares[index])
        if self._progress.disable:
            self._print_line(steps, shares)
        self._progress.update(self._all, completed=sum(shares), total=len(steps), note=self._note())
        for index, (done, planned) in enumerate(steps):
            if index in self._ended:
                if index in self._bars:
                    self._progress.remove_task(self._bars.pop(index))
            elif planned:
                if index not in self._bars:
                    name = f"  {self.name_of(self.waiting[index])}"
                    self._bars[index] = self._progress.add_task(name, total=planned, note="")
                self._progress.update(self._bars[index], completed=done, note="" if done < planned else "measuring")

    def _share(self, index: int, done: int, planned: int) -> float:
        """Return the share of a run that is done."""
        if index in self._ended:
            return 1.0
        return done / planned / (1 + _MEASURING) if planned else 0.0

    def _print_line(self, steps: Sequence[tuple[int, int]], shares: Sequence[float]) -> None:
        """Print a line every minute: the time left, or, before any run is finished, the progress of the runs."""
        now = self.clock()
        if now - self._last_line < _LINE_INTERVAL or len(self._ended) == len(self.waiting):
            return
        self._last_line = now
        if self._ended - self._failed:  # the time left at the pace so far
            work = sum(one - self._first.get(i, 0.0) for i, one in enumerate(shares) if i not in self._failed)
            text = f", about {duration((now - self._began) * (len(shares) - sum(shares)) / work)} left"
        else:
            text = self._running_text(steps)
        self.say(f"all runs: {self._done} of {len(self.runs)} done{text}")

    def _running_text(self, steps: Sequence[tuple[int, int]]) -> str:
        parts = []
        for index, (done, planned) in enumerate(steps):
            if planned and index not in self._ended:
                run = self.waiting[index]
                how_far = f"at {done / planned:.0%}" if done < planned else "measuring"
                parts.append(f"{run.variant.label} (seed {run.seed}) {how_far}")
        more = f" and {len(parts) - _MOST_NAMED} more" if len(parts) > _MOST_NAMED else ""
        return f"; {', '.join(parts[:_MOST_NAMED])}{more}" if parts else ""

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

    def _note(self) -> str:
        return f"{self._done} of {len(self.runs)} finished"
