"""Compute the runs of a sweep on the workers of a Dask cluster, whose machines share a disk with this one.

The body of a task hands its run to a process below the worker: a task is a thread of its worker, which hears no
signals, cannot be ended, and shares its process with other tasks.
"""

import multiprocessing
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import r2mae
from r2mae.compare.checks import configs_by_data
from r2mae.compare.cluster_options import ENGINES, ClusterOptions, engine_class
from r2mae.compare.progress_display import ProgressDisplay
from r2mae.compare.run import (
    PATIENCE,
    DiedError,
    Outcome,
    Processes,
    Progress,
    Request,
    Submit,
    compute,
    compute_all,
    request_of,
)
from r2mae.compare.run_states import finished
from r2mae.compare.runs import SweepRun, data_key
from r2mae.domains.base import Domain
from r2mae.errors import UserError, brief
from r2mae.registry import JOBS

_CONNECT = 20.0  # seconds until a scheduler must have answered
_GRACE = 5.0
_JOIN = 600.0  # seconds until a scheduler that runs must have a worker
_CLOSE = 10.0
_POLL = 0.2
_SHOWN = 90.0  # seconds until results that a worker wrote must be seen here
_AWAY = 10.0  # seconds for which a worker that is unfit keeps a run, lest it come back at once
_VARIABLES = ("R2MAE_DATA",)  # of the environment, given to workers that have none
_GONE = (
    "the scheduler of the cluster has gone: start it again, and rerun the same command to resume; finished runs are "
    "kept"
)


def runner_of(cluster: ClusterOptions | None, jobs: int | None, device: str, folder: Path) -> "Processes | DaskRunner":
    """Return what computes the runs of the sweep in `folder`: a cluster, or processes of this machine."""
    return Processes(jobs, device) if cluster is None else DaskRunner(cluster, folder, device)


@dataclass(frozen=True)
class DaskRunner:
    """Computes runs on a Dask cluster.

    Parameters
    ----------
    cluster : ClusterOptions
        Where.
    folder : Path
        Of the sweep; its runs are below it.
    device : str
        Of the runs.
    """

    cluster: ClusterOptions
    folder: Path
    device: str = "auto"

    def run(self, waiting: Sequence[SweepRun], domain: Domain, display: ProgressDisplay) -> None:
        """Compute all runs (:func:`r2mae.compare.run.compute_all`).

        Raises
        ------
        UserError
            If a run failed, no worker is fit for the sweep, or the scheduler went away. Finished runs are kept.
        """
        prints = {read: domain.fingerprint(config) for read, config in configs_by_data(waiting).items()}
        environment = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
        requests = [
            request_of(run, index, domain, environment=environment, fingerprint=prints[data_key(run.config)])
            for index, run in enumerate(waiting)
        ]
        compute_all(waiting, requests, display, partial(self._executor, display.say))
        _await_results(waiting)

    @contextmanager
    def _executor(
        self, say: Callable[[str], None], progress: Progress
    ) -> Iterator[tuple[Submit, tuple[type[Exception], ...]]]:
        """Give the executor of the cluster's client."""
        with connected(self.cluster, say) as client, _shared_file(self.folder) as shared:
            from distributed import KilledWorker  # connected() sets what Dask logs before it is imported

            versions = _versions()
            resources = check_workers(client, shared, versions, self.device)
            client.subscribe_topic(shared.name, lambda event: progress(*event[1]))
            executor = client.get_executor(pure=False, resources=resources)

            def submit(request: Request) -> "Future[Outcome]":
                if client.status != "running":
                    raise UserError(_GONE)
                future: Future[Outcome] = executor.submit(compute_on_worker, request, shared, versions)
                return future

            try:
                yield submit, (DiedError, CancelledError, KilledWorker)
            finally:
                with suppress(Exception):  # the first error is the one to report
                    executor.shutdown(wait=False)  # cancels all tasks, as their workers notice
                    client.unsubscribe_topic(shared.name)
                    until = time.monotonic() + PATIENCE
                    while any(client.run(_processes, on_error="ignore").values()) and time.monotonic() < until:
                        time.sleep(_POLL)


def compute_on_worker(request: Request, shared: Path, versions: Mapping[str, str]) -> Outcome:
    """Compute a run in a process below this worker.

    Parameters
    ----------
    request : Request
        The run.
    shared : Path
        A file in the folder of the sweep. Its name is the topic of the events that tell how far runs are.
    versions : mapping
        Of the libraries on the machine of the command.

    Raises
    ------
    distributed.Reschedule
        If this worker is unfit, such as one that joined late: another may take the run.
    """
    import distributed

    worker: Any = distributed.get_worker()
    key, host = worker.get_current_task(), socket.gethostname()
    if reason := unfit(shared, versions):
        distributed.print(f"r2mae: worker {worker.address} on {host} computes no runs: {reason}", file=sys.stderr)
        time.sleep(_AWAY)
        raise distributed.Reschedule
    multiprocessing.current_process().daemon = False  # as Dask starts its workers; a daemon can have no processes
    environment = {**request.environment, **os.environ, JOBS: str(runs_at_once(worker))}
    try:
        return compute(
            replace(request, environment=environment),
            lambda done, planned: worker.log_event(shared.name, (request.index, done, planned)),
            lambda: _is_cancelled(worker, key),
        )
    except UserError as error:
        raise (DiedError if isinstance(error, DiedError) else UserError)(f"{error} (on {host})") from None


