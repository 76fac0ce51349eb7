"""VCF, and tables of text: read and written row by row, plain, gzip or bgzip."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Float32, UInt8

from r2mae.errors import UserError, nearest
from r2mae.genome.store.sources import Stream
from r2mae.genome.variants.alleles import HEADER_ADVICE, REASON, REASONS, Block, find_columns
from r2mae.genome.variants.bgzip import text_file

LONGEST_ROW = 1 << 28
"""Bytes of a row; what is longer is no table."""

_VCF = ["CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO"]
_INFO = 7  # its column in a VCF
_DECLARED = b"##INFO=<ID="
_MISSING = "."  # in a VCF
_MARK = b"\xef\xbb\xbf"
_WORDS = list(REASONS)


class TextVariants:
    """A VCF or a table of text.

    Parameters
    ----------
    path : Path
    kind : {"vcf", "tsv", "csv"}

    Raises
    ------
    UserError
        No such file, no header, or no columns for contig, position and alleles.
    """

    def __init__(self, path: Path, kind: Literal["vcf", "tsv", "csv"]) -> None:
        self.path = path
        self.kind: Literal["vcf", "tsv", "csv"] = kind
        self.heard: Callable[[float], None] | None = None  # of how much of the file is read, from 0 to 1
        self.separator = b"," if kind == "csv" else b"\t"
        self.before: list[bytes] = []  # lines before the one that names the columns
        self.head, self.columns = b"", []
        self._above = 0  # lines of the file down to that one, blank ones among them
        for number, line in text_lines(path):
            if line.startswith(b"##"):
                self.before.append(line)
                continue
            self.head, self.columns, self._above = line, self._columns_of(number, line), number
            break
        if not self.columns:
            raise UserError(f"{path}: has no variants and no line that names columns: {HEADER_ADVICE}")

    def _columns_of(self, number: int, line: bytes) -> list[str]:
        names = [name.decode("utf-8", "replace") for name in line.lstrip(b"#").split(self.separator)]
        where = f"{self.path}, line {number:,}"
        if self.kind == "vcf":
            if not line.startswith(b"#CHROM\t") or names[:8] != _VCF:
                raise UserError(
                    f"{where}: a VCF has a header, ##fileformat=VCFv4.2 and then #CHROM POS ID REF ALT QUAL "
                    "FILTER INFO divided by tabs: add it, or name the columns of a table and call it .tsv"
                )
            self.places = (0, 1, 3, 4)
        else:
            self._refuse_quotes(number, line)
            self.places = find_columns(names, where)
        return names

    def check_name(self, column: str) -> None:
        """Refuse a name for the scores that the file has already."""
        for name in (column, column + REASON):
            taken = name in self.columns
            if self.kind == "vcf":
                mark = f"##INFO=<ID={name},".encode()
                taken = any(line.startswith(mark) for line in self.before)
            if taken:
                raise UserError(f"{self.path}: has {name!r} already: name the new column otherwise, --column NAME")

    def blocks(self, size: int) -> Iterator[Block]:
        """Yield blocks of so many rows.

        Raises
        ------
        UserError
            For a row of another number of columns, or a position that is no number: names file and line.
        """
        rows = text_lines(self.path, after=self._above, heard=self.heard)
        number = 0
        while some := list(islice(rows, size)):
            yield self._block(number, some)
            number += 1

    def _block(self, number: int, rows: Sequence[tuple[int, bytes]]) -> Block:
        contig, position, ref, alt = self.places
        most = 8 if self.kind == "vcf" else -1
        block = Block(number, [], [], [], [], [], [])
        for row, (line_number, line) in enumerate(rows):
            fields = line.split(self.separator, most)
            self._check_row(line_number, line, fields)
            try:
                place = int(fields[position])
            except ValueError:
                found = fields[position].decode("utf-8", "replace")[:40]
                raise UserError(f"{self.path}, line {line_number:,}: {found!r} is no position") from None
            alts = fields[alt].split(b",") if self.kind == "vcf" else [fields[alt]]
            for one in alts:
                block.owners.append(row)
                block.contigs.append(fields[contig].decode("utf-8", "surrogateescape"))
                block.positions.append(_bounded(place))
                block.refs.append(fields[ref].decode("ascii", "replace"))
                block.alts.append(one.decode("ascii", "replace"))
            block.rows.append(line)
        return block

    def _check_row(self, number: int, line: bytes, fields: Sequence[bytes]) -> None:
        if self.kind == "csv":
            self._refuse_quotes(number, line)
        if self.kind == "vcf":
            if line.startswith(b"#"):
                raise UserError(f"{self.path}, line {number:,}: a line of the header stands among the variants")
            if len(fields) < 8:
                raise UserError(
                    f"{self.path}, line {number:,}: has {len(fields)} columns divided by tabs, and a VCF 8 or more"
                )
        elif len(fields) != len(self.columns):
            raise UserError(
                f"{self.path}, line {number:,}: has {len(fields)} columns, and the header {len(self.columns)}"
            )

    def _refuse_quotes(self, number: int, line: bytes) -> None:
        if self.kind == "csv" and b'"' in line:
            raise UserError(f"{self.path}, line {number:,}: quotes are not read: divide the columns by tabs (.tsv)")

    def values(self, block: Block, column: str) -> list[str]:
        """Return the values of a column, a text for each alternative; of a VCF also of a key of INFO.

        Raises
        ------
        UserError
            If there is no such column.
        """
        if self.kind == "vcf" and column not in self.columns:
            rows = [_info_value(line.split(b"\t", 8)[_INFO], column.encode()) for line in block.rows]
            order = _order(block)
            several = [row.split(",") for row in rows]
            counts = np.bincount(block.owners, minlength=len(rows)).tolist()
            # A value for each alternative (Number=A), or one for all.
            return [
                several[owner][order[place]] if len(several[owner]) == counts[owner] else rows[owner]
                for place, owner in enumerate(block.owners)
            ]
        if column not in self.columns:
            raise UserError(f"{self.path}: has no column {column!r}: {nearest(column, self.columns)}")
        place = self.columns.index(column)
        found = [line.split(self.separator)[place].decode("utf-8", "replace") for line in block.rows]
        return [found[owner] for owner in block.owners]

    @property
    def names(self) -> tuple[str, ...]:
        """Columns; of a VCF also the keys of INFO that its header declares."""
        keys = (
            line[11:].split(b",", 1)[0].decode("utf-8", "replace") for line in self.before if line[:11] == _DECLARED
        )
        return (*self.columns, *keys)

    def write(
        self,
        output: Path,
        column: str,
        scored: Iterable[tuple[Block, Float32[np.ndarray, " n"], UInt8[np.ndarray, " n"]]],
    ) -> None:
        """Write all rows with their scores and reasons."""
        with text_file(output) as writer:
            writer.write(self._header(column))
            for block, scores, reasons in scored:
                writer.write(self._rows(block, column, scores, reasons))

    def _header(self, column: str) -> bytes:
        lines = list(self.before)
        if self.kind == "vcf":
            meaning = "log p(alt) - log p(ref) with the position hidden, mean of both strands"
            why = "why it has no score: " + ", ".join(word for word in REASONS if word)
            for name, kind, text in ((column, "Float", meaning), (column + REASON, "String", why)):
                lines.append(f'##INFO=<ID={name},Number=A,Type={kind},Description="{text}">'.encode())
            lines.append(self.head)
        else:
            lines.append(self.separator.join([self.head, column.encode(), (column + REASON).encode()]))
        return b"\n".join(lines) + b"\n"

    def _rows(
        self, block: Block, column: str, scores: Float32[np.ndarray, " n"], reasons: UInt8[np.ndarray, " n"]
    ) -> bytes:
        if self.kind != "vcf":
            return table_rows(block, self.separator, scores, reasons)
        told = [_MISSING if code else f"{one:.6g}" for one, code in zip(scores.tolist(), reasons.tolist(), strict=True)]
        why = [_WORDS[code] or _MISSING for code in reasons.tolist()]
        values: list[list[str]] = [[] for _ in block.rows]
        words: list[list[str]] = [[] for _ in block.rows]
        for owner, score, word in zip(block.owners, told, why, strict=True):
            values[owner].append(score)
            words[owner].append(word)
        return b"".join(_with_info(*row, column) for row in zip(block.rows, values, words, strict=True))


def table_rows(
    block: Block, separator: bytes, scores: Float32[np.ndarray, " n"], reasons: UInt8[np.ndarray, " n"]
) -> bytes:
    """Return lines of a table with two more columns, score and reason, one of which is empty."""
    pairs = zip(block.rows, scores.tolist(), reasons.tolist(), strict=True)
    return b"".join(
        separator.join([line, b"", _WORDS[code].encode()] if code else [line, f"{score:.6g}".encode(), b""]) + b"\n"
        for line, score, code in pairs
    )


def text_lines(path: Path, after: int = 0, heard: Callable[[float], None] | None = None) -> Iterator[tuple[int, bytes]]:
    """Yield number and bytes of every line after the first `after` that is not blank, without its end.

    A mark of UTF-8 before the first line, as of spreadsheets, is no part of it.

    Raises
    ------
    UserError
        A truncated or binary file, or an endless line.
    """
    with Stream(path) as stream:
        rest, number = b"", 1
        while piece := stream.read(1 << 20):
            if heard is not None:
                heard(stream.fraction)
            if b"\0" in piece:
                raise UserError(
                    f"{path}, line {number + piece[: piece.find(bytes(1))].count(bytes([10])):,}: holds a NUL byte: a "
                    "binary file is no table (bcftools view -Oz makes a VCF of a BCF)"
                )
            found = (rest + piece).split(b"\n")
            rest = found.pop()
            if len(rest) > LONGEST_ROW:
                raise UserError(f"{path}, line {number + len(found):,}: is longer than {LONGEST_ROW:,} bytes")
            for line in found:
                if number > after and (bare := _bare(line, number)):
                    yield number, bare
                number += 1
        if number > after and (bare := _bare(rest, number)):
            yield number, bare


def _bare(line: bytes, number: int) -> bytes:
    """Return a line without its end, and the first without the mark of UTF-8."""
    return (line.removeprefix(_MARK) if number == 1 else line).rstrip(b"\r")


def _bounded(position: int) -> int:
    """Return a position that fits 64 bits; what does not is outside of any contig."""
    return position if 0 <= position < 1 << 40 else 0


def _order(block: Block) -> list[int]:
    """Return which alternative of its row each is."""
    order: list[int] = []
    before = -1
    for owner in block.owners:
        order.append(order[-1] + 1 if owner == before else 0)
        before = owner
    return order


def _info_value(info: bytes, key: bytes) -> str:
    """Return the value of a key of INFO, "true" for a flag, and nothing where it is missing."""
    for entry in info.split(b";"):
        name, is_value, value = entry.partition(b"=")
        if name == key:
            return value.decode("utf-8", "replace") if is_value else "true"
    return ""


def _with_info(line: bytes, scores: list[str], words: list[str], column: str) -> bytes:
    """Return a row of a VCF with score and, where one is missing, the reason in INFO."""
    fields = line.split(b"\t", 8)
    said = f"{column}={','.join(scores)}"
    if any(word != _MISSING for word in words):
        said += f";{column}{REASON}={','.join(words)}"
    fields[_INFO] = said.encode() if fields[_INFO] in (b".", b"") else fields[_INFO] + b";" + said.encode()
    return b"\t".join(fields) + b"\n"
