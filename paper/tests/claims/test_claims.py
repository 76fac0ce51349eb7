"""The list of claims, and the page that is made of the results of this repository."""

import math
import re
from pathlib import Path

import pytest

from r2mae.errors import UserError
from r2mae_paper.claims import CHECKS, CLAIMS, MEANING, Results, judge, verdicts
from r2mae_paper.claims.page import BEGIN, COLUMNS, END, counts_of, markdown, runs_of, write_into
from r2mae_paper.published import published
from r2mae_paper.studies import ENTRIES

ROOT = Path(__file__).parents[3]
NAMES = [claim.name for claim in CLAIMS]


def test_every_claim_is_judged_in_one_way() -> None:
    assert len(NAMES) == len(set(NAMES))
    assert set(NAMES) >= CHECKS.keys()
    for claim in CLAIMS:
        ways = [claim.name in CHECKS, bool(claim.why), bool(claim.parts)]
        assert sum(ways) == 1, claim.name
        assert claim.target in ("", *ENTRIES), claim.name
        assert claim.place, claim.name
        assert claim.measure, claim.name
        assert claim.says.endswith("."), claim.name


def test_sums_are_of_other_claims() -> None:
    whole = {claim.name for claim in CLAIMS if claim.parts}
    for claim in CLAIMS:
        assert len(set(claim.parts)) == len(claim.parts)
        assert set(claim.parts) <= set(NAMES) - whole


def test_numbers_of_tables_5_and_9_are_the_printed_ones() -> None:
    by_name = {claim.name: claim for claim in CLAIMS}
    for table in ("table5", "table9"):
        cells = {model: list(rows.values()) for model, rows in published(table).entries.items()}
        every = [cell for rows in cells.values() for cell in rows]
        expected = {
            "middle": sum(cell.middle - cell.r2mae for cell in every) / 10,
            "best": sum(cell.r2mae < cell.best for cell in every) / 10,
            **{model: sum(cell.r2mae for cell in rows) / 5 for model, rows in cells.items()},
        }
        for name, number in expected.items():
            assert by_name[f"{table}-{name}"].paper == pytest.approx(number, abs=1e-9)


def test_without_results_nothing_is_guessed(tmp_path: Path) -> None:
    found = verdicts([tmp_path])
    assert [one.claim for one in found] == list(CLAIMS)
    for one in found:
        assert one.verdict in ("not run", "not testable here")
        assert math.isnan(one.ours)
        assert one.reason


@pytest.fixture(scope="module")
def here() -> Results:
    return Results([ROOT / "paper" / "results"])


TOO_LARGE = ("unet-32", "rank-medium", "rank-base", "glue-three")
"""Claims of networks, and of tasks, that the small scale of their target leaves out."""


def test_no_result_of_this_repository_is_broken(here: Results) -> None:
    for one in judge(here):
        assert "lack what the check needs" not in one.reason, one.claim.name
        assert one.verdict in MEANING
        if one.claim.target in here.targets and one.claim.name not in TOO_LARGE:
            assert one.verdict != "not run", one.claim.name
        if math.isfinite(one.low):
            assert one.low <= one.ours <= one.high, one.claim.name


def test_the_page_is_what_the_command_makes(here: Results) -> None:
    """If it is not: `r2mae reproduce --claims paper/results --markdown paper/claims.md`."""
    page = (ROOT / "paper" / "claims.md").read_text("utf-8")
    written, made = page.split(BEGIN)[1].split(END)[0].strip(), markdown(judge(here))
    number = re.compile(r"(?<![\w.])[\u2212+]?\d+(?:\.\d+)?")
    assert number.sub("#", written) == number.sub("#", made), "words and verdicts"
    for old, new in zip(number.findall(written), number.findall(made), strict=True):
        unit = 10.0 ** -len(new.partition(".")[2])
        gap = abs(float(old.replace("\N{MINUS SIGN}", "-")) - float(new.replace("\N{MINUS SIGN}", "-")))
        assert gap <= (1.01 * unit if "." in new else 0), f"{old} is {new} here: last places alone may differ"


def test_a_row_has_a_cell_for_each_heading(here: Results) -> None:
    found = judge(here)
    assert all(len(runs_of(one)) == len(COLUMNS) for one in found)
    text = markdown(found)
    for line in text.splitlines():
        if line.startswith(("| Sec", "| App", "| Abs")):
            assert line.count(" | ") == len(COLUMNS) - 1
    assert text.startswith(counts_of(found))
    assert sum(int(word) for word in counts_of(found).split(": ")[1].split() if word.isdigit()) == len(CLAIMS)


def test_the_table_stands_between_its_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"above\n\n{BEGIN}\nold\n{END}\n\nbelow\n", "utf-8")
    found = verdicts([tmp_path])
    for _ in range(2):
        write_into(page, found)
        assert page.read_text("utf-8") == f"above\n\n{BEGIN}\n\n{markdown(found)}\n\n{END}\n\nbelow\n"


@pytest.mark.parametrize("text", ["no marks", f"{BEGIN}", f"{END}\n{BEGIN}", f"{BEGIN}{BEGIN}{END}", None])
def test_a_page_without_a_place_is_refused(tmp_path: Path, text: str | None) -> None:
    page = tmp_path / "page.md"
    if text is not None:
        page.write_text(text, "utf-8")
    with pytest.raises(UserError, match=r"page\.md"):
        write_into(page, verdicts([tmp_path]))
    assert not page.exists() if text is None else page.read_text("utf-8") == text
