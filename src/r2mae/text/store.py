"""The token store: a corpus, tokenised once, as memory-mapped numbers."""

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64, UInt16, UInt32

from r2mae.cache import cache_folder, create_once
from r2mae.cores import cores
from r2mae.errors import UserError
from r2mae.files import write_json
from r2mae.text.documents import Corpus, Files, Source, corpus_of
from r2mae.text.encoding import Progress, Tokenised, encoded
from r2mae.text.formats import Position, kind_of
from r2mae.text.tokenizer import TextTokenizer, load_tokenizer, train_bpe

TOKENS, OFFSETS, META = "tokens.bin", "documents.npy", "meta.json"
FORMAT = 1


@dataclass(frozen=True)
class Meta:
    """What a store says of itself, in meta.json.

    Parameters
    ----------
    format : int
    source, column : str
        As the user named them.
    fingerprint : str
        Hash of the corpus.
    tokenizer : str
        Fingerprint of the tokenizer.
    dtype : {"uint16", "uint32"}
    documents, tokens : int
    content : str
        blake2b of the tokens, little-endian.
    """

    format: int
    source: str
    column: str
    fingerprint: str
    tokenizer: str
    dtype: str
    documents: int
    tokens: int
    content: str


class TokenStore:
    """A tokenised corpus on disk; every document is <s> tokens </s>.

    It can be pickled, as a path: a process that loads data maps the files again.

    Parameters
    ----------
    folder : path
        With tokens.bin, documents.npy, meta.json and the tokenizer's files.
    tokenizer : TextTokenizer, optional
        Which has to be the one that made it.

    Raises
    ------
    UserError
        No store, a damaged one, or one of another tokenizer.
    """

    def __init__(self, folder: str | Path, tokenizer: TextTokenizer | None = None) -> None:
        self.folder = Path(folder)
        self.meta = _read_meta(self.folder)
        if tokenizer is not None and tokenizer.fingerprint != self.meta.tokenizer:
            raise UserError(
                f"{self.folder}: was made with another tokenizer: omit the tokenizer to use its own, or name the "
                f"corpus ({self.meta.source}) to tokenise it again"
            )
        self._tokens: np.ndarray | None = None
        self._check()

    def __len__(self) -> int:
        """Return the number of documents."""
        return self.meta.documents

    def __repr__(self) -> str:
        return f"TokenStore({str(self.folder)!r}: {self.meta.tokens:,} tokens in {len(self):,} documents)"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_tokens": None}

    @property
    def tokens(self) -> UInt16[np.ndarray, " tokens"] | UInt32[np.ndarray, " tokens"]:
        """Return all tokens, mapped from the file, document after document."""
        if self._tokens is None:
            # A plain array over the map: indexing a memmap costs more than it reads.
            self._tokens = np.asarray(
                np.memmap(self.folder / TOKENS, dtype=np.dtype(self.meta.dtype).newbyteorder("<"), mode="r")
            )
        return self._tokens

    def offsets(self) -> Int64[np.ndarray, " bounds"]:
        """Return where documents begin in :attr:`tokens`, and the end of the last: one more than documents."""
        found: Int64[np.ndarray, " bounds"] = np.load(self.folder / OFFSETS, allow_pickle=False)
        return found

    def tokenizer(self) -> TextTokenizer:
        """Return the tokenizer that made the store."""
        return load_tokenizer(self.folder)

    def verify(self) -> None:
        """Read all tokens and compare them with their hash.

        Raises
        ------
        UserError
            If they have changed.
        """
        with (self.folder / TOKENS).open("rb") as file:
            digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
        if digest != self.meta.content:
            raise _damaged(self.folder, f"{TOKENS} has changed")

    def _check(self) -> None:
        """Sizes and offsets must agree; the tokens themselves are not read (:meth:`verify`)."""
        try:
            size = (self.folder / TOKENS).stat().st_size
            offsets = np.load(self.folder / OFFSETS, allow_pickle=False)
        except OSError as error:
            raise _damaged(self.folder, f"{Path(error.filename or '').name}: {error.strerror}") from None
        except (ValueError, EOFError):
            raise _damaged(self.folder, f"{OFFSETS} cannot be read") from None
        if size != self.meta.tokens * np.dtype(self.meta.dtype).itemsize:
            raise _damaged(self.folder, f"{TOKENS} has {size:,} bytes for {self.meta.tokens:,} tokens")
        right = offsets.dtype == np.int64 and offsets.shape == (self.meta.documents + 1,)
        if not right or offsets[0] != 0 or offsets[-1] != self.meta.tokens or (np.diff(offsets) < 2).any():
            raise _damaged(self.folder, f"{OFFSETS} does not fit {TOKENS}")


