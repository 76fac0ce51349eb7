"""Files of variants: VCF, tables of text, and Parquet; rows are written as they were. And which can be scored.

Rows of a VCF stay text: records of pysam round the numbers of INFO, and cannot be written if the header does not
declare their contig and keys.
"""

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby, islice
from math import isnan
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float32, Int64, UInt8

from r2mae.errors import UserError, nearest, reading
from r2mae.files import atomic_path, ordinary, warn_if_cut
from r2mae.genome.store.alignment import AlignmentStore
from r2mae.genome.store.contigs import Contigs
from r2mae.genome.store.intervals import POSITION, SHIFT
from r2mae.genome.store.sources import integer, name_of, read_lines
from r2mae.genome.store.tokens import GAP

REASONS = {
    "": "scored",
    "unknown_contig": "the store has no such contig",
    "outside_contig": "the position is past the contig's end, or below 1",
    "no_substitution": "an indel, several bases, a missing, symbolic or ambiguous allele, or no change",
    "reference_mismatch": "the store has another reference base there",
    "reference_unknown": "the store has no reference base there",
}
"""Why a variant has no score, in a word, and what that means. Codes are places in this list; 0 is scored."""

_CODES = {reason: code for code, reason in enumerate(REASONS)}
_BASES = {letter: code for code, letters in enumerate(("Aa", "Cc", "Gg", "Tt")) for letter in letters}

Numbers = Int64[np.ndarray, " sites"]
Logs = Float32[np.ndarray, "sites 4"]
SiteLogs = Callable[[Numbers, Numbers], Logs]
"""From contigs and positions (counted from 0) to log probabilities, or numbers whose differences are scores."""
Allele = tuple[str, int, str, str]
"""An alternative: contig, position (counted from 1), reference and alternative allele."""
Kind = Literal["vcf", "tsv", "csv", "parquet"]
REASON = "_reason"
"""What the name of the column with the reasons ends in, after that of the scores."""

_KINDS: dict[str, Kind] = {".vcf": "vcf", ".tsv": "tsv", ".txt": "tsv", ".csv": "csv", ".parquet": "parquet"}
_SPELLINGS = {
    "chrom": ("chrom", "chromosome", "contig", "chr"),
    "pos": ("pos", "position"),
    "ref": ("ref", "reference", "reference_allele", "ref_allele"),
    "alt": ("alt", "alternate", "alternative", "alternate_allele", "alt_allele"),
}
_ADVICE = "name its columns chrom, pos, ref, alt"
_WORDS = list(REASONS)
_FIXED = ["#CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO"]
_INFO = 7  # its column
_DECLARED = "##INFO=<ID="


class Block(NamedTuple):
    """Consecutive rows of a file (texts, or a record batch of pyarrow), their alternatives, and the row of each."""

    rows: Any
    owners: list[int]
    alleles: list[Allele]


Scored = tuple[Block, Float32[np.ndarray, " n"], UInt8[np.ndarray, " n"]]
"""A block with scores and reasons."""


@contextmanager
def text_file(path: Path) -> Iterator[Callable[[str], Any]]:
    """Yield a function that writes text to a file, as bgzip if its name ends in .gz; it appears when all is written."""
    with atomic_path(path) as place:
        file: Any
        if path.suffix.lower() in (".gz", ".bgz"):
            with reading(path, "omit .gz"):
                from pysam import BGZFile
            place.touch()  # the library crashes if it cannot make the file
            file = BGZFile(str(place), "wb", index=None)
        else:
            file = place.open("wb")
        with file:
            yield lambda text: file.write(text.encode("utf-8", "surrogateescape"))


def kind_of(path: Path) -> Kind | None:
    """Return the format of a name, None for no format of variants."""
    name = path.name.lower()
    kind = _KINDS.get(Path(name.removesuffix(".gz").removesuffix(".bgz")).suffix)
    return None if kind == "parquet" and not name.endswith(".parquet") else kind


def open_variants(path: Path) -> "Variants":
    """Open a file of variants, which needs columns for contig, position and alleles."""
    kind = kind_of(path)
    if kind is None:
        formats = "VCF (.vcf, .vcf.gz), a table (.tsv, .csv, also .gz) or Parquet (.parquet)"
        other = path.suffix.removeprefix(".").upper() or "a file without a suffix"
        raise UserError(f"{path}: variants are read from {formats}, not from {other}: convert it")
    if not ordinary(path).is_file():
        raise UserError(f"{path}: there is no such file")
    return ParquetVariants(path) if kind == "parquet" else Variants(path, kind)


