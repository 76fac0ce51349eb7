"""Trackers by stand-ins where they are not installed: what a run is called there, what it records, when it ends."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from r2mae.errors import UserError
from r2mae.training import loggers
from r2mae.training.config import RunConfig
from r2mae.training.folder import RunFolder
from r2mae.training.loggers import tracker_of


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loggers, "check_logger", lambda name: None)


def config(tracker: str) -> RunConfig:
    return RunConfig.make(data="x", logger=tracker)  # type: ignore[arg-type]


class Wandb:
    """As the package: one run at a time in a process."""

    def __init__(self) -> None:
        self.run: Any = None
        self.logged: list[dict[str, float]] = []
        self.ended: list[int] = []

    def init(self, **options: Any) -> Any:
        self.options = options
        self.run = SimpleNamespace(id=options["id"], log=self.logged.append, define_metric=lambda *_, **__: None)
        return self.run

    def finish(self, exit_code: int) -> None:
        self.ended.append(exit_code)
        self.run = None


def test_a_run_of_wandb_ends_with_its_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the next run of this process would be written into it; one that the caller opened stays open."""
    wandb = Wandb()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    for _ in range(2):  # the second resumes
        with tracker_of(config("wandb"), RunFolder(tmp_path)) as tracker:
            assert tracker is not None
            tracker.log({"loss": 0.5}, 3)
        identity = json.loads((tmp_path / "tracker.json").read_text())["id"]
        assert (wandb.options["id"], wandb.options["resume"]) == (identity, "allow")
        assert wandb.options["config"]["data"] == "x"
    assert wandb.logged == [{"loss": 0.5, "trainer/global_step": 3}] * 2
    with pytest.raises(KeyboardInterrupt), tracker_of(config("wandb"), RunFolder(tmp_path)):
        raise KeyboardInterrupt
    assert wandb.ended == [0, 0, 1]
    callers = wandb.run = SimpleNamespace(id="the caller's", log=wandb.logged.append)
    with tracker_of(config("wandb"), RunFolder(tmp_path)) as tracker:
        assert tracker is not None
        tracker.log({"loss": 0.25}, 4)
    assert wandb.logged[-1]["loss"] == 0.25
    assert wandb.run is callers


class MLFlow:
    """As the client of the package."""

    made = 0
    logged: list[tuple[str, str, float, int]] = []  # noqa: RUF012
    ended: list[tuple[str, str]] = []  # noqa: RUF012

    def __init__(self, *, tracking_uri: str) -> None:
        self.uri = tracking_uri

    def get_experiment_by_name(self, name: str) -> Any:
        return None if MLFlow.made == 0 else SimpleNamespace(experiment_id="1")

    def create_experiment(self, name: str) -> str:
        return "1"

    def create_run(self, experiment: str, *, run_name: str) -> Any:
        MLFlow.made += 1
        return SimpleNamespace(info=SimpleNamespace(run_id=f"run {MLFlow.made}"))

    def log_metric(self, run: str, name: str, value: float, *, step: int) -> None:
        MLFlow.logged.append((run, name, value, step))

    def set_terminated(self, run: str, status: str) -> None:
        MLFlow.ended.append((run, status))


def test_a_run_resumes_in_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace(MlflowClient=MLFlow))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    for _ in range(2):
        with tracker_of(config("mlflow"), RunFolder(tmp_path)) as tracker:
            assert tracker is not None
            tracker.log({"loss": 0.5}, 3)
    assert MLFlow.logged == [("run 1", "loss", 0.5, 3)] * 2
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://elsewhere")
    with pytest.raises(RuntimeError), tracker_of(config("mlflow"), RunFolder(tmp_path)):
        raise RuntimeError
    assert MLFlow.ended == [("run 1", "FINISHED")] * 2 + [("run 2", "FAILED")], "another store does not know run 1"


def test_no_tracker_and_one_that_cannot_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tracker_of(config("none"), RunFolder(tmp_path)) as tracker:
        assert tracker is None
    monkeypatch.setitem(sys.modules, "wandb", None)
    folder = RunFolder(tmp_path)
    with pytest.raises(UserError, match="the logger 'wandb' cannot be used"), tracker_of(config("wandb"), folder):
        pytest.fail("there is none")


def test_points_after_the_checkpoint_are_in_tensorboard_once(tmp_path: Path) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    for begun, steps in ((0, (50, 100, 150)), (100, (150, 200))):
        with tracker_of(config("tensorboard"), RunFolder(tmp_path), begun) as tracker:
            assert tracker is not None
            for step in steps:
                tracker.log({"loss": 0.5}, step)
    found = events.EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [point.step for point in found.Scalars("loss")] == [50, 100, 150, 200]
