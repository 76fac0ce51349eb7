"""From MAF to a store: one process reads and writes, others turn blocks into tokens."""

import mmap
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import UInt16

from r2mae.errors import UserError, unknown
from r2mae.genome.store.given import GIVEN, differences, mismatch
from r2mae.genome.store.maf import Filled, first_species, read_piece, runs, scan
from r2mae.genome.store.meta import ALIGNMENT, Layout
from r2mae.genome.store.sources import DIGITS, Stream, check_lengths, maf_pieces, name_of, raw_of, whole
from r2mae.genome.store.unfinished import Progress, Unfinished, in_order, processes
from r2mae.genome.store.writing import Filler, allocate, write_at

OWNER = "owner.bin"
PIECE = 1 << 21  # bytes of text that a process turns into tokens at a time
_FINDING, _READING = "finding species", "reading"
_LAST = int(np.iinfo(np.uint16).max)


@dataclass(frozen=True)
class Piece:
    """Whole blocks of a MAF.

    Parameters
    ----------
    file : Path
    line : int
        Number of its first line.
    text : bytes
    fraction : float
        How much of all files has been read.
    """

    file: Path
    line: int
    text: bytes
    fraction: float


def pieces(files: Sequence[Path], size: int) -> Iterator[Piece]:
    """Cut files into pieces, one after the other."""
    sizes = [max(file.stat().st_size, 1) for file in files]
    for number, file in enumerate(files):
        before = sum(sizes[:number])
        with Stream(file) as stream:
            for line, text in maf_pieces(stream, size):
                yield Piece(file, line, text, (before + stream.fraction * sizes[number]) / sum(sizes))


def maf_layout(
    files: Sequence[Path], species: Sequence[str] | None, given: Path | None, work: Unfinished, progress: Progress
) -> Layout:
    """Read all names once: the species, in order of appearance or as they are listed, and the reference's contigs.

    Raises
    ------
    UserError
        A listed species that no row has, a file without blocks, or lengths far beyond what the files could fill,
        together with the reference's own FASTA that may be given.
    """
    state = work.state(_FINDING)
    if state["done"]:
        return Layout(*(tuple(state[name]) for name in ("species", "contigs", "lengths")))
    reference: str | None = None
    found: dict[bytes, None] = {}
    contigs: dict[str, int] = {}
    rows: dict[str, str] = {}  # where the length of each contig is declared
    held = 0 if given is None else given.stat().st_size
    for piece in pieces(files, PIECE):
        held += len(piece.text)
        if reference is None and (first := first_species(piece.text)) is not None:
            reference = name_of(first)
        if reference is not None:
            names, lengths = scan(piece.text, reference)
            found |= dict.fromkeys(names)
            for name, (written, line) in lengths.items():
                if name not in contigs:
                    contigs[name], rows[name] = whole(written) or 0, f"{piece.file}, line {piece.line + line:,}"
        progress(_FINDING, piece.fraction)
    if reference is None or not contigs:
        raise UserError(f"{files[0]}, line 1: has no block with a row 's name start size strand length text'")
    for name, length in contigs.items():
        if not length:
            raise UserError(f"{rows[name]}: the length of {name} must be above 0, and of at most {DIGITS} digits")
    check_lengths(contigs, held, rows.__getitem__)
    layout = Layout(_chosen(found, reference, species), tuple(contigs), tuple(contigs.values()))
    work.commit(_FINDING, 1, species=layout.species, contigs=layout.contigs, lengths=layout.lengths)
    return layout


def _chosen(found: Mapping[bytes, None], reference: str, species: Sequence[str] | None) -> tuple[str, ...]:
    names = [name_of(name) for name in found]
    for name in species or ():
        if name not in names:
            raise unknown("species", name, names)
    return tuple(dict.fromkeys([reference, *(names if species is None else species)]))


