"""Documents of a corpus, one at a time and in order: files, folders, named sets, data sets of the Hugging Face Hub.

Files are plain text, JSON lines, Parquet or FASTA; compressed ones are unpacked while they are read.
"""

import bz2
import gzip
import hashlib
import json
import lzma
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from glob import glob
from io import BufferedReader, TextIOWrapper
from pathlib import Path
from shlex import quote
from typing import IO, Any, NamedTuple

from r2mae.catalogue import locate
from r2mae.errors import UserError, nearest, reading, unknown, warn_once
from r2mae.files import ordinary, walk_real_folders
from r2mae.fingerprint import fingerprint
from r2mae.text.sets import HEADINGS, HUB, SETS

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
_PARTS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "val", "dev", "development"), "validation"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation"), "test"),
}
_PART = re.compile(rf"(?<![a-z])({'|'.join(_PARTS)})(set|data)?(?![a-z])")


def read_documents(source: str | Path, *, column: str = "text", split: str = "train") -> Iterator[str]:
    """Read the documents of a corpus one after another, in bounded memory.

    They have no line feeds at their ends. Empty ones are omitted, and one of more than :data:`LONGEST` characters comes
    in pieces. A UserError is raised for a source that does not exist or holds no text, for a file that is damaged or
    not UTF-8, and for a missing column. Parameters are those of :func:`corpus_of`.
    """
    yield from corpus_of(source, column=column, split=split).documents()


Text = tuple[str, str]
"""The name of the file in which a document begins, empty where the one before continues, and the text."""


class Piece(NamedTuple):
    """A document or a piece of one: number of the document, from 0, its file, and text, empty if all of it is."""

    document: int
    file: str
    text: str


@dataclass(frozen=True)
class Corpus:
    """A corpus, which can be read again.

    Parameters
    ----------
    name : str
        The name in messages.
    texts : callable
        Yields texts with the places where documents begin; documents may be empty.
    fingerprint : callable
        Returns a hash that identifies the content.
    columns : bool
        Whether the text is in a column.
    size : int, optional
        About the number of characters, if it is known.
    """

    name: str
    texts: Callable[[], Iterator[Text]]
    fingerprint: Callable[[], str]
    columns: bool = True
    size: int | None = None

    def documents(self) -> Iterator[str]:
        """Yield the documents that are not empty; long ones in pieces."""
        return (piece.text for piece in self.pieces() if piece.text)

    def pieces(self) -> Iterator[Piece]:
        """Yield all documents, each in one piece or more, and raise a UserError if all are empty."""
        number, file, empty = -1, "", True
        for begins, text in self.texts():
            number, file = (number + 1, begins) if begins else (number, file)
            for piece in [*cut([text])] or [""]:
                empty = empty and not piece
                yield Piece(number, file, piece)
        if empty:
            column = ", or name another column of text, --text-column NAME" if self.columns else ""
            raise UserError(f"{self.name}: holds no text: give other files or another split{column}")


def corpus_of(source: str | Path, *, column: str = "text", split: str = "train") -> Corpus:
    """Return the corpus that a source means, or raise a UserError if there is no such source or part.

    Parameters
    ----------
    source : str or Path
        A named set; a file (.txt with blank lines between documents, .jsonl, .fasta, all also compressed; .parquet); a
        folder, with everything below it that has such a name; a pattern such as ``corpus/*.txt``; a folder that
        ``datasets.Dataset.save_to_disk`` wrote; ``"hf:NAME"``, ``"hf:NAME:CONFIG"`` or ``"hf:NAME:CONFIG:SPLIT"``,
        streamed from the Hugging Face Hub, where ``NAME@REVISION`` fixes the version.
    column : str
        The column of JSON lines, Parquet and data sets that holds the text.
    split : {"train", "validation", "test", "all"}
        The part to read, where files or folders are named after parts. The training part is all that is not named
        validation (valid, val, dev) or test (eval). A line is logged on what is omitted.
    """
    name = HUB.get(str(source), str(source))
    path = Path(source).expanduser()
    if name.startswith("hf:"):
        return _from_hub(name, column, split)
    if name in SETS:
        return _files(list(locate(SETS[name]).values()), name, column, HEADINGS.get(name))
    if path.is_dir():
        return _from_folder(path, column, split)
    paths = [path]
    if not path.exists() and any(sign in name for sign in "*?["):
        found = [Path(place) for place in sorted(glob(str(path), recursive=True))]  # noqa: PTH207 - a Path globs below a folder
        paths = _of_split([place for place in found if place.is_file()], split, name)
    return _files(paths, name, column)


