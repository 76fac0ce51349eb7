"""MAF: blocks of rows become positions of the reference × species."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import UInt8

from r2mae.errors import UserError, unknown
from r2mae.genome.store.meta import Layout
from r2mae.genome.store.sources import DIGITS, check_lengths, name_of, read_lines, read_pieces, whole
from r2mae.genome.store.tokens import GAP, INVALID, PLAIN_TABLE, SOFT_TABLE, UNKNOWN, complement

_FIELDS = 7  # s name start size strand length text
_IGNORED = (b"i", b"q", b"e", b"t", b"#")  # rows on context and quality, track lines, comments
_STRANDS = (b"+", b"-")
_SPACE = (b"", b" ", b"\t", b"\r")
_DELETED = b"C"  # status of an e row: before and after the block, the sequence of that species is contiguous
_NAME = re.compile(rb"\ns[ \t]+(\S+)")  # "\ns" is searched for quickly, "^s" is not
_ROW = rb"\ns[ \t]+%s[ \t]+\d+[ \t]+\d+[ \t]+[+-][ \t]+(\d+)[ \t]"
_ACCESSION = re.compile(rb"[A-Z]+_?[A-Z]*\d{5,}\.\d{1,2}")  # a contig with a version, such as NC_000001.11

Told = Callable[[float], None]
"""Called with the fraction of the files that has been read."""


class Placed(NamedTuple):
    """A block: positions of the reference × species.

    Parameters
    ----------
    contig, start : int
        Number of the contig, and first position.
    tokens : uint8 ndarray, shape (positions, species)
    where : str
        File and line of the reference's row.
    ends : bool
        Whether no later block has this contig.
    """

    contig: int
    start: int
    tokens: UInt8[np.ndarray, "positions species"]
    where: str
    ends: bool


@dataclass
class _Block:
    """The rows of a block that have been read: tokens by species, and the place of the reference."""

    columns: int = -1
    rows: dict[int, bytes] = field(default_factory=dict)
    deleted: set[int] = field(default_factory=set)
    contig: int = -1
    start: int = 0
    size: int = 0
    reversed: bool = False
    where: str = ""
    last: int = 0  # line


class MafFiles:
    """MAF files that are one alignment.

    Every row of the reference gives the positions at which it has a base; columns where it has a gap are omitted. A
    species without a row in a block is unknown there, or a gap if an ``e`` row says that it lacks the bases (status
    C). The first row of a species counts; others (copies) are omitted and counted.

    Parameters
    ----------
    files : sequence of Path
    listed : sequence of str, optional
        Species to keep; by default all, in order of appearance.
    given : Path, optional
        The reference's own FASTA.
    told : callable
        See :data:`Told`.

    Raises
    ------
    UserError
        A listed species without a row, an ambiguous name, files without blocks, or lengths far beyond what the files
        and the reference's own FASTA could fill.
    """

    def __init__(self, files: Sequence[Path], listed: Sequence[str] | None, given: Path | None, told: Told) -> None:
        self.files = files
        self._listed = sorted((name.encode("utf-8", "surrogateescape") for name in listed or ()), key=len, reverse=True)
        self._last: dict[str, tuple[int, int]] = {}  # file and line of each contig's last row
        self.layout = self._scan(listed, 0 if given is None else given.stat().st_size, told)
        self._columns = {name: number for number, name in enumerate(self.layout.species)}
        self._column = lru_cache(1 << 16)(self._column_of)
        self.counts = {"blocks": 0, "without_reference": 0, "second_rows": 0, "other_species": 0}

    def divide(self, name: bytes) -> tuple[str, str, bool]:
        """Return species and contig of a row's name, and whether the name is ambiguous.

        The species is the longest of the listed ones that fits. Without a list it ends at the only dot; a contig may be
        an accession with a version. Other names with several dots are ambiguous. A name without a contig is both.
        """
        for species in self._listed:
            if name == species or name.startswith(species + b"."):
                return name_of(species), name_of(name[len(species) + 1 :] or species), False
        first, _, contig = name.partition(b".")
        return name_of(first), name_of(contig or first), b"." in contig and not _ACCESSION.fullmatch(contig)

    def _column_of(self, name: bytes) -> tuple[int, str]:
        species, contig, _ = self.divide(name)
        return self._columns.get(species, -1), contig

    def _scan(self, listed: Sequence[str] | None, held: int, told: Told) -> Layout:
        """Read all names."""
        reference, found = "", dict[str, None]()
        contigs: dict[str, tuple[int, str]] = {}  # declared length, and where
        for place, file in enumerate(self.files):
            for line, piece in read_pieces(file, _share(told, place, len(self.files))):
                held += len(piece)
                text = b"\n" + piece
                for name in dict.fromkeys(_NAME.findall(text)):
                    species, contig, is_ambiguous = self.divide(name)
                    if is_ambiguous and (listed is None or not reference):
                        raise self._ambiguous(name, file)
                    found[species] = None
                    reference = reference or species
                    if species == reference and (rows := [*re.finditer(_ROW % re.escape(name), text)]):
                        first, last = (line + text.count(b"\n", 0, row.start()) for row in (rows[0], rows[-1]))
                        contigs.setdefault(contig, (whole(rows[0][1]) or 0, f"{file}, line {first:,}"))
                        self._last[contig] = max(self._last.get(contig, (0, 0)), (place, last))
        if not contigs:
            raise UserError(f"{self.files[0]}, line 1: has no block with a row 's name start size strand length text'")
        for contig, (length, where) in contigs.items():
            if not length:
                raise UserError(f"{where}: the length of {contig} must be above 0, and of at most {DIGITS} digits")
        check_lengths({name: length for name, (length, _) in contigs.items()}, held, lambda name: contigs[name][1])
        for species in listed or ():
            if species not in found:
                raise unknown("species", species, list(found))
        kept = tuple(dict.fromkeys([reference, *(found if listed is None else listed)]))
        return Layout(kept, tuple(contigs), tuple(length for length, _ in contigs.values()))

    def _ambiguous(self, name: bytes, file: Path) -> UserError:
        """Return the error that asks for the species of a name with several dots."""
        row = re.compile(rb"s[ \t]+" + re.escape(name) + rb"[ \t]")
        number = next(number for number, line in read_lines(file) if row.match(line))
        shown, words = name_of(name), name_of(name).split(".")
        return UserError(
            f"{file}, line {number:,}: {shown!r} has several dots, and its species may be {words[0]} or "
            f"{'.'.join(words[:-1])}: list the species, a name on each line, with --species FILE"
        )

    def blocks(self, skipped: set[int], told: Told) -> Iterator[Placed]:
        """Yield the blocks of all files, except of some contigs.

        Raises
        ------
        UserError
            A wrong row; names file and line.
        """
        for place, file in enumerate(self.files):
            block: _Block | None = None
            for first, piece in read_pieces(file, _share(told, place, len(self.files))):
                for number, line in enumerate(piece.removesuffix(b"\n").split(b"\n"), first):
                    if line[:1] == b"s":
                        self._read_row(block, line, file, number)
                    elif line[:1] == b"a" and line[1:2] in _SPACE:
                        yield from self._placed(block, skipped, place)
                        block = _Block()
                    elif block is not None and line[:1] == b"e" and line.split()[6:] == [_DELETED]:
                        block.deleted.add(self._column(line.split()[1])[0])
                    elif line[:1] not in _IGNORED and line.strip():
                        raise _error(file, number, f"begins with {_shown(line)}, which no line of a MAF does")
            yield from self._placed(block, skipped, place)

    def _read_row(self, block: _Block | None, line: bytes, file: Path, number: int) -> None:
        """Read a row of a block. Every row of an alignment comes here: it calls as little as it can."""
        fields = line.split()
        if block is None or len(fields) != _FIELDS:
            raise _wrong_row(block, fields, file, number)
        kind, name, start, size, strand, length, letters = fields
        if kind != b"s" or b"\v" in line or b"\f" in line or line.find(b"\r", 0, -1) >= 0:  # `_scan` misses these
            raise _error(file, number, "a row is 's name start size strand length text', with blanks or tabs between")
        columns = len(letters)
        if block.columns < 0:
            block.columns = columns
        block.last = number
        if (
            columns != block.columns
            or not size.isdigit()
            or len(size) > DIGITS
            or int(size) != columns - letters.count(b"-")
            or strand not in _STRANDS
            or not (start.isdigit() and length.isdigit())
        ):
            raise _wrong_row(block, fields, file, number)
        column, contig = self._column(name)
        if column < 0:
            self.counts["other_species"] += 1
        elif column in block.rows:
            self.counts["second_rows"] += 1
        else:
            block.rows[column] = tokens = letters.translate(PLAIN_TABLE if column else SOFT_TABLE)
            if INVALID in tokens:
                raise _wrong_row(block, fields, file, number)
            if column == 0:
                self._place(block, fields, contig, file, number)

    def _place(self, block: _Block, fields: list[bytes], contig: str, file: Path, number: int) -> None:
        """Set the place of a block from the reference's row."""
        start, size, length = (whole(fields[at]) for at in (2, 3, 5))
        if start is None or size is None or length is None:
            raise _wrong_row(block, fields, file, number)
        block.contig = self.layout.number(contig)
        if start + size > length:
            raise _error(file, number, f"ends at {start + size:,}, past the end of {_shown(fields[1])} ({length:,})")
        if length != (known := self.layout.lengths[block.contig]):
            raise _error(file, number, f"{contig} has {length:,} positions here, and {known:,} before")
        block.size, block.reversed, block.where = size, fields[4] == b"-", f"{file}, line {number:,}"
        block.start = length - start - size if block.reversed else start

    def _placed(self, block: _Block | None, skipped: set[int], file: int) -> Iterator[Placed]:
        """Turn a block into positions × species."""
        if block is None or not block.rows:
            return
        self.counts["blocks"] += 1
        if block.contig < 0:
            self.counts["without_reference"] += 1
        elif block.contig not in skipped:
            absent, gaps = bytes([UNKNOWN]) * block.columns, bytes([GAP]) * block.columns
            rows = [block.rows.get(n, gaps if n in block.deleted else absent) for n in range(len(self._columns))]
            tokens = np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), block.columns)
            if block.columns != block.size:  # some columns are insertions, as seen from the reference
                tokens = tokens[:, tokens[0] != GAP]
            turned = complement(tokens.T[::-1]) if block.reversed else tokens.T
            ends = (file, block.last) >= self._last[self.layout.contigs[block.contig]]
            yield Placed(block.contig, block.start, turned, block.where, ends)


