"""Named sets: their files, and columns that are there and mean something."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData

from r2mae.catalogue import fetch
from r2mae.cells.batches import load_data
from r2mae.cells.config import CellsConfig
from r2mae.cells.domain import DOMAIN
from r2mae.cells.sets import HLCA_DYNAMIC_END, SET_DEFAULTS, SETS
from r2mae.errors import UserError
from r2mae.masking.keys import Key
from r2mae.masking.ratios import LinearDecay
from r2mae.training import fit

SHARED = ("csle", "covid-tcells", "onek1k", "perez-tcells", "combat", "pig-airway")
SHAPES = {
    "csle": (1000, 1503),
    "covid-tcells": (5494, 500),
    "onek1k": (7811, 1000),
    "perez-tcells": (15751, 3000),
    "combat": (4591, 5000),
    "pig-airway": (2722, 1339),
}


def test_all_sets_have_defaults() -> None:
    assert set(SETS) == set(SET_DEFAULTS) == {*SHARED, "hlca", "sea-ad"}
    for name, defaults in SET_DEFAULTS.items():
        CellsConfig.make(data=name, **defaults)
        assert SETS[name].domain == "cells"


@pytest.mark.parametrize("options", [{"preset": "sea-ad", **DOMAIN.presets["sea-ad"]}, SET_DEFAULTS["sea-ad"]])
@pytest.mark.parametrize("scheme", ["dynamic", "r2mae-dynamic"])
def test_schedule_of_sea_ad_is_the_papers(options: dict[str, Any], scheme: str) -> None:
    """λ = 1/150,000: the floor is reached at step 120,000 of 155,049, and a run of another length has the shape."""
    config = CellsConfig.make(data="x", scheme=scheme, **options)
    steps = CellsConfig.make(data="x", **DOMAIN.presets["paper"]).optimizer.total_steps(round(0.9 * 1_378_211))
    assert steps == 155_049

    def floor(total: int) -> Callable[[int, Key], float]:
        ratio = config.scheme.make().bind(total).ratio
        assert isinstance(ratio, LinearDecay)
        return partial(LinearDecay.__call__, ratio)

    key = Key.root(0)
    paper = floor(steps)
    for step in (0, 1, 40_000, 119_000, 120_000, 155_048):
        assert paper(step, key) == pytest.approx(max(0.1, 0.5 - 0.5 * step / 150_000))
    short = floor(1001)
    assert short(773, key) > 0.1
    assert short(774, key) == pytest.approx(0.1)


@pytest.mark.parametrize("options", [DOMAIN.presets["sea-ad"], SET_DEFAULTS["sea-ad"]])
def test_curricula_of_sea_ad_keep_the_papers_steps(options: dict[str, Any]) -> None:
    """Frozen for 5,000 steps; the multiplier falls from step 30,000 to 120,000 of 155,049."""
    config = CellsConfig.make(data="x", scheme="cl", **options)
    curriculum = config.scheme.make().bind(155_049).curriculum
    assert curriculum is not None
    assert (curriculum.frozen(4_999), curriculum.frozen(5_001)) == (True, False)
    moments = [curriculum.multiplier_at(step) for step in (30_000, 75_000, 120_000)]
    assert moments == pytest.approx([1, 0, -1])


def test_schedule_of_other_runs_is_that_of_hlca() -> None:
    for options in ({}, {"preset": "hlca", **DOMAIN.presets["hlca"]}, SET_DEFAULTS["hlca"], SET_DEFAULTS["csle"]):
        config = CellsConfig.make(data="x", scheme="dynamic", **options)
        assert config.scheme_defaults == DOMAIN.config.ratios
        assert config.scheme.make().ratio == LinearDecay(0.5, 0.1, end=HLCA_DYNAMIC_END)


@pytest.mark.slow
def test_a_finished_run_used_the_timing_that_its_folder_names(
    tmp_path: Path, make: Callable[..., AnnData], write: Callable[..., Path]
) -> None:
    """The loop asks for the numbers of the configuration, not of the domain."""
    file = write(make(), tmp_path / "cells.h5ad")
    config = CellsConfig.make(
        data=str(file), scheme="dynamic", timing="sea-ad", n_hidden=8, n_latent=4, steps=101, batch_size=10, threads=1
    )
    ratios = pd.read_csv(fit(config, DOMAIN, tmp_path / "run").folder.metrics_file)["ratio"]
    assert ratios.iloc[76] > 0.1
    np.testing.assert_allclose(ratios.iloc[78:], 0.1)
    assert "timing: sea-ad" in (tmp_path / "run" / "config.yaml").read_text(encoding="utf-8")


def test_sets_name_their_tables_of_the_paper() -> None:
    """HLCA's are in the appendix (6 and 8), SEA-AD's average scores in the main text (4)."""
    assert "Tables 6 and 8" in SETS["hlca"].title
    assert "Tables 4 and 7" in SETS["sea-ad"].title


@pytest.mark.parametrize("name", SHARED)
def test_shared_sets_are_what_they_are_called(shared_data: Path, name: str) -> None:
    assert fetch(SETS[name], progress=False)
    data = load_data(CellsConfig.make(data=name, **SET_DEFAULTS[name]))
    without = [note for note in data.table.notes if "without a count" in note and name != "combat"]
    left_out = int(without[0].split()[0]) if without else 0
    assert (len(data.table), len(data.table.genes) + left_out) == SHAPES[name]


def test_batches_do_not_stand_for_what_is_predicted(shared_data: Path) -> None:
    for name in SHARED:
        defaults = SET_DEFAULTS[name]
        if "batch_key" not in defaults:
            continue
        obs = load_data(CellsConfig.make(data=name, **defaults)).table.obs
        for column in defaults["labels"]:
            seen = pd.crosstab(obs[defaults["batch_key"]], obs[column])
            assert (seen > 0).all(axis=None) or (seen.gt(0).sum(axis=1) > 1).all(), (name, column)


@pytest.mark.parametrize("name", ["csle", "hlca"])
def test_files_without_an_address_are_placed_by_hand(own_data_folder: Path, name: str) -> None:
    with pytest.raises(UserError, match="place it there"):
        fetch(SETS[name], progress=False)
    with pytest.raises(UserError, match="is missing"):
        load_data(CellsConfig.make(data=name))
