"""What an alignment is read from: MAF, whose blocks of rows become positions of the reference × species, and FASTA."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import UInt8

from r2mae.errors import UserError, nearest, unknown
from r2mae.genome.store.alignment import Layout
from r2mae.genome.store.contigs import Contigs
from r2mae.genome.store.sources import DIGITS, allocate, integer, name_of, read_lines, shown
from r2mae.genome.store.tokens import GAP, INVALID, PLAIN_TABLE, SOFT_TABLE, TOKEN, UNKNOWN, complement

Kind = Literal["maf", "fasta", "zarr"]
Progress = Callable[[str, float], None]
"""Called with a stage ("reading", "checking") and the fraction of it that is done."""
CHUNK = 1 << 16
"""Columns that are turned at a time."""

_SPREAD = 1_000  # most positions of all contigs for each byte that the files hold
_IGNORED = (b"i", b"q", b"e", b"t", b"#")  # rows on context and quality, track lines, comments
_SPACE = (b"", b" ", b"\t", b"\r")
_DELETED = b"C"  # status of an e row: before and after the block, the sequence of that species is contiguous
_ACCESSION = re.compile(rb"[A-Z]+_?[A-Z]*\d{5,}\.\d{1,2}")  # a contig with a version, such as NC_000001.11
_FORM = "'s name start size strand length text'"


@dataclass(frozen=True)
class Build:
    """What a store is built of; `folder` is that of the unfinished store, also for temporary files."""

    files: Sequence[Path]
    species: Sequence[str] | None
    contig: str | None
    reference: Path | None
    folder: Path
    progress: Progress


class Placed(NamedTuple):
    """A part of an alignment: tokens from a position of a contig on. Of several at a position, the first counts.

    `where` is the file, and the line of the reference's row if there is one, for errors.
    """

    contig: int
    start: int
    tokens: UInt8[np.ndarray, "positions species"]
    where: str


def choose_species(names: Sequence[str], listed: Sequence[str] | None) -> tuple[str, ...]:
    """Return the species to keep: the reference, and those listed (or raise a UserError if one is unknown) or all."""
    for name in listed or ():
        if name not in names:
            raise unknown("species", name, names)
    return tuple(dict.fromkeys([names[0], *(names if listed is None else listed)]))


def check_lengths(lengths: Mapping[str, int], held: int, where: Callable[[str], str]) -> None:
    """Refuse contigs whose declared lengths are far more than the contents of the files could fill.

    The files (unpacked, and the reference's own FASTA) hold so many bytes. `where` returns the file, and the line if
    there is one, that declares the length of a contig.
    """
    if sum(lengths.values()) > _SPREAD * held:
        name = max(lengths, key=lengths.__getitem__)
        raise UserError(
            f"{where(name)}: says that {name} has {lengths[name]:,} positions, and almost none of them is here: mend "
            "the length, or give the reference's own FASTA (--reference)"
        )


def kind_of(path: Path) -> Kind:
    """Tell MAF, FASTA and zarr apart, by content; raise a UserError for other and empty files."""
    if path.is_dir():
        if any((path / name).is_file() for name in (".zgroup", "zarr.json")):
            return "zarr"
        raise UserError(f"{path}: is a folder: name the MAF or FASTA files in it, or a zarr group")
    text = b""
    for _, line in read_lines(path):
        text = line.strip()
        if text.startswith(b"##maf") or (text and not text.startswith((b"#", b"track "))):
            break
    if text.startswith(b">"):
        return "fasta"
    if text.startswith(b"##maf") or text.split(None, 1)[:1] == [b"a"]:
        return "maf"
    raise UserError(
        f"{path}: is empty, or neither MAF (beginning with ##maf) nor FASTA (beginning with >), plain, gzip or bgzip: "
        "give one of them"
    )


class MafFiles:
    """MAF files that are one alignment.

    Every row of the reference gives the positions at which it has a base; columns where it has a gap are omitted. A
    species without a row in a block is unknown there, or a gap if an ``e`` row says that it lacks the bases (status
    C). The first row of a species counts; others (copies) are omitted and counted.
    """

    def __init__(self, build: Build) -> None:
        self.files, self._progress = build.files, build.progress
        listed = [name.encode("utf-8", "surrogateescape") for name in build.species or ()]
        self._listed = sorted(listed, key=len, reverse=True)
        self._last: dict[str, int] = {}  # number of the last file that has a row of each contig
        self.layout = self._scan(build.species, 0 if build.reference is None else build.reference.stat().st_size)
        self._column = lru_cache(1 << 16)(self._column_of)
        self.counts = {"without_reference": 0, "second_rows": 0}

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
        """Return the column of a row's species, -1 if it is not kept, and the contig."""
        species, contig, _ = self.divide(name)
        kept = self.layout.species
        return kept.index(species) if species in kept else -1, contig

    def _scan(self, listed: Sequence[str] | None, held: int) -> Layout:
        """Read all names, and the lengths of the reference's contigs. Wrong rows are left to :func:`_row`."""
        found, lengths, where = dict[str, None](), dict[str, int](), dict[str, str]()
        for place, file in enumerate(self.files):
            seen = set[tuple[bytes, bytes]]()
            for number, line in read_lines(file, partial(self._show, "finding species", place)):
                held += len(line)
                if line[:1] != b"s" or len(fields := line.split(None, 6)) < 7 or (fields[1], fields[5]) in seen:
                    continue
                name, length, row = fields[1], fields[5], f"{file}, line {number:,}"
                seen.add((name, length))
                species, contig, is_ambiguous = self.divide(name)
                if is_ambiguous and (listed is None or not found):
                    words = name_of(name).split(".")
                    raise UserError(
                        f"{row}: {name_of(name)!r} has several dots, and its species may be {words[0]} or "
                        f"{'.'.join(words[:-1])}: list the species, a name on each line, with --species FILE"
                    )
                found[species] = None
                if species != next(iter(found)):
                    continue
                self._last[contig] = place
                if contig not in lengths:
                    lengths[contig], where[contig] = integer(length) or 0, row
                    if not lengths[contig]:
                        raise UserError(
                            f"{row}: the length of {contig} must be above 0, and of at most {DIGITS} digits"
                        )
        if not lengths:
            raise UserError(f"{self.files[0]}, line 1: has no block with a row {_FORM}")
        check_lengths(lengths, held, where.__getitem__)
        return Layout(choose_species(list(found), listed), tuple(lengths), tuple(lengths.values()))

    def _show(self, stage: str, place: int, share: float) -> None:
        self._progress(stage, (place + share) / len(self.files))

    def blocks(self, skipped: Collection[int]) -> Iterator[Placed | int]:
        """Yield all blocks, except of some contigs; and each contig's number after the last file that names it."""
        for place, file in enumerate(self.files):
            for rows in _blocks(file, partial(self._show, "reading", place)):
                placed = self._placed(file, rows)
                if placed is not None and placed.contig not in skipped:
                    yield placed
            yield from (self.layout.numbers[contig] for contig, last in self._last.items() if last == place)

    def _placed(self, file: Path, block: Sequence[tuple[int, bytes]]) -> Placed | None:
        """Turn a block into positions × species. Every row of an alignment comes here: it calls as little as it can."""
        columns, rows, deleted = -1, dict[int, bytes](), set[int]()
        contig, start, is_reversed, where = -1, 0, False, ""
        for number, line in block:
            if line[:1] == b"e":
                fields = line.split()
                if fields[6:] == [_DELETED]:
                    deleted.add(self._column(fields[1])[0])
                continue
            name, first, strand, length, letters = _row(file, number, line, columns)
            columns = len(letters)
            column, source = self._column(name)
            if column in rows:
                self.counts["second_rows"] += 1
            elif column >= 0:
                rows[column] = tokens = letters.translate(SOFT_TABLE if column == 0 else PLAIN_TABLE)
                if (bad := tokens.find(INVALID)) >= 0:
                    what = shown(letters[bad : bad + 1])
                    raise UserError(f"{file}, line {number:,}: holds {what}, which is no letter of an alignment")
                if column == 0:
                    where, contig, is_reversed = f"{file}, line {number:,}", self.layout.numbers[source], strand == b"-"
                    end, known = int(first) + columns - letters.count(b"-"), self.layout.lengths[contig]
                    if end > int(length):
                        raise UserError(f"{where}: ends at {end:,}, past the end of {source} ({int(length):,})")
                    if int(length) != known:
                        raise UserError(f"{where}: {source} has {int(length):,} positions here, and {known:,} before")
                    start = known - end if is_reversed else int(first)
        self.counts["without_reference"] += bool(rows) and contig < 0
        if contig < 0:
            return None
        absent, gaps = bytes([UNKNOWN]) * columns, bytes([GAP]) * columns
        every = [rows.get(n, gaps if n in deleted else absent) for n in range(len(self.layout.species))]
        found = np.frombuffer(b"".join(every), np.uint8).reshape(len(every), columns)
        if GAP in rows[0]:  # some columns are insertions, as seen from the reference
            found = found[:, found[0] != GAP]
        return Placed(contig, start, complement(found.T[::-1]) if is_reversed else found.T, where)


def _row(file: Path, number: int, line: bytes, columns: int) -> tuple[bytes, bytes, bytes, bytes, bytes]:
    """Return name, start, strand, length of the contig, and letters of a row, as many as `columns` unless it is -1."""
    fields = line.split()
    if len(fields) != 7:
        cut = f"which are 7 fields, and this one has {len(fields)}: is the file truncated?"
        raise UserError(f"{file}, line {number:,}: a row is {_FORM}, {cut}")
    mark, name, first, size, strand, length, letters = fields
    if mark != b"s" or strand not in (b"+", b"-") or None in (integer(first), integer(size), integer(length)):
        form = f"numbers of at most {DIGITS} digits, the strand + or -"
        raise UserError(f"{file}, line {number:,}: a row is {_FORM}, {form}")
    if int(size) != (bases := len(letters) - letters.count(b"-")):
        raise UserError(f"{file}, line {number:,}: says {int(size):,} bases and has {bases:,}: is the file truncated?")
    if len(letters) != columns >= 0:
        raise UserError(f"{file}, line {number:,}: has {len(letters):,} columns, and the rows above it {columns:,}")
    return name, first, strand, length, letters


def _blocks(file: Path, progress: Callable[[float], None]) -> Iterator[list[tuple[int, bytes]]]:
    """Yield the rows of each block, with the numbers of their lines."""
    block: list[tuple[int, bytes]] | None = None
    for number, line in read_lines(file, progress):
        start = line[:1]
        if block is not None and start in (b"s", b"e"):
            block.append((number, line))
        elif start == b"a" and line[1:2].strip(b"\n") in _SPACE:
            yield block or []
            block = []
        elif start == b"s":
            raise UserError(f"{file}, line {number:,}: a row before the first block: a block begins with a line 'a'")
        elif start not in _IGNORED and line.strip():
            raise UserError(f"{file}, line {number:,}: begins with {shown(line.strip())}, which no line of a MAF does")
    yield block or []


def read_fasta(path: Path) -> Iterator[tuple[int, str, bytes]]:
    """Yield the records of a FASTA: line of the header, name, and tokens with the soft-mask bit."""
    first, name, names = 0, "", set[str]()
    parts: list[bytes] = []
    for number, line in read_lines(path):
        if line.startswith(b">"):
            if name:
                yield first, name, b"".join(parts)
            first, name, parts = number, name_of((line[1:].split() or [b""])[0]), []
            if not name:
                raise UserError(f"{path}, line {number:,}: a record without a name")
            if name in names:
                raise UserError(f"{path}, line {number:,}: {name} comes twice: give each record a name of its own")
            names.add(name)
        elif letters := line.translate(None, b" \t\r\n"):
            if not name:
                raise UserError(f"{path}, line {number:,}: letters before the first header (>name)")
            parts.append(letters.translate(SOFT_TABLE))
            if (bad := parts[-1].find(INVALID)) >= 0:
                what = shown(letters[bad : bad + 1])
                raise UserError(f"{path}, line {number:,}: holds {what}, which is no letter of an alignment")
    if name:
        yield first, name, b"".join(parts)


def read_rows(path: Path, spool: Path) -> dict[str, UInt8[np.ndarray, " columns"]]:
    """Return the rows of an alignment by name, which must be of one length, mapped from a temporary file."""
    names, columns = list[str](), 0
    with spool.open("wb") as file:
        for line, name, tokens in read_fasta(path):
            if not tokens:
                raise UserError(f"{path}, line {line:,}: {name} has no letters")
            if len(tokens) != columns and names:
                raise UserError(
                    f"{path}, line {line:,}: {name} has {len(tokens):,} letters, not the {columns:,} of the first row: "
                    "rows of an alignment are equally long"
                )
            columns = len(tokens)
            names.append(name)
            file.write(tokens)
    return dict(zip(names, np.memmap(spool, np.uint8, "r", shape=(len(names), columns)), strict=True))


class FastaFile:
    """A FASTA whose rows are aligned to the first. Columns where it has a gap are omitted.

    The contig is called by the given name, or as the only record of the reference's own FASTA, or as the first row.
    """

    def __init__(self, build: Build) -> None:
        (self.file,), self._progress = build.files, build.progress
        self._rows = read_rows(self.file, build.folder / "alignment.rows")
        first = next(iter(self._rows))
        self._kept = (self._rows[first] & TOKEN) != GAP
        if not self._kept.any():
            raise UserError(f"{self.file}: the first row, which is the reference, has gaps alone")
        alone = build.reference if build.contig is None else None
        names = [name for _, name, _ in read_fasta(alone)] if alone is not None else []
        contig = build.contig or (names[0] if len(names) == 1 else first)
        self.layout = Layout(choose_species([*self._rows], build.species), (contig,), (int(self._kept.sum()),))
        self.counts = {"inserted_columns": len(self._kept) - self.layout.positions}

    def blocks(self, skipped: Collection[int]) -> Iterator[Placed | int]:
        """Yield the columns, some at a time, and the number of the contig when it is complete."""
        done = 0
        for first in range(0, 0 if skipped else len(self._kept), CHUNK):
            part = slice(first, first + CHUNK)
            block = np.stack([self._rows[name][part][self._kept[part]] for name in self.layout.species], 1)
            block[:, 1:] &= TOKEN
            yield Placed(0, done, block, str(self.file))
            done += len(block)
            self._progress("turning rows into columns", first / len(self._kept))
        yield 0


def read_reference(path: Path, layout: Layout, out: Path) -> UInt8[np.ndarray, " positions"]:
    """Return the tokens of the layout's contigs, of the reference's own FASTA, mapped from the file `out`."""
    if kind_of(path) != "fasta":
        raise UserError(f"{path}: --reference takes a FASTA file")
    found, contigs = allocate(out, np.uint8, layout.positions), Contigs(layout)
    names, given = list[str](), set[int]()
    for line, name, tokens in read_fasta(path):
        number = contigs.number(name)
        if number in given:
            raise UserError(f"{path}, line {line:,}: {name} is {layout.contigs[number]}, which came before: leave one")
        names.append(name)
        if number < 0:
            continue
        given.add(number)
        if GAP in tokens:
            raise UserError(f"{path}, line {line:,}: {name} holds a gap: a reference has none")
        if len(tokens) != (length := layout.lengths[number]):
            raise UserError(
                f"{path}: {name} has {len(tokens):,} positions, and {length:,} in the alignment: same assembly?"
            )
        found[layout.offsets[number] : layout.offsets[number + 1]] = np.frombuffer(tokens, np.uint8)
    for number, name in enumerate(layout.contigs):
        if number not in given:
            raise UserError(f"{path}: has no contig {name!r}, which the alignment has: {nearest(name, names)}")
    contigs.report(path, all_needed=False)
    return found
