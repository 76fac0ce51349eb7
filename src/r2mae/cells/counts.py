"""Raw counts in CSR form, in memory, mapped from a file, or read from it in blocks; and the check that they are raw.

In a mapped file random cells are read as fast as in memory, and the system keeps in memory what fits.
"""

import mmap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64, Int64
from scipy.sparse import csr_matrix

from r2mae.errors import UserError

Rows = Int64[np.ndarray, " rows"]
Place = tuple[Path, str, int]
"""File, type and offset of an array in a file."""
_ENTRIES = 1 << 23  # size of a block, as cells × genes; 3 to 30 % of the entries are above zero


@dataclass(frozen=True, eq=False)
class Counts:
    """Counts of cells by genes, with no gene twice in a cell.

    Parameters
    ----------
    matrix : csr_matrix
    places : tuple, optional
        Where its `data` and `indices` are, if they are mapped from files.
    """

    matrix: csr_matrix
    places: tuple[Place, Place] | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Cells and genes."""
        return int(self.matrix.shape[0]), int(self.matrix.shape[1])

    def rows(self, indices: Rows) -> csr_matrix:
        """Return these cells in the given order; duplicates are allowed. The caller may change the matrix."""
        return self.matrix[indices]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without mapped data: another process maps the files itself."""
        if self.places is None:
            return Counts, (self.matrix,)
        return map_counts, (*self.places, self.matrix.indptr, self.shape)


def map_counts(data: Place, indices: Place, indptr: np.ndarray, shape: tuple[int, int]) -> Counts:
    """Map counts that are stored uncompressed."""
    if not indptr[-1]:
        return Counts(csr_matrix(shape, dtype=np.float32))
    arrays = []
    for path, kind, offset in (data, indices):
        with path.open("rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if hasattr(mmap, "MADV_RANDOM"):  # not on Windows
            content.madvise(mmap.MADV_RANDOM)
        arrays.append(np.frombuffer(content, kind, int(indptr[-1]), offset))
    matrix = csr_matrix(shape, dtype=arrays[0].dtype)
    # scipy copies all indices at every call if indptr has another type.
    matrix.data, matrix.indices, matrix.indptr = *arrays, indptr.astype(arrays[1].dtype)
    return Counts(matrix, (data, indices))


@dataclass(frozen=True, eq=False)
class StoredCounts:
    """Counts in an open file, which are read in blocks.

    Parameters
    ----------
    name : str
        File and group, for messages.
    data, indices
        Arrays of an .h5ad file or a zarr folder, of any type and compression.
    indptr : int64 array (cells + 1,)
    shape : tuple of int
        Cells and genes.
    """

    name: str
    data: Any
    indices: Any
    indptr: Int64[np.ndarray, " ends"]
    shape: tuple[int, int]

    def block(self, first: int, last: int) -> csr_matrix:
        """Return consecutive cells.

        Raises
        ------
        UserError
            If a gene does not exist.
        """
        low, high = int(self.indptr[first]), int(self.indptr[last])
        data, indices = np.asarray(self.data[low:high]), np.asarray(self.indices[low:high])
        if high > low and not 0 <= int(indices.min()) <= int(indices.max()) < self.shape[1]:
            raise UserError(f"{self.name} is damaged (it has genes that do not exist): fetch or export it again")
        data = data.astype(np.float32) if data.dtype == np.float16 else data  # scipy lacks float16
        return csr_matrix((data, indices, self.indptr[first : last + 1] - low), shape=(last - first, self.shape[1]))

    def mapped(self) -> Counts | None:
        """Map the counts from their .h5ad file, or return None if they are compressed or in chunks."""
        places = []
        for array in (self.data, self.indices):
            offset = array.id.get_offset() if hasattr(array, "id") else None
            if offset is None or array.file.userblock_size or array.dtype.byteorder == ">":
                return None
            places.append((Path(array.file.filename), array.dtype.str, offset))
        if self.data.dtype == np.float16 or not np.can_cast(np.min_scalar_type(self.indptr[-1]), self.indices.dtype):
            return None
        return map_counts(places[0], places[1], self.indptr, self.shape)


def blocks(counts: Counts | StoredCounts, size: int | None = None) -> Iterator[tuple[int, csr_matrix]]:
    """Yield all cells in blocks, each with the index of its first cell. The caller may change a block."""
    cells, genes = counts.shape
    size = min(max(_ENTRIES // max(genes, 1), 64), 16384) if size is None else size
    for first in range(0, cells, size):
        last = min(first + size, cells)
        yield first, counts.rows(np.arange(first, last)) if isinstance(counts, Counts) else counts.block(first, last)


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
    counts: Counts | StoredCounts,
    name: str,
    where: str,
    genes: Sequence[str],
    layers: Sequence[str],
    cells: Sequence[str],
) -> Totals:
    """Check that these are raw counts, in one pass over blocks.

    Parameters
    ----------
    counts : Counts or StoredCounts
    name, where : str
        Source and matrix ("X", "layer NAME"), for messages.
    genes, cells : sequence of str
        Names of the columns and rows.
    layers : sequence of str
        Other matrices of the source, for the error message.

    Raises
    ------
    UserError
        For values that are missing, negative or fractional, with cell and gene; for a gene twice in a cell.
    """
    expressed, library = np.zeros(counts.shape[0], dtype=np.int64), np.zeros(counts.shape[0])
    spread = np.zeros(counts.shape[1], dtype=np.int64)
    for first, block in blocks(counts):
        data = block.data
        if data.dtype.kind not in "iufb":
            raise UserError(
                f"{name}: {where} has values of type {data.dtype}, no counts{_suggest_layer(where, layers)}"
            )
        if len(data) and not (data.min() >= 0 and _are_whole_numbers(data)):
            for bad, reason in (
                (~np.isfinite(data), "which is no count: correct or remove that cell"),
                (data < 0, f"and counts are 0 or more: the data are scaled{_suggest_layer(where, layers)}"),
                (data != np.floor(data), f"a fraction: the data are normalised{_suggest_layer(where, layers)}"),
            ):
                if bad.any():
                    entry = int(np.argmax(bad))
                    row = first + int(np.searchsorted(block.indptr, entry, side="right")) - 1
                    cell, gene = str(cells[row]), genes[int(block.indices[entry])]
                    raise UserError(f"{name}: {where} of cell {cell!r}, gene {gene!r} is {data[entry]:g}, {reason}")
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
    rising: Bool[np.ndarray, " gaps"] = np.diff(block.indices) > 0
    joints = block.indptr[1:-1]
    rising[joints[(joints > 0) & (joints < block.nnz)] - 1] = True
    if rising.all():
        return False
    slots = np.repeat(np.arange(block.shape[0]), np.diff(block.indptr)) * block.shape[1] + block.indices
    return len(np.unique(slots)) < len(slots)


def _suggest_layer(where: str, layers: Sequence[str]) -> str:
    named = [layer for layer in layers if layer not in (where, where.removeprefix("layer "))]
    if not named:
        return ": raw counts are needed, and this file has no other matrix; use the file before normalisation"
    likely = [one for one in named if "count" in one.lower() or "raw" in one.lower()] or named
    return (
        f": pass the layer that holds raw counts, layer={likely[0]!r} or --layer {likely[0]} "
        f"(layers: {', '.join(named)})"
    )
