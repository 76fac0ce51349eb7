"""Run runs on the workers of a Dask cluster. Each run's folder, on a disk that all machines share, is its state.

The command hands every worker as many runs as it has room for, and the next when one ends. So a run is at one worker
at a time, workers may come late, and one that is lost, or that fails the checks, costs its own runs a moment only.
"""

import os
import queue
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from r2mae.domains.contract import Domain
from r2mae.errors import UserError
from r2mae.sweep.cluster import connected, say
from r2mae.sweep.cluster_options import ENGINES, ClusterOptions
from r2mae.sweep.dask_worker import TOPIC, busy, close, work
from r2mae.sweep.dask_workers import Workers, ask
from r2mae.sweep.processes import Processes, check_interrupt, one_interrupt, raise_first
from r2mae.sweep.progress_display import ProgressDisplay
from r2mae.sweep.run_process import MEETING, TOKEN
from r2mae.sweep.runner import Runner, configs_by_data, finished
from r2mae.sweep.runs import SweepRun
from r2mae.sweep.watch import Watch
from r2mae.training.config import RunConfig
from r2mae.training.folder import FolderLock, RunFolder
from r2mae.training.initial import INIT

_POLL = 0.2
_SHOW = 0.4  # seconds between two updates of the display
_TRIES = 3  # so many workers or processes may end under a run, without a step more, before the run is to blame
_END = 90.0  # seconds that runs may take to save their step and end
_CLOSED = 1.0  # seconds until a lost connection is known as such
_SEEN = 90.0  # seconds until results that a worker wrote must be seen here
_VARIABLES = ("R2MAE_DATA",)  # of the environment, given to workers that have none

Work = Callable[[Mapping[str, Any]], dict[str, Any]]


@dataclass(frozen=True)
class DaskRunner:
    """Runs runs on a Dask cluster (a :class:`r2mae.sweep.runner.Runner`).

    Parameters
    ----------
    cluster : ClusterOptions
        Where.
    folder : Path
        Of the sweep; its runs lie below it.
    work : callable
        The body of a task (:func:`r2mae.sweep.dask_worker.work`); another one for simulated runs.
    settled : callable
        Returns whether this machine sees that a run is finished.
    """

    cluster: ClusterOptions
    folder: Path
    work: Work = work
    settled: Callable[[SweepRun], bool] = finished

    def run(self, waiting: Sequence[SweepRun], domain: Domain, display: ProgressDisplay) -> None:
        """Run all runs; if some fail, the error of the first is raised after the others have run.

        Raises
        ------
        UserError
            If a run failed, no worker is fit for the sweep, or the scheduler went away. Finished runs are kept.
        """
        with (
            one_interrupt(),
            _meeting(self.folder) as token,
            connected(self.cluster, display.console) as client,
        ):
            sweep = _Sweep(self, client, waiting, domain, display, token)
            try:
                sweep.run()
            except BaseException:
                sweep.cancel()
                raise
            finally:
                sweep.leave()
        raise_first(sweep.failed)
        _await_results(sweep.finished, self.settled)


def runner_of(cluster: ClusterOptions | None, jobs: int | None, device: str, folder: Path) -> Runner:
    """Return what computes the runs of the sweep in `folder`: a cluster, or processes of this machine."""
    return Processes(jobs, device) if cluster is None else DaskRunner(cluster, folder)


@dataclass
class _Task:
    """A run at a worker."""

    index: int
    worker: str
    future: Any


