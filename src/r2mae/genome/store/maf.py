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
from r2mae.genome.store.sources import DIGITS, check_lengths, name_of, read_pieces, whole
from r2mae.genome.store.tokens import (
    GAP,
    INVALID,
    PLAIN_TABLE,
    SOFT_TABLE,
    UNKNOWN,
    complement,
    first_invalid,
    tokenise,
)

_FIELDS = 7  # s name start size strand length text
_IGNORED = (b"i", b"q", b"e", b"t", b"#")  # rows on context and quality, track lines, comments
_STRANDS = (b"+", b"-")
_SPACE = (b"", b" ", b"\t", b"\r", b"\n")
_DELETED = b"C"  # status of an e row: before and after the block, the sequence of that species is contiguous
_NAME = re.compile(rb"\ns[ \t]+(\S+)")  # "\ns" is searched for quickly, "^s" is not
_ROW = rb"\ns[ \t]+%s[ \t]+\d+[ \t]+\d+[ \t]+[+-][ \t]+(\d+)[ \t]"
_ACCESSION = re.compile(rb"[A-Z]+_?[A-Z]*\d{5,}\.\d{1,2}")  # a contig with a version, such as NC_000001.11

Told = Callable[[float], None]
"""Called with the fraction of the files that has been read."""


class Species:
    """Divides the names of rows into species and contig.

    The species is one of those that are listed, and the longest that fits. Without a list it ends at the only dot; a
    contig may be an accession with a version. Other names with several dots are ambiguous.

    Parameters
    ----------
    listed : sequence of str, optional
    """

    def __init__(self, listed: Sequence[str] | None) -> None:
        self._listed = sorted((name.encode("utf-8", "surrogateescape") for name in listed or ()), key=len, reverse=True)

    def divide(self, name: bytes) -> tuple[str, str, bool]:
        """Return species, contig (the species, if the name has none), and whether the name is ambiguous."""
        for species in self._listed:
            if name == species or name.startswith(species + b"."):
                return name_of(species), name_of(name[len(species) + 1 :] or species), False
        first, _, contig = name.partition(b".")
        return name_of(first), name_of(contig or first), b"." in contig and not _ACCESSION.fullmatch(contig)


def _ambiguous(name: bytes, where: str) -> UserError:
    """Return the error that asks for the species of a name with several dots."""
    words = name_of(name).split(".")
    return UserError(
        f"{where}: {name_of(name)!r} has several dots, and its species may be {words[0]} or {'.'.join(words[:-1])}: "
        "list the species, a name on each line, with --species FILE"
    )


@dataclass(frozen=True)
class Scan:
    """The names in some files.

    Parameters
    ----------
    layout : Layout
    last : dict of int to (int, int)
        For each contig, file and line of its last row.
    """

    layout: Layout
    last: dict[int, tuple[int, int]]


def scan_maf(files: Sequence[Path], listed: Sequence[str] | None, given: Path | None, told: Told) -> Scan:
    """Read all names: the species, in order of appearance or as they are listed, and the reference's contigs.

    Raises
    ------
    UserError
        A listed species without a row, an ambiguous name, files without blocks, or lengths far beyond what the files
        could fill together with the reference's own FASTA.
    """
    species, found, reference = Species(listed), dict[str, None](), ""
    contigs: dict[str, int] = {}
    first: dict[str, str] = {}  # where the length of each contig is declared
    last: dict[str, tuple[int, int]] = {}
    held = 0 if given is None else given.stat().st_size
    for place, file in enumerate(files):
        for line, piece in read_pieces(file, _share(told, place, len(files))):
            held += len(piece)
            text = b"\n" + piece
            for name in dict.fromkeys(_NAME.findall(text)):
                one, contig, is_ambiguous = species.divide(name)
                if is_ambiguous and (listed is None or not reference):
                    at = line + text.count(b"\n", 0, text.find(b" " + name) if b" " + name in text else 0) - 1
                    raise _ambiguous(name, f"{file}, line {at:,}")
                found[one] = None
                reference = reference or one
                if one != reference:
                    continue
                rows = [*re.finditer(_ROW % re.escape(name), text)]
                for row in (rows[0], rows[-1]) if rows else ():
                    at = line + text.count(b"\n", 0, row.start())
                    last[contig] = max(last.get(contig, (0, 0)), (place, at))
                    if contig not in contigs:
                        contigs[contig], first[contig] = whole(row[1]) or 0, f"{file}, line {at:,}"
    if not contigs:
        raise UserError(f"{files[0]}, line 1: has no block with a row 's name start size strand length text'")
    for contig, length in contigs.items():
        if not length:
            raise UserError(f"{first[contig]}: the length of {contig} must be above 0, and of at most {DIGITS} digits")
    check_lengths(contigs, held, first.__getitem__)
    for name in listed or ():
        if name not in found:
            raise unknown("species", name, list(found))
    chosen = tuple(dict.fromkeys([reference, *(found if listed is None else listed)]))
    layout = Layout(chosen, tuple(contigs), tuple(contigs.values()))
    return Scan(layout, {layout.number(contig): place for contig, place in last.items()})


