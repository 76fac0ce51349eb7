"""Checks the sizes that an .h5ad file or zarr folder declares against its bytes and against memory, before reading.

A file of a few kilobytes may declare matrices of any size, and its chunks may unpack to far more data than declared.
Real counts compress to between a third and a tenth of their size.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from r2mae.errors import UserError
from r2mae.registry import JOBS

_TEXT_BYTES = 64  # bytes of a short string in memory, including its pointer in a column
_MAX_COMPRESSION = 200  # largest compression factor of real data; deflate compresses zeros to a thousandth
_MAX_PIECE = 1 << 28  # bytes; larger chunks are too large to be unpacked again for every block of cells
_MAX_PARTS = 20_000  # largest number of groups and arrays; links may refer to one of them many times
_MAX_DEPTH = 40
_OVERHEAD = 4096  # bytes by which a packed chunk may exceed its unpacked size, in addition to a sixty-fourth of it


def memory_limit() -> int:
    """Return the memory that counts may use, in bytes: half of the machine's (or the container's).

    The processes of a comparison, which all read the counts, divide it among them.
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
    """Refuse a part of a file that would not fit into memory, or whose chunks hold more data than declared.

    Parameters
    ----------
    path : Path
    element
        A group or array of the opened file.
    name : str
        Name of the element, for messages.
    whole : bool
        Whether it is the whole file, which may use all of the memory; a part may use half.

    Raises
    ------
    UserError
        If the part is refused; the message has the declared size.
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
    """Refuse a matrix stored by rows that is larger than memory and that its bytes cannot hold.

    Real counts of that size stay on disk. Those that a small file declares would take days to read.

    Raises
    ------
    UserError
        If the matrix is refused; the message has the declared size.
    """
    check_part(path, matrix["indptr"], f"{group}/indptr")
    parts = matrix["data"], matrix["indices"]
    for array in parts:
        _check_pieces(path, array)
    size = sum(_bytes_of(array) for array in parts)
    stored = sum(_stored_bytes(array) for array in parts)
    large = size > memory_limit() or any(_piece_bytes(array) > _MAX_PIECE for array in parts)
    if large and size > _MAX_COMPRESSION * max(stored, 1):
        raise UserError(
            f"{path}: {group} declares {size / 2**30:,.3g} GiB of counts in {stored:,} bytes, more than counts "
            "can be packed: fetch or export it again"
        )


def _arrays(path: Path, element: Any, name: str) -> Iterator[Any]:
    """Yield all arrays below an element; one that has several links comes several times, as a reader would read it."""
    waiting, seen = [(element, 0)], 0
    while waiting:
        current, depth = waiting.pop()
        seen += 1
        if seen > _MAX_PARTS or depth > _MAX_DEPTH:
            raise UserError(f"{path}: {name} has too many parts, or parts that hold themselves: export it again")
        if hasattr(current, "shape"):
            yield current
        elif hasattr(current, "keys"):
            waiting.extend((current[key], depth + 1) for key in current)


def _bytes_of(array: Any) -> int:
    size = 1
    for side in array.shape or ():  # the shape of an empty dataspace is None
        size *= int(side)
    dtype = array.dtype
    kind = getattr(dtype, "kind", "O")
    return size * (_TEXT_BYTES if kind in "OTUS" and dtype.itemsize < _TEXT_BYTES else int(dtype.itemsize))


def _piece_bytes(array: Any) -> int:
    size = 1
    for side in getattr(array, "shards", None) or array.chunks or (0,):
        size *= int(side)
    return size * int(array.dtype.itemsize)


def _stored_bytes(array: Any) -> int:
    """Return the number of bytes of an array in its file or folder."""
    if hasattr(array, "id"):
        return int(array.id.get_storage_size())
    return sum(file.stat().st_size for file in files_of(array))


def _check_pieces(path: Path, array: Any) -> None:
    """Refuse packed chunks larger than their declared unpacked size, as libraries would unpack all of them.

    An array that is kept in other files is refused, too: HDF5 fills it with a number where one of them is missing.
    """
    if getattr(array, "is_virtual", False) or getattr(array, "external", None):
        raise UserError(
            f"{path}: {array.name} is kept in other files (HDF5 calls it virtual or external): write all into one "
            "file, such as with adata.write_h5ad"
        )
    if not array.chunks:
        return
    piece = _piece_bytes(array)
    worst = 0

    def note(chunk: Any) -> None:
        nonlocal worst
        worst = max(worst, int(chunk.size))

    if not hasattr(array, "id"):
        worst = max((file.stat().st_size for file in files_of(array)), default=0)
    elif array.id.get_create_plist().get_nfilters():
        array.id.chunk_iter(note)
    if worst > piece + piece // 64 + _OVERHEAD:
        raise UserError(
            f"{path}: a chunk of {array.name} has {worst:,} packed bytes and should unpack to {piece:,}: "
            "fetch or export it again"
        )


def files_of(array: Any) -> Iterator[Path]:
    """Yield the files of the chunks of a zarr array on disk."""
    root = Path(array.store.root) / array.path
    for folder, _, names in os.walk(root):
        yield from (Path(folder, name) for name in names if name != "zarr.json" and not name.startswith("."))
