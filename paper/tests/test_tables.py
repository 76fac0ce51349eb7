"""Tables 5 and 9, the readings of their text, and when a range pays: small, but measured."""

import csv
from pathlib import Path

import numpy as np
import pytest

from r2mae.masking.ratios import Uniform
from r2mae_paper import tables
from r2mae_paper.published import Table, published
from r2mae_paper.runner import run_study
from r2mae_paper.studies import entry_of
from r2mae_paper.study import get_study

pytestmark = pytest.mark.slow


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("table", [published("table5"), published("table9")])
def test_published_rows_are_complete(table: Table) -> None:
    assert set(table.entries) == {"beta", "latent"}
    for entries in table.entries.values():
        assert list(entries.index) == list(entry_of("table5").size("full").seeds)
        assert (entries["best"] <= entries["middle"]).all()
        assert (entries["r2mae"] < entries["middle"]).all(), "the claim that is looked into"


def test_published_values_are_those_of_the_paper() -> None:
    fifth, ninth = published("table5"), published("table9")
    assert (fifth.low, fifth.middle, fifth.high, fifth.quantile) == (0.5, 0.55, 0.6, 0.0)
    assert (ninth.low, ninth.middle, ninth.high, ninth.quantile) == (0.4, 0.45, 0.5, 0.1)
    assert fifth.entries["beta"].loc[12].to_list() == [0.53, 0.606, 0.612, 0.599, -0.013]
    assert ninth.entries["latent"].loc[42].to_list() == [0.43, 0.814, 0.818, 0.806, -0.012]


def test_a_cell_measures_what_it_says() -> None:
    size = entry_of("table5").size(n=60, d=150, seeds=(2,), masks=60, pairs=200, step=0.1)
    cell = tables.measure(published("table5"), "beta", 2, size)
    assert cell["best"] <= cell["middle"] + 0.05
    assert cell["best_50"] <= cell["r2mae_50"] + 0.1
    assert cell["gain"] == pytest.approx(cell["r2mae"] - cell["middle"])
    assert 0 < cell["gain_error"] < cell["r2mae_error"]  # pairing removes noise
    assert cell["formula_r2mae"] > cell["formula_middle"]
    assert cell["formula_best"] <= cell["formula_middle"]


@pytest.mark.parametrize("name", ["table5", "table9"])
def test_tables_are_written_with_the_papers_values(tmp_path: Path, name: str) -> None:
    calls: list[tuple[int, int]] = []
    size = entry_of("table5").size(n=40, d=80, seeds=(2, 42), masks=50, pairs=50, step=0.25)
    files = run_study(get_study(name), tmp_path, size=size, progress=lambda *done: calls.append(done)).files
    assert {path.name for path in files} == {f"{name}.csv", f"{name}.png", f"{name}.svg"}
    rows = read(tmp_path / f"{name}.csv")
    assert [(row["model"], row["seed"]) for row in rows] == [
        ("beta", "2"), ("beta", "42"), ("latent", "2"), ("latent", "42"),
    ]  # fmt: skip
    assert calls == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert all(float(row["paper_gain"]) < 0 for row in rows)


def test_the_same_number_twice_keeps_rows_of_low_ratio() -> None:
    """The reading that gives the published sign differs from the text's in the formula and in simulation."""
    size = entry_of("r2mae-vs-fixed").size(n=100, d=300, masks=150)
    found = {row["reading"]: row for row in tables.measure_readings(published("table5"), "latent", 2, size)}
    assert set(found) == {reading.name for reading in tables.READINGS}
    twice, written = found["same number twice"], found["as written"]
    assert twice["formula"] < -0.005 < 0 < written["formula"]
    assert twice["difference"] < -2 * twice["error"]
    assert abs(written["difference"] - written["formula"]) < 5 * written["error"]


def test_one_ratio_a_run_gives_all_rows_the_same_ratio() -> None:
    drawn = tables.OncePerRun(0.5, 0.6).quantile(np.array([0.3, 0.9, 0.1]))
    np.testing.assert_allclose(drawn, 0.53)


def test_readings_are_written(tmp_path: Path) -> None:
    files = run_study(
        get_study("r2mae-vs-fixed"), tmp_path, size=entry_of("r2mae-vs-fixed").size(n=40, d=80, seeds=(2,), masks=20)
    ).files
    assert {path.name for path in files} == {"rules.csv", "levels.csv", "rules.png", "rules.svg"}
    rules, levels = read(tmp_path / "rules.csv"), read(tmp_path / "levels.csv")
    assert len(rules) == 4 * len(tables.READINGS)
    assert {row["covariance"] for row in levels} == set(tables.SPECTRA)


def test_no_range_beats_the_best_fixed_ratio(tmp_path: Path) -> None:
    rows = [
        row
        for setting in tables.settings(entry_of("ranges").size(settings=40, d=120))
        for row in tables.compare(setting)
    ]
    assert len(rows) > 50
    assert all(row["range"] >= row["best_fixed"] - 1e-3 for row in rows)
    told = tables.summary(rows)
    assert told["mean"]["better_than_blind_pick"] > 0.5
    files = run_study(get_study("ranges"), tmp_path, size=entry_of("ranges").size(settings=24, d=120)).files
    assert {path.name for path in files} == {"summary.json", "ranges.csv", "width.csv", "ranges.png", "ranges.svg"}
    costs = read(tmp_path / "width.csv")
    assert all(float(row["cost"]) > 0 for row in costs)


def test_a_range_of_no_width_is_its_ratio() -> None:
    cov = tables.covariance("beta", 100, 2)
    beta = cov.eigenvectors(np.array([0]))[:, 0]
    result = tables.simulate(cov, beta, 50, [0.55, Uniform(0.55, 0.55)], noise=0.04, repetitions=5, seed=2)
    np.testing.assert_array_equal(result.risks[:, 0], result.risks[:, 1])
