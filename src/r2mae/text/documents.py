"""Documents of a corpus, one at a time and in order: files, folders, named sets, Hugging Face data sets."""

import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import Any

from r2mae.catalogue import locate
from r2mae.errors import UserError, unknown, warn_once
from r2mae.files import walk_real_folders
from r2mae.text.formats import (
    KINDS,
    Position,
    cut,
    kind_of,
    read_json_lines,
    read_parquet,
    read_plain,
    reason,
    text_of,
)
from r2mae.text.sets import HEADINGS, HUB, SETS
from r2mae.training.fingerprint import fingerprint

Source = str | Path | Sequence[str | Path] | Iterable[Mapping[str, Any]]
"""What :func:`read_documents` reads."""

_PARTS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "val", "dev", "development"), "validation"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation"), "test"),
}
_PART = re.compile(rf"(?<![a-z])({'|'.join(_PARTS)})(set|data)?(?![a-z])")


def read_documents(source: Source, *, column: str = "text", split: str = "train") -> Iterator[str]:
    """Read the documents of a corpus one after another, in bounded memory.

    Parameters
    ----------
    source, column, split
        See :func:`corpus_of`.

    Yields
    ------
    str
        A document, without line feeds at its ends. Empty documents are omitted, and one of more than
        :data:`~r2mae.text.formats.LONGEST` characters comes in pieces.

    Raises
    ------
    UserError
        A source that does not exist or holds no text; a file that is damaged or not UTF-8; a missing column.
    """
    yield from corpus_of(source, column=column, split=split).documents()


def corpus_of(source: Source, *, column: str = "text", split: str = "train") -> "Files | Rows":
    """Return the corpus that a source means.

    Parameters
    ----------
    source : str, Path, list of them, or data set
        A named set; a file (.txt with blank lines between documents, .jsonl, both also .gz, .xz or .bz2; .parquet); a
        folder, with everything below it that has such a name; a pattern such as ``corpus/*.txt``; a list of files; a
        folder that ``datasets.Dataset.save_to_disk`` wrote; ``"hf:NAME"``, ``"hf:NAME:CONFIG"`` or
        ``"hf:NAME:CONFIG:SPLIT"``, streamed from the Hugging Face Hub, where ``NAME@REVISION`` fixes the version; or
        a ``datasets.Dataset`` or ``IterableDataset``.
    column : str
        The column of JSON lines, Parquet and data sets that holds the text.
    split : {"train", "validation", "test", "all"}
        The part to read, where files or folders are named after parts. The training part is all that is not named
        validation (valid, val, dev) or test (eval). A line is logged on what is omitted.

    Raises
    ------
    UserError
        If there is no such source or part.
    """
    if not isinstance(source, str | Path):
        if isinstance(source, Sequence) and all(isinstance(entry, str | Path) for entry in source):
            return Files.of([Path(entry).expanduser() for entry in source], f"a list of {len(source)} files", column)
        return _from_object(source, column)
    name = HUB.get(str(source), str(source))
    if name.startswith("hf:"):
        return _from_hub(name, column, split)
    if name in SETS:
        return Files.of(list(locate(SETS[name]).values()), name, column, HEADINGS.get(name))
    return _from_place(Path(source).expanduser(), name, column, split)


def _from_place(path: Path, name: str, column: str, split: str) -> "Files | Rows":
    """A folder, a file, or the files of a pattern."""
    if path.is_dir():
        return _from_folder(path, column, split)
    if path.exists() or not any(sign in name for sign in "*?["):
        return Files.of([path], name, column)
    matching = [Path(place) for place in sorted(glob(str(path), recursive=True))]  # noqa: PTH207 - a Path globs below a folder
    files = [place for place in matching if place.is_file()]
    return Files.of(_of_split(files, split, name), name, column)


@dataclass(frozen=True)
class Files:
    """Files of text, read in their order.

    Parameters
    ----------
    name : str
        The name in messages.
    paths : tuple of Path
        The files, at least one.
    column : str
        The column of JSON lines and Parquet.
    heading : str, optional
        Pattern of the line that begins a document; by default documents are separated by blank lines.
    """

    name: str
    paths: tuple[Path, ...]
    column: str
    heading: str | None = None

    @classmethod
    def of(cls, paths: Sequence[Path], name: str, column: str, heading: str | None = None) -> "Files":
        """Check that the files exist and are of a known kind."""
        if not paths:
            raise UserError(f"{name}: no file is named so: name files ({KINDS}), a folder, or a set")
        for path in paths:
            if not path.is_file():
                if path.suffix or path.is_absolute() or len(path.parts) > 1:
                    raise UserError(f"{path} does not exist: name files ({KINDS}), a folder, or a set")
                raise UserError(f"{unknown('corpus', str(path), SETS)}, or give a file, a folder or hf:NAME")
            if kind_of(path) is None:
                raise UserError(f"{path}: is of no known kind: expected a name that ends in {KINDS}")
        return cls(name, tuple(paths), column, heading)

    @property
    def has_columns(self) -> bool:
        """Whether any file has columns."""
        return any(kind_of(path) != "text" for path in self.paths)

    def fingerprint(self) -> str:
        """Return a hash of the files' content and kind, whatever their names (beyond 1 GiB: of size and time)."""
        parts = [f"{kind_of(path)}\0{fingerprint(path)}" for path in self.paths]
        return _hash("files", self.column if self.has_columns else "", self.heading or "", *parts)

    def documents(self, position: Position | None = None) -> Iterator[str]:
        """Yield the documents of all files, and keep `position` up to date."""
        position, empty = position or Position(), True
        position.total = sum(path.stat().st_size for path in self.paths)
        for path in self.paths:
            for document in cut(self._read(path, position)):
                empty = False
                yield document
        if empty:
            column = f", or {self.column!r} is not its column of text: --text-column NAME" if self.has_columns else ""
            raise UserError(f"{self.name}: holds no text: give files with text{column}")

    def _read(self, path: Path, position: Position) -> Iterator[str]:
        kind = kind_of(path)
        if kind == "parquet":
            return read_parquet(path, self.column, position)
        if kind == "json":
            return read_json_lines(path, self.column, position)
        return read_plain(path, self.heading, position)


