"""Cells on a cluster of two workers: the same table as here, whatever happens to a worker, the user or the scheduler.

The tests share one cluster, and come in the order in which it loses its parts.
"""

import _thread
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

import r2mae
from r2mae.compare.compare import compare
from r2mae.errors import UserError
from r2mae.images.config import ImagesConfig
from r2mae.images.wing import WING
from r2mae.report.publish import write_table
from r2mae.sweep.cluster_options import ClusterOptions
from sweep.dask_cluster import LocalCluster

pytestmark = pytest.mark.slow

# Long enough that a worker can be killed within a run, and short enough to wait for twelve.
BASE = ImagesConfig(data="digits", device="cpu", steps=80, hidden=16, latent=8, save_every=10)
LONG = replace(BASE, steps=1_000_000)
PLAN: dict[str, Any] = {"schemes": ["fixed", "r2mae", "mdlm"], "ratios": [0.5], "seeds": [0, 1, 2, 3]}
ONE: dict[str, Any] = {"schemes": ["r2mae"], "seeds": [0]}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    local = LocalCluster(tmp_path_factory.mktemp("cluster"))
    yield local
    local.close()


@pytest.fixture
def heard() -> Console:
    return Console(file=StringIO(), width=300)


def text_of(console: Console) -> str:
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def soon(condition: Callable[[], object]) -> None:
    until = time.monotonic() + 900
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def when(condition: Callable[[], object], then: Callable[[], object]) -> threading.Thread:
    """Do something, in a thread, as soon as a condition holds."""

    def wait() -> None:
        soon(condition)
        then()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def process_of(run: Path) -> int:
    """The process that runs a cell, 0 before there is one."""
    try:
        words = (run / ".cell").read_text(encoding="utf-8").split()
    except OSError:
        return 0
    return int(words[1]) if len(words) > 1 and Path(f"/proc/{words[1]}").exists() else 0


def parent_of(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[1])
    except OSError:
        return 0


def table(path: Path) -> list[list[str]]:
    """The table as text, without the seconds, which the clock makes."""
    lines = [line.split(",") for line in path.read_text(encoding="utf-8").splitlines()]
    at = lines[0].index("seconds")
    return [line[:at] + line[at + 1 :] for line in lines]


def test_no_cell_goes_to_a_worker_of_another_version(cluster: LocalCluster, tmp_path: Path, heard: Console) -> None:
    other = cluster.root / "elsewhere" / "r2mae"
    other.mkdir(parents=True)
    real = str(Path(r2mae.__file__).parent)
    (other / "__init__.py").write_text(f"__path__ = [{real!r}]\n__version__ = '0.0.1'\n", encoding="utf-8")
    cluster.worker("old", PYTHONPATH=str(other.parent))
    with pytest.raises(UserError, match=r"no worker of the cluster is fit .* it has r2mae 0\.0\.1, and this machine"):
        compare(BASE, WING, **ONE, out=tmp_path / "c", cluster=ClusterOptions(cluster.address), console=heard)
    assert "is left out: it has r2mae 0.0.1" in text_of(heard)
    assert not (tmp_path / "c" / "runs").exists()
    assert not (tmp_path / "c" / ".cluster").exists()


def test_twelve_cells_and_a_worker_that_is_killed_make_the_local_table(
    cluster: LocalCluster, tmp_path: Path, heard: Console
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    write_table(compare(BASE, WING, **PLAN, out=here, jobs=2, console=Console(file=StringIO())), here / "results.csv")

    first, _ = cluster.worker("a"), cluster.worker("b")
    soon(lambda: all("Registered to" in cluster.log(name) for name in ("a", "b")))
    killed: list[Path] = []

    def within_a_run() -> bool:
        if len(list(there.glob("runs/*/*/results.json"))) < 3:
            return False
        for checkpoint in there.glob("runs/*/*/checkpoints/last.ckpt"):
            run = checkpoint.parents[1]
            if not (run / "model.json").exists() and parent_of(process_of(run)) == first.pid:
                killed.append(run)
                return True
        return False

    killing = when(within_a_run, lambda: os.kill(first.pid, signal.SIGKILL))
    done = compare(BASE, WING, **PLAN, out=there, cluster=ClusterOptions(cluster.address), console=heard)
    killing.join()
    write_table(done, there / "results.csv")

    assert table(there / "results.csv") == table(here / "results.csv")
    assert len(pd.read_csv(there / "results.csv")) == 12
    for run in here.glob("runs/*/*"):
        mine, its = run / "metrics.csv", there / run.relative_to(here) / "metrics.csv"
        assert its.read_bytes() == mine.read_bytes()  # no step lost or doubled
    told = text_of(heard)
    row, seed = killed[0].parts[-2:]
    assert told.count("the worker on ") == told.count("has ended; it goes on from its checkpoint") == 1
    assert f"{row.replace('-', ' ')}, {seed.replace('-', ' ')}: the worker on" in told
    assert "[12/12]" in told
    assert "is left out: it has r2mae 0.0.1" in told
    assert not (there / ".cluster").exists()


def test_ctrl_c_saves_the_step_and_leaves_the_workers_free(
    cluster: LocalCluster, tmp_path: Path, heard: Console
) -> None:
    run = tmp_path / "runs" / "r2mae" / "seed-0"
    when((run / "checkpoints" / "last.ckpt").exists, _thread.interrupt_main)
    with pytest.raises(KeyboardInterrupt):
        compare(LONG, WING, **ONE, out=tmp_path, cluster=ClusterOptions(cluster.address), console=heard)
    assert process_of(run) == 0
    assert not (run / "model.json").exists()
    from distributed import Client

    from r2mae.sweep.dask_worker import busy

    with Client(cluster.address, set_as_default=False) as client:
        assert set(client.run(busy, on_error="ignore").values()) == {0}
        assert not any(client.processing().values())


def test_a_scheduler_that_goes_away(cluster: LocalCluster, tmp_path: Path, heard: Console) -> None:
    run = tmp_path / "runs" / "r2mae" / "seed-0"
    when((run / "checkpoints" / "last.ckpt").exists, cluster.scheduler.kill)
    with pytest.raises(UserError, match=r"the scheduler of the cluster has gone.*the same command goes on"):
        compare(LONG, WING, **ONE, out=tmp_path, cluster=ClusterOptions(cluster.address), console=heard)
    soon(lambda: process_of(run) == 0)  # its worker ends, and the run with it
    with pytest.raises(UserError, match=r"no scheduler answers at tcp://127\.0\.0\.1:9"):
        compare(LONG, WING, **ONE, out=tmp_path, cluster=ClusterOptions("tcp://127.0.0.1:9"), console=heard)
