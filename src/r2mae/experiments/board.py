"""The one display of a comparison's progress."""

from collections.abc import Sequence
from types import TracebackType

from rich.console import Console
from rich.progress import Progress, TaskID, TextColumn

from r2mae.evaluation.metrics import Metric
from r2mae.experiments.plan import Cell
from r2mae.training.progress import time_columns

_MEASURING = 0.15  # share of a cell's work


class Board:
    """A bar for the whole comparison with a time to finish, and one for each cell that runs.

    In a file or pipe there are no bars, only the line that each finished cell leaves.

    Parameters
    ----------
    cells, waiting : sequence of Cell
        All of them, and those still to run.
    console : Console
        Where to show it.
    metric : Metric
        What a finished cell's line tells.
    """

    def __init__(self, cells: Sequence[Cell], waiting: Sequence[Cell], console: Console, metric: Metric) -> None:
        self.cells, self.waiting, self.console, self.metric = cells, list(waiting), console, metric
        self._done = len(cells) - len(waiting)
        self._progress = Progress(
            *time_columns(counted=False),
            TextColumn("{task.fields[note]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._bars: dict[int, TaskID] = {}
        self._ended: set[int] = set()

    def __enter__(self) -> "Board":
        """Open the display."""
        if self._done:
            self.console.print(f"{self._done} of {len(self.cells)} cells are finished already", soft_wrap=True)
        self._progress.start()
        self._all = self._progress.add_task("all cells", total=None, note=self._note(), visible=bool(self.waiting))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the display."""
        self._progress.stop()

    def update(self, steps: Sequence[tuple[int, int]]) -> None:
        """Show steps done and planned of every waiting cell (0 planned: not begun)."""
        known = [planned for _, planned in steps if planned]
        if not known:
            return
        # Cells that have not begun are taken to be as long as those that have; measuring counts as some steps more.
        total = (1 + _MEASURING) * len(steps) * sum(known) / len(known)
        measured = sum(_MEASURING * steps[place][1] for place in self._ended)
        done_all = sum(done for done, _ in steps) + measured
        self._progress.update(self._all, completed=done_all, total=total, note=self._note())
        for place, (done, planned) in enumerate(steps):
            if not planned:
                continue
            if place not in self._bars:
                cell = self.waiting[place]
                name = f"  {cell.row.label}, seed {cell.seed}"
                self._bars[place] = self._progress.add_task(name, total=planned, note="")
            note = "" if done < planned else "measuring"
            self._progress.update(self._bars[place], completed=done, visible=place not in self._ended, note=note)

    def finished(self, cell: Cell, seconds: float, scores: dict[str, float]) -> None:
        """Leave a line about a finished cell."""
        self._done += 1
        self._ended.add(self.waiting.index(cell))
        score = scores.get(self.metric.name)
        told = "" if score is None else f": {self.metric.label} {score:.4f}"
        self.console.print(
            f"[{self._done}/{len(self.cells)}] {cell.row.label}, seed {cell.seed}{told} ({seconds:.0f} s)",
            soft_wrap=True,
            markup=False,
            highlight=False,
        )

    def failed(self, cell: Cell, error: Exception) -> None:
        """Leave a line about a failed cell."""
        self._ended.add(self.waiting.index(cell))
        self.console.print(
            f"failed: {cell.row.label}, seed {cell.seed}: {error}", soft_wrap=True, markup=False, highlight=False
        )

    def _note(self) -> str:
        return f"{self._done} of {len(self.cells)} finished"
