"""FASTA: alignments whose rows are aligned to the first, and the reference's own sequence."""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import UInt8

from r2mae.errors import UserError, nearest, unknown
from r2mae.genome.store.meta import CHUNK, Layout, Placed, Source
from r2mae.genome.store.sources import Progress, kind_of, name_of, read_lines
from r2mae.genome.store.tokens import GAP, INVALID, SOFT, UNKNOWN, tokenise

_TOKEN = np.uint8(SOFT - 1)
_ENDINGS = (".gz", ".bgz", ".fa", ".fasta", ".fna", ".afa", ".aln", ".aligned")


class Piece(NamedTuple):
    """A line of a FASTA: the name of its record and its tokens, or None for a header."""

    line: int
    name: str
    tokens: bytes | None


def read_fasta(path: Path) -> Iterator[Piece]:
    """Yield the lines of a FASTA, with the soft-mask bit in tokens.

    Raises
    ------
    UserError
        Letters before the first header, a record without a name, or a byte that is no letter of an alignment.
    """
    name = ""
    for number, line in read_lines(path):
        if line.startswith(b">"):
            words = line[1:].split()
            if not words:
                raise UserError(f"{path}, line {number:,}: a record without a name")
            name = name_of(words[0])
            yield Piece(number, name, None)
        elif letters := line.translate(None, b" \t\r\n"):
            if not name:
                raise UserError(f"{path}, line {number:,}: letters before the first header (>name)")
            tokens = tokenise(letters, soft=True)
            if (bad := tokens.find(INVALID)) >= 0:
                shown = repr(letters[bad : bad + 1].decode("ascii", "backslashreplace"))
                raise UserError(f"{path}, line {number:,}: holds {shown}, which is no letter of an alignment")
            yield Piece(number, name, tokens)


class Rows(NamedTuple):
    """The rows of an aligned FASTA, which a temporary file holds one after the other."""

    names: list[str]
    columns: int
    tokens: UInt8[np.ndarray, "rows columns"]


def read_rows(path: Path, spool: Path) -> Rows:
    """Write the rows of an alignment to a temporary file, since it may not fit into memory.

    Raises
    ------
    UserError
        A row of another length than the first, a name that comes twice, or what :func:`read_fasta` raises.
    """
    lengths: dict[str, int] = {}
    headers: dict[str, int] = {}  # lines
    with spool.open("wb") as file:
        for line, name, tokens in read_fasta(path):
            if tokens is not None:
                lengths[name] += len(tokens)
                file.write(tokens)
            elif name in lengths:
                raise UserError(f"{path}, line {line:,}: {name} comes twice: every species has one row")
            else:
                lengths[name], headers[name] = 0, line
    first, columns = next(iter(lengths.items()))
    for name, length in lengths.items():
        if not columns:
            raise UserError(f"{path}, line {headers[first]:,}: {first} has no letters")
        if length != columns:
            raise UserError(
                f"{path}, line {headers[name]:,}: {name} has {length:,} letters, not the {columns:,} of the first row: "
                "rows of an alignment are equally long"
            )
    return Rows([*lengths], columns, np.memmap(spool, np.uint8, "r", shape=(len(lengths), columns)))