def is_store(source: Any) -> bool:
    """Tell whether a source is the folder of a store."""
    return isinstance(source, str | Path) and all(
        (Path(source).expanduser() / name).is_file() for name in (TOKENS, META)
    )


def check_column(source: Source, column: str) -> None:
    """Refuse to name a column where there is none: of plain text, or of a store, whose text was read before.

    Whatever else is wrong with a source is told when it is read.
    """
    what = "a token store"
    if not is_store(source):
        try:
            corpus = corpus_of(source, column=column)
        except UserError:
            return
        if not isinstance(corpus, Files) or any(kind_of(path) != "text" for path in corpus.paths):
            return
        what = "plain text"
    raise UserError(f"{source} is {what}, which has no columns: omit --text-column {column}")


def source_fingerprint(source: Source, *, column: str = "text") -> str:
    """Return the hash by which a run tells its corpus from others: of files, data set or store.

    Raises
    ------
    UserError
        As :func:`r2mae.text.documents.corpus_of`, or a damaged store.
    """
    if is_store(source) and isinstance(source, str | Path):
        return TokenStore(Path(source).expanduser()).meta.content
    return corpus_of(source, column=column).fingerprint()


def open_store(
    source: Source,
    tokenizer: TextTokenizer,
    *,
    column: str = "text",
    cache: str | Path | None = None,
    progress: Progress | None = None,
    threads: int | None = None,
) -> TokenStore:
    """Open the tokenised copy of a corpus; it is made if this is the first time.

    The copy is found again by the content of corpus and tokenizer, wherever their files lie. It takes its name only
    once it is whole; where two processes want the same one, the second waits for the first.

    Parameters
    ----------
    source : str, Path, list of them, or data set
        As :func:`r2mae.text.documents.corpus_of`; or the folder of a store.
    tokenizer : TextTokenizer
        Text that looks like a special token, such as "<mask>", is encoded as the text it is.
    column : str
        Of JSON lines, Parquet and data sets.
    cache : path, optional
        By default :func:`cache_folder`.
    progress : callable, optional
        Hears of every block of documents.
    threads : int, optional
        By default one for each core.

    Raises
    ------
    UserError
        As :func:`r2mae.text.documents.read_documents` and :class:`TokenStore`; or no place to write to.
    """
    if is_store(source) and isinstance(source, str | Path):
        return TokenStore(Path(source).expanduser(), tokenizer)
    corpus = corpus_of(source, column=column)
    found = corpus.fingerprint()
    name = hashlib.blake2b(f"{FORMAT}\0{found}\0{tokenizer.fingerprint}".encode(), digest_size=16).hexdigest()
    root = Path(cache).expanduser() if cache is not None else cache_folder()
    folder = root / "tokens" / name
    with create_once(folder) as unfinished:
        if unfinished is not None:
            _tokenise(corpus, found, column, tokenizer, unfinished, progress, threads or cores())
            if corpus.fingerprint() != found:
                raise UserError(f"{corpus.name} changed while it was read: run the same command again")
    return TokenStore(folder, tokenizer)


def corpus_tokenizer(
    source: Source,
    vocab_size: int,
    *,
    column: str = "text",
    cache: str | Path | None = None,
    progress: Progress | None = None,
    limit: int = 1 << 30,
) -> TextTokenizer:
    """Load the byte-level BPE of a corpus; it is trained if this is the first time.

    Parameters
    ----------
    source, column, cache, progress
        As :func:`open_store`; a store's own tokenizer is taken as it is.
    vocab_size : int
        As :func:`r2mae.text.tokenizer.train_bpe`.
    limit : int
        Characters, from the beginning of the corpus, that it is trained on.
    """
    if is_store(source) and isinstance(source, str | Path):
        return TokenStore(Path(source).expanduser()).tokenizer()
    corpus = corpus_of(source, column=column)
    parts = f"{FORMAT}\0{corpus.fingerprint()}\0{vocab_size}\0{limit}"
    root = Path(cache).expanduser() if cache is not None else cache_folder()
    folder = root / "tokenizers" / hashlib.blake2b(parts.encode(), digest_size=16).hexdigest()
    with create_once(folder) as unfinished:
        if unfinished is not None:
            merging = None if progress is None else _merging(progress)
            train_bpe(_beginning(corpus, limit, progress), vocab_size, merging=merging).save(unfinished)
    return load_tokenizer(folder)