def check_output(output: Path, kind: Kind) -> None:
    """Refuse an output of another format than the input has."""
    if kind_of(output) != kind:
        also = "" if kind == "parquet" else f" or .{kind}.gz"
        raise UserError(f"{output}: the rows are written as they were read: name a file that ends in .{kind}{also}")


def _find_columns(names: Sequence[str], where: str) -> list[int]:
    """Return the places of contig, position (counted from 1), reference and alternative; case means nothing."""
    places = []
    for name, spellings in _SPELLINGS.items():
        found = [place for place, one in enumerate(names) if one.strip().lstrip("#").lower() in spellings]
        if not found:
            raise UserError(f"{where}: no column is called {name}: {_ADVICE}")
        if len(found) > 1:
            both = " and ".join(names[place] for place in found[:2])
            raise UserError(f"{where}: {both} may both be {name}: rename one")
        places.append(found[0])
    return places


class Variants:
    """Rows of variants that can be scored: a VCF or a table of text (.tsv, .csv), plain, bgzip or gzip.

    A row is a line: also in a .csv, no field has a line break. The output has the same format.
    """

    names: tuple[str, ...]
    """Columns, and for a VCF also keys of INFO."""

    def __init__(self, path: Path, kind: Kind) -> None:
        self.path, self.kind = path, kind
        self.header: list[str] = []  # lines before the one that names the columns
        line, self.titles = next(self._lines(), (0, ""))
        self.columns = self._fields(self.titles, line)
        where = f"{path}, line {line:,}" if self.titles else f"{path}"
        if kind == "vcf" and self.columns[:8] != _FIXED:
            raise UserError(
                f"{where}: a VCF has a header, ##fileformat=VCFv4.2 and then {' '.join(_FIXED)} divided by tabs: "
                "add it, or name the columns of a table and call it .tsv"
            )
        if not self.titles:
            raise UserError(f"{path}: has no variants and no line that names columns: {_ADVICE}")
        self.places = _find_columns(self.columns, where)
        keys = [text.removeprefix(_DECLARED).split(",")[0] for text in self.header if text.startswith(_DECLARED)]
        self.names = (*(["CHROM", *self.columns[1:]] if kind == "vcf" else self.columns), *keys)

    def _lines(self) -> Iterator[tuple[int, str]]:
        """Yield number and text of the line that names the columns, and of all below; empty ones are omitted."""
        self.header = []
        is_header = True
        for number, line in read_lines(self.path):
            text = name_of(line).rstrip("\r\n")
            if is_header and text.startswith("##"):
                self.header.append(text)
            elif text.strip() or (text and not is_header):  # a row of tabs alone is a wrong row
                is_header = False
                if line[-1:] != b"\n":
                    if self.kind == "vcf":
                        end = "the file ends within this line: fetch it again, or end the line"
                        raise UserError(f"{self.path}, line {number:,}: {end}")
                    warn_if_cut(self.path, number)
                yield number, text

    def _fields(self, text: str, line: int = 0) -> list[str]:
        if self.kind != "csv":
            return text.split("\t")
        try:
            return next(csv.reader([text], strict=True), [])
        except csv.Error as error:
            raise UserError(f"{self.path}, line {line:,}: {error}") from None

    def blocks(self, size: int) -> Iterator[Block]:
        """Yield blocks of about so many rows, always the same ones; a wrong row raises a UserError."""
        lines = self._lines()
        next(lines)
        while some := list(islice(lines, size)):
            block = Block([text for _, text in some], [], [])
            for owner, (line, text) in enumerate(some):
                fields = self._fields(text, line)
                if len(fields) != len(self.columns):
                    raise UserError(
                        f"{self.path}, line {line:,}: has {len(fields)} columns divided by "
                        f"{'commas' if self.kind == 'csv' else 'tabs'}, and the header {len(self.columns)}"
                    )
                contig, position, ref, alts = [fields[place] for place in self.places]
                whole = integer(position.encode("utf-8", "surrogateescape"))
                if whole is None:
                    raise UserError(f"{self.path}, line {line:,}: {position[:40]!r} is no position")
                for alt in alts.split(",") if self.kind == "vcf" else (alts,):
                    block.owners.append(owner)
                    block.alleles.append((contig, whole, ref, alt))
            yield block

    def values(self, block: Block, column: str) -> list[str]:
        """Return the values of a column, of a VCF also of a key of INFO, for each alternative; empty where missing."""
        if self.kind != "vcf" or column in self.names[: len(self.columns)]:
            place = self._place(column)
            texts = [self._fields(row)[place] for row in block.rows]
            return [texts[owner] for owner in block.owners]
        found = []
        for owner, group in groupby(block.owners):
            value, alts = _info_value(block.rows[owner].split("\t", _INFO + 1)[_INFO], column), len([*group])
            several = value.split(",")  # a value for each alternative (Number=A), or one for all
            found += several if len(several) == alts else [value] * alts
        return found

    def write(self, output: Path, column: str, scored: Iterable[Scored]) -> None:
        """Write all rows with scores and reasons, atomically: of a VCF in INFO, of a table in two columns more."""
        names = (column, column + REASON)
        with text_file(output) as write:
            write("".join(f"{line}\n" for line in self.header))
            if self.kind == "vcf":
                why = "why it has no score: " + ", ".join(word for word in REASONS if word)
                meanings = ("log p(alt) - log p(ref) with the position hidden, mean of both strands", why)
                for name, kind, meaning in zip(names, ("Float", "String"), meanings, strict=True):
                    write(f'##INFO=<ID={name},Number=A,Type={kind},Description="{meaning}">\n')
                write(f"{self.titles}\n")
            else:
                write(self._row(self.titles, *names))
            for block, scores, reasons in scored:
                texts = ["" if isnan(score) else f"{score:.6g}" for score in scores.tolist()]
                words = [_WORDS[code] for code in reasons.tolist()]
                if self.kind == "vcf":
                    groups = groupby(zip(block.owners, texts, words, strict=True), key=itemgetter(0))
                    write("".join(_annotated(block.rows[owner], names, [*group]) for owner, group in groups))
                else:
                    write("".join(map(self._row, block.rows, texts, words)))

    def _row(self, text: str, score: str, reason: str) -> str:
        return ("," if self.kind == "csv" else "\t").join((text, score, reason)) + "\n"

    def check_column(self, column: str) -> None:
        """Refuse a name for the scores that is not one, or that the rows have already."""
        if not column or any(not (letter.isalnum() or letter in "_.") for letter in column) or column[0].isdigit():
            raise UserError(f"--column is a name of letters, digits and _, not {column!r}")
        self._refuse_used(column, self.names)

    def check_rows(self, block: Block, column: str) -> None:
        """Refuse a name for the scores that rows of a VCF have in INFO, declared or not."""
        for row in block.rows if self.kind == "vcf" else ():
            if column in row:
                self._refuse_used(
                    column, [entry.partition("=")[0] for entry in row.split("\t", _INFO + 1)[_INFO].split(";")]
                )

    def _refuse_used(self, column: str, used: Sequence[str]) -> None:
        for name in (column, column + REASON):
            if name in used:
                raise UserError(f"the variants have {name!r} already: name the new column otherwise, --column NAME")

    def _place(self, column: str) -> int:
        if column not in self.names:
            raise UserError(f"{self.path}: has no column {column!r}: {nearest(column, self.names)}")
        return self.names.index(column)


