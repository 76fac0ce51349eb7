"""The token store: a corpus, tokenised once, as a flat memory-mapped array."""

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64, UInt16, UInt32

from r2mae.cache import cache_folder, create_once
from r2mae.errors import UserError
from r2mae.files import write_json
from r2mae.text.documents import Corpus, Source, corpus_of
from r2mae.text.formats import reading
from r2mae.text.tokenizer import TextTokenizer, load_tokenizer, train_bpe

TOKENS, OFFSETS, META = "tokens.bin", "documents.npy", "meta.json"
FORMAT = 3
_BLOCK = 1 << 19  # characters that are tokenised at a time
_MANY_UNKNOWN = 0.05  # share of unknown tokens from which the tokenizer hardly fits the text

Progress = Callable[[int, int | None], None]
"""Called with the number of characters tokenised and the total, or None if that is unknown."""


class TokenStore:
    """A tokenised corpus on disk; every document is <s> tokens </s>.

    It is pickled as a path: a process that loads data maps the files again.

    Parameters
    ----------
    folder : path
        Folder with tokens.bin, documents.npy and meta.json.

    Attributes
    ----------
    vocab_size, unknown : int
        Size of the vocabulary; number of tokens that the tokenizer does not know.

    Raises
    ------
    UserError
        If there is no store, or its files do not fit each other.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        with self.reading():
            meta = json.loads((self.folder / META).read_text("utf-8"))
            if meta["format"] != FORMAT:
                raise ValueError(f"{META} is not of format {FORMAT}")
            self.vocab_size, self.unknown = int(meta["vocab_size"]), int(meta["unknown"])
            self.dtype = _dtype(self.vocab_size)
            offsets, size = self.offsets(), (self.folder / TOKENS).stat().st_size
            if offsets[0] != 0 or size != offsets[-1] * self.dtype.itemsize or (np.diff(offsets) < 2).any():
                raise ValueError(f"{OFFSETS} does not fit {TOKENS}")
        self._documents, self._tokens = len(offsets) - 1, int(offsets[-1])

    def __len__(self) -> int:
        """Return the number of documents."""
        return self._documents

    def __repr__(self) -> str:
        return f"TokenStore({str(self.folder)!r}: {self._tokens:,} tokens in {len(self):,} documents)"

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "tokens"}

    def reading(self) -> AbstractContextManager[None]:
        """Turn errors of its files into one line."""
        return reading(f"the token store {self.folder}", "delete the folder, and it is made again")

    @cached_property
    def tokens(self) -> UInt16[np.ndarray, " tokens"] | UInt32[np.ndarray, " tokens"]:
        """Return all tokens, mapped from the file, document after document."""
        with self.reading():  # a plain array over the map: indexing a memmap costs more than it reads
            return np.asarray(np.memmap(self.folder / TOKENS, self.dtype, mode="r", shape=(self._tokens,)))

    def offsets(self) -> Int64[np.ndarray, " bounds"]:
        """Return where documents begin in :attr:`tokens`, and the end of the last: one more than documents."""
        with self.reading():
            found: Int64[np.ndarray, " bounds"] = np.array(np.lib.format.open_memmap(self.folder / OFFSETS, mode="r"))
        return found


def open_store(
    source: Source,
    tokenizer: TextTokenizer,
    *,
    column: str = "text",
    split: str = "train",
    cache: str | Path | None = None,
    progress: Progress | None = None,
) -> TokenStore:
    """Open the tokenised copy of a corpus; the first call makes it.

    The copy is found by the content of corpus and tokenizer, wherever their files are. It gets its name when it is
    complete. If two processes need the same copy, the second waits for the first.

    Parameters
    ----------
    source, column, split
        As :func:`r2mae.text.documents.corpus_of`.
    tokenizer : TextTokenizer
        Text that looks like a special token, such as "<mask>", is encoded as text.
    cache : path, optional
        By default :func:`r2mae.cache.cache_folder`.
    progress : callable, optional
        Called with the characters tokenised and the total, or None, after every block of documents.

    Raises
    ------
    UserError
        As :func:`r2mae.text.documents.read_documents` and :class:`TokenStore`; or no place to write to.
    """
    corpus = corpus_of(source, column=column, split=split)
    found = corpus.fingerprint()
    folder = _cached(cache, "tokens", found, tokenizer.fingerprint)
    with create_once(folder) as unfinished:
        if unfinished is not None:
            _tokenise(corpus, tokenizer, unfinished, progress)
            if corpus.fingerprint() != found:
                raise UserError(f"{corpus.name} changed while it was read: run the same command again")
    return TokenStore(folder)


def corpus_tokenizer(
    source: Source,
    vocab_size: int,
    *,
    column: str = "text",
    split: str = "train",
    cache: str | Path | None = None,
    limit: int = 1 << 30,
) -> TextTokenizer:
    """Load the byte-level BPE of a corpus; the first call trains it on the first `limit` characters."""
    corpus = corpus_of(source, column=column, split=split)
    folder = _cached(cache, "tokenizers", corpus.fingerprint(), str(vocab_size), str(limit))

    def beginning() -> Iterator[str]:
        read = 0
        for document in corpus.documents():
            yield document
            read += len(document)
            if read >= limit:
                return

    with create_once(folder) as unfinished:
        if unfinished is not None:
            train_bpe(beginning(), vocab_size).save(unfinished)
    return load_tokenizer(folder)


def encoded(
    documents: Iterator[str], tokenizer: TextTokenizer, dtype: np.dtype[Any]
) -> Iterator[tuple[np.ndarray, Int64[np.ndarray, " n"]]]:
    """Tokenise documents in their order, in the threads of the library.

    Text that looks like a special token is encoded as text. `dtype` is wide enough for the vocabulary.

    Yields
    ------
    tokens : ndarray
        <s> tokens </s> of each document in a block, concatenated.
    lengths : int64 ndarray
        Tokens of each document, including <s> and </s>.
    """
    # Unless it is set, each process that is forked later prints a warning.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    backend = tokenizer.literal()
    for block in _blocks(documents):
        ids = [one.ids for one in backend.encode_batch_fast(block, add_special_tokens=False)]
        lengths = np.array([len(one) + 2 for one in ids], np.int64)
        framed = chain.from_iterable(((tokenizer.bos_id,), one, (tokenizer.eos_id,)) for one in ids)
        yield np.fromiter(chain.from_iterable(framed), dtype, count=int(lengths.sum())), lengths


def unknown_note(name: object, unknown: int, tokens: int, documents: int) -> str | None:
    """Return a line on the share of a corpus's tokens that are unknown to the tokenizer, from 5 % on.

    `tokens` counts all, with <s> and </s> of each document.

    Raises
    ------
    UserError
        If all are unknown, so that no token can be hidden.
    """
    words = tokens - 2 * documents
    if 0 < words == unknown:
        raise UserError(
            f"{name}: every token is unknown to the tokenizer, and none can be hidden: give another --tokenizer, or "
            "omit it to have one trained"
        )
    if unknown < _MANY_UNKNOWN * words:
        return None
    return f"{name}: {unknown / words:.0%} of the tokens are unknown to the tokenizer, which hardly fits this text"


def _cached(cache: str | Path | None, kind: str, *parts: str) -> Path:
    root = cache_folder() if cache is None else Path(cache).expanduser()
    return root / kind / hashlib.blake2b("\0".join((str(FORMAT), *parts)).encode(), digest_size=16).hexdigest()


def _blocks(documents: Iterator[str]) -> Iterator[list[str]]:
    block: list[str] = []
    size = 0
    for document in documents:
        block.append(document)
        size += len(document)
        if size >= _BLOCK:
            yield block
            block, size = [], 0
    if block:
        yield block


def _tokenise(corpus: Corpus, tokenizer: TextTokenizer, folder: Path, progress: Progress | None) -> None:
    """Write a store."""
    dtype = _dtype(tokenizer.vocab_size)
    lengths: list[Int64[np.ndarray, " n"]] = []
    done = unknown = 0

    def read() -> Iterator[str]:
        nonlocal done
        for document in corpus.documents():
            done += len(document)
            yield document

    with (folder / TOKENS).open("wb") as file:
        for tokens, counts in encoded(read(), tokenizer, dtype):
            file.write(tokens.data)
            lengths.append(counts)
            unknown += 0 if tokenizer.unk_id is None else int((tokens == tokenizer.unk_id).sum())
            if progress is not None:
                progress(done, corpus.size)
    offsets = np.concatenate([[0], np.cumsum(np.concatenate(lengths))])
    np.save(folder / OFFSETS, offsets, allow_pickle=False)
    write_json(folder / META, {"format": FORMAT, "vocab_size": tokenizer.vocab_size, "unknown": unknown})


def _dtype(vocab_size: int) -> np.dtype[Any]:
    """Return the type of tokens of a vocabulary, little-endian."""
    return np.dtype(np.uint16 if vocab_size <= 1 << 16 else np.uint32).newbyteorder("<")
