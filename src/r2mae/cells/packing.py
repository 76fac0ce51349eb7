"""Takes the chosen genes and cells out of counts: into memory, or into an uncompressed copy that is made once."""

import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int64
from scipy.sparse import csr_matrix

from r2mae.catalogue import data_root
from r2mae.cells.counts import Counts, StoredCounts, blocks, map_counts
from r2mae.cells.sources import ENTRY
from r2mae.errors import UserError
from r2mae.files import sync
from r2mae.training.fingerprint import files_below

_MIN_FREE = 1 << 26  # bytes that must stay free on the disk of a copy
Kept = Int64[np.ndarray, " kept"]


@dataclass(frozen=True, eq=False)
class Choice:
    """The chosen genes, and how many of them a cell must express.

    Parameters
    ----------
    columns : int64 array (genes,)
        Column of each gene, none twice; −1 for a gene that does not exist and counts as zero.
    names : tuple of str
        Names of the genes.
    min_genes : int
        Omit cells that express fewer of these genes.
    entries : int
        Number of counts above zero in these genes, in all cells.
    """

    columns: Int64[np.ndarray, " genes"]
    names: tuple[str, ...]
    min_genes: int
    entries: int

    def blocks(self, counts: Counts | StoredCounts) -> Iterator[tuple[Kept, csr_matrix]]:
        """Yield the counts above zero of the chosen genes and cells as float32, with the indices of the cells."""
        present = np.flatnonzero(self.columns >= 0)
        new = np.full(counts.shape[1], -1, dtype=np.int32)  # new column of every old one
        new[self.columns[present]] = present
        rising = (np.diff(self.columns[present]) > 0).all()
        for first, block in blocks(counts):
            columns = new[block.indices]
            taken = (columns >= 0) & (block.data != 0)
            ends = np.concatenate([[0], np.cumsum(taken, dtype=np.int32)])[block.indptr]
            shape = (block.shape[0], len(self.columns))
            part = csr_matrix((block.data[taken].astype(np.float32), columns[taken], ends), shape=shape)
            if not rising:
                part.sort_indices()
            enough = np.flatnonzero(np.diff(ends) >= self.min_genes)
            yield first + enough, part if len(enough) == len(ends) - 1 else part[enough]


def packed(counts: Counts | StoredCounts, choice: Choice) -> tuple[Counts, Kept]:
    """Read the chosen counts into memory, a block at a time; return also the indices of their cells."""
    data, columns = np.empty(choice.entries, dtype=np.float32), np.empty(choice.entries, dtype=np.int32)
    lengths, kept, filled = [np.zeros(1, dtype=np.int64)], [], 0
    for cells, part in choice.blocks(counts):
        data[filled : filled + part.nnz], columns[filled : filled + part.nnz] = part.data, part.indices
        filled += part.nnz
        lengths.append(np.diff(part.indptr))
        kept.append(cells)
    cells = np.concatenate(kept)
    arrays = data[:filled], columns[:filled], np.cumsum(np.concatenate(lengths))
    return Counts(csr_matrix(arrays, shape=(len(cells), len(choice.columns)))), cells


def copied(counts: StoredCounts, choice: Choice, source: Path, where: str) -> tuple[Counts, Kept, Path]:
    """Map the uncompressed copy of the chosen counts, which is made once for each state of a file.

    Parameters
    ----------
    counts : StoredCounts
    choice : Choice
    source : Path
        The file or folder of the counts.
    where : str
        Name of the matrix.

    Returns
    -------
    Counts, ndarray of int, Path
        The counts, the indices of their cells, and the folder of the copy.

    Raises
    ------
    UserError
        If it cannot be written.
    """
    folder = _folder_of_copy(choice, source, where)
    columns = np.dtype("int32" if choice.entries < 2**31 else "int64")  # as that of indptr: see map_counts
    if not folder.exists():
        with _new_folder(folder, choice.entries) as unfinished:
            lengths, kept = [np.zeros(1, dtype=np.int64)], []
            with (unfinished / "data").open("wb") as data, (unfinished / "indices").open("wb") as indices:
                for cells, part in choice.blocks(counts):
                    part.data.tofile(data)
                    part.indices.astype(columns).tofile(indices)
                    lengths.append(np.diff(part.indptr))
                    kept.append(cells)
            np.savez(unfinished / "cells.npz", indptr=np.cumsum(np.concatenate(lengths)), kept=np.concatenate(kept))
    with np.load(folder / "cells.npz") as arrays:
        indptr, cells = arrays["indptr"], arrays["kept"]
    places = (folder / "data", "float32", 0), (folder / "indices", columns.str, 0)
    return map_counts(*places, indptr, (len(cells), len(choice.columns))), cells, folder


@contextmanager
def _new_folder(folder: Path, entries: int) -> Iterator[Path]:
    """Yield an empty folder that gets its name at the end, if no error occurs."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(folder.parent).free < entries * ENTRY + _MIN_FREE:  # before time is spent on writing
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        try:
            yield unfinished
            for file in unfinished.iterdir():
                sync(file)
            unfinished.replace(folder)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    except OSError as error:
        if folder.exists():  # another process has made the same copy
            return
        raise UserError(
            f"{folder}: cannot be written ({error.strerror or error}): point R2MAE_DATA at a folder with room for an "
            "uncompressed copy of the counts"
        ) from None


def _folder_of_copy(choice: Choice, source: Path, where: str) -> Path:
    """Return the folder for the copy of these genes in this state of a file.

    It is in the data folder if that can be written, else in the user's cache folder.
    """
    digest = hashlib.blake2b(digest_size=16)
    for path in [source] if source.is_file() else sorted(path for _, path, _ in files_below(source)):
        digest.update(f"{path.absolute()}\0{path.stat().st_size}\0{path.stat().st_mtime_ns}\0".encode())
    digest.update("\0".join((where, str(choice.min_genes), *choice.names)).encode())
    root = data_root()
    if not os.access(root, os.W_OK):
        import pooch

        root = Path(pooch.os_cache("r2mae"))
    return root / "unpacked" / f"{source.stem}-{digest.hexdigest()}"
