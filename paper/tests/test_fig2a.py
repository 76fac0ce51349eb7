"""Widths × ratios on MNIST: the runs, what is made of them, and the whole in small."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2mae.evaluation.statistics import best_fixed
from r2mae_paper import networks
from r2mae_paper.runner import Reproduced
from r2mae_paper.studies import entry_of

RATIOS = tuple(round(0.1 * k, 1) for k in range(1, 10))


def results(seeds: int = 3) -> pd.DataFrame:
    """Runs whose probe is best at 0.6 if the first layer is wide, and else falls; their entropy always falls."""
    rng = np.random.default_rng(0)
    rows = []
    for hidden in (16, 512):
        for latent in (16, 64):
            for ratio in RATIOS:
                for seed in range(seeds):
                    level = 0.97 - (ratio - 0.6) ** 2 if hidden == 512 else 0.9 - 0.2 * ratio
                    row = {"preset": f"mlp-{hidden}-{latent}", "ratio": f"{ratio:.2f}", "seed": seed, "seconds": 1.0}
                    row |= {
                        "probe_accuracy": level + 1e-4 * rng.normal(),
                        "spectral_entropy": 5 - ratio + 1e-4 * rng.normal(),
                    }
                    row |= {"as_trained_probe_accuracy": level - 0.01, "as_trained_spectral_entropy": 5 - 2 * ratio}
                    rows.append(row)
    return pd.DataFrame(rows)


def test_the_full_size_is_the_papers(tmp_path: Path) -> None:
    planned = networks.runs_of_mlps(entry_of("fig2a").size("full"), tmp_path)
    assert len(planned) == len({run.folder for run in planned}) == 5 * 9 * (5 + 10)
    seeds = {hidden: {run.seed for run in planned if run.config.model.hidden == hidden} for hidden in (16, 512)}
    assert seeds == {16: set(range(10)), 512: set(range(5))}
    few = networks.runs_of_mlps(entry_of("fig2a").size("full").with_seeds(2), tmp_path)
    assert {run.seed for run in few if run.config.model.hidden == 16} == {0, 1, 2, 3}
    own = networks.runs_of_mlps(entry_of("fig2a").size("full", hidden=(512,), seeds=(7, 9)), tmp_path)
    assert {run.seed for run in own} == {7, 9}, "a single width has no narrower one"
    widths = {(hidden, latent) for hidden in (16, 512) for latent in (16, 32, 64, 256, 1024)}
    assert {(run.config.model.hidden, run.config.model.latent) for run in planned} == widths
    assert {run.config.scheme.options["ratio"] for run in planned} == set(RATIOS)
    for run in planned:
        config = run.config
        assert (config.data.source, config.scheme.name, config.evaluation.bn_statistics) == ("mnist", "fixed", "both")
        assert (config.optimizer.lr, config.optimizer.batch_size, config.optimizer.epochs, config.optimizer.steps) == (
            3e-3,
            128,
            15,
            None,
        )


def test_the_small_size_has_every_width(tmp_path: Path) -> None:
    planned = networks.runs_of_mlps(entry_of("fig2a").size("small"), tmp_path)
    assert len({(run.config.model.hidden, run.config.model.latent) for run in planned}) == 10
    assert {run.config.optimizer.epochs for run in planned} == {5}
    assert len(planned) == 10 * 9 * 5


def test_shapes_tell_an_interior_optimum_from_a_fall() -> None:
    tables = networks.table_of_mlps(results())
    assert len(tables["fig2a"]) == 2 * 2 * 9
    assert len(tables["fig2a-runs"]) == 2 * 2 * 9 * 3
    shapes = {(row["score"], row["hidden"], row["latent"]): row for row in tables["fig2a-shapes"]}
    wide, narrow = shapes["probe_accuracy", 512, 64], shapes["probe_accuracy", 16, 64]
    assert (wide["best_ratio"], narrow["best_ratio"]) == (0.6, 0.1)
    assert wide["interior"]
    assert not narrow["interior"]
    assert wide["vs_lowest"] == pytest.approx(0.25, abs=1e-3)
    assert wide["vs_highest"] == pytest.approx(0.09, abs=1e-3)
    assert narrow["vs_lowest"] == pytest.approx(-0.02, abs=1e-3), "the best of the larger ratios, 0.2"
    entropy = shapes["spectral_entropy", 512, 16]
    assert (entropy["best_ratio"], entropy["vs_lowest_is"]) == (0.9, "better"), "the claim is that it falls"
    assert entropy["vs_lowest"] == pytest.approx(-0.8, abs=1e-3)
    apart = {(row["score"], row["latent"]): row for row in tables["fig2a-widths"]}
    assert apart["probe_accuracy", 64]["gain_of_wide_minus_narrow"] == pytest.approx(0.27, abs=1e-3)
    assert apart["probe_accuracy", 64]["is"] == "better"
    assert apart["as_trained_probe_accuracy", 16]["is"] == "undecided", "equal differences say nothing of a spread"


def test_widths_are_compared_on_the_seeds_that_they_share() -> None:
    six = results(6)
    tables = networks.table_of_mlps(six[(six["seed"] < 3) | six["preset"].str.startswith("mlp-16-")])
    assert {(row["hidden"], row["seeds"]) for row in tables["fig2a-shapes"]} == {(16, 6), (512, 3)}
    assert {row["seeds"] for row in tables["fig2a-widths"]} == {3}


def test_one_seed_has_no_interval() -> None:
    tables = networks.table_of_mlps(results(1))
    assert {row["vs_lowest_is"] for row in tables["fig2a-shapes"]} == {"undecided"}
    assert not any(row["interior"] for row in tables["fig2a-shapes"])


def test_the_best_ratio_of_a_seed_is_chosen_on_the_others() -> None:
    """On pure chance the best of nine ratios is no better than the first."""
    chance = results(200)
    chance["probe_accuracy"] = np.random.default_rng(1).normal(size=len(chance))
    shapes = [row for row in networks.table_of_mlps(chance)["fig2a-shapes"] if row["score"] == "probe_accuracy"]
    assert all(row["vs_lowest_low"] < 0.25 for row in shapes)
    assert not any(row["interior"] for row in shapes)


def test_figures_show_both_kinds_of_batch_statistics() -> None:
    tables = networks.table_of_mlps(results())
    figures = networks.plot_mlps(tables, entry_of("fig2a").size())
    assert set(figures) == {"fig2a", "fig2d"}
    assert [len(figure.axes) for figure in figures.values()] == [4, 2]
    for axes in (*figures["fig2a"].axes, *figures["fig2d"].axes):
        assert len(axes.containers) == 2
    for figure in figures.values():
        assert "standard deviation" in figure.axes[-1].get_legend().get_title().get_text(), "what the bars are"
    entropies = [axes.containers[0].lines[0].get_ydata() for axes in figures["fig2d"].axes]
    assert entropies[0] == pytest.approx([5 - 2 * ratio for ratio in RATIOS]), "those of training come first"
    assert entropies[1] == pytest.approx([5 - ratio for ratio in RATIOS], abs=1e-3)


@pytest.mark.slow
def test_the_smoke_size_runs(smoke: Callable[[str], Reproduced], tmp_path: Path) -> None:
    done = smoke("fig2a")
    assert done.parts == 4
    rows = pd.read_csv(tmp_path / "fig2a.csv")
    assert list(zip(rows["hidden"], rows["ratio"], strict=True)) == [(16, 0.3), (16, 0.7), (512, 0.3), (512, 0.7)]
    assert np.isfinite(rows[["probe_accuracy", "as_trained_spectral_entropy"]]).all(axis=None)
    assert all((tmp_path / f"{name}.png").stat().st_size > 0 for name in ("fig2a", "fig2d"))


def test_two_widths_are_compared_under_the_seeds_that_both_have() -> None:
    """The wide one lacks a seed; the gains under the others differ by 0.02 whatever ratio is chosen."""
    lines = []
    for hidden, gain, seeds in ((16, 0.01, range(5)), (512, 0.03, range(4))):
        rng = np.random.default_rng(hidden)
        for seed, jitter in zip(seeds, rng.normal(size=5) / 1000, strict=False):
            lines += [
                {"preset": f"mlp-{hidden}-64", "hidden": hidden, "latent": 64, "ratio": ratio, "seed": seed,
                 "probe_accuracy": 0.9 + (gain + jitter if ratio > 0.1 else 0.0)}
                for ratio in (0.1, 0.5, 0.9)
            ]  # fmt: skip
    (row,) = networks._differences(pd.DataFrame(lines), "probe_accuracy")
    assert (row["wide"], row["narrow"], row["seeds"], row["is"]) == (512, 16, 4, "better")
    assert row["gain_of_wide_minus_narrow"] == pytest.approx(0.02, abs=0.002)


@given(seed=st.integers(0, 1000))
def test_a_comparison_of_widths_takes_the_wider_spread(seed: int) -> None:
    rng = np.random.default_rng(seed)
    wide, narrow = rng.normal(size=(2, 5, 4))
    found = np.subtract(*networks._gains_of_two(wide, narrow))
    plain = best_fixed(wide[:, 1:]).scores - wide[:, 0] - (best_fixed(narrow[:, 1:]).scores - narrow[:, 0])
    assert found.mean() == pytest.approx(plain.mean())
    assert found.std() >= plain.std() - 1e-12
