"""Data as a matrix of samples by features, for the theory: .npy, tables, .h5ad and images."""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from r2mae.cells.sets import SETS as CELLS
from r2mae.errors import UserError, nearest
from r2mae.files import ordinary, warn_if_cut
from r2mae.images.arrays import check_memory, reading
from r2mae.images.sets import SETS

MAX_FEATURES = 2000
NAMED = (*SETS, *CELLS)
"""The named sets that are matrices of numbers."""

_PATHS = "a .npy, .csv, .tsv or .h5ad file, or images (a folder or a .npz)"
_BYTES = 24  # bytes per entry: three copies of float64


@dataclass(frozen=True, eq=False)
class Matrix:
    """Data as the theory needs them: all values are finite, and every feature varies.

    Attributes
    ----------
    name : str
        Name of the set or file.
    values : float64 array (n, d)
        Rows are samples; neither centred nor scaled.
    features : tuple of str
        Names of the columns.
    notes : tuple of str
        What was done to the data, in words.
    """

    name: str
    values: Float[np.ndarray, "n d"]
    features: tuple[str, ...]
    notes: tuple[str, ...] = ()


def load_matrix(source: str | Path, *, max_features: int = MAX_FEATURES) -> Matrix:
    """Load data by name or from a path, and leave out features that never vary.

    Parameters
    ----------
    source : str or Path
        ``digits``, ``mnist``, a set of cells such as ``csle``, or the path of a .npy (two axes, or images), a table
        (.csv, .tsv; the first line names the features), a .h5ad (counts become log1p of counts scaled to the median
        total), or images.
    max_features : int
        If there are more, those with the largest variance are kept.

    Raises
    ------
    UserError
        No such data, a broken file, a number that is not finite, fewer than two rows or two varying features.
    """
    name, path = str(source), ordinary(Path(source).expanduser())
    suffix = ".h5ad" if name in CELLS else path.suffix.lower()
    if name not in NAMED and not (name and path.exists()):
        if path.suffix or len(path.parts) > 1:
            raise UserError(f"{path}: no such file or folder: give a named set ({', '.join(NAMED)}), {_PATHS}")
        raise UserError(f"unknown data {name!r}: {nearest(name, NAMED)} (or give the path of {_PATHS})")
    if name in SETS or path.is_dir() or suffix == ".npz":
        matrix = _images(name)
    elif suffix == ".npy":
        matrix = _npy(path)
    elif suffix in (".csv", ".tsv"):
        matrix = _table(path)
    elif suffix == ".h5ad":
        matrix = _cells(source, max_features)
    else:
        raise UserError(f"{path}: unknown kind of file {suffix or path.name!r}: give {_PATHS}")
    return _checked(matrix, name, max_features)


def _checked(matrix: Matrix, source: str, max_features: int) -> Matrix:
    """Refuse values that are not finite, drop features that never vary, and keep the most variable features."""
    values, names, notes = matrix.values, np.array(matrix.features, dtype=object), list(matrix.notes)
    if len(values) < 2:
        raise UserError(f"{source}: has {len(values)} row{'s' * (len(values) != 1)}, expected at least 2 samples")
    finite = np.isfinite(values)
    if not finite.all():
        row, column = np.argwhere(~finite)[0]
        raise UserError(
            f"{source}: row {row + 1}, column {names[column]!r} holds {values[row, column]:g}: fill it in, or omit "
            "the row or column"
        )
    varies = np.ptp(values, axis=0) > 0
    if (still := int((~varies).sum())) > 0:
        notes.append(f"{still:,} of {len(varies):,} features never vary and are left out")
        values, names = values[:, varies], names[varies]
    if values.shape[1] < 2:
        raise UserError(f"{source}: {values.shape[1]} of its features vary, expected at least 2")
    if values.shape[1] > max_features:
        notes.append(f"the {max_features:,} most variable of {values.shape[1]:,} features are used")
        top = _largest(values.var(axis=0), max_features)
        values, names = values[:, top], names[top]
    return Matrix(matrix.name, values, tuple(names), tuple(notes))


def _largest(variance: np.ndarray, most: int) -> np.ndarray:
    return np.sort(np.argsort(-variance, kind="stable")[:most])


def _images(source: str) -> Matrix:
    from r2mae.images.data import load_images

    train, *_ = load_images(source)  # if there is an official split, its training images
    count, height, width, channels = train.images.shape
    check_memory(Path(source), train.images.size * _BYTES, "give fewer or smaller images")
    assert isinstance(train.images, np.ndarray)  # what fits is loaded into memory
    colours = [""] if channels == 1 else [f" {name}" for name in "rgb"[:channels]]
    names = tuple(f"pixel {r},{c}{colour}" for r in range(height) for c in range(width) for colour in colours)
    scale = 255.0 if train.images.dtype == np.uint8 else 1.0
    return Matrix(train.name, train.images.reshape(count, -1).astype(np.float64) / scale, names)