def check_column(source: str, column: str) -> None:
    """Refuse to name a column of plain text. Other mistakes in a source are found when it is read."""
    try:
        corpus = corpus_of(source, column=column)
    except UserError:
        return
    if not corpus.columns:
        raise UserError(f"{source} is plain text, which has no columns: omit --text-column {column}")


def _files(paths: Sequence[Path], name: str, column: str, heading: str | None = None) -> Corpus:
    """Return the corpus of some files, read in their order; `heading` is that of :func:`_read_file`."""
    if not paths:
        raise UserError(f"{name}: no file has such a name: name files ({KINDS}), a folder, or a set")
    for path in paths:
        if not ordinary(path).is_file():
            if path.suffix or path.is_absolute() or len(path.parts) > 1:
                raise UserError(f"{path} does not exist: name files ({KINDS}), a folder, or a set")
            raise UserError(f"{unknown('corpus', str(path), SETS)}, or give a file, a folder or hf:NAME")
        if kind_of(path) is None:
            raise UserError(f"{path}: is of no known kind: expected a name that ends in {KINDS}")
    columns = any(kind_of(path) in ("json", "parquet") for path in paths)
    plain = all(path.suffix.lower() in PLAIN for path in paths)
    size = sum(path.stat().st_size for path in paths) if plain else None

    def texts() -> Iterator[Text]:
        for path in paths:
            for begins, text in _read_file(path, column, heading):
                yield (str(path) if begins else ""), text

    def identity() -> str:
        parts = (f"{kind_of(path)}\0{fingerprint(path)}" for path in paths)
        return _hash("files", column if columns else "", heading or "", *parts)

    return Corpus(name, texts, identity, columns, size)


def _rows(name: str, column: str, read: Callable[[], Iterable[Any]], *identity: str) -> Corpus:
    """Return the corpus of a data set, whose rows `read` returns."""

    def texts() -> Iterator[Text]:
        with reading(name, "check the name, or write it again"):
            for number, row in enumerate(read(), 1):
                yield name, _text_of(row, column, f"{name}, row {number}")

    return Corpus(name, texts, lambda: _hash("rows", column, *identity))


def _from_hub(name: str, column: str, split: str) -> Corpus:
    """A data set of the Hub, ``hf:NAME[@REVISION][:CONFIG[:SPLIT]]``; its content is known only by name and version."""
    words = name.removeprefix("hf:").split(":")
    path, _, revision = words[0].partition("@")
    if not path or len(words) > 3:
        raise UserError(f"{name}: expected hf:NAME, hf:NAME:CONFIG or hf:NAME:CONFIG:SPLIT")
    path = str(Path(path).expanduser()) if path.startswith("~/") else path
    config, part = (*words[1:], "", "")[:2]

    def read() -> Any:
        from datasets import load_dataset

        return load_dataset(path, config or None, split=part or split, revision=revision or None, streaming=True)

    content = fingerprint(path) if Path(path).is_dir() else path
    return _rows(name, column, read, "hub", content, revision, config, part or split)


def _from_folder(path: Path, column: str, split: str) -> Corpus:
    """A folder of files, or one of ``save_to_disk``."""
    if (path / "dataset_dict.json").is_file():
        splits = sorted(entry.parent.name for entry in path.glob("*/state.json"))
        if split not in splits:
            raise UserError(f"{path}: has no split {split!r}: give another, --split {' or '.join(splits) or 'NAME'}")
        if len(splits) > 1:
            warn_once(f"{path}: the split {split} of {', '.join(splits)} is read (--split)")
        path = path / split
    if (path / "state.json").is_file():  # it names the content

        def read() -> Any:
            from datasets import load_from_disk

            return load_from_disk(str(path))

        return _rows(str(path), column, read, fingerprint(path / "state.json"))
    found, others = [], Counter[str]()
    for place, folders, names in walk_real_folders(path):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for file in (Path(place, name) for name in sorted(names) if not name.startswith(".")):
            if kind_of(file) and file.is_file():
                found.append(file)
            else:
                others[file.suffix.lower() or "without an ending"] += 1
    if not found:
        raise UserError(f"{path}: holds no text: expected files named {KINDS}")
    if others:
        counts = ", ".join(f"{count:,} {suffix}" for suffix, count in others.most_common(5))
        warn_once(f"{path}: files that are not read as text: {counts}{', …' * (len(others) > 5)}")
    return _files(_of_split(sorted(found), split, str(path)), str(path), column)