class ParquetVariants(Variants):
    """A Parquet file, whose rows are record batches of pyarrow; all of it is in memory."""

    def __init__(self, path: Path) -> None:
        self.path, self.kind = path, "parquet"
        with reading(path, "fetch it again"):
            import pyarrow
            from pyarrow.parquet import read_table

            self.table = read_table(path)
            self.table.validate(full=True)  # text may be damaged
        self.names = tuple(self.table.column_names)
        self.places = _find_columns(self.names, str(path))
        position = self.table.schema.field(self.places[1])
        if not pyarrow.types.is_integer(position.type):
            raise UserError(f"{path}: {position.name} holds {position.type}, and positions are whole numbers")

    def blocks(self, size: int) -> Iterator[Block]:
        """Yield blocks of at most so many rows."""
        for rows in self.table.to_batches(max_chunksize=size):
            contigs, positions, refs, alts = (rows.column(place).to_pylist() for place in self.places)
            whole = [one or 0 for one in positions]
            alleles = list(zip(_texts(contigs), whole, _texts(refs), _texts(alts), strict=True))
            yield Block(rows, list(range(len(rows))), alleles)

    def values(self, block: Block, column: str) -> list[str]:
        """Return the values of a column."""
        return _texts(block.rows.column(self._place(column)).to_pylist())

    def write(self, output: Path, column: str, scored: Iterable[Scored]) -> None:
        """Write all rows with their scores and reasons, one of which is null."""
        import pyarrow as arrow
        from pyarrow.parquet import write_table

        scores, words = list[float | None](), list[str | None]()
        for _, found, codes in scored:
            scores += [None if isnan(score) else score for score in found.tolist()]
            words += [_WORDS[code] or None for code in codes.tolist()]
        table = self.table.append_column(column, arrow.array(scores, arrow.float32()))
        with atomic_path(output) as path:
            write_table(table.append_column(column + REASON, arrow.array(words, arrow.string())), path)


