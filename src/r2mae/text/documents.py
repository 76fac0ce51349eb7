"""Documents of a corpus, one at a time and in order: files, folders, named sets, Hugging Face data sets."""

import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import Any

from r2mae.catalogue import locate
from r2mae.errors import UserError, unknown, warn_once
from r2mae.files import walk_real_folders
from r2mae.fingerprint import fingerprint
from r2mae.text.formats import (
    KINDS,
    PLAIN,
    cut,
    kind_of,
    read_file,
    reading,
    text_of,
)
from r2mae.text.sets import HEADINGS, HUB, SETS

Source = str | Path | Sequence[str | Path] | Iterable[Any]
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


@dataclass(frozen=True)
class Corpus:
    """A corpus, which can be read again.

    Parameters
    ----------
    name : str
        The name in messages.
    texts : callable
        Yields texts, perhaps empty ones.
    identity : callable, optional
        Returns a hash that identifies the content; by default all documents are read for a hash.
    columns : bool
        Whether the text is in a column.
    size : int, optional
        About the number of characters, if it is known.
    """

    name: str
    texts: Callable[[], Iterator[str]]
    identity: Callable[[], str] | None = None
    columns: bool = True
    size: int | None = None

    def fingerprint(self) -> str:
        """Return a hash that identifies the content."""
        if self.identity is not None:
            return self.identity()
        digest = hashlib.blake2b(digest_size=16)
        for document in self.documents():
            text = document.encode()
            digest.update(len(text).to_bytes(8, "little") + text)
        return digest.hexdigest()

    def documents(self) -> Iterator[str]:
        """Yield the documents."""
        empty = True
        for document in cut(self.texts()):
            empty = False
            yield document
        if empty:
            column = ", or name another column of text, --text-column NAME" if self.columns else ""
            raise UserError(f"{self.name}: holds no text: give other files or another split{column}")


def corpus_of(source: Source, *, column: str = "text", split: str = "train") -> Corpus:
    """Return the corpus that a source means.

    Parameters
    ----------
    source : str, Path, list of them, or data set
        A named set; a file (.txt with blank lines between documents, .jsonl, .fasta, all also compressed; .parquet); a
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
            return _files([Path(entry).expanduser() for entry in source], f"a list of {len(source)} files", column)
        if iter(source) is source:
            raise UserError("an iterator can be read only once: give files, or a data set that can be read again")
        return _rows(type(source).__name__, column, lambda: source)
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


def check_column(source: Source, column: str) -> None:
    """Refuse to name a column of plain text. Other mistakes in a source are found when it is read."""
    try:
        corpus = corpus_of(source, column=column)
    except UserError:
        return
    if not corpus.columns:
        raise UserError(f"{source} is plain text, which has no columns: omit --text-column {column}")


def _files(paths: Sequence[Path], name: str, column: str, heading: str | None = None) -> Corpus:
    """Return the corpus of some files, read in their order; `heading` is that of :func:`read_file`."""
    if not paths:
        raise UserError(f"{name}: no file has such a name: name files ({KINDS}), a folder, or a set")
    for path in paths:
        if not path.is_file():
            if path.suffix or path.is_absolute() or len(path.parts) > 1:
                raise UserError(f"{path} does not exist: name files ({KINDS}), a folder, or a set")
            raise UserError(f"{unknown('corpus', str(path), SETS)}, or give a file, a folder or hf:NAME")
        if kind_of(path) is None:
            raise UserError(f"{path}: is of no known kind: expected a name that ends in {KINDS}")
    columns = any(kind_of(path) in ("json", "parquet") for path in paths)
    plain = all(path.suffix.lower() in PLAIN for path in paths)
    size = sum(path.stat().st_size for path in paths) if plain else None

    def texts() -> Iterator[str]:
        for path in paths:
            yield from read_file(path, column, heading)

    def identity() -> str:
        parts = [f"{kind_of(path)}\0{fingerprint(path)}" for path in paths]
        return _hash("files", column if columns else "", heading or "", *parts)

    return Corpus(name, texts, identity, columns, size)


def _rows(
    name: str, column: str, read: Callable[[], Iterable[Any]], identity: Callable[[], str] | None = None
) -> Corpus:
    """Return the corpus of a data set, whose rows `read` returns."""

    def texts() -> Iterator[str]:
        with reading(name, "check the name, or write it again"):
            for number, row in enumerate(read(), 1):
                yield text_of(row, column, f"{name}, row {number}")

    return Corpus(name, texts, identity)


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

    def identity() -> str:
        content = fingerprint(path) if Path(path).is_dir() else path
        return _hash("rows", column, "\0".join(("hub", content, revision, config, part or split)))

    return _rows(name, column, read, identity)


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

        return _rows(str(path), column, read, lambda: _hash("rows", column, fingerprint(path / "state.json")))
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
