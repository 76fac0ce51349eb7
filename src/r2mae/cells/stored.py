"""Counts that stay in an .h5ad file or a zarr folder, and are read when they are needed.

Random rows of an uncompressed HDF5 file are read straight from their places in the file, without the library: a batch
of 400 cells is 800 small reads. Of a compressed one every row would cost the unpacking of one or two whole chunks, so
:func:`write_copy` unpacks it once.
"""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64
from scipy.sparse import csr_matrix

from r2mae.cells.counts import Counts, Rows, chunks
from r2mae.cells.declared import check_rows
from r2mae.cells.hdf5 import atomic_hdf5
from r2mae.errors import UserError

_GAP = 1 << 14  # entries that are read in vain where that saves a read of a compressed file
_MOST_CHUNKS = 1 << 20
_MOST_WORDS = 1 << 26  # bytes of zarr's metadata
_SPARE = 1 << 26  # bytes that stay free on the disk of a copy


class StoredCounts:
    """CSR counts in an .h5ad file or a zarr folder, opened once in every process that reads.

    Parameters
    ----------
    path : Path
        The file or folder.
    group : str
        Where the matrix is: "X", "raw/X" or "layers/NAME".

    Attributes
    ----------
    indptr : int64 array (cells + 1,)
        Where each cell's entries begin.
    direct : bool
        Whether rows are read straight from the file, and random ones quickly.

    Raises
    ------
    UserError
        If the matrix contradicts itself.
    """

    def __init__(self, path: Path, group: str = "X") -> None:
        self.path, self.group = Path(path), group
        with opened(self.path) as store, _reading(self.path, group):
            matrix = store[group]
            self.shape = (int(matrix.attrs["shape"][0]), int(matrix.attrs["shape"][1]))
            check_rows(self.path, matrix, group)
            self.indptr = np.asarray(matrix["indptr"][:], dtype=np.int64)
            data, columns = matrix["data"], matrix["indices"]
            ordered = len(self.indptr) == self.shape[0] + 1 and not self.indptr[0] and (np.diff(self.indptr) >= 0).all()
            if not ordered or not data.shape == columns.shape == (self.indptr[-1],):
                raise _damaged(self.path, group)
            if np.diff(self.indptr).max(initial=0) > self.shape[1]:  # then a gene is stored twice in a cell
                raise _damaged(self.path, group)
            # zarr reads a piece that was lost as zeros; counts above zero fill every piece.
            if self.path.is_dir() and data.nchunks_initialized < data.nchunks:
                raise _damaged(self.path, group, "pieces of its values are missing")
            extents = _extents(self.path, data), _extents(self.path, columns)
        self._extents = None if extents[0] is None or extents[1] is None else (extents[0], extents[1])
        self._process = -1
        self._store: Any = None

    @property
    def direct(self) -> bool:
        """Whether rows are read straight from the file."""
        return self._extents is not None

    @property
    def entries(self) -> int:
        """How many values are stored."""
        return int(self.indptr[-1])

    def __getstate__(self) -> dict[str, Any]:
        """Leave the handle behind: each worker opens the file itself."""
        return {**self.__dict__, "_process": -1, "_store": None}

    def __del__(self) -> None:
        self._close()

    def rows(self, indices: Rows) -> csr_matrix:
        """Return these cells."""
        places, back = np.unique(indices, return_inverse=True)
        data, columns = self._read(places)
        if len(columns) and not 0 <= int(columns.min()) <= int(columns.max()) < self.shape[1]:
            raise _damaged(self.path, self.group)
        indptr = np.concatenate([[0], np.cumsum(self.indptr[places + 1] - self.indptr[places])])
        found = csr_matrix((data, columns, indptr), shape=(len(places), self.shape[1]))
        return found if len(places) == len(indices) and (np.diff(indices) > 0).all() else found[back]

    def _read(self, places: Rows) -> tuple[np.ndarray, np.ndarray]:
        starts, ends = self.indptr[places], self.indptr[places + 1]
        store = self._opened()
        if self._extents is not None:
            joints = np.flatnonzero(starts[1:] != ends[:-1]) + 1
            low, high = starts[np.r_[0, joints][: len(starts)]], ends[np.r_[joints - 1, len(ends) - 1][: len(ends)]]
            data, columns = (extent.read(store, low, high) for extent in self._extents)
            return data, columns
        with _reading(self.path, self.group):
            return self._unpack(store[self.group], starts, ends)

    def _unpack(
        self, matrix: Any, starts: Int64[np.ndarray, " n"], ends: Int64[np.ndarray, " n"]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Read through the library: neighbours, and rows with little between them, at once."""
        parts: list[tuple[np.ndarray, np.ndarray]] = []
        for near in np.split(np.arange(len(starts)), np.flatnonzero(starts[1:] - ends[:-1] > _GAP) + 1):
            if len(near):
                low, high = int(starts[near[0]]), int(ends[near[-1]])
                data, columns = np.asarray(matrix["data"][low:high]), np.asarray(matrix["indices"][low:high])
                parts += [
                    (data[a - low : b - low], columns[a - low : b - low])
                    for a, b in zip(starts[near], ends[near], strict=True)
                ]
        if not parts:
            return np.zeros(0, dtype=np.float32), np.zeros(0, dtype=np.int32)
        return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])

    def _opened(self) -> Any:
        """The store of this process: a handle that came along in a fork has its place shared with the parent."""
        if self._process != os.getpid():
            self._close()
            self._store = self.path.open("rb", buffering=0) if self._extents is not None else open_store(self.path)
            self._process = os.getpid()
        return self._store

    def _close(self) -> None:
        store: Any = self.__dict__.get("_store")
        if hasattr(store, "close"):
            store.close()


@dataclass(frozen=True, eq=False)
class _Extents:
    """Where the pieces of a one-dimensional uncompressed array lie in its file."""

    offsets: Int64[np.ndarray, " pieces"]
    piece: int
    dtype: np.dtype[Any]

    def read(self, file: Any, starts: Int64[np.ndarray, " runs"], ends: Int64[np.ndarray, " runs"]) -> np.ndarray:
        """Read stretches of the array, one after the other."""
        made = np.empty(int((ends - starts).sum()), dtype=self.dtype)
        target, size, filled = made.view(np.uint8).data, self.dtype.itemsize, 0
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            while start < end:
                number, place = divmod(start, self.piece)
                count = min(end - start, self.piece - place)
                file.seek(int(self.offsets[number]) + place * size)
                wanted = target[filled : filled + count * size]
                while wanted:
                    got = file.readinto(wanted)
                    if not got:
                        raise UserError(f"{file.name} ends too early: export or fetch it again")
                    wanted = wanted[got:]
                start += count  # noqa: PLW2901
                filled += count * size
        return made


def _extents(path: Path, array: Any) -> _Extents | None:
    """Find an array's bytes in an HDF5 file; None where they are packed, or cannot be found for sure."""
    if (
        path.is_dir()
        or array.file.userblock_size
        or array.dtype.kind not in "iuf"
        or array.is_virtual
        or array.external
    ):
        return None
    size = int(array.shape[0])
    if array.chunks is None:
        offset = array.id.get_offset()
        found = None if offset is None else _Extents(np.array([offset], dtype=np.int64), max(size, 1), array.dtype)
    else:
        found = _chunk_extents(array, size)
    if found is None or not size:
        return None
    with path.open("rb", buffering=0) as file:  # what is found so must be what the library reads
        for low, high in ((0, min(size, 64)), (max(0, size - 64), size)):
            direct = found.read(file, np.array([low]), np.array([high]))
            if not np.array_equal(direct, array[low:high], equal_nan=array.dtype.kind == "f"):
                return None
    return found


def _chunk_extents(array: Any, size: int) -> _Extents | None:
    piece = int(array.chunks[0])
    count = -(-size // piece)
    if count > _MOST_CHUNKS or array.id.get_create_plist().get_nfilters() or array.id.get_num_chunks() < count:
        return None
    offsets = np.full(count, -1, dtype=np.int64)

    def note(chunk: Any) -> None:
        number = chunk.chunk_offset[0] // piece
        if number < count:
            offsets[number] = chunk.byte_offset

    array.id.chunk_iter(note)
    return None if (offsets < 0).any() else _Extents(offsets, piece, array.dtype)


def open_store(path: Path) -> Any:
    """Open an .h5ad file or a zarr folder for reading.

    Raises
    ------
    UserError
        If it is not there, damaged, or neither; if a zarr folder holds pickled objects, which could run anything.
    """
    if not path.exists():
        raise UserError(f"{path} does not exist: name an .h5ad file or a zarr folder")
    try:
        if path.is_dir():
            import zarr

            _refuse_pickles(path)
            return zarr.open_group(str(path), mode="r")
        import h5py

        return h5py.File(path, "r")
    except ModuleNotFoundError as error:
        raise UserError(f"reading {path} needs {error.name!r}: pip install 'r2mae[cells]'") from None
    except UserError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:120]
        raise UserError(f"{path} is not a readable .h5ad or zarr file ({reason}): export or fetch it again") from None


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """Open with :func:`open_store`, and close."""
    store = open_store(path)
    try:
        yield store
    finally:
        if hasattr(store, "close"):
            store.close()


def write_copy(
    counts: Counts, place: Path, min_genes: int = 0, entries: int = 0
) -> tuple[StoredCounts, Int64[np.ndarray, " kept"]]:
    """Write counts uncompressed, as float32, a block at a time; whole or not at all.

    Parameters
    ----------
    counts : Counts
    place : Path
        An HDF5 file, which is replaced.
    min_genes : int
        Leave out cells that express fewer genes.
    entries : int
        How many counts there are at most, if known: a disk that is too small is then told at once.

    Returns
    -------
    StoredCounts, ndarray of int
        The copy, and which cells it holds.

    Raises
    ------
    UserError
        If it cannot be written.
    """
    try:
        with atomic_hdf5(place) as made:
            _need_room(place, entries)
            group = made.create_group("X")
            data, columns = (
                group.create_dataset(name, (0,), kind, maxshape=(None,), chunks=(1 << 18,))
                for name, kind in (("data", "float32"), ("indices", "int32"))
            )
            lengths, kept = [], []
            for first, block in chunks(counts):
                block.eliminate_zeros()
                enough = np.flatnonzero(np.diff(block.indptr) >= min_genes)
                part = block if len(enough) == block.shape[0] else block[enough]
                _need_room(place, part.nnz)
                kept.append(first + enough)
                lengths.append(np.diff(part.indptr))
                for array, values in ((data, part.data), (columns, part.indices)):
                    array.resize(len(array) + len(values), axis=0)
                    array[len(array) - len(values) :] = values
            every = np.concatenate(lengths)
            group["indptr"] = np.concatenate([[0], np.cumsum(every, dtype=np.int64)])
            group["kept"] = np.concatenate(kept)
            group.attrs["shape"] = np.array([len(every), counts.shape[1]])
    except (OSError, RuntimeError) as error:  # h5py raises the latter too
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())[:120]
        raise UserError(
            f"{place}: cannot be written ({reason}): point R2MAE_DATA at a folder with room for an "
            "uncompressed copy of the counts"
        ) from None
    return read_copy(place)