def _npy(path: Path) -> Matrix:
    with reading(path, ".npy file", "save an array with numpy.save"):
        array = np.lib.format.open_memmap(path, mode="r")
    if array.ndim in (3, 4):
        return _images(str(path))
    if array.ndim != 2:
        raise UserError(f"{path}: has shape {array.shape}, expected samples x features, or images")
    if array.dtype.kind not in "biuf":
        raise UserError(f"{path}: holds {array.dtype}, expected numbers")
    check_memory(path, array.size * _BYTES, "give fewer rows")
    names = tuple(f"column {index + 1}" for index in range(array.shape[1]))
    return Matrix(path.stem, np.array(array, dtype=np.float64), names)


def _table(path: Path) -> Matrix:
    """Read a table of numbers alone, whose first line names its columns."""
    import pandas as pd

    separator, between = (",", "commas") if path.suffix.lower() == ".csv" else ("\t", "tabs")
    with reading(path, "table", "export it again as UTF-8 text, one sample a line"):
        frame = pd.read_csv(path, sep=separator, low_memory=False)
        with path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            if file.read() not in b"\r\n":
                warn_if_cut(path, len(frame) + 1)
    names = [str(name) for name in frame]
    numbered = pd.to_numeric(pd.Series(names, dtype=str), errors="coerce").notna().any()
    if numbered or not isinstance(frame.index, pd.RangeIndex) or any(name.startswith("Unnamed: ") for name in names):
        raise UserError(
            f"{path}: its first line has to name each column, and no name may be a number; a column that numbers the "
            "rows is to be omitted (index=False)"
        )
    words = frame.select_dtypes(exclude=["number", "bool"])
    if len(frame) and words.shape[1]:
        column = words.iloc[:, 0]
        row = int(np.argmax(pd.to_numeric(column, errors="coerce").isna() & column.notna()))
        raise UserError(
            f"{path}: row {row + 1}, column {str(column.name)[:40]!r} holds {str(column.iloc[row])[:40]!r}, expected "
            f"numbers with {between} between them: correct it, or omit the column"
        )
    return Matrix(path.stem, frame.to_numpy(dtype=np.float64), tuple(names))


def _cells(source: str | Path, most: int) -> Matrix:
    """Read X; raw counts become log1p of counts scaled to the median total. The most variable genes are chosen."""
    from scipy.sparse import vstack

    from r2mae.cells.counts import Stored, blocks
    from r2mae.cells.table import open_source, path_of

    path = path_of(source)
    with open_source(path, None) as stored:
        if isinstance(stored.matrix, Stored):
            check_memory(path, int(stored.matrix.indptr[-1]) * _BYTES, "give fewer cells")
        x = vstack([block for _, block in blocks(stored.matrix)], format="csr").astype(np.float64)
    x.sum_duplicates()
    names = np.array(stored.genes, dtype=object)
    if not np.isfinite(x.data).all():
        gene = names[x.indices[np.argmin(np.isfinite(x.data))]]
        raise UserError(f"{path}: X has a value of the gene {gene!r} that is not finite: repair X")
    notes = ["X holds no raw counts and is taken as already normalised"]
    if (x.data >= 0).all() and (x.data == np.rint(x.data)).all():
        total = np.asarray(x.sum(axis=1)).ravel()
        notes = ["counts are scaled to the median total of a cell, then log1p"]
        if (empty := int((total == 0).sum())) > 0:
            notes.append(f"{empty:,} cells without counts are left out")
            x, total = x[total > 0], total[total > 0]
        if len(total) < 2:
            raise UserError(f"{path}: fewer than 2 cells have any counts in X")
        x.data = np.log1p(np.repeat(np.median(total) / total, np.diff(x.indptr)) * x.data)
    if len(names) > most:
        notes.append(f"the {most:,} most variable of {len(names):,} genes are used")
        variance = np.asarray(x.multiply(x).mean(axis=0) - np.square(x.mean(axis=0))).ravel()
        top = _largest(variance, most)
        x, names = x[:, top], names[top]
    check_memory(path, x.shape[0] * x.shape[1] * _BYTES, "give a smaller --max-features")
    return Matrix(path.stem, x.toarray(), tuple(names), tuple(notes))
