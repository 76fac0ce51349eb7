"""The rules from numbers to verdicts, each with tables for every verdict that it can give; and estimates."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2mae.evaluation.power import detectable
from r2mae_paper.claims import rules
from r2mae_paper.claims.claim import MEANING, Case, Found, Word, summed, typeset, weakest
from r2mae_paper.claims.estimates import Estimate, Measured, of_errors, over, over_models, over_sets, share_of
from r2mae_paper.claims.measures import _families, points, rises
from r2mae_paper.claims.results import Results, UnavailableError

Judge = Callable[..., Found]
OPEN, UNDECIDABLE = "undecided", "undecidable at this scale"


def case(**values: Any) -> Case:
    words = dict.fromkeys(("label", "rule", "measure", "study", "table", "where", "full", "note"), "")
    rest = {"formerly": (), "columns": ("value",), "options": {}, "margin": 0.0, "paper": None, "affordable": 0}
    return Case(**{**words, **rest, "study": "fig1a", **values})


@pytest.fixture
def judge(tmp_path: Path) -> Judge:
    """Judge a table of one column or more, in a folder of its own, by a rule."""

    def by_table(rule: str, table: str, **values: Any) -> Found:
        (tmp_path / "fig1a.csv").write_text(table)
        return rules.judged(Results([tmp_path]), case(rule=rule, **values))

    return by_table


def column(*values: float) -> str:
    return "\n".join(["value", *map(str, values)]) + "\n"


VALUES = {"measure": "values", "options": {"of": "value"}}
NEVER = {"full": "never"}


@pytest.mark.parametrize(
    ("values", "more", "word"),
    [
        ((1.0, 1.1, 0.9), {}, "reproduced"),
        ((1.0, 1.1, 0.9), {"paper": 1.05}, "reproduced"),
        ((1.0, 1.1, 0.9), NEVER, "direction only"),
        ((1.0, 1.1, 0.9), {"paper": 3.0}, "direction only"),
        ((1.0, 1.1, 0.9), {"paper": 3.0, "options": {"of": "value", "sign": ""}}, "reproduced"),
        ((-1.0, -1.1, -0.9), {}, "not reproduced"),
        ((-1.0, -1.1, -0.9), NEVER, "not reproduced"),
        ((-1.0, -1.1, -0.9), {"margin": -2.0}, "reproduced"),
        ((1.0, -1.1, 0.9), {}, OPEN),
        ((1.0, -1.1, 0.9), {"paper": 30.0}, "not reproduced"),
        ((1.0, -1.1, 0.9), {"affordable": 5, **NEVER}, UNDECIDABLE),
        ((1.0, -1.1, 0.9), {"affordable": 5000, **NEVER}, OPEN),
        ((1.0, -1.0), NEVER, UNDECIDABLE),
        ((1.0,), {}, OPEN),
    ],
)
def test_difference(judge: Judge, values: tuple[float, ...], more: dict[str, Any], word: str) -> None:
    found = judge("difference", column(*values), **{**VALUES, **more})
    assert found.verdict == word
    assert found.ours == pytest.approx(np.mean(values))
    if word in (OPEN, UNDECIDABLE):
        assert "seeds" in found.reason


@pytest.mark.parametrize(
    ("values", "more", "word"),
    [
        ((1.0, 1.1, 0.9), {}, "reproduced"),
        ((-1.0, -1.1, -0.9), {}, "reproduced"),
        ((-1.0, -1.1, -0.9), NEVER, "direction only"),
        ((0.01, -0.01, 0.02), {"margin": 0.1}, "not reproduced"),
        ((1.0, -1.1, 0.9), {"margin": 0.1}, OPEN),
        ((1.0, -1.1, 0.9), {"margin": 0.1, "affordable": 5, **NEVER}, UNDECIDABLE),
        ((1.0, 1.0), {}, OPEN),
    ],
)
def test_differs(judge: Judge, values: tuple[float, ...], more: dict[str, Any], word: str) -> None:
    assert judge("differs", column(*values), **{**VALUES, **more}).verdict == word


@pytest.mark.parametrize(
    ("values", "more", "word"),
    [
        ((1.0, 1.1, 0.9), {"paper": 1.05}, "reproduced"),
        ((1.0, 1.1, 0.9), {"paper": 2.0}, "not reproduced"),
        ((1.0, 1.1, 0.9), {"paper": 2.0, "options": {"of": "value", "exists": ""}}, "direction only"),
        ((1.0, 5.0, -3.0), {"paper": 2.0}, OPEN),
        ((1.0, 1.1, 0.9), {"paper": 1.05, **NEVER}, UNDECIDABLE),
    ],
)
def test_level(judge: Judge, values: tuple[float, ...], more: dict[str, Any], word: str) -> None:
    assert judge("level", column(*values), **{**VALUES, "margin": 0.5, **more}).verdict == word


@pytest.mark.parametrize(
    ("values", "more", "word"),
    [
        ((0.01, -0.01, 0.02), {}, "reproduced"),
        ((0.01, -0.01, 0.02), NEVER, "direction only"),
        ((1.0, 1.1, 0.9), {}, "not reproduced"),
        ((-1.0, -1.1, -0.9), {}, "not reproduced"),
        ((0.3, -0.2, 0.1), {}, OPEN),
        ((0.3, -0.2, 0.1), {"affordable": 5, **NEVER}, UNDECIDABLE),
    ],
)
def test_no_difference(judge: Judge, values: tuple[float, ...], more: dict[str, Any], word: str) -> None:
    assert judge("no difference", column(*values), **{**VALUES, "margin": 0.1, **more}).verdict == word


@pytest.mark.parametrize(
    ("margin", "more", "word"),
    [
        (3.0, {}, "reproduced"),
        (3.0, NEVER, "direction only"),
        (2.9, {}, "not reproduced"),
        (2.9, {"options": {"of": "value.abs().max()", "least": ""}}, "reproduced"),
        (3.1, {"options": {"of": "value.abs().max()", "least": ""}}, "not reproduced"),
    ],
)
def test_limit(judge: Judge, margin: float, more: dict[str, Any], word: str) -> None:
    number = {"measure": "number", "options": {"of": "value.abs().max()"}}
    assert judge("limit", column(1, -3, 2), **{**number, "margin": margin, **more}).verdict == word


@pytest.mark.parametrize(
    ("off", "worst", "more", "word"),
    [
        (1.01, 1.05, {}, "reproduced"),
        (1.01, 1.05, NEVER, "direction only"),
        (1.01, 1.2, {}, "not reproduced"),
        (1.05, 1.05, {}, "not reproduced"),
        (1.01, 1.05, {"columns": ("value", "formula", "second")}, "direction only"),
    ],
)
def test_fit(judge: Judge, off: float, worst: float, more: dict[str, Any], word: str) -> None:
    rows = [f"{off},1,2", f"{off},1,2", f"{worst},1,2"]
    table = "\n".join(["value,formula,second", *rows])
    found = judge("limit", table, **{"measure": "deviation", "margin": 2, "columns": ("value", "formula"), **more})
    assert found.verdict == word
    assert found.ours == pytest.approx(100 * (off - 1))


def test_none_has_its_reason(judge: Judge) -> None:
    found = judge("none", column(1), note="Weights are not here.")
    assert (found.verdict, found.reason) == ("not testable here", "Weights are not here.")


def test_a_share_is_a_difference_from_a_half(judge: Judge) -> None:
    options = {"measure": "share", "options": {"of": "value < 0"}, "margin": 0.5}
    none = judge("difference", column(*[1] * 10), **options, paper=0.8)
    assert (none.verdict, none.ours, none.low) == ("not reproduced", 0, 0)
    assert none.high == pytest.approx(1 - 0.025 ** (1 / 10)), "Clopper and Pearson"
    assert judge("difference", column(*[-1] * 10), **options, paper=0.8).verdict == "reproduced"
    assert judge("difference", column(*[-1, 1] * 5), **options).verdict == OPEN


def test_rows_that_are_not_there_are_said(judge: Judge) -> None:
    with pytest.raises(UnavailableError, match="no rows with value > 9"):
        judge("difference", column(1), where="value > 9", **VALUES)
    with pytest.raises(UnavailableError, match="no rows with numbers"):
        judge("limit", "value,formula\n1,\n,1\n", measure="deviation", columns=("value", "formula"))


NUMBERS, WIDTHS = st.floats(-10, 10), st.floats(0.001, 5)


@given(NUMBERS, WIDTHS, st.none() | NUMBERS, st.booleans())
def test_an_interval_on_the_other_side_refutes(mean: float, half: float, paper: float | None, same: bool) -> None:
    low, high = mean - half, mean + half
    part = Estimate(mean, low, high, spread=(half,))
    verdict = rules._above(part, case(affordable=10, paper=paper), same).verdict
    assert (verdict in ("reproduced", "direction only")) == (low > 0)
    assert same or verdict != "reproduced"
    if high < 0:
        assert verdict == "not reproduced"
    elif low <= 0:
        excluded = same and paper is not None and not low <= paper <= high
        assert (verdict == "not reproduced") == excluded


def test_one_part_of_several_refutes_by_a_corrected_interval_alone() -> None:
    gaps = np.array([-1.0, -1.2, -0.8, -1.1]) + 0.75
    for several, word in ((1, "not reproduced"), (4, OPEN)):
        part = over(gaps, worst_of=several)
        assert rules._above(part, case(), True).verdict == word


def test_a_measure_limits_the_verdict(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    limited = Measured({"": of_errors(1.0, 0.1)}, at_most="direction only")
    monkeypatch.setitem(rules.MEASURES, "values", lambda results, case: limited)  # type: ignore[attr-defined]
    assert judge("difference", column(1), **VALUES).verdict == "direction only"


def test_seeds_that_would_decide_a_difference_do_so_four_times_in_five() -> None:
    part = over([1.0, -0.5, 0.2, 0.9, -0.1])
    needed = int(part.seeds(part.mean))
    assert detectable(part.spread[0], needed) <= part.mean < detectable(part.spread[0], needed - 1)
    assert math.isinf(over([1.0, -1.0]).seeds(0.0))
    assert math.isinf(over([0.1, 0.2, 0.0], grid=0.1).seeds(0.1)), "within a step of the grid"
    assert math.isnan(of_errors(1.0, 2.0).seeds(1.0)), "no seeds are behind it"


def test_seeds_do_not_narrow_what_differs_between_sets() -> None:
    alike = {name: {0: 0.1 + shift, 1: 0.3 + shift, 2: -0.05} for name, shift in (("a", 0.0), ("b", 0.02), ("c", 0.01))}
    apart = {name: {0: shift, 1: shift + 0.01, 2: shift} for name, shift in (("a", -1.0), ("b", 1.0), ("c", 0.3))}
    few, none = over_sets(alike), over_sets(apart)
    assert 3 < few.seeds(few.mean) < 100
    assert math.isinf(none.seeds(none.mean))
    assert "between sets" in rules._open(none, abs(none.mean), case(), False).reason


def test_without_a_spread_there_is_no_interval() -> None:
    for values in ([0.1], [0.1, 0.1, 0.1]):
        found = over(values)
        assert (found.mean, found.known) == (0.1, False)
    assert not over_sets({"a": {0: 1.0}, "b": {0: 2.0}}).known
    assert not over_models({"a": {0: 1.0}, "b": {0: 2.0}}).known
    one, two = over_models({"a": {0: 1.0, 1: 2.0}}), over_models({"a": {0: 1.0, 1: 2.0}, "b": {0: 1.0, 1: 2.1}})
    assert two.high - two.low < one.high - one.low


def test_more_comparisons_have_wider_intervals() -> None:
    one, many = of_errors(1.0, 0.1), of_errors(1.0, 0.1, comparisons=10)
    assert one.low == pytest.approx(1 - 0.196, abs=1e-3)
    assert many.low < one.low < one.high < many.high
    assert over([0.1, 0.2, 0.25], 5).low < over([0.1, 0.2, 0.25]).low
    assert share_of(3, 4).mean == 0.75


def curve(tmp_path: Path, risks: list[float] | np.ndarray, error: float) -> tuple[Results, Case]:
    rows = [f"{(place + 1) / (len(risks) + 1)},{risk},{error}" for place, risk in enumerate(risks)]
    (tmp_path / "fig1a.csv").write_text("\n".join(["ratio,risk,error", *rows]))
    return Results([tmp_path]), case(columns=("risk", "error"), options={"of": "end - inner"})


@pytest.mark.parametrize("risks", [[3.0, 1.0, 0.9, 2.0, 5.0], [1.0, 2.0, 3.0], [3.0, 2.0, 1.0]])
def test_the_largest_fall_is_negative_unless_the_curve_rises(tmp_path: Path, risks: list[float]) -> None:
    (found,) = rises(*curve(tmp_path, risks, 0.1)).parts.values()
    assert (found.mean >= 0) == bool((np.diff(risks) >= 0).all())
    assert found.low < found.mean < found.high


def test_the_lowest_point_of_a_curve(tmp_path: Path) -> None:
    (found,) = points(*curve(tmp_path, [3.0, 1.0, 0.9, 2.0, 5.0], 0.1)).parts.values()
    assert found.mean == pytest.approx(2.1), "from the lower end"
    (rising,) = points(*curve(tmp_path, [0.0, 1.0, 2.0, 3.0], 0.1)).parts.values()
    assert rising.mean == -1, "a rising curve has no inner minimum"


def test_equal_signals_count_once(tmp_path: Path) -> None:
    rows = [f"{p},{risk},0.1,{signal}" for signal, risk in ((1, 5), (1, 4), (2, 3)) for p in (0.1, 0.5)]
    (tmp_path / "fig1a.csv").write_text("\n".join(["ratio,risk,error,signal", *rows]))
    found = _families(Results([tmp_path]), case(columns=("risk", "error"), options={"order": "signal"}))
    assert [list(own.risk) for own in found[""]] == [[5, 5], [3, 3]]


WORDS = st.lists(st.sampled_from(sorted(MEANING)), min_size=1, max_size=9)


@given(WORDS)
def test_a_sum_is_reproduced_only_if_all_that_can_be_tested_is(words: list[Word]) -> None:
    tested = [word for word in words if word != "not testable here"]
    verdict = summed(words)
    assert (verdict == "reproduced") == (bool(tested) and set(tested) == {"reproduced"})
    assert (verdict == "not testable here") == (not tested)
    shown = tested.count("reproduced") + tested.count("direction only")
    refuted = tested.count("not reproduced")
    assert (verdict == "not reproduced") == (refuted > 0 and refuted >= shown)
    if verdict == "direction only":
        assert not {OPEN, UNDECIDABLE, "not run"} & set(words)


def test_several_cases_are_as_good_as_the_weakest() -> None:
    good, bad = Found("reproduced", "a", 1, 0.5, 2), Found("not reproduced", "b", -1, -2, -0.5)
    assert weakest([good, bad]) is bad
    wide, out = Found("undecided", "c", 0, -9, 9, seeds=7), Found("undecidable at this scale", "d", 0, -1, 1, seeds=99)
    open_ = weakest([good, wide, out])
    assert (open_.verdict, open_.low, open_.seeds, open_.reason) == (UNDECIDABLE, -9, 99, "d")
    assert weakest([replace(wide, seeds=5), wide]).seeds == 7


def test_minus_signs_are_typeset_before_numbers_alone() -> None:
    minus = "\N{MINUS SIGN}"
    assert typeset("a -0.5 (-1 to -0.2), covid-19, 3-4") == f"a {minus}0.5 ({minus}1 to {minus}0.2), covid-19, 3-4"
