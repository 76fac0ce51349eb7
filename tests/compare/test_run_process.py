"""The process of a run: what it tells, what it refuses, and how it ends."""

import copyreg
import errno
import multiprocessing
import signal
import threading
import time
from collections.abc import Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from compare.dask_cluster import held, limited
from r2mae.compare import measure
from r2mae.compare import run as run_process
from r2mae.compare.run import DiedError, Request, compute
from r2mae.errors import UserError
from r2mae.images.config import ImagesConfig
from r2mae.images.domain import DOMAIN
from r2mae.progress import RunProgress
from r2mae.training.folder import FolderLock, InUseError
from r2mae.training.interrupt import StopRequest

CONFIG = ImagesConfig.make(data="digits", device="cpu", steps=2, hidden=8, latent=4, threads=1)


@pytest.fixture(autouse=True)
def limit() -> Iterator[None]:
    with limited(300):
        yield


@pytest.fixture
def request_(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Request:
    monkeypatch.chdir(tmp_path)
    return Request(0, "images", CONFIG.to_dict(), str(tmp_path / "run"))


def answered(request: Request) -> tuple[Any, ...]:
    """What a process would send."""
    return run_process._answer(request, Pipe()[0])


def test_other_data_are_refused(request_: Request, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "train_run", lambda *words: 1 // 0)
    for fingerprint, expected in (("another", UserError), (DOMAIN.fingerprint(CONFIG), ZeroDivisionError)):
        kind, error = answered(Request(**{**vars(request_), "fingerprint": fingerprint}))
        assert kind == "failed"
        assert type(error) is expected
        assert ("is not the same there" in str(error)) is (expected is UserError)


class TwoValuesError(Exception):
    """An error that can be sent, but not received: it is made again of its message alone."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(one + two)


def test_an_error_comes_with_its_place(request_: Request, monkeypatch: pytest.MonkeyPatch) -> None:
    class Own(Exception):
        pass  # a local class cannot be sent

    def full(*words: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "metrics.csv")

    def own(*words: Any) -> None:
        raise Own

    def two_values(*words: Any) -> None:
        raise TwoValuesError("one", "two")

    monkeypatch.delitem(copyreg.dispatch_table, TwoValuesError, raising=False)  # Dask's libraries can send it
    monkeypatch.setattr(measure, "train_run", full)
    error = answered(request_)[1]
    assert (error.errno, error.filename) == (errno.ENOSPC, "metrics.csv")  # as the command words it
    assert "in full" in error.__notes__[0]
    for mistaken in (own, two_values):
        monkeypatch.setattr(measure, "train_run", mistaken)
        error = answered(request_)[1]
        assert type(error) is RuntimeError
        assert f"in {mistaken.__name__}" in str(error)


def test_a_run_waits_for_the_process_of_a_lost_worker(
    request_: Request, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def free(*words: Any) -> None:
        with FolderLock(tmp_path / "run"):
            raise ZeroDivisionError

    monkeypatch.setattr(measure, "train_run", free)
    with held(tmp_path / "run") as other:
        threading.Timer(0.5, other.kill).start()
        assert isinstance(answered(request_)[1], ZeroDivisionError)
    monkeypatch.setattr(run_process, "_LOCK", 0.0)
    with held(tmp_path / "run"):
        assert isinstance(answered(request_)[1], InUseError)


def test_a_lock_that_is_held_differs_from_a_disk_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with held(tmp_path), pytest.raises(InUseError, match="in use by another process"), FolderLock(tmp_path):
        pass

    def none(*words: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("r2mae.training.folder.fcntl.lockf", none)
    with pytest.raises(UserError, match="cannot be locked") as caught, FolderLock(tmp_path):
        pass
    assert not isinstance(caught.value, InUseError)


@pytest.mark.parametrize(
    ("code", "words"),
    [(-9, "was killed by SIGKILL (out of memory?)"), (-15, "was killed by SIGTERM"), (1, "ended with exit code 1")],
)
def test_the_ways_to_end(code: int, words: str) -> None:
    assert run_process._ending(code) == words


def test_a_run_that_trains_is_asked_once_to_save_its_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a signal to the whole group of processes has asked it already: twice would mean at once."""
    monkeypatch.setattr(run_process, "PATIENCE", 0.0)
    ended: list[int] = []
    monkeypatch.setattr(run_process.os, "_exit", ended.append)
    with StopRequest() as stop:
        run_process._await_end(Pipe()[0])
        assert stop.number == signal.SIGTERM
        run_process._await_end(Pipe()[0])
    assert ended == [1, 1]


def test_progress_is_told_now_and_then_and_at_the_end() -> None:
    here, there = Pipe()
    reporter = run_process._PipeReporter(there)
    reporter.start(0, 1000)
    for step in range(1, 1001):
        reporter.update(RunProgress(step, 1000, 0.0, 0.0, 0.0))
    reporter.stop()
    told = [here.recv() for _ in iter(here.poll, False)]
    assert told[0] == ("steps", 0, 1000)
    assert told[-1] == ("steps", 1000, 1000)
    assert len(told) < 100
    here.close()
    reporter.start(0, 1000)  # nobody listens; the step is saved nevertheless


def _deaf(request: Request, pipe: Connection) -> None:
    pipe.recv()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)


def _telling(request: Request, pipe: Connection) -> None:
    pipe.send(("steps", 1, 2))
    pipe.recv()


@pytest.mark.slow
def test_a_process_whose_progress_cannot_be_told_ends(request_: Request, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_process, "_serve", _telling)
    before = len(multiprocessing.active_children())  # other tests may have some
    with pytest.raises(ZeroDivisionError):
        compute(request_, lambda done, planned: 1 // 0, lambda: False)  # type: ignore[arg-type]
    assert len(multiprocessing.active_children()) <= before


@pytest.mark.slow
def test_a_process_that_does_not_end_is_killed(request_: Request, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_process, "PATIENCE", 0.5)
    monkeypatch.setattr(run_process, "_serve", _deaf)
    with pytest.raises(DiedError, match="SIGKILL"):
        compute(request_, lambda done, planned: None, lambda: True)


@pytest.mark.slow
def test_a_process_tells_scores_steps_and_errors(request_: Request, tmp_path: Path) -> None:
    reported: list[tuple[int, int]] = []
    bad = Request(**{**vars(request_), "environment": {}, "fields": {**request_.fields, "data": "nowhere"}})
    with pytest.raises(UserError, match="nowhere"):
        compute(bad, lambda *steps: reported.append(steps), lambda: False)
    seconds, scores = compute(request_, lambda *steps: reported.append(steps), lambda: False)
    assert seconds > 0
    assert 0 < scores["probe_accuracy"] <= 1
    assert reported[-1] == (2, 2)
