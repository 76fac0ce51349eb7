import os
from pathlib import Path

import pytest

from r2mae.errors import UserError
from r2mae.training.metrics import COLUMNS, MetricsFile


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
