"""Named sets: their files, and columns that are there and mean something."""

from pathlib import Path

import pandas as pd
import pytest

from r2mae.catalogue import fetch, verify
from r2mae.cells.batches import load_data
from r2mae.cells.config import CellsConfig
from r2mae.cells.sets import SET_DEFAULTS, SETS
from r2mae.errors import UserError

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
        CellsConfig(data=name, **defaults)
        assert SETS[name].wing == "cells"


@pytest.mark.parametrize("name", SHARED)
def test_shared_sets_are_what_they_are_called(shared_data: Path, name: str) -> None:
    assert set(verify(SETS[name]).values()) == {"ok"}
    data = load_data(CellsConfig(data=name, **SET_DEFAULTS[name]))
    without = [note for note in data.table.notes if "without a count" in note and name != "combat"]
    left_out = int(without[0].split()[0]) if without else 0
    assert (len(data.table), len(data.table.genes) + left_out) == SHAPES[name]


def test_batches_do_not_stand_for_what_is_predicted(shared_data: Path) -> None:
    for name in SHARED:
        defaults = SET_DEFAULTS[name]
        if "batch_key" not in defaults:
            continue
        obs = load_data(CellsConfig(data=name, **defaults)).table.obs
        for column in defaults["labels"]:
            seen = pd.crosstab(obs[defaults["batch_key"]], obs[column])
            assert (seen > 0).all(axis=None) or (seen.gt(0).sum(axis=1) > 1).all(), (name, column)


@pytest.mark.parametrize("name", ["csle", "hlca"])
def test_files_without_an_address_are_placed_by_hand(own_data_folder: Path, name: str) -> None:
    with pytest.raises(UserError, match="by hand"):
        fetch(SETS[name], progress=False)
    with pytest.raises(UserError, match="is missing"):
        load_data(CellsConfig(data=name))
