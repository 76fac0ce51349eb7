"""FASTA: alignments whose rows are aligned to the first, and the reference's own sequence."""

from collections.abc import Collection, Iterator
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from r2mae.errors import UserError, nearest
from r2mae.genome.store.alignment import Layout
from r2mae.genome.store.sources import Build, Placed, allocate, choose_species, kind_of, name_of, read_lines, shown
from r2mae.genome.store.tokens import GAP, INVALID, TOKEN, UNKNOWN, tokenise

CHUNK = 1 << 16
"""Columns that are turned at a time."""

_ENDINGS = (".gz", ".bgz", ".fa", ".fasta", ".fna", ".afa", ".aln", ".aligned")


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
            parts.append(tokenise(letters, soft=True))
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


class FastaFiles:
    """FASTA files whose rows are aligned to the first; each file is a contig. Columns where it has a gap are omitted.

    A species without a row in a file is unknown there. The contig of a single file is called by the given name, or as
    the only record of the reference's own FASTA, or as the first row. Several files are contigs of their names.
    """

    def __init__(self, build: Build) -> None:
        self.files, self._progress = build.files, build.progress
        self._rows = [read_rows(file, build.folder / f"{number}.rows") for number, file in enumerate(self.files)]
        names = list(dict.fromkeys(name for rows in self._rows for name in rows))
        species = choose_species(names, build.species)
        self._kept = []
        for rows, file in zip(self._rows, self.files, strict=True):
            if (first := next(iter(rows))) != names[0]:
                raise UserError(
                    f"{file}: the first row is {first!r}, and {names[0]!r} in {self.files[0]}: all files begin with "
                    "the row of one reference"
                )
            self._kept.append((rows[first] & TOKEN) != GAP)
            if not self._kept[-1].any():
                raise UserError(f"{file}: the first row, which is the reference, has gaps alone")
        self.layout = Layout(species, _contigs(build, names[0]), tuple(int(kept.sum()) for kept in self._kept))
        columns = sum(map(len, self._kept))
        self.counts = {"inserted_columns": columns - self.layout.positions}

    def blocks(self, skipped: Collection[int]) -> Iterator[Placed | int]:
        """Yield the columns of the files, some at a time, and the number of each contig that is complete."""
        for number, (rows, kept) in enumerate(zip(self._rows, self._kept, strict=True)):
            if number in skipped:
                continue
            done, absent = 0, np.full(len(kept), UNKNOWN, np.uint8)
            for first in range(0, len(kept), CHUNK):
                part = slice(first, first + CHUNK)
                block = np.stack([rows.get(name, absent)[part][kept[part]] for name in self.layout.species], 1)
                block[:, 1:] &= TOKEN
                yield Placed(number, done, block, str(self.files[number]))
                done += len(block)
                self._progress("turning rows into columns", (number + first / len(kept)) / len(self.files))
            yield number


def _contigs(build: Build, first: str) -> tuple[str, ...]:
    """Return the contigs of files; `first` is the name of the first row."""
    if len(build.files) == 1:
        alone = build.reference if build.contig is None else None
        names = [name for _, name, _ in read_fasta(alone)] if alone is not None else []
        return (build.contig or (names[0] if len(names) == 1 else first),)
    if build.contig is not None:
        raise UserError("--contig names the contig of one FASTA file; several are named after their files")
    found: list[str] = []
    for file in build.files:
        name = file.name
        while name.lower().endswith(_ENDINGS):
            name = name[: name.rindex(".")]
        if name in found:
            raise UserError(f"two files are called {name}: a FASTA file is a contig, named after the file")
        found.append(name)
    return tuple(found)


def read_reference(path: Path, layout: Layout, out: Path) -> UInt8[np.ndarray, " positions"]:
    """Return the tokens of the layout's contigs, of the reference's own FASTA, mapped from the file `out`."""
    if kind_of(path) != "fasta":
        raise UserError(f"{path}: --reference takes a FASTA file")
    found, names = allocate(out, np.uint8, layout.positions), list[str]()
    for line, name, tokens in read_fasta(path):
        names.append(name)
        if (number := layout.numbers.get(name)) is None:
            continue
        if GAP in tokens:
            raise UserError(f"{path}, line {line:,}: {name} holds a gap: a reference has none")
        if len(tokens) != (length := layout.lengths[number]):
            raise UserError(
                f"{path}: {name} has {len(tokens):,} positions, and {length:,} in the alignment: same assembly?"
            )
        found[layout.offsets[number] : layout.offsets[number + 1]] = np.frombuffer(tokens, np.uint8)
    for name in layout.contigs:
        if name not in names:
            raise UserError(f"{path}: has no contig {name!r}, which the alignment has: {nearest(name, names)}")
    return found
