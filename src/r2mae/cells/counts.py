"""Raw counts in CSR form: their check, variable genes, and choices of genes and cells, in memory or mapped.

In a mapped file random cells are read as fast as in memory, and the system keeps in memory what fits.
"""

import hashlib
import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import pandas as pd
from jaxtyping import Float64, Int64
from scipy.sparse import csr_matrix, vstack

from r2mae.cache import cache_folder, create_once
from r2mae.errors import UserError
from r2mae.fingerprint import fingerprint

if TYPE_CHECKING:
    from r2mae.cells.table import Source

Rows = Int64[np.ndarray, " rows"]
Place = tuple[Path, str, int]
"""File, type and offset of an array in a file."""
ENTRY = 8
"""Bytes of a count, in memory or on a device: float32 and int32."""
_ENTRIES = 1 << 23  # size of a block, as cells × genes; 3 to 30 % of the entries are above zero
_BINS = 20  # of genes of similar mean, as in scanpy


class Stored(NamedTuple):
    """A CSR matrix in an open file: its arrays are read in slices, whatever their type and compression."""

    data: Any
    indices: Any
    indptr: Int64[np.ndarray, " ends"]
    shape: tuple[int, int]


@dataclass(frozen=True, eq=False)
class Counts:
    """Counts of cells by genes, with no gene twice in a cell.

    `places` says where the matrix's `data` and `indices` are, if they are mapped from files.
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


@runtime_checkable
class CountDataset(Protocol):
    """Counts that do not lie in one file: a map-style data set, as PyTorch has them."""

    def __getitem__(self, cell: int, /) -> Any:
        """Return the raw counts of a cell: an array or a sparse row, with a value for each gene.

        A data set that reads many cells faster at a time also has ``__getitems__(cells)``, as in PyTorch, which returns
        a matrix or a list of rows.
        """


@dataclass(frozen=True, eq=False)
class DatasetCounts(Counts):
    """Counts that a :class:`CountDataset` returns when they are needed; `matrix` has only the shape."""

    dataset: Any = None

    def rows(self, indices: Rows) -> csr_matrix:
        """Read these cells; a UserError is raised if they are no counts of the genes."""
        cells = np.asarray(indices).tolist()
        many = getattr(self.dataset, "__getitems__", None)
        found = [self.dataset[cell] for cell in cells] if many is None else many(cells)
        if isinstance(found, list | tuple):
            found = vstack([csr_matrix(one) for one in found], format="csr")
        matrix = csr_matrix(found, dtype=np.float32)
        matrix.sum_duplicates()
        if matrix.shape != (len(cells), self.shape[1]):
            shape = " x ".join(map(str, matrix.shape))
            raise UserError(f"the data set returned {shape} counts for {len(cells)} cells of {self.shape[1]} genes")
        if not (np.isfinite(matrix.data).all() and (matrix.data >= 0).all() and (matrix.data % 1 == 0).all()):
            raise UserError("the data set returned values that are no raw counts: return whole numbers from 0 on")
        return matrix

    def __reduce__(self) -> tuple[Any, ...]:
        return DatasetCounts, (self.matrix, None, self.dataset)


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
    return Counts(_matrix(arrays[0], arrays[1], indptr, shape), (data, indices))


def mapped(stored: Stored) -> Counts | None:
    """Map all counts from their .h5ad file, or return None if they are compressed or in chunks."""
    places = []
    for array in (stored.data, stored.indices):
        offset = array.id.get_offset()
        if offset is None or array.file.userblock_size or array.dtype.byteorder == ">":
            return None
        places.append((Path(array.file.filename), array.dtype.str, offset))
    if stored.data.dtype == np.float16 or not np.can_cast(np.min_scalar_type(stored.indptr[-1]), stored.indices.dtype):
        return None
    return map_counts(places[0], places[1], stored.indptr, stored.shape)


def blocks(matrix: csr_matrix | Stored, size: int | None = None) -> Iterator[tuple[int, csr_matrix]]:
    """Yield all cells in blocks, each with the index of its first cell. The caller may change a block.

    Raises
    ------
    ValueError
        If the arrays contradict each other.
    """
    cells, genes = matrix.shape
    size = min(max(_ENTRIES // max(genes, 1), 64), 16384) if size is None else size
    for first in range(0, cells, size):
        ends = matrix.indptr[first : first + size + 1]
        data, indices = (np.array(part[ends[0] : ends[-1]]) for part in (matrix.data, matrix.indices))
        data = data.astype(np.float32) if data.dtype == np.float16 else data  # scipy lacks float16
        block = csr_matrix((data, indices, ends - ends[0]), shape=(len(ends) - 1, genes))
        block.check_format()
        block.sum_duplicates()
        yield first, block


def check_counts(source: "Source") -> tuple[Int64[np.ndarray, " genes"], Float64[np.ndarray, " cells"]]:
    """Check that these are raw counts, in one pass over blocks.

    Returns the number of cells in which each gene is above zero, and the total count of each cell.

    Raises
    ------
    UserError
        For a value that is missing, negative or fractional, with cell and gene.
    """
    cells, genes = source.matrix.shape
    spread, library = np.zeros(genes, np.int64), np.zeros(cells)
    for first, block in blocks(source.matrix):
        data = block.data
        if data.dtype.kind not in "iufb":
            raise UserError(f"{source}: values of type {data.dtype}, no counts{source.other_layer}")
        right = np.isfinite(data) & (data >= 0) & (data == np.floor(data))
        if not right.all():
            entry = int(np.argmin(right))
            row = first + int(np.searchsorted(block.indptr, entry, side="right")) - 1
            raise UserError(
                f"{source} of cell {str(source.obs.index[row])!r}, gene {source.genes[block.indices[entry]]!r} is "
                f"{data[entry]:g}, and counts are whole numbers of 0 or more{source.other_layer}"
            )
        library[first : first + block.shape[0]] = block @ np.ones(genes)
        block.eliminate_zeros()
        spread += np.bincount(block.indices, minlength=genes)
    return spread, library


def highly_variable_genes(
    matrix: csr_matrix | Stored, number: int, library: Float64[np.ndarray, " cells"]
) -> Int64[np.ndarray, " chosen"]:
    """Return the columns of the most variable genes, in ascending order; `library` is the total count of each cell.

    scanpy's defaults (``normalize_total``, ``log1p``, ``highly_variable_genes`` of flavor "seurat"): every cell is
    scaled to the median library, and the log-dispersion (variance over mean) of a gene is compared with those of genes
    of similar mean, in 20 bins. As in scanpy, all genes that tie with the last one are chosen. Sums are in float64, so
    that the choice depends neither on memory nor on the size of blocks.

    Raises
    ------
    UserError
        If there are fewer genes.
    """
    if number > matrix.shape[1]:
        raise UserError(f"n_top_genes is {number:,}, and there are {matrix.shape[1]:,} genes: ask for fewer")
    cells, genes = matrix.shape
    scale = float(np.median(library[library > 0])) if (library > 0).any() else 1.0
    factor = np.divide(scale, library, out=np.zeros_like(library), where=library > 0)
    total, squares = np.zeros(genes), np.zeros(genes)
    for first, block in blocks(matrix):
        values = block.data * np.repeat(factor[first : first + block.shape[0]], np.diff(block.indptr))
        total += np.bincount(block.indices, weights=values, minlength=genes)
        squares += np.bincount(block.indices, weights=values**2, minlength=genes)
    # scanpy's mean and variance are of normalised counts: this flavor undoes the logarithm.
    mean = total / cells
    variance = (squares / cells - mean**2) * (cells / max(cells - 1, 1))
    mean = np.where(mean == 0, 1e-12, mean)
    with np.errstate(divide="ignore", invalid="ignore"):
        dispersion = variance / mean
        dispersion[dispersion == 0] = np.nan
        dispersion = np.log(dispersion)
    table = pd.DataFrame({"dispersion": dispersion, "bin": pd.cut(np.log1p(mean), bins=_BINS)})
    grouped = table.groupby("bin", observed=True)["dispersion"]
    centre, spread = grouped.transform("mean"), grouped.transform("std")
    # A bin of one gene has no spread: scanpy uses the gene's dispersion as the spread, so that its score is one.
    single = spread.isna()
    spread = spread.where(~single, centre)
    centre = centre.where(~single, 0.0)
    score = ((table["dispersion"] - centre) / spread).to_numpy(dtype=np.float64)
    known = np.sort(score[~np.isnan(score)])
    if not len(known):
        return np.arange(len(score))[:number]
    return np.flatnonzero(np.nan_to_num(score, nan=-np.inf) >= known[-min(number, len(known))])


def chosen_blocks(
    matrix: csr_matrix | Stored, columns: Int64[np.ndarray, " genes"], min_genes: int
) -> Iterator[tuple[Rows, csr_matrix]]:
    """Yield the cells that express `min_genes` of some genes, in blocks: their indices, and counts above zero.

    Counts are float32 and sorted by gene. A column of −1 is a gene that does not exist, and counts as zero.
    """
    for first, block in blocks(matrix):
        parts = block.data.astype(np.float32), block.indices, block.indptr
        # The last column, number −1, is empty.
        part = csr_matrix(parts, shape=(block.shape[0], block.shape[1] + 1))[:, columns]
        part.eliminate_zeros()
        part.sort_indices()
        enough = np.flatnonzero(np.diff(part.indptr) >= min_genes)
        yield first + enough, part[enough]


def packed(
    matrix: csr_matrix | Stored, columns: Int64[np.ndarray, " genes"], min_genes: int, entries: int
) -> tuple[Counts, Rows]:
    """Read the chosen counts, at most `entries`, into memory, a block at a time; return also the indices of the cells.

    The other arguments are those of :func:`chosen_blocks`.
    """
    data, indices = np.empty(entries, dtype=np.float32), np.empty(entries, dtype=_index_type(entries))
    lengths, kept, end = [np.zeros(1, dtype=np.int64)], [], 0
    for rows, part in chosen_blocks(matrix, columns, min_genes):
        start, end = end, end + part.nnz
        data[start:end], indices[start:end] = part.data, part.indices
        lengths.append(np.diff(part.indptr))
        kept.append(rows)
    indptr, cells = np.cumsum(np.concatenate(lengths)), np.concatenate(kept)
    return Counts(_matrix(data[:end], indices[:end], indptr, (len(cells), len(columns)))), cells


def copied(
    matrix: Stored, columns: Int64[np.ndarray, " genes"], min_genes: int, entries: int, source: Path, layer: str
) -> tuple[Counts, Rows, Path]:
    """Map an uncompressed copy of the chosen counts, which is made once for each content of the source.

    Arguments are those of :func:`packed`, and the source. Returns the counts, the indices of their cells, and the
    folder of the copy, in the cache folder.
    """
    chosen = f"{fingerprint(source)}\0{layer}\0{min_genes}\0".encode() + columns.tobytes()
    folder = cache_folder() / "cells" / f"{source.stem}-{hashlib.blake2b(chosen, digest_size=16).hexdigest()}"
    kind = _index_type(entries)
    with create_once(folder) as unfinished:
        if unfinished is not None:
            lengths, kept = [np.zeros(1, dtype=np.int64)], []
            with (unfinished / "data").open("wb") as data, (unfinished / "indices").open("wb") as indices:
                for rows, part in chosen_blocks(matrix, columns, min_genes):
                    part.data.tofile(data)
                    part.indices.astype(kind, copy=False).tofile(indices)
                    lengths.append(np.diff(part.indptr))
                    kept.append(rows)
            np.savez(unfinished / "cells.npz", indptr=np.cumsum(np.concatenate(lengths)), kept=np.concatenate(kept))
    with np.load(folder / "cells.npz") as arrays:
        indptr, cells = arrays["indptr"], arrays["kept"]
    places = (folder / "data", "float32", 0), (folder / "indices", kind.str, 0)
    return map_counts(*places, indptr, (len(cells), len(columns))), cells, folder


def _index_type(entries: int) -> np.dtype:
    """Return the type of column numbers, and of the ends of the rows: scipy copies all of one if they differ."""
    return np.dtype(np.int32 if entries < 2**31 else np.int64)


def _matrix(data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, shape: tuple[int, int]) -> csr_matrix:
    """Make a matrix of these arrays, which are neither copied nor checked."""
    matrix = csr_matrix(shape, dtype=data.dtype)
    matrix.data, matrix.indices, matrix.indptr = data, indices, indptr.astype(indices.dtype)
    return matrix
