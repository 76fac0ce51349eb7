"""Which workers get runs, and how many at once: the scheduler here is a stand-in."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from r2mae.errors import UserError
from r2mae.sweep import dask_workers
from r2mae.sweep.dask_worker import about
from r2mae.sweep.dask_workers import LostError, Workers

GB = 10**9
CHECK = {"do": "check", "topic": "t"}


class Scheduler:
    """Stands for a client: workers join by an entry in `there`, and pass their check with the device of that name."""

    status = "running"

    def __init__(self) -> None:
        self.there: dict[str, dict[str, Any]] = {}
        self.devices: dict[str, str] = {}
        self.versions: dict[str, Any] = {}
        self.frozen: set[str] = set()
        self.busy: set[str] = set()
        self.cancelled: list[str] = []
        self.scheduler = SimpleNamespace(identity=None)

    def join(self, name: str, device: str = "cpu", **told: Any) -> None:
        self.there[name] = {"status": "running", "nthreads": 1, "memory_limit": None, "resources": {}, **told}
        self.devices[name] = device

    def sync(self, ask: Any, callback_timeout: float, n_workers: int = 0) -> dict[str, Any]:
        assert 0 < callback_timeout <= 60
        return {"workers": dict(self.there)} if n_workers else asyncio.run(ask())

    async def run(self, ask: Any, workers: list[str], on_error: str) -> dict[str, Any]:
        if self.frozen & set(workers):
            await asyncio.Event().wait()
        return {name: self.versions.get(name, about()) for name in workers}

    def submit(self, work: Any, request: Any, workers: list[str], **more: Any) -> Any:
        name = workers[0]
        outcome = {"state": "finished", "device": self.devices[name]}
        cancel = lambda: self.cancelled.append(name)  # noqa: E731
        return SimpleNamespace(done=lambda: name not in self.busy, result=lambda timeout: outcome, cancel=cancel)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_workers, "_LOOK", 0.0)


@pytest.fixture
def scheduler() -> Scheduler:
    return Scheduler()


def seen(
    scheduler: Scheduler, *, memory: int | None = None, patient: bool = False, lines: list[str] | None = None
) -> Workers:
    """What a sweep knows after two looks: one that begins the checks, and one that hears of their ends."""
    say = (lambda line: None) if lines is None else lines.append
    workers = Workers(scheduler, CHECK, lambda request: {}, memory, say, patient=patient)
    workers.look()
    workers.look()
    return workers


def room(workers: Workers) -> list[str]:
    """Take all there is; the workers that were given, in this order."""
    given = []
    while (address := workers.free()) is not None:
        workers.take(address)
        given.append(address)
    return given


def test_a_worker_has_room_for_as_many_cells_as_it_has_threads(scheduler: Scheduler) -> None:
    scheduler.join("a", nthreads=1)
    scheduler.join("b", nthreads=3)
    workers = seen(scheduler)
    assert room(workers) == ["b", "b", "a", "b"]  # the most room first
    workers.give("b")
    assert room(workers) == ["b"]
    assert workers.resources("b") == {}


@pytest.mark.parametrize(
    ("told", "runs", "taken"),
    [
        ({"nthreads": 8, "memory_limit": 10 * GB}, 3, {}),
        ({"nthreads": 2, "memory_limit": 10 * GB}, 2, {}),
        ({"nthreads": 8, "memory_limit": 10 * GB, "resources": {"MEMORY": 7e9}}, 2, {"MEMORY": 3e9}),
        ({"nthreads": 8}, 8, {}),
    ],
)
def test_no_more_cells_than_fit_into_memory(
    scheduler: Scheduler, told: dict[str, Any], runs: int, taken: dict[str, float]
) -> None:
    scheduler.join("a", **told)
    workers = seen(scheduler, memory=3 * GB)
    assert room(workers) == ["a"] * runs
    assert workers.resources("a") == taken


def test_a_gpu_is_a_resource(scheduler: Scheduler) -> None:
    lines: list[str] = []
    scheduler.join("a", "cuda", nthreads=8, resources={"GPU": 2})
    scheduler.join("b", "cuda", nthreads=8)
    scheduler.join("c", "cpu", nthreads=8)
    workers = seen(scheduler, lines=lines)
    assert room(workers) == ["a", "a"]
    assert workers.resources("a") == {"GPU": 1.0}
    assert "start it with --resources GPU=1" in lines[0]
    assert "its device is cpu, and that of others cuda" in lines[1]


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ({**about(), "torch": "1.0"}, "it has torch 1.0, and this machine"),
        (ModuleNotFoundError("No module named 'r2mae'", name="r2mae"), "r2mae of this version is not installed there"),
        (OSError("the connection broke"), "the connection broke"),
    ],
)
def test_workers_that_are_not_fit(
    scheduler: Scheduler, version: Any, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    scheduler.join("a")
    scheduler.versions["a"] = version
    workers = seen(scheduler, lines=lines)
    assert words in lines[0]
    assert room(workers) == []
    monkeypatch.setattr(dask_workers, "_OTHERS", -1.0)
    with pytest.raises(UserError, match="no worker of the cluster is fit for this sweep"):
        workers.look()


def test_too_little_memory(scheduler: Scheduler) -> None:
    lines: list[str] = []
    scheduler.join("a", memory_limit=2 * GB)
    assert room(seen(scheduler, memory=3 * GB, lines=lines)) == []
    assert "it has 2 GB of memory, and a run takes 3 GB" in lines[0]


def test_workers_come_and_go(scheduler: Scheduler) -> None:
    scheduler.join("a")
    workers = seen(scheduler)
    scheduler.join("b")
    scheduler.join("closing", status="closing")
    assert workers.look() == []
    assert workers.look() == []
    assert sorted(room(workers)) == ["a", "b"]
    del scheduler.there["a"]
    assert workers.look() == ["a"]
    workers.give("a")
    assert workers.look() == []
    workers.drop("b")  # it seems to end; it does not, and is checked again
    assert workers.free() is None
    workers.look()
    workers.look()
    assert room(workers) == []  # its run is still there
    workers.give("b")
    assert room(workers) == ["b"]


def test_a_dropped_worker_keeps_its_other_cells(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler.join("a", nthreads=3)
    workers = seen(scheduler)
    assert room(workers) == ["a"] * 3
    workers.give("a")
    workers.drop("a")
    assert workers.known() == ["a"]
    scheduler.versions["a"] = OSError("the connection broke")
    monkeypatch.setattr(dask_workers, "_OTHERS", -1.0)
    assert workers.look() == []  # it is refused, and no reason to end while its runs run
    assert workers.known() == ["a"]
    del scheduler.there["a"]
    assert workers.look() == ["a"]
    assert workers.known() == []


def test_a_worker_that_gives_no_answer_holds_up_no_other(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr(dask_workers.ask, "__kwdefaults__", {"seconds": 0.1})
    scheduler.join("a")
    scheduler.join("b")
    scheduler.frozen = {"a"}
    workers = seen(scheduler, lines=lines)
    assert room(workers) == ["b"]
    assert lines == ["worker a gives no answer; it is asked again in 60 s"]  # not at the second look
    scheduler.frozen = set()
    monkeypatch.setattr(dask_workers, "_WAIT", 0.0)
    workers.look()
    workers.look()
    assert room(workers) == ["a"]


def test_a_check_that_waits_is_told_of_and_one_that_does_not_end_is_given_up(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    monkeypatch.setattr(dask_workers, "_WAIT", -1.0)
    scheduler.join("a")
    scheduler.join("b")
    scheduler.busy = {"a", "b"}
    workers = seen(scheduler, lines=lines)
    assert "(a): its check, and those of 1 more, asked for 0 min ago, waits: is the worker busy?" in lines[0]
    monkeypatch.setattr(dask_workers, "_JOIN", -1.0)
    workers.look()  # a busy worker may be as long as it likes
    assert scheduler.cancelled == []
    workers.begun("a")
    workers.look()
    assert scheduler.cancelled == ["a"]
    assert any("(a) is left out: its check has not ended" in line for line in lines)
    scheduler.busy = {"a"}
    workers.look()
    assert room(workers) == ["b"]


def test_a_cluster_without_workers(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    patient, other = seen(scheduler, patient=True, lines=lines), seen(scheduler)
    monkeypatch.setattr(dask_workers, "_JOIN", -1.0)
    monkeypatch.setattr(dask_workers, "_WAIT", -1.0)
    with pytest.raises(UserError, match="has had no worker for"):
        other.look()
    patient.look()
    assert lines == ["no worker yet, after 0 min"]
    scheduler.join("a")
    scheduler.versions["a"] = OSError("the connection broke")
    monkeypatch.setattr(dask_workers, "_OTHERS", -1.0)
    patient.look()  # a bad node of many does not end the sweep
    assert lines[-1] == "no worker yet, after 0 min (a is left out: the connection broke)"


def test_a_scheduler_that_has_gone(scheduler: Scheduler) -> None:
    workers = seen(scheduler)

    def gone(*words: Any, **more: Any) -> Any:
        raise OSError("Timed out")

    scheduler.sync = gone  # type: ignore[method-assign]
    with pytest.raises(LostError, match="rerun the same command to resume"):
        workers.look()
    scheduler.status = "closed"
    with pytest.raises(LostError, match="the scheduler of the cluster has gone"):
        workers.check_scheduler()