def _need_room(path: Path, entries: int) -> None:
    """Look before writing, so that nobody waits for a copy that cannot end."""
    if shutil.disk_usage(path.parent).free < entries * 8 + _SPARE:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def read_copy(place: Path) -> tuple[StoredCounts, Int64[np.ndarray, " kept"]]:
    """Open what :func:`write_copy` wrote."""
    with opened(place) as store:
        kept = np.asarray(store["X/kept"][:], dtype=np.int64)
    return StoredCounts(place), kept


@contextmanager
def _reading(path: Path, group: str) -> Iterator[None]:
    """Turn whatever a library raises on broken bytes into one line; decoders raise dozens of types."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise _damaged(path, group, error) from error


def _refuse_pickles(folder: Path) -> None:
    for parent, _, names in os.walk(folder):
        for name in {".zarray", "zarr.json", ".zmetadata"} & set(names):
            place = Path(parent) / name
            if place.stat().st_size > _MOST_WORDS:
                raise UserError(f"{place} is too large for a description of data: export or fetch it again")
            if '"pickle"' in place.read_text("utf-8", errors="replace"):
                raise UserError(f"{place} holds pickled objects, which could run anything: write the data without them")


def _damaged(path: Path, group: str, error: Exception | str = "its parts contradict each other") -> UserError:
    reason = " ".join(str(error).split())[:120]
    return UserError(f"{path}: the matrix {group} is damaged ({reason}): export or fetch it again")
