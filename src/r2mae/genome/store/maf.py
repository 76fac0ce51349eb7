"""MAF: blocks of rows become positions of the reference × species."""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np

from r2mae.errors import UserError, unknown
from r2mae.genome.store.meta import Layout
from r2mae.genome.store.sources import (
    DIGITS,
    Placed,
    Progress,
    Source,
    check_lengths,
    integer,
    name_of,
    read_lines,
    read_pieces,
    shown,
)
from r2mae.genome.store.tokens import GAP, INVALID, PLAIN_TABLE, SOFT_TABLE, UNKNOWN, complement

_IGNORED = (b"i", b"q", b"e", b"t", b"#")  # rows on context and quality, track lines, comments
_SPACE = (b"", b" ", b"\t", b"\r")
_DELETED = b"C"  # status of an e row: before and after the block, the sequence of that species is contiguous
_NUMBER = rb"(\d{1,%d})" % DIGITS
_ROW = re.compile(rb"s[ \t]+(\S+)[ \t]+%b[ \t]+%b[ \t]+([+-])[ \t]+%b[ \t]+(\S+)[ \t\r]*" % (_NUMBER, _NUMBER, _NUMBER))
_NAME_AND_LENGTH = re.compile(rb"\ns[ \t]+(\S+)[ \t]+\d+[ \t]+\d+[ \t]+[+-][ \t]+(\d+)[ \t]")  # "^s" is slower
_ACCESSION = re.compile(rb"[A-Z]+_?[A-Z]*\d{5,}\.\d{1,2}")  # a contig with a version, such as NC_000001.11


@dataclass
class _Block:
    """The rows of a block that have been read: tokens by species, and the place of the reference."""

    columns: int = -1
    rows: dict[int, bytes] = field(default_factory=dict)
    deleted: set[int] = field(default_factory=set)
    contig: int = -1
    start: int = 0
    reversed: bool = False
    where: str = ""


