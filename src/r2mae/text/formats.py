"""Files of text: plain, JSON lines, Parquet; .gz, .xz and .bz2 are unpacked while they are read."""

import bz2
import gzip
import json
import lzma
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader, TextIOWrapper
from pathlib import Path
from shlex import quote
from typing import Any

from r2mae.errors import UserError, nearest

LONGEST = 1 << 20
"""Characters after which a document is cut, at the end of a line where there is one: memory stays bounded."""
LONGEST_LINE = 1 << 26
"""Characters of a line of JSON; a longer one is refused, since it has to be read completely."""
KINDS = ".txt, .jsonl (both also .gz, .xz or .bz2) or .parquet"
_SUFFIXES = {".txt": "text", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet"}
_UNPACKERS: dict[str, Any] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
_SURROGATES = re.compile("[\ud800-\udfff]")  # JSON can write half of a pair, and UTF-8 cannot
_DAMAGED = (EOFError, OSError, MemoryError, zlib.error, lzma.LZMAError)
_MARKS = {b"\xff\xfe\0\0": "UTF-32", b"\0\0\xfe\xff": "UTF-32", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}


@dataclass
class Position:
    """How much of a corpus has been read.

    Parameters
    ----------
    done : int
        Bytes of its files, or rows.
    total : int, optional
        All of them; None if unknown, as in a stream.
    """

    done: int = 0
    total: int | None = None


def kind_of(path: Path) -> str | None:
    """Return "text", "json" or "parquet", by the name; None for hidden files and all others."""
    packed = path.suffix.lower() in _UNPACKERS
    kind = _SUFFIXES.get(Path(path.stem if packed else path.name).suffix.lower())
    return None if path.name.startswith(".") or (kind == "parquet" and packed) else kind


@contextmanager
def _opened(path: Path) -> Iterator[tuple[BufferedReader, BufferedReader]]:
    """Open a file for its unpacked bytes; the second stream is the file itself, which knows how much was read."""
    try:
        raw = path.open("rb")
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    with raw:
        unpack = _UNPACKERS.get(path.suffix.lower())
        if unpack is None:
            yield raw, raw
        else:
            with unpack(raw) as unpacked:
                yield unpacked, raw


def _check_beginning(path: Path, block: bytes) -> None:
    """Refuse a file that is not UTF-8, binary, or a JSON array, by its first bytes."""
    for mark, encoding in _MARKS.items():
        if block.startswith(mark):
            raise UserError(f"{path}: is {encoding}, not UTF-8: convert it: iconv -f {encoding} -t UTF-8 OLD > NEW")
    if b"\0" in block:
        raise UserError(
            f"{path}: looks binary, expected text in UTF-8; from a text, delete NUL bytes: tr -d '\\000' < OLD > NEW"
        )
    if kind_of(path) == "json" and block.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"["):
        raise UserError(
            f"{path}: begins with a JSON array, expected one object a line: jq -c '.[]' OLD.json > NEW.jsonl"
        )


def _lines(path: Path, limit: int, position: Position, *, whole: bool = False) -> Iterator[tuple[int, str]]:
    """Yield line numbers and lines, in pieces of at most `limit` characters; `whole`: longer lines are refused.

    Lines end as on any system; line ends become line feeds.
    """
    number, start = 1, position.done
    with _opened(path) as (stream, raw):
        try:
            _check_beginning(path, stream.peek(1))
            lines = TextIOWrapper(stream, "utf-8-sig")
            while piece := lines.readline(limit):
                if whole and len(piece) >= limit:
                    raise UserError(f"{path}, line {number}: is longer than {limit >> 20} Mi characters: cut it up")
                yield number, piece
                number += piece.endswith("\n")
                if number % 64 == 0:
                    position.done = start + raw.tell()
        except UnicodeDecodeError:
            raise UserError(
                f"{path}, line {_first_bad_line(path)}: is not UTF-8: convert the file, such as with "
                "iconv -f LATIN1 -t UTF-8 OLD > NEW"
            ) from None
        except _DAMAGED as error:
            raise UserError(f"{path}: is damaged at line {number} ({reason(error)}): fetch or write it again") from None
    position.done = start + path.stat().st_size