@dataclass(eq=False)
class MafFiller(Filler):
    """Writes blocks where they belong.

    The first block that covers a position, in the order of the files, gives all its species; later ones are left out
    there, and counted. For this, a file beside the tokens holds for every position the number of the commit period in
    which it was written (0: not yet). After a kill, what was written since the last commit is given up and done again.
    """

    def __post_init__(self) -> None:
        state = self.work.state(_READING)
        self.done: int = state["done"]
        self.period: int = state.get("period", 0)
        self.counts: dict[str, int] = state.get("counts", {"overlapping_positions": 0})

    def fill(self, jobs: int, progress: Progress) -> dict[str, int]:
        """Write all blocks; returns what was counted."""
        width = len(self.layout.species)
        target = self.work.path(ALIGNMENT)
        allocate(target, self.layout.positions * width)
        owner = self._owner()
        given = np.memmap(self.work.path(GIVEN), np.uint8, "r") if self.reference else None
        columns = {raw_of(name): number for number, name in enumerate(self.layout.species)}
        if sum(file.stat().st_size for file in self.files) < PIECE:
            jobs = 1  # starting processes takes longer
        handle = os.open(target, os.O_WRONLY)
        try:
            with processes(jobs, _prepare, (self.layout, columns)) as pool:
                waiting = (piece for number, piece in enumerate(pieces(self.files, PIECE)) if number >= self.done)
                self.period += 1
                for piece, filled in in_order(_read, waiting, pool, 2 * jobs):
                    if given is not None:
                        self._compare(piece.file, filled, given)
                    self._write(handle, owner, filled)
                    self.done += 1
                    if self.work.due() and self.period < _LAST:
                        self._commit(owner)
                    progress(_READING, piece.fraction)
                self._commit(owner)
        finally:
            os.close(handle)
        return self.counts

    def _owner(self) -> UInt16[np.ndarray, " positions"]:
        path = self.work.path(OWNER)
        allocate(path, 2 * self.layout.positions)
        owner = np.memmap(path, np.uint16, "r+")
        for first in range(0, len(owner), 1 << 24):
            part = owner[first : first + (1 << 24)]
            part[part > self.period] = 0
        return owner

    def _commit(self, owner: UInt16[np.ndarray, " positions"]) -> None:
        if isinstance(owner, np.memmap):
            owner.flush()
            if hasattr(mmap, "MADV_DONTNEED"):  # its pages need not stay in memory
                owner._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]
        self.work.commit(
            _READING,
            self.done,
            self.work.path(ALIGNMENT),
            self.work.path(OWNER),
            period=self.period,
            counts=self.counts,
        )
        self.period += 1

    def _write(self, handle: int, owner: UInt16[np.ndarray, " positions"], filled: Filled) -> None:
        for name, count in filled.counts.items():
            self.counts[name] = self.counts.get(name, 0) + count
        width = len(self.layout.species)
        ends = np.cumsum(filled.blocks[:, 2])
        for first, last in runs(filled.blocks):
            contig, start, size, _ = filled.blocks[first].tolist()
            begin = int(ends[first]) - size
            tokens = filled.tokens[begin : int(ends[last - 1])]
            place = int(self.layout.offsets[contig]) + start
            owned = owner[place : place + len(tokens)]
            taken = owned != 0
            if taken.any():
                self.counts["overlapping_positions"] += int(taken.sum())
                bounds = np.flatnonzero(np.diff(taken, prepend=True, append=True)).reshape(-1, 2).tolist()
            else:
                bounds = [[0, len(tokens)]]
            for one, other in bounds:
                write_at(handle, tokens[one:other], (place + one) * width)
                owned[one:other] = self.period

    def _compare(self, file: Path, filled: Filled, given: np.ndarray) -> None:
        ends = np.cumsum(filled.blocks[:, 2])
        for first, last in runs(filled.blocks):
            contig, start, size, _ = filled.blocks[first].tolist()
            begin = int(ends[first]) - size
            place = int(self.layout.offsets[contig]) + start
            mine = filled.tokens[begin : int(ends[last - 1]), 0]
            other = np.asarray(given[place : place + len(mine)])
            wrong = np.flatnonzero(differences(mine, other))
            if len(wrong):
                at = int(wrong[0])
                line = int(filled.blocks[int(np.searchsorted(ends, begin + at, side="right")), 3])
                raise mismatch(
                    f"{file}, line {line:,}",
                    self.layout.place(place + at),
                    int(mine[at]),
                    int(other[at]),
                    self.reference or file,
                )


_READER: dict[str, tuple[Layout, dict[bytes, int]]] = {}  # of this process


def _prepare(layout: Layout, columns: dict[bytes, int]) -> None:
    _READER["now"] = layout, columns


def _read(piece: Piece) -> Filled:
    layout, columns = _READER["now"]
    return read_piece(piece.text, piece.line, str(piece.file), layout, columns)
