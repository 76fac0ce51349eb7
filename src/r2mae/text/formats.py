"""Files of text: plain, JSON lines, Parquet, FASTA; compressed files are unpacked while they are read."""

import bz2
import gzip
import json
import lzma
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader, TextIOWrapper
from pathlib import Path
from shlex import quote
from typing import IO, Any

from r2mae.errors import UserError, nearest

LONGEST = 1 << 20
"""Characters after which a document is cut, at the end of a line where there is one: memory stays bounded."""
KINDS = ".txt, .jsonl, .fasta (each also .gz, .xz, .bz2, .zst or .lz4) or .parquet"
_SUFFIXES = {
    **{".txt": "text", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet"},
    **dict.fromkeys((".fasta", ".fa", ".faa", ".fna"), "fasta"),
}
_SURROGATES = re.compile("[\ud800-\udfff]")  # JSON can write half of a pair; UTF-8 cannot, and marks wrong bytes so


def _arrow(raw: IO[bytes], kind: str) -> BufferedReader:
    from pyarrow import CompressedInputStream

    return BufferedReader(CompressedInputStream(raw, kind))


_UNPACKERS: dict[str, Any] = {
    ".gz": gzip.open,
    ".xz": lzma.open,
    ".bz2": bz2.open,
    ".zst": lambda raw: _arrow(raw, "zstd"),
    ".lz4": lambda raw: _arrow(raw, "lz4"),
}


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
    """Return "text", "json", "fasta" or "parquet", by the name; None for hidden files and all others."""
    packed = path.suffix.lower() in _UNPACKERS
    kind = _SUFFIXES.get(Path(path.stem if packed else path.name).suffix.lower())
    return None if path.name.startswith(".") or (kind == "parquet" and packed) else kind


@contextmanager
def reading(source: object, hint: str) -> Iterator[None]:
    """Turn the errors of libraries that read a file or data set into one line: what, why, what to do.

    Raises
    ------
    UserError
        For any error; those that are in one line already stay as they are.
    """
    try:
        yield
    except UserError:
        raise
    except ImportError as error:
        raise UserError(f"{source} needs the library {error.name or error}: pip install 'r2mae[text]'") from None
    except Exception as error:  # of many kinds: of the system, the network, the libraries; some raise plain Exception
        raise UserError(f"{source} cannot be read ({reason(error)}): {hint}") from error


def reason(error: BaseException) -> str:
    """Return a library's message on one line."""
    said = getattr(error, "strerror", None) or error
    return " ".join(str(said).split())[:160] or type(error).__name__


@contextmanager
def unpacked(path: Path) -> Iterator[tuple[BufferedReader, BufferedReader]]:
    """Open a file for its unpacked bytes; the second stream is the file itself, which knows how much was read."""
    with path.open("rb") as raw, _UNPACKERS.get(path.suffix.lower(), lambda file: file)(raw) as stream:
        yield stream, raw


def _lines(path: Path, position: Position) -> Iterator[tuple[int, str]]:
    """Yield line numbers and lines. Lines end as on any system; line ends become line feeds."""
    start = position.done
    with reading(path, "fetch or write it again"), unpacked(path) as (stream, raw):
        if b"\0" in stream.peek(1):
            raise UserError(f"{path}: is binary or UTF-16, expected text in UTF-8: convert it, or delete NUL bytes")
        with TextIOWrapper(stream, "utf-8-sig", errors="surrogateescape") as lines:
            for number, line in enumerate(lines, 1):
                if not line.isascii() and _SURROGATES.search(line):
                    hint = "convert the file, such as with iconv -f LATIN1 -t UTF-8 OLD > NEW"
                    raise UserError(f"{path}, line {number}: is not UTF-8: {hint}")
                yield number, line
                if number % 64 == 0:
                    position.done = start + raw.tell()
        position.done = start + path.stat().st_size


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
    length = 0
    for _, line in _lines(path, position):
        ends = line.isspace() if begins is None else begins(line.rstrip("\n")) is not None
        if ends or length >= LONGEST:
            yield "".join(parts)
            parts, length = [], 0
        if not line.isspace():
            parts.append(line)
            length += len(line)
    yield "".join(parts)


def read_fasta(path: Path, position: Position) -> Iterator[str]:
    """Read sequences in FASTA, each one a document in upper case, without line ends; see :func:`read_plain`."""
    parts: list[str] = []
    length, named = 0, False
    for number, line in _lines(path, position):
        if line.startswith(">") or length >= LONGEST:
            yield "".join(parts)
            parts, length = [], 0
        if line.startswith(">"):
            named = True
        elif named:
            parts.append("".join(line.split()).upper())
            length += len(parts[-1])
        elif not line.isspace():
            raise UserError(f"{path}, line {number}: expected FASTA, whose first line begins with >: rename it to .txt")
    yield "".join(parts)


def read_json_lines(path: Path, column: str, position: Position) -> Iterator[str]:
    """Read JSON lines, objects with the text in `column`; see :func:`read_plain`."""
    for number, line in _lines(path, position):
        if not line.isspace():
            where = f"{path}, line {number}"
            with reading(where, "expected a JSON object a line (from an array: jq -c '.[]' OLD.json > NEW.jsonl)"):
                row = json.loads(line)
            yield text_of(row, column, where)


def read_parquet(path: Path, column: str, position: Position) -> Iterator[str]:
    """Read one column of a Parquet file; see :func:`read_plain`."""
    number, start = 0, position.done
    with reading(path, "write it again"):
        from pyarrow import parquet

        with parquet.ParquetFile(path) as file:
            if column not in file.schema_arrow.names:
                raise _no_column(path, column, file.schema_arrow.names)
            for batch in file.iter_batches(batch_size=256, columns=[column]):
                for value in batch.column(0):
                    number += 1
                    yield text_of({column: value.as_py()}, column, f"{path}, row {number}")
                position.done = start + path.stat().st_size * number // max(file.metadata.num_rows, 1)


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
        raise _no_column(where, column, [str(name) for name in row])
    text = row[column]
    if text is None:
        return ""
    if not isinstance(text, str):
        kind = type(text).__name__
        raise UserError(f"{where}: the column {column!r} holds {kind}, expected text: name another, --text-column NAME")
    if not text.isascii() and _SURROGATES.search(text):
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _no_column(where: object, column: str, known: Sequence[str]) -> UserError:
    option = quote(known[0]) if len(known) == 1 else "NAME"
    return UserError(f"{where}: unknown column {column!r}: {nearest(column, known)} (--text-column {option})")


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