def _first_bad_line(path: Path) -> int:
    """Return the number of the first line that is not UTF-8; streams decode in blocks, and cannot tell."""
    number = 1
    with _opened(path) as (stream, _):
        while line := stream.readline(LONGEST_LINE):
            try:
                line.decode()
            except UnicodeDecodeError:
                break
            number += 1
    return number


def read_plain(path: Path, heading: str | None, position: Position) -> Iterator[str]:
    """Read plain text in UTF-8.

    Parameters
    ----------
    path : Path
        The file.
    heading : str or None
        Pattern of the line that begins a document; None: documents are separated by blank lines.
    position : Position
        Is kept up to date.
    """
    begins = re.compile(heading).fullmatch if heading else None
    parts: list[str] = []
    length, fresh = 0, True  # whether a line begins with this piece
    for _, line in _lines(path, LONGEST, position):
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


def read_json_lines(path: Path, column: str, position: Position) -> Iterator[str]:
    """Read JSON lines, objects with the text in `column`; see :func:`read_plain`."""
    for number, line in _lines(path, LONGEST_LINE, position, whole=True):
        if line.isspace():
            continue
        where = f"{path}, line {number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(
                f"{where}: is not JSON ({reason(error)}): expected an object a line, as jq -c . writes it"
            ) from None
        yield text_of(row, column, where)


def read_parquet(path: Path, column: str, position: Position) -> Iterator[str]:
    """Read one column of a Parquet file; see :func:`read_plain`."""
    try:
        from pyarrow import ArrowException, parquet, types
    except ImportError:
        raise UserError(f"{path}: Parquet needs the library pyarrow: pip install 'r2mae[text]'") from None
    number, start, size = 0, position.done, path.stat().st_size
    try:
        schema = parquet.read_schema(path)
        if column not in schema.names:
            texts = [field.name for field in schema if "string" in str(field.type) and not types.is_nested(field.type)]
            raise UserError(f"{path}: {_no_column(column, texts or schema.names)}")
        # As a dictionary, a text that many rows share is in memory once.
        shared = [] if types.is_nested(schema.field(column).type) else [column]
        with parquet.ParquetFile(path, read_dictionary=shared) as file:
            for batch in file.iter_batches(batch_size=256, columns=[column]):
                for value in batch.column(0):
                    number += 1
                    yield text_of({column: value.as_py()}, column, f"{path}, row {number}")
                position.done = start + size * number // max(file.metadata.num_rows, 1)
    except (ArrowException, ValueError, *_DAMAGED) as error:  # ValueError: text that is not UTF-8
        raise UserError(f"{path}: is damaged after row {number} ({reason(error)}): write it again") from None


def text_of(row: Any, column: str, where: str) -> str:
    """Return the text of a row; a missing value is an empty document.

    Raises
    ------
    UserError
        If the column is missing or holds no text.
    """
    if not isinstance(row, Mapping):
        raise UserError(f"{where}: expected an object with the column {column!r}, not {type(row).__name__}")
    if column not in row:
        texts = [str(name) for name, entry in row.items() if entry is None or isinstance(entry, str)]
        raise UserError(f"{where}: {_no_column(column, texts or [str(name) for name in row])}")
    text = row[column]
    if text is None:
        return ""
    if not isinstance(text, str):
        kind = type(text).__name__
        raise UserError(f"{where}: the column {column!r} holds {kind}, expected text: name another, --text-column NAME")
    if _SURROGATES.search(text):
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _no_column(column: str, known: Sequence[str]) -> str:
    if not known:
        return f"unknown column {column!r}: there is none at all"
    meant = nearest(column, known)
    near = [name for name in known if meant == f"did you mean {name!r}?"]
    option = quote((near or known)[0]) if near or len(known) == 1 else "NAME"
    return f"unknown column {column!r}: {meant} (--text-column {option})"


def cut(texts: Iterable[str]) -> Iterator[str]:
    """Omit empty texts, and cut those that are longer than :data:`LONGEST`."""
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
    """Return a library's message on one line."""
    return " ".join(str(error).split())[:160] or type(error).__name__
