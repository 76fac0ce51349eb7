"""Tables of variants: text, Parquet, and all substitutions of some regions."""

import csv
from collections.abc import Iterable, Iterator, Sequence
from io import StringIO
from itertools import chain, count, islice
from pathlib import Path
from typing import Any

import numpy as np

from r2mae.errors import UserError, nearest
from r2mae.files import atomic_path
from r2mae.genome.store.alignment import AlignmentStore
from r2mae.genome.store.intervals import read_regions
from r2mae.genome.store.sources import name_of, read_lines
from r2mae.genome.store.tokens import GAP, LETTERS
from r2mae.genome.variants.alleles import HEADER_ADVICE, REASON, REASONS, Block, bounded, find_columns
from r2mae.genome.variants.rows import Kind, Scored, Variants, text_file

_WORDS = list(REASONS)
_COLUMNS = ("chrom", "pos", "ref", "alt")
_READ = 1 << 16  # positions of a region that are read at a time
_GROUP = 16  # blocks of a row group of Parquet
_DIALECTS: dict[Kind, dict[str, Any]] = {
    "tsv": {"delimiter": "\t", "quoting": csv.QUOTE_NONE, "quotechar": None},
    "csv": {"delimiter": ","},
}


class TextVariants(Variants):
    """A table of text (.tsv, .csv), whose rows are lists of texts.

    Parameters
    ----------
    path : Path
    kind : {"tsv", "csv"}

    Raises
    ------
    UserError
        No line that names columns, or no columns for contig, position and alleles.
    """

    def __init__(self, path: Path, kind: Kind) -> None:
        self.path, self.kind = path, kind
        self.before: list[str] = []  # lines before the one that names the columns
        line, names = next(self._rows(), (0, []))
        if not names:
            raise UserError(f"{path}: has no variants and no line that names columns: {HEADER_ADVICE}")
        self.names = tuple(names)
        self.places = find_columns([names[0].lstrip("#"), *names[1:]], f"{path}, line {line:,}")

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        """Yield line and fields of the line that names the columns, and of all rows."""
        self.before = []
        above, lines = 0, read_lines(self.path)
        for above, line in lines:
            first = name_of(line.removeprefix(b"\xef\xbb\xbf") if above == 1 else line)
            if not first.startswith("##") and first.strip():
                break
            self.before += [first.rstrip("\r\n")] if first.strip() else []
        else:
            return
        texts = (name_of(line) for _, line in lines)
        reader = csv.reader(chain([first], texts), strict=True, **_DIALECTS[self.kind])
        try:
            for row in reader:
                if row:
                    yield above - 1 + reader.line_num, row
        except csv.Error as error:
            raise UserError(f"{self.path}, line {above - 1 + reader.line_num:,}: {error}") from None

    def blocks(self, size: int) -> Iterator[Block]:
        """Yield blocks of so many rows.

        Raises
        ------
        UserError
            For a row of another number of columns, or a position that is no whole number.
        """
        rows = self._rows()
        next(rows)
        for number in count():
            if not (some := list(islice(rows, size))):
                return
            positions = []
            for line, row in some:
                if len(row) != len(self.names):
                    raise UserError(
                        f"{self.path}, line {line:,}: has {len(row)} columns, and the header {len(self.names)}"
                    )
                try:
                    positions.append(bounded(int(row[self.places[1]])))
                except ValueError:
                    shown = row[self.places[1]][:40]
                    raise UserError(f"{self.path}, line {line:,}: {shown!r} is no position") from None
            contigs, refs, alts = ([row[self.places[n]] for _, row in some] for n in (0, 2, 3))
            yield Block(number, [row for _, row in some], list(range(len(some))), contigs, positions, refs, alts)

    def values(self, block: Block, column: str) -> list[str]:
        """Return the values of a column."""
        place = _place(self.path, self.names, column)
        return [row[place] for row in block.rows]

    def write(self, output: Path, column: str, scored: Iterable[Scored]) -> None:
        """Write all rows with their scores and reasons, one of which is empty."""
        _write_text(output, self.kind, self.before, [*self.names], column, scored)


