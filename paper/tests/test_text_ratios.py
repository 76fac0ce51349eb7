"""Text models by size and ratio: the runs, what is made of them, a table that fig2c takes, and all in small."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2mae.cli.main import main
from r2mae.errors import UserError
from r2mae_paper import curves
from r2mae_paper.curves import TASKS
from r2mae_paper.runner import Reproduced
from r2mae_paper.studies import entry_of

RATIOS = (0.15, 0.3, 0.4, 0.5, 0.6, 0.8)
BEST = {"2x128": 0.3, "2x256": 0.5}
SCORES = ("accuracy_0.15", "accuracy_0.8", "sst2_probe_accuracy")


def results(seeds: int = 3) -> pd.DataFrame:
    """Runs that are best at a ratio of their model, but for hidden 0.8, of which they tell more the more they hide."""
    rng = np.random.default_rng(0)
    rows: list[dict[str, Any]] = []
    for model, best in BEST.items():
        for ratio in RATIOS:
            for seed in range(seeds):
                values = [0.4 - (ratio - best) ** 2, 0.1 + 0.1 * ratio, 0.6 - 0.5 * (ratio - best) ** 2]
                scores = {name: value + 1e-4 * rng.normal() for name, value in zip(SCORES, values, strict=True)}
                row = {"model": model, "ratio": f"{ratio:.2f}", "label": f"{model} {ratio:.2f}", "seed": seed}
                rows.append({**row, "seconds": 1.0, "loss": 5.0, **scores})
    return pd.DataFrame(rows)


def test_every_model_has_every_ratio(tmp_path: Path) -> None:
    size = entry_of("text-ratios").size("small")
    planned = curves.runs_of_texts(size, tmp_path)
    assert len(planned) == len({run.folder for run in planned}) == 2 * 6 * size.seeds
    assert {run.config.scheme.options["ratio"] for run in planned} == set(RATIOS)
    assert {(run.config.model.layers, run.config.model.hidden_size, run.config.optimizer.lr) for run in planned} == {
        (2, 64, 2e-3), (2, 128, 2e-3),
    }  # fmt: skip
    assert {(run.config.scheme.name, run.config.data.source) for run in planned} == {("fixed", "wiki")}
    full = curves.runs_of_texts(entry_of("text-ratios").size("full"), tmp_path)
    assert {(run.config.preset, run.config.data.source) for run in full} == {
        ("roberta-medium", "fineweb"), ("roberta-base", "fineweb"),
    }  # fmt: skip


def test_curves_have_intervals_and_best_ratios() -> None:
    tables = curves.table_of_texts(results())
    assert len(tables["text-ratios"]) == 2 * 3 * 6
    assert len(tables["text-ratios-runs"]) == 2 * 6 * 3
    best = {(row["model"], row["task"]): row for row in tables["text-ratios-best"]}
    titles = [TASKS[score] for score in SCORES]
    for model, ratio in BEST.items():
        assert [best[model, title]["best_ratio"] for title in titles] == [ratio, 0.8, ratio]
        assert [best[model, title]["interior"] for title in titles] == [True, False, True]
    row = best["2x128", titles[0]]
    assert (row["best_ratio_from"], row["best_ratio_until"]) == (0.3, 0.3)
    assert row["vs_lowest"] == pytest.approx(0.0225, abs=1e-3)
    assert row["vs_highest"] == pytest.approx(0.25, abs=1e-3)
    first = tables["text-ratios"][0]
    assert first["low"] < first["accuracy"] < first["high"]


def test_tasks_whose_error_falls_have_no_common_scale() -> None:
    tables = curves.table_of_texts(results())
    scaled = pd.DataFrame(tables["text-ratios-scaled"])
    assert set(scaled["task"]) == {TASKS["accuracy_0.15"], TASKS["sst2_probe_accuracy"]}
    at = scaled.pivot_table(index=["model", "task"], columns="ratio", values="scaled")
    np.testing.assert_allclose(2 * at[0.15] - at[0.3], 0, atol=1e-12)
    for _, own in (at[0.8] - at[0.4]).groupby("model"):
        assert np.ptp(own) < 1e-12
    assert set(curves.plot_texts(tables, entry_of("text-ratios").size())) == {"text-ratios", "text-ratios-scaled"}


def test_other_ratios_have_no_common_scale() -> None:
    runs = results()
    tables = curves.table_of_texts(runs[runs["ratio"] != "0.30"])
    assert tables["text-ratios-scaled"] == []
    assert list(curves.plot_texts(tables, entry_of("text-ratios").size())) == ["text-ratios"]


@given(st.permutations(range(36)))
def test_the_order_of_the_runs_changes_no_number(order: list[int]) -> None:
    runs = results()
    mixed = curves.table_of_texts(runs.iloc[order])
    for name, rows in curves.table_of_texts(runs).items():
        if name != "text-ratios-runs":
            columns = ["model", "task", *(["ratio"] if "ratio" in rows[0] else [])]
            mine, other = (pd.DataFrame(one).sort_values(columns, ignore_index=True) for one in (rows, mixed[name]))
            pd.testing.assert_frame_equal(mine, other)


def test_one_seed_has_no_interval_and_no_common_scale() -> None:
    tables = curves.table_of_texts(results(1))
    assert all(np.isnan(row["low"]) for row in tables["text-ratios"])
    assert not any(row["interior"] for row in tables["text-ratios-best"])
    assert list(curves.plot_texts(tables, entry_of("text-ratios").size())) == ["text-ratios"]


def test_a_rise_that_may_be_chance_is_not_stretched() -> None:
    runs = results()
    rng = np.random.default_rng(3)
    for seed in range(20):
        runs["qnli_probe_accuracy"] = 0.6 + 0.002 * rng.normal(size=len(runs))
        scaled = pd.DataFrame(curves.table_of_texts(runs)["text-ratios-scaled"])
        assert scaled["scaled"].abs().max() < 1 or TASKS["qnli_probe_accuracy"] not in set(scaled["task"]), seed


def test_missing_scores_are_left_out() -> None:
    runs = results()
    runs.loc[runs["model"] == "2x128", "accuracy_0.8"] = np.nan
    runs.loc[(runs["model"] == "2x256") & (runs["ratio"] == "0.80"), "accuracy_0.15"] = np.nan
    for seed, ratio in enumerate(("0.15", "0.30", "0.40")):
        lost = (runs["model"] == "2x256") & (runs["seed"] == seed) & (runs["ratio"] == ratio)
        runs.loc[lost, "sst2_probe_accuracy"] = np.nan
    tables = curves.table_of_texts(runs)
    counts = pd.DataFrame(tables["text-ratios"]).groupby(["model", "task"]).size()
    assert counts["2x256", TASKS["accuracy_0.15"]] == 5
    assert ("2x128", TASKS["accuracy_0.8"]) not in counts
    best = {(row["model"], row["task"]): row for row in tables["text-ratios-best"]}
    assert best["2x256", TASKS["sst2_probe_accuracy"]]["seeds"] == 0, "no seed has every ratio"
    assert set(curves.plot_texts(tables, entry_of("text-ratios").size())) == {"text-ratios", "text-ratios-scaled"}


def test_an_unknown_model_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="unknown model '2x12': did you mean '2x128'"):
        curves.runs_of_texts(entry_of("text-ratios").size(models=("2x12",)), tmp_path)


def test_rings_are_at_the_best_ratios() -> None:
    figure = curves.plot_texts(curves.table_of_texts(results()), entry_of("text-ratios").size())["text-ratios"]
    panel = figure.axes[0]
    rings = [float(np.asarray(line.get_xdata())[0]) for line in panel.lines if line.get_markersize() == 9]
    assert rings == list(BEST.values())
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == list(BEST)


@pytest.mark.slow
@pytest.mark.usefixtures("shared_data")
def test_smoke_gives_a_table_that_others_draw(
    smoke: Callable[[str], Reproduced], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = smoke("text-ratios")
    assert (done.parts, done.kept) == (8, 0)
    assert [file.name for file in done.files[:3]] == [
        "text-ratios.csv",
        "text-ratios-best.csv",
        "text-ratios-scaled.csv",
    ]
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "fig2c", "--curve", str(done.files[0]), "--out", "drawn"]) == 0
    drawn = pd.read_csv(tmp_path / "drawn" / "fig2c" / "fig2c.csv")
    assert set(drawn["model"]) == {"2x64", "2x128"}
    np.testing.assert_allclose(drawn["accuracy"], pd.read_csv(done.files[0])["accuracy"])
