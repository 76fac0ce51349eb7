"""Regrets of rules on runs with known answers, and the ratio of the closed form."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.ticker import LogLocator

from r2mae.theory.advise import advise
from r2mae.theory.sample import from_data
from r2mae_paper.gains import ADVISED, CLOSED_FORM, GRID, SETS, SWEEP, closed_form, draw_rules, rules_table

RATIOS = (0.1, 0.3, 0.5, 0.7, 0.9)
OTHERS = {"blind": "fixed 0.50", "any": "r2mae", "absent": "dynamic"}


def runs(error_best: float, probe_best: float, sets: int = 3, wobble: float = 0.0) -> pd.DataFrame:
    """On each set the error is lowest at one ratio, and the probe best at another; r2mae is 2 % above that error."""
    rng = np.random.default_rng(0)
    rows = []
    for number in range(sets):
        for seed in range(4):
            common = 1 + 0.05 * rng.normal()
            for ratio in (*RATIOS, None):
                label = "r2mae" if ratio is None else f"fixed {ratio:.2f}"
                error = 1.02 if ratio is None else 1 + (ratio - error_best) ** 2
                probe = 0.9 if ratio is None else 0.9 - 0.1 * abs(ratio - probe_best)
                own = 1 + wobble * rng.normal()
                rows.append(
                    {"set": f"set {number}", "label": label, "seed": seed, "error": 0.1**number * common * error * own}
                )
                rows[-1] |= {"probe": probe + common - 1.5, ADVISED["features"]: 0.12, ADVISED["directions"]: 0.72}
    return pd.DataFrame(rows)


def test_each_rule_loses_what_it_must() -> None:
    table = rules_table(runs(0.3, 0.7), "error", "probe", OTHERS)
    found = {(row["score"], row["rule"], row["set"]): row for row in table}
    assert {row["rule"] for row in table} == {"blind", "any", SWEEP, CLOSED_FORM}, "a row that is absent is no rule"
    expected = {
        ("error", "blind"): 4.0, ("error", "any"): 2.0, ("error", SWEEP): 0.0, ("error", CLOSED_FORM): 4.0,
        ("probe", "blind"): 0.02, ("probe", "any"): 0.0, ("probe", SWEEP): 0.04, ("probe", CLOSED_FORM): 0.0,
    }  # fmt: skip
    for (score, rule), regret in expected.items():
        for name in ("set 0", "set 2", SETS):
            row = found[score, rule, name]
            assert row["regret"] == pytest.approx(regret, abs=1e-9)
            assert row["low"] <= row["regret"] + 1e-9
            assert row["high"] >= row["regret"] - 1e-9
            assert row["unit"] == {"error": "percent", "probe": "difference"}[score]
    assert found["probe", SWEEP, "set 1"]["chosen"] == "0.3"
    assert found["probe", CLOSED_FORM, "set 1"]["chosen"] == "0.7 (advised 0.72)"
    assert found["error", CLOSED_FORM, "set 1"]["chosen"] == "0.1 (advised 0.12)"
    figure = draw_rules(table, {"error": "error", "probe": "probe", "other": "not there"})
    assert len(figure.axes) == 2


def test_the_best_ratio_is_named_and_an_edge_is_told() -> None:
    table = rules_table(runs(0.9, 0.7), "error", "probe", OTHERS)
    said = {(row["score"], row["best_fixed"]) for row in table if row["set"] != SETS}
    assert said == {("error", "0.9 (at the edge)"), ("probe", "0.7")}
    low = runs(0.3, 0.7).assign(**{ADVISED["features"]: 0.02})
    chosen = {row["chosen"] for row in rules_table(low, "error", "absent", {}) if row["rule"] == CLOSED_FORM}
    assert chosen == {"0.1 (advised 0.02, the end of its grid)", ""}


def test_a_row_without_an_error_is_not_swept() -> None:
    """As of a run that diverged: its probe is there, its error is not."""
    table = runs(0.3, 0.7)
    table.loc[table["label"] == "fixed 0.30", "error"] = np.nan
    rows = rules_table(table, "error", "probe", OTHERS)
    (swept,) = [row for row in rows if (row["score"], row["rule"], row["set"]) == ("probe", SWEEP, "set 0")]
    assert swept["chosen"] in ("0.1", "0.5")
    table["error"] = np.nan
    assert {row["rule"] for row in rules_table(table, "error", "probe", {})} == {CLOSED_FORM}


def test_sets_without_a_difference_do_not_decide_alone() -> None:
    table = runs(0.5, 0.5, wobble=0.05)
    blind = table["set"] == "set 0"
    table.loc[blind, "error"] = table[blind].groupby("seed")["error"].transform("mean")
    rows = [row for row in rules_table(table, "error", "absent", OTHERS) if row["rule"] == "any"]
    assert rows[0]["regret"] == pytest.approx(0, abs=1e-9)
    assert rows[-1]["set"] == SETS
    assert rows[-1]["high"] - rows[-1]["low"] > 1, "percent"


def test_the_sweep_chooses_on_another_seed_than_it_is_judged_on() -> None:
    """With noise alone, its ratio is no better than any: chosen and judged on one seed it would seem far better."""
    noise = runs(0.3, 0.7, sets=40)
    rng = np.random.default_rng(1)
    noise["error"] = np.exp(rng.normal(size=len(noise)))
    rows = rules_table(noise[noise["label"] != "r2mae"], "error", "probe", {})
    (average,) = [row for row in rows if row["rule"] == SWEEP and row["set"] == SETS and row["score"] == "error"]
    assert average["low"] < 0 < average["high"]


def test_without_advice_or_a_second_seed_there_is_no_rule() -> None:
    alone = runs(0.3, 0.7).drop(columns=list(ADVISED.values()))
    rules = {row["rule"] for row in rules_table(alone, "error", "probe", OTHERS)}
    assert rules == {"blind", "any", SWEEP}
    assert rules_table(alone[alone["seed"] == 0], "error", "probe", OTHERS) == []
    single = rules_table(alone[alone["set"] == "set 0"], "error", "absent", OTHERS)
    assert {(row["set"], row["score"]) for row in single} == {("set 0", "error")}, "one set has no average"


def test_the_closed_form_is_that_of_the_advice() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(300, 5)) @ rng.normal(size=(5, 40)) + 0.3 * rng.normal(size=(300, 40))
    advice = advise(from_data(values, scale=True), 300, ratios=GRID)
    found = closed_form(np.column_stack([values, np.ones(300)]))
    assert found[ADVISED["directions"]] == advice.directions.ratio_of_lowest(advice.directions.mean)
    assert found[ADVISED["features"]] == advice.features.ratio_of_lowest(advice.features.weighted)


def test_ticks_fit_the_range() -> None:
    """Quotients of some per cent have more ticks than 1 alone, and those of a wide range have few."""
    for best, most in ((0.3, 6), (0.05, 6), (0.01, 6)):
        table = rules_table(runs(best, 0.7), "error", "probe", OTHERS)
        axes = draw_rules(table, {"error": "error"}).axes[0]
        low, high = axes.get_xlim()
        inside = [tick for tick in axes.get_xticks() if low <= tick <= high]
        assert 2 <= len(inside) <= most
        if high / low > 20:
            assert isinstance(axes.xaxis.get_major_locator(), LogLocator), "ticks on the whole of a wide axis"


def test_dots_of_a_single_set_stand_on_their_rows() -> None:
    table = rules_table(runs(0.3, 0.7), "error", "probe", OTHERS)
    single = [row for row in table if row["set"] == "set 0"]
    for rows, above in ((single, 0.0), (table, 0.22)):
        dots = [
            line for line in draw_rules(rows, {"error": "error"}).axes[0].get_lines() if line.get_label() == "set 0"
        ]
        assert sorted(float(np.ravel(line.get_ydata())[0]) for line in dots) == pytest.approx(
            [place - above for place in range(4)]
        )