class MafFiles(Source):
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
    progress : callable
        Called with a stage and the fraction of it that is done.

    Raises
    ------
    UserError
        A listed species without a row, an ambiguous name, files without blocks, or lengths far beyond what the files
        and the reference's own FASTA could fill.
    """

    def __init__(
        self, files: Sequence[Path], listed: Sequence[str] | None, given: Path | None, progress: Progress
    ) -> None:
        self.files, self._progress = files, progress
        self._listed = sorted((name.encode("utf-8", "surrogateescape") for name in listed or ()), key=len, reverse=True)
        self._last: dict[str, int] = {}  # number of the last file that has a row of each contig
        self.layout = self._scan(listed, 0 if given is None else given.stat().st_size)
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

    def _pieces(self, stage: str, place: int) -> Iterator[tuple[int, bytes]]:
        """Yield the pieces of one of the files, with progress through all of them."""
        return read_pieces(self.files[place], lambda share: self._progress(stage, (place + share) / len(self.files)))

    def _scan(self, listed: Sequence[str] | None, held: int) -> Layout:
        """Read all names, and the lengths of the reference's contigs."""
        found = dict[str, None]()
        contigs: dict[str, tuple[bytes, bytes]] = {}  # the name of the first row, and its length
        for place in range(len(self.files)):
            for _, piece in self._pieces("finding species", place):
                held += len(piece)
                for name, length in dict.fromkeys(_NAME_AND_LENGTH.findall(b"\n" + piece)):
                    species, contig, is_ambiguous = self.divide(name)
                    if is_ambiguous and (listed is None or not found):
                        words = name_of(name).split(".")
                        raise UserError(
                            f"{self._first_row(name)}: {name_of(name)!r} has several dots, and its species may be "
                            f"{words[0]} or {'.'.join(words[:-1])}: list the species, a name on each line, with "
                            "--species FILE"
                        )
                    found[species] = None
                    if species == next(iter(found)):
                        contigs.setdefault(contig, (name, length))
                        self._last[contig] = place
        if not contigs:
            raise UserError(f"{self.files[0]}, line 1: has no block with a row 's name start size strand length text'")
        lengths = {contig: integer(length) or 0 for contig, (_, length) in contigs.items()}
        for contig, length in lengths.items():
            if not length:
                where = self._first_row(contigs[contig][0])
                raise UserError(f"{where}: the length of {contig} must be above 0, and of at most {DIGITS} digits")
        check_lengths(lengths, held, lambda contig: self._first_row(contigs[contig][0]))
        for species in listed or ():
            if species not in found:
                raise unknown("species", species, list(found))
        kept = tuple(dict.fromkeys([next(iter(found)), *(found if listed is None else listed)]))
        return Layout(kept, tuple(lengths), tuple(lengths.values()))

    def _first_row(self, name: bytes) -> str:
        """Return file and line of the first row of this name, for errors."""
        row = re.compile(rb"s[ \t]+" + re.escape(name) + rb"[ \t]")
        lines = ((file, number) for file in self.files for number, line in read_lines(file) if row.match(line))
        return "{}, line {:,}".format(*next(lines))

    def blocks(self, skipped: Collection[int]) -> Iterator[Placed | int]:
        """Yield all blocks, except of some contigs; a contig is complete after the last file that names it."""
        for place, file in enumerate(self.files):
            block = None
            for first, piece in self._pieces("reading", place):
                for number, line in enumerate(piece.removesuffix(b"\n").split(b"\n"), first):
                    if line[:1] == b"s":
                        self._read_row(block, line, file, number)
                    elif line[:1] == b"a" and line[1:2] in _SPACE:
                        yield from self._placed(block, skipped)
                        block = _Block()
                    elif block is not None and line[:1] == b"e" and line.split()[6:] == [_DELETED]:
                        block.deleted.add(self._column(line.split()[1])[0])
                    elif line[:1] not in _IGNORED and line.strip():
                        raise UserError(
                            f"{file}, line {number:,}: begins with {shown(line)}, which no line of a MAF does"
                        )
            yield from self._placed(block, skipped)
            yield from (self.layout.numbers[contig] for contig, last in self._last.items() if last == place)

    def _read_row(self, block: _Block | None, line: bytes, file: Path, number: int) -> None:
        """Read a row of a block. Every row of an alignment comes here: it calls as little as it can."""
        row = _ROW.fullmatch(line)
        if block is None or row is None:
            raise UserError(f"{file}, line {number:,}: {_mistake(block, line)}")
        name, start, size, strand, length, letters = row.groups()
        column, contig = self._column(name)
        if block.columns < 0:
            block.columns = len(letters)
        if len(letters) != block.columns or int(size) != len(letters) - letters.count(b"-"):
            raise UserError(f"{file}, line {number:,}: {_mistake(block, line)}")
        if column < 0:
            self.counts["other_species"] += 1
        elif column in block.rows:
            self.counts["second_rows"] += 1
        else:
            block.rows[column] = tokens = letters.translate(SOFT_TABLE if column == 0 else PLAIN_TABLE)
            if INVALID in tokens:
                raise UserError(f"{file}, line {number:,}: {_mistake(block, line)}")
            if column == 0:
                block.reversed = strand == b"-"
                self._place(block, contig, int(start), int(size), int(length), f"{file}, line {number:,}")

    def _place(self, block: _Block, contig: str, start: int, size: int, length: int, where: str) -> None:
        """Set the place of a block from the reference's row."""
        block.contig, block.where = self.layout.numbers[contig], where
        block.start = length - start - size if block.reversed else start
        if start + size > length:
            raise UserError(f"{where}: ends at {start + size:,}, past the end of {contig} ({length:,})")
        if length != (known := self.layout.lengths[block.contig]):
            raise UserError(f"{where}: {contig} has {length:,} positions here, and {known:,} before")

    def _placed(self, block: _Block | None, skipped: Collection[int]) -> Iterator[Placed]:
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
            if GAP in block.rows[0]:  # some columns are insertions, as seen from the reference
                tokens = tokens[:, tokens[0] != GAP]
            turned = complement(tokens.T[::-1]) if block.reversed else tokens.T
            yield Placed(block.contig, block.start, turned, block.where)


def _mistake(block: _Block | None, line: bytes) -> str:
    """Say what is wrong with a row."""
    row, fields = _ROW.fullmatch(line), line.split()
    if block is None:
        return "a row before the first block: a block begins with a line 'a'"
    if row is None:
        what = f"numbers of at most {DIGITS} digits, the strand + or -, with blanks or tabs between"
        if len(fields) != 7:
            what = f"which are 7 fields, and this one has {len(fields)}: is the file truncated?"
        return f"a row is 's name start size strand length text', {what}"
    _, _, size, _, _, letters = row.groups()
    if (bases := len(letters) - letters.count(b"-")) != int(size):
        return f"says {int(size):,} bases and has {bases:,}: is the file truncated?"
    if len(letters) != block.columns:
        return f"has {len(letters):,} columns, and the rows above it {block.columns:,}"
    bad = letters.translate(PLAIN_TABLE).find(INVALID)
    return f"holds {shown(letters[bad : bad + 1])}, which is no letter of an alignment"
