"""Counts that stay in an .h5ad file or a zarr folder, and are read when they are needed.

Random rows of an uncompressed HDF5 file are read directly from their positions in the file, without the HDF5 library:
a batch of 400 cells takes 800 small reads. In a compressed file every row would require unpacking one or two whole
chunks, so :func:`write_copy` unpacks such a file once.
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
from r2mae.cells.pieces import lost_in_sparse
from r2mae.errors import UserError

_MAX_GAP = 1 << 14  # unneeded entries that may be read to save a separate read of a compressed file
_MAX_CHUNKS = 1 << 20
_MIN_FREE = 1 << 26  # bytes that must stay free on the disk of a copy


class StoredCounts:
    """CSR counts in an .h5ad file or a zarr folder, which every process opens once.

    Parameters
    ----------
    path : Path
        The file or folder.
    group : str
        Group of the matrix: "X", "raw/X" or "layers/NAME".

    Attributes
    ----------
    indptr : int64 array (cells + 1,)
        Start of each cell's entries.
    direct : bool
        Whether rows are read directly from the file, so that random rows are fast.

    Raises
    ------
    UserError
        If parts of the matrix contradict each other.
    """

    def __init__(self, path: Path, group: str = "X") -> None:
        self.path, self.group = Path(path), group
        with opened(self.path) as store, _reading(self.path, group):
            matrix = store[group]
            self.shape = (int(matrix.attrs["shape"][0]), int(matrix.attrs["shape"][1]))
            check_rows(self.path, matrix, group)
            if lost := lost_in_sparse(matrix):
                raise damaged(self.path, group, lost)
            self.indptr = np.asarray(matrix["indptr"][:], dtype=np.int64)
            data, columns = matrix["data"], matrix["indices"]
            ordered = len(self.indptr) == self.shape[0] + 1 and not self.indptr[0] and (np.diff(self.indptr) >= 0).all()
            if not ordered or not data.shape == columns.shape == (self.indptr[-1],):
                raise damaged(self.path, group)
            if np.diff(self.indptr).max(initial=0) > self.shape[1]:  # then a gene is stored twice in a cell
                raise damaged(self.path, group)
            extents = _extents(self.path, data), _extents(self.path, columns)
        self._extents = None if extents[0] is None or extents[1] is None else (extents[0], extents[1])
        self._process = -1
        self._store: Any = None

    @property
    def direct(self) -> bool:
        """Whether rows are read directly from the file."""
        return self._extents is not None

    @property
    def entries(self) -> int:
        """Number of stored values."""
        return int(self.indptr[-1])

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without the open file: each worker opens the file itself."""
        return {**self.__dict__, "_process": -1, "_store": None}

    def __del__(self) -> None:
        self._close()

    def rows(self, indices: Rows) -> csr_matrix:
        """Return these cells."""
        cells, back = np.unique(indices, return_inverse=True)
        data, columns = self._read(cells)
        if len(columns) and not 0 <= int(columns.min()) <= int(columns.max()) < self.shape[1]:
            raise damaged(self.path, self.group)
        indptr = np.concatenate([[0], np.cumsum(self.indptr[cells + 1] - self.indptr[cells])])
        counts = csr_matrix((data, columns, indptr), shape=(len(cells), self.shape[1]))
        return counts if len(cells) == len(indices) and (np.diff(indices) > 0).all() else counts[back]

    def _read(self, cells: Rows) -> tuple[np.ndarray, np.ndarray]:
        starts, ends = self.indptr[cells], self.indptr[cells + 1]
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
        """Read through the HDF5 library; rows with few entries between them are read together."""
        parts: list[tuple[np.ndarray, np.ndarray]] = []
        for near in np.split(np.arange(len(starts)), np.flatnonzero(starts[1:] - ends[:-1] > _MAX_GAP) + 1):
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
        """Return the file opened by this process; one inherited by a fork shares its read position with the parent."""
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
    """Positions in the file of the chunks of a one-dimensional uncompressed array."""

    offsets: Int64[np.ndarray, " pieces"]
    piece: int
    dtype: np.dtype[Any]

    def read(self, file: Any, starts: Int64[np.ndarray, " runs"], ends: Int64[np.ndarray, " runs"]) -> np.ndarray:
        """Read runs of consecutive entries and return them joined."""
        values = np.empty(int((ends - starts).sum()), dtype=self.dtype)
        target, size, filled = values.view(np.uint8).data, self.dtype.itemsize, 0
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            while start < end:
                number, offset = divmod(start, self.piece)
                count = min(end - start, self.piece - offset)
                file.seek(int(self.offsets[number]) + offset * size)
                wanted = target[filled : filled + count * size]
                while wanted:
                    got = file.readinto(wanted)
                    if not got:
                        raise UserError(f"{file.name} ends too early: export or fetch it again")
                    wanted = wanted[got:]
                start += count  # noqa: PLW2901
                filled += count * size
        return values


