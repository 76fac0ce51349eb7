"""Runs on a cluster of two workers: the table is the same, whatever happens to a worker, the user or the scheduler."""

import _thread
import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

import r2mae
from r2mae.cli.main import main
from r2mae.compare.compare import compare
from r2mae.errors import UserError
from r2mae.images.config import ImagesConfig
from r2mae.images.domain import DOMAIN
from r2mae.report.publish import write_table
from r2mae.sweep.cluster_options import ClusterOptions
from sweep.dask_cluster import LocalCluster, held, limited, soon

pytestmark = pytest.mark.slow

BASE = ImagesConfig(data="digits", device="cpu", steps=60, hidden=16, latent=8, save_every=10)
LONG = replace(BASE, steps=1_000_000)
PLAN: dict[str, Any] = {"schemes": ["fixed", "r2mae", "mdlm"], "ratios": [0.5], "seeds": [0, 1, 2, 3]}
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


def process_of(run: Path) -> int:
    """The process that runs a run, 0 before there is one."""
    try:
        words = (run / ".run.lock").read_text(encoding="utf-8").split()
    except OSError:
        return 0
    return int(words[1]) if len(words) > 1 and Path(f"/proc/{words[1]}").exists() else 0


def parent_of(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[1])
    except OSError:
        return 0


def test_no_cell_goes_to_a_worker_of_another_version(tmp_path: Path, heard: Console) -> None:
    other = tmp_path / "elsewhere" / "r2mae"
    other.mkdir(parents=True)
    real = str(Path(r2mae.__file__).parent)
    (other / "__init__.py").write_text(f"__path__ = [{real!r}]\n__version__ = '0.0.1'\n", encoding="utf-8")
    with LocalCluster(tmp_path) as cluster:
        cluster.worker("old", PYTHONPATH=str(other.parent))
        with pytest.raises(UserError, match=r"no worker of the cluster is fit .* it has r2mae 0\.0\.1, and this"):
            compare(BASE, DOMAIN, **ONE, out=tmp_path / "c", cluster=ClusterOptions(cluster.address), console=heard)
    assert "is left out: it has r2mae 0.0.1" in text_of(heard)
    assert "dashboard at http://127.0.0.1:" in text_of(heard)
    assert not (tmp_path / "c" / "runs").exists()
    assert not (tmp_path / "c" / ".cluster").exists()


def test_twelve_cells_and_a_worker_that_is_killed_make_the_local_table(
    cluster: LocalCluster, tmp_path: Path, heard: Console
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    write_table(compare(BASE, DOMAIN, **PLAN, out=here, jobs=1, console=Console(file=StringIO())), here / "results.csv")

    first, _ = cluster.some(2)

    def kill_within_a_run() -> bool:
        if len(list(there.glob("runs/*/*/results.json"))) < 3:
            return False
        for checkpoint in there.glob("runs/*/*/checkpoints/last.ckpt"):
            run = checkpoint.parents[1]
            if (run / "model.json").exists() or parent_of(process := process_of(run)) != first.pid:
                continue
            os.kill(process, signal.SIGSTOP)  # it must not come to its end before its worker does
            within = not (run / "model.json").exists()
            if within:
                first.kill()
            os.kill(process, signal.SIGCONT)
            return within
        return False

    killed, ended = threading.Event(), threading.Event()
    killing = when(lambda: ended.is_set() or kill_within_a_run(), lambda: ended.is_set() or killed.set())
    done = compare(BASE, DOMAIN, **PLAN, out=there, cluster=ClusterOptions(cluster.address), console=heard)
    ended.set()
    killing.join()
    assert killed.is_set()
    write_table(done, there / "results.csv")

    assert (there / "results.csv").read_bytes() == (here / "results.csv").read_bytes()
    assert len(pd.read_csv(there / "results.csv")) == 12
    for run in here.glob("runs/*/*"):
        mine, its = run / "metrics.csv", there / run.relative_to(here) / "metrics.csv"
        assert its.read_bytes() == mine.read_bytes()  # no step lost or doubled
    told = text_of(heard)
    assert told.count(": the worker on ") == told.count("has ended; it goes on from its checkpoint") == 1
    assert "[12/12]" in told
    assert not (there / ".cluster").exists()


def test_ctrl_c_saves_the_step_and_leaves_the_workers_free(
    cluster: LocalCluster, tmp_path: Path, heard: Console
) -> None:
    cluster.some(1)
    run = tmp_path / "runs" / "r2mae" / "seed-0"
    when((run / "checkpoints" / "last.ckpt").exists, _thread.interrupt_main)
    with pytest.raises(KeyboardInterrupt):
        compare(LONG, DOMAIN, **ONE, out=tmp_path, cluster=ClusterOptions(cluster.address), console=heard)
    assert process_of(run) == 0
    assert not (run / "model.json").exists()
    from distributed import Client

    from r2mae.sweep.dask_worker import TOPIC, busy

    with Client(cluster.address, set_as_default=False) as client:
        assert set(client.run(busy, TOPIC, on_error="ignore").values()) == {0}
        assert not any(client.processing().values())


def test_a_scheduler_that_goes_away(tmp_path: Path, heard: Console, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "c"
    run = out / "runs" / "r2mae" / "seed-0"
    with LocalCluster(tmp_path) as cluster:
        cluster.some(1)
        when((run / "checkpoints" / "last.ckpt").exists, cluster.scheduler.kill)
        with pytest.raises(UserError, match=r"the scheduler of the cluster has gone.*rerun the same command to resume"):
            compare(LONG, DOMAIN, **ONE, out=out, cluster=ClusterOptions(cluster.address), console=heard)
        soon(lambda: process_of(run) == 0)  # its worker ends, and the run with it
    words = ["compare", "images", "digits", "--schemes", "r2mae", "--seeds", "1", "--steps", "2", "--device", "cpu"]
    assert main([*words, "--out", str(tmp_path / "d"), "--cluster", "tcp://127.0.0.1:9"]) == 2
    assert "no scheduler answers at tcp://127.0.0.1:9" in capsys.readouterr().err


def test_two_sweeps_in_one_folder(tmp_path: Path) -> None:
    """The second is refused before it looks for a cluster."""
    with held(tmp_path), pytest.raises(UserError, match="is in use by another process"):
        compare(BASE, DOMAIN, **ONE, out=tmp_path, cluster=ClusterOptions("tcp://127.0.0.1:9"))
