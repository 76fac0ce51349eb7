"""Tables of runs that are whole, and those that are not."""

from pathlib import Path

import pytest

from r2mae.errors import UserError
from r2mae_paper.run_tables import digest_of, read_runs

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