class ParquetVariants(Variants):
    """A Parquet file, whose rows are record batches of pyarrow.

    Parameters
    ----------
    path : Path

    Raises
    ------
    UserError
        A file that cannot be read, or no columns for contig, position and alleles; or pyarrow is not installed.
    """

    kind = "parquet"

    def __init__(self, path: Path) -> None:
        self.path = path
        schema = self._open().schema_arrow
        self.names = tuple(schema.names)
        self.places = find_columns(self.names, str(path))
        if not _arrow().types.is_integer(kind := schema.field(self.places[1]).type):
            raise UserError(f"{path}: {self.names[self.places[1]]} holds {kind}, and positions are whole numbers")

    def _open(self) -> Any:
        arrow = _arrow()
        from pyarrow.parquet import ParquetFile

        try:
            return ParquetFile(self.path)
        except (arrow.ArrowException, OSError) as error:
            raise self._damaged("is no Parquet file that can be read", error) from None

    def _damaged(self, what: str, error: Exception) -> UserError:
        return UserError(f"{self.path}: {what} ({' '.join(str(error).split())[:120]}): fetch it again")

    def blocks(self, size: int) -> Iterator[Block]:
        """Yield blocks of at most so many rows."""
        arrow = _arrow()
        try:
            for number, batch in enumerate(self._open().iter_batches(batch_size=size)):
                contigs, positions, refs, alts = (batch.column(place).to_pylist() for place in self.places)
                texts = (["" if one is None else str(one) for one in values] for values in (contigs, refs, alts))
                contigs, refs, alts = texts
                whole = [bounded(one or 0) for one in positions]
                yield Block(number, batch, list(range(len(refs))), contigs, whole, refs, alts)
        except (arrow.ArrowException, OSError) as error:
            raise self._damaged("is damaged", error) from None

    def values(self, block: Block, column: str) -> list[str]:
        """Return the values of a column as text, empty where there is none."""
        found = block.rows.column(_place(self.path, self.names, column)).to_pylist()
        return ["" if one is None else str(one) for one in found]

    def write(self, output: Path, column: str, scored: Iterable[Scored]) -> None:
        """Write all rows with their scores and reasons, one of which is null."""
        arrow = _arrow()
        from pyarrow.parquet import ParquetWriter

        schema = self._open().schema_arrow
        for name, kind in ((column, arrow.float32()), (column + REASON, arrow.string())):
            schema = schema.append(arrow.field(name, kind))
        with atomic_path(output) as path, ParquetWriter(path, schema) as writer:
            scored = iter(scored)
            while group := list(islice(scored, _GROUP)):
                batches = []
                for block, scores, reasons in group:
                    words = [_WORDS[code] or None for code in reasons.tolist()]
                    more = [arrow.array(scores, mask=reasons > 0), arrow.array(words, arrow.string())]
                    batches.append(arrow.RecordBatch.from_arrays([*block.rows.columns, *more], schema=schema))
                writer.write_table(arrow.Table.from_batches(batches))


class RegionVariants(Variants):
    """All three alternatives of every base of some regions; positions without a reference base are omitted.

    Parameters
    ----------
    store : AlignmentStore
    regions : sequence of str
        Contigs, intervals such as chr1:1,001-2,000 (counted from 1), or BED files.

    Raises
    ------
    UserError
        For a region that the store has not.
    """

    kind = "tsv"
    names = _COLUMNS

    def __init__(self, store: AlignmentStore, regions: Sequence[str]) -> None:
        self.store = store
        self.intervals = read_regions(regions, store.layout)

    def blocks(self, size: int) -> Iterator[Block]:
        """Yield blocks of about so many rows; the alternatives of a position are never in two."""
        sites = self._sites()
        for number in count():
            if not (some := list(islice(sites, max(size // 3, 1)))):
                return
            rows = [
                (contig, position + 1, LETTERS[ref], LETTERS[alt])
                for contig, position, ref in some
                for alt in range(GAP)
                if alt != ref
            ]
            contigs, positions, refs, alts = (list(column) for column in zip(*rows, strict=True))
            yield Block(number, rows, list(range(len(rows))), contigs, positions, refs, alts)

    def _sites(self) -> Iterator[tuple[str, int, int]]:
        for contig, start, end in self.intervals.rows():
            name = self.store.contigs[contig]
            for first in range(start, end, _READ):
                number = min(_READ, end - first)
                tokens = self.store.reference_windows(np.array([contig]), np.array([first]), number)[0]
                for place in np.flatnonzero(tokens < GAP).tolist():
                    yield name, first + place, int(tokens[place])

    def values(self, block: Block, column: str) -> list[str]:
        """Return the values of a column."""
        place = _place(Path("the regions"), self.names, column)
        return [str(row[place]) for row in block.rows]

    def write(self, output: Path, column: str, scored: Iterable[Scored]) -> None:
        """Write a table of text with chrom, pos, ref, alt, score and reason."""
        _write_text(output, self.kind, [], [*_COLUMNS], column, scored)


def _write_text(
    output: Path, kind: Kind, before: list[str], names: list[str], column: str, scored: Iterable[Scored]
) -> None:
    """Write a table with two more columns, score and reason, one of which is empty."""
    with text_file(output) as write:

        def rows_out(rows: Iterable[Sequence[Any]]) -> None:
            text = StringIO()
            csv.writer(text, lineterminator="\n", **_DIALECTS[kind]).writerows(rows)
            write(text.getvalue().encode("utf-8", "surrogateescape"))

        write("".join(f"{line}\n" for line in before).encode("utf-8", "surrogateescape"))
        rows_out([[*names, column, column + REASON]])
        for block, scores, reasons in scored:
            pairs = zip(block.rows, scores.tolist(), reasons.tolist(), strict=True)
            rows_out([*row, *(("", _WORDS[code]) if code else (f"{score:.6g}", ""))] for row, score, code in pairs)


def _place(path: Path, names: Sequence[str], column: str) -> int:
    if column not in names:
        raise UserError(f"{path}: has no column {column!r}: {nearest(column, names)}")
    return names.index(column)


def _arrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise UserError("Parquet needs pyarrow: pip install pyarrow") from None
    return pyarrow
