"""The token store: a corpus, tokenised once, as a memory-mapped array."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64, UInt16, UInt32

from r2mae.cache import cache_folder, create_once
from r2mae.cores import cores
from r2mae.errors import UserError
from r2mae.files import write_json
from r2mae.text.documents import Files, Rows, Source, corpus_of
from r2mae.text.encoding import Progress, encoded
from r2mae.text.formats import Position, reason
from r2mae.text.tokenizer import TextTokenizer, load_tokenizer, train_bpe

TOKENS, OFFSETS, META = "tokens.bin", "documents.npy", "meta.json"
FORMAT = 2
_MAX_READ = 1 << 30  # bytes; larger files of tokens are not compared with their hash when they are opened


@dataclass(frozen=True)
class Meta:
    """The description of a store, in meta.json.

    Parameters
    ----------
    format : int
        Number of the format.
    source : str
        The corpus, as the user named it.
    tokenizer : str
        Fingerprint of the tokenizer.
    dtype : {"uint16", "uint32"}
        Type of the tokens, little-endian.
    documents, tokens, unknown : int
        Numbers of documents, of tokens, and of tokens that the tokenizer does not know.
    content : str
        blake2b of the tokens.
    """

    format: int
    source: str
    tokenizer: str
    dtype: str
    documents: int
    tokens: int
    unknown: int
    content: str


class TokenStore:
    """A tokenised corpus on disk; every document is <s> tokens </s>.

    It is pickled as a path: a process that loads data maps the files again.

    Parameters
    ----------
    folder : path
        Folder with tokens.bin, documents.npy, meta.json and the tokenizer's files.
    tokenizer : TextTokenizer, optional
        The tokenizer that made it.

    Raises
    ------
    UserError
        No store, a damaged one (tokens of up to 1 GiB are compared with their hash), or one of another tokenizer.
    """

    def __init__(self, folder: str | Path, tokenizer: TextTokenizer | None = None) -> None:
        self.folder = Path(folder)
        self._tokens: np.ndarray | None = None
        try:
            self.meta = Meta(**json.loads((self.folder / META).read_text("utf-8")))
            self._check()
        except FileNotFoundError as error:
            raise UserError(f"{self.folder} is no token store: {Path(error.filename).name} is missing") from None
        except (OSError, ValueError, TypeError, EOFError, RecursionError) as error:
            raise self.damaged(reason(error)) from None
        if tokenizer is not None and tokenizer.fingerprint != self.meta.tokenizer:
            raise UserError(
                f"{self.folder}: was made with another tokenizer: omit the tokenizer to use its own, or name the "
                f"corpus ({self.meta.source}) to tokenise it again"
            )
        if tokenizer is not None:
            self.vocab_size = tokenizer.vocab_size

    def _check(self) -> None:
        meta, offsets = self.meta, self.offsets()
        if meta.format != FORMAT or meta.dtype not in ("uint16", "uint32"):
            raise ValueError(f"{META} is not of format {FORMAT}")
        if (self.folder / TOKENS).stat().st_size != meta.tokens * np.dtype(meta.dtype).itemsize:
            raise ValueError(f"{TOKENS} has another size than its {meta.tokens:,} tokens")
        if not meta.documents or offsets[0] != 0 or offsets[-1] != meta.tokens or (np.diff(offsets) < 2).any():
            raise ValueError(f"{OFFSETS} does not fit {TOKENS}")
        if (self.folder / TOKENS).stat().st_size <= _MAX_READ:
            self.verify()

    def damaged(self, why: str) -> UserError:
        """Return the error for a store that has changed since it was made."""
        return UserError(f"the token store {self.folder} is damaged ({why}): delete the folder, and it is made again")

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
            dtype = np.dtype(self.meta.dtype).newbyteorder("<")
            # A plain array over the map: indexing a memmap costs more than it reads.
            try:
                self._tokens = np.asarray(np.memmap(self.folder / TOKENS, dtype, mode="r", shape=(self.meta.tokens,)))
            except (OSError, ValueError) as error:  # it has changed since the store was opened
                raise self.damaged(f"{TOKENS}: {reason(error)}") from None
        return self._tokens

    def offsets(self) -> Int64[np.ndarray, " bounds"]:
        """Return where documents begin in :attr:`tokens`, and the end of the last: one more than documents."""
        try:
            found = np.lib.format.open_memmap(self.folder / OFFSETS, mode="r")
        except ValueError as error:
            raise self.damaged(f"{OFFSETS}: {reason(error)}") from None
        if found.dtype != np.int64 or found.shape != (self.meta.documents + 1,):
            raise self.damaged(f"{OFFSETS} does not fit {META}")
        return np.array(found)

    @cached_property
    def vocab_size(self) -> int:
        """The size of the tokenizer's vocabulary; every token is below it."""
        return self.tokenizer().vocab_size

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
            raise self.damaged(f"{TOKENS} has changed")


def is_store(source: Any) -> bool:
    """Tell whether a source is the folder of a store."""
    return isinstance(source, str | Path) and all(
        (Path(source).expanduser() / name).is_file() for name in (TOKENS, META)
    )


def check_column(source: Source, column: str) -> None:
    """Refuse to name a column of plain text, or of a store, whose text was read before.

    Other mistakes in a source are found when it is read.
    """
    what = "a token store"
    if not is_store(source):
        try:
            corpus = corpus_of(source, column=column)
        except UserError:
            return
        if isinstance(corpus, Rows) or corpus.has_columns:
            return
        what = "plain text"
    raise UserError(f"{source} is {what}, which has no columns: omit --text-column {column}")


