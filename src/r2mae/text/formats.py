"""Files of text: plain, JSON lines, Parquet, FASTA; compressed files are unpacked while they are read."""

import bz2
import gzip
import json
import lzma
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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
PLAIN = (".txt", ".fasta", ".fa", ".faa", ".fna")
"""Endings of files that have about one character a byte of text."""
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
    """Return a library's message on one line, with the file that is missing; of the Hub, that it is not reachable."""
    cause: BaseException | None = error
    while cause is not None:
        if type(cause).__name__ == "LocalEntryNotFoundError":  # of huggingface_hub, for what was not fetched before
            return "no folder of that name, and the Hub is not reachable"
        cause = cause.__cause__
    said = getattr(error, "strerror", None) or error
    if isinstance(error, FileNotFoundError) and error.filename:
        said = f"{said}: {error.filename}"
    return " ".join(str(said).split())[:160] or type(error).__name__


@contextmanager
def unpacked(path: Path) -> Iterator[BufferedReader]:
    """Open a file for its unpacked bytes."""
    with path.open("rb") as raw, _UNPACKERS.get(path.suffix.lower(), lambda file: file)(raw) as stream:
        yield stream


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line numbers and lines. Lines end as on any system; line ends become line feeds."""
    with reading(path, "fetch or write it again"), unpacked(path) as stream:
        if b"\0" in stream.peek(1):
            raise UserError(f"{path}: is binary or UTF-16, expected text in UTF-8: convert it, or delete NUL bytes")
        with TextIOWrapper(stream, "utf-8-sig", errors="surrogateescape") as lines:
            for number, line in enumerate(lines, 1):
                if not line.isascii() and _SURROGATES.search(line):
                    hint = "convert the file, such as with iconv -f LATIN1 -t UTF-8 OLD > NEW"
                    raise UserError(f"{path}, line {number}: is not UTF-8: {hint}")
                yield number, line


def read_file(path: Path, column: str, heading: str | None = None) -> Iterator[str]:
    """Read the texts of a file by its kind.

    Parameters
    ----------
    path : Path
    column : str
        The text's column of JSON lines and Parquet.
    heading : str, optional
        Pattern of the line that begins a document of plain text; by default documents are separated by blank lines.
    """
    kind = kind_of(path)
    if kind == "text":
        return _read_plain(path, heading)
    if kind == "fasta":
        return _read_fasta(path)
    return _read_parquet(path, column) if kind == "parquet" else _read_json_lines(path, column)


def _read_plain(path: Path, heading: str | None) -> Iterator[str]:
    begins = re.compile(heading).fullmatch if heading else None
    parts: list[str] = []
    length = 0
    for _, line in _lines(path):
        ends = line.isspace() if begins is None else begins(line.rstrip("\n")) is not None
        if ends or length >= LONGEST:
            yield "".join(parts)
            parts, length = [], 0
        if not line.isspace():
            parts.append(line)
            length += len(line)
    yield "".join(parts)


def _read_fasta(path: Path) -> Iterator[str]:
    """Read sequences, each one a document in upper case, without line ends."""
    parts: list[str] = []
    length, named = 0, False
    for number, line in _lines(path):
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


def _read_json_lines(path: Path, column: str) -> Iterator[str]:
    for number, line in _lines(path):
        if not line.isspace():
            where = f"{path}, line {number}"
            with reading(where, "expected a JSON object a line (from an array: jq -c '.[]' OLD.json > NEW.jsonl)"):
                row = json.loads(line)
            yield text_of(row, column, where)


def _read_parquet(path: Path, column: str) -> Iterator[str]:
    number = 0
    with reading(path, "write it again"):
        from pyarrow import parquet

        with parquet.ParquetFile(path) as file:
            if column not in file.schema_arrow.names:
                raise _no_column(path, column, file.schema_arrow.names)
            for batch in file.iter_batches(batch_size=256, columns=[column]):
                for value in batch.column(0):
                    number += 1
                    yield text_of({column: value.as_py()}, column, f"{path}, row {number}")


def text_of(row: Any, column: str, where: str) -> str:
    """Return the text of a row; a missing value is an empty document.

    Raises
    ------
    UserError
        If the column is missing or holds no text.
    """
    if not isinstance(row, Mapping):
        raise UserError(f"{where}: expected an object with {column!r}, not {type(row).__name__}: write one a row")
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
