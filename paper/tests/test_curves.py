"""Published accuracies of the user's: read, laid over the linear model, and drawn by model."""

import csv
from pathlib import Path

import numpy as np
import pytest

from r2mae.cli.main import main
from r2mae.errors import UserError
from r2mae_paper.curves import by_task, likeness, read_curves

LINES = ["task,ratio,accuracy,note", "probe,0.1,0.5,x", "probe,0.5,0.7,x", "probe,0.75,0.6,x", "tuned,0.5,0.9,x"]
MODELS = [
    "model,task,ratio,accuracy",
    *(f"{model},sst2,{ratio},{0.9 - (ratio - best) ** 2:.4f}" for model, best in (("base", 0.3), ("large", 0.4))
      for ratio in (0.15, 0.3, 0.4, 0.8)),
    "base,mnli,0.15,0.8",
    "base,mnli,0.15,0.7",
]  # fmt: skip


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("\n".join(LINES) + "\n")
    (tmp_path / "models.csv").write_text("\n".join(MODELS) + "\n")
    return tmp_path


def rows_in(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as opened:
        return list(csv.DictReader(opened))


def test_tables_are_read_one_after_the_other(here: Path) -> None:
    assert read_curves([here / "a.csv", here / "a.csv"])[3:5] == [
        {"task": "tuned", "ratio": 0.5, "accuracy": 0.9},
        {"task": "probe", "ratio": 0.1, "accuracy": 0.5},
    ]
    first = read_curves([here / "models.csv"], ("model", "task"))[0]
    assert first == {"model": "base", "task": "sst2", "ratio": 0.15, "accuracy": 0.8775}
    (here / "b.csv").write_text("task,ratio,accuracy\nprobe,0.1,0.5\nprobe,40,0.5\n")
    with pytest.raises(UserError, match=r"b\.csv: row 2 has ratio '40', expected a fraction"):
        read_curves([here / "a.csv", here / "b.csv"])


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("sst2,0.15,0.9,0.1", "4 cells in row 1, and 3 headings"),
        (None, "has rows of several models"),
    ],
)
def test_tables_that_would_be_misread_are_refused(here: Path, line: str | None, told: str) -> None:
    (here / "b.csv").write_text(f"task,ratio,accuracy\n{line}\n" if line else "\n".join(MODELS))
    with pytest.raises(UserError, match=told):
        read_curves([here / "b.csv"])


def test_likeness_is_over_the_ratios_of_both() -> None:
    ratios = np.linspace(0.1, 0.7, 13)
    published = [{"task": "a", "ratio": ratio, "accuracy": 1 - ratio**2} for ratio in (0.1, 0.3, 0.3, 0.5, 0.9)]
    same, opposite = likeness(published, {"same": (ratios, 3 * ratios**2 + 1), "opposite": (ratios, -(ratios**2))})
    assert (same["task"], same["curve"], same["ratios"]) == ("a", "same", 3)
    assert same["pearson"] == pytest.approx(1)
    assert (opposite["pearson"], opposite["spearman"]) == (pytest.approx(-1), pytest.approx(-1))
    (flat,) = likeness(published, {"flat": (ratios, np.ones(13))})
    assert np.isnan(flat["pearson"])
    np.testing.assert_allclose(by_task(published)["a"][1], [0.01, 0.09, 0.25, 0.81])


@pytest.mark.parametrize("name", ["fig1g", "fig4"])
def test_accuracies_lie_over_the_linear_model(here: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["reproduce", name, "--scale", "small"]
    assert main([*line, "--curve", "a.csv"]) == 0
    folder = here / "runs" / "reproduce" / name
    alike = rows_in(folder / f"{name}-likeness.csv")
    assert {row["task"] for row in alike} == {"probe", "tuned"}
    assert len(alike) == 2 * (2 if name == "fig1g" else 4)
    assert all(row["pearson"] for row in alike if row["task"] == "probe")
    assert not any(row["pearson"] for row in alike if row["task"] == "tuned"), "one ratio has no correlation"
    assert len(rows_in(folder / f"{name}-published.csv")) == 4
    assert "probe (right axis)" in (folder / f"{name}.svg").read_text(encoding="utf-8")
    before = (folder / f"{name}.csv").read_bytes()
    capsys.readouterr()
    assert main(line) == 0
    assert "parts computed before" in capsys.readouterr().out, "published accuracies change no computation"
    assert (folder / f"{name}.csv").read_bytes() == before
    assert not (folder / f"{name}-likeness.csv").exists(), "tables of the former call do not stay next to new ones"
    assert "right axis" not in (folder / f"{name}.svg").read_text(encoding="utf-8")


def test_other_accuracies_are_not_those_of_the_call_before(here: Path) -> None:
    for accuracy in ("0.7", "0.2"):
        (here / "a.csv").write_text(f"task,ratio,accuracy\nprobe,0.5,{accuracy}\n")
        assert main(["reproduce", "fig4", "--scale", "small", "--curve", "a.csv"]) == 0
        (row,) = rows_in(here / "runs" / "reproduce" / "fig4" / "fig4-published.csv")
        assert row["accuracy"] == accuracy


def test_models_have_their_best_ratios(here: Path) -> None:
    assert main(["reproduce", "fig2c", "--curve", "models.csv"]) == 0
    folder = here / "runs" / "reproduce" / "fig2c"
    best = {(row["model"], row["task"]): row for row in rows_in(folder / "fig2c-best.csv")}
    assert best["base", "sst2"]["best_ratio"] == "0.3"
    assert best["large", "sst2"]["best_ratio"] == "0.4"
    assert best["base", "mnli"]["best_accuracy"] == "0.75", "the mean over seeds"
    svg = (folder / "fig2c.svg").read_text(encoding="utf-8")
    assert all(word in svg for word in ("base", "large", "sst2", "mnli", "ring: the best ratio"))


def test_a_table_without_models_is_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "fig2c", "--curve", "a.csv"]) == 2
    assert "a.csv: has no column 'model' (it has task, ratio, accuracy, note)" in capsys.readouterr().err
