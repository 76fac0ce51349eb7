"""Files of variants: VCF, tables of text, Parquet, and all substitutions of a region; rows are written as they were."""

import csv
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from itertools import chain, count, groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float32, UInt8

from r2mae.errors import UserError, nearest
from r2mae.files import atomic_path
from r2mae.genome.store.alignment import AlignmentStore
from r2mae.genome.store.intervals import read_regions
from r2mae.genome.store.sources import name_of, read_lines
from r2mae.genome.store.tokens import GAP, LETTERS
from r2mae.genome.variants.alleles import HEADER_ADVICE, REASON, REASONS, Block, bounded, find_columns

Kind = Literal["vcf", "tsv", "csv", "parquet"]
Scored = tuple[Block, Float32[np.ndarray, " n"], UInt8[np.ndarray, " n"]]
"""A block with scores and reasons."""

_REASONS = list(REASONS)
_READ = 1 << 16  # positions of a region that are read at a time
_GROUP = 16  # blocks of a row group of Parquet
_DIALECTS: dict[Kind, dict[str, Any]] = {
    "tsv": {"delimiter": "\t", "quoting": csv.QUOTE_NONE, "quotechar": None},
    "csv": {"delimiter": ","},
}
_SUFFIXES: dict[Kind, tuple[str, ...]] = {
    "vcf": (".vcf",),
    "tsv": (".tsv", ".txt", ".tab"),
    "csv": (".csv",),
    "parquet": (".parquet", ".pq"),
}
FORMATS = "VCF (.vcf, .vcf.gz), a table (.tsv, .csv, also .gz) or Parquet (.parquet)"
_FIXED = "#CHROM POS ID REF ALT QUAL FILTER INFO"
_INFO = 7  # its column
_DECLARED = "##INFO=<ID="
_MISSING = "."


class Variants(ABC):
    """Rows of variants that can be scored."""

    kind: Kind
    """The format of the output."""
    names: tuple[str, ...]
    """Columns, and for a VCF also keys of INFO."""

    @abstractmethod
    def blocks(self, size: int) -> Iterator[Block]:
        """Yield blocks of about so many rows, always the same ones."""

    @abstractmethod
    def values(self, block: Block, column: str) -> list[str]:
        """Return the values of a column as text, one for each alternative, empty where there is none."""

    @abstractmethod
    def write(self, output: Path, column: str, scored: Iterable[Scored]) -> None:
        """Write all rows with their scores and reasons, atomically."""


@contextmanager
def text_file(path: Path) -> Iterator[Callable[[bytes], Any]]:
    """Yield a function that writes text to a file, as bgzip if its name ends in .gz; it appears when all is written."""
    with atomic_path(path) as place:
        if path.suffix.lower() not in (".gz", ".bgz"):
            with place.open("wb") as file:
                yield file.write
            return
        try:
            from pysam import BGZFile
        except ImportError:
            raise UserError(f"{path}: bgzip needs pysam: pip install 'r2mae[genome]', or omit .gz") from None
        place.touch()  # the library crashes if it cannot make the file
        with BGZFile(str(place), "wb", index=None) as packed:
            yield packed.write


def kind_of(path: Path) -> Kind | None:
    """Return the format of a name, None for no format of variants."""
    name = path.name.lower()
    for packed in (".gz", ".bgz"):
        name = name.removesuffix(packed)
    for kind, suffixes in _SUFFIXES.items():
        if name.endswith(suffixes) and (kind != "parquet" or path.suffix.lower() in suffixes):
            return kind
    return None


def open_variants(path: Path) -> Variants:
    """Open a file of variants.

    Raises
    ------
    UserError
        No such file, a format that is not read, or no columns for contig, position and alleles.
    """
    if path.name.lower().endswith((".bcf", ".bcf.gz")):
        raise UserError(f"{path}: BCF is not read: bcftools view -Oz -o {path.stem}.vcf.gz {path}")
    kind = kind_of(path)
    if kind is None:
        raise UserError(f"{path}: variants are read from {FORMATS}")
    if path.is_dir() or not path.exists():
        raise UserError(f"{path}: there is no such file")
    if kind == "vcf":
        return VcfVariants(path)
    return ParquetVariants(path) if kind == "parquet" else TextVariants(path, kind)


