"""What a sweep makes of what its workers return. The runs are simulated, on a cluster within this process."""

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from r2mae.errors import UserError
from r2mae.images.config import ImagesConfig
from r2mae.images.domain import DOMAIN
from r2mae.sweep import dask_runner, dask_workers
from r2mae.sweep.cluster_options import ENGINES, ClusterOptions, Engine
from r2mae.sweep.dask_runner import DaskRunner, runner_of
from r2mae.sweep.processes import Processes
from r2mae.sweep.run_process import MEETING
from r2mae.sweep.runner import run_missing
from r2mae.sweep.runs import SweepRun, Variant, runs_of
from r2mae.training.folder import RunFolder
from sweep.dask_cluster import limited

CONFIG = ImagesConfig(data="digits", device="cpu", steps=2)
FINISHED = {"state": "finished", "seconds": 0.0, "scores": {}, "device": "cpu"}
Answer = Callable[[Mapping[str, Any], int], Mapping[str, Any]]


@pytest.fixture(autouse=True)
def limit() -> Iterator[None]:
    with limited(300):
        yield


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=1, threads_per_worker=2, processes=False, protocol="tcp", dashboard_address="127.0.0.1:0"
    ) as local:
        yield local.scheduler_address


class Simulated:
    """Runs runs on a cluster; `answer` says what a request returns, given how often the same was asked."""

    asked: list[Mapping[str, Any]]
    answer: Answer

    def work(self, request: Mapping[str, Any]) -> dict[str, Any]:
        with _LOCK:
            before = sum(one["index"] == request["index"] for one in self.asked)
            self.asked.append(request)
        return dict(self.answer(request, before))


_LOCK = threading.Lock()
_SIMULATED = Simulated()


def work(request: Mapping[str, Any]) -> dict[str, Any]:
    return _SIMULATED.work(request)


def run(options: ClusterOptions, folder: Path, answer: Answer, count: int = 3) -> tuple[list[SweepRun], str]:
    """Run runs; return them, and what was printed."""
    _SIMULATED.asked, _SIMULATED.answer = [], answer
    runs = runs_of([Variant("r2mae", CONFIG)], range(count), folder)
    console = Console(file=StringIO(), width=300)
    try:
        run_missing(runs, DOMAIN, DaskRunner(options, folder, work, lambda run: True), console=console)
    finally:
        assert isinstance(console.file, StringIO)
        printed.append(console.file.getvalue())
        assert not (folder / MEETING).exists()
    return runs, printed[-1]


printed: list[str] = []


def cells_asked() -> list[int]:
    return [request["index"] for request in _SIMULATED.asked if request["do"] == "run"]


def test_every_cell_is_asked_for_once_and_a_second_sweep_finds_the_workers_free(scheduler: str, tmp_path: Path) -> None:
    for name in ("one", "two"):
        _, told = run(ClusterOptions(scheduler), tmp_path / name, lambda request, before: FINISHED, 5)
        assert sorted(cells_asked()) == [0, 1, 2, 3, 4]
        assert "[5/5] r2mae, seed" in told
        assert f"cluster: {scheduler}, " in told