@dataclass(frozen=True)
class Rows:
    """Rows of a data set that can be read again.

    Parameters
    ----------
    name, column : str
        The name in messages; the column with the text.
    read : callable
        Returns the rows, an iterable of mappings.
    identity : str, optional
        Identifies the data set; by default a hash of all documents, for which they are read once more.
    """

    name: str
    column: str
    read: Callable[[], Iterable[Mapping[str, Any]]]
    identity: str | None = None

    def fingerprint(self) -> str:
        """Return a hash of `identity`, or of all documents."""
        if self.identity is not None:
            return _hash("rows", self.column, self.identity)
        digest = hashlib.blake2b(digest_size=16)
        for document in self.documents():
            text = document.encode()
            digest.update(len(text).to_bytes(8, "little") + text)
        return digest.hexdigest()

    def documents(self, position: Position | None = None) -> Iterator[str]:
        """Yield the documents of all rows, and keep `position` up to date."""
        empty = True
        for document in cut(self._texts(position or Position())):
            empty = False
            yield document
        if empty:
            raise UserError(
                f"{self.name}: holds no text, the column {self.column!r} is empty in every row: name another, "
                "--text-column NAME, or give another split"
            )

    def _texts(self, position: Position) -> Iterator[str]:
        try:
            rows = self.read()
            position.total = len(rows) if isinstance(rows, Sized) else None
            for row in rows:
                position.done += 1
                yield text_of(row, self.column, f"{self.name}, row {position.done}")
        except UserError:
            raise
        except ImportError:
            raise UserError("data sets of Hugging Face need the library datasets: pip install 'r2mae[text]'") from None
        except Exception as error:  # of many kinds: the network's, the Hub's, those of the library and its readers
            raise UserError(
                f"{self.name}: cannot be read beyond row {position.done} ({reason(error)}): check the name, try again"
            ) from error


def _from_object(source: Any, column: str) -> Rows:
    """A data set object of the Python API."""
    if isinstance(source, Mapping):
        raise UserError(f"a {type(source).__name__} holds several splits: give one of {', '.join(map(str, source))}")
    if iter(source) is source:
        raise UserError("an iterator can be read only once: give files, or a data set that can be read again")
    return Rows(type(source).__name__, column, lambda: source)


def _from_hub(name: str, column: str, split: str) -> Rows:
    """A data set of the Hub, ``hf:NAME[@REVISION][:CONFIG[:SPLIT]]``; its content is known only by name and version."""
    words = name.removeprefix("hf:").split(":")
    path, _, revision = words[0].partition("@")
    if not path or len(words) > 3:
        raise UserError(f"{name}: expected hf:NAME, hf:NAME:CONFIG or hf:NAME:CONFIG:SPLIT")
    path = str(Path(path).expanduser()) if path.startswith("~/") else path
    config, part = (*words[1:], "", "")[:2]

    def read() -> Iterable[Mapping[str, Any]]:
        import datasets

        found: Iterable[Mapping[str, Any]] = datasets.load_dataset(
            path, config or None, split=part or split, revision=revision or None, streaming=True
        )
        return found

    content = fingerprint(path) if Path(path).is_dir() else path
    return Rows(name, column, read, "\0".join(("hub", content, revision, config, part or split)))


def _from_folder(path: Path, column: str, split: str) -> "Files | Rows":
    """A folder of files, or one of ``save_to_disk``."""
    if (path / "dataset_dict.json").is_file():
        splits = sorted(entry.parent.name for entry in path.glob("*/state.json"))
        if split not in splits:
            raise UserError(f"{path}: has no split {split!r}: give another, --split {' or '.join(splits) or 'NAME'}")
        if len(splits) > 1:
            warn_once(f"{path}: the split {split} of {', '.join(splits)} is read (--split)")
        path = path / split
    if (path / "state.json").is_file():

        def read() -> Iterable[Mapping[str, Any]]:
            import datasets

            found: Iterable[Mapping[str, Any]] = datasets.load_from_disk(str(path))
            return found

        return Rows(str(path), column, read, fingerprint(path / "state.json"))  # the state names the content
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
    return Files.of(_of_split(sorted(found), split, str(path)), str(path), column)


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
