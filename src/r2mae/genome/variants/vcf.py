"""VCF: rows are written as they were read, with the score in INFO."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import count, groupby, islice
from operator import itemgetter
from pathlib import Path

from r2mae.errors import UserError
from r2mae.genome.store.sources import read_lines
from r2mae.genome.variants.alleles import REASON, REASONS, Block, bounded
from r2mae.genome.variants.rows import Scored, Variants, text_file

_FIXED = "#CHROM POS ID REF ALT QUAL FILTER INFO"
_INFO = 7  # its column
_DECLARED = "##INFO=<ID="
_MISSING = "."
_WORDS = [word or _MISSING for word in REASONS]


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
        entry += f";{column}{REASON}={','.join(_WORDS[code] for code in codes)}"
    fields[_INFO] = entry.encode() if fields[_INFO] in (b".", b"") else fields[_INFO] + b";" + entry.encode()
    return b"\t".join(fields) + b"\n"
