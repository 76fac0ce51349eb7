"""The list of claims, and the pages that are made of the results of this repository."""

import csv
import io
import math
import re
from importlib.resources import files
from pathlib import Path

import pytest

from r2mae.errors import UserError
from r2mae_paper.claims import CLAIMS, MEANING, Results, judge
from r2mae_paper.claims.measures import MEASURES
from r2mae_paper.claims.page import BEGIN, COLUMNS, END, claims_table, counts_of, row_of, write_into
from r2mae_paper.claims.rules import RULES
from r2mae_paper.published import published
from r2mae_paper.studies import ENTRIES, entry_of

ROOT = Path(__file__).parents[3]
TEXT = files("r2mae_paper.published").joinpath("claims.csv").read_text("utf-8")
CASES = [(claim, case) for claim in CLAIMS for case in claim.cases]
BEFORE = dict(line.split(",") for line in (Path(__file__).parent / "before.csv").read_text("utf-8").splitlines()[1:])
"""The verdicts of the 110 sentences before they were merged, by name; of data made again since, the present ones."""


def test_every_claim_is_complete() -> None:
    assert len({claim.name for claim in CLAIMS}) == len(CLAIMS)
    for claim, case in CASES:
        assert set(case.study.split()) <= {*ENTRIES}, claim.name
        assert claim.place, claim.name
        assert claim.number, claim.name
        assert claim.sentence.endswith("."), claim.name
        assert (case.rule in ("none", "sum")) == (not case.study), claim.name
        assert bool(case.note) or case.rule != "none", claim.name
        assert bool(case.label) == (len(claim.cases) > 1), claim.name


def test_no_sentence_is_lost() -> None:
    names = [name for _, case in CASES for name in case.formerly]
    assert sorted(names) == sorted(BEFORE)


def test_sums_are_of_other_claims() -> None:
    sums = {name for _, case in CASES if case.rule == "sum" for name in case.formerly}
    for _, case in CASES:
        parts = case.options["of"].split() if case.rule == "sum" else []
        assert set(parts) <= {*BEFORE}
        assert len(set(parts)) == len(parts)
        assert not set(parts) & sums


def test_rules_measures_and_parts_of_sums_are_known() -> None:
    for claim, case in CASES:
        assert case.rule in {"sum", "none", *RULES}, claim.name
        assert case.measure in {"", *MEASURES}, claim.name
        assert bool(case.measure) == (case.rule in RULES), claim.name


def test_the_list_is_a_table_of_its_columns() -> None:
    rows = list(csv.DictReader(io.StringIO(TEXT)))
    assert len(rows) == len(CLAIMS)
    assert all(None not in row and None not in row.values() for row in rows)


SMALL_SEEDS = {"table1": 3, "table2": 5, "table4": 5, "table6": 5, "fig2a": 5, "fig2b": 3, "text-ratios": 3}
"""Seeds of the small scale, whose cost the targets state."""


@pytest.mark.parametrize("study", SMALL_SEEDS)
def test_affordable_seeds_are_those_of_48_hours_of_a_core(study: str) -> None:
    hours = float(re.findall(r"([\d.]+) h", entry_of(study).cost["small"])[-1])
    stated = {case.affordable for _, case in CASES if case.study == study and case.rule != "level"}
    assert stated - {5} == {int(48 * SMALL_SEEDS[study] / hours)}, "a claim about all domains has the five of Table 3"


def test_numbers_of_tables_5_and_9_are_the_printed_ones() -> None:
    by_name = {name: case.paper for _, case in CASES for name in case.formerly}
    for table in ("table5", "table9"):
        cells = {model: list(rows.itertuples()) for model, rows in published(table).entries.items()}
        every = [cell for rows in cells.values() for cell in rows]
        expected = {
            "middle": sum(cell.middle - cell.r2mae for cell in every) / 10,
            "best": sum(cell.r2mae < cell.best for cell in every) / 10,
            **{model: sum(cell.r2mae for cell in rows) / 5 for model, rows in cells.items()},
        }
        for name, number in expected.items():
            assert by_name[f"{table}-{name}"] == pytest.approx(number, abs=1e-9)


