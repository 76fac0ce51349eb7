"""Formats of text: plain, JSON lines, Parquet; .gz and .xz are unpacked while they are read."""

import gzip
import json
import lzma
import re
import zlib
from codecs import getincrementaldecoder
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from r2mae.errors import UserError, unknown

LONGEST = 1 << 20
"""Characters after which a document is cut, at the end of a line where there is one: memory stays bounded."""
KINDS = ".txt, .jsonl (both also .gz or .xz) or .parquet"
_SUFFIXES = {".txt": "text", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet"}
_HALVES = re.compile("[\ud800-\udfff]")  # of surrogate pairs, which JSON can write and UTF-8 cannot
_DAMAGED = (EOFError, OSError, zlib.error, lzma.LZMAError)


@dataclass
class Position:
    """How far the reading of a corpus has come.

    Parameters
    ----------
    fraction : float, optional
        In [0, 1]; None where the size is unknown, as in a stream.
    """

    fraction: float | None = None


def kind_of(path: Path) -> str | None:
    """Return "text", "json" or "parquet", by the name; None for hidden files and all others."""
    name = path.name.lower()
    if name.startswith("."):
        return None
    bare = name.removesuffix(".gz").removesuffix(".xz")
    kind = _SUFFIXES.get(Path(bare).suffix)
    return None if kind == "parquet" and bare != name else kind


@contextmanager
def _opened(path: Path) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Open a file for its bytes; the second stream is the one on the disk, which knows how far reading has come."""
    try:
        raw = path.open("rb")
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    with raw:
        suffix = path.suffix.lower()
        if suffix not in (".gz", ".xz"):
            yield raw, raw
            return
        with cast(IO[bytes], gzip.open(raw) if suffix == ".gz" else lzma.open(raw)) as unpacked:
            yield unpacked, raw


def _lines(path: Path, limit: int, position: Position, span: tuple[float, float]) -> Iterator[tuple[int, str]]:
    """Yield line numbers and lines, in pieces of at most `limit` bytes (-1: whole)."""
    number = 1
    decoder = getincrementaldecoder("utf-8")()
    size = max(path.stat().st_size, 1)
    with _opened(path) as (stream, raw):
        try:
            while piece := stream.readline(limit):
                ended = piece.endswith(b"\n")
                text = decoder.decode(piece, final=ended)
                yield number, text.removeprefix("\ufeff") if number == 1 else text
                number += ended
                if number % 64 == 0:
                    position.fraction = span[0] + span[1] * raw.tell() / size
            decoder.decode(b"", final=True)
            position.fraction = span[0] + span[1]
        except UnicodeDecodeError:
            raise UserError(
                f"{path}, line {number}: is not UTF-8: convert the file, such as with iconv -f LATIN1 -t UTF-8"
            ) from None
        except _DAMAGED as error:
            raise UserError(f"{path}: is damaged at line {number} ({reason(error)}): fetch or write it anew") from None


def read_plain(path: Path, heading: str | None, position: Position, span: tuple[float, float]) -> Iterator[str]:
    """Read plain text.

    Parameters
    ----------
    path : Path
        UTF-8, plain or .gz or .xz.
    heading : str or None
        Pattern of the line that begins a document; None: documents are set apart by blank lines.
    position : Position
        Kept up to date.
    span : (start, length)
        The part of all reading that this file is.
    """
    begins = re.compile(heading).fullmatch if heading else None
    parts: list[str] = []
    length, fresh = 0, True  # whether a line begins with this piece
    for _, piece in _lines(path, LONGEST, position, span):
        line = piece[:-2] + "\n" if piece.endswith("\r\n") else piece
        blank = fresh and line.endswith("\n") and line.isspace()
        ends = blank if begins is None else fresh and begins(line.rstrip("\n")) is not None
        if ends or length >= LONGEST:
            yield "".join(parts)
            parts, length = [], 0
        if not blank:
            parts.append(line)
            length += len(line)
        fresh = line.endswith("\n")
    yield "".join(parts)


def read_json_lines(path: Path, column: str, position: Position, span: tuple[float, float]) -> Iterator[str]:
    """Read JSON lines, objects with the text in `column`; the rest as :func:`read_plain`."""
    for number, line in _lines(path, -1, position, span):
        if line.isspace():
            continue
        where = f"{path}, line {number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{where}: is not JSON ({reason(error)}): expected an object a line") from None
        yield text_of(row, column, where)


def read_parquet(path: Path, column: str, position: Position, span: tuple[float, float]) -> Iterator[str]:
    """Read one column of a Parquet file; the rest as :func:`read_plain`."""
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise UserError(f"{path}: Parquet needs the library pyarrow: pip install 'r2mae[text]'") from None
    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            if column not in file.schema_arrow.names:
                raise UserError(f"{path}: {unknown('column', column, file.schema_arrow.names)}")
            total = max(file.metadata.num_rows, 1)
            for batch in file.iter_batches(batch_size=256, columns=[column]):
                for text in batch.column(0).to_pylist():
                    number += 1
                    yield text_of({column: text}, column, f"{path}, row {number}")
                position.fraction = span[0] + span[1] * number / total
    except (ArrowException, *_DAMAGED) as error:
        raise UserError(f"{path}: is damaged after row {number} ({reason(error)}): write it anew") from None


def text_of(row: Any, column: str, where: str) -> str:
    """Return the text of a row; none is an empty document.

    Raises
    ------
    UserError
        If the column is missing or holds no text.
    """
    if not isinstance(row, Mapping):
        raise UserError(f"{where}: expected an object with the column {column!r}, not {type(row).__name__}")
    if column not in row:
        raise UserError(f"{where}: {unknown('column', column, map(str, row))}")
    text = row[column]
    if text is None:
        return ""
    if not isinstance(text, str):
        raise UserError(f"{where}: the column {column!r} holds {type(text).__name__}, expected text")
    if _HALVES.search(text):
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def cut(texts: Iterable[str]) -> Iterator[str]:
    """Leave out what is empty, and cut what is longer than :data:`LONGEST`."""
    for text in texts:
        rest = text.strip("\r\n")
        while len(rest) > LONGEST:
            at = rest.rfind("\n", 1, LONGEST) + 1 or LONGEST
            if piece := rest[:at].strip("\r\n"):
                yield piece
            rest = rest[at:]
        if rest and not rest.isspace():
            yield rest


def reason(error: BaseException) -> str:
    """Return what a library said, on one line."""
    return " ".join(str(error).split())[:160] or type(error).__name__
