"""The metrics file; trackers by stand-ins: what a run is called there, what it records, when it ends."""

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from r2mae.errors import UserError
from r2mae.training.config import RunConfig
from r2mae.training.folder import RunFolder
from r2mae.training.metrics import COLUMNS, MetricsFile, tracker_of


def test_rows_after_the_checkpoint_are_cut(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    with MetricsFile(path) as metrics:
        metrics.write([[step, 0.5, 1 / step, 1e-3, None] for step in range(1, 11)])
        metrics.sync()
    whole = path.read_text()
    with MetricsFile(path, keep=6) as metrics:
        metrics.write([[step, 0.5, 1 / step, 1e-3, None] for step in range(7, 11)])
    assert path.read_text() == whole
    assert whole.splitlines()[0] == ",".join(COLUMNS)
    assert whole.splitlines()[3] == "3,0.5,0.333333333,0.001,"


@pytest.mark.parametrize("what", ["link", "pipe"])
def test_a_file_from_elsewhere_is_not_gone_on_with(tmp_path: Path, what: str) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "mine").write_text("mine")
    path = tmp_path / "run" / "metrics.csv"
    if what == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(tmp_path / "mine")
    with pytest.raises(UserError, match=r"metrics\.csv cannot be read \(it is "):
        MetricsFile(path)
    assert (tmp_path / "mine").read_text() == "mine"


def test_a_file_with_a_hole_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    with MetricsFile(path) as metrics:
        metrics.write([[step, 0.5, 1.0, 0.1, None] for step in range(1, 11)])
    lines = path.read_text().splitlines(keepends=True)
    for broken in (lines[:3] + lines[5:], [], ["junk\n"]):
        path.write_text("".join(broken))
        for step in (10**9, 10**25):
            with pytest.raises(UserError, match=f"lacks steps before the checkpoint's step {step}: delete"):
                MetricsFile(path, keep=step)
        with pytest.raises(UserError, match="lacks steps before the checkpoint's step 8: delete"):
            MetricsFile(path, keep=8)


def test_a_row_cut_short_by_a_crash_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text("step,ratio,loss,lr,validation_loss\n1,0.5,1,0.1,\n2,0.5,1,0.1,0.25\n3,0.5")
    with MetricsFile(path, keep=2):
        pass
    assert path.read_text().splitlines()[1:] == ["1,0.5,1,0.1,", "2,0.5,1,0.1,0.25"]


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
            tracker({"loss": 0.5}, 3)
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
        tracker({"loss": 0.25}, 4)
    assert wandb.logged[-1]["loss"] == 0.25
    assert wandb.run is callers


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
                tracker({"loss": 0.5}, step)
    found = events.EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [point.step for point in found.Scalars("loss")] == [50, 100, 150, 200]