def test_a_cell_that_fails_costs_no_other(scheduler: str, tmp_path: Path) -> None:
    def answer(request: Mapping[str, Any], before: int) -> Mapping[str, Any]:
        return {"state": "failed", "told": "the loss is nan"} if request["index"] == 1 else FINISHED

    with pytest.raises(UserError, match=r"^r2mae, seed 1: the loss is nan \(on .*tcp://.*\); the other runs are kept$"):
        run(ClusterOptions(scheduler), tmp_path, answer)
    assert sorted(cells_asked()) == [0, 1, 2]

    def broken(request: Mapping[str, Any], before: int) -> Mapping[str, Any]:
        return {"state": "broken", "told": "Traceback: a bug"} if request["index"] == 1 else FINISHED

    with pytest.raises(RuntimeError, match="Traceback: a bug"):
        run(ClusterOptions(scheduler), tmp_path, broken)


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        ({"state": "died", "code": -9}, r"the process on .* has ended \(signal 9\)"),
        ({"state": "died", "code": 3}, r"the process on .* has ended \(exit code 3\)"),
        ({"state": "stopped"}, r"the process on .* has ended"),
        ({"state": "full", "told": "last.ckpt: No space"}, r"a disk of .* is full \(last.ckpt: No space\)"),
    ],
)
def test_a_cell_is_tried_again_and_then_to_blame(
    scheduler: str, tmp_path: Path, outcome: dict[str, Any], words: str
) -> None:
    def once(request: Mapping[str, Any], before: int) -> Mapping[str, Any]:
        return outcome if request["do"] == "run" and before == 0 else FINISHED

    _, told = run(ClusterOptions(scheduler), tmp_path, once, 1)
    assert cells_asked() == [0, 0]
    assert "[1/1]" in told

    def always(request: Mapping[str, Any], before: int) -> Mapping[str, Any]:
        return outcome if request["index"] == 0 else FINISHED

    with pytest.raises(UserError, match=f"^r2mae, seed 0: 3 tries got no further, and in the last {words}"):
        run(ClusterOptions(scheduler), tmp_path, always, 2)
    assert sorted(cells_asked()) == [0, 0, 0, 1]


def test_a_cell_that_gets_further_is_never_to_blame(scheduler: str, tmp_path: Path) -> None:
    """A run that is longer than the time of a job ends with each of them, and goes on."""
    from distributed import get_worker

    def answer(request: Mapping[str, Any], before: int) -> Mapping[str, Any]:
        if request["do"] == "check" or before == 5:
            return FINISHED
        worker: Any = get_worker()
        worker.log_event(request["topic"], {"index": 0, "process": 1, "steps": [before, 6]})
        threading.Event().wait(0.5)  # the sweep hears it before the outcome
        return {"state": "stopped"}

    _, told = run(ClusterOptions(scheduler), tmp_path, answer, 1)
    assert cells_asked() == [0] * 6
    assert told.count("it goes on from its checkpoint") == 5


def test_where_the_only_worker_is_not_fit(scheduler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_workers, "_OTHERS", 0.1)

    def answer(request: Mapping[str, Any], before: int) -> Mapping[str, Any]:
        return {"state": "failed", "told": "there is no data here"}

    with pytest.raises(UserError, match=r"no worker of the cluster is fit for this sweep: .*: there is no data here"):
        run(ClusterOptions(scheduler), tmp_path, answer)
    assert "is left out: there is no data here" in printed[-1]
    assert cells_asked() == []


def test_a_worker_with_a_full_disk_is_left_out(scheduler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_workers, "_OTHERS", 0.1)

    def answer(request: Mapping[str, Any], before: int) -> Mapping[str, Any]:
        if request["do"] == "run":
            return {"state": "full", "told": "No space left on device"}
        return FINISHED if before == 0 else {"state": "failed", "told": "cannot write to the folder"}

    with pytest.raises(UserError, match=r"no worker of the cluster is fit .* cannot write to the folder"):
        run(ClusterOptions(scheduler), tmp_path, answer, 2)
    assert len(cells_asked()) == 2  # one for each thread, and no more


def test_a_worker_that_is_left_out_and_dies_gives_back_its_other_cells(tmp_path: Path) -> None:
    from distributed import LocalCluster, get_worker

    released, first = threading.Event(), []

    def answer(request: Mapping[str, Any], before: int) -> Mapping[str, Any]:
        worker: Any = get_worker()
        if request["do"] == "check":
            if not before:
                first.append(worker.address)
            elif worker.address == first[0]:
                local.scale(2)
                worker.loop.add_callback(worker.close, executor_wait=False)
                return {"state": "failed", "told": "cannot write to the folder"}
        elif worker.address == first[0]:
            if request["index"] == 0:
                return {"state": "full", "told": "No space left on device"}
            released.wait()
        return FINISHED

    settings: dict[str, Any] = {"processes": False, "protocol": "tcp", "dashboard_address": "127.0.0.1:0"}
    with limited(60), LocalCluster(n_workers=1, threads_per_worker=2, **settings) as local:
        try:
            _, told = run(ClusterOptions(local.scheduler_address), tmp_path, answer, 2)
        finally:
            released.set()
    assert sorted(cells_asked()) == [0, 0, 1, 1]
    assert "r2mae, seed 1: the worker on" in told


