"""How far a study is, by the files in its folder; and tables of runs that are complete, or not."""

from pathlib import Path

import pytest

from r2mae.errors import UserError
from r2mae.files import write_json
from r2mae_paper.state import MADE, State, begin, digest_of, finish, json_in, read_runs, state_of


def touch(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def test_runs_are_counted_as_they_finish(tmp_path: Path) -> None:
    files = [tmp_path / "runs" / label / "seed-0" / "results.json" for label in "abc"]
    assert state_of(tmp_path).in_words() == "not run"
    begin(tmp_path, "small", "runs", files)
    assert state_of(tmp_path) == State("small", 0, 3, False, "runs")
    touch(files[0])
    assert state_of(tmp_path).in_words() == "1 of 3 runs, small"
    touch(*files[1:])
    assert state_of(tmp_path).in_words() == "3 of 3 runs, small", "its tables are not written yet"
    touch(tmp_path / "t.csv")
    finish(tmp_path, [tmp_path / "t.csv"], [], {"scale": "small", "runs": 3})
    assert state_of(tmp_path).in_words() == "finished (3 runs, small)"
    (tmp_path / "t.csv").unlink()
    assert not state_of(tmp_path).written
    begin(tmp_path, "", "runs", files)
    assert state_of(tmp_path) == State("", 3, 3, False, "runs"), "another call begins again"
    assert json_in(tmp_path / MADE)["scale"] == "small", "what is known of the tables before it is kept"


@pytest.mark.parametrize(
    "damaged",
    ["{", "[]", '{"begun": 1}', '{"begun": {"scale": "", "unit": "", "finished": 1}}', '{"runs": []}', '{"tables": 1}'],
)
def test_a_damaged_record_is_said(tmp_path: Path, damaged: str) -> None:
    (tmp_path / MADE).write_text(damaged)
    assert state_of(tmp_path).in_words() == "not run; made.json is damaged"
    touch(tmp_path / "t.csv")
    assert state_of(tmp_path).in_words() == "finished; made.json is damaged"


def test_a_record_moves_with_its_folder(tmp_path: Path) -> None:
    begin(tmp_path / "a", "full", "parts", [tmp_path / "a" / ".parts" / "x.json"])
    touch(tmp_path / "a" / ".parts" / "x.json")
    (tmp_path / "a").rename(tmp_path / "b")
    assert state_of(tmp_path / "b") == State("full", 1, 1, False, "parts")


def test_tables_alone_are_finished(tmp_path: Path) -> None:
    touch(tmp_path / "t.csv")
    assert state_of(tmp_path).in_words() == "finished"
    write_json(tmp_path / MADE, {"title": "T", "scale": "small"})
    assert state_of(tmp_path).in_words() == "finished, small"


def test_tables_of_former_calls_do_not_stay(tmp_path: Path) -> None:
    names = ("old.csv", "old.png", "kept.csv", "mine.csv")
    old, picture, kept, _ = files = [tmp_path / name for name in names]
    touch(*files)
    finish(tmp_path, [old, kept], [picture], {})
    begin(tmp_path, "small", "runs", [])  # a call that is stopped before it makes tables
    begin(tmp_path, "small", "runs", [])
    finish(tmp_path, [kept], [], {})
    assert sorted(path.name for path in tmp_path.glob("*.*g")) == []
    assert sorted(path.name for path in tmp_path.glob("*.csv")) == ["kept.csv", "mine.csv"]
    assert list(json_in(tmp_path / MADE)["tables"]) == ["kept.csv"]


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
        (WHOLE.replace("b,0,", "b,0,abc").encode(), "has 'abc' among the numbers of its column 'score'"),
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
