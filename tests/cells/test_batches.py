"""Batches in CSR form, and the division into training and validation cells."""

import json
from collections.abc import Callable
from pathlib import Path

import anndata
import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix

from r2mae.cells.batches import CellBatches, architecture_of, load_data, split_data
from r2mae.cells.config import CellsConfig
from r2mae.cells.domain import DOMAIN
from r2mae.cells.table import load_cells
from r2mae.errors import UserError
from r2mae.masking.keys import Key
from r2mae.training.task import Batches, Data, count_samples

Make = Callable[..., anndata.AnnData]


@pytest.mark.parametrize("kind", [np.int32, np.float32, np.float64, np.uint8])
def test_a_batch_is_the_rows(make: Make, kind: type) -> None:
    adata = make()
    adata.obs["plate"] = ["a", "b", "c"] * 10
    adata.X = adata.X.astype(kind)
    adata.X.data[3] = 0  # stored, but no count
    table = load_cells(adata, batch_key="plate")
    batches = CellBatches(table, np.array([20, 3, 0, 7]))
    assert isinstance(batches, Batches)
    assert len(batches) == 4
    batch = batches.batch([2, 0, 2], Key.root(0))
    assert count_samples(batch) == 3
    assert batch["values"].dtype == torch.float32
    assert (batch["values"] > 0).all()
    assert batch["indptr"].dtype == batch["batch"].dtype == torch.int64
    found = csr_matrix(tuple(batch[name].numpy() for name in ("values", "indices", "indptr")), shape=(3, 12))
    np.testing.assert_array_equal(found.toarray(), adata.X[[0, 20, 0]].toarray())
    assert batch["batch"].tolist() == [0, 2, 0]
    batch["values"][:] = 99
    np.testing.assert_array_equal(table.counts.rows(np.array([0])).toarray(), adata.X[0].toarray())


def test_validation_is_a_function_of_the_seed(make: Make) -> None:
    table = load_cells(make())
    parts = [split_data(table, CellsConfig.make(data="x", seed=seed)) for seed in (1, 1, 2)]
    assert isinstance(parts[0], Data)
    rows = [part.validation.rows for part in parts if part.validation is not None]
    assert len(rows[0]) == 3
    np.testing.assert_array_equal(rows[0], rows[1])
    assert set(rows[0]) != set(rows[2])
    np.testing.assert_array_equal(np.sort(np.concatenate([rows[0], parts[0].train.rows])), np.arange(30))
    assert parts[0].architecture["genes"] == list(table.genes)
    assert parts[0].architecture["batches"] == ["all"]


def test_a_model_is_made_of_its_description() -> None:
    config = CellsConfig.make(data="x", n_hidden=6, n_latent=3)
    description = json.loads(json.dumps(architecture_of(("g0", "g1"), ("a", "b", "c"), config)))
    task, model = DOMAIN.build(description)
    assert (task.genes, task.n_hidden) == (2, 6)
    assert (model.gene_names, model.batch_names) == (("g0", "g1"), ("a", "b", "c"))
    assert (model.genes, model.batches, model.n_hidden, model.n_latent) == (2, 3, 6, 3)


@pytest.mark.parametrize(("cells", "held_out"), [(2, 0), (3, 1), (30, 27)])
def test_two_cells_are_left_to_learn_from(make: Make, cells: int, held_out: int) -> None:
    data = split_data(load_cells(make()[:cells].copy()), CellsConfig.make(data="x", validation=0.9))
    assert (0 if data.validation is None else len(data.validation)) == held_out
    assert len(data.train) == cells - held_out


def test_a_run_reads_its_columns(make: Make, write: Callable[..., Path], tmp_path: Path) -> None:
    adata = make()
    adata.obs["kind"] = ["a", "b", "Unknown"] * 10
    path = str(write(adata, tmp_path / "cells.h5ad"))
    config = {"data": path, "donor_key": "donor", "labels": ("kind",), "validation": 0}
    adata.obs["donor"] = [f"d{i // 5}" for i in range(30)]
    path = str(write(adata, tmp_path / "cells.h5ad"))
    data = load_data(CellsConfig.make(**config))
    assert data.validation is None
    assert len(data.train) == 30
    assert "kind: 10 cells with no known label removed" in data.table.notes
    assert data.notes[-1].startswith("50 epochs of 30 cells are 12 steps; the embedding of 1,000 cells ")
    for length in ({"steps": 12}, {"epochs": 49.0}):  # of the user's own
        assert not any("steps" in note for note in load_data(CellsConfig.make(**config, **length)).notes)
    with pytest.raises(UserError, match="obs has no column 'kin': did you mean 'kind'"):
        load_data(CellsConfig.make(**{**config, "labels": ("kin",)}))
    with pytest.raises(UserError, match="obs has no column 'knd'"):
        load_data(CellsConfig.make(**{**config, "exclude": ("knd=a",)}))
    with pytest.raises(UserError, match=r"can be predicted: donor: 30 cells with no number removed; donor: no probe"):
        load_data(CellsConfig.make(**{**config, "labels": (), "regress": ("donor",)}))