def check_output(output: Path, kind: Kind) -> None:
    """Refuse an output of another format than the input has.

    Raises
    ------
    UserError
    """
    if kind_of(output) != kind:
        suffix = _SUFFIXES[kind][0]
        also = "" if kind == "parquet" else f" or {suffix}.gz"
        raise UserError(f"{output}: the rows are written as they were read: name a file that ends in {suffix}{also}")


def check_column(source: Variants, column: str) -> None:
    """Refuse a name for the scores that is not one, or that the rows have already.

    Raises
    ------
    UserError
    """
    if not column or any(not (letter.isalnum() or letter in "_.") for letter in column) or column[0].isdigit():
        raise UserError(f"--column is a name of letters, digits and _, not {column!r}")
    for name in (column, column + REASON):
        if name in source.names:
            raise UserError(f"the variants have {name!r} already: name the new column otherwise, --column NAME")


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
        with text_file(output) as write:

            def rows_out(rows: Iterable[Sequence[Any]]) -> None:
                text = StringIO()
                csv.writer(text, lineterminator="\n", **_DIALECTS[self.kind]).writerows(rows)
                write(text.getvalue().encode("utf-8", "surrogateescape"))

            write("".join(f"{line}\n" for line in self.before).encode("utf-8", "surrogateescape"))
            rows_out([[*self.names, column, column + REASON]])
            for block, scores, reasons in scored:
                pairs = zip(block.rows, scores.tolist(), reasons.tolist(), strict=True)
                rows_out(
                    [*row, *(("", _REASONS[code]) if code else (f"{score:.6g}", ""))] for row, score, code in pairs
                )


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
                    words = [_REASONS[code] or None for code in reasons.tolist()]
                    more = [arrow.array(scores, mask=reasons > 0), arrow.array(words, arrow.string())]
                    batches.append(arrow.RecordBatch.from_arrays([*block.rows.columns, *more], schema=schema))
                writer.write_table(arrow.Table.from_batches(batches))


class RegionVariants(TextVariants):
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

    def __init__(self, store: AlignmentStore, regions: Sequence[str]) -> None:
        self.path, self.kind, self.before = Path("the regions"), "tsv", []
        self.names, self.places = ("chrom", "pos", "ref", "alt"), (0, 1, 2, 3)
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