def _beginning(corpus: Corpus, limit: int, progress: Progress | None) -> Iterator[str]:
    position, read, start = Position(), 0, time.monotonic()
    for number, document in enumerate(_documents(corpus, position), 1):
        yield document
        read += len(document)
        if progress is not None and number % 256 == 0:
            fraction = max(position.fraction or 0, read / limit)
            progress(Tokenised.after(start, number, 0, fraction, "reading"))
        if read >= limit:
            return


def _merging(progress: Progress) -> Callable[[int, int], None]:
    """Tell of merges, counting time from the first that is heard of."""
    start: float | None = None

    def told(done: int, total: int) -> None:
        nonlocal start
        start = start or time.monotonic()
        progress(Tokenised.after(start, 0, 0, done / total, "merging"))

    return told


def _documents(corpus: Corpus, position: Position) -> Iterator[str]:
    """Read a corpus; that its files fail is not the cache's fault."""
    try:
        yield from corpus.documents(position)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(f"{error.filename or corpus.name} cannot be read ({reason}): is it still there?") from error


def _tokenise(
    corpus: Corpus,
    fingerprint: str,
    column: str,
    tokenizer: TextTokenizer,
    folder: Path,
    progress: Progress | None,
    threads: int,
) -> None:
    """Write a store."""
    dtype = np.dtype(np.uint16 if tokenizer.vocab_size <= 1 << 16 else np.uint32)
    lengths: list[Int64[np.ndarray, " n"]] = []
    documents = total = 0
    digest, position, start = hashlib.blake2b(digest_size=16), Position(), time.monotonic()
    with (folder / TOKENS).open("wb") as file:
        for tokens, counts in encoded(_documents(corpus, position), tokenizer, dtype, threads):
            data = tokens.astype(dtype.newbyteorder("<"), copy=False).tobytes()
            digest.update(data)
            file.write(data)
            lengths.append(counts)
            documents, total = documents + len(counts), total + len(tokens)
            if progress is not None:
                progress(Tokenised.after(start, documents, total, position.fraction))
    offsets = np.zeros(documents + 1, np.int64)
    np.cumsum(np.concatenate(lengths), out=offsets[1:])
    np.save(folder / OFFSETS, offsets, allow_pickle=False)
    tokenizer.save(folder)
    meta = Meta(
        format=FORMAT,
        source=corpus.name,
        column=column,
        fingerprint=fingerprint,
        tokenizer=tokenizer.fingerprint,
        dtype=dtype.name,
        documents=documents,
        tokens=total,
        content=digest.hexdigest(),
    )
    write_json(folder / META, asdict(meta))


def _read_meta(folder: Path) -> Meta:
    try:
        values = json.loads((folder / META).read_text("utf-8"))
    except FileNotFoundError:
        raise UserError(f"{folder} is no token store: {META} is missing") from None
    except (OSError, ValueError, RecursionError):
        raise _damaged(folder, f"{META} cannot be read") from None
    kinds = {field.name: field.type for field in fields(Meta)}
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise _damaged(folder, f"{META} is not of format {FORMAT}")
    right = values.keys() == kinds.keys() and all(isinstance(values[name], kinds[name]) for name in kinds)  # type: ignore[arg-type]
    if not right or values["dtype"] not in ("uint16", "uint32") or min(values["documents"], values["tokens"]) < 1:
        raise _damaged(folder, f"{META} has wrong entries")
    return Meta(**values)


def _damaged(folder: Path, reason: str) -> UserError:
    return UserError(f"the token store {folder} is damaged ({reason}): delete the folder, and it is made again")
