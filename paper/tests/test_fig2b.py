"""Widths × ratios on faces: the runs, what is made of them, and the whole on images that are no faces."""

from collections.abc import Sequence
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from r2mae.compare.runs import SweepRun
from r2mae_paper import networks
from r2mae_paper.runner import run_study
from r2mae_paper.studies import entry_of
from r2mae_paper.study import get_study

RATIOS = tuple(round(0.1 * k, 1) for k in range(1, 10))


def results(*, attributes: bool = True) -> pd.DataFrame:
    """Runs whose error is lowest at 0.6 and 0.7, and whose probe jumps after 0.4."""
    rows = []
    for channels, best in ((8, 0.6), (16, 0.7)):
        for ratio in RATIOS:
            for seed in range(3):
                error = 0.01 + (ratio - best) ** 2 + 1e-4 * seed
                row = {"label": "", "preset": f"unet-{channels}", "ratio": f"{ratio:.2f}", "seed": seed}
                row |= {"clean_mse": error, "as_trained_clean_mse": 2 * error}
                if attributes:
                    row["attribute_accuracy"] = 0.1 * ratio + (ratio > 0.45) + 1e-3 * seed
                rows.append(row)
    return pd.DataFrame(rows)


def test_the_full_size_is_the_papers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("R2MAE_DATA", "/somewhere")
    planned = networks.runs_of_unets(entry_of("fig2b").size("full"), tmp_path)
    assert_complete(planned, side=128, widths={8, 16, 32})
    for run in planned:
        config = run.config
        assert (config.optimizer.lr, config.optimizer.batch_size, config.optimizer.epochs, config.optimizer.steps) == (
            1e-3,
            256,
            10,
            None,
        )
        assert config.data.source == "/somewhere/celeba-aligned"


def test_the_small_size_takes_some_of_the_shared_faces(tmp_path: Path, shared_data: Path) -> None:
    planned = networks.runs_of_unets(entry_of("fig2b").size("small"), tmp_path)
    assert_complete(planned, side=64, widths={4, 8, 16})
    assert {
        (run.config.optimizer.lr, run.config.optimizer.batch_size, run.config.optimizer.steps) for run in planned
    } == {(1e-3, 32, 200)}
    (data,) = {run.config.data.source for run in planned}
    rows = pd.read_csv(Path(data) / "list_attr.csv")
    assert rows.shape == (4000, 41)


def assert_complete(planned: Sequence[SweepRun], *, side: int, widths: set[int]) -> None:
    """Assert that there is a run for each width, ratio and seed."""
    assert len(planned) == len({run.folder for run in planned}) == 3 * 9 * 3
    assert {run.config.model.channels for run in planned} == widths
    assert {run.config.scheme.options["ratio"] for run in planned} == set(RATIOS)
    for run in planned:
        config = run.config
        assert (config.model.name, config.scheme.name, config.data.resize) == ("unet", "fixed", side)
        assert config.evaluation.bn_statistics == "both"


def test_tables_have_means_over_seeds_and_the_best_ratio_of_each_width() -> None:
    tables = networks.table_of_unets(results())
    means = {(row["channels"], row["ratio"]): row for row in tables["fig2b"]}
    assert len(means) == 18
    assert means[8, 0.6]["clean_mse"] == pytest.approx(0.0101)
    assert means[8, 0.6]["clean_mse_sd"] == pytest.approx(1e-4)
    best = {(row["score"], row["channels"]): row for row in tables["fig2b-best"]}
    for channels, ratio in ((8, 0.6), (16, 0.7)):
        row = best["clean_mse", channels]
        assert (row["best_ratio"], row["paper_best_ratio"]) == pytest.approx((ratio, ratio))
        assert best["as_trained_clean_mse", channels]["best_ratio"] == pytest.approx(ratio)
        probe = best["attribute_accuracy", channels]
        assert probe["largest_rise_after"] == pytest.approx(0.4)
        assert probe["largest_rise"] == pytest.approx(1.01)
    assert len(tables["fig2b-runs"]) == 54


@pytest.mark.parametrize("attributes", [True, False])
def test_figures_show_every_width(attributes: bool) -> None:
    tables = networks.table_of_unets(results(attributes=attributes))
    figures = networks.plot_unets(tables, entry_of("fig2b").size())
    assert set(figures) == ({"fig2b", "fig5-7"} if attributes else {"fig2b"})
    assert len(figures["fig2b"].axes[0].containers) == 4  # each width with both kinds of batch statistics
    if attributes:
        assert [axes.get_title() for axes in figures["fig5-7"].axes] == ["8 channels", "16 channels"]


@pytest.mark.slow
def test_it_runs_on_any_images(tmp_path: Path) -> None:
    size = entry_of("fig2b").size("smoke", data="digits", side=8, channels=(4,))
    done = run_study(get_study("fig2b"), tmp_path, size=size, console=Console(file=StringIO()))
    assert done.parts == 2
    rows = pd.read_csv(tmp_path / "fig2b.csv")
    assert list(rows["ratio"]) == [0.3, 0.7]
    assert np.isfinite(rows[["clean_mse", "as_trained_clean_mse"]]).all(axis=None)
    assert (tmp_path / "fig2b.png").stat().st_size > 0