def test_without_results_nothing_is_guessed(tmp_path: Path) -> None:
    found = judge(Results([tmp_path]))
    assert [one.claim for one in found] == list(CLAIMS)
    for one in found:
        assert one.verdict in ("not run", "not testable here")
        assert all(math.isnan(each.ours) for each in one.found)
        assert one.reason


@pytest.fixture(scope="module")
def here() -> Results:
    return Results([ROOT / "paper" / "results"])


TOO_LARGE = ("unet-32", "glue-rank", "glue-three")
"""Claims of networks, and of tasks, that the small scale of their target leaves out."""


def test_no_result_of_this_repository_is_broken(here: Results) -> None:
    for one in judge(here):
        assert "lack what the rule needs" not in one.reason, one.claim.name
        assert one.verdict in MEANING
        assert one.verdict != "not run" or one.claim.name in TOO_LARGE, one.claim.name
        for each in one.found:
            assert each.verdict not in ("undecided", "undecidable at this scale") or each.reason, one.claim.name
            assert not math.isfinite(each.low) or each.low <= each.ours <= each.high, one.claim.name


def test_a_verdict_is_the_former_one_unless_no_seeds_would_tell(here: Results) -> None:
    """Each case has the verdict that its sentence had; what was undecided may be undecidable at this scale."""
    for one in judge(here):
        for case, found in zip(one.claim.cases, one.found, strict=True):
            for name in case.formerly:
                allowed = {BEFORE[name]} | ({"undecidable at this scale"} if BEFORE[name] == "undecided" else set())
                assert found.verdict in allowed, name


def test_the_page_is_what_the_command_makes(here: Results) -> None:
    """If it is not: `r2mae reproduce --claims paper/results --markdown paper/claims.md`."""
    text = (ROOT / "paper" / "claims.md").read_text("utf-8")
    written, made = text.split(BEGIN)[1].split(END)[0].strip(), claims_table(judge(here))
    number = re.compile(r"(?<![\w.])[\u2212+]?\d+(?:\.\d+)?")
    assert number.sub("#", written) == number.sub("#", made), "words and verdicts"
    for old, new in zip(number.findall(written), number.findall(made), strict=True):
        unit = 10.0 ** -len(new.partition(".")[2])
        gap = abs(float(old.replace("\N{MINUS SIGN}", "-")) - float(new.replace("\N{MINUS SIGN}", "-")))
        assert gap <= (1.01 * unit if "." in new else 0), f"{old} is {new} here: last places alone may differ"


def test_a_row_has_a_cell_for_each_heading(here: Results) -> None:
    found = judge(here)
    assert all(len(row_of(one)) == len(COLUMNS) for one in found)
    text = claims_table(found)
    for line in text.splitlines():
        if line.startswith(("| Sec", "| App", "| Abs")):
            assert line.count(" | ") == len(COLUMNS) - 1
    assert text.startswith(counts_of(found))
    assert sum(int(word) for word in counts_of(found).split(": ")[1].split() if word.isdigit()) == len(CLAIMS)
    for one in found:
        assert row_of(one)[-1] or one.verdict not in ("undecided", "undecidable at this scale", "not run")


def test_the_table_is_between_its_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"above\n\n{BEGIN}\nold\n{END}\n\nbelow", "utf-8")
    found = judge(Results([tmp_path]))
    for _ in range(2):
        write_into(page, found)
        assert page.read_text("utf-8") == f"above\n\n{BEGIN}\n\n{claims_table(found)}\n\n{END}\n\nbelow"


@pytest.mark.parametrize("text", ["no marks", f"{BEGIN}", f"{END}\n{BEGIN}", f"{BEGIN}{BEGIN}{END}", None])
def test_a_page_without_a_place_is_refused(tmp_path: Path, text: str | None) -> None:
    page = tmp_path / "page.md"
    if text is not None:
        page.write_text(text, "utf-8")
    with pytest.raises(UserError, match=r"page\.md"):
        write_into(page, judge(Results([tmp_path])))
    assert not page.exists() if text is None else page.read_text("utf-8") == text
