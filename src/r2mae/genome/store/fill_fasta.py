"""From reference-aligned FASTA to a store: rows are spooled to the disk, then turned into columns."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from r2mae.errors import UserError, unknown
from r2mae.genome.store.fasta import Spool, line_of
from r2mae.genome.store.given import GIVEN, differences, mismatch, only_record
from r2mae.genome.store.meta import ALIGNMENT, CHUNK, Layout
from r2mae.genome.store.sources import Stream
from r2mae.genome.store.tokens import GAP, SOFT, UNKNOWN
from r2mae.genome.store.unfinished import Progress, Unfinished, in_order
from r2mae.genome.store.writing import Filler, allocate, read_at, write_at

_READING, _TURNING = "reading", "turning rows into columns"
_ENDINGS = (".gz", ".bgz", ".fa", ".fasta", ".fna", ".afa", ".aln", ".aligned")


def rows_file(number: int) -> str:
    """Return the name of the spooled rows of a file."""
    return f"rows{number}.bin"


def fasta_layout(
    files: Sequence[Path],
    species: Sequence[str] | None,
    contig: str | None,
    reference: Path | None,
    work: Unfinished,
    progress: Progress,
) -> Layout:
    """Spool the rows of every file, which is a contig each, and name what they hold.

    Raises
    ------
    UserError
        As :meth:`r2mae.genome.store.fasta.Spool.run`; a listed species that no file has; files of other references.
    """
    spooled = [_spool(number, files, species, work, progress) for number in range(len(files))]
    names = list(dict.fromkeys(name for entry in spooled for name in entry["names"]))
    for name in species or ():
        if name not in names:
            # Rows that an older version spooled are known by the names of those that it kept.
            every = dict.fromkeys(one for entry in spooled for one in entry.get("found", entry["names"]))
            raise unknown("species", name, list(every))
    first = names[0]
    for entry, file in zip(spooled, files, strict=True):
        if entry["names"][0] != first:
            raise UserError(f"{file}: the first row is {entry['names'][0]!r}, and {first!r} in {files[0]}: {_ONE}")
    chosen = tuple(dict.fromkeys([first, *(names if species is None else species)]))
    contigs = _contigs(files, contig, reference, first)
    return Layout(chosen, contigs, tuple(sum(entry["kept"]) for entry in spooled))


_ONE = "all files begin with the row of one reference"


def _contigs(files: Sequence[Path], contig: str | None, reference: Path | None, first: str) -> tuple[str, ...]:
    """Name the contigs: as asked for, as the only one of the reference's FASTA, as the row; or as files, if several."""
    if len(files) == 1:
        named = contig or (only_record(reference) if reference is not None else None)
        return (named or first,)
    if contig is not None:
        raise UserError("--contig names the contig of one FASTA file; several are named after their files")
    found = []
    for file in files:
        name = file.name
        while name.lower().endswith(_ENDINGS):
            name = name[: name.rindex(".")]
        found.append(name)
    for name in found:
        if found.count(name) > 1:
            raise UserError(f"two files are called {name}: a FASTA file is a contig, named after the file")
    return tuple(found)


def _spool(
    number: int, files: Sequence[Path], species: Sequence[str] | None, work: Unfinished, progress: Progress
) -> dict[str, Any]:
    """Write the rows of a file, and count the columns at which the reference has a base, chunk by chunk."""
    stage = f"rows {number}"
    if (state := work.state(stage))["done"]:
        return state
    path = work.path(rows_file(number))
    with path.open("wb") as out, Stream(files[number]) as stream:
        spool = Spool(files[number], out, None if species is None else set(species))
        for fraction in spool.run(stream):
            progress(_READING, (number + fraction) / len(files))
    first = np.memmap(path, np.uint8, "r", shape=(spool.columns,))
    kept = [
        int(np.count_nonzero(first[begin : begin + CHUNK] & (SOFT - 1) != GAP))
        for begin in range(0, spool.columns, CHUNK)
    ]
    if not sum(kept):
        raise UserError(f"{files[number]}: the first row, which is the reference, has gaps alone")
    work.commit(stage, 1, path, names=spool.names, found=list(spool.found), kept=kept, columns=spool.columns)
    return work.state(stage)


@dataclass(eq=False)
class FastaFiller(Filler):
    """Turns spooled rows into columns, a chunk at a time; columns where the reference has a gap are left out."""

    def __post_init__(self) -> None:
        self._states = [self.work.state(f"rows {number}") for number in range(len(self.files))]

    def fill(self, jobs: int, progress: Progress) -> dict[str, int]:
        """Write all columns; returns what was counted."""
        target = self.work.path(ALIGNMENT)
        allocate(target, self.layout.positions * len(self.layout.species))
        units = []  # number of the file, first column, and where its positions begin
        for number, state in enumerate(self._states):
            places = np.cumsum([0, *state["kept"]]) + self.layout.offsets[number]
            units += [(number, CHUNK * chunk, int(places[chunk])) for chunk in range(len(state["kept"]))]
        done = self.work.state(_TURNING)["done"]
        out = os.open(target, os.O_WRONLY)
        rows = [os.open(self.work.path(rows_file(number)), os.O_RDONLY) for number in range(len(self.files))]

        def turn(unit: tuple[int, int, int]) -> None:
            number, first, place = unit
            tokens = self._columns(rows[number], number, first)
            if self.reference is not None:
                self._compare(tokens[:, 0], number, first, place, self.reference)
            write_at(out, tokens, place * len(self.layout.species))

        try:
            with ThreadPoolExecutor(jobs) as pool:
                for _ in in_order(turn, units[done:], pool if jobs > 1 else None, 2 * jobs):
                    done += 1
                    if self.work.due():
                        self.work.commit(_TURNING, done, target)
                    progress(_TURNING, done / len(units))
            self.work.commit(_TURNING, done, target)
        finally:
            for handle in (out, *rows):
                os.close(handle)
        columns = sum(state["columns"] for state in self._states)
        return {"columns": columns, "inserted_columns": columns - self.layout.positions}

    def _columns(self, rows: int, number: int, first: int) -> UInt8[np.ndarray, "positions species"]:
        """Read a chunk of every row, and turn it."""
        state = self._states[number]
        columns, order = state["columns"], {name: place for place, name in enumerate(state["names"])}
        width = min(CHUNK, columns - first)
        block: UInt8[np.ndarray, "species columns"] = np.full((len(self.layout.species), width), UNKNOWN, np.uint8)
        for place, name in enumerate(self.layout.species):
            if name in order:
                read_at(rows, block[place], order[name] * columns + first)
        block[1:] &= SOFT - 1
        kept = (block[0] & (SOFT - 1)) != GAP
        return np.ascontiguousarray((block if kept.all() else block[:, kept]).T)

    def _compare(
        self, mine: UInt8[np.ndarray, " positions"], number: int, first: int, place: int, reference: Path
    ) -> None:
        other = np.fromfile(self.work.path(GIVEN), np.uint8, len(mine), offset=place)
        wrong = np.flatnonzero(differences(mine, other))
        if not len(wrong):
            return
        at = int(wrong[0])
        row = np.memmap(self.work.path(rows_file(number)), np.uint8, "r")[first : first + CHUNK]
        column = first + int(np.flatnonzero((row & (SOFT - 1)) != GAP)[at])
        line = line_of(self.files[number], self.layout.species[0], column)
        where = f"{self.files[number]}, line {line:,}"
        raise mismatch(where, self.layout.place(place + at), int(mine[at]), int(other[at]), reference)
