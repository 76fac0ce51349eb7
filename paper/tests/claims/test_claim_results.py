"""Which folders hold results, and which of them are not judged."""

from pathlib import Path

import pytest

import r2mae
from r2mae.errors import UserError
from r2mae.files import write_json
from r2mae_paper.claims.results import Results, UnavailableError
from r2mae_paper.state import MADE, begin

TABLE = "gamma,risk\n5,1\n"


def target(folder: Path, name: str, text: str = TABLE) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.csv").write_text(text)
    return folder


def test_targets_are_found_below_a_folder_or_as_it(tmp_path: Path) -> None:
    here = target(tmp_path / "theory" / "fig1a", "fig1a")
    other = target(tmp_path / "theory" / "with-twice", "rules")
    assert Results([tmp_path]).targets == {"fig1a": here, "r2mae-vs-fixed": other}
    assert Results([here]).targets == {"fig1a": here}
    assert Results([here, tmp_path]).targets["fig1a"] == here, "a folder that is met twice is one"
    assert Results([tmp_path]).table("fig1a", "gamma", "risk").shape == (1, 2)


def test_hidden_folders_are_left_out(tmp_path: Path) -> None:
    target(tmp_path / "table4", "table4")
    target(tmp_path / "table4" / ".parts" / "fig1a", "fig1a")
    target(tmp_path / ".hidden" / "fig1c", "fig1c")
    assert set(Results([tmp_path]).targets) == {"table4"}


def test_results_below_a_folder_of_the_name_runs_are_found(tmp_path: Path) -> None:
    here = target(tmp_path / "runs" / "reproduce" / "fig1a", "fig1a")
    assert Results([tmp_path]).targets == {"fig1a": here}


def test_comparisons_are_told_by_their_columns(tmp_path: Path) -> None:
    target(tmp_path / "a", "results", "label,scheme,ratio,low,high,seed,seconds,score\nr2mae,r2mae,,0.1,0.5,0,1,0.7\n")
    target(tmp_path / "b", "results", "data,n\nx,1\n")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "results.csv").write_bytes(b"\xff\xfe\x00")
    assert Results([tmp_path]).comparisons == [tmp_path / "a"]


def test_two_folders_of_one_target_are_refused(tmp_path: Path) -> None:
    target(tmp_path / "a" / "fig1a", "fig1a")
    target(tmp_path / "b" / "fig1a", "fig1a")
    with pytest.raises(UserError, match="both have results of fig1a"):
        Results([tmp_path])


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no folder"):
        Results([tmp_path / "nowhere"])


def test_smoke_runs_and_other_versions_are_not_judged(tmp_path: Path) -> None:
    folder = target(tmp_path / "fig2a", "fig2a")
    write_json(folder / MADE, {"scale": "smoke"})
    with pytest.raises(UnavailableError, match="scale smoke"):
        Results([tmp_path]).folder("fig2a")
    for version in (r2mae.__version__, ""):
        write_json(folder / MADE, {"scale": "small", "environment": {"versions": {"r2mae": version}}})
        assert Results([tmp_path]).folder("fig2a") == folder, "some records say none"
    write_json(folder / MADE, {"scale": "small", "environment": {"versions": {"r2mae": "0.0.1"}}})
    with pytest.raises(UnavailableError, match=r"r2mae 0\.0\.1"):
        Results([tmp_path]).folder("fig2a")


def test_tables_before_a_call_that_was_broken_off_are_not_judged(tmp_path: Path) -> None:
    folder = target(tmp_path / "fig2a", "fig2a")
    write_json(folder / MADE, {"scale": "small"})
    begin(folder, "full", "runs", [folder / "a", folder / "b"])
    with pytest.raises(UnavailableError, match=r"did not finish .0 of 2 runs, full"):
        Results([tmp_path]).folder("fig2a")
    write_json(folder / MADE, {"scale": "full"})
    assert Results([tmp_path]).folder("fig2a") == folder


def test_an_unfinished_target_says_how_far_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "fig2a"
    folder.mkdir()
    begin(folder, "small", "runs", [folder / "a", folder / "b"])
    (folder / "a").touch()
    results = Results([tmp_path])
    assert not results.empty
    with pytest.raises(UnavailableError, match="1 of 2 runs"):
        results.table("fig2a")
    with pytest.raises(UnavailableError, match="fig2b has not run"):
        results.table("fig2b")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gamma\n5\n", "no column risk"),
        ("gamma,risk\n", "no rows"),
        ("", "cannot be read"),
    ],
)
def test_a_broken_table_is_said(tmp_path: Path, text: str, said: str) -> None:
    target(tmp_path / "fig1a", "fig1a", text)
    with pytest.raises(UnavailableError, match=said):
        Results([tmp_path]).table("fig1a", "gamma", "risk")


def test_a_missing_table_is_said(tmp_path: Path) -> None:
    target(tmp_path / "fig2a", "fig2a")
    with pytest.raises(UnavailableError, match=r"no fig2a-runs\.csv"):
        Results([tmp_path]).table("fig2a", name="fig2a-runs")
