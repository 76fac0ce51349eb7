"""Compute the runs of a sweep on the workers of a Dask cluster, whose machines share a disk with this one."""

import os
import secrets
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from r2mae.domains.base import Domain
from r2mae.errors import UserError
from r2mae.sweep.cluster_options import ENGINES, ClusterOptions, engine_class
from r2mae.sweep.dask_worker import compute_on_worker
from r2mae.sweep.dispatch import Progress, Submit, compute_all, request_of, say
from r2mae.sweep.processes import Processes
from r2mae.sweep.progress_display import ProgressDisplay
from r2mae.sweep.run_process import PATIENCE, DiedError, Outcome, Request, close_idle
from r2mae.sweep.runner import Runner, configs_by_data, finished
from r2mae.sweep.runs import SweepRun, data_key

_CONNECT = 20.0  # seconds until a scheduler must have answered
_JOIN = 600.0  # seconds until a scheduler that runs must have a worker
_CLOSE = 10.0
_POLL = 0.2
_SHOWN = 90.0  # seconds until results that a worker wrote must be seen here
_VARIABLES = ("R2MAE_DATA",)  # of the environment, given to workers that have none
_VERSIONS = ("r2mae", "torch")  # on which the numbers of a run depend
_GONE = (
    "the scheduler of the cluster has gone: start it again, and rerun the same command to resume; finished runs are "
    "kept"
)


def runner_of(cluster: ClusterOptions | None, jobs: int | None, device: str, folder: Path) -> Runner:
    """Return what computes the runs of the sweep in `folder`: a cluster, or processes of this machine."""
    return Processes(jobs, device) if cluster is None else DaskRunner(cluster, folder, device)


@dataclass(frozen=True)
class DaskRunner:
    """Computes runs on a Dask cluster (a :class:`r2mae.sweep.runner.Runner`).

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
        """Compute all runs (:func:`r2mae.sweep.dispatch.compute_all`).

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
        compute_all(waiting, requests, display, partial(self._executor, display.console))
        _await_results(waiting)

    @contextmanager
    def _executor(self, console: Console, progress: Progress) -> Iterator[tuple[Submit, tuple[type[Exception], ...]]]:
        """Give the executor of the cluster's client."""
        with connected(self.cluster, console) as client, _shared_file(self.folder) as shared:
            from distributed import KilledWorker  # connected() sets what Dask logs before it is imported

            resources = check_workers(client, shared, self.device, self.cluster.memory)
            client.subscribe_topic(shared.name, lambda event: progress(*event[1]))
            executor = client.get_executor(pure=False, resources=resources)

            def submit(request: Request) -> "Future[Outcome]":
                if client.status != "running":
                    raise UserError(_GONE)
                future: Future[Outcome] = executor.submit(compute_on_worker, request, shared)
                return future

            try:
                yield submit, (DiedError, CancelledError, KilledWorker)
            finally:
                with suppress(Exception):  # the first error is the one to report
                    executor.shutdown(wait=False)  # cancels all tasks, as their workers notice
                    client.unsubscribe_topic(shared.name)
                    until = time.monotonic() + PATIENCE
                    while any(client.run(close_idle, on_error="ignore").values()) and time.monotonic() < until:
                        time.sleep(_POLL)


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


def check_workers(client: Any, shared: Path, device: str, memory: int | None) -> dict[str, float]:
    """Refuse a cluster that cannot compute the runs; return what each run takes of the resources of its worker.

    Raises
    ------
    UserError
        If workers have other versions, or none sees the folder or offers what a run takes.
    """
    versions = client.get_versions(packages=_VERSIONS)
    here = versions["client"]["packages"]
    for address, there in versions["workers"].items():
        for name in _VERSIONS:
            mine, its = ((one[name] or "missing").split("+")[0] for one in (here, there["packages"]))
            if mine != its:
                raise UserError(
                    f"worker {address}: {name} is {its} there and {mine} here: install the same version on all machines"
                )
    if not any(client.run(os.path.exists, str(shared)).values()):
        raise UserError(f"no worker of the cluster sees {shared.parent}: put --out on a disk that all machines share")
    offers = [worker["resources"] for worker in client.scheduler_info()["workers"].values()]
    gpu = device.startswith("cuda") or (device == "auto" and any(offer.get("GPU") for offer in offers))
    taken = {"GPU": 1.0} if gpu else {}
    if memory is not None:
        taken["MEMORY"] = float(memory)
    for name, amount in taken.items():
        if not any(offer.get(name, 0) >= amount for offer in offers):
            raise UserError(
                f"no worker of the cluster offers {name}={amount:.0f}: start workers with --resources {name}=..."
            )
    return taken


@contextmanager
def connected(options: ClusterOptions, console: Console) -> Iterator[Any]:
    """Give a client of the cluster (`distributed.Client`) that has a worker, and print where its dashboard is.

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
            where = _started(options)
            stack.callback(_close, where)
        try:
            client = connect(where, timeout=_CONNECT, set_as_default=False)
        except (OSError, ValueError) as error:
            reason = " ".join(str(error).split())[:200] or "no answer"
            raise UserError(
                f"no scheduler answers at {options.where} ({reason}): start one with dask scheduler"
            ) from None
        stack.callback(_close, client)
        say(console, f"cluster: {client.scheduler.address}, dashboard at {client.dashboard_link or 'no address'}")
        if not client.scheduler_info()["workers"]:
            say(console, "the cluster has no worker yet: the runs wait for the first")
        try:
            client.wait_for_workers(1, timeout=None if options.where in ENGINES else _JOIN)
        except TimeoutError:
            raise UserError(
                f"the cluster has had no worker for {_JOIN:.0f} s: start some (dask worker tcp://HOST:PORT --nthreads "
                "1), and rerun the same command to resume; finished runs are kept"
            ) from None
        yield client


def _started(options: ClusterOptions) -> Any:
    try:
        return engine_class(ENGINES[options.where])(**options.settings)
    except Exception as error:  # of a library that we know only by name: whatever it says of its settings
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise UserError(f"no cluster of {options.where} could be started: {reason}") from None


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
