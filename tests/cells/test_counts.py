"""Counts by rows, choices of genes and cells, and the check that they are raw."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from r2mae.cells.counts import ChosenCounts, Counts, MemoryCounts, check_counts, chunks
from r2mae.errors import UserError

DENSE = np.random.default_rng(3).poisson(0.6, (9, 7)).astype(np.float32)
COUNTS = MemoryCounts(csr_matrix(DENSE))
GENES = tuple(f"g{i}" for i in range(7))


def test_memory_counts() -> None:
    assert isinstance(COUNTS, Counts)
    rows = np.array([4, 0, 4, 8])
    np.testing.assert_array_equal(COUNTS.rows(rows).toarray(), DENSE[rows])
    COUNTS.rows(np.arange(9)).data[:] = 99  # the caller's own
    np.testing.assert_array_equal(COUNTS.matrix.toarray(), DENSE)


@given(st.data())
def test_chosen_counts_are_numpy_indexing(data: st.DataObject) -> None:
    places = data.draw(st.lists(st.integers(0, 6), unique=True))
    gaps = data.draw(st.lists(st.integers(0, len(places)), max_size=3))
    for gap in gaps:
        places.insert(gap, -1)
    cells = data.draw(st.none() | st.lists(st.integers(0, 8), min_size=1))
    chosen = ChosenCounts(COUNTS, np.array(places, dtype=np.int64), None if cells is None else np.array(cells))
    kept = DENSE if cells is None else DENSE[cells]
    expected = np.stack([kept[:, p] if p >= 0 else 0 * kept[:, 0] for p in places], axis=1) if places else kept[:, :0]
    assert chosen.shape == expected.shape
    rows = np.array(data.draw(st.lists(st.integers(0, len(kept) - 1))), dtype=np.int64)
    found = chosen.rows(rows)
    np.testing.assert_array_equal(found.toarray(), expected[rows])
    assert found.has_sorted_indices


@pytest.mark.parametrize("size", [1, 4, 9, 100, None])
def test_chunks_are_all_cells(size: int | None) -> None:
    parts = list(chunks(COUNTS, size))
    np.testing.assert_array_equal(np.concatenate([block.toarray() for _, block in parts]), DENSE)
    assert [first for first, _ in parts] == list(np.cumsum([0, *(block.shape[0] for _, block in parts[:-1])]))


def test_totals() -> None:
    stored = csr_matrix(DENSE)
    stored.data[0] = 0  # an explicit zero is no count
    dense = stored.toarray()
    totals = check_counts(MemoryCounts(stored), "file", "X", GENES, ())
    np.testing.assert_array_equal(totals.genes_of_cell, (dense > 0).sum(axis=1))
    np.testing.assert_array_equal(totals.cells_of_gene, (dense > 0).sum(axis=0))
    np.testing.assert_array_equal(totals.library, dense.sum(axis=1))


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (-1, r"^file: X of cell 'c3', gene 'g4' is -1, and counts are 0 or more"),
        (
            1.5,
            r"gene 'g4' is 1\.5, a fraction: the data are normalised: pass the layer .* --layer counts \(layers: z, c",
        ),
        (np.nan, "gene 'g4' is nan, which is no count: correct or remove that cell"),
        (np.inf, "gene 'g4' is inf, which is no count"),
    ],
)
def test_values_that_are_no_counts_are_named(value: float, told: str) -> None:
    dense = DENSE.copy()
    dense[3, 4] = value
    with pytest.raises(UserError, match=told):
        check_counts(MemoryCounts(csr_matrix(dense)), "file", "X", GENES, ("z", "counts"), [f"c{i}" for i in range(9)])


def test_remedies_do_not_name_what_is_read() -> None:
    with pytest.raises(UserError, match=r"raw counts are needed, and this file has no other matrix"):
        check_counts(MemoryCounts(csr_matrix(DENSE / 2)), "file", "layer counts", GENES, ("counts",))
    with pytest.raises(UserError, match="values of type complex64, no counts"):
        check_counts(MemoryCounts(csr_matrix(DENSE.astype(np.complex64))), "file", "X", GENES, ())


def test_a_gene_twice_in_a_cell() -> None:
    twice = csr_matrix((np.ones(3, np.float32), np.array([1, 4, 1]), np.array([0, 3])), shape=(1, 7))
    with pytest.raises(UserError, match="stores a gene twice in one cell"):
        check_counts(MemoryCounts(twice), "file", "X", GENES, ())
    unsorted = csr_matrix((np.ones(2, np.float32), np.array([4, 1]), np.array([0, 2])), shape=(1, 7))
    assert check_counts(MemoryCounts(unsorted), "file", "X", GENES, ()).genes_of_cell.tolist() == [2]
