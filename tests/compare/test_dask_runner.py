"""Runs on a Dask cluster: the table is the same, whatever happens to a worker, the user or the scheduler."""

import _thread
import os
import signal
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from compare.dask_cluster import LocalCluster, held, limited, soon
from locks import is_locked
from r2mae.cli.main import main
from r2mae.compare import dask_runner
from r2mae.compare.checks import run_missing
from r2mae.compare.cluster_options import ClusterOptions
from r2mae.compare.compare import compare
from r2mae.compare.dask_runner import DaskRunner, check_workers, connected, runner_of, runs_at_once
from r2mae.compare.run import Outcome, Processes, Request
from r2mae.compare.runs import Variant, runs_of
from r2mae.errors import UserError
from r2mae.images.config import ImagesConfig
from r2mae.images.domain import DOMAIN

BASE = ImagesConfig.make(data="digits", device="cpu", steps=60, hidden=16, latent=8, save_every=10)
LONG = BASE.replace(steps=1_000_000)
PLAN: dict[str, Any] = {"schemes": ["fixed", "r2mae", "mdlm"], "ratios": [0.5], "seeds": [0, 1]}
ONE: dict[str, Any] = {"schemes": ["r2mae"], "seeds": [0]}


@pytest.fixture(autouse=True)
def limit() -> Iterator[None]:
    with limited(900):
        yield


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("cluster")) as local:
        yield local


@pytest.fixture
def heard() -> Console:
    return Console(file=StringIO(), width=300)


def text_of(console: Console) -> str:
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def when(condition: Callable[[], object], then: Callable[[], object]) -> threading.Thread:
    """Do something, in a thread, as soon as a condition holds."""

    def wait() -> None:
        soon(condition)
        then()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def holder_of(run: Path) -> int:
    """The process that holds the lock of a run, 0 if none does."""
    inode = (run / ".lock").stat().st_ino
    locks = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return next((int(words[4]) for words in locks if int(words[5].split(":")[2]) == inode), 0)


def parent_of(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[1])
    except OSError:
        return 0


@pytest.mark.slow
def test_a_worker_that_is_killed_makes_no_difference_to_the_table(
    cluster: LocalCluster, tmp_path: Path, heard: Console
) -> None:
    """Dask starts its workers as daemons, which may have no processes; each has one nevertheless."""
    here, there = tmp_path / "here", tmp_path / "there"
    base = BASE.replace(steps=300)
    expected = compare(base, DOMAIN, **PLAN, out=here, jobs=1, console=Console(file=StringIO())).table
    first, _ = cluster.some(2)

    def kill_within_a_run() -> bool:
        for checkpoint in there.glob("runs/*/*/checkpoints/last.ckpt"):
            run = checkpoint.parents[1]
            worker = holder_of(run)
            while worker and parent_of(worker) != first.pid:  # a server of processes is in between, or none
                worker = parent_of(worker)
            if worker and not (run / "model.json").exists():
                first.kill()  # otherwise it would start another worker
                os.kill(worker, signal.SIGKILL)
                return True
        return False

    killing = when(kill_within_a_run, lambda: None)
    done = compare(base, DOMAIN, **PLAN, out=there, cluster=ClusterOptions(cluster.address), console=heard)
    assert not killing.is_alive()
    tables = [
        table.drop(columns="seconds").to_csv(index=False, float_format="%.10g") for table in (done.table, expected)
    ]
    assert tables[0] == tables[1]
    for run in here.glob("runs/*/*"):
        for name in ("model.safetensors", "metrics.csv"):
            assert (there / run.relative_to(here) / name).read_bytes() == (run / name).read_bytes()
    assert "[6/6]" in text_of(heard)
    assert "dashboard at http://127.0.0.1:" in text_of(heard)
    assert not list(there.glob(".r2mae-sweep-*"))


@pytest.mark.slow
def test_ctrl_c_saves_the_step_and_leaves_the_workers_free(
    cluster: LocalCluster, tmp_path: Path, heard: Console
) -> None:
    cluster.some(1)
    run = tmp_path / "runs" / "r2mae" / "seed-0"
    when((run / "checkpoints" / "last.ckpt").exists, _thread.interrupt_main)
    with pytest.raises(KeyboardInterrupt):
        compare(LONG, DOMAIN, **ONE, out=tmp_path, cluster=ClusterOptions(cluster.address), console=heard)
    assert not is_locked(run)
    assert not (run / "model.json").exists()
    from distributed import Client

    with Client(cluster.address, set_as_default=False) as client:
        assert not any(client.processing().values())