def _of_split(files: Sequence[Path], split: str, name: str) -> list[Path]:
    """Return the files of a part, and log how many are omitted."""
    held_out = _held_out(files)
    if split == "all":
        return list(files)
    if split == "train":
        kept = [file for file in files if file not in held_out]
        if held_out:
            counts = ", ".join(f"{count:,} of {part}" for part, count in Counter(held_out.values()).most_common())
            warn_once(f"{name}: {len(kept):,} files are read, without {counts} (--split all: with these)")
        return kept
    kept = [file for file, part in held_out.items() if part == split]
    if not kept:
        raise UserError(f"{name}: no file is named after the part {split}: give the files themselves as the corpus")
    return kept


def _held_out(files: Sequence[Path]) -> dict[Path, str]:
    """Return the validation and test files, by their names or those of their folders; none if all would be.

    A name counts if it is nothing but the word (test.txt, dev2/), or the same with another word is a training part
    (wiki.train.txt and wiki.test.txt, train-00000-of-00002 and test-00000-of-00001).
    """
    levels: dict[Path, list[tuple[Path, str, str]]] = {}
    root = os.path.commonpath([file.parent for file in files]) if files else ""
    for file in files:
        bare = file.with_suffix("")
        bare = bare.with_suffix("") if kind_of(bare) else bare
        places = [bare, *(folder for folder in file.parents if folder.is_relative_to(root) and folder != Path(root))]
        levels[file] = [(place.parent, *_part_of(place.name)) for place in places]
    training = {(parent, rest) for places in levels.values() for parent, part, rest in places if part == "train"}
    found = {
        file: part
        for file, places in levels.items()
        for parent, part, rest in places
        if part in ("validation", "test") and (not rest or (parent, rest) in training)
    }
    return found if len(found) < len(files) else {}


def _part_of(name: str) -> tuple[str, str]:
    """Return the part that a name has a word for, or "", and the letters next to the word."""
    spelled = re.sub(r"\d+-of-\d+", "", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower())
    found = _PART.search(spelled)
    if found is None:
        return "", ""
    return _PARTS[found[1]], re.sub("[^a-z]", "", spelled[: found.start()] + spelled[found.end() :])


def _hash(*parts: str) -> str:
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()


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


def _read_file(path: Path, column: str, heading: str | None) -> Iterator[tuple[bool, str]]:
    """Read the texts of a file by its kind, each with whether a document begins.

    `heading` is a pattern of the line that begins a document of plain text, which are otherwise separated by blank
    lines.
    """
    kind = kind_of(path)
    if kind == "text":
        return _read_plain(path, heading)
    if kind == "fasta":
        return _read_fasta(path)
    rows = _read_parquet(path, column) if kind == "parquet" else _read_json_lines(path, column)
    return ((True, text) for text in rows)


def _read_plain(path: Path, heading: str | None) -> Iterator[tuple[bool, str]]:
    begins = re.compile(heading).fullmatch if heading else None
    parts: list[str] = []
    length, fresh = 0, True
    for _, line in _lines(path):
        ends = line.isspace() if begins is None else begins(line.rstrip("\n")) is not None
        if ends or length >= LONGEST:
            if parts:
                yield fresh, "".join(parts)
            parts, length, fresh = [], 0, ends
        if not line.isspace():
            parts.append(line)
            length += len(line)
    if parts:
        yield fresh, "".join(parts)


def _read_fasta(path: Path) -> Iterator[tuple[bool, str]]:
    """Read sequences, each one a document in upper case, without line ends."""
    parts: list[str] = []
    length, named, fresh = 0, False, True
    for number, line in _lines(path):
        ends = line.startswith(">")
        if (ends and named) or length >= LONGEST:
            yield fresh, "".join(parts)
            parts, length, fresh = [], 0, ends
        if ends:
            named = True
        elif named:
            parts.append("".join(line.split()).upper())
            length += len(parts[-1])
        elif not line.isspace():
            raise UserError(f"{path}, line {number}: expected FASTA, whose first line begins with >: rename it to .txt")
    if named:
        yield fresh, "".join(parts)


def _read_json_lines(path: Path, column: str) -> Iterator[str]:
    for number, line in _lines(path):
        if not line.isspace():
            where = f"{path}, line {number}"
            with reading(where, "expected a JSON object a line (from an array: jq -c '.[]' OLD.json > NEW.jsonl)"):
                row = json.loads(line)
            yield _text_of(row, column, where)


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
                    yield _text_of({column: value.as_py()}, column, f"{path}, row {number}")


def _text_of(row: Any, column: str, where: str) -> str:
    """Return the text of a row, or raise a UserError; a missing value is an empty document."""
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
