"""FASTA: records in pieces, so that a chromosome on one line needs no memory."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from r2mae.errors import UserError
from r2mae.genome.store.sources import LONGEST_LINE, Stream, name_of
from r2mae.genome.store.tokens import first_invalid, tokenise

_READ = 1 << 20
_SPACE = b" \t\r\n"


@dataclass(frozen=True)
class Record:
    """A piece of a record.

    Parameters
    ----------
    name : str
        First word of the header.
    title : bool
        Whether this is the header itself, with no letters.
    tokens : bytes
        With the soft-mask bit.
    line : int
        Where the piece begins.
    """

    name: str
    title: bool
    tokens: bytes
    line: int


def records(stream: Stream) -> Iterator[Record]:
    """Yield the header of each record, then its letters in pieces.

    Raises
    ------
    UserError
        Letters before the first header, a nameless record, or a byte that is no letter of an alignment; names file and
        line.
    """
    name: str | None = None
    header: bytes | None = None  # as far as it has been read
    line, at_start = 1, True
    while block := stream.read(_READ):
        while block:
            if header is None and at_start and block.startswith(b">"):
                header = b""
            if header is not None:
                head, end, block = block.partition(b"\n")
                header += head
                if len(header) > LONGEST_LINE:
                    raise UserError(f"{stream.path}, line {line:,}: the header is longer than {LONGEST_LINE:,} bytes")
                if end:
                    name, header, at_start = _name(stream.path, header, line), None, True
                    yield Record(name, True, b"", line)
                    line += 1
                continue
            cut = block.find(b"\n>") + 1
            piece, block = (block[:cut], block[cut:]) if cut else (block, b"")
            at_start = piece.endswith(b"\n")
            tokens = tokenise(piece.translate(None, _SPACE), soft=True)
            if first_invalid(tokens) >= 0:
                raise _invalid(stream.path, piece, line)
            if tokens:
                if name is None:
                    raise UserError(f"{stream.path}, line {line:,}: letters before the first header (>name)")
                yield Record(name, False, tokens, line)
            line += piece.count(b"\n")
    if header is not None:
        yield Record(_name(stream.path, header, line), True, b"", line)


def _name(path: Path, header: bytes, line: int) -> str:
    words = name_of(header[1:]).split()
    if not words:
        raise UserError(f"{path}, line {line:,}: a record without a name")
    return words[0]


def _invalid(path: Path, piece: bytes, line: int) -> UserError:
    for number, row in enumerate(piece.split(b"\n"), line):
        bare = row.translate(None, _SPACE)
        if (place := first_invalid(tokenise(bare))) >= 0:
            shown = repr(bare[place : place + 1].decode("ascii", "backslashreplace"))
            return UserError(f"{path}, line {number:,}: holds {shown}, which is no letter of an alignment")
    raise AssertionError("no invalid letter")


def line_of(path: Path, name: str, column: int) -> int:
    """Return the number of the line that holds a letter of a record, counted from 0; the file is read again."""
    with Stream(path) as stream:
        rest, number, passed, inside = b"", 0, 0, False
        while block := stream.read(_READ):
            *rows, rest = (rest + block).split(b"\n")
            for row in rows:
                number += 1
                if row.startswith(b">"):
                    inside = name_of(row[1:]).split()[:1] == [name]
                elif inside:
                    passed += len(row.translate(None, _SPACE))
                    if passed > column:
                        return number
        return number + 1


class Spool:
    """Writes the rows of an aligned FASTA one after the other: species × columns.

    Parameters
    ----------
    path : Path
        The FASTA file.
    out : BinaryIO
        Receives a byte for each letter.
    wanted : set of str, optional
        Names of the rows that are kept; the first is kept always. By default all.
    """

    def __init__(self, path: Path, out: BinaryIO, wanted: set[str] | None = None) -> None:
        self.path, self.out, self.wanted = path, out, wanted
        self.names: list[str] = []  # of the rows that were kept
        self.columns = -1
        self.found: dict[str, None] = {}  # names of all rows, in order
        self._name, self._line, self._length = "", 0, 0

    def run(self, stream: Stream) -> Iterator[float]:
        """Write all rows; yields how far it has come.

        Raises
        ------
        UserError
            A row of another length than the first, a name that comes twice, or what :func:`records` raises.
        """
        for record in records(stream):
            if record.title:
                self._end()
                if record.name in self.found:
                    raise UserError(
                        f"{self.path}, line {record.line:,}: {record.name} comes twice: every species has one row"
                    )
                self.found[record.name] = None
                self._name, self._line, self._length = record.name, record.line, 0
                if not self.names or self.wanted is None or record.name in self.wanted:
                    self.names.append(record.name)
                yield stream.fraction
                continue
            self._length += len(record.tokens)
            if 0 <= self.columns < self._length:
                raise self._wrong()
            if self.names[-1] == self._name:
                self.out.write(record.tokens)
        self._end()

    def _end(self) -> None:
        if not self._name:
            return
        if self.columns < 0:
            if not self._length:
                raise UserError(f"{self.path}, line {self._line:,}: {self._name} has no letters")
            self.columns = self._length
        elif self._length != self.columns:
            raise self._wrong()

    def _wrong(self) -> UserError:
        found = "more than" if self._length > self.columns else f"{self._length:,} letters, not"
        return UserError(
            f"{self.path}, line {self._line:,}: {self._name} has {found} the {self.columns:,} of the first row: rows "
            "of an alignment are equally long"
        )
