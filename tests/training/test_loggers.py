"""Trackers that are not installed here, by stand-ins: what a run is called there, and when it ends."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning.pytorch.loggers as lightning_loggers
import pytest

from r2mae.training import loggers
from r2mae.training.config import RunConfig
from r2mae.training.folder import RunFolder
from r2mae.training.loggers import finish_logger, make_logger


class Wandb:
    """As Lightning's logger of W&B: it takes the run that is open in this process."""

    def __init__(self, **options: Any) -> None:
        self.asked = options["id"]


class MLFlow:
    """As Lightning's logger of MLflow, which names a run that is not given."""

    made = 0

    def __init__(self, *, run_id: str | None = None, **_: Any) -> None:
        MLFlow.made += run_id is None
        self.run_id = run_id or f"run {MLFlow.made}"


@pytest.fixture(autouse=True)
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loggers, "check_logger", lambda name: None)
    monkeypatch.setattr(lightning_loggers, "WandbLogger", Wandb)
    monkeypatch.setattr(lightning_loggers, "MLFlowLogger", MLFlow)


def config(tracker: str) -> RunConfig:
    return RunConfig(data="x", logger=tracker)  # type: ignore[arg-type]


def test_a_run_of_wandb_ends_with_its_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the next run of this process would be written into it; one that the caller opened stays open."""
    ended: list[str] = []
    wandb = SimpleNamespace(run=None, finish=lambda: ended.append("ended"))
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    logger = make_logger(config("wandb"), RunFolder(tmp_path))
    assert isinstance(logger, Wandb)
    identity = json.loads((tmp_path / "tracker.json").read_text())["id"]
    for run, expected in (
        (None, []),
        (SimpleNamespace(id="the caller's"), []),
        (SimpleNamespace(id=identity), ["ended"]),
    ):
        wandb.run = run
        finish_logger(logger, RunFolder(tmp_path))  # type: ignore[arg-type]
        assert ended == expected
    again = make_logger(config("wandb"), RunFolder(tmp_path))
    assert isinstance(again, Wandb)
    assert again.asked == identity
    finish_logger(None, RunFolder(tmp_path))


def test_a_run_resumes_in_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (make_logger(config("mlflow"), RunFolder(tmp_path)) for _ in range(2))
    assert isinstance(first, MLFlow)
    assert isinstance(second, MLFlow)
    assert first.run_id == second.run_id
    assert MLFlow.made == 1
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://elsewhere")
    third = make_logger(config("mlflow"), RunFolder(tmp_path))
    assert isinstance(third, MLFlow)
    assert third.run_id != first.run_id, "another store does not know that run"
