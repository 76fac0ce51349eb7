"""Raw counts that are read by rows: in memory, or a selection of other counts; and the check that they are raw."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float64, Int64
from scipy.sparse import csr_matrix

from r2mae.errors import UserError

Rows = Int64[np.ndarray, " rows"]
_ENTRIES = 1 << 25  # size of a block, as cells × genes; 3 to 30 % of the entries are above zero


@runtime_checkable
class Counts(Protocol):
    """Counts of cells by genes."""

    @property
    def shape(self) -> tuple[int, int]:
        """Cells and genes."""

    def rows(self, indices: Rows) -> csr_matrix:
        """Return these cells in the given order; duplicates are allowed. The caller may change the matrix."""


@dataclass(frozen=True)
class MemoryCounts:
    """Counts as one CSR matrix in memory, with no gene twice in a cell."""

    matrix: csr_matrix

    @property
    def shape(self) -> tuple[int, int]:
        """Cells and genes."""
        return int(self.matrix.shape[0]), int(self.matrix.shape[1])

    def rows(self, indices: Rows) -> csr_matrix:
        """Return these cells."""
        return self.matrix[indices]


@dataclass(frozen=True, eq=False)
class ChosenCounts:
    """Some cells and genes of other counts.

    Parameters
    ----------
    counts : Counts
    genes : array of int
        Column of each gene, none twice; −1 for a gene that does not exist and counts as zero.
    cells : array of int, optional
        Which rows; by default all.
    """

    counts: Counts
    genes: Int64[np.ndarray, " genes"]
    cells: Int64[np.ndarray, " cells"] | None = None
    _sorted: bool = field(init=False, repr=False, default=True)

    def __post_init__(self) -> None:
        present = self.genes[self.genes >= 0]
        object.__setattr__(self, "_sorted", bool((np.diff(present) > 0).all()))

    @property
    def shape(self) -> tuple[int, int]:
        """Cells and genes."""
        return self.counts.shape[0] if self.cells is None else len(self.cells), len(self.genes)

    @cached_property
    def _column_of(self) -> np.ndarray:
        """New column of every old column, or −1 if it is not selected."""
        columns = np.full(self.counts.shape[1], -1, dtype=np.int32)
        present = np.flatnonzero(self.genes >= 0)
        columns[self.genes[present]] = present
        return columns

    def rows(self, indices: Rows) -> csr_matrix:
        """Return these cells."""
        rows = self.counts.rows(indices if self.cells is None else self.cells[indices])
        columns = self._column_of[rows.indices]
        taken = columns >= 0
        ends = np.concatenate([[0], np.cumsum(taken)])[rows.indptr]
        chosen = csr_matrix((rows.data[taken], columns[taken], ends), shape=(rows.shape[0], len(self.genes)))
        if not self._sorted:
            chosen.sort_indices()
        return chosen


def in_memory(counts: Counts) -> bool:
    """Return whether counts, or those from which they are selected, are in memory."""
    return in_memory(counts.counts) if isinstance(counts, ChosenCounts) else isinstance(counts, MemoryCounts)


def chunks(counts: Counts, size: int | None = None) -> Iterator[tuple[int, csr_matrix]]:
    """Yield all cells in blocks, each with the index of its first cell."""
    cells, genes = counts.shape
    size = min(max(_ENTRIES // max(genes, 1), 64), 16384) if size is None else size
    for first in range(0, cells, size):
        yield first, counts.rows(np.arange(first, min(first + size, cells)))


@dataclass(frozen=True)
class Totals:
    """Totals of cells and genes, from one pass over the counts.

    Parameters
    ----------
    genes_of_cell : int64 array (cells,)
        Number of genes above zero in each cell.
    cells_of_gene : int64 array (genes,)
        Number of cells in which each gene is above zero.
    library : float64 array (cells,)
        Total count of each cell.
    """

    genes_of_cell: Int64[np.ndarray, " cells"]
    cells_of_gene: Int64[np.ndarray, " genes"]
    library: Float64[np.ndarray, " cells"]


def check_counts(
    counts: Counts,
    name: str,
    where: str,
    genes: tuple[str, ...],
    layers: tuple[str, ...],
    cells: Sequence[str] | None = None,
) -> Totals:
    """Check that these are raw counts, in one pass over blocks.

    Parameters
    ----------
    counts : Counts
    name, where : str
        Source and matrix ("X", "layer NAME"), for messages.
    genes : tuple of str
        Names of the columns.
    layers : tuple of str
        Other matrices of the source, for the error message.
    cells : sequence of str, optional
        Names of the rows.

    Raises
    ------
    UserError
        For values that are missing, negative or fractional, with cell and gene; for a gene twice in a cell.
    """
    expressed, library = np.zeros(counts.shape[0], dtype=np.int64), np.zeros(counts.shape[0])
    spread = np.zeros(counts.shape[1], dtype=np.int64)
    for first, block in chunks(counts):
        report = _BadValues(block, first, f"{name}: {where}", genes, cells)
        data = block.data
        if data.dtype.kind not in "iufb":
            raise UserError(
                f"{name}: {where} has values of type {data.dtype}, no counts{_suggest_layer(where, layers)}"
            )
        if len(data) and not (data.min() >= 0 and _are_whole_numbers(data)):
            report.refuse(~np.isfinite(data), "which is no count: correct or remove that cell")
            report.refuse(data < 0, f"and counts are 0 or more: the data are scaled{_suggest_layer(where, layers)}")
            report.refuse(data != np.floor(data), f"a fraction: the data are normalised{_suggest_layer(where, layers)}")
        if _has_repeated_genes(block):
            raise UserError(
                f"{name}: {where} stores a gene twice in one cell: read it with anndata, call X.sum_duplicates(), "
                "and write it again"
            )
        last = first + block.shape[0]
        library[first:last] = block @ np.ones(counts.shape[1])
        if not data.all():
            block.eliminate_zeros()
        spread += np.bincount(block.indices, minlength=counts.shape[1])
        expressed[first:last] = np.diff(block.indptr)
    return Totals(expressed, spread, library)


def _are_whole_numbers(data: np.ndarray) -> bool:
    return data.dtype.kind in "iub" or bool(np.isfinite(data.max()) and (data == np.floor(data)).all())


def _has_repeated_genes(block: csr_matrix) -> bool:
    """Whether a gene is stored twice in a cell."""
    rising = np.diff(block.indices) > 0
    joints = block.indptr[1:-1]
    rising[joints[(joints > 0) & (joints < block.nnz)] - 1] = True
    if rising.all():
        return False
    slots = np.repeat(np.arange(block.shape[0]), np.diff(block.indptr)) * block.shape[1] + block.indices
    return len(np.unique(slots)) < len(slots)


@dataclass(frozen=True)
class _BadValues:
    """Names the first bad value of a block."""

    block: csr_matrix
    first: int
    where: str
    genes: tuple[str, ...]
    cells: Sequence[str] | None

    def refuse(self, bad: Bool[np.ndarray, " entries"], reason: str) -> None:
        if not bad.any():
            return
        index = int(np.argmax(bad))
        row = self.first + int(np.searchsorted(self.block.indptr, index, side="right")) - 1
        cell = str(row) if self.cells is None else repr(str(self.cells[row]))
        gene = self.genes[int(self.block.indices[index])]
        raise UserError(f"{self.where} of cell {cell}, gene {gene!r} is {self.block.data[index]:g}, {reason}")


def _suggest_layer(where: str, layers: tuple[str, ...]) -> str:
    named = [layer for layer in layers if layer not in (where, where.removeprefix("layer "))]
    if not named:
        return ": raw counts are needed, and this file has no other matrix; use the file before normalisation"
    likely = [one for one in named if "count" in one.lower() or "raw" in one.lower()] or named
    return (
        f": pass the layer that holds raw counts, layer={likely[0]!r} or --layer {likely[0]} "
        f"(layers: {', '.join(named)})"
    )
