"""Counts by rows, choices of genes and cells, and the check that they are raw."""

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix

from r2mae.cells.counts import check_counts
from r2mae.cells.table import Source
from r2mae.errors import UserError

DENSE = np.random.default_rng(3).poisson(0.6, (9, 7)).astype(np.float32)
GENES = tuple(f"g{i}" for i in range(7))
CELLS = [f"c{i}" for i in range(9)]


def checked(matrix: csr_matrix, layers: tuple[str, ...] = (), layer: str = "X") -> tuple[np.ndarray, np.ndarray]:
    return check_counts(Source("file", layer, matrix, GENES, pd.DataFrame(index=CELLS), layers))


def test_totals() -> None:
    stored = csr_matrix(DENSE)
    stored.data[0] = 0  # an explicit zero is no count
    dense = stored.toarray()
    cells_of_gene, library = checked(stored)
    np.testing.assert_array_equal(cells_of_gene, (dense > 0).sum(axis=0))
    np.testing.assert_array_equal(library, dense.sum(axis=1))


def test_remedies_do_not_name_what_is_read() -> None:
    with pytest.raises(UserError, match=r"raw counts are needed, and this file has no other matrix"):
        checked(csr_matrix(DENSE / 2), ("counts",), "counts")
    with pytest.raises(UserError, match="values of type complex64, no counts"):
        checked(csr_matrix(DENSE.astype(np.complex64)))


def test_a_gene_twice_in_a_cell_is_summed() -> None:
    twice = csr_matrix((np.ones(3, np.float32), np.array([4, 1, 4]), np.array([0, 3])), shape=(1, 7))
    cells_of_gene, library = checked(twice)
    assert (cells_of_gene.tolist(), library.tolist()) == ([0, 1, 0, 0, 1, 0, 0], [3])
