"""Single-cell counts (.h5ad) as a matrix."""

from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from r2mae.advice.matrix import Matrix, most_variable
from r2mae.errors import UserError
from r2mae.images.formats import check_memory, reading


def read_cells(path: Path, max_features: int) -> Matrix:
    """Read X of an AnnData file; counts are scaled to the median total of a cell and log1p-transformed.

    Values that are not counts (not all non-negative integers) are taken as they are. The most variable genes are chosen
    before the matrix is made dense.

    Raises
    ------
    UserError
        Without anndata, for a broken file, one without X, or one whose cells are all empty.
    """
    try:
        import anndata
    except ModuleNotFoundError:
        raise UserError(
            f"{path}: reading .h5ad needs 'anndata', which is not installed: pip install 'r2mae[cells]'"
        ) from None
    with reading(path, ".h5ad file"):
        data = anndata.read_h5ad(path)
    if data.X is None or not min(data.shape):
        raise UserError(f"{path}: has no matrix X of cells by genes: expected counts or normalised values there")
    x = data.X.tocsr() if sparse.issparse(data.X) else sparse.csr_matrix(np.asarray(data.X))
    names = np.array(data.var_names.astype(str), dtype=object)
    x = x.astype(np.float64)
    if not np.isfinite(x.data).all():
        place = int(np.argmin(np.isfinite(x.data)))
        row = int(np.searchsorted(x.indptr, place, side="right"))
        raise UserError(f"{path}: cell {row}, gene {names[x.indices[place]]!r} holds {x.data[place]:g}: repair X")
    x, notes = _logged(path, x)
    variance = _variance(x)
    varies = int((variance > 0).sum())
    if varies < len(names):
        notes.append(f"{len(names) - varies:,} of {len(names):,} genes never vary and are left out")
    if varies > max_features:
        notes.append(most_variable(max_features, varies))
    top = np.sort(np.argsort(-variance, kind="stable")[: min(max_features, varies)])
    check_memory(path, x.shape[0] * len(top) * 24, None, "give a smaller --max-features")
    return Matrix(path.stem, x[:, top].toarray(), tuple(names[top]), tuple(notes))


def _logged(path: Path, x: Any) -> tuple[Any, list[str]]:
    """Normalise counts; leave other values alone."""
    if (x.data < 0).any() or (x.data != np.rint(x.data)).any():
        return x, ["X holds no raw counts and is taken as already normalised"]
    totals = np.asarray(x.sum(axis=1)).ravel()
    full = totals > 0
    if full.sum() < 2:
        raise UserError(f"{path}: fewer than 2 cells have any counts in X")
    notes = ["counts are scaled to the median total of a cell, then log1p"]
    if not full.all():
        notes.append(f"{int((~full).sum()):,} cells without counts are left out")
        x, totals = x[full], totals[full]
    x = sparse.diags_array(np.median(totals) / totals).tocsr() @ x
    x.data = np.log1p(x.data)
    return x, notes


def _variance(x: Any) -> np.ndarray:
    """Variance of each column; exactly zero where all entries are equal."""
    mean = np.asarray(x.mean(axis=0)).ravel()
    square = np.asarray(x.multiply(x).mean(axis=0)).ravel()
    still = np.asarray((x.max(axis=0) - x.min(axis=0)).todense()).ravel() == 0
    return np.where(still, 0.0, np.maximum(square - mean**2, np.finfo(float).tiny))
