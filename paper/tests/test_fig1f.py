"""Fig. 1F from a table of one's own: by command, with its numbers, its picture, and errors of one line."""

import csv
from pathlib import Path

import numpy as np
import pytest

from r2mae.cli.main import main
from r2mae_paper.studies import ENTRIES

ERRORS = {"sst2": [0.08, 0.07, 0.075, 0.09, 0.12], "mnli": [0.2, 0.18, 0.18, 0.2, 0.28]}
RATIOS = (0.15, 0.3, 0.4, 0.5, 0.8)
LINES = [
    "task,ratio,accuracy",
    *(f"{task},{ratio},{1 - error}" for task, own in ERRORS.items() for ratio, error in zip(RATIOS, own, strict=True)),
]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_command_writes_table_and_picture(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "a.csv").write_text("\n".join(LINES[:6]) + "\n")
    (here / "b.csv").write_text("\ufeff" + "\r\n".join([LINES[0], *LINES[6:]]), encoding="utf-8")
    assert main(["reproduce", "fig1f", "--curve", "a.csv", "b.csv", "--out", "out"]) == 0
    assert ENTRIES["fig1f"].title in capsys.readouterr().out
    with (here / "out" / "fig1f" / "fig1f.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["task"] for row in rows] == ["sst2"] * 5 + ["mnli"] * 5
    slopes = []
    for task, own in ERRORS.items():
        mine = [float(row["scaled"]) for row in rows if row["task"] == task]
        slopes.append((mine[4] - mine[2]) / 0.4)
        assert 2 * mine[0] - mine[1] == pytest.approx(0, abs=1e-5)  # at ratio 0
        np.testing.assert_allclose([float(row["error"]) for row in rows if row["task"] == task], own, atol=1e-6)
    assert slopes[0] == pytest.approx(slopes[1], rel=1e-4)
    assert (here / "out" / "fig1f" / "fig1f.png").stat().st_size > 10_000
    svg = (here / "out" / "fig1f" / "fig1f.svg").read_text(encoding="utf-8")
    for word in ("sst2", "mnli", "scaled error rate", "mask ratio p"):
        assert word in svg


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "No such file or directory: 'a.csv'): expected a CSV file with the columns task, ratio and accuracy"),
        (b"", "a.csv is empty: expected"),
        (b"\xff\xfe\x00", "a.csv is not text: expected"),
        (b'task,ratio,accuracy\n"sst2,0.1', "a.csv is truncated or damaged"),
        (b"task,ratio,accuracy\nsst2,0.1\nsst2,0.1,2,3,4,5", "a.csv is truncated or damaged"),
        (b"task,mask,accuracy\nsst2,0.1,0.9", "a.csv: has no column 'ratio' (it has task, mask, accuracy)"),
        (b"task,ratio,accuracy\nsst2,0.15,0.9\n,0.15,0.9", "a.csv: row 2 names no task"),
        (b"task,ratio,accuracy", "a.csv: has no rows"),
        (b"task,ratio,accuracy\nsst2,0.15,93", "a.csv: row 1 has accuracy '93'"),
        (b"task,ratio,accuracy\nsst2,0.15,", "a.csv: row 1 has accuracy ''"),
        (b"task,ratio,accuracy\nsst2,0.15,0.9", "a.csv: task 'sst2' has no accuracy at ratio 0.3"),
    ],
)
def test_broken_tables_are_told_in_one_line_before_anything_is_written(
    here: Path, content: bytes | None, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (here / "a.csv").write_bytes(content)
    assert main(["reproduce", "fig1f", "--curve", "a.csv", "--out", "out"]) == 2
    out, err = capsys.readouterr()
    assert told in err
    assert len(err.splitlines()) == 1
    assert not out
    assert not (here / "out").exists()


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("reproduce fig1f", "fig1f needs a table of accuracies: --curve FILE.csv"),
        ("reproduce fig1b --curve a.csv", "--curve belongs to fig1f"),
        ("reproduce fig1f --curves a.csv", "did you mean '--curve'"),
    ],
)
def test_the_option_and_the_figure_go_together(
    here: Path, line: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line.split()) == 2
    err = capsys.readouterr().err
    assert told in err
    assert len(err.splitlines()) == 1
    assert not list(here.iterdir())
