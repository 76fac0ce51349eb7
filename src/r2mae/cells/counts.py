"""Raw counts in CSR form: their check, variable genes, and choices of genes and cells, in memory or mapped.

In a mapped file random cells are read as fast as in memory, and the system keeps in memory what fits.
"""

import errno
import hashlib
import mmap
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float64, Int64
from scipy.sparse import csr_matrix

from r2mae.catalogue import data_root
from r2mae.errors import UserError
from r2mae.files import sync
from r2mae.fingerprint import files_below

if TYPE_CHECKING:
    from r2mae.cells.table import Source

Rows = Int64[np.ndarray, " rows"]
Place = tuple[Path, str, int]
"""File, type and offset of an array in a file."""
ENTRY = 8
"""Bytes of a count, in memory or on a device: float32 and int32."""
_ENTRIES = 1 << 23  # size of a block, as cells × genes; 3 to 30 % of the entries are above zero
_BINS = 20  # of genes of similar mean, as in scanpy
_MIN_FREE = 1 << 26  # bytes that must stay free on the disk of a copy


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
        offset = array.id.get_offset() if hasattr(array, "id") else None
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
        yield first, block


class Totals(NamedTuple):
    """Number of cells in which each gene is above zero, and total count of each cell, from one pass over the counts."""

    cells_of_gene: Int64[np.ndarray, " genes"]
    library: Float64[np.ndarray, " cells"]


