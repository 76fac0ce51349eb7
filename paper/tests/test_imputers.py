"""The study of imputers: tables, ways of hiding, and comparisons."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2mae_paper.imputers import OURS, drawn, hide, load, tables_of
from r2mae_paper.runner import run_study
from r2mae_paper.studies import entry_of
from r2mae_paper.study import get_study


@given(st.integers(0, 99), st.sampled_from(["random", "high", "blocks"]), st.sampled_from([0.1, 0.3, 0.5]))
def test_the_share_is_hidden(seed: int, mechanism: str, share: float) -> None:
    x = drawn(np.random.default_rng(0).normal(size=(600, 12)), seed, 300, 10)
    assert x.shape == (300, 10)
    hidden = hide(x, mechanism, share, seed)
    assert abs(hidden.mean() - share) < 0.07
    assert (~hidden).sum(axis=0).min() >= 2
    of_hidden = x[hidden].mean()
    assert of_hidden > 0.2 if mechanism == "high" else abs(of_hidden) < 0.2
    if mechanism == "blocks":
        assert len(np.unique(hidden, axis=1).T) <= 3, "columns of a group are hidden together"


@pytest.mark.parametrize(("name", "shape"), [("iris", (150, 4)), ("digits", (1797, 16))])
def test_tables(name: str, shape: tuple[int, int]) -> None:
    assert load(name).shape == shape


def test_differences_are_paired_over_seeds_and_in_per_cent_of_ours() -> None:
    known = {"table": "t", "rows": 9, "columns": 3, "hidden": "random", "share": 0.3}
    rows = [
        {**known, "seed": seed, "imputer": name, "error": (1 + seed) * factor, "seconds": 1.0}
        for name, factor in ((OURS, 1.0), ("mean", 1.5), ("same", 1.0))
        for seed in range(3)
    ]
    ours, mean, same = tables_of({"part": rows})["by-table"]
    assert ours == {"table": "t", "imputer": OURS, "error": 2.0, "seconds": 1.0}
    assert mean["percent_above_ours"] == pytest.approx(50)
    assert same["percent_above_ours"] == 0


@pytest.mark.slow
def test_the_small_study(tmp_path: Path) -> None:
    study = get_study("imputers")
    done = run_study(study, tmp_path, scale="small")
    assert [file.name for file in done.files] == ["imputers.csv", "by-table.csv", "by-kind.csv"]
    assert done.parts == len(entry_of("imputers").size("small").imputers)
