"""Counts that a data set returns when they are needed."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from scipy.sparse import csr_matrix

from r2mae.cells import MaskedAutoencoder
from r2mae.errors import UserError

COUNTS = np.random.default_rng(0).poisson(1.5, (40, 9)).astype(np.int64)
COUNTS[:, 0] += 1
OBS = pd.DataFrame({"batch": ["a", "b"] * 20}, index=[f"cell{row}" for row in range(40)])
GENES = [f"g{column}" for column in range(9)]


class Rows:
    """Two shards, read a cell at a time."""

    def __getitem__(self, cell: int) -> Any:
        shard, row = divmod(cell, 25)
        return [COUNTS[:25], COUNTS[25:]][shard][row]


class Many(Rows):
    """Read many at a time, as sparse matrices."""

    def __getitems__(self, cells: list[int]) -> Any:
        return csr_matrix(COUNTS[cells])


def trained(model: MaskedAutoencoder) -> np.ndarray:
    model.train(max_epochs=1, batch_size=8, steps=3, progress=False, device="cpu")
    return model.get_latent_representation()


@pytest.mark.slow
def test_a_data_set_trains_as_the_same_counts_in_memory() -> None:
    sizes: dict[str, Any] = {"n_hidden": 8, "n_latent": 4, "seed": 3}
    adata = AnnData(COUNTS.astype(np.float32), obs=OBS.copy(), var=pd.DataFrame(index=GENES))
    MaskedAutoencoder.setup_anndata(adata, batch_key="batch")
    known = trained(MaskedAutoencoder(adata, **sizes))
    for dataset in (Rows(), Many()):
        model = MaskedAutoencoder.from_dataset(dataset, OBS, GENES, batch_key="batch", **sizes)
        np.testing.assert_array_equal(trained(model), known)
        np.testing.assert_array_equal(model.get_latent_representation(adata), known)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (np.ones(8), "1 x 8 counts for 1 cells of 9 genes"),
        (np.full(9, 0.5), "no raw counts"),
        (np.full(9, np.nan), "no raw counts"),
    ],
)
def test_what_a_data_set_returns_is_checked(row: np.ndarray, words: str) -> None:
    model = MaskedAutoencoder.from_dataset([row] * 40, OBS, GENES, n_hidden=4, n_latent=2)
    with pytest.raises(UserError, match=words):
        model._table.counts.rows(np.array([3]))


def test_names_of_genes_are_checked() -> None:
    with pytest.raises(UserError, match="two names or more, each once"):
        MaskedAutoencoder.from_dataset(Rows(), OBS, ["a", "a"])
