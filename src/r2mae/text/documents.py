"""Documents of a corpus, one at a time and in order: files, folders, named sets, Hugging Face data sets."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from r2mae.catalogue import locate
from r2mae.errors import UserError, unknown
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


@runtime_checkable
class Corpus(Protocol):
    """A source of documents that can be read again."""

    @property
    def name(self) -> str:
        """How messages call it."""

    def documents(self, position: Position | None = None) -> Iterator[str]:
        """Yield every document that is not empty, and keep `position` up to date."""

    def fingerprint(self) -> str:
        """Return a hash of the content, by which tokenised copies are found again."""


def read_documents(source: Source, *, column: str = "text") -> Iterator[str]:
    """Read the documents of a corpus one after another, in bounded memory.

    Parameters
    ----------
    source : str, Path, list of them, or data set
        As :func:`corpus_of`.
    column : str
        Which column of JSON lines, Parquet and data sets holds the text.

    Yields
    ------
    str
        A document, without line feeds at its ends; empty ones are left out, and one of more than
        :data:`~r2mae.text.formats.LONGEST` characters comes in pieces.

    Raises
    ------
    UserError
        A source that does not exist or holds no text; a file that is damaged or not UTF-8; a missing column.
    """
    yield from corpus_of(source, column=column).documents()


def corpus_of(source: Source, *, column: str = "text") -> Corpus:
    """Find out what a source is.

    Parameters
    ----------
    source : str, Path, list of them, or data set
        A named set; a file (.txt with blank lines between documents, .jsonl, both also .gz or .xz; .parquet); a
        folder, with everything below it that has such a name; a pattern such as ``corpus/*.txt``; a list of files; a
        folder that ``datasets.Dataset.save_to_disk`` wrote; ``"hf:NAME"``, ``"hf:NAME:CONFIG"`` or
        ``"hf:NAME:CONFIG:SPLIT"``, streamed from the Hugging Face Hub, where ``NAME@REVISION`` fixes the version; or
        a ``datasets.Dataset`` or ``IterableDataset``.
    column : str
        Of JSON lines, Parquet and data sets.

    Raises
    ------
    UserError
        If there is no such thing.
    """
    if not isinstance(source, str | Path):
        if isinstance(source, Sequence) and all(isinstance(entry, str | Path) for entry in source):
            return Files.of([Path(entry).expanduser() for entry in source], f"a list of {len(source)} files", column)
        return _rows(source, column)
    name = str(source)
    if name in HUB:
        return HubRows.of(HUB[name], column)
    if name.startswith("hf:"):
        named = HubRows.of(name, column)
        _check_hub(named)
        return named
    if name in SETS:
        return Files.of(list(locate(SETS[name]).values()), name, column, HEADINGS.get(name))
    path = Path(source).expanduser()
    return _from_folder(path, column) if path.is_dir() else Files.of(_matching(path), name, column)


def _from_folder(path: Path, column: str) -> Corpus:
    """A folder of files, or one of ``save_to_disk``."""
    if (path / "dataset_info.json").is_file() and (path / "state.json").is_file():
        return _saved(path, column)
    if (path / "dataset_dict.json").is_file():
        splits = [str(entry) for entry in sorted(path.iterdir()) if (entry / "state.json").is_file()]
        if not splits:
            raise UserError(f"{path} is a data set without its splits: save it again")
        raise UserError(f"{path} holds the splits of a data set: give one of them: {', '.join(splits)}")
    found = [entry for entry in sorted(path.rglob("*")) if entry.is_file() and kind_of(entry)]
    if not found:
        raise UserError(f"{path}: holds no text: expected files named {KINDS}")
    return Files.of(found, str(path), column)


@dataclass(frozen=True)
class Files:
    """Files of text, read in their order.

    Parameters
    ----------
    name : str
        For messages.
    paths : tuple of Path
        Never empty.
    column : str
        Of JSON lines and Parquet.
    heading : str, optional
        Pattern of the line that begins a document; by default documents are set apart by blank lines.
    """

    name: str
    paths: tuple[Path, ...]
    column: str
    heading: str | None = None

    @classmethod
    def of(cls, paths: Sequence[Path], name: str, column: str, heading: str | None = None) -> "Files":
        """Check that the files are there and of a known kind."""
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

    def fingerprint(self) -> str:
        """Return a hash of the files' content and kind, whatever their names (beyond 1 GiB: of size and time)."""
        parts = [f"{kind_of(path)}\0{fingerprint(path)}" for path in self.paths]
        uses = self.column if any(kind_of(path) != "text" for path in self.paths) else ""
        return _hash("files", uses, self.heading or "", *parts)

    def documents(self, position: Position | None = None) -> Iterator[str]:
        """Yield the documents of all files."""
        position = position or Position()
        total, before, empty = sum(path.stat().st_size for path in self.paths), 0, True
        for path in self.paths:
            size = path.stat().st_size
            span = (before / max(total, 1), size / max(total, 1))
            for document in cut(self._read(path, position, span)):
                empty = False
                yield document
            before += size
        if empty:
            raise UserError(f"{self.name}: {self._no_text(total)}")

    def _no_text(self, size: int) -> str:
        if size == 0:
            return "holds no text, it is empty: write or fetch it again"
        if all(kind_of(path) == "text" for path in self.paths):
            return "holds no text, nothing but blank lines: give files with text"
        return f"holds no text, the column {self.column!r} is empty in every row: name another, --text-column NAME"

    def _read(self, path: Path, position: Position, span: tuple[float, float]) -> Iterator[str]:
        kind = kind_of(path)
        if kind == "parquet":
            return read_parquet(path, self.column, position, span)
        if kind == "json":
            return read_json_lines(path, self.column, position, span)
        return read_plain(path, self.heading, position, span)


@dataclass(frozen=True, eq=False)
class DataSetRows:
    """Rows of a data set that can be read again.

    Parameters
    ----------
    name, column : str
        For messages; and where the text is.
    rows : iterable of mappings
    identity : str, optional
        What tells the data set from others; by default a hash of all documents, for which they are read once more.
    """

    name: str
    column: str
    rows: Iterable[Mapping[str, Any]]
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
        """Yield the documents of all rows."""
        position, empty = position or Position(), True
        total = len(self.rows) if isinstance(self.rows, Sized) else None
        for document in cut(self._texts(position, total)):
            empty = False
            yield document
        if empty:
            raise UserError(
                f"{self.name}: holds no text, the column {self.column!r} is empty in every row: name another, "
                "--text-column NAME, or give another split"
            )

    def _texts(self, position: Position, total: int | None) -> Iterator[str]:
        number = 0
        try:
            for number, row in enumerate(self.rows, 1):
                yield text_of(row, self.column, f"{self.name}, row {number}")
                position.fraction = number / total if total else None
        except UserError:
            raise
        except Exception as error:  # whatever the network, the Hub and its readers raise
            raise UserError(f"{self.name}: cannot be read beyond row {number} ({reason(error)}): try again") from error


@dataclass(frozen=True)
class HubRows:
    """A data set of the Hugging Face Hub, streamed.

    Parameters
    ----------
    name : str
        As the user wrote it; it is also what the fingerprint is made of, as the content is known only once it has
        come over the network.
    path : str
        Name on the Hub, or a local folder.
    revision, config : str, optional
    split, column : str
    """

    name: str
    path: str
    revision: str | None
    config: str | None
    split: str
    column: str

    @classmethod
    def of(cls, name: str, column: str) -> "HubRows":
        """Take ``hf:NAME[@REVISION][:CONFIG[:SPLIT]]`` apart."""
        words = name.removeprefix("hf:").split(":")
        path, _, revision = words[0].partition("@")
        if not path or len(words) > 3:
            raise UserError(f"{name}: expected hf:NAME, hf:NAME:CONFIG or hf:NAME:CONFIG:SPLIT")
        if path.startswith("~/"):
            path = str(Path(path).expanduser())
        config, split = (*words[1:], "", "")[:2]
        return cls(name, path, revision or None, config or None, split or "train", column)

    def fingerprint(self) -> str:
        """Return a hash of the name; a data set that changes on the Hub under the same name is not noticed."""
        path = fingerprint(self.path) if Path(self.path).is_dir() else self.path
        return _hash("hub", path, self.revision or "", self.config or "", self.split, self.column)

    def documents(self, position: Position | None = None) -> Iterator[str]:
        """Stream the documents."""
        datasets = _library()
        try:
            rows = datasets.load_dataset(
                self.path, self.config, split=self.split, revision=self.revision, streaming=True
            )
        except Exception as error:  # of many kinds, from four libraries
            raise UserError(f"{self.name}: Hugging Face datasets cannot open it ({reason(error)})") from error
        yield from DataSetRows(self.name, self.column, rows).documents(position)


def _check_hub(named: HubRows) -> None:
    """Refuse what means a place on this machine and is no data set there, before the Hub is asked for it."""
    name, path = named.path, Path(named.path)
    if path.is_file() or any((path / file).is_file() for file in ("state.json", "dataset_dict.json")):
        raise UserError(f"{named.name}: {name} is read without hf: give {name}")
    if path.exists() or named.revision is not None:
        return
    if name[0] in "./~\\" or name.count("/") > 1 or kind_of(path) is not None:
        raise UserError(
            f"{named.name}: there is no {name} on this machine: check the path, or name a data set of the Hub, "
            "hf:OWNER/NAME"
        )
    if Path(path.parts[0]).is_dir():
        raise UserError(
            f"{named.name}: the folder {path.parts[0]} holds no {path.name}: check the path, or give "
            f"hf:{name}@main for the data set of the Hub"
        )


def _library() -> Any:
    try:
        import datasets
    except ImportError:
        raise UserError("data sets of Hugging Face need the library datasets: pip install 'r2mae[text]'") from None
    return datasets


def _rows(source: Any, column: str) -> DataSetRows:
    """A data set object of the Python API."""
    if isinstance(source, Mapping):
        raise UserError(f"a {type(source).__name__} holds several splits: give one of {', '.join(map(str, source))}")
    if iter(source) is source:
        raise UserError("an iterator can be read only once: give files, or a data set that can be read again")
    return DataSetRows(type(source).__name__, column, source)


def _saved(folder: Path, column: str) -> DataSetRows:
    """A folder of ``save_to_disk``; its state names the content."""
    try:
        rows = _library().load_from_disk(str(folder))
        identity = fingerprint(folder / "state.json")
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{folder} is no readable data set ({reason(error)}): save it again") from error
    return DataSetRows(str(folder), column, rows, identity)


def _matching(path: Path) -> list[Path]:
    """The files of a pattern; a path that is none stands for itself."""
    if path.exists() or not any(sign in str(path) for sign in "*?["):
        return [path]
    found = sorted(glob(str(path), recursive=True))  # noqa: PTH207 - a Path globs below a folder it is given
    return [Path(place) for place in found if Path(place).is_file()]


def _hash(*parts: str) -> str:
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()
