"""Submit the runs of a sweep to an executor, and submit again those whose process died: their folders are their state.

The executor has processes on this machine (``processes.py``), or the workers of a cluster (``dask_runner.py``).
"""

import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, suppress
from types import FrameType
from typing import Any

from rich.console import Console

from r2mae.domains.base import Domain
from r2mae.errors import UserError
from r2mae.sweep.progress_display import ProgressDisplay
from r2mae.sweep.run_process import DiedError, Outcome, Request
from r2mae.sweep.runs import SweepRun

RESUBMISSIONS = 3  # times that a run is submitted again without a further step, before it has failed
_POLL = 0.2
_SHOW = 0.4  # seconds between two updates of the display

Progress = Callable[[int, int, int], None]
"""Receives a run's place in the sweep, and how many of its steps are done and planned."""

Submit = Callable[[Request], "Future[Outcome]"]

Executor = Callable[[Progress], AbstractContextManager[tuple[Submit, tuple[type[Exception], ...]]]]
"""Opens an executor: gives its `submit`, and the errors of runs that were lost with their process or worker.

When the block is left, runs that are not finished save their step and end.
"""


class FailedRunsError(UserError):
    """Some runs failed; the others are finished."""


def request_of(run: SweepRun, index: int, domain: Domain, **more: Any) -> Request:
    """Return the request to compute a run; `more` are further fields of :class:`Request`."""
    baseline = run.variant.label if run.variant.baseline else None
    return Request(index, domain.name, run.config.to_dict(), str(run.folder.absolute()), baseline, **more)


def compute_all(
    waiting: Sequence[SweepRun], requests: Sequence[Request], display: ProgressDisplay, executor: Executor
) -> None:
    """Compute all runs, and report each that ends to the display. If some fail, the others are computed first.

    Raises
    ------
    UserError
        If a run failed, or no run can be computed any more. Finished runs are kept.
    KeyboardInterrupt, SystemExit
        After Ctrl-C or SIGTERM, once the runs have saved their steps.
    """
    failed = _Dispatch(waiting, requests, display).run(executor)
    if failed:
        run, first = failed[0]
        if not isinstance(first, UserError):
            raise first
        more = f" ({len(failed) - 1} more failed)" if len(failed) > 1 else ""
        raise FailedRunsError(f"{run.variant.label}, seed {run.seed}: {first}{more}; the other runs are kept")


def say(console: Console, line: str) -> None:
    """Print a line as it is."""
    console.print(line, soft_wrap=True, markup=False, highlight=False)


class _Dispatch:
    """Runs on their way through an executor."""

    def __init__(self, waiting: Sequence[SweepRun], requests: Sequence[Request], display: ProgressDisplay) -> None:
        self.waiting, self.requests, self.display = waiting, requests, display
        self.steps = [(0, 0)] * len(waiting)  # done and planned, of each run
        self.lost_at = [-1] * len(waiting)  # the last step of a run that was lost
        self.tries = [0] * len(waiting)  # resubmissions at this step
        self.failed: list[tuple[SweepRun, Exception]] = []
        self.ended: queue.SimpleQueue[tuple[int, Future[Outcome]]] = queue.SimpleQueue()

    def run(self, executor: Executor) -> list[tuple[SweepRun, Exception]]:
        """Compute all runs; return those that failed."""
        with one_signal() as check_signal, executor(self._progress) as (submit, lost):
            for index in range(len(self.waiting)):
                self._submit(index, submit)
            left, shown = len(self.waiting), 0.0
            while left:
                check_signal()
                with suppress(queue.Empty):
                    left -= self._take(*self.ended.get(timeout=_POLL), submit, lost)
                if time.monotonic() - shown > _SHOW or not left:
                    shown = time.monotonic()
                    self.display.update(self.steps)
        return self.failed

    def _progress(self, index: int, done: int, planned: int) -> None:
        self.steps[index] = (done, planned)

    def _submit(self, index: int, submit: Submit) -> None:
        submit(self.requests[index]).add_done_callback(lambda future: self.ended.put((index, future)))

    def _take(self, index: int, future: "Future[Outcome]", submit: Submit, lost: tuple[type[Exception], ...]) -> bool:
        """Take an outcome, and return whether the run has ended; a lost one is submitted again."""
        run = self.waiting[index]
        try:
            seconds, scores = future.result()
        except lost as death:
            what = str(death) if isinstance(death, DiedError) else "its worker was lost"
            if self._is_worth_another_try(index):
                line = f"{run.variant.label}, seed {run.seed}: {what}; it resumes from its checkpoint"
                say(self.display.console, line)
                self._submit(index, submit)
                return False
            self._fail(run, UserError(f"{what}, and {RESUBMISSIONS} more tries got no further"))
        except Exception as error:  # of this run; it costs no other
            self._fail(run, error)
        else:
            planned = self.steps[index][1]
            self.steps[index] = (planned, planned)
            self.display.finished(run, seconds, scores)
        return True

    def _is_worth_another_try(self, index: int) -> bool:
        done = self.steps[index][0]
        self.tries[index] = 1 if done > self.lost_at[index] else self.tries[index] + 1
        self.lost_at[index] = max(done, self.lost_at[index])
        return self.tries[index] <= RESUBMISSIONS

    def _fail(self, run: SweepRun, error: Exception) -> None:
        self.failed.append((run, error))
        self.display.failed(run, error)


@contextmanager
def one_signal() -> Iterator[Callable[[], None]]:
    """React to the first Ctrl-C or SIGTERM only: a second one must not interrupt the code that ends the processes.

    Yields
    ------
    callable
        Raises the interrupt again, which is lost if it meets code that cannot raise, such as a callback of the garbage
        collector.
    """
    received: list[int] = []
    before: dict[int, Any] = {}

    def check() -> None:
        if received:
            raise KeyboardInterrupt if received[0] == signal.SIGINT else SystemExit(128 + received[0])

    def receive(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if len(received) == 1:
            check()

    if threading.current_thread() is threading.main_thread():
        for number, default in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
            if signal.getsignal(number) == default:
                before[number] = signal.signal(number, receive)
    try:
        yield check
    finally:
        for changed, handler in before.items():
            signal.signal(changed, handler)
