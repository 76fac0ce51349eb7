"""Reading the user's files in pieces: plain, gzip or bgzip; every error names file and line."""

import gzip
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from io import BufferedReader
from pathlib import Path
from typing import IO, Literal, cast

from r2mae.errors import UserError

Kind = Literal["maf", "fasta", "zarr"]

LONGEST_LINE = 1 << 20
"""Bytes of a line of BED or bedGraph, and of a FASTA header; what is longer is no such file."""

LONGEST_BLOCK = 1 << 30
"""Bytes of a MAF block, since it has to be in memory as a whole."""

DIGITS = 15
"""Of a position or length at most; no genome has more."""

_SPREAD = 1_000  # positions of all contigs for each byte that the files hold, at most

_COMPRESSED = {b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"PK\x03\x04": "zip"}
_BLOCK = re.compile(rb"(?:^|\n)a(?=[ \t\r\n])")
_START = re.compile(rb"\n(?=a[ \t\r\n])")
_FIRST = 1 << 16


class Stream:
    """A file's bytes, unpacked while they are read.

    Parameters
    ----------
    path : Path
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.line = 1  # number of the line at which the next byte stands
        try:
            self._raw = path.open("rb")
            self._size = max(path.stat().st_size, 1)
            magic = self._raw.peek(8)[:8]
        except OSError as error:
            raise UserError(f"{path}: cannot be read ({error.strerror})") from None
        for mark, name in _COMPRESSED.items():
            if magic.startswith(mark):
                self._raw.close()
                raise UserError(f"{path}: is packed with {name}: unpack it, or pack it with gzip or bgzip")
        self._file: IO[bytes] = self._raw
        if magic.startswith(b"\x1f\x8b"):  # bgzip is gzip in many members
            self._file = BufferedReader(cast(BufferedReader, gzip.GzipFile(fileobj=self._raw)), 1 << 20)

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        self._raw.close()

    @property
    def fraction(self) -> float:
        """How much of the file has been read, from 0 to 1."""
        return min(self._raw.tell() / self._size, 1.0)

    def read(self, count: int) -> bytes:
        """Return the next `count` bytes, fewer only at the end.

        Raises
        ------
        UserError
            If the file is truncated or damaged.
        """
        try:
            found = self._file.read(count)
        except EOFError:
            raise UserError(f"{self.path}: {self._after()}the file is truncated: fetch it again") from None
        except (OSError, zlib.error) as error:
            reason = getattr(error, "strerror", None) or error
            raise UserError(f"{self.path}: {self._after()}cannot be read ({reason}): fetch it again") from None
        self.line += found.count(b"\n")
        return found

    def _after(self) -> str:
        return f"after line {self.line - 1:,}, " if self.line > 1 else ""


def name_of(raw: bytes) -> str:
    """Return a name of a file as text, from which :func:`raw_of` makes the same bytes again, UTF-8 or not."""
    return raw.decode("utf-8", "surrogateescape")


def raw_of(name: str) -> bytes:
    """Return the bytes of a name."""
    return name.encode("utf-8", "surrogateescape")


def whole(field: bytes) -> int | None:
    """Return a whole number of a file, or None if it is none or has more than :data:`DIGITS` digits."""
    return int(field) if field.isdigit() and len(field) <= DIGITS else None


def check_lengths(lengths: Mapping[str, int], held: int, where: Callable[[str], str]) -> None:
    """Refuse contigs whose lengths, which a file only declares, are far more than what it holds could fill.

    Parameters
    ----------
    lengths : mapping of str to int
        Positions of each contig.
    held : int
        Bytes that are there: of text, of chunks, and of the reference's own FASTA.
    where : callable
        Names the file, and the line if there is one, that declares the length of a contig.

    Raises
    ------
    UserError
        It names the longest contig.
    """
    if sum(lengths.values()) > _SPREAD * held:
        name = max(lengths, key=lengths.__getitem__)
        raise UserError(
            f"{where(name)}: says that {name} has {lengths[name]:,} positions, and almost none of them is here: mend "
            "the length, or give the reference's own FASTA (--reference)"
        )


def kind_of(path: Path) -> Kind:
    """Tell MAF, FASTA and zarr apart, by content.

    Raises
    ------
    UserError
        If it is none of them, or empty.
    """
    if path.is_dir():
        if any((path / name).is_file() for name in (".zgroup", "zarr.json")):
            return "zarr"
        raise UserError(f"{path}: is a folder: name the MAF or FASTA files in it, or a zarr group")
    with Stream(path) as stream:
        beginning = stream.read(_FIRST)
    text = beginning.lstrip()
    if not text:
        raise UserError(f"{path}: is empty")
    if text.startswith(b">"):
        return "fasta"
    if b"\0" not in beginning and (text.startswith((b"##maf", b"track ")) or _BLOCK.search(beginning)):
        return "maf"
    what = "a binary file" if b"\0" in beginning or not beginning.isascii() else "text"
    raise UserError(
        f"{path}, line 1: is {what}, neither MAF (beginning with ##maf) nor FASTA (beginning with >); give one of them"
    )


def lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield number and bytes of every line that is neither blank nor a comment.

    Raises
    ------
    UserError
        As :meth:`Stream.read`; or for a binary file.
    """
    with Stream(path) as stream:
        rest, number = b"", 1
        while piece := stream.read(1 << 20):
            if b"\0" in piece:
                place = number + piece[: piece.find(b"\0")].count(b"\n")
                raise UserError(f"{path}, line {place:,}: holds a NUL byte: a binary file is no table")
            found = (rest + piece).split(b"\n")
            rest = found.pop()
            if len(rest) > LONGEST_LINE:
                raise UserError(f"{path}, line {number + len(found):,}: is longer than {LONGEST_LINE:,} bytes")
            for line in found:
                if (bare := line.strip()) and not bare.startswith(b"#"):
                    yield number, bare
                number += 1
        if (bare := rest.strip()) and not bare.startswith(b"#"):
            yield number, bare


def maf_pieces(stream: Stream, size: int) -> Iterator[tuple[int, bytes]]:
    """Cut a MAF into pieces of whole blocks.

    Parameters
    ----------
    stream : Stream
    size : int
        Bytes that are read at a time; a piece is about as long, or as its longest block.

    Yields
    ------
    line : int
        Number of the piece's first line.
    text : bytes
    """
    rest, first = b"", 1
    while found := stream.read(size):
        # Only what is new is searched, and the end of the rest, which may hold half of a block's beginning.
        overlap = min(len(rest), 3)
        begin = found if not overlap else rest[-overlap:] + found
        ends = [match.end() for match in _START.finditer(begin)]
        if not ends:
            rest += found
            if len(rest) > LONGEST_BLOCK:
                raise UserError(f"{stream.path}, line {first:,}: a block is longer than {LONGEST_BLOCK:,} bytes")
            continue
        cut = ends[-1] - overlap + len(rest)
        whole = rest + found
        piece, rest = whole[:cut], whole[cut:]
        yield first, piece
        first += piece.count(b"\n")
    if rest.strip():
        yield first, rest