def _extents(path: Path, array: Any) -> _Extents | None:
    """Find the positions of an array in an HDF5 file; None if it is compressed or they are not certain."""
    if path.is_dir() or array.file.userblock_size or array.dtype.kind not in "iuf":
        return None
    size = int(array.shape[0])
    if array.chunks is None:
        offset = array.id.get_offset()
        extents = None if offset is None else _Extents(np.array([offset], dtype=np.int64), max(size, 1), array.dtype)
    else:
        extents = _chunk_extents(array, size)
    if extents is None or not size:
        return None
    with path.open("rb", buffering=0) as file:  # check that the bytes are equal to what the library reads
        for low, high in ((0, min(size, 64)), (max(0, size - 64), size)):
            direct = extents.read(file, np.array([low]), np.array([high]))
            if not np.array_equal(direct, array[low:high], equal_nan=array.dtype.kind == "f"):
                return None
    return extents


def _chunk_extents(array: Any, size: int) -> _Extents | None:
    piece = int(array.chunks[0])
    count = -(-size // piece)
    if count > _MAX_CHUNKS or array.id.get_create_plist().get_nfilters() or array.id.get_num_chunks() < count:
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
        If it does not exist, is damaged, or is neither.
    """
    if not path.exists():
        raise UserError(f"{path} does not exist: name an .h5ad file or a zarr folder")
    try:
        if path.is_dir():
            from r2mae.zarr_folder import open_zarr

            return open_zarr(path)
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
    """Open with :func:`open_store`, and close at the end of the block."""
    store = open_store(path)
    try:
        yield store
    finally:
        if hasattr(store, "close"):
            store.close()


def write_copy(
    counts: Counts, path: Path, min_genes: int = 0, entries: int = 0
) -> tuple[StoredCounts, Int64[np.ndarray, " kept"]]:
    """Write counts uncompressed, as float32, a block at a time and atomically.

    Parameters
    ----------
    counts : Counts
    path : Path
        The HDF5 file to write or replace.
    min_genes : int
        Leave out cells that express fewer genes.
    entries : int
        Upper bound of the number of counts, if known: if the disk is too small, the error is then raised at once.

    Returns
    -------
    StoredCounts, ndarray of int
        The copy, and the indices of its cells.

    Raises
    ------
    UserError
        If it cannot be written.
    """
    try:
        with atomic_hdf5(path) as file:
            _require_space(path, entries)
            group = file.create_group("X")
            data, columns = (
                group.create_dataset(name, (0,), kind, maxshape=(None,), chunks=(1 << 18,))
                for name, kind in (("data", "float32"), ("indices", "int32"))
            )
            lengths, kept = [], []
            for first, block in chunks(counts):
                block.eliminate_zeros()
                enough = np.flatnonzero(np.diff(block.indptr) >= min_genes)
                part = block if len(enough) == block.shape[0] else block[enough]
                _require_space(path, part.nnz)
                kept.append(first + enough)
                lengths.append(np.diff(part.indptr))
                for array, values in ((data, part.data), (columns, part.indices)):
                    array.resize(len(array) + len(values), axis=0)
                    array[len(array) - len(values) :] = values
            every = np.concatenate(lengths)
            group["indptr"] = np.concatenate([[0], np.cumsum(every, dtype=np.int64)])
            group["kept"] = np.concatenate(kept)
            group.attrs["shape"] = np.array([len(every), counts.shape[1]])
    except (OSError, RuntimeError) as error:  # h5py also raises RuntimeError
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())[:120]
        raise UserError(
            f"{path}: cannot be written ({reason}): point R2MAE_DATA at a folder with room for an "
            "uncompressed copy of the counts"
        ) from None
    return read_copy(path)


def _require_space(path: Path, entries: int) -> None:
    """Raise an error if the disk has too little free space, before time is spent on writing."""
    if shutil.disk_usage(path.parent).free < entries * 8 + _MIN_FREE:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def read_copy(path: Path) -> tuple[StoredCounts, Int64[np.ndarray, " kept"]]:
    """Open a copy that :func:`write_copy` wrote."""
    with opened(path) as store:
        kept = np.asarray(store["X/kept"][:], dtype=np.int64)
    return StoredCounts(path), kept


@contextmanager
def _reading(path: Path, group: str) -> Iterator[None]:
    """Turn any exception that a library raises for damaged data into a UserError; decoders raise many types."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise damaged(path, group, error) from error


def damaged(path: Path, group: str, error: Exception | str = "its parts contradict each other") -> UserError:
    """Build the error for a matrix that cannot be used as it is."""
    reason = " ".join(str(error).split())[:120]
    return UserError(f"{path}: the matrix {group} is damaged ({reason}): export or fetch it again")
