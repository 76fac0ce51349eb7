"""Writing text plainly or as bgzip: gzip in blocks, as tabix and bcftools index it. Equal text gives equal bytes."""

import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from r2mae.files import atomic_write

_BLOCK = 65_280  # bytes of text in a block, as bgzip has them
_HEADER = b"\x1f\x8b\x08\x04\0\0\0\0\0\xff\x06\0BC\x02\0"
_END = bytes.fromhex("1f8b08040000000000ff0600424302001b0003000000000000000000")


class TextWriter:
    """Writes lines to a binary file.

    Parameters
    ----------
    file : binary file
    packed : bool
        Whether as bgzip.
    """

    def __init__(self, file: IO[bytes], *, packed: bool) -> None:
        self._file, self._packed, self._rest = file, packed, b""

    def write(self, text: bytes) -> None:
        """Write text."""
        if not self._packed:
            self._file.write(text)
            return
        text = self._rest + text
        cut = len(text) - len(text) % _BLOCK
        for first in range(0, cut, _BLOCK):
            self._file.write(_packed(text[first : first + _BLOCK]))
        self._rest = text[cut:]

    def close(self) -> None:
        """Write what is left, and the mark of the end; the file stays open."""
        if self._packed:
            if self._rest:
                self._file.write(_packed(self._rest))
            self._file.write(_END)


@contextmanager
def text_file(path: Path) -> Iterator[TextWriter]:
    """Write a file of text, as bgzip if its name says so; it takes its name when all is written."""
    with atomic_write(path, "wb") as file:
        writer = TextWriter(file, packed=is_packed(path))
        yield writer
        writer.close()


def is_packed(path: Path) -> bool:
    """Return whether a file of this name is to be bgzip."""
    return path.suffix in (".gz", ".bgz")


def _packed(text: bytes) -> bytes:
    """Return a block of bgzip: a gzip member with its size in a field of the header."""
    packer = zlib.compressobj(6, zlib.DEFLATED, -15)
    data = packer.compress(text) + packer.flush()
    size = len(_HEADER) + 2 + len(data) + 8
    return _HEADER + struct.pack("<H", size - 1) + data + struct.pack("<II", zlib.crc32(text), len(text))
