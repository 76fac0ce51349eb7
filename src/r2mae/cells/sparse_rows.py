"""Log-counts of cells in sparse form, and their product with the weights of genes, on a processor.

Of a cell's genes one in five to one in twenty-five is above zero. A product that looks at these alone has less to do
than one of dense matrices, though it runs at a lower rate: it takes half the time where a tenth is above zero.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Float32, Int, Int64
from scipy.sparse import csr_matrix
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import embedding_bag

_MOST = 0.15  # share of entries above zero; at 0.2 the dense product is about as fast (AVX2, a hidden layer of 2,000)


@dataclass(frozen=True)
class SparseRows:
    """A matrix in CSR form, on the CPU; no entry is given twice.

    Parameters
    ----------
    indptr, indices : int tensors, shapes (cells + 1,) and (entries,)
        Where each row ends, and the column of each entry; both of one type.
    values : float32 tensor, shape (entries,)
    width : int
        Number of columns.
    """

    indptr: Int[Tensor, " ends"]
    indices: Int[Tensor, " entries"]
    values: Float32[Tensor, " entries"]
    width: int

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.indptr) - 1

    def dense(self) -> Float32[Tensor, "cells genes"]:
        """Return all entries, with the zeros."""
        cell = torch.arange(len(self)).repeat_interleave(self.indptr.diff(), output_size=len(self.values))
        return torch.zeros(len(self), self.width).index_put_((cell, self.indices.long()), self.values)

    def times(self, weight: Float[Tensor, "genes width"]) -> Float[Tensor, "cells width"]:
        """Return the product with a dense matrix, differentiable by the latter."""
        made: Tensor = _times(self.indptr, self.indices, self.values, weight)
        return made


def log_rows(batch: Mapping[str, Tensor], genes: int, seen: Int64[Tensor, " seen"] | None = None) -> SparseRows:
    """Return log(1 + count) of a batch in CSR form.

    Parameters
    ----------
    batch : mapping of tensors
        See :mod:`r2mae.cells.task`.
    genes : int
        Number of genes.
    seen : int64 tensor, optional
        Which entries, in rising order; by default all.
    """
    ends, indices, values = batch["indptr"], batch["indices"], batch["values"].float()
    if seen is None:
        return SparseRows(ends.to(indices.dtype), indices, values.log1p(), genes)
    ends = torch.searchsorted(seen, ends)
    return SparseRows(
        ends.to(indices.dtype), indices.index_select(0, seen), values.index_select(0, seen).log1p_(), genes
    )


def few_enough(entries: int, cells: int, columns: int) -> bool:
    """Return whether a product with so few entries above zero is quicker in sparse form than in dense form.

    Not for products in bf16, which are quicker than those in 32 bits, or are to be rounded as those in bf16 are.
    """
    return entries <= _MOST * cells * columns and not torch.is_autocast_enabled("cpu")


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, indptr: Tensor, indices: Tensor, values: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(indptr, indices, values)
        ctx.genes = len(weight)
        return _sums(indptr, indices, values, weight.detach())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None, None, Tensor]:
        ends, columns, entries = (part.numpy() for part in ctx.saved_tensors)
        by_gene = csr_matrix((entries, columns, ends), shape=(len(ends) - 1, ctx.genes)).tocsc()
        indptr, indices, values = (torch.from_numpy(part) for part in (by_gene.indptr, by_gene.indices, by_gene.data))
        return None, None, None, _sums(indptr, indices, values, grad.contiguous())


def _sums(indptr: Tensor, indices: Tensor, values: Tensor, rows: Tensor) -> Tensor:
    """Return the weighted sums of rows, in one pass over them."""
    return embedding_bag(
        indices, rows, indptr, mode="sum", per_sample_weights=values.to(rows.dtype), include_last_offset=True
    )


@torch.compiler.disable  # type: ignore[untyped-decorator]  # it cannot compile scipy
def _times(indptr: Tensor, indices: Tensor, values: Tensor, weight: Tensor) -> Tensor:
    made: Tensor = _Product.apply(indptr, indices, values, weight)  # type: ignore[no-untyped-call]
    return made
