"""Formats of text: plain, JSON lines, Parquet; .gz and .xz are unpacked while they are read."""

import gzip
import json
import lzma
import re
import zlib
from codecs import getincrementaldecoder
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader, RawIOBase
from pathlib import Path
from shlex import quote
from typing import Any

from r2mae.errors import UserError, nearest
from r2mae.training.memory import available_memory

LONGEST = 1 << 20
"""Characters after which a document is cut, at the end of a line where there is one: memory stays bounded."""
LONGEST_LINE = 1 << 26
"""Bytes of a line of JSON, and of a text in Parquet: what is longer is refused, since it has to be read whole."""
KINDS = ".txt, .jsonl (both also .gz or .xz) or .parquet"
_SUFFIXES = {".txt": "text", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet"}
_HALVES = re.compile("[\ud800-\udfff]")  # of surrogate pairs, which JSON can write and UTF-8 cannot
_TOO_LONG = "cut the document up, or fetch the file again if it should be smaller"
_DAMAGED = (EOFError, OSError, zlib.error, lzma.LZMAError)
_MARKS = {  # the first that fits: the mark of UTF-16 begins that of UTF-32
    b"\xff\xfe\0\0": "UTF-32",
    b"\0\0\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
_CONTROLS = re.compile(rb"[\0-\x06\x0e-\x1a\x1c-\x1f]")  # which no encoding of one byte uses in text
_Stream = BufferedReader | gzip.GzipFile | lzma.LZMAFile


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
def _opened(path: Path) -> Iterator[tuple[_Stream, BufferedReader]]:
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
        with gzip.GzipFile(fileobj=raw) if suffix == ".gz" else lzma.LZMAFile(raw) as unpacked:
            yield unpacked, raw


class _LineFeeds(RawIOBase):
    """A stream with every carriage return, alone or before a line feed, made a line feed."""

    def __init__(self, stream: _Stream) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        data = self._stream.read(len(buffer))
        if data.endswith(b"\r") and self._stream.peek(1)[:1] == b"\n":
            data = data[:-1]
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        buffer[: len(data)] = data
        return len(data)


def _check(path: Path, block: bytes) -> None:
    """Refuse a file whose first block is no text in UTF-8, or no JSON lines."""
    for mark, encoding in _MARKS.items():
        if block.startswith(mark):
            raise UserError(
                f"{path}: is {encoding}, not UTF-8: convert the text: iconv -f {encoding} -t UTF-8 OLD > NEW"
            )
    if b"\0" in block:
        raise UserError(f"{_binary(path)}; from a text, take NUL bytes out: tr -d '\\000' < OLD > NEW")
    if kind_of(path) == "json" and block.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"["):
        raise UserError(
            f"{path}: begins with a JSON array, expected one object a line: jq -c '.[]' OLD.json > NEW.jsonl"
        )


def _binary(path: Path) -> str:
    return f"{path}: looks binary, expected text: .txt and .jsonl in UTF-8, and .parquet, are read"


def _not_utf8(path: Path, number: int, block: bytes) -> UserError:
    """Tell other encodings, in whose texts control characters are rare, from what is no text."""
    if 50 * len(_CONTROLS.findall(block)) > len(block):
        return UserError(_binary(path))
    return UserError(
        f"{path}, line {number}: is not UTF-8: convert the file, such as with iconv -f LATIN1 -t UTF-8 OLD > NEW"
    )


def _lines(
    path: Path, limit: int, position: Position, span: tuple[float, float], *, whole: bool = False
) -> Iterator[tuple[int, str]]:
    """Yield line numbers and lines, in pieces of at most `limit` bytes; `whole`: longer lines are refused."""
    number, block = 1, b""
    decoder = getincrementaldecoder("utf-8")()
    size = max(path.stat().st_size, 1)
    with _opened(path) as (opened, raw):
        try:
            stream: _Stream = opened
            block = stream.peek(1)
            _check(path, block)
            if b"\r" in block[:-1] and b"\n" not in block:  # the last may be half a line end of Windows
                stream = BufferedReader(_LineFeeds(opened))
            while piece := stream.readline(limit):
                ended = piece.endswith(b"\n")
                if whole and len(piece) >= limit:
                    raise UserError(f"{path}, line {number}: is longer than {limit >> 20} MiB: {_TOO_LONG}")
                text = decoder.decode(piece, final=ended)
                yield number, text.removeprefix("\ufeff") if number == 1 else text
                number += ended
                if number % 64 == 0:
                    position.fraction = span[0] + span[1] * raw.tell() / size
            decoder.decode(b"", final=True)
            position.fraction = span[0] + span[1]
        except UnicodeDecodeError:
            raise _not_utf8(path, number, block) from None
        except _DAMAGED as error:
            raise UserError(f"{path}: is damaged at line {number} ({reason(error)}): fetch or write it again") from None
        except MemoryError:
            raise UserError(f"{path}, line {number}: needs more memory than there is: {_TOO_LONG}") from None


def read_plain(path: Path, heading: str | None, position: Position, span: tuple[float, float]) -> Iterator[str]:
    """Read plain text.

    Parameters
    ----------
    path : Path
        UTF-8, plain or .gz or .xz. Lines end as on Unix or Windows; as on old Macs where no other line end is near
        the beginning.
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
    for number, line in _lines(path, LONGEST_LINE, position, span, whole=True):
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


def read_parquet(path: Path, column: str, position: Position, span: tuple[float, float]) -> Iterator[str]:
    """Read one column of a Parquet file; the rest as :func:`read_plain`."""
    try:
        from pyarrow import ArrowException, parquet, types
    except ImportError:
        raise UserError(f"{path}: Parquet needs the library pyarrow: pip install 'r2mae[text]'") from None
    number = 0
    try:
        schema = parquet.read_schema(path)
        if column not in schema.names:
            texts = [field.name for field in schema if "string" in str(field.type) and not types.is_nested(field.type)]
            raise UserError(f"{path}: {_no_column(column, texts or schema.names)}")
        # As a dictionary, a text that stands in many rows is in memory once.
        alone = [] if types.is_nested(schema.field(column).type) else [column]
        with parquet.ParquetFile(path, read_dictionary=alone) as file:
            _check_groups(path, file.metadata, column)
            total = max(file.metadata.num_rows, 1)
            for batch in file.iter_batches(batch_size=256, columns=[column]):
                for value in batch.column(0):
                    number += 1
                    where = f"{path}, row {number}"
                    if _bytes_of(value) > LONGEST_LINE:
                        raise UserError(f"{where}: is longer than {LONGEST_LINE >> 20} MiB: {_TOO_LONG}")
                    yield text_of({column: value.as_py()}, column, where)
                position.fraction = span[0] + span[1] * number / total
    except MemoryError:  # pyarrow's own is both this and an ArrowException
        raise UserError(f"{path}: needs more memory than there is after row {number}: {_TOO_LONG}") from None
    except (ArrowException, ValueError, *_DAMAGED) as error:  # ValueError: text that is not UTF-8
        raise UserError(f"{path}: is damaged after row {number} ({reason(error)}): write it again") from None


def _check_groups(path: Path, metadata: Any, column: str) -> None:
    """Refuse a group of rows that does not unpack into free memory, where that is known."""
    free = available_memory()
    for place in range(metadata.num_row_groups):
        group = metadata.row_group(place)
        sizes = [
            group.column(at).total_uncompressed_size
            for at in range(group.num_columns)
            if group.column(at).path_in_schema.split(".")[0] == column
        ]
        if free is not None and sum(sizes) > free / 2:
            raise UserError(
                f"{path}: unpacks to {sum(sizes) / 1e9:,.0f} GB in row group {place + 1}, and {free / 1e9:,.1f} GB are "
                "free: write it with smaller row groups, or fetch it again if it should be smaller"
            )


def _bytes_of(value: Any) -> int:
    """Return the size of a text in bytes without making it; 0 for what is none."""
    value = getattr(value, "value", value) if hasattr(value, "dictionary") else value
    buffer = value.as_buffer() if value is not None and hasattr(value, "as_buffer") else None
    return 0 if buffer is None else int(buffer.size)


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
        texts = [str(name) for name, entry in row.items() if entry is None or isinstance(entry, str)]
        raise UserError(f"{where}: {_no_column(column, texts or [str(name) for name in row])}")
    text = row[column]
    if text is None:
        return ""
    if not isinstance(text, str):
        kind = type(text).__name__
        raise UserError(f"{where}: the column {column!r} holds {kind}, expected text: name another, --text-column NAME")
    if _HALVES.search(text):
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
