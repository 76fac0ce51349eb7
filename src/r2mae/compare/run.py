"""Run the runs of a sweep: each in a process of its own, here or on the workers of a cluster.

An executor takes one request a run. Here its threads wait for processes; on a cluster (``dask_runner.py``) the tasks of
the workers do. A run has a process of its own: there it has a main thread and a fixed number of threads, its numbers do
not depend on the runs next to it, and its death costs no other run. The folder of a run is its state, so a run whose
process died is submitted again, and resumes from its checkpoint.
"""

import math
import multiprocessing
import os
import pickle
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from r2mae.cores import cores
from r2mae.errors import UserError
from r2mae.registry import DOMAINS, JOBS
from r2mae.spawned import UNGUARDED, UnguardedError

if TYPE_CHECKING:  # what follows brings torch, which a server of processes loads at the same time as this process
    from r2mae.compare.progress_display import ProgressDisplay
    from r2mae.compare.runs import SweepRun
    from r2mae.domains.base import Domain
    from r2mae.progress import RunProgress

RESUBMISSIONS = 3  # times that a run is submitted again without a further step, before it has failed
PATIENCE = 60.0  # seconds that a process may take to save its step
_POLL = 0.2
_SHOW = 0.4  # seconds between two updates of the display
_LOCK = 600.0  # seconds to wait for the lock of a process that was lost; that of a lost machine lasts minutes

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""Variables of the environment, read when a library is loaded: the processes of a sweep have one thread each."""

_LIBRARIES = ("torch._dynamo", "r2mae.compare.measure", "r2mae.evaluation.probes")  # an optimiser loads the first
_OF_DOMAIN = ("domain", "batches", "task", "evaluate", "baselines")  # modules of a domain, where it has them
_ALONE = {"JE_ARROW_MALLOC_CONF": "background_thread:false"}  # else pyarrow's memory has a thread of its own
_ACCELERATORS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")  # drivers of NVIDIA and AMD, and of either under Windows
_STARTING = threading.Lock()  # held by a thread that changes the environment to start a process

Outcome = tuple[float, dict[str, float]]
"""Seconds and scores of a run."""

Progress = Callable[[int, int, int], None]
"""Receives a run's place in the sweep, and how many of its steps are done and planned."""


@dataclass(frozen=True)
class Request:
    """What a process needs to know to compute a run.

    Parameters
    ----------
    index : int
        Place of the run in its sweep.
    domain, fields, folder, baseline
        See :func:`r2mae.compare.measure.train_run`.
    fingerprint : str, optional
        Of the data; a machine that has others refuses the run.
    cwd : str
        The folder to which relative paths refer.
    environment : mapping
        Environment variables of the process.
    """

    index: int
    domain: str
    fields: dict[str, Any]
    folder: str
    baseline: str | None = None
    fingerprint: str | None = None
    cwd: str = field(default_factory=os.getcwd)
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))


Submit = Callable[[Request], "Future[Outcome]"]

Executor = Callable[[Progress], AbstractContextManager[tuple[Submit, tuple[type[Exception], ...]]]]
"""Opens an executor: gives its `submit`, and the errors of runs that were lost with their process or worker.

When the block is left, runs that are not finished save their step and end.
"""


class DiedError(UserError):
    """The process of a run ended before the run did."""


class FailedRunsError(UserError):
    """Some runs failed; the others are finished."""


@dataclass(frozen=True)
class Processes:
    """Computes runs in processes of this machine.

    Parameters
    ----------
    jobs : int, optional
        How many at a time; by default one per core, and one where an accelerator does the work.
    device : str
        Of the runs.
    """

    jobs: int | None = None
    device: str = "cpu"

    def __post_init__(self) -> None:
        if self.jobs is not None and self.jobs < 1:
            raise UserError(f"jobs must be 1 or more, not {self.jobs}")

    def run(self, waiting: "Sequence[SweepRun]", domain: "Domain", display: "ProgressDisplay") -> None:
        """Compute all runs (:func:`compute_all`)."""
        jobs = self.at_once(len(waiting))
        environment = {**os.environ, JOBS: str(jobs)}
        requests = [request_of(run, index, domain, environment=environment) for index, run in enumerate(waiting)]
        compute_all(waiting, requests, display, partial(_threads, jobs))

    def at_once(self, runs: int) -> int:
        """Return how many of so many runs run at the same time."""
        if self.jobs is not None:
            return min(self.jobs, runs)
        import torch

        accelerated = self.device not in ("auto", "cpu") or (self.device == "auto" and torch.cuda.is_available())
        return min(1 if accelerated else cores(), runs)


@contextmanager
def _threads(jobs: int, progress: Progress) -> Iterator[tuple[Submit, tuple[type[Exception], ...]]]:
    """Give an executor of threads, each of which waits for a process."""
    threads, stopping = ThreadPoolExecutor(jobs), threading.Event()
    try:
        yield (
            lambda request: threads.submit(compute, request, partial(progress, request.index), stopping.is_set),
            (DiedError,),
        )
    finally:
        stopping.set()
        threads.shutdown(cancel_futures=True)


