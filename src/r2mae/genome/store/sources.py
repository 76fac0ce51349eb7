"""Reads lines of the user's files, plain or gzip, with their numbers for errors."""

import gzip
import os
import zlib
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import IO, Any

import numpy as np

from r2mae.errors import UserError
from r2mae.files import ordinary, warn_if_cut

LONGEST_LINE = 1 << 30
"""Bytes of a line, such as a chromosome in a FASTA."""
DIGITS = 15
"""Most digits of a position or length; no genome has more."""
PIECE = 1 << 20  # bytes that are read at a time
_REPORTED = 1 << 12  # lines between reports of the progress
_LAST = bytes.fromhex("1f8b08040000000000ff0600424302001b0003000000000000000000")  # the end of a file of bgzip


def read_lines(path: Path, progress: Callable[[float], None] | None = None) -> Iterator[tuple[int, bytes]]:
    """Yield number and bytes of every line, with its end; gzip is recognised, and a byte-order mark omitted.

    `progress` is called with the fraction of the file that has been read. A UserError is raised for a file that cannot
    be read, is truncated or damaged, or has a line without end.
    """
    number = 0
    try:
        with ordinary(path).open("rb", PIECE) as raw:
            magic, size = raw.read(18), max(path.stat().st_size, 1)
            raw.seek(0)
            file: IO[bytes] = raw
            if magic.startswith(b"\x1f\x8b"):
                if magic[12:14] == b"BC":
                    raw.seek(-min(len(_LAST), size), 2)
                    if raw.read() != _LAST:
                        raise UserError(
                            f"{path}: the file is truncated (the last block of bgzip is missing): fetch it again"
                        )
                    raw.seek(0)
                file = BufferedReader(gzip.GzipFile(fileobj=raw), PIECE)
            for number, line in enumerate(iter(partial(file.readline, LONGEST_LINE), b""), 1):
                if len(line) == LONGEST_LINE:
                    raise UserError(f"{path}, line {number:,}: is longer than {LONGEST_LINE:,} bytes")
                if progress is not None and number % _REPORTED == 1:
                    progress(min(raw.tell() / size, 1.0))
                yield number, line.removeprefix(BOM_UTF8) if number == 1 else line
    except EOFError:
        raise UserError(f"{path}: after line {number:,}, the file is truncated: fetch it again") from None
    except (OSError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{path}: after line {number:,}, cannot be read ({reason}): fetch it again") from None


def table_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield number and bytes of every line that is not blank, a comment or about a browser's tracks."""
    if not ordinary(path).is_file():
        raise UserError(f"{path}: there is no such file")
    for number, line in read_lines(path):
        if b"\0" in line:
            raise UserError(f"{path}, line {number:,}: holds a NUL byte: a binary file is no table")
        if line[-1:] != b"\n":
            warn_if_cut(path, number)
        bare = line.strip()
        if bare and not bare.startswith(b"#") and bare.split(None, 1)[0] not in (b"track", b"browser"):
            yield number, bare


def name_of(raw: bytes) -> str:
    """Return a name of a file as text, UTF-8 or not, without loss."""
    return raw.decode("utf-8", "surrogateescape")


def shown(text: bytes) -> str:
    """Return the beginning of some bytes, as an error repeats it."""
    return repr(text[:20].decode("ascii", "backslashreplace"))


def integer(field: bytes) -> int | None:
    """Return a whole number of a file, or None if it is none or has more than :data:`DIGITS` digits."""
    return int(field) if field.isdigit() and len(field) <= DIGITS else None


def allocate(path: Path, dtype: Any, *shape: int) -> np.ndarray:
    """Make a .npy file with room on the disk, so that a full disk is an error and no crash."""
    found = np.asarray(np.lib.format.open_memmap(path, "w+", dtype, shape))
    if hasattr(os, "posix_fallocate"):
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return found
