"""scVI through scvi-tools: trained for real, on the cells that our models are trained on."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_matrix

from r2mae.cells.baselines import expected_by_scvi, train_scvi
from r2mae.cells.batches import CellBatches, split_data
from r2mae.cells.config import CellsConfig
from r2mae.cells.counts import Counts
from r2mae.cells.evaluate import reconstruction_scores
from r2mae.cells.table import CellTable
from r2mae.masking.keys import Key

CELLS, GENES = 150, 30
CONFIG = CellsConfig.make(data="x", n_hidden=16, n_latent=4, epochs=3, batch_size=32, device="cpu")
# Importing scvi-tools warns of its own deprecated calls.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def table() -> CellTable:
    rng = np.random.default_rng(0)
    rate = rng.gamma(0.5, 3.0, (3, GENES))[np.arange(CELLS) % 3]
    counts = rng.poisson(rate) + np.eye(CELLS, GENES, dtype=int)
    counts[:, 0] += 1
    obs = pd.DataFrame(index=[f"cell{i}" for i in range(CELLS)])
    batch = (np.arange(CELLS) % 2).astype(np.int64)
    genes = tuple(f"gene{i}" for i in range(GENES))
    return CellTable("some.h5ad", Counts(csr_matrix(counts.astype(np.int32))), genes, obs, batch, ("a", "b"), ())


def test_scvi_is_trained_by_scvi_tools(table: CellTable, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("scvi")
    capfd.readouterr()
    trained = train_scvi(table, CONFIG)
    made = trained.get_latent_representation()
    assert made.shape == (CELLS, 4)
    assert np.isfinite(made).all()
    np.testing.assert_array_equal(made, train_scvi(table, CONFIG).get_latent_representation())
    assert capfd.readouterr() == ("", "")


def test_it_holds_out_the_cells_that_we_hold_out(table: CellTable) -> None:
    pytest.importorskip("scvi")
    trained, data = train_scvi(table, CONFIG.replace(epochs=1)), split_data(table, CONFIG)
    assert data.validation is not None
    np.testing.assert_array_equal(np.sort(trained.validation_indices), data.validation.rows)
    np.testing.assert_array_equal(np.sort(trained.train_indices), data.train.rows)


def test_expected_shares_are_scvi_tools_own(table: CellTable) -> None:
    """With nothing hidden they are near the mean of what get_normalized_expression draws."""
    pytest.importorskip("scvi")
    trained = train_scvi(table, CONFIG.replace(epochs=60, lr=1e-2))
    batch = CellBatches(table).batch(np.arange(CELLS), Key.root(0))
    share = expected_by_scvi(trained, batch, torch.tensor([], dtype=torch.int64))
    assert torch.allclose(share.sum(1), torch.ones(CELLS))
    drawn = trained.get_normalized_expression(n_samples=400, return_mean=True, return_numpy=True)
    assert np.corrcoef(drawn.ravel(), share.numpy().ravel())[0, 1] > 0.95
    np.testing.assert_allclose(share.numpy().mean(0), drawn.mean(0), atol=5e-3)
    scores = reconstruction_scores(partial(expected_by_scvi, trained), GENES, CellBatches(table))
    assert 0.2 < scores["reconstruction_r_0.3"] < 1
    hidden = expected_by_scvi(trained, batch, torch.arange(GENES))
    assert torch.isfinite(hidden).all()


def test_steps_become_epochs(table: CellTable) -> None:
    pytest.importorskip("scvi")
    trained = train_scvi(table, CONFIG.replace(steps=10))  # 135 training cells, five steps an epoch
    assert trained.trainer.max_epochs == 2


def test_a_last_mini_batch_of_one_cell_is_no_obstacle(table: CellTable) -> None:
    pytest.importorskip("scvi")
    made = train_scvi(table, CONFIG.replace(epochs=1, batch_size=67)).get_latent_representation()  # 135 training cells
    assert np.isfinite(made).all()