def source_fingerprint(source: Source, *, column: str = "text", split: str = "train") -> str:
    """Return the hash by which a run identifies its corpus: of files, data set or store.

    Raises
    ------
    UserError
        As :func:`r2mae.text.documents.corpus_of`, or a damaged store.
    """
    if is_store(source) and isinstance(source, str | Path):
        return TokenStore(Path(source).expanduser()).meta.content
    return corpus_of(source, column=column, split=split).fingerprint()


def open_store(
    source: Source,
    tokenizer: TextTokenizer,
    *,
    column: str = "text",
    split: str = "train",
    cache: str | Path | None = None,
    progress: Progress | None = None,
    threads: int | None = None,
) -> TokenStore:
    """Open the tokenised copy of a corpus; the first call makes it.

    The copy is found by the content of corpus and tokenizer, wherever their files are. It gets its name when it is
    complete. If two processes need the same copy, the second waits for the first.

    Parameters
    ----------
    source : str, Path, list of them, or data set
        As :func:`r2mae.text.documents.corpus_of`; or the folder of a store.
    tokenizer : TextTokenizer
        Text that looks like a special token, such as "<mask>", is encoded as text.
    column, split : str
        As :func:`r2mae.text.documents.corpus_of`.
    cache : path, optional
        By default :func:`r2mae.cache.cache_folder`.
    progress : callable, optional
        Called with the amount done and the total after every block of documents.
    threads : int, optional
        By default one for each core.

    Raises
    ------
    UserError
        As :func:`r2mae.text.documents.read_documents` and :class:`TokenStore`; or no place to write to.
    """
    if is_store(source) and isinstance(source, str | Path):
        return TokenStore(Path(source).expanduser(), tokenizer)
    corpus = corpus_of(source, column=column, split=split)
    found = corpus.fingerprint()
    folder = _cached(cache, "tokens", found, tokenizer.fingerprint)
    with create_once(folder) as unfinished:
        if unfinished is not None:
            _tokenise(corpus, tokenizer, unfinished, progress, threads or cores())
            if corpus.fingerprint() != found:
                raise UserError(f"{corpus.name} changed while it was read: run the same command again")
    return TokenStore(folder, tokenizer)


def corpus_tokenizer(
    source: Source,
    vocab_size: int,
    *,
    column: str = "text",
    split: str = "train",
    cache: str | Path | None = None,
    limit: int = 1 << 30,
) -> TextTokenizer:
    """Load the byte-level BPE of a corpus; the first call trains it.

    Parameters
    ----------
    source, column, split, cache
        As :func:`open_store`; a store's own tokenizer is returned unchanged.
    vocab_size : int
        As :func:`r2mae.text.tokenizer.train_bpe`.
    limit : int
        Characters, from the beginning of the corpus, that it is trained on.
    """
    if is_store(source) and isinstance(source, str | Path):
        return TokenStore(Path(source).expanduser()).tokenizer()
    corpus = corpus_of(source, column=column, split=split)
    folder = _cached(cache, "tokenizers", corpus.fingerprint(), str(vocab_size), str(limit))
    with create_once(folder) as unfinished:
        if unfinished is not None:
            train_bpe(_beginning(corpus, limit), vocab_size).save(unfinished)
    return load_tokenizer(folder)


def _cached(cache: str | Path | None, kind: str, *parts: str) -> Path:
    root = cache_folder() if cache is None else Path(cache).expanduser()
    return root / kind / hashlib.blake2b("\0".join((str(FORMAT), *parts)).encode(), digest_size=16).hexdigest()


def _beginning(corpus: Files | Rows, limit: int) -> Iterator[str]:
    read = 0
    for document in _documents(corpus, Position()):
        yield document
        read += len(document)
        if read >= limit:
            return


def _documents(corpus: Files | Rows, position: Position) -> Iterator[str]:
    """Read a corpus; an error of its files is no error of the cache, to which `create_once` would put it down."""
    try:
        yield from corpus.documents(position)
    except OSError as error:
        why = error.strerror or str(error)
        raise UserError(f"{error.filename or corpus.name} cannot be read ({why}): is it still there?") from error


def _tokenise(
    corpus: Files | Rows, tokenizer: TextTokenizer, folder: Path, progress: Progress | None, threads: int
) -> None:
    """Write a store."""
    dtype = np.dtype(np.uint16 if tokenizer.vocab_size <= 1 << 16 else np.uint32).newbyteorder("<")
    lengths: list[Int64[np.ndarray, " n"]] = []
    digest, position, unknown = hashlib.blake2b(digest_size=16), Position(), 0
    with (folder / TOKENS).open("wb") as file:
        for tokens, counts in encoded(_documents(corpus, position), tokenizer, dtype, threads):
            digest.update(tokens.data)
            file.write(tokens.data)
            lengths.append(counts)
            unknown += 0 if tokenizer.unk_id is None else int((tokens == tokenizer.unk_id).sum())
            if progress is not None:
                progress(position.done, position.total)
    offsets = np.concatenate([[0], np.cumsum(np.concatenate(lengths))])
    np.save(folder / OFFSETS, offsets, allow_pickle=False)
    tokenizer.save(folder)
    meta = Meta(
        format=FORMAT,
        source=corpus.name,
        tokenizer=tokenizer.fingerprint,
        dtype=np.dtype(dtype).name,
        documents=len(offsets) - 1,
        tokens=int(offsets[-1]),
        unknown=unknown,
        content=digest.hexdigest(),
    )
    write_json(folder / META, asdict(meta))