@dataclass
class _Sweep:
    """The state of a sweep on a cluster, on the side of the command."""

    runner: DaskRunner
    client: Any
    waiting: Sequence[SweepRun]
    domain: Domain
    display: ProgressDisplay
    token: str
    failed: list[tuple[SweepRun, Exception]] = field(default_factory=list)
    finished: list[SweepRun] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.name = secrets.token_hex(6)
        self.queue = deque(range(len(self.waiting)))
        self.tasks: dict[int, _Task] = {}
        self.tries = [0] * len(self.waiting)
        self.reached = [-1] * len(self.waiting)  # the step at which a try ended
        self.tasks_begun = 0
        self.left = len(self.waiting)
        self.states: list[tuple[int, int, int]] = [(0, 0, 0)] * len(self.waiting)
        self.steps: list[tuple[int, int]] = [(0, 0)] * len(self.waiting)
        self.ended: queue.SimpleQueue[_Task] = queue.SimpleQueue()
        self.notes: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.watch = Watch(self.waiting, processor=lambda process: None, place=self._place)
        self.shown = 0.0
        self.common = {
            "cwd": str(Path.cwd()),
            "domain": self.domain.name,
            "topic": TOPIC + self.name,
            "environment": {name: os.environ[name] for name in _VARIABLES if name in os.environ},
        }
        check = {
            **self.common,
            "do": "check",
            "index": -1,
            "folder": str(self.runner.folder.absolute()),
            "token": self.token,
            "reads": [
                {"fields": config.to_dict(), "fingerprint": self.domain.fingerprint(config)}
                for config in map(self._without_init, configs_by_data(self.waiting).values())
            ],
        }
        started = self.runner.cluster.where in ENGINES
        self.workers = Workers(
            self.client,
            check,
            self.runner.work,
            self.runner.cluster.memory,
            lambda line: say(self.display.console, line),
            patient=started,
        )
        self.client.subscribe_topic(TOPIC + self.name, self._hear)

    def _without_init(self, config: RunConfig) -> RunConfig:
        """Leave out the weights to begin with, which are not needed any more, if all runs have weights of their own."""
        for run in self.waiting:
            folder = RunFolder(run.folder)
            if not (run.variant.baseline or folder.trained or folder.checkpoint.exists()):
                return config
        nothing: dict[str, Any] = {INIT: None}
        return replace(config, **nothing) if hasattr(config, INIT) else config

    def run(self) -> None:
        """Hand out runs until all have ended."""
        try:
            while self.left:
                check_interrupt()
                for address in self.workers.look():
                    self._lose([task for task in self.tasks.values() if task.worker == address])
                self._hand_out()
                self._collect()
                self._show()
        except Exception:  # of Dask, in its own words, where a call met the end of the scheduler
            time.sleep(_CLOSED)
            self.workers.check_scheduler()
            raise

    def _hand_out(self) -> None:
        while self.queue and (address := self.workers.free()) is not None:
            index = self.queue.popleft()
            run = self.waiting[index]
            request = {
                **self.common,
                "do": "run",
                "index": index,
                "fields": run.config.to_dict(),
                "run": str(run.folder.absolute()),
                "baseline": run.variant.label if run.variant.baseline else None,
            }
            future = self.client.submit(
                self.runner.work,
                request,
                key=f"{TOPIC}{self.name}-{index}-{self.tasks_begun}",
                workers=[address],
                allow_other_workers=False,
                resources=self.workers.resources(address),
                pure=False,
            )
            self.tasks_begun += 1
            task = _Task(index, address, future)
            self.tasks[index] = task
            self.workers.take(address)
            future.add_done_callback(lambda _, task=task: self.ended.put(task))

    def _collect(self) -> None:
        """Take what has ended: wait a moment for the first, and take the others that are there."""
        wait: float | None = _POLL
        while True:
            try:
                task = self.ended.get(timeout=wait) if wait else self.ended.get_nowait()
            except queue.Empty:
                return
            wait = None
            if self.tasks.get(task.index) is task:  # otherwise it was given up before
                self._take(task)

    def _take(self, task: _Task) -> None:
        self.workers.check_scheduler()
        run, outcome = self.waiting[task.index], _outcome(task.future)
        if outcome["state"] in ("stopped", "died", "lost", "full"):
            self._lose([task], outcome)
            return
        self._forget(task)
        self.left -= 1
        self.watch.ended(run)
        if outcome["state"] == "finished":
            planned = self.steps[task.index][1]
            self.steps[task.index] = (planned, planned)
            self.finished.append(run)
            self.display.finished(run, outcome["seconds"], outcome["scores"])
        else:
            told, where = outcome["told"], self.workers.name(task.worker)
            self._fail(run, UserError(f"{told} (on {where})") if outcome["state"] == "failed" else RuntimeError(told))

    def _lose(self, tasks: Sequence[_Task], outcome: Mapping[str, Any] | None = None) -> None:
        """Put runs whose worker or process has ended in front of the others; they go on from their checkpoints."""
        for task in tasks:
            self._forget(task)
            if outcome is not None and outcome["state"] != "died":
                self.workers.drop(task.worker)
            with suppress(Exception):
                task.future.cancel()
            run, where = self.waiting[task.index], self.workers.name(task.worker)
            what = _what_happened(outcome, where)
            if self.steps[task.index][0] > self.reached[task.index]:
                self.tries[task.index], self.reached[task.index] = 0, self.steps[task.index][0]
            self.tries[task.index] += 1
            if self.tries[task.index] < _TRIES:
                self.queue.appendleft(task.index)
                self.states[task.index] = (*self.steps[task.index], 0)
                say(
                    self.display.console,
                    f"{run.variant.label}, seed {run.seed}: {what}; it goes on from its checkpoint",
                )
            else:
                self.left -= 1
                self.watch.ended(run)
                memory = "" if outcome and outcome["state"] == "full" else ": is there too little memory?"
                self._fail(run, UserError(f"{_TRIES} tries got no further, and in the last {what}{memory}"))

    def _forget(self, task: _Task) -> None:
        if self.tasks.pop(task.index, None) is not None:
            self.workers.give(task.worker)

    def _fail(self, run: SweepRun, error: Exception) -> None:
        self.failed.append((run, error))
        self.display.failed(run, error)

    def _hear(self, event: Any) -> None:
        """Note what a worker tells, in the thread of the client."""
        message = event[1]
        index = message["index"]
        if index < 0:
            self.workers.begun(message["worker"])
            return
        done, planned = message.get("steps", self.steps[index])
        self.states[index] = (done, planned, message["process"])
        if planned:  # otherwise it loads; the display keeps what was done before
            self.steps[index] = (done, planned)
        if "note" in message:
            run = self.waiting[index]
            self.notes.put(f"{run.variant.label}, seed {run.seed}: {message['note']}")

    def _show(self) -> None:
        while not self.notes.empty():
            say(self.display.console, self.notes.get())
        now = time.monotonic()
        if now - self.shown >= _SHOW or not self.left:
            self.shown = now
            self.display.update(self.steps)
            for line in self.watch.look(self.states):
                say(self.display.console, line)

    def _place(self, index: int) -> str:
        task = self.tasks.get(index)
        return "" if task is None else f" on {self.workers.name(task.worker)}"

    def cancel(self) -> None:
        """Cancel the runs at the workers, and wait until they have saved their steps."""
        if self.client.status != "running":
            return
        with suppress(Exception):  # whatever fails here, the first error is the one to report
            self.client.cancel([*(task.future for task in self.tasks.values()), *self.workers.checks()])
            until, told = time.monotonic() + _END, False
            while (count := self.busy()) and time.monotonic() < until:
                if not told:
                    say(self.display.console, f"{count} runs on the cluster save their step and end")
                told = True
                time.sleep(_POLL)

    def busy(self) -> int:
        """Return how many processes of the workers still run a run."""
        told = ask(self.client, busy, self.workers.known(), TOPIC + self.name).values()
        return sum(count for count in told if isinstance(count, int))

    def leave(self) -> None:
        """Leave the workers as they were."""
        with suppress(Exception):
            self.client.unsubscribe_topic(TOPIC + self.name)
            if self.client.status == "running" and (known := self.workers.known()):
                ask(self.client, close, known)