def _texts(values: Iterable[Any]) -> list[str]:
    return ["" if one is None else str(one) for one in values]


def _annotated(row: str, names: tuple[str, str], entries: Sequence[tuple[int, str, str]]) -> str:
    """Return a row of a VCF with the scores of its alternatives, and with reasons where one is missing."""
    fields = row.split("\t", _INFO + 1)
    info = [] if fields[_INFO] in (".", "") else [fields[_INFO]]
    info.append(f"{names[0]}={','.join([score or '.' for _, score, _ in entries])}")
    if any(word for _, _, word in entries):
        info.append(f"{names[1]}={','.join([word or '.' for _, _, word in entries])}")
    fields[_INFO] = ";".join(info)
    return "\t".join(fields) + "\n"


def _info_value(info: str, key: str) -> str:
    """Return the value of a key of INFO, "true" for a flag, and nothing where it is missing."""
    for entry in info.split(";"):
        name, is_value, value = entry.partition("=")
        if name == key:
            return value if is_value else "true"
    return ""


@dataclass(frozen=True)
class Substitutions:
    """Alternatives as numbers: contig, position counted from 0, and alleles as 0 to 3 for A, C, G, T.

    These mean something where the reason, a place in :data:`REASONS`, is 0.
    """

    reasons: UInt8[np.ndarray, " n"]
    contigs: Int64[np.ndarray, " n"]
    positions: Int64[np.ndarray, " n"]
    refs: Int64[np.ndarray, " n"]
    alts: Int64[np.ndarray, " n"]

    @property
    def places(self) -> Int64[np.ndarray, " n"]:
        """Contig and position as one number."""
        found: Int64[np.ndarray, " n"] = self.contigs << SHIFT | self.positions
        return found


def substitutions(alleles: Sequence[Allele], store: AlignmentStore, known: Contigs | None = None) -> Substitutions:
    """Compare alternatives with a store, whose contigs are `known` by their names and synonyms.

    Lower-case alleles are what upper-case ones are. Longer alleles of equal length that differ in one base are a
    substitution of that base.
    """
    known = known or Contigs(store.layout)
    contigs: Int64[np.ndarray, " n"] = np.array([known.number(contig) for contig, *_ in alleles], np.int64)
    listed = (position - 1 if 0 < position < 1 << 40 else -1 for _, position, *_ in alleles)  # -1 is outside of any
    positions: Int64[np.ndarray, " n"] = np.fromiter(listed, np.int64, len(alleles))
    reasons = np.zeros(len(contigs), np.uint8)
    refs, alts = np.zeros_like(contigs), np.zeros_like(contigs)
    for place, (_, _, ref, alt) in enumerate(alleles):
        one, other = _BASES.get(ref), _BASES.get(alt)
        if one is None or other is None or one == other:
            shift = _only_difference(ref, alt)
            if shift is None:
                reasons[place] = _CODES["no_substitution"]
                continue
            one, other = _BASES[ref[shift]], _BASES[alt[shift]]
            positions[place] += shift
        refs[place], alts[place] = one, other
    reasons[contigs < 0] = _CODES["unknown_contig"]
    sizes = store.lengths[np.maximum(contigs, 0)]
    reasons[(reasons == 0) & ((positions < 0) | (positions >= sizes))] = _CODES["outside_contig"]
    left = np.flatnonzero(reasons == 0)
    there = store.reference_windows(contigs[left], positions[left], 1)[:, 0]
    reasons[left[there != refs[left]]] = _CODES["reference_mismatch"]
    reasons[left[there >= GAP]] = _CODES["reference_unknown"]
    return Substitutions(reasons, contigs, positions, refs, alts)


def _only_difference(ref: str, alt: str) -> int | None:
    """Return the place of the only base in which alleles of equal length differ, or None."""
    if len(ref) != len(alt) or not _BASES.keys() >= {*ref, *alt}:
        return None
    differ = [place for place, (one, other) in enumerate(zip(ref, alt, strict=True)) if _BASES[one] != _BASES[other]]
    return differ[0] if len(differ) == 1 else None


def scores_of(found: Substitutions, logs: SiteLogs) -> Float32[np.ndarray, " n"]:
    """Return log p(alt) − log p(ref) of substitutions, NaN where there is a reason; a site is predicted once."""
    scores = np.full(len(found.reasons), np.nan, np.float32)
    left = np.flatnonzero(found.reasons == 0)
    if len(left):
        sites, whose = np.unique(found.places[left], return_inverse=True)
        table = logs(sites >> SHIFT, sites & POSITION)
        scores[left] = table[whose, found.alts[left]] - table[whose, found.refs[left]]
    return scores
