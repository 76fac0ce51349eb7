"""Reads data as a matrix of samples by features, for the theory: .npy, .csv, .h5ad and images."""

from pathlib import Path

import numpy as np

from r2mae.advice.matrix import Matrix, most_variable
from r2mae.catalogue import locate
from r2mae.cells.sets import SETS as CELLS
from r2mae.errors import UserError, nearest
from r2mae.images.formats import check_memory, reading
from r2mae.images.sets import SETS

MAX_FEATURES = 2000
_TABLES = (".csv", ".tsv", ".txt")
NAMED = (*SETS, *CELLS)
"""The named sets that are matrices of numbers."""

_PATHS = "a .npy, .csv, .tsv or .h5ad file, or images (a folder, .npz or idx file)"


def load_matrix(source: str | Path, *, max_features: int = MAX_FEATURES) -> Matrix:
    """Load data by name or from a path, and leave out features that never vary.

    Parameters
    ----------
    source : str or Path
        ``digits``, ``mnist``, a set of cells such as ``csle``, or the path of a .npy (two axes, or images), a table
        (.csv, .tsv; a header is optional), a .h5ad (counts become log1p of counts scaled to the median total), or
        images.
    max_features : int
        If there are more, those with the largest variance are kept.

    Raises
    ------
    UserError
        No such data, a broken file, a number that is not finite, fewer than two rows or two varying features.
    """
    if max_features < 2:
        raise UserError(f"max_features must be 2 or more, not {max_features}")
    name, path = str(source), Path(source).expanduser()
    if name in CELLS:
        (path,) = locate(CELLS[name]).values()
    suffix = path.suffix.lower()
    if name not in SETS and not (name and path.exists()):
        raise _not_there(name, path)
    if name in SETS or path.is_dir() or suffix == ".npz" or "idx3" in path.name:
        matrix = _images(name)
    elif suffix == ".npy":
        matrix = _npy(path)
    elif suffix in _TABLES:
        matrix = _table(path)
    elif suffix == ".h5ad":
        from r2mae.advice.cells import read_cells  # anndata only where it is needed

        matrix = read_cells(path, max_features)
    else:
        raise UserError(f"{path}: unknown kind of file {suffix or path.name!r}: give {_PATHS}")
    return _checked(matrix, str(source), max_features)


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
        notes.append(most_variable(max_features, values.shape[1]))
        top = np.sort(np.argsort(-values.var(axis=0), kind="stable")[:max_features])
        values, names = values[:, top], names[top]
    return Matrix(matrix.name, values, tuple(names), tuple(notes))


def _images(source: str) -> Matrix:
    from r2mae.images.data import load_parts
    from r2mae.images.decode import Reading

    train, *_ = load_parts(source, Reading(advised=False))  # if there is an official split, its training images
    assert isinstance(train.images, np.ndarray)  # by default images are loaded into memory
    count, height, width, channels = train.images.shape
    check_memory(Path(source), count * height * width * channels * 24, None, "give fewer or smaller images")
    scale = 255.0 if train.images.dtype == np.uint8 else 1.0
    colours = [""] if channels == 1 else [f" {name}" for name in "rgb"[:channels]]
    names = tuple(f"pixel {r},{c}{colour}" for r in range(height) for c in range(width) for colour in colours)
    values = train.images.reshape(count, -1).astype(np.float64) / scale
    return Matrix(train.name, values, names)


def _npy(path: Path) -> Matrix:
    with path.open("rb") as file:
        if file.read(6) != b"\x93NUMPY":
            raise UserError(f"{path}: is no .npy file: save an array with numpy.save")
    with reading(path, ".npy file"):
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    if array.ndim in (3, 4):
        return _images(str(path))
    if array.ndim != 2:
        raise UserError(f"{path}: has shape {array.shape}, expected samples x features, or images")
    if array.dtype.kind not in "biuf":
        raise UserError(f"{path}: holds {array.dtype}, expected numbers")
    check_memory(path, array.size * 24, None, "give fewer rows")
    values = np.array(array, dtype=np.float64)
    return Matrix(path.stem, values, tuple(f"column {index + 1}" for index in range(values.shape[1])))


def _table(path: Path) -> Matrix:
    import pandas as pd

    with reading(path, "table", "export it again as UTF-8 text, one sample a line"):
        with path.open(encoding="utf-8-sig", newline="") as file:
            first = file.readline()
        separator = max(",;\t", key=first.count)
        cells = [cell.strip().strip("\"'") for cell in first.strip("\r\n").split(separator)]
        header = None if all(_is_number(cell) for cell in cells) else 0
        frame = pd.read_csv(path, sep=separator, header=header, encoding="utf-8-sig", low_memory=False)
    if not len(frame):
        raise UserError(f"{path}: has no rows below its first line, expected at least 2 samples")
    notes = []
    if header is None:
        frame.columns = pd.Index([f"column {index + 1}" for index in range(frame.shape[1])])
    elif len(frame) and str(frame.columns[0]).startswith("Unnamed") and _is_count_up(frame.iloc[:, 0].to_numpy()):
        frame = frame.iloc[:, 1:]
        notes.append("the first column numbers the rows and is left out")
    words = []
    for column in frame.columns[[kind.kind not in "biuf" for kind in frame.dtypes]]:
        numbers = pd.to_numeric(frame[column], errors="coerce")
        wrong = (numbers.isna() & frame[column].notna()).to_numpy()
        if wrong.mean() < 0.1:  # a column of numbers with a few typing errors, not a column of words
            row = int(np.argmax(wrong))
            raise UserError(
                f"{path}: row {row + 1}, column {str(column)!r} holds {frame[column].iloc[row]!r}, no number"
            )
        words.append(str(column))
    if words:
        shown = ", ".join(words[:5]) + (", …" if len(words) > 5 else "")
        notes.append(f"{len(words)} column{'s' * (len(words) > 1)} without numbers left out ({shown})")
        frame = frame.drop(columns=words)
    if frame.shape[1] == 0:
        raise UserError(f"{path}: none of its columns holds numbers: expected samples in rows, features in columns")
    return Matrix(path.stem, frame.to_numpy(dtype=np.float64), tuple(map(str, frame.columns)), tuple(notes))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_count_up(values: np.ndarray) -> bool:
    return values.dtype.kind in "iu" and bool((values - values[0] == np.arange(len(values))).all())


def _not_there(name: str, path: Path) -> UserError:
    if path.suffix or len(path.parts) > 1:
        return UserError(f"{path}: no such file or folder: give a named set ({', '.join(NAMED)}), {_PATHS}")
    return UserError(f"unknown data {name!r}: {nearest(name, NAMED)} (or give the path of {_PATHS})")