class FastaFiles(Source):
    """FASTA files whose rows are aligned to the first; each file is a contig. Columns where it has a gap are omitted.

    Parameters
    ----------
    files : sequence of Path
    listed : sequence of str, optional
        Species to keep; by default all, in order of appearance. A species without a row is unknown.
    contig : str, optional
        Name of the contig of a single file; by default that of the only record of `given`, or of the first row.
        Several files are contigs of their names.
    given : Path, optional
        The reference's own FASTA.
    folder : Path
        A folder for temporary files.
    progress : callable
        Called with a stage and the fraction of it that is done.

    Raises
    ------
    UserError
        As :func:`read_rows`; a listed species that no file has, files of other references, two files of one name, or a
        name for several files.
    """

    def __init__(
        self,
        files: Sequence[Path],
        listed: Sequence[str] | None,
        contig: str | None,
        given: Path | None,
        folder: Path,
        progress: Progress,
    ) -> None:
        self.files, self._progress = files, progress
        self._rows = [read_rows(file, folder / f"{number}.rows") for number, file in enumerate(files)]
        names = list(dict.fromkeys(name for rows in self._rows for name in rows.names))
        for name in listed or ():
            if name not in names:
                raise unknown("species", name, names)
        self._kept = [(rows.tokens[0] & _TOKEN) != GAP for rows in self._rows]
        for rows, kept, file in zip(self._rows, self._kept, files, strict=True):
            if rows.names[0] != names[0]:
                raise UserError(
                    f"{file}: the first row is {rows.names[0]!r}, and {names[0]!r} in {files[0]}: all files begin with "
                    "the row of one reference"
                )
            if not kept.any():
                raise UserError(f"{file}: the first row, which is the reference, has gaps alone")
        species = tuple(dict.fromkeys([names[0], *(names if listed is None else listed)]))
        contigs = _contigs(files, contig, given, names[0])
        self.layout = Layout(species, contigs, tuple(int(kept.sum()) for kept in self._kept))
        self.parts = [[number] for number in range(len(files))]
        columns = sum(rows.columns for rows in self._rows)
        self.counts = {"columns": columns, "inserted_columns": columns - self.layout.positions}

    def blocks(self, part: int, skipped: Collection[int]) -> Iterator[Placed]:
        """Yield the columns of a file, some at a time."""
        if part in skipped:
            return
        rows, done = self._rows[part], 0
        places = [rows.names.index(name) if name in rows.names else -1 for name in self.layout.species]
        for first in range(0, rows.columns, CHUNK):
            inside = self._kept[part][first : first + CHUNK]
            block = np.stack([rows.tokens[place, first : first + CHUNK][inside] for place in places], 1)
            block[:, 1:] &= _TOKEN
            block[:, [place < 0 for place in places]] = UNKNOWN
            yield Placed(part, done, block, str(self.files[part]))
            done += len(block)
            self._progress("turning rows into columns", (part + done / self.layout.lengths[part]) / len(self.files))


def _contigs(files: Sequence[Path], contig: str | None, given: Path | None, first: str) -> tuple[str, ...]:
    """Return the contigs of files."""
    if len(files) == 1:
        only = {piece.name for piece in read_fasta(given)} if given is not None and contig is None else set()
        return (contig or (only.pop() if len(only) == 1 else first),)
    if contig is not None:
        raise UserError("--contig names the contig of one FASTA file; several are named after their files")
    found: list[str] = []
    for file in files:
        name = file.name
        while name.lower().endswith(_ENDINGS):
            name = name[: name.rindex(".")]
        if name in found:
            raise UserError(f"two files are called {name}: a FASTA file is a contig, named after the file")
        found.append(name)
    return tuple(found)


def read_reference(path: Path, layout: Layout, out: UInt8[np.ndarray, " positions"]) -> None:
    """Write the tokens of the layout's contigs, from the reference's own FASTA, one after the other.

    Raises
    ------
    UserError
        A contig that is missing, comes twice or has another length, or a gap.
    """
    if kind_of(path) != "fasta":
        raise UserError(f"{path}: --reference takes a FASTA file")
    lengths: dict[str, int] = {}
    for line, name, tokens in read_fasta(path):
        number = layout.find(name)
        if number is None:
            continue
        if tokens is None:
            if name in lengths:
                raise UserError(f"{path}, line {line:,}: {name} comes twice")
            lengths[name] = 0
            continue
        if GAP in tokens:
            raise UserError(f"{path}, line {line:,}: {name} holds a gap: a reference has none")
        place = int(layout.offsets[number]) + lengths[name]
        lengths[name] += len(tokens)
        if lengths[name] <= layout.lengths[number]:
            out[place : place + len(tokens)] = np.frombuffer(tokens, np.uint8)
    for name, length in zip(layout.contigs, layout.lengths, strict=True):
        if name not in lengths:
            hint = nearest(name, lengths) if lengths else "its contigs have other names"
            raise UserError(f"{path}: has no contig {name!r}, which the alignment has: {hint}")
        if lengths[name] != length:
            raise UserError(
                f"{path}: {name} has {lengths[name]:,} positions, and {length:,} in the alignment: same assembly?"
            )