class Placed(NamedTuple):
    """A block: positions of the reference × species.

    Parameters
    ----------
    contig, start : int
        Number of the contig, and first position.
    tokens : uint8 ndarray, shape (positions, species)
    line : int
        Of the reference's row.
    last : (int, int)
        File and line of the block's last row.
    """

    contig: int
    start: int
    tokens: UInt8[np.ndarray, "positions species"]
    line: int
    last: tuple[int, int]


@dataclass
class _Block:
    """The rows of a block that have been read."""

    columns: int = -1
    rows: dict[int, bytes] = field(default_factory=dict)  # tokens by species
    deleted: set[int] = field(default_factory=set)
    contig: int = -1
    start: int = 0
    size: int = 0
    reversed: bool = False
    line: int = 0
    last: int = 0


class MafReader:
    """Reads the blocks of MAF files.

    Every row of the reference gives the positions at which it has a base; columns where it has a gap are omitted. A
    species without a row in a block is unknown there, or a gap if an ``e`` row says that it lacks the bases (status
    C). The first row of a species counts; others (copies) are omitted and counted.

    Parameters
    ----------
    files : sequence of Path
    layout : Layout
    listed : sequence of str, optional
        As :func:`scan_maf`.
    """

    def __init__(self, files: Sequence[Path], layout: Layout, listed: Sequence[str] | None) -> None:
        self.files, self.layout, self.species = files, layout, Species(listed)
        self.columns = {name: number for number, name in enumerate(layout.species)}
        self._column = lru_cache(1 << 16)(self._column_of)
        self.counts = {"blocks": 0, "without_reference": 0, "second_rows": 0, "other_species": 0}

    def _column_of(self, name: bytes) -> tuple[int, str]:
        species, contig, _ = self.species.divide(name)
        return self.columns.get(species, -1), contig

    def blocks(self, skipped: set[int], told: Told) -> Iterator[Placed]:
        """Yield the blocks of all files, except of some contigs.

        Raises
        ------
        UserError
            A wrong row; names file and line.
        """
        others = copies = 0
        for place, file in enumerate(self.files):
            block: _Block | None = None
            for first, piece in read_pieces(file, _share(told, place, len(self.files))):
                for number, line in enumerate(piece.removesuffix(b"\n").split(b"\n"), first):
                    kind = line[:1]
                    if kind == b"s":  # every row comes here: it calls as little as it can
                        fields = line.split()
                        if block is None or len(fields) != _FIELDS:
                            raise self._wrong(file, block, fields, number)
                        _, name, start, size, strand, length, letters = fields
                        columns = len(letters)
                        if block.columns < 0:
                            block.columns = columns
                        if (
                            columns != block.columns
                            or not size.isdigit()
                            or len(size) > DIGITS
                            or int(size) != columns - letters.count(b"-")
                            or strand not in _STRANDS
                            or not (start.isdigit() and length.isdigit())
                        ):
                            raise self._wrong(file, block, fields, number)
                        column, contig = self._column(name)
                        if column < 0:
                            others += 1
                        elif column in block.rows:
                            copies += 1
                        else:
                            block.rows[column] = tokens = letters.translate(PLAIN_TABLE if column else SOFT_TABLE)
                            if INVALID in tokens:
                                raise self._wrong(file, block, fields, number)
                            if column == 0:
                                self._place(file, block, fields, contig, number)
                        block.last = number
                    elif kind == b"a" and line[1:2] in _SPACE:
                        yield from self._placed(block, skipped, place)
                        block = _Block()
                    elif kind == b"e" and block is not None:
                        fields = line.split()
                        if len(fields) == _FIELDS and fields[6] == _DELETED:
                            block.deleted.add(self._column(fields[1])[0])
                    elif kind not in _IGNORED and line.strip():
                        raise UserError(
                            f"{file}, line {number:,}: begins with {_shown(line)}, which no line of a MAF does"
                        )
            yield from self._placed(block, skipped, place)
        self.counts |= {"other_species": others, "second_rows": copies}

    def _place(self, file: Path, block: _Block, fields: list[bytes], contig: str, number: int) -> None:
        """Set the place of a block from the reference's row."""
        start, size, length = (whole(fields[at]) for at in (2, 3, 5))
        if start is None or size is None or length is None:
            raise self._wrong(file, block, fields, number)
        if start + size > length:
            raise UserError(
                f"{file}, line {number:,}: ends at {start + size:,}, past the end of {_shown(fields[1])} ({length:,})"
            )
        block.contig = self.layout.number(contig)
        if length != (known := self.layout.lengths[block.contig]):
            raise UserError(f"{file}, line {number:,}: {contig} has {length:,} positions here, and {known:,} before")
        block.size, block.reversed, block.line = size, fields[4] == b"-", number
        block.start = length - start - size if block.reversed else start

    def _placed(self, block: _Block | None, skipped: set[int], file: int) -> Iterator[Placed]:
        """Turn a block into positions × species."""
        if block is None or not block.rows:
            return
        if block.contig < 0:
            self.counts["without_reference"] += 1
        self.counts["blocks"] += 1
        if block.contig < 0 or block.contig in skipped:
            return
        absent, gaps = bytes([UNKNOWN]) * block.columns, bytes([GAP]) * block.columns
        rows = [block.rows.get(n, gaps if n in block.deleted else absent) for n in range(len(self.columns))]
        tokens = np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), block.columns)
        if block.columns != block.size:  # some columns are insertions, as seen from the reference
            tokens = tokens[:, tokens[0] != GAP]
        turned = tokens.T
        if block.reversed:
            turned = complement(turned[::-1])
        yield Placed(block.contig, block.start, turned, block.line, (file, block.last))

    def _wrong(self, file: Path, block: _Block | None, fields: list[bytes], number: int) -> UserError:
        """Return the error for a row that is wrong."""
        if block is None:
            reason = "a row before the first block: a block begins with a line 'a'"
        elif len(fields) != _FIELDS:
            reason = f"a row has {_FIELDS} fields, and this one {len(fields)}: is the file truncated?"
        else:
            _, _, start, size, strand, length, letters = fields
            bases, said = len(letters) - letters.count(b"-"), whole(size)
            bad = first_invalid(tokenise(letters))
            if said is None or whole(start) is None or whole(length) is None:
                reason = f"start, size and length of the source must be whole numbers of at most {DIGITS} digits"
            elif strand not in _STRANDS:
                reason = f"the strand must be + or -, not {_shown(strand)}"
            elif bases != said:
                reason = f"says {said:,} bases and has {bases:,}: is the file truncated?"
            elif len(letters) != block.columns:
                reason = f"has {len(letters):,} columns, and the rows above it {block.columns:,}"
            else:
                reason = f"holds {_shown(letters[bad : bad + 1])}, which is no letter of an alignment"
        return UserError(f"{file}, line {number:,}: {reason}")


def _share(told: Told, file: int, files: int) -> Told:
    """Return what reports the fraction of one of several files as that of all."""
    return lambda fraction: told((file + fraction) / files)


def _shown(text: bytes) -> str:
    """Return the beginning of some bytes, as an error repeats it."""
    return repr(text.rstrip()[:20].decode("ascii", "backslashreplace"))
