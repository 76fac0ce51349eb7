"""MAF: a piece of text with whole blocks becomes positions of the reference × species."""

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from jaxtyping import Int64, UInt8

from r2mae.errors import UserError
from r2mae.genome.store.meta import Layout
from r2mae.genome.store.sources import DIGITS, name_of, raw_of, whole
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
_SPECIES = re.compile(rb"\ns[ \t]+([^\s.]+)")  # "\ns" is searched for quickly, "^s" is not
_STRANDS = (b"+", b"-")
_SPACE = (b"", b" ", b"\t", b"\r")
_DELETED = b"C"  # of an e row: what comes before and after is contiguous in that species


def contig_of(name: bytes, species: str) -> str:
    """Return what follows the species and a dot in a row's name; the species itself where nothing does."""
    return name_of(name[len(raw_of(species)) + 1 :]) or species


class Filled(NamedTuple):
    """The blocks of a piece.

    Parameters
    ----------
    blocks : int64 ndarray, shape (blocks, 4)
        Number of the contig, start, positions, and line of the reference's row.
    tokens : uint8 ndarray, shape (positions, species)
        Of all blocks, one after the other.
    counts : dict of str to int
        What was left out, and why.
    """

    blocks: Int64[np.ndarray, "blocks 4"]
    tokens: UInt8[np.ndarray, "positions species"]
    counts: dict[str, int]


class Scanned(NamedTuple):
    """The names in a piece, in order of appearance: all species, and contigs of the reference.

    Of each contig there are the length that its first row declares, as it is written, and the line of the row, counted
    from 0.
    """

    species: list[bytes]
    contigs: dict[str, tuple[bytes, int]]


def column_of(name: bytes, columns: Mapping[bytes, int]) -> int:
    """Return the column of a row named ``species.contig``, or -1; the species ends at the first dot."""
    return columns.get(name.partition(b".")[0], -1)


def first_species(text: bytes) -> bytes | None:
    """Return the species of the first row, which is the reference; None where there is no row."""
    found = _SPECIES.search(b"\n" + text)
    return found[1] if found else None


def scan(text: bytes, reference: str) -> Scanned:
    """Find the names of a piece quickly; rows that are wrong are left for :func:`read_piece` to complain of."""
    text = b"\n" + text
    species = list(dict.fromkeys(_SPECIES.findall(text)))
    row = rb"\ns[ \t]+(" + re.escape(raw_of(reference)) + rb"(?:\.\S*)?)[ \t]+\d+[ \t]+\d+[ \t]+[+-][ \t]+(\d+)[ \t]"
    first: dict[bytes, re.Match[bytes]] = {}
    for found in re.finditer(row, text):
        first.setdefault(found[1], found)
    contigs: dict[str, tuple[bytes, int]] = {}
    for name, found in first.items():
        contigs.setdefault(contig_of(name, reference), (found[2], text.count(b"\n", 0, found.start())))
    return Scanned(species, contigs)


class _Block:
    """The rows of a block, as they come in."""

    def __init__(self) -> None:
        self.columns = -1
        self.rows: dict[int, bytes] = {}  # by species
        self.deleted: set[int] = set()
        self.contig: int | None = None
        self.start = self.size = 0
        self.reversed = False
        self.reference_line = 0


