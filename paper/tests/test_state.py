"""How far a study is, by the files in its folder; and tables of runs that are complete, or not."""

import json
from pathlib import Path

import pytest

import r2mae
from r2mae.errors import UserError
from r2mae.files import write_json
from r2mae_paper.state import MADE, PLAN, State, digest_of, read_runs, state_of, version_of, write_plan, write_tables


def touch(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def test_runs_are_counted_as_they_finish(tmp_path: Path) -> None:
    folders = [tmp_path / "runs" / label / "seed-0" for label in "abc"]
    files = [[folder / "model.json", folder / "results.json"] for folder in folders]
    assert state_of(tmp_path).in_words() == "not run"
    write_plan(tmp_path, "small", "runs", files)
    assert state_of(tmp_path) == State("small", 0, 3, False, "runs")
    touch(*files[0], files[1][0])
    assert state_of(tmp_path).in_words() == "1 of 3 runs, small", "a run without results is trained, not finished"
    touch(files[1][1], *files[2])
    assert state_of(tmp_path).in_words() == "3 of 3 runs, small", "its tables are not written yet"
    touch(tmp_path / "t.csv")
    write_tables(tmp_path, [tmp_path / "t.csv"])
    assert state_of(tmp_path).in_words() == "finished (3 of 3 runs, small)"
    (tmp_path / "t.csv").unlink()
    assert not state_of(tmp_path).written
    write_plan(tmp_path, "", "runs", files)
    assert state_of(tmp_path) == State("", 3, 3, False, "runs"), "another call begins again"


@pytest.mark.parametrize("damaged", ["{", "[]", "{}", '{"finished": 1}', '{"finished": [["a"]], "tables": null}'])
def test_a_damaged_plan_is_no_plan(tmp_path: Path, damaged: str) -> None:
    (tmp_path / PLAN).write_text(damaged)
    assert state_of(tmp_path).in_words() == "not run; .plan.json is damaged"
    write_json(tmp_path / MADE, {"scale": "small"})
    assert state_of(tmp_path).in_words() == "not run"


def test_a_folder_of_an_older_version_tells_what_it_can(tmp_path: Path) -> None:
    touch(tmp_path / "runs" / "a" / "seed-0" / "results.json")
    assert state_of(tmp_path).in_words() == "1 runs finished"
    touch(tmp_path / "fig2b.csv")
    assert state_of(tmp_path).in_words() == "finished"


def test_a_plan_moves_with_its_folder(tmp_path: Path) -> None:
    write_plan(tmp_path / "a", "full", "parts", [[tmp_path / "a" / ".parts" / "x.json"]])
    touch(tmp_path / "a" / ".parts" / "x.json")
    (tmp_path / "a").rename(tmp_path / "b")
    assert state_of(tmp_path / "b") == State("full", 1, 1, False, "parts")
    assert json.loads((tmp_path / "b" / PLAN).read_text())["finished"] == [[".parts/x.json"]]


def test_what_made_the_tables_stays_with_them(tmp_path: Path) -> None:
    touch(tmp_path / "t.csv")
    write_json(tmp_path / MADE, {"title": "T", "scale": "small"})
    assert state_of(tmp_path).in_words() == "finished, small", "also where the plan is not kept with the tables"
    (tmp_path / MADE).write_text("{")
    assert state_of(tmp_path).in_words() == "finished; made.json is damaged"
    assert version_of(tmp_path) == ""


def test_the_version_stays_with_the_tables(tmp_path: Path) -> None:
    write_json(tmp_path / MADE, {"environment": {"versions": {"r2mae": "9.9.9"}}})
    assert version_of(tmp_path) == "9.9.9"
    write_plan(tmp_path, "small", "runs", [])
    assert version_of(tmp_path) == r2mae.__version__, "of the last call"


def test_tables_are_finished_without_the_folders_of_their_runs(tmp_path: Path) -> None:
    folders = [tmp_path / "runs" / label / "results.json" for label in "ab"]
    write_plan(tmp_path, "small", "runs", [[folder] for folder in folders])
    touch(folders[0], tmp_path / "t.csv")
    write_tables(tmp_path, [tmp_path / "t.csv"])
    assert state_of(tmp_path).in_words() == "finished (2 runs, small; the files of 1 are gone)"


def test_tables_of_former_calls_do_not_stay(tmp_path: Path) -> None:
    for name in ("old.csv", "kept.csv", "mine.csv"):
        touch(tmp_path / name)
    write_plan(tmp_path, "small", "runs", [])
    write_tables(tmp_path, [tmp_path / "old.csv", tmp_path / "kept.csv"])
    write_plan(tmp_path, "small", "runs", [])  # a call that is stopped before it makes tables
    write_plan(tmp_path, "small", "runs", [])
    write_tables(tmp_path, [tmp_path / "kept.csv"])
    assert sorted(path.name for path in tmp_path.glob("*.csv")) == ["kept.csv", "mine.csv"]


WHOLE = "label,seed,score\na,0,0.5\nb,0,\n"


def test_a_whole_table(tmp_path: Path) -> None:
    file = tmp_path / "t-runs.csv"
    file.write_text(WHOLE)
    table = read_runs(file, ("seed", "label"))
    assert table["seed"].tolist() == [0, 0]
    assert table["score"].isna().tolist() == [False, True], "a score may be undefined"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "t-runs.csv is empty"),
        (b"\xff\xfe\x00", "is not text"),
        (b"label,seed,score\n", "has no lines"),
        (WHOLE[:-4].encode(), "1 cells in row 2, and 3 headings"),
        (WHOLE[:-1].encode(), "ends within a line"),
        (WHOLE.replace("a,0", "a").encode(), "2 cells in row 1, and 3 headings"),
        (WHOLE.replace("b,0,", "b,0,abc").encode(), "the column 'score' has 'abc' among its numbers"),
        (WHOLE.replace("seed", "seeds").encode(), "has no column 'seed'"),
    ],
)
def test_a_damaged_table_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    file = tmp_path / "t-runs.csv"
    file.write_bytes(content)
    with pytest.raises(UserError, match=said):
        read_runs(file)


def test_the_digest_is_of_the_content(tmp_path: Path) -> None:
    one, other = tmp_path / "a", tmp_path / "b"
    one.write_text(WHOLE)
    other.write_text(WHOLE)
    assert digest_of(one) == digest_of(other)
    other.write_text(WHOLE + "c,0,1\n")
    assert digest_of(one) != digest_of(other)
