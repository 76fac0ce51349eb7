"""What a worker looks at before its first run, and what it says of a run that fails."""

import errno
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from r2mae.errors import UserError
from r2mae.images.config import ImagesConfig
from r2mae.images.domain import DOMAIN
from r2mae.sweep import run_process, train_run
from r2mae.sweep.run_process import CELL_LOCK, MEETING, TOKEN, answer, whole_cell
from r2mae.training.folder import FolderLock, InUseError
from sweep.dask_cluster import held, limited

CONFIG = ImagesConfig(data="digits", device="cpu", steps=2, hidden=8, latent=4)


@pytest.fixture(autouse=True)
def limit() -> Iterator[None]:
    with limited(300):
        yield


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(run_process, "_SEEN", 0.01)
    monkeypatch.setattr(run_process, "_RETRY", 0.01)
    monkeypatch.chdir(tmp_path)
    meeting = tmp_path / MEETING
    meeting.mkdir()
    (meeting / TOKEN).write_text("token", encoding="ascii")
    return {
        "do": "check",
        "cwd": str(tmp_path),
        "folder": str(tmp_path),
        "token": "token",
        "domain": "images",
        "fields": CONFIG.to_dict(),
        "reads": [{"fields": CONFIG.to_dict(), "fingerprint": DOMAIN.fingerprint(CONFIG)}],
    }


def nothing(message: Mapping[str, Any]) -> None:
    """Hear nothing."""


def refused(request: dict[str, Any], state: str = "failed") -> str:
    outcome = answer(request, nothing)
    assert outcome["state"] == state
    return str(outcome["told"])


def test_a_worker_that_sees_all_is_fit_and_leaves_nothing(asked: dict[str, Any], tmp_path: Path) -> None:
    with held(tmp_path / MEETING):
        outcome = answer(asked, nothing)
        assert (outcome["state"], outcome["device"]) == ("finished", "cpu")
        assert {path.name for path in (tmp_path / MEETING).iterdir()} == {TOKEN, ".lock"}
        first = asked["reads"][0]
        for others in ([], [first]):
            changed = [*others, {**first, "fingerprint": "another"}]
            assert "is not the same there" in refused({**asked, "reads": changed})
            gone = [*others, {**first, "fields": {**asked["fields"], "data": "images/of-mine"}}]
            assert "of-mine" in refused({**asked, "reads": gone})


def test_another_folder_under_the_same_name(asked: dict[str, Any]) -> None:
    assert "is not the same folder there" in refused({**asked, "token": "another"})
    assert "is not the same folder there" in refused({**asked, "folder": "/nowhere"})


def test_a_disk_without_locks(asked: dict[str, Any]) -> None:
    """Nobody is seen to hold the lock, which the command holds."""
    assert "locks of" in refused(asked)


def test_a_full_disk(asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*words: Any, **more: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "metrics.csv")

    monkeypatch.setattr(run_process.os, "fsync", full)
    assert "No space left on device" in refused(asked)
    monkeypatch.setattr(train_run, "train_run", full)
    run = {**asked, "do": "run", "run": asked["folder"], "baseline": None}
    told = refused(run, "full")
    assert told == "metrics.csv: No space left on device; free some space, and rerun the same command to resume"


def test_a_cell_is_heard_of_before_it_loads(asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[Mapping[str, Any]] = []
    monkeypatch.setattr(train_run, "train_run", lambda *words: 1 // 0)
    answer({**asked, "do": "run", "run": asked["folder"], "baseline": None}, heard.append)
    assert heard == [{"steps": [0, 0]}]


def test_an_error_of_the_program_comes_with_its_place(asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train_run, "train_run", lambda *words: 1 // 0)
    outcome = answer({**asked, "do": "run", "run": asked["folder"], "baseline": None}, nothing)
    assert outcome["state"] == "broken"
    assert "ZeroDivisionError" in outcome["told"]


def test_a_cell_waits_for_the_process_of_a_lost_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_process, "_RETRY", 0.01)
    heard: list[Mapping[str, Any]] = []
    with held(tmp_path, CELL_LOCK) as other:

        def hear(message: Mapping[str, Any]) -> None:
            heard.append(message)
            other.kill()

        with whole_cell(tmp_path, hear):
            assert "process" in (tmp_path / CELL_LOCK).read_text(encoding="utf-8")
    assert "process 7 on host-b" in heard[0]["note"]
    with whole_cell(tmp_path, nothing), FolderLock(tmp_path):
        pass  # the lock of the run itself is another one


def test_a_cell_does_not_wait_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_process, "_RETRY", 0.01)
    with (
        held(tmp_path, CELL_LOCK),
        pytest.raises(UserError, match="in use by process 7 on host-b, which the cluster has lost"),
        whole_cell(tmp_path, nothing, patience=0.05),
    ):
        pass


def test_a_lock_that_is_held_differs_from_a_disk_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with held(tmp_path), pytest.raises(InUseError, match="in use by another process"), FolderLock(tmp_path):
        pass

    def none(*words: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("r2mae.training.folder.fcntl.lockf", none)
    with pytest.raises(UserError, match="on a disk without locks") as caught, FolderLock(tmp_path):
        pass
    assert not isinstance(caught.value, InUseError)