def test_every_set_of_data_is_checked_once(scheduler: str, tmp_path: Path) -> None:
    rows = [Variant(f"row {name}", ImagesConfig(data="digits", validation=part, device="cpu", steps=2, resize=size))
            for name, part, size in [("a", 0.1, None), ("b", 0.2, None), ("c", 0.1, 16)]]  # fmt: skip
    _SIMULATED.asked, _SIMULATED.answer = [], lambda request, before: FINISHED
    runner = DaskRunner(ClusterOptions(scheduler), tmp_path, work, lambda run: True)
    run_missing(runs_of(rows, [0, 1], tmp_path), DOMAIN, runner, console=Console(file=StringIO()))
    checks = [request for request in _SIMULATED.asked if request["do"] == "check"]
    assert [[read["fields"]["resize"] for read in check["reads"]] for check in checks] == [[None, 16]]


def test_runs_that_have_weights_need_none_to_begin_with(scheduler: str, tmp_path: Path) -> None:
    config = ImagesConfig(data="digits", device="cpu", steps=2, model="vit-mae", init=str(tmp_path / "gone"))
    runs = runs_of([Variant("r2mae", config)], [0, 1], tmp_path)
    wanted = []
    for run in [None, *runs]:
        if run is not None:
            checkpoint = RunFolder(run.folder).checkpoint
            checkpoint.parent.mkdir(parents=True)
            checkpoint.touch()
        _SIMULATED.asked, _SIMULATED.answer = [], lambda request, before: FINISHED
        runner = DaskRunner(ClusterOptions(scheduler), tmp_path, work, lambda run: True)
        run_missing(runs, DOMAIN, runner, console=Console(file=StringIO()))
        wanted += [read["fields"]["init"] for one in _SIMULATED.asked if one["do"] == "check" for read in one["reads"]]
        assert all(one["fields"]["init"] for one in _SIMULATED.asked if one["do"] == "run")
    assert wanted == [config.init, config.init, None]


def test_a_cluster_that_is_started_for_a_sweep_is_closed_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dask's own cluster stands for the engines: it takes its arguments in the same way."""
    from distributed import LocalCluster

    closed = []

    class Watched(LocalCluster):
        def close(self, timeout: Any = None) -> Any:
            closed.append(True)
            return super().close(timeout)

    monkeypatch.setitem(ENGINES, "slurm", Engine("distributed", "distributed", "LocalCluster", "slurm", True))
    monkeypatch.setattr("r2mae.sweep.cluster.engine_class", lambda engine: Watched)
    settings = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": "127.0.0.1:0"}
    run(ClusterOptions("slurm", settings), tmp_path, lambda request, before: FINISHED)
    assert closed
    with pytest.raises(UserError, match=r"no cluster of slurm could be started: ."):
        run(ClusterOptions("slurm", {"whatever": 1}), tmp_path, lambda request, before: FINISHED)


def test_without_a_cluster_cells_run_here(tmp_path: Path) -> None:
    assert runner_of(None, 2, "cpu", tmp_path) == Processes(2, "cpu")
    assert isinstance(runner_of(ClusterOptions("tcp://127.0.0.1:1"), None, "cpu", tmp_path), DaskRunner)


def test_results_that_a_shared_disk_shows_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_runner, "_POLL", 0.001)
    seen = itertools.count()
    runs = runs_of([Variant("r2mae", CONFIG)], [0], tmp_path)
    dask_runner._await_results(runs, lambda run: next(seen) > 3)
    monkeypatch.setattr(dask_runner, "_SEEN", 0.01)
    with pytest.raises(UserError, match="is finished, and not seen here"):
        dask_runner._await_results(runs, lambda run: False)
