"""Other cells than those of a run: with the probes that they allow, and everything else in any case."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pytest

from r2mae.cells.batches import load_other_data
from r2mae.cells.config import CellsConfig
from r2mae.cli.main import main

Make = Callable[..., anndata.AnnData]
Other = Callable[..., tuple[CellsConfig, tuple[str, ...]]]
CONFIG = CellsConfig.make(
    data="x",
    donor_key="donor",
    labels=("kind", "condition"),
    regress=("age",),
    auroc_labels=("condition",),
    max_cells=("condition=20", "kind=30"),
    exclude=("kind=c",),
)


def annotated(make: Make, **columns: object) -> anndata.AnnData:
    """Cells of six donors with columns to probe; None drops one of them."""
    adata = make(60)
    donors = np.arange(60) % 6
    default = {
        "donor": [f"d{donor}" for donor in donors],
        "kind": np.array(["a", "b", "c"])[np.arange(60) // 6 % 3],
        "condition": np.where(donors < 3, "ill", "well"),
        "age": donors * 10.0,
    }
    adata.obs = adata.obs.assign(**{**default, **columns}).dropna(axis=1)
    return adata


@pytest.fixture
def other(make: Make, write: Callable[..., Path], tmp_path: Path) -> Other:
    def read(config: CellsConfig = CONFIG, **columns: object) -> tuple[CellsConfig, tuple[str, ...]]:
        path = write(annotated(make, **columns), tmp_path / "other.h5ad")
        found, data = load_other_data(config, str(path), {"genes": [f"g{i}" for i in range(12)], "batches": ("all",)})
        assert len(data.table) == 60
        return found, data.notes

    return read


def test_cells_with_every_column_have_every_probe(other: Other) -> None:
    found, notes = other()
    assert found.replace(data="x") == CONFIG
    assert not any("no probe" in note for note in notes)


def test_probes_of_missing_columns_are_left_out(other: Other) -> None:
    """And with a probe its limits; those of the others stay."""
    found, notes = other(condition=None)
    assert (found.data.labels, found.data.regress, found.data.auroc_labels) == (("kind",), ("age",), ())
    assert (found.data.max_cells, found.data.exclude, found.data.donor_key) == (("kind=30",), ("kind=c",), "donor")
    assert any(note.startswith("condition: no probe, as obs has no such column") for note in notes)
    assert other(age=None)[0].data.regress == ()


def test_a_probe_whose_own_rule_cannot_be_followed_is_left_out(other: Other) -> None:
    config = CONFIG.replace(only=("condition:stage=early",), exclude=("age:kind=c", "kind=c"))
    found, notes = other(config)
    assert (found.data.labels, found.data.regress, found.data.only) == (("kind",), ("age",), ())
    assert found.data.exclude == ("age:kind=c", "kind=c")
    assert any(note.startswith("condition: no probe, as obs has no column 'stage'") for note in notes)
    assert other(config, age=None)[0].data.exclude == ("kind=c",)


def test_probes_of_a_single_value_are_left_out(other: Other) -> None:
    found, notes = other(condition="ill", age=30)
    assert (found.data.labels, found.data.regress) == (("kind",), ())
    for column in ("condition", "age"):
        assert any(note.startswith(f"{column}: no probe, as the training donors have fewer than two") for note in notes)


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"donor": None}, "no probes, as obs has no column 'donor'"),
        ({"donor": "d0"}, "age: no probe, as the test donors have fewer than two values"),
        ({"kind": ["a", "b"] * 30}, "no cell has kind=c (exclude)"),
        ({"kind": None}, "no probes, as obs has no column 'kind'"),
    ],
)
def test_without_donors_or_the_cells_of_a_rule_there_is_no_probe(
    other: Other, columns: dict[str, Any], reason: str
) -> None:
    found, notes = other(**columns)
    assert (found.data.labels, found.data.regress, found.data.donor_key, found.data.exclude) == ((), (), None, ())
    assert any(reason in note for note in notes)


@pytest.mark.slow
def test_cells_without_labels_are_measured(
    make: Make,
    write: Callable[..., Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    own, run = write(annotated(make), tmp_path / "own.h5ad"), tmp_path / "run"
    options = f"--labels kind condition --donor-key donor --n-hidden 8 --n-latent 4 --steps 2 --threads 1 --out {run}"
    assert main(["pretrain", "cells", str(own), "--batch-size", "20", *options.split()]) == 0
    new = write(annotated(make, kind=None, condition="ill"), tmp_path / "new.h5ad")
    bare = write(annotated(make, kind=None, condition=None, donor=None), tmp_path / "bare.h5ad")
    capsys.readouterr()
    with caplog.at_level(logging.WARNING, "r2mae"):
        for path in (new, bare):
            assert main(["evaluate", str(run), "--data", str(path), "--json"]) == 0
            scores = json.loads(capsys.readouterr().out)["scores"]
            assert np.isfinite(scores["masked_loss"])
            assert "score" not in scores
    assert "kind: no probe, as obs has no such column" in caplog.text
    assert "condition: no probe, as the training donors have fewer than two values" in caplog.text
    assert main(["evaluate", str(run), "--data", str(bare)]) == 0
    assert "r by cell" in capsys.readouterr().out


def test_other_columns_take_the_limits_of_their_own_along() -> None:
    rules = ("condition:donor=d1", "kind:donor=d1", "donor=d1")
    found = CONFIG.replace(only=rules, limit_first=("condition",)).with_measurement(labels=("kind",), regress=())
    assert (found.data.only, found.data.limit_first) == (rules[1:], ())
    assert (found.data.labels, found.data.regress, found.data.auroc_labels) == (("kind",), (), ())
    assert (found.data.max_cells, found.data.exclude, found.data.donor_key) == (("kind=30",), ("kind=c",), "donor")
    assert CONFIG.with_measurement() == CONFIG