def check_counts(source: "Source") -> Totals:
    """Check that these are raw counts, and add them up, in one pass over blocks.

    Raises
    ------
    UserError
        For a value that is missing, negative or fractional, with cell and gene; for a gene twice in a cell.
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
            reason = "which is no count: correct or remove that cell"
            if np.isfinite(data[entry]):
                what = (
                    "and counts are 0 or more: the data are scaled"
                    if data[entry] < 0
                    else "a fraction: the data are normalised"
                )
                reason = what + source.other_layer
            raise UserError(
                f"{source} of cell {str(source.obs.index[row])!r}, gene {source.genes[block.indices[entry]]!r} is "
                f"{data[entry]:g}, {reason}"
            )
        stored = block.nnz
        block.sum_duplicates()
        if block.nnz < stored:
            raise UserError(
                f"{source} stores a gene twice in one cell: read it with anndata, call X.sum_duplicates(), and write "
                "it again"
            )
        library[first : first + block.shape[0]] = block @ np.ones(genes)
        block.eliminate_zeros()
        spread += np.bincount(block.indices, minlength=genes)
    return Totals(spread, library)


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


@dataclass(frozen=True, eq=False)
class Choice:
    """The chosen genes, and how many of them a cell must express.

    Parameters
    ----------
    columns : int64 array (genes,)
        Column of each gene, none twice; −1 for a gene that does not exist and counts as zero.
    min_genes : int
        Omit cells that express fewer of these genes.
    entries : int
        Number of counts above zero in these genes, in all cells.
    """

    columns: Int64[np.ndarray, " genes"]
    min_genes: int
    entries: int

    @property
    def index_type(self) -> np.dtype:
        """The type of column numbers, and of the ends of the rows: scipy copies all of one if they differ."""
        return np.dtype(np.int32 if self.entries < 2**31 else np.int64)

    def write(self, matrix: csr_matrix | Stored, put: Callable[..., object]) -> tuple[Int64[np.ndarray, " ends"], Rows]:
        """Call ``put(first, data, indices)`` with blocks of the chosen counts above zero as float32, and their columns.

        `first` is the number of counts before. Returns the ends of the rows, and the indices of their cells.
        """
        lengths, kept, written = [np.zeros(1, dtype=np.int64)], [], 0
        for first, block in blocks(matrix):
            parts = block.data.astype(np.float32), block.indices, block.indptr
            # The last column, number −1, is empty.
            part = csr_matrix(parts, shape=(block.shape[0], block.shape[1] + 1))[:, self.columns]
            part.eliminate_zeros()
            part.sort_indices()
            enough = np.flatnonzero(np.diff(part.indptr) >= self.min_genes)
            part = part[enough]
            put(written, part.data, part.indices.astype(self.index_type, copy=False))
            written += part.nnz
            lengths.append(np.diff(part.indptr))
            kept.append(first + enough)
        return np.cumsum(np.concatenate(lengths)), np.concatenate(kept)


def packed(matrix: csr_matrix | Stored, choice: Choice) -> tuple[Counts, Rows]:
    """Read the chosen counts into memory, a block at a time; return also the indices of their cells."""
    data, indices = np.empty(choice.entries, dtype=np.float32), np.empty(choice.entries, dtype=choice.index_type)

    def put(first: int, *parts: np.ndarray) -> None:
        for array, part in zip((data, indices), parts, strict=True):
            array[first : first + len(part)] = part

    indptr, kept = choice.write(matrix, put)
    arrays = data[: indptr[-1]], indices[: indptr[-1]]
    return Counts(_matrix(*arrays, indptr, (len(kept), len(choice.columns)))), kept


def copied(matrix: Stored, choice: Choice, source: Path, where: str) -> tuple[Counts, Rows, Path]:
    """Map the uncompressed copy of the chosen counts, which is made once for each state of the source.

    Returns the counts, the indices of their cells, and the folder of the copy.

    Raises
    ------
    UserError
        If it cannot be written.
    """
    folder = _folder_of_copy(choice, source, where)
    if not folder.exists():
        try:
            _write_copy(folder, matrix, choice)
        except OSError as error:
            if not folder.exists():  # otherwise another process has made the same copy
                raise UserError(
                    f"{folder}: cannot be written ({error.strerror or error}): point R2MAE_DATA at a folder with room "
                    "for an uncompressed copy of the counts"
                ) from None
    with np.load(folder / "cells.npz") as arrays:
        indptr, kept = arrays["indptr"], arrays["kept"]
    places = (folder / "data", "float32", 0), (folder / "indices", choice.index_type.str, 0)
    return map_counts(*places, indptr, (len(kept), len(choice.columns))), kept, folder


def _write_copy(folder: Path, matrix: Stored, choice: Choice) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    if shutil.disk_usage(folder.parent).free < choice.entries * ENTRY + _MIN_FREE:  # before time is spent on writing
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as place:
        unfinished = Path(place) / "copy"
        unfinished.mkdir()
        with (unfinished / "data").open("wb") as data, (unfinished / "indices").open("wb") as indices:
            indptr, kept = choice.write(matrix, lambda _, *parts: (parts[0].tofile(data), parts[1].tofile(indices)))
        np.savez(unfinished / "cells.npz", indptr=indptr, kept=kept)
        for file in unfinished.iterdir():
            sync(file)
        unfinished.replace(folder)


def _matrix(data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, shape: tuple[int, int]) -> csr_matrix:
    """Make a matrix of these arrays, which are neither copied nor checked."""
    matrix = csr_matrix(shape, dtype=data.dtype)
    matrix.data, matrix.indices, matrix.indptr = data, indices, indptr.astype(indices.dtype)
    return matrix


def _folder_of_copy(choice: Choice, source: Path, where: str) -> Path:
    """Return the folder for the copy of these genes in this state of a file.

    It is in the data folder if that can be written, else in the user's cache folder.
    """
    digest = hashlib.blake2b(digest_size=16)
    for path in [source] if source.is_file() else sorted(path for _, path, _ in files_below(source)):
        digest.update(f"{path.absolute()}\0{path.stat().st_size}\0{path.stat().st_mtime_ns}\0".encode())
    digest.update(f"{where}\0{choice.min_genes}\0".encode() + choice.columns.tobytes())
    root = data_root()
    if not os.access(root, os.W_OK):
        import pooch

        root = Path(pooch.os_cache("r2mae"))
    return root / "unpacked" / f"{source.stem}-{digest.hexdigest()}"