class VcfVariants(Variants):
    """A VCF, plain, bgzip or gzip.

    Rows stay text. Records of pysam round the numbers of INFO, and cannot be written if the header does not declare
    their contig and keys; plain gzip it does not read.

    Parameters
    ----------
    path : Path

    Raises
    ------
    UserError
        A file without a header.
    """

    kind = "vcf"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.header: list[str] = []
        for number, line in read_lines(path):
            text = line.decode("utf-8", "surrogateescape").removeprefix("\ufeff").rstrip("\r\n")
            if text.startswith("##") or not text:
                self.header += [text] if text else []
                continue
            columns = text.split("\t")
            if columns[:8] != _FIXED.split():
                raise UserError(
                    f"{path}, line {number:,}: a VCF has a header, ##fileformat=VCFv4.2 and then {_FIXED} divided by "
                    "tabs: add it, or name the columns of a table and call it .tsv"
                )
            self.header.append(text)
            break
        else:
            raise UserError(f"{path}: has no variants and no line {_FIXED}: fetch it again")
        columns[0] = columns[0].removeprefix("#")
        self._columns = {name: place for place, name in enumerate(columns)}
        keys = [line.removeprefix(_DECLARED).split(",")[0] for line in self.header if line.startswith(_DECLARED)]
        self.names = (*columns, *keys)
        self._above = number

    def _rows(self) -> Iterator[tuple[int, bytes]]:
        """Yield the lines of variants without their ends, which have to be there."""
        for number, line in read_lines(self.path):
            if not line.endswith(b"\n"):
                raise UserError(
                    f"{self.path}, line {number:,}: the file ends within this line: fetch it again, or end the line"
                )
            if number > self._above and (row := line.rstrip(b"\r\n")):
                if row.startswith(b"#"):
                    raise UserError(f"{self.path}, line {number:,}: a line of the header is among the variants")
                yield number, row

    def blocks(self, size: int) -> Iterator[Block]:
        """Yield blocks of so many rows.

        Raises
        ------
        UserError
            For a row with another number of columns than the header, or a position that is no number.
        """
        rows = self._rows()
        for number in count():
            if not (some := list(islice(rows, size))):
                return
            block = Block(number, [], [], [], [], [], [])
            for row, (line, text) in enumerate(some):
                if (found := text.count(b"\t") + 1) != len(self._columns):
                    raise UserError(
                        f"{self.path}, line {line:,}: has {found} columns divided by tabs, and the header "
                        f"{len(self._columns)}"
                    )
                contig, position, _, ref, alts, _ = text.split(b"\t", 5)
                try:
                    place = bounded(int(position))
                except ValueError:
                    shown = position.decode("utf-8", "replace")[:40]
                    raise UserError(f"{self.path}, line {line:,}: {shown!r} is no position") from None
                for alt in alts.decode("ascii", "replace").split(","):
                    block.owners.append(row)
                    block.contigs.append(contig.decode("utf-8", "surrogateescape"))
                    block.positions.append(place)
                    block.refs.append(ref.decode("ascii", "replace"))
                    block.alts.append(alt)
                block.rows.append(text)
            yield block

    def values(self, block: Block, column: str) -> list[str]:
        """Return the values of a column or a key of INFO, one for each alternative, empty where there is none."""
        place = self._columns.get(column)
        if place is not None:
            texts = [row.split(b"\t")[place].decode("utf-8", "replace") for row in block.rows]
            return [texts[owner] for owner in block.owners]
        rows = [_info_value(row.split(b"\t", 8)[_INFO], column.encode()) for row in block.rows]
        found = []
        for owner, group in groupby(block.owners):
            several, alts = rows[owner].split(","), len([*group])
            # A value for each alternative (Number=A), or one for all.
            found += several if len(several) == alts else [rows[owner]] * alts
        return found

    def write(self, output: Path, column: str, scored: Iterable[Scored]) -> None:
        """Write all rows with their scores and reasons."""
        meaning = "log p(alt) - log p(ref) with the position hidden, mean of both strands"
        why = "why it has no score: " + ", ".join(word for word in REASONS if word)
        added = [
            f'##INFO=<ID={name},Number=A,Type={kind},Description="{text}">'
            for name, kind, text in ((column, "Float", meaning), (column + REASON, "String", why))
        ]
        header = [*self.header[:-1], *added, self.header[-1]]
        with text_file(output) as write:
            write("".join(f"{line}\n" for line in header).encode("utf-8", "surrogateescape"))
            for block, scores, reasons in scored:
                entries = zip(block.owners, scores.tolist(), reasons.tolist(), strict=True)
                rows = []
                for owner, alternatives in groupby(entries, key=itemgetter(0)):
                    _, values, codes = zip(*alternatives, strict=True)
                    rows.append(_with_info(block.rows[owner], column, values, codes))
                write(b"".join(rows))


def _info_value(info: bytes, key: bytes) -> str:
    """Return the value of a key of INFO, "true" for a flag, and nothing where it is missing."""
    for entry in info.split(b";"):
        name, is_value, value = entry.partition(b"=")
        if name == key:
            return value.decode("utf-8", "replace") if is_value else "true"
    return ""


def _with_info(row: bytes, column: str, scores: Sequence[float], codes: Sequence[int]) -> bytes:
    """Return a line of a VCF with scores in INFO, and with reasons where one is missing."""
    fields = row.split(b"\t", 8)
    texts = (_MISSING if code else f"{score:.6g}" for score, code in zip(scores, codes, strict=True))
    entry = f"{column}={','.join(texts)}"
    if any(codes):
        entry += f";{column}{REASON}={','.join(_REASONS[code] or _MISSING for code in codes)}"
    fields[_INFO] = entry.encode() if fields[_INFO] in (b".", b"") else fields[_INFO] + b";" + entry.encode()
    return b"\t".join(fields) + b"\n"
