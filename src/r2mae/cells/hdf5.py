"""Writes HDF5 files atomically, even if the disk is full."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from r2mae.files import UNFINISHED, atomic_path


class _Sink:
    """A file that hides failed writes from the HDF5 library, which ends the process if closing a file fails.

    Parameters
    ----------
    file : binary file, unbuffered
        The file to write to.

    Attributes
    ----------
    error : OSError or None
        The first error; nothing is written after it.
    """

    def __init__(self, file: Any) -> None:
        self._file = file
        self.error: OSError | None = None

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def read(self, size: int = -1) -> bytes:
        return bytes(self._file.read(size))

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        got = 0
        while got < len(view) and (count := self._file.readinto(view[got:])):
            got += count
        view[got:] = bytes(len(view) - got)  # zeros for bytes that could not be written
        return len(view)

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        size = len(view)
        try:
            while self.error is None and view:
                view = view[self._file.write(view) :]
        except OSError as error:
            self.error = error
        return size

    def truncate(self, size: int) -> int:
        try:
            if self.error is None:
                self._file.truncate(size)
        except OSError as error:
            self.error = error
        return size

    def flush(self) -> None:
        return


@contextmanager
def atomic_hdf5(path: Path, start: Path | None = None) -> Iterator[Any]:
    """Open a new HDF5 file that replaces `path` when the block ends without an error.

    Parameters
    ----------
    path : Path
        The file to write; its folder is created if it does not exist.
    start : Path, optional
        Start with a copy of this file; by default with an empty file.

    Raises
    ------
    OSError
        If it cannot be written. The error names `path`, which remains unchanged.
    """
    import h5py

    try:
        with atomic_path(path) as temporary:
            if start is not None:
                shutil.copyfile(start, temporary)
            with temporary.open("w+b" if start is None else "r+b", buffering=0) as file:
                sink = _Sink(file)
                try:
                    with h5py.File(sink, "w" if start is None else "r+") as hdf5:
                        yield hdf5
                finally:
                    if sink.error is not None:  # raised in place of any error of the library that follows from it
                        raise sink.error
    except OSError as error:
        named = [str(name) for name in (error.filename, error.filename2) if name is not None]
        if error.errno is None or (named and not any(name.endswith(UNFINISHED) for name in named)):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None