class _Reader:
    """Reads the blocks of one piece."""

    def __init__(self, file: str, layout: Layout, columns: Mapping[bytes, int]) -> None:
        self.file, self.layout, self.species = file, layout, columns
        self.counts = {"blocks": 0, "without_reference": 0, "second_rows": 0, "other_species": 0}
        self.blocks: list[tuple[int, int, int, int]] = []
        self.tokens: list[UInt8[np.ndarray, "positions species"]] = []

    def read(self, text: bytes, first: int) -> Filled:
        """Read a piece."""
        block: _Block | None = None
        others = copies = 0
        # Every row of an alignment comes through this loop: it calls as little as it can.
        for number, line in enumerate(text.split(b"\n"), first):
            kind = line[:1]
            if kind == b"s":
                fields = line.split()
                if block is None or len(fields) != _FIELDS:
                    raise self._wrong(block, fields, number)
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
                    raise self._wrong(block, fields, number)
                column = self.species.get(name.partition(b".")[0], -1)
                if column < 0:
                    others += 1
                elif column in block.rows:
                    copies += 1
                else:
                    block.rows[column] = tokens = letters.translate(SOFT_TABLE if column == 0 else PLAIN_TABLE)
                    if INVALID in tokens:
                        raise self._wrong(block, fields, number)
                    if column == 0:
                        self._reference(block, fields, number)
            elif kind == b"a" and line[1:2] in _SPACE:
                self._end(block)
                block = _Block()
            else:
                self._other(block, kind, line, number)
        self._end(block)
        self.counts["other_species"] += others
        self.counts["second_rows"] += copies
        width = len(self.layout.species)
        tokens_of_all = np.concatenate(self.tokens) if self.tokens else np.empty((0, width), np.uint8)
        return Filled(np.array(self.blocks, np.int64).reshape(-1, 4), tokens_of_all, self.counts)

    def _other(self, block: _Block | None, kind: bytes, line: bytes, number: int) -> None:
        """Take note of a line that is no row: of a species that lacks the bases of the block."""
        if kind == b"e" and block is not None:
            fields = line.split()
            if len(fields) == _FIELDS and fields[6] == _DELETED:
                block.deleted.add(column_of(fields[1], self.species))
        elif kind not in _IGNORED and line.strip():
            raise self._error(number, f"begins with {_shown(line)}, which no line of a MAF does")

    def _wrong(self, block: _Block | None, fields: list[bytes], number: int) -> UserError:
        """Build the error for a row that is wrong, by looking closer."""
        if block is None:
            return self._error(number, "a row before the first block: a block begins with a line 'a'")
        if len(fields) != _FIELDS:
            return self._error(
                number, f"a row has {_FIELDS} fields, and this one {len(fields)}: is the file truncated?"
            )
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
            bad = first_invalid(tokenise(letters))
            reason = f"holds {_shown(letters[bad : bad + 1])}, which is no letter of an alignment"
        return self._error(number, reason)

    def _reference(self, block: _Block, fields: list[bytes], number: int) -> None:
        """Take the place of the block from the reference's row."""
        name, is_reversed = fields[1], fields[4] == b"-"
        start, size, length = (whole(fields[at]) for at in (2, 3, 5))
        if start is None or size is None or length is None:
            raise self._wrong(block, fields, number)
        contig = contig_of(name, self.layout.species[0])
        if start + size > length:
            raise self._error(number, f"ends at {start + size:,}, past the end of {_shown(name)} ({length:,})")
        block.contig = self.layout.find(contig)
        if block.contig is None:  # cannot be, after the scan, if the file has not changed
            raise self._error(number, f"contig {contig!r} was not there before: has the file changed?")
        known = self.layout.lengths[block.contig]
        if length != known:
            raise self._error(number, f"{contig} has {length:,} positions here, and {known:,} before")
        block.start = length - start - size if is_reversed else start
        block.size, block.reversed, block.reference_line = size, is_reversed, number

    def _end(self, block: _Block | None) -> None:
        """Turn a block into positions × species."""
        if block is None or not block.rows:
            return
        self.counts["blocks"] += 1
        if block.contig is None:
            self.counts["without_reference"] += 1
            return
        if not block.size:
            return
        absent, gaps = bytes([UNKNOWN]) * block.columns, bytes([GAP]) * block.columns
        rows = [absent] * len(self.layout.species)
        for column in block.deleted - {-1}:
            rows[column] = gaps
        for column, tokens in block.rows.items():
            rows[column] = tokens
        whole = np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), block.columns)
        if block.columns != block.size:  # columns that are insertions, seen from the reference
            whole = whole[:, whole[0] != GAP]
        turned = whole.T
        if block.reversed:
            turned = complement(turned[::-1])
        self.tokens.append(np.ascontiguousarray(turned))
        self.blocks.append((block.contig, block.start, block.size, block.reference_line))

    def _error(self, number: int, reason: str) -> UserError:
        return UserError(f"{self.file}, line {number:,}: {reason}")


def read_piece(text: bytes, first: int, file: str, layout: Layout, columns: Mapping[bytes, int]) -> Filled:
    """Read a piece of whole blocks.

    Every row of the reference gives the positions that it has a base at; columns where it has a gap are left out. A
    species without a row in a block is unknown there, or a gap if an ``e`` row says that it lacks the bases (status
    C). The first row of a species counts; others (copies) are left out and counted.

    Parameters
    ----------
    text : bytes
    first : int
        Number of its first line.
    file : str
        Named in errors.
    layout : Layout
    columns : mapping of bytes to int
        Column of each species; the reference's is 0.

    Raises
    ------
    UserError
        A wrong row; names file and line.
    """
    return _Reader(file, layout, columns).read(text, first)


def runs(blocks: Int64[np.ndarray, "blocks 4"]) -> Iterator[tuple[int, int]]:
    """Yield first and last (exclusive) of blocks that follow each other without a hole."""
    if not len(blocks):
        return
    contig, start, size, _ = blocks.T
    breaks = (contig[1:] != contig[:-1]) | (start[1:] != start[:-1] + size[:-1])
    bounds = [0, *(np.flatnonzero(breaks) + 1).tolist(), len(blocks)]
    yield from pairwise(bounds)


def _shown(text: bytes) -> str:
    """Return the beginning of some bytes, as an error repeats it."""
    return repr(text[:20].decode("ascii", "backslashreplace"))