def _outcome(future: Any) -> dict[str, Any]:
    """Return what a task returned; "lost" if its worker was, and "broken" for an error outside of the run."""
    from distributed import CancelledError, KilledWorker

    try:
        outcome: dict[str, Any] = future.result(timeout=30)
    except (KilledWorker, CancelledError):
        return {"state": "lost"}
    except Exception as error:
        return {"state": "failed", "told": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
    return outcome


def _what_happened(outcome: Mapping[str, Any] | None, where: str) -> str:
    """Return in words why a run has to be begun again; no outcome is a lost worker."""
    if outcome is not None and outcome["state"] == "full":
        return f"a disk of {where} is full ({outcome['told']})"
    code = (outcome or {}).get("code")
    how = "" if code is None else f" (signal {-code})" if code < 0 else f" (exit code {code})"
    return f"the {'worker' if outcome is None or outcome['state'] == 'lost' else 'process'} on {where} has ended{how}"


@contextmanager
def _meeting(folder: Path) -> Iterator[str]:
    """Make and lock the folder in which workers show that they see the same disk; give the token that is in it."""
    meeting, token = folder / MEETING, secrets.token_hex(16)
    try:
        with FolderLock(meeting):
            try:
                (meeting / TOKEN).write_text(token, encoding="ascii")
                yield token
            finally:
                (meeting / TOKEN).unlink(missing_ok=True)
    finally:
        for left in (*meeting.glob("probe-*"), meeting / ".lock"):
            left.unlink(missing_ok=True)
        with suppress(OSError):
            meeting.rmdir()


def _await_results(runs: Sequence[SweepRun], settled: Callable[[SweepRun], bool]) -> None:
    """Wait until this machine sees what workers have written: a shared disk may remember its folders for a while."""
    until = time.monotonic() + _SEEN
    for run in runs:
        while not settled(run):
            if time.monotonic() > until:
                raise UserError(f"{run.folder} is finished, and not seen here: run the same command again")
            with suppress(OSError):
                list(run.folder.iterdir())
            time.sleep(_POLL)