def unfit(shared: Path, versions: Mapping[str, str]) -> str:
    """Return why this machine can compute no runs of a sweep, empty if it can; see :func:`compute_on_worker`."""
    if not shared.exists():
        return f"it does not see {shared.parent}: put --out on a disk that all machines share"
    own = _versions()
    for name, needed in versions.items():
        if own[name] != needed:
            return (
                f"{name} is {own[name]} there and {needed} on the machine of the command: install the same version on "
                "all machines"
            )
    return ""


def _versions() -> dict[str, str]:
    """Return the versions on which the numbers of a run depend."""
    return {"r2mae": r2mae.__version__, "torch": version("torch").split("+")[0]}


def runs_at_once(worker: Any) -> int:
    """Return how many runs this machine does at once, as far as a worker knows: more workers may share its memory."""
    from distributed.system import MEMORY_LIMIT

    threads, limit = worker.state.nthreads, worker.memory_manager.memory_limit
    return max(threads, round(MEMORY_LIMIT / limit) * threads) if limit else int(threads)


def _is_cancelled(worker: Any, key: Any) -> bool:
    """Return whether the worker ends, or the task was cancelled: by its client, or because that has ended."""
    task = worker.state.tasks.get(key)
    running = task is not None and task.state in ("executing", "long-running")
    return not running or worker.status.name not in ("running", "paused")


def _processes() -> int:
    """Return the number of processes below this worker."""
    return len(multiprocessing.active_children())


@contextmanager
def _shared_file(folder: Path) -> Iterator[Path]:
    """Within the block, there is a file by which workers know that they see the folder."""
    file = folder.absolute() / f".r2mae-sweep-{secrets.token_hex(8)}"
    folder.mkdir(parents=True, exist_ok=True)
    file.touch()
    try:
        yield file
    finally:
        file.unlink(missing_ok=True)


def check_workers(client: Any, shared: Path, versions: Mapping[str, str], device: str) -> dict[str, float]:
    """Refuse a cluster that cannot compute the runs; return what each run takes of the resources of its worker.

    Raises a :class:`UserError` if no worker is fit, or none offers what a run takes.
    """
    reasons = client.run(unfit, shared, versions, on_error="return")  # an error where there is no r2mae
    if reasons and all(reasons.values()):
        address, reason = next(iter(reasons.items()))
        raise UserError(f"no worker of the cluster can compute the runs; {address}: {reason}")
    offers = [worker["resources"] for worker in client.scheduler_info()["workers"].values()]
    gpu = device.startswith("cuda") or (device == "auto" and any(offer.get("GPU") for offer in offers))
    if gpu and not any(offer.get("GPU", 0) >= 1 for offer in offers):
        raise UserError("no worker of the cluster offers GPU=1: start workers with --resources GPU=1")
    return {"GPU": 1.0} if gpu else {}


@contextmanager
def connected(options: ClusterOptions, say: Callable[[str], None]) -> Iterator[Any]:
    """Give a client of the cluster (`distributed.Client`) that has a worker, and say where its dashboard is.

    A cluster that was started here is closed at the end; one that was there stays.

    Raises
    ------
    UserError
        If no scheduler answers, no cluster can be started, or one that was there has no worker for long.
    """
    import dask

    # Dask logs what goes wrong with a connection in many lines; a sweep says it in one.
    dask.config.set({"logging": dict.fromkeys(("distributed", "distributed.client"), "critical")})
    from distributed import Client

    connect: Any = Client
    with ExitStack() as stack:
        where: Any = options.where
        if where in ENGINES:
            try:
                where = engine_class(options.where)(**options.settings)
            except Exception as error:  # of a library that we know only by name: whatever it says of its settings
                raise UserError(f"no cluster of {options.where} could be started: {brief(error)}") from None
            stack.callback(_close, where)
        try:
            client = _answer_of(partial(connect, where, timeout=_CONNECT, set_as_default=False))
        except (OSError, ValueError) as error:
            raise UserError(
                f"no scheduler answers at {options.where} ({brief(error)}): start one with dask scheduler"
            ) from None
        stack.callback(_close, client)
        say(f"cluster: {client.scheduler.address}, dashboard at {client.dashboard_link or 'no address'}")
        if not client.scheduler_info()["workers"]:
            say("the cluster has no worker yet: the runs wait for the first")
        try:
            client.wait_for_workers(1, timeout=None if options.where in ENGINES else _JOIN)
        except TimeoutError:
            raise UserError(
                f"the cluster has had no worker for {_JOIN:.0f} s: start some (dask worker tcp://HOST:PORT --nthreads "
                "1), and rerun the same command to resume; finished runs are kept"
            ) from None
        yield client


def _answer_of(connect: Callable[[], Any]) -> Any:
    """Return what a function returns, in time: Dask waits for ever for a server that speaks another protocol."""
    answer: Future[Any] = Future()

    def ask() -> None:
        try:
            answer.set_result(connect())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=ask, daemon=True).start()
    return answer.result(_CONNECT + _GRACE)


def _close(opened: Any) -> None:
    with suppress(Exception):  # of a connection that is lost already
        opened.close(timeout=_CLOSE)


def _await_results(runs: Sequence[SweepRun]) -> None:
    """Wait until this machine sees what workers have written: a shared disk may remember its folders for a while."""
    until = time.monotonic() + _SHOWN
    for run in runs:
        while not finished(run):
            if time.monotonic() > until:
                raise UserError(f"{run.folder} is finished, and not seen here: run the same command again")
            with suppress(OSError):
                list(run.folder.iterdir())
            time.sleep(_POLL)