def request_of(run: "SweepRun", index: int, domain: "Domain", **more: Any) -> Request:
    """Return the request to compute a run; `more` are further fields of :class:`Request`."""
    baseline = run.variant.label if run.variant.baseline else None
    return Request(index, domain.name, run.config.to_dict(), str(run.folder.absolute()), baseline, **more)


def compute_all(
    waiting: "Sequence[SweepRun]", requests: Sequence[Request], display: "ProgressDisplay", executor: Executor
) -> None:
    """Compute all runs, and report each that ends to the display. If some fail, the others are computed first.

    Raises
    ------
    UserError
        If a run failed, or no run can be computed any more. Finished runs are kept.
    KeyboardInterrupt, SystemExit
        After Ctrl-C or SIGTERM, once the runs have saved their steps.
    """
    steps = [(0, 0)] * len(waiting)  # done and planned, of each run
    tries = [(-1, 0)] * len(waiting)  # the last step of a run that was lost, and its resubmissions at this step
    failed: list[tuple[SweepRun, Exception]] = []
    ended: queue.SimpleQueue[tuple[int, Future[Outcome]]] = queue.SimpleQueue()

    def progress(index: int, done: int, planned: int) -> None:
        steps[index] = (done, planned)

    with one_signal() as check_signal, executor(progress) as (submit, lost):

        def start(index: int) -> None:
            submit(requests[index]).add_done_callback(lambda future: ended.put((index, future)))

        def take(index: int, future: "Future[Outcome]") -> bool:
            """Take an outcome, and return whether the run has ended; a lost one is submitted again."""
            run = waiting[index]
            try:
                seconds, scores = future.result()
            except lost as death:
                what = str(death) if isinstance(death, DiedError) else "its worker was lost"
                done, (last, count) = steps[index][0], tries[index]
                tries[index] = (max(done, last), 1 if done > last else count + 1)
                if tries[index][1] <= RESUBMISSIONS:
                    display.say(f"{display.name_of(run)}: {what}; it resumes from its checkpoint")
                    start(index)
                    return False
                failed.append((run, UserError(f"{what}, and {RESUBMISSIONS} more tries got no further")))
            except UnguardedError:
                raise
            except Exception as error:  # of this run; it costs no other
                failed.append((run, error))
            else:
                steps[index] = (steps[index][1],) * 2
                display.finished(run, seconds, scores)
                return True
            display.failed(*failed[-1])
            return True

        for index in range(len(waiting)):
            start(index)
        left, shown = len(waiting), 0.0
        while left:
            check_signal()
            with suppress(queue.Empty):
                left -= take(*ended.get(timeout=_POLL))
            if time.monotonic() - shown > _SHOW or not left:
                shown = time.monotonic()
                display.update(steps)
    if failed:
        run, first = failed[0]
        if not isinstance(first, UserError):
            raise first
        more = f" ({len(failed) - 1} more failed)" if len(failed) > 1 else ""
        raise FailedRunsError(f"{run.variant.label}, seed {run.seed}: {first}{more}; the other runs are kept")


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


def compute(request: Request, report: Callable[[int, int], None], cancelled: Callable[[], bool]) -> Outcome:
    """Compute a run in a process of its own; once it is `cancelled`, let it save its step and end.

    One pipe connects the process with this thread: progress and the outcome come up. If its upper end closes, for which
    the death of this process is enough, the process saves its step and ends.

    Raises
    ------
    DiedError
        If the process ended before its run, asked to or not.
    """
    context = start_server(request.domain)
    pipe, below = context.Pipe()
    process = context.Process(target=_serve, args=(request, below), daemon=True)
    with _STARTING, with_variables(_unset(ONE_THREAD)):
        process.start()
    below.close()
    asked = math.inf
    try:
        while True:
            if asked == math.inf and cancelled():
                asked = time.monotonic()
                with suppress(OSError):  # it has ended, as the next message tells
                    pipe.send("end")
            elif time.monotonic() - asked > PATIENCE:
                process.kill()
            match _message(pipe, process):
                case ("steps", done, planned):
                    report(done, planned)
                case ("done", outcome):
                    process.join(PATIENCE)
                    return outcome  # type: ignore[no-any-return]
                case ("failed", error):
                    process.join(PATIENCE)
                    raise error
                case ("died",):
                    process.join()
                    if process.exitcode == UNGUARDED:
                        raise UnguardedError
                    raise DiedError(f"its process {_ending(process.exitcode)}")
    finally:
        pipe.close()  # if `report` failed, the process now saves its step and ends
        process.join(PATIENCE)
        process.kill()


def _message(pipe: Connection, process: Any) -> tuple[Any, ...]:
    """Return the next message, an empty one if none comes soon, or ("died",)."""
    alive = process.is_alive()  # before the pipe is read: it may say something and end
    with suppress(EOFError, OSError):
        if pipe.poll(_POLL if alive else 0):
            message: tuple[Any, ...] = pipe.recv()
            return message
        return () if alive else ("died",)
    return ("died",)


