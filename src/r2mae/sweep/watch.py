"""Watch the runs of a comparison: report those without progress, and decide how long to wait for one to end."""

import time
from collections.abc import Callable, Iterable, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path

from rich.console import Console

from r2mae.files import UNFINISHED
from r2mae.sweep.runs import SweepRun
from r2mae.training.folder import RunFolder

# Seconds without progress (a step, the end of loading or of measuring) before a line reports it. The time doubles with
# every line.
_SILENT = 600.0
_SHORT, _LONG = 20.0, 600.0  # limits, in seconds, of how long a process may take to end
_STEPS = 3.0  # between these limits it may take as long as so many of its longest steps so far
_POLL = 0.1


class Watch:
    """Remembers when each run last made progress.

    Parameters
    ----------
    waiting : sequence of SweepRun
        The runs, in the order in which :meth:`look` is given their states.
    clock : callable
        Returns the time in seconds.
    processor : callable
        Returns the processor time, in seconds, that a process has used; None where that is not known.
    place : callable
        Returns where the process of a run is, given the run's place in `waiting`: " on host-a", for example.
    """

    def __init__(
        self,
        waiting: Sequence[SweepRun],
        *,
        clock: Callable[[], float] = time.monotonic,
        processor: "Callable[[int], float | None] | None" = None,
        place: "Callable[[int], str] | None" = None,
    ) -> None:
        self.waiting, self.clock = list(waiting), clock
        self._place = place or (lambda index: "")
        self._index = {run.folder: index for index, run in enumerate(self.waiting)}
        self._processor = processor or processor_seconds
        self._heard: dict[int, tuple[tuple[int, ...], float]] = {}
        self._longest: dict[int, float] = {}  # between two reports of a run
        self._told: dict[int, float] = {}
        self._used: dict[int, float | None] = {}
        self._ended: set[int] = set()

    def look(self, states: Sequence[tuple[int, ...]]) -> list[str]:
        """Return a line for each run that has made no progress for long.

        Parameters
        ----------
        states : sequence of (int, int, int)
            Of every run: steps done, steps planned, and the id of its process (0 before it has one).
        """
        lines, now = [], self.clock()
        for index, state in enumerate(states):
            if not state[2] or index in self._ended:
                continue
            before = self._heard.get(index)
            if before is None or before[0] != state:
                if before is not None and state[0] > before[0][0] > 0:
                    self._longest[index] = max(self._longest.get(index, 0.0), now - before[1])
                self._heard[index], self._told[index] = (state, now), _SILENT
                self._used[index] = self._processor(state[2])
            elif now - before[1] >= self._told[index]:
                lines.append(self._line(index, state, now - before[1]))
                self._told[index] = 2 * self._told[index]
                self._used[index] = self._processor(state[2])
        return lines

    def ended(self, run: SweepRun) -> None:
        """Stop watching a run that has ended."""
        self._ended.add(self._index[run.folder])

    def patience(self, process: int) -> tuple[float, Path | None]:
        """Return the seconds that a process may take to end its step, and the folder of its run."""
        for index, (state, _) in self._heard.items():
            if index not in self._ended and state[2] == process:
                steps = _STEPS * self._longest.get(index, 0.0)
                return min(_LONG, max(_SHORT, steps)), self.waiting[index].folder
        return _SHORT, None

    def _line(self, index: int, state: tuple[int, ...], seconds: float) -> str:
        run, (done, planned, process) = self.waiting[index], state
        measuring = planned > 0 or run.variant.baseline
        doing = f"at step {done:,} of {planned:,}" if done < planned else "measuring" if measuring else "loading"
        used, before = self._processor(process), self._used[index]
        idle = used is not None and before is not None and used - before < 0.01 * seconds
        works = ", and does nothing" if idle else ""
        who = f"process {process}{self._place(index)}{works}"
        return (
            f"{run.variant.label}, seed {run.seed}: no sign for {seconds / 60:.0f} min ({doing}; {who}); "
            "Ctrl-C ends the comparison; rerun the same command to resume"
        )


def end(processes: Iterable[BaseProcess], watch: Watch, console: Console) -> set[int]:
    """Wait for processes that were asked to end, kill those that take too long, and return the numbers of these.

    A process may take a few of its steps, and longer while it is saving a checkpoint.
    """
    began, killed = watch.clock(), set()
    left = {process: watch.patience(process.pid or 0) for process in processes}
    saved: dict[BaseProcess, int] = {}
    extended = dict.fromkeys(left, began)
    while left:
        for process, (patience, folder) in list(left.items()):
            process.join(0)
            now = watch.clock()
            if process.exitcode is not None:
                del left[process]
            elif folder is not None and (size := _saving(folder)) != saved.get(process, 0):
                saved[process], extended[process] = size, now
            elif now - extended[process] > patience or now - began > _LONG:
                console.print(
                    f"process {process.pid} did not end within {now - began:.0f} s and is killed; its last checkpoint "
                    "is kept",
                    soft_wrap=True,
                    markup=False,
                    highlight=False,
                )
                process.kill()
                process.join()
                killed.add(process.pid or 0)
                del left[process]
        if left:
            time.sleep(_POLL)
    return killed


def _saving(folder: Path) -> int:
    """Return the size of the checkpoint that is being written, in bytes; while it grows, the process is saving."""
    size = 0
    for file in RunFolder(folder).checkpoint.parent.glob(f".*{UNFINISHED}"):
        try:
            size += file.stat().st_size
        except OSError:  # just renamed: it is complete
            continue
    return size


def processor_seconds(process: int) -> float | None:
    """Return the processor time that a process has used, on Linux; None elsewhere, or when it has ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100.0
    except (OSError, ValueError, IndexError):
        return None
