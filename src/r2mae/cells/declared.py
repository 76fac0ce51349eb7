"""What an .h5ad file or zarr folder declares, compared with what is there and with memory, before it is read.

A file of a few kilobytes may declare matrices of any size, and pieces of it may unpack without end; real counts pack to
a third or a tenth of their size.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from r2mae.errors import UserError
from r2mae.registry import JOBS

_TEXT = 64  # bytes of a short string in memory, with its place in a column
_PACKED = 200  # times that real data shrink at most; deflate makes a thousandth of zeros
_LARGE_PIECE = 1 << 28  # bytes of a chunk that is unpacked anew for every block of cells
_PARTS = 20_000  # groups and arrays; links may name one of them again and again
_DEPTH = 40
_OVERHEAD = 4096  # bytes by which a packed chunk may exceed what it holds, besides a sixty-fourth


def memory_limit() -> int:
    """Give half of this machine's memory (or of the container's), in bytes: what counts may take.

    The processes of a comparison, which all read them, share it.
    """
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not POSIX
        total = 8 << 30
    container = Path("/sys/fs/cgroup/memory.max")
    if container.is_file() and (text := container.read_text().strip()).isdigit():
        total = min(total, int(text))
    return total // (2 * max(1, int(os.environ.get(JOBS, "1"))))


def check_part(path: Path, element: Any, name: str, *, whole: bool = False) -> None:
    """Refuse a part of a file that would not fit into memory, or whose pieces hold more than they say.

    Parameters
    ----------
    path : Path
    element
        A group or array of the opened file.
    name : str
        Of the element, for messages.
    whole : bool
        It is the whole file, which may take all of the memory; a part may take half.

    Raises
    ------
    UserError
        With what it declares.
    """
    size, limit = 0, memory_limit() * (2 if whole else 1)
    for array in _arrays(path, element, name):
        _check_pieces(path, array)
        size += _bytes_of(array)
        if size > limit:
            raise UserError(
                f"{path}: {name} declares {size / 2**30:,.3g} GiB or more, the limit is {limit / 2**30:,.3g} GiB of "
                "memory: check that it is the right file, or take what is needed out of it"
            )


def check_rows(path: Path, matrix: Any, group: str) -> None:
    """Refuse a matrix stored by rows that is larger than memory and cannot be what its bytes hold.

    Real counts of that size stay on disk; those that a small file unpacks to would be read for days.

    Raises
    ------
    UserError
        With what it declares.
    """
    check_part(path, matrix["indptr"], f"{group}/indptr")
    parts = matrix["data"], matrix["indices"]
    for array in parts:
        _check_pieces(path, array)
    size = sum(_bytes_of(array) for array in parts)
    stored = sum(_stored(array) for array in parts)
    large = size > memory_limit() or any(_piece(array) > _LARGE_PIECE for array in parts)
    if large and size > _PACKED * max(stored, 1):
        raise UserError(
            f"{path}: {group} declares {size / 2**30:,.3g} GiB of counts in {stored:,} bytes, more than counts "
            "can be packed: fetch or export it again"
        )


def _arrays(path: Path, element: Any, name: str) -> Iterator[Any]:
    """Walk over all arrays below an element, as often as links name them, since a reader would do so, too."""
    waiting, seen = [(element, 0)], 0
    while waiting:
        found, depth = waiting.pop()
        seen += 1
        if seen > _PARTS or depth > _DEPTH:
            raise UserError(f"{path}: {name} has too many parts, or parts that hold themselves: export it again")
        if hasattr(found, "shape"):
            yield found
        elif hasattr(found, "keys"):
            waiting.extend((found[key], depth + 1) for key in found)


def _bytes_of(array: Any) -> int:
    size = 1
    for side in array.shape or ():  # of an empty dataspace it is None
        size *= int(side)
    dtype = array.dtype
    kind = getattr(dtype, "kind", "O")
    return size * (_TEXT if kind in "OTUS" and dtype.itemsize < _TEXT else int(dtype.itemsize))


def _piece(array: Any) -> int:
    size = 1
    for side in getattr(array, "shards", None) or array.chunks or (0,):
        size *= int(side)
    return size * int(array.dtype.itemsize)


def _stored(array: Any) -> int:
    """Return the bytes that an array takes in its file or folder."""
    if hasattr(array, "id"):
        return int(array.id.get_storage_size())
    return sum(place.stat().st_size for place in _files_of(array))


def _check_pieces(path: Path, array: Any) -> None:
    """Refuse packed chunks that are larger than what they should unpack to: libraries unpack them to their end."""
    if not array.chunks:
        return
    piece = _piece(array)
    worst = 0

    def note(chunk: Any) -> None:
        nonlocal worst
        worst = max(worst, int(chunk.size))

    if not hasattr(array, "id"):
        worst = max((place.stat().st_size for place in _files_of(array)), default=0)
    elif array.id.get_create_plist().get_nfilters():
        array.id.chunk_iter(note)
    if worst > piece + piece // 64 + _OVERHEAD:
        raise UserError(
            f"{path}: a chunk of {array.name} has {worst:,} packed bytes and should unpack to {piece:,}: "
            "fetch or export it again"
        )


def _files_of(array: Any) -> Iterator[Path]:
    """Walk over the files of the chunks of a zarr array on disk."""
    root = Path(array.store.root) / array.path
    for folder, _, names in os.walk(root):
        yield from (Path(folder, name) for name in names if name != "zarr.json" and not name.startswith("."))
