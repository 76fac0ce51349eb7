"""Log-counts in sparse form, and their product with weights."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from r2mae.cells.task import SparseRows, _prefers_sparse, log_rows


def batch_of(counts: np.ndarray, index_type: type = np.int32) -> dict[str, torch.Tensor]:
    rows = sparse.csr_matrix(counts.astype(np.float32))
    return {
        "indptr": torch.from_numpy(rows.indptr.astype(np.int64)),
        "indices": torch.from_numpy(rows.indices.astype(index_type)),
        "values": torch.from_numpy(rows.data),
    }


def dense(rows: SparseRows, genes: int) -> torch.Tensor:
    shape = len(rows.indptr) - 1, genes
    return torch.from_numpy(sparse.csr_matrix((rows.values, rows.indices, rows.indptr), shape).toarray())


@given(
    st.integers(0, 2**32 - 1),
    st.floats(0, 1),
    st.integers(1, 12),
    st.integers(1, 30),
    st.sampled_from((7, 256, 300)),  # the last is computed in blocks of columns
    st.booleans(),
)
def test_product_and_gradient_are_those_of_the_dense_matrix(
    seed: int, density: float, cells: int, genes: int, width: int, wide: bool
) -> None:
    rng = np.random.default_rng(seed)
    counts = rng.poisson(3, (cells, genes)) * (rng.random((cells, genes)) < density)
    rows = log_rows(batch_of(counts, np.int64 if wide else np.int32))
    expected = torch.from_numpy(counts.astype(np.float32)).log1p()
    assert torch.equal(dense(rows, genes), expected)
    weight = torch.randn(genes, width, generator=torch.Generator().manual_seed(seed % 1000)).requires_grad_()
    ours, theirs = rows.times(weight), expected @ weight
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    towards = torch.linspace(-1, 1, ours.numel()).view_as(ours)
    gradients = [torch.autograd.grad((made * towards).sum(), weight)[0] for made in (ours, theirs)]
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-5)


def test_some_entries_may_be_left_out() -> None:
    counts = np.array([[0, 2, 1, 0], [0, 0, 0, 0], [3, 0, 0, 4]])
    kept = dense(log_rows(batch_of(counts), torch.tensor([1, 3])), 4)
    assert torch.equal(kept, torch.tensor([[0, 0, 1, 0], [0, 0, 0, 0], [0, 0, 0, 4.0]]).log1p())
    assert torch.equal(dense(log_rows(batch_of(counts), torch.tensor([], dtype=torch.int64)), 4), torch.zeros(3, 4))


def test_a_gradient_that_is_not_contiguous_or_of_64_bits() -> None:
    rows = SparseRows(torch.tensor([0, 1, 3]), torch.tensor([2, 0, 1]), torch.tensor([1.0, 2.0, 3.0]))
    weight = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    made = rows.times(weight)
    assert made.dtype == torch.float64
    (grad,) = torch.autograd.grad(made.sum(), weight)  # the gradient of a sum is one number, expanded
    torch.testing.assert_close(grad, torch.tensor([2.0, 3.0, 1.0], dtype=torch.float64)[:, None].expand(3, 4))


def test_the_number_of_threads_does_not_change_a_byte() -> None:
    rng = np.random.default_rng(0)
    rows = log_rows(batch_of(rng.poisson(0.1, (200, 300))))
    weight = torch.randn(300, 64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            made = rows.times(weight)
            found.append((made.detach(), *torch.autograd.grad(made.square().sum(), weight)))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, three) for one, three in zip(*found, strict=True))


@pytest.mark.parametrize(("entries", "few"), [(0, True), (60, True), (61, False)])
def test_few_entries_alone_are_worth_it(entries: int, few: bool) -> None:
    batch = batch_of(np.zeros((20, 20)))
    assert _prefers_sparse(batch, entries, 20) is few
    with torch.autocast("cpu", torch.bfloat16):  # products in bf16 are quicker than those in 32 bits, or rounded
        assert not _prefers_sparse(batch, entries, 20)