def _ending(code: int | None) -> str:
    """Return in words how a process ended, given its exit code."""
    if code is None or code >= 0:
        return f"ended with exit code {code}"
    memory = " (out of memory?)" if -code == signal.SIGKILL else ""
    return f"was killed by {signal.Signals(-code).name}{memory}"


def _serve(request: Request, pipe: Connection) -> None:
    """Be the process of a run."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the business of the parent, which asks once
    import torch

    multiprocessing.current_process().daemon = False  # it may have processes that load data
    torch.set_num_threads(1)
    threading.Thread(target=_await_end, args=(pipe,), daemon=True).start()
    os.environ.clear()  # a server that forks has the environment of the time when it was started
    os.environ.update({**ONE_THREAD, **request.environment})
    answer = _answer(request, pipe)
    with suppress(OSError):  # the parent has ended
        pipe.send(answer)


def _await_end(pipe: Connection) -> None:
    """End this process when its parent asks or ends; if a run trains, let it save its step first.

    A run that a signal has asked to end is not asked again: that would mean at once.
    """
    from r2mae.training.interrupt import StopRequest

    with suppress(EOFError, OSError):
        pipe.recv()
    handler = signal.getsignal(signal.SIGTERM)
    training = getattr(handler, "__self__", None)
    if callable(handler) and isinstance(training, StopRequest):
        if training.number is None:
            handler(signal.SIGTERM, None)
        time.sleep(PATIENCE)  # the main thread ends the process
    os._exit(1)


def _answer(request: Request, pipe: Connection) -> tuple[Any, ...]:
    """Compute a run, and return the message that tells its outcome."""
    try:
        return ("done", _computed(request, pipe))
    except SystemExit:  # stopped by a signal, and saved
        os._exit(1)
    except Exception as error:
        error.add_note(traceback.format_exc())
        with suppress(Exception):
            pickle.loads(pickle.dumps(error))
            return ("failed", error)
        return ("failed", RuntimeError(traceback.format_exc()))


def _computed(request: Request, pipe: Connection) -> Outcome:
    from r2mae.compare import measure
    from r2mae.domains.lookup import get_domain
    from r2mae.training.folder import FolderLock, InUseError, RunFolder

    began = time.perf_counter()
    if Path(request.cwd).is_dir():
        os.chdir(request.cwd)
    if request.fingerprint is not None:
        domain = get_domain(request.domain)
        config = domain.config.from_dict(request.fields)
        if domain.fingerprint(config) != request.fingerprint:
            raise UserError(
                f"{config.data.source} is not the same there: give all machines the same data (files over 1 GiB with "
                "the same modification time, as rsync -t keeps it)"
            )
    folder = RunFolder(Path(request.folder))
    while time.perf_counter() - began < _LOCK:
        with suppress(InUseError), FolderLock(folder.path):
            break
        time.sleep(_POLL)  # until the lock of a lost worker ends
    measure.train_run(request.domain, request.fields, folder.path, request.baseline, _PipeReporter(pipe))
    return time.perf_counter() - began, measure.scores_of(folder)


class _PipeReporter:
    """Tells the parent how far a run is, at most a few times a second."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe, self._last = pipe, 0.0

    def start(self, step: int, total: int) -> None:
        """Tell where the run is."""
        with suppress(OSError):  # the parent has ended; the step is saved nevertheless
            self._pipe.send(("steps", step, total))

    def update(self, pace: "RunProgress") -> None:
        """Tell where the run is."""
        now = time.monotonic()
        if now - self._last > _POLL or pace.step == pace.total:
            self._last = now
            self.start(pace.step, pace.total)

    def stop(self) -> None:
        """Do nothing."""


def start_server(domain: str) -> Any:
    """Return the context of ``multiprocessing`` that starts processes, and start its server if it has one.

    A process that is spawned loads torch for itself, which takes seconds of a processor each time. A server
    (``multiprocessing``'s forkserver) loads the libraries once, does nothing else and has one thread. Imports touch no
    accelerator; where there is one, processes are spawned nevertheless, since its driver cannot be forked. Called
    before this process loads the libraries itself, both load at the same time.
    """
    if sys.platform == "linux" and not any(Path(device).exists() for device in _ACCELERATORS):
        context = multiprocessing.get_context("forkserver")
        package = DOMAINS[domain].partition(":")[0].rpartition(".")[0]
        context.set_forkserver_preload([*_LIBRARIES, *(f"{package}.{name}" for name in _OF_DOMAIN)])
        with _STARTING, with_variables(_unset({**ONE_THREAD, **_ALONE})):
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # inherited: Ctrl-C is this process's business
            try:
                forkserver.ensure_running()
            except OSError:  # its socket is in the folder for temporary files, whose path may be too long for one
                pass
            else:
                return context
            finally:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    return multiprocessing.get_context("spawn")


@contextmanager
def with_variables(values: Mapping[str, str]) -> Iterator[None]:
    """Within the block, this process and those that it starts have these variables of the environment."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _unset(values: Mapping[str, str]) -> dict[str, str]:
    """Return those variables of the environment that the user has not set."""
    return {name: value for name, value in values.items() if name not in os.environ}
