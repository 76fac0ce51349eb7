"""Highly variable genes by scanpy's default procedure, over blocks of cells."""

import numpy as np
import pandas as pd
from jaxtyping import Float64, Int64
from scipy.sparse import csr_matrix

from r2mae.cells.counts import Stored, blocks
from r2mae.errors import UserError

_BINS = 20


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
    mean, variance = _moments(matrix, library)
    return _most_dispersed(mean, variance, number)


def _moments(
    matrix: csr_matrix | Stored, library: Float64[np.ndarray, " cells"]
) -> tuple[Float64[np.ndarray, " g"], Float64[np.ndarray, " g"]]:
    """Mean and variance of normalised counts without the logarithm, which this flavor undoes."""
    cells, genes = matrix.shape
    scale = float(np.median(library[library > 0])) if (library > 0).any() else 1.0
    factor = np.divide(scale, library, out=np.zeros_like(library), where=library > 0)
    total, squares = np.zeros(genes), np.zeros(genes)
    for first, block in blocks(matrix):
        values = block.data * np.repeat(factor[first : first + block.shape[0]], np.diff(block.indptr))
        total += np.bincount(block.indices, weights=values, minlength=genes)
        squares += np.bincount(block.indices, weights=values**2, minlength=genes)
    mean = total / cells
    return mean, (squares / cells - mean**2) * (cells / max(cells - 1, 1))


def _most_dispersed(
    mean: Float64[np.ndarray, " g"], variance: Float64[np.ndarray, " g"], number: int
) -> Int64[np.ndarray, " n"]:
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