@pytest.mark.slow
def test_a_scheduler_that_goes_away(
    tmp_path: Path, heard: Console, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "c"
    run = out / "runs" / "r2mae" / "seed-0"
    with LocalCluster(tmp_path) as cluster:
        cluster.some(1)
        when((run / "checkpoints" / "last.ckpt").exists, cluster.scheduler.kill)
        with pytest.raises(UserError, match=r"the scheduler of the cluster has gone.*rerun the same command to resume"):
            compare(LONG, DOMAIN, **ONE, out=out, cluster=ClusterOptions(cluster.address), console=heard)
        soon(lambda: not is_locked(run))  # its worker ends, and the run with it
    monkeypatch.setattr(dask_runner, "_CONNECT", 0.5)
    words = ["compare", "images", "digits", "--schemes", "r2mae", "--seeds", "1", "--steps", "2", "--device", "cpu"]
    assert main([*words, "--out", str(tmp_path / "d"), "--cluster", "tcp://127.0.0.1:9"]) == 2
    assert "no scheduler answers at tcp://127.0.0.1:9" in capsys.readouterr().err


def test_a_server_that_is_no_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dask waits for ever for what a server of another protocol does not say."""
    monkeypatch.setattr(dask_runner, "_CONNECT", 0.2)
    monkeypatch.setattr(dask_runner, "_GRACE", 0.2)
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        where = f"tcp://127.0.0.1:{server.server_port}"
        with (
            pytest.raises(UserError, match=f"no scheduler answers at {where} .*: start one"),
            connected(ClusterOptions(where), print),
        ):
            pass
        server.shutdown()


def test_two_sweeps_in_one_folder(tmp_path: Path) -> None:
    """The second is refused before it looks for a cluster."""
    with held(tmp_path), pytest.raises(UserError, match="is in use by another process"):
        compare(BASE, DOMAIN, **ONE, out=tmp_path, cluster=ClusterOptions("tcp://127.0.0.1:9"))


LOCAL: dict[str, Any] = {
    "n_workers": 1, "threads_per_worker": 2, "processes": False, "protocol": "tcp", "dashboard_address": "127.0.0.1:0"
}  # fmt: skip


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    from distributed import LocalCluster as Local

    with Local(**LOCAL) as local:
        yield local.scheduler_address


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """Runs that a worker in this process was asked for; they are not computed."""
    asked: list[Request] = []

    def compute(request: Request, report: Callable[[int, int], None], cancelled: Callable[[], bool]) -> Outcome:
        assert not cancelled()
        asked.append(request)
        report(2, 2)
        if request.fields["seed"] == 7:
            raise UserError("the loss is nan")
        return 0.0, {}

    monkeypatch.setattr(dask_runner, "compute", compute)
    monkeypatch.setattr(dask_runner, "finished", lambda run: True)
    return asked


def sweep(options: ClusterOptions, folder: Path, seeds: range, console: Console | None = None) -> None:
    runs = runs_of([Variant("r2mae", BASE)], seeds, folder)
    run_missing(runs, DOMAIN, DaskRunner(options, folder), console=console or Console(file=StringIO()))


def test_every_run_goes_to_a_worker_once(
    scheduler: str, simulated: list[Request], tmp_path: Path, heard: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("R2MAE_DATA", "/data")
    sweep(ClusterOptions(scheduler), tmp_path, range(5), heard)
    assert sorted(request.index for request in simulated) == [0, 1, 2, 3, 4]
    assert {request.fingerprint for request in simulated} == {DOMAIN.fingerprint(BASE)}
    assert {request.environment["R2MAE_JOBS"] for request in simulated} == {"2"}
    assert {request.environment["R2MAE_DATA"] for request in simulated} == {"/data"}
    assert "[5/5] r2mae, seed" in text_of(heard)
    with pytest.raises(UserError, match=r"^r2mae, seed 7: the loss is nan \(on .+\); the other runs are kept$"):
        sweep(ClusterOptions(scheduler), tmp_path, range(6, 9))


ANSWERS: list[str] = []


def next_answer(*_: object) -> str:
    return ANSWERS.pop(0)


def test_an_unfit_worker_that_joined_late_passes_its_runs_on(
    scheduler: str, simulated: list[Request], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Later it is fit."""
    monkeypatch.setattr(dask_runner, "_AWAY", 0.1)
    ANSWERS[:] = ["", "torch is 1.9 there", ""]  # when the sweep looks at its workers, and in the task
    monkeypatch.setattr(dask_runner, "unfit", next_answer)
    sweep(ClusterOptions(scheduler), tmp_path, range(1))
    assert not ANSWERS
    assert len(simulated) == 1
    assert "computes no runs: torch is 1.9 there" in capfd.readouterr().err


def test_who_is_unfit(tmp_path: Path) -> None:
    own = dask_runner._versions()
    assert "it does not see" in dask_runner.unfit(tmp_path / "file", own)
    assert "put --out on a disk that all machines share" in dask_runner.unfit(tmp_path / "file", own)
    assert dask_runner.unfit(tmp_path, own) == ""
    for name, version in own.items():
        other = dask_runner.unfit(tmp_path, {**own, name: "9"})
        assert other.startswith(f"{name} is {version} there and 9 on the machine of the command")


def test_a_cluster_that_is_started_for_a_sweep_is_closed_after_it(
    simulated: list[Request], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dask's own cluster stands for the engines: it takes its arguments in the same way."""
    from distributed import LocalCluster as Local

    closed = []

    class Watched(Local):
        def close(self, timeout: Any = None) -> Any:
            closed.append(True)
            return super().close(timeout)

    monkeypatch.setattr(dask_runner, "engine_class", lambda engine: Watched)
    sweep(ClusterOptions("slurm", LOCAL), tmp_path, range(1))
    assert closed
    with pytest.raises(UserError, match=r"no cluster of slurm could be started: ."):
        sweep(ClusterOptions("slurm", {"whatever": 1}), tmp_path, range(1))


def test_a_cluster_without_workers(tmp_path: Path, heard: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    from distributed import LocalCluster as Local

    monkeypatch.setattr(dask_runner, "_JOIN", 0.1)
    with (
        Local(**{**LOCAL, "n_workers": 0}) as local,
        pytest.raises(UserError, match=r"has had no worker for 0 s: start some \(dask worker"),
        connected(ClusterOptions(local.scheduler_address), heard.print),
    ):
        pass
    assert "the runs wait for the first" in text_of(heard)


def client_of(*workers: dict[str, Any], reason: Any = "") -> Any:
    """A stand-in for the client of a cluster whose workers offer these resources."""
    told = {"workers": {str(place): {"resources": offered} for place, offered in enumerate(workers)}}
    return SimpleNamespace(run=lambda *_, on_error: {"tcp://a": reason}, scheduler_info=lambda: told)


def test_what_a_run_takes_of_its_worker(tmp_path: Path) -> None:
    def taken(client: Any, device: str = "auto") -> dict[str, float]:
        return check_workers(client, tmp_path / "file", {}, device)

    assert taken(client_of({})) == taken(client_of({}), "cpu") == taken(client_of({"GPU": 1}), "cpu") == {}
    assert taken(client_of({}, {"GPU": 1})) == taken(client_of({"GPU": 1}), "cuda") == {"GPU": 1}
    with pytest.raises(UserError, match="no worker of the cluster offers GPU=1: start workers with --resources GPU=1"):
        taken(client_of({}), "cuda")
    for reason in ("torch is 1.9 there", ModuleNotFoundError("No module named 'r2mae'")):
        with pytest.raises(UserError, match=f"no worker of the cluster can compute the runs; tcp://a: {reason}"):
            taken(client_of({}, reason=reason))


@pytest.mark.parametrize(("threads", "share", "runs"), [(1, 8, 8), (2, 4, 8), (4, 1, 4), (4, 0.5, 4), (3, None, 3)])
def test_workers_that_share_a_machine(threads: int, share: float | None, runs: int) -> None:
    from distributed.system import MEMORY_LIMIT

    limit = None if share is None else int(MEMORY_LIMIT / share)
    state, manager = SimpleNamespace(nthreads=threads), SimpleNamespace(memory_limit=limit)
    worker: Any = SimpleNamespace(state=state, memory_manager=manager)
    assert runs_at_once(worker) == runs


def test_without_a_cluster_runs_are_computed_here(tmp_path: Path) -> None:
    assert runner_of(None, 2, "cpu", tmp_path) == Processes(2, "cpu")
    assert isinstance(runner_of(ClusterOptions("tcp://127.0.0.1:1"), None, "cpu", tmp_path), DaskRunner)


def test_results_that_a_shared_disk_shows_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_runner, "_POLL", 0.001)
    looks: list[bool] = []
    monkeypatch.setattr(dask_runner, "finished", lambda run: looks.append(True) or len(looks) > 3)
    runs = runs_of([Variant("r2mae", BASE)], [0], tmp_path)
    dask_runner._await_results(runs)
    monkeypatch.setattr(dask_runner, "finished", lambda run: False)
    monkeypatch.setattr(dask_runner, "_SHOWN", 0.01)
    with pytest.raises(UserError, match="is finished, and not seen here"):
        dask_runner._await_results(runs)
