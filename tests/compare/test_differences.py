"""What the interval of a difference is over: in the console, the page, results.csv and results.json."""

import json
from collections.abc import Callable
from dataclasses import replace
from io import StringIO

import numpy as np
import pytest
from rich.console import Console

from r2mae.compare.analysis import analyse
from r2mae.compare.comparison import Comparison
from r2mae.compare.publish import render_report, to_json
from r2mae.compare.table import print_comparison
from r2mae.evaluation import crossed_difference
from r2mae.evaluation.items import ItemScores

Make = Callable[..., Comparison]
ITEMS = 300


def items_of_rows(labels: list[str], seeds: int) -> dict[str, np.ndarray]:
    """Scores of single items by row, seeds × items: r2mae is a little better, and items differ widely."""
    rng = np.random.default_rng(0)
    items = rng.normal(1.0, 0.5, ITEMS)
    return {
        label: (items + 0.05 * rng.normal(size=(seeds, ITEMS)) + 0.02 * (label == "r2mae")).astype(np.float32)
        for label in labels
    }


@pytest.fixture
def with_items(tiny: Make) -> Make:
    """Build a comparison whose runs have scores of single items, but for those of the labels `without`."""

    def make(seeds: int = 3, *, without: str = "", split: bool = False) -> Comparison:
        tables = items_of_rows(["fixed 0.50", "mdlm", "r2mae"], seeds)
        scores = {label: [float(row.astype(float).mean()) for row in table] for label, table in tables.items()}
        items = {
            (label, seed): ItemScores(f"items {seed if split else 0}", ITEMS, {"score": table[seed]})
            for label, table in tables.items()
            for seed in range(seeds)
            if label != without
        }
        return replace(tiny(scores), items=items)

    return make


def shown(comparison: Comparison) -> str:
    console = Console(width=110, record=True, file=StringIO())
    print_comparison(console, comparison, analyse(comparison))
    return console.export_text()


def test_shared_items_are_in_the_interval_and_it_is_said(with_items: Make) -> None:
    comparison = with_items()
    found = analyse(comparison).difference("r2mae", "score")
    tables = items_of_rows(["fixed 0.50", "mdlm", "r2mae"], 3)
    expected = crossed_difference(tables["r2mae"], tables["fixed 0.50"])
    assert found is not None
    assert (found["over"], found["items"], found["method"], found["verdict"]) == (
        "seeds and items", ITEMS, "crossed t", expected.verdict,
    )  # fmt: skip
    np.testing.assert_allclose([found["low"], found["high"]], [expected.low, expected.high], rtol=1e-5)
    assert found["why"] == "all runs have scores of the same test items"
    assert "±" in next(line for line in shown(comparison).splitlines() if line.startswith("mdlm "))


def test_the_interval_counts_the_choice_of_a_ratio_but_none_where_a_ratio_is_named(tiny: Make) -> None:
    rng, labels = np.random.default_rng(1), ["fixed 0.25", "fixed 0.50", "fixed 0.75", "r2mae"]
    seeds, items = rng.normal(size=(4, 5, 1)), 0.1 * rng.normal(size=(4, 5, ITEMS))
    tables = dict(zip(labels, (seeds + items).astype(np.float32), strict=True))
    kept = {
        (label, seed): ItemScores("", ITEMS, {"score": row})
        for label in labels
        for seed, row in enumerate(tables[label])
    }
    comparison = replace(
        tiny({label: table.astype(float).mean(1).tolist() for label, table in tables.items()}), items=kept
    )
    analysis = analyse(comparison)
    found, choice = analysis.difference("r2mae", "score"), analysis.best_fixed["score"].labels
    chosen = np.stack([tables[choice[seed]][seed] for seed in range(5)])
    plain = crossed_difference(tables["r2mae"], chosen)
    assert found is not None and len(set(choice.values())) > 1
    assert found["mean"] == pytest.approx(plain.mean) and found["high"] - found["low"] > 1.2 * (plain.high - plain.low)
    named = analyse(replace(comparison, config={**comparison.config, "against": "fixed 0.50"})).difference(
        "r2mae", "score"
    )
    expected = crossed_difference(tables["r2mae"], tables["fixed 0.50"])
    assert named is not None and (named["low"], named["high"]) == (expected.low, expected.high)


def test_a_split_by_seed_leaves_seeds_alone(with_items: Make) -> None:
    comparison = with_items(split=True)
    found = analyse(comparison).difference("r2mae", "score")
    bare = analyse(replace(comparison, items={})).difference("r2mae", "score")
    assert found is not None and bare is not None
    assert (found["over"], found["items"]) == ("seeds", 0)
    assert [found[name] for name in ("mean", "low", "high", "n", "method", "verdict", "decides")] == [
        bare[name] for name in ("mean", "low", "high", "n", "method", "verdict", "decides")
    ]
    assert found["why"] == "the seeds have different test items"


def test_a_mixed_case_is_said_row_by_row(with_items: Make) -> None:
    comparison = with_items(without="mdlm")
    analysis = analyse(comparison)
    page = render_report(comparison, analysis)
    assert page.count(">seeds</span>") == page.count(">seeds and items</span>") == 1


def test_results_json_says_it(with_items: Make) -> None:
    comparison = with_items(without="mdlm")
    said = json.loads(json.dumps(to_json(comparison, analyse(comparison))))
    line = next(one for one in said["differences"] if one["label"] == "r2mae")
    assert (line["over"], line["items"]) == ("seeds and items", ITEMS)
