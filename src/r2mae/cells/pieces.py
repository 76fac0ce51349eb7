"""Finds pieces (chunks) of a zarr folder that are not stored.

zarr reads such a piece as zeros or empty text, and by default stores no piece that holds nothing else. Whether it was
lost can therefore be told only where the values cannot all be zero: such data are refused. Elsewhere a note names the
pieces.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from r2mae.cells.declared import files_of
from r2mae.errors import UserError

_MAX_PIECES = 1 << 20  # pieces of an array that are looked for

Places = list[tuple[int, ...]]


def missing_pieces(array: Any) -> Places:
    """Return the places of the pieces of an array that are not stored; none of an array of an HDF5 file."""
    if hasattr(array, "id"):
        return []
    root = Path(array.store.root) / array.path
    stored = {file.relative_to(root).as_posix() for file in files_of(array)}
    grid = [-(-side // piece) for side, piece in zip(array.shape, _piece_shape(array), strict=True)]
    return [
        place
        for place in islice(np.ndindex(*grid), _MAX_PIECES)
        if array.metadata.encode_chunk_key(place) not in stored
    ]


def lost_in_sparse(matrix: Any) -> str:
    """Return which part of a sparse matrix has certainly lost pieces, in words; empty if none has.

    Stored counts are above zero, and cells or genes with several counts have them in several places.
    """
    if missing_pieces(matrix["data"]):
        return "pieces of its values are missing"
    if not matrix["data"].shape[0]:
        return ""
    if missing_pieces(matrix["indptr"]):
        return "pieces of its indptr are missing"
    places = missing_pieces(matrix["indices"])
    if places:
        size, ends = _piece_shape(matrix["indices"])[0], np.asarray(matrix["indptr"][:], dtype=np.int64)
        for (place,) in places:
            if np.diff(np.clip(ends, place * size, (place + 1) * size)).max(initial=0) > 1:
                return "pieces of its indices are missing"
    return ""


def check_dense(path: Path, array: Any, group: str) -> tuple[str, ...]:
    """Return notes on missing pieces of a dense matrix, which may be without any count.

    Raises
    ------
    UserError
        If no piece is stored.
    """
    places = missing_pieces(array)
    if places and len(places) == _count_pieces(array):
        raise UserError(f"{path}: no piece of {group} is stored, so that it holds no count: export or fetch it again")
    return (
        (f"{_describe_missing(array, places)}: read as zeros, which is wrong if anything was lost",) if places else ()
    )


def check_frame(path: Path, frame: Any, name: str) -> None:
    """Refuse a table, obs or var, whose names of rows or of categories were lost: they cannot all be empty.

    Raises
    ------
    UserError
        It names the missing pieces.
    """
    if hasattr(frame, "id") or not hasattr(frame, "keys"):
        return
    index = str(frame.attrs.get("_index", "_index"))
    for column in frame:
        parts = _arrays(frame[column], "values") if column == index else _arrays(frame[column], "categories")
        for array in parts:
            if (column == index or _piece_shape(array)[0] > 1) and (places := missing_pieces(array)):
                raise UserError(
                    f"{path}: {name} is damaged ({_describe_missing(array, places)}): export or fetch it again"
                )


def check_columns(path: Path, obs: Any, columns: Sequence[str]) -> tuple[str, ...]:
    """Return notes on missing pieces of columns of obs, which may hold zeros, empty text or the first category alone.

    Raises
    ------
    UserError
        If nothing is stored of a column that has several categories: every cell would be in the first.
    """
    notes: list[str] = []
    for column in dict.fromkeys(columns):
        element = obs[column] if hasattr(obs, "keys") and column in obs else None
        if element is None or hasattr(element, "id"):
            continue
        if not hasattr(element, "keys"):
            notes += _fill_notes(element, "")
        elif "codes" not in element:
            notes += [note for array in _arrays(element, "values") for note in _fill_notes(array, "")]
        elif _count_categories(element) > 1:
            notes += _fill_notes(element["codes"], ", the first category")
            if len(missing_pieces(element["codes"])) == _count_pieces(element["codes"]):
                raise UserError(
                    f"{path}: no piece of {element['codes'].path} is stored, so that every cell would be in the first "
                    f"of the categories of {column!r}: export or fetch it again, or if that is meant, call "
                    f"adata.obs[{column!r}].cat.remove_unused_categories() and write it again"
                )
    return tuple(notes)


def _fill_notes(array: Any, meaning: str) -> list[str]:
    if not (places := missing_pieces(array)):
        return []
    value = array.fill_value.item() if hasattr(array.fill_value, "item") else array.fill_value
    return [f"{_describe_missing(array, places)}: read as {value!r}{meaning}, which is wrong if anything was lost"]


def _arrays(element: Any, part: str) -> Iterator[Any]:
    """Yield the array with the values of a column, or with those of a part of it; masks of values are omitted."""
    if hasattr(element, "shape"):
        if part == "values":
            yield element
    elif part in element:
        yield from _arrays(element[part], "values")


def _count_categories(element: Any) -> int:
    return sum(int(array.shape[0]) for array in _arrays(element, "categories"))


def _piece_shape(array: Any) -> tuple[int, ...]:
    """Return the sides of a stored piece, which may hold several chunks."""
    sides: tuple[int, ...] = getattr(array, "shards", None) or array.chunks
    return sides


def _count_pieces(array: Any) -> int:
    return int(np.prod([-(-side // piece) for side, piece in zip(array.shape, _piece_shape(array), strict=True)]))


def _describe_missing(array: Any, places: Places) -> str:
    first, count = f"{array.path}/{array.metadata.encode_chunk_key(places[0])}", _count_pieces(array)
    more = f" and {len(places) - 1:,} more" if len(places) > 1 else ""
    verb = "is" if len(places) == 1 else "are"
    return f"{len(places):,} of {count:,} piece{'s' * (count > 1)} of {array.path} {verb} not stored ({first}{more})"
