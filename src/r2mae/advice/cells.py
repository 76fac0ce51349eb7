"""Single-cell counts (.h5ad) as a matrix, through the reader of the cells domain, a block of cells at a time."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float64, Int64
from scipy.sparse import csr_matrix

from r2mae.advice.matrix import Matrix, most_variable
from r2mae.cells.counts import Counts, chunks
from r2mae.cells.sources import from_file
from r2mae.cells.stored import opened
from r2mae.errors import UserError
from r2mae.images.formats import check_memory


def read_cells(path: Path, max_features: int) -> Matrix:
    """Read X of an AnnData file; counts are scaled to the median total of a cell and log1p-transformed.

    Values that are not counts (not all non-negative integers) are used unchanged. The most variable genes are chosen
    before a matrix is made dense.

    Raises
    ------
    UserError
        Without anndata, for a broken file, one without X, or one whose cells are all empty.
    """
    counts, names = _open(path)
    values, notes = _logged(path, counts, _survey(path, counts, names))
    variance = _variance(values)
    varies = int((variance > 0).sum())
    if varies < len(names):
        notes.append(f"{len(names) - varies:,} of {len(names):,} genes never vary and are left out")
    if varies > max_features:
        notes.append(most_variable(max_features, varies))
    top = np.sort(np.argsort(-variance, kind="stable")[: min(max_features, varies)])
    check_memory(path, values.cells * len(top) * 24, None, "give a smaller --max-features")
    dense = np.concatenate([block[:, top].toarray() for block in values])
    return Matrix(path.stem, dense, tuple(names[top]), tuple(notes))


def _open(path: Path) -> tuple[Counts, np.ndarray]:
    """Return X and the names of its genes; if X is stored by rows, it is not read into memory."""
    try:
        import anndata  # noqa: F401  (the reader needs it)
    except ModuleNotFoundError:
        raise UserError(
            f"{path}: reading .h5ad needs 'anndata', which is not installed: pip install 'r2mae[cells]'"
        ) from None
    nothing = UserError(f"{path}: has no matrix X of cells by genes: expected counts or normalised values there")
    with opened(path) as store:
        if "X" not in store:
            raise nothing
    source = from_file(path, None, backed=None)
    if not min(source.counts.shape):
        raise nothing
    return source.counts, np.array(source.genes, dtype=object)


@dataclass(frozen=True)
class _Survey:
    """Total of each cell, and whether all values are non-negative integers."""

    totals: Float64[np.ndarray, " cells"]
    raw: bool


@dataclass(frozen=True, eq=False)
class _Values:
    """The kept cells, each times its scale, and log1p-transformed if they are counts; every pass reads them again."""

    counts: Counts
    kept: Int64[np.ndarray, " kept"]
    scale: Float64[np.ndarray, " cells"]
    logged: bool

    @property
    def cells(self) -> int:
        return len(self.kept)

    def __iter__(self) -> Iterator[csr_matrix]:
        for first, block in _blocks(self.counts):
            if self.logged:
                scale = self.scale[first : first + block.shape[0]]
                block.data = np.log1p(np.repeat(scale, np.diff(block.indptr)) * block.data)
            low, high = np.searchsorted(self.kept, (first, first + block.shape[0]))
            yield block if high - low == block.shape[0] else block[self.kept[low:high] - first]


def _blocks(counts: Counts) -> Iterator[tuple[int, csr_matrix]]:
    for first, block in chunks(counts):
        values = block.astype(np.float64)
        values.sum_duplicates()
        yield first, values


def _survey(path: Path, counts: Counts, names: np.ndarray) -> _Survey:
    totals, raw = np.zeros(counts.shape[0]), True
    for first, block in _blocks(counts):
        data = block.data
        if not np.isfinite(data).all():
            bad = int(np.argmin(np.isfinite(data)))
            row = first + int(np.searchsorted(block.indptr, bad, side="right"))
            raise UserError(f"{path}: cell {row}, gene {names[block.indices[bad]]!r} holds {data[bad]:g}: repair X")
        raw = raw and bool((data >= 0).all() and (data == np.rint(data)).all())
        totals[first : first + block.shape[0]] = np.asarray(block.sum(axis=1)).ravel()
    return _Survey(totals, raw)


def _logged(path: Path, counts: Counts, survey: _Survey) -> tuple[_Values, list[str]]:
    """Normalise counts; leave other values alone."""
    totals = survey.totals
    if not survey.raw:
        notes = ["X holds no raw counts and is taken as already normalised"]
        return _Values(counts, np.arange(len(totals)), np.ones(len(totals)), logged=False), notes
    full = totals > 0
    if full.sum() < 2:
        raise UserError(f"{path}: fewer than 2 cells have any counts in X")
    notes = ["counts are scaled to the median total of a cell, then log1p"]
    if not full.all():
        notes.append(f"{int((~full).sum()):,} cells without counts are left out")
    scale = np.median(totals[full]) / np.where(full, totals, 1.0)
    return _Values(counts, np.flatnonzero(full), scale, logged=True), notes


def _variance(values: _Values) -> Float64[np.ndarray, " genes"]:
    """Variance of each column; exactly zero if all its entries are equal."""
    genes = values.counts.shape[1]
    total, square, low, high = np.zeros(genes), np.zeros(genes), np.full(genes, np.inf), np.full(genes, -np.inf)
    for block in values:
        if block.shape[0]:
            total += np.asarray(block.sum(axis=0)).ravel()
            square += np.asarray(block.multiply(block).sum(axis=0)).ravel()
            low = np.minimum(low, block.min(axis=0).toarray().ravel())
            high = np.maximum(high, block.max(axis=0).toarray().ravel())
    mean = total / values.cells
    spread = square / values.cells - mean**2
    return np.where(low == high, 0.0, np.maximum(spread, np.finfo(float).tiny))