def _wrong_row(block: _Block | None, fields: list[bytes], file: Path, number: int) -> UserError:
    """Return the error for a row that is wrong."""
    if block is None:
        return _error(file, number, "a row before the first block: a block begins with a line 'a'")
    if len(fields) != _FIELDS:
        return _error(file, number, f"a row has {_FIELDS} fields, and this one {len(fields)}: is the file truncated?")
    _, _, start, size, strand, length, letters = fields
    bases, said = len(letters) - letters.count(b"-"), whole(size)
    if said is None or whole(start) is None or whole(length) is None:
        reason = f"start, size and length of the source must be whole numbers of at most {DIGITS} digits"
    elif strand not in _STRANDS:
        reason = f"the strand must be + or -, not {_shown(strand)}"
    elif bases != said:
        reason = f"says {said:,} bases and has {bases:,}: is the file truncated?"
    elif len(letters) != block.columns:
        reason = f"has {len(letters):,} columns, and the rows above it {block.columns:,}"
    else:
        bad = letters.translate(PLAIN_TABLE).find(INVALID)
        reason = f"holds {_shown(letters[bad : bad + 1])}, which is no letter of an alignment"
    return _error(file, number, reason)


def _error(file: Path, number: int, reason: str) -> UserError:
    return UserError(f"{file}, line {number:,}: {reason}")


def _share(told: Told, file: int, files: int) -> Told:
    """Return what reports the fraction of one of several files as that of all."""
    return lambda fraction: told((file + fraction) / files)


def _shown(text: bytes) -> str:
    """Return the beginning of some bytes, as an error repeats it."""
    return repr(text[:20].decode("ascii", "backslashreplace"))
