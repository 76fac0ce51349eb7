"""What all readers of alignments share: they fill a store, and write into large files at any place.

A full disk is an error and never a crash.
"""

import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from errno import ENOSPC
from pathlib import Path

import numpy as np

from r2mae.genome.store.meta import Layout
from r2mae.genome.store.unfinished import Progress, Unfinished


@dataclass(eq=False)
class Filler(ABC):
    """Writes the tokens of all positions into a store that is being made.

    Parameters
    ----------
    files : sequence of Path
        What it reads.
    layout : Layout
        Where every position lies.
    work : Unfinished
        The folder of the store.
    reference : Path, optional
        The FASTA file behind the given reference, for errors.
    """

    files: Sequence[Path]
    layout: Layout
    work: Unfinished
    reference: Path | None

    @abstractmethod
    def fill(self, jobs: int, progress: Progress) -> dict[str, int]:
        """Write all positions, with so many jobs at a time; returns what was counted."""


def allocate(path: Path, size: int) -> None:
    """Make a file of this size, with room for all of it on the disk; a file that has the size already stays."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        if os.fstat(handle).st_size == size:
            return
        os.truncate(handle, 0)
        if size > shutil.disk_usage(path.parent).free:  # some disks are filled before they say so
            raise OSError(ENOSPC, os.strerror(ENOSPC))
        if size and hasattr(os, "posix_fallocate"):
            os.posix_fallocate(handle, 0, size)
        else:
            os.truncate(handle, size)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        os.close(handle)


def write_at(handle: int, data: bytes | np.ndarray, offset: int) -> None:
    """Write all bytes at an offset of an open file."""
    if not len(data):  # a view of nothing cannot be cast: of a block where the reference has gaps alone
        return
    left = (memoryview(data) if isinstance(data, bytes) else data.data).cast("B")
    while left:
        done = os.pwrite(handle, left, offset)
        left, offset = left[done:], offset + done


def read_at(handle: int, out: np.ndarray, offset: int) -> None:
    """Fill a C-contiguous array of bytes from an offset of an open file; past its end nothing is read."""
    left = out.data.cast("B")
    while left:
        done = os.preadv(handle, [left], offset)
        if not done:
            raise OSError(f"the file ends before byte {offset + len(left):,}")
        left, offset = left[done:], offset + done
