"""The token store, a corpus that is tokenised once as a flat memory-mapped array, and its batches for training.

A batch has rows of equal length, cut from the packed stream of documents.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from r2mae.cache import cache_folder, create_once
from r2mae.errors import UserError, reading
from r2mae.files import write_json
from r2mae.masking.keys import Key, permutation
from r2mae.progress import counting_bar
from r2mae.text.checkpoint import checkpoint_architecture, checkpoint_folder
from r2mae.text.config import PRETRAINED, TextConfig
from r2mae.text.documents import Corpus, corpus_of
from r2mae.text.tokenizer import TextTokenizer, load_tokenizer, train_bpe
from r2mae.training.task import Batches, Data

TOKENS, OFFSETS, META = "tokens.bin", "documents.npy", "meta.json"
FORMAT = 3
_BLOCK = 1 << 19  # characters that are tokenised at a time
_MANY_UNKNOWN = 0.05  # share of unknown tokens from which the tokenizer hardly fits the text
_TOO_FEW_DOCUMENTS = (
    "holds too few documents to hold some out: set documents apart by blank lines, add some, or give --validation 0"
)

Progress = Callable[[int, int | None], None]
"""Called with the number of characters tokenised and the total, or None if that is unknown."""


class TokenStore:
    """A tokenised corpus on disk; every document is <s> tokens </s>. It is pickled as a path.

    Parameters
    ----------
    folder : path
        Folder with tokens.bin, documents.npy and meta.json. A UserError is raised if they do not fit each other.

    Attributes
    ----------
    tokens : uint16 or uint32 ndarray
        All tokens, mapped from the file, document after document.
    offsets : int64 ndarray
        Where documents begin in `tokens`, and the end of the last: one more than documents; mapped.
    vocab_size, unknown : int
        Size of the vocabulary; number of tokens that the tokenizer does not know.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        with self.reading():
            meta = json.loads((self.folder / META).read_text("utf-8"))
            if meta["format"] != FORMAT:
                raise ValueError(f"{META} is not of format {FORMAT}")
            self.vocab_size, self.unknown = int(meta["vocab_size"]), int(meta["unknown"])
            # Plain arrays over the maps: indexing a memmap costs more than it reads.
            self.tokens = np.asarray(np.memmap(self.folder / TOKENS, _dtype(self.vocab_size), mode="r"))
            self.offsets = np.asarray(np.lib.format.open_memmap(self.folder / OFFSETS, mode="r"))
            if self.offsets[0] != 0 or self.offsets[-1] != len(self.tokens) or (np.diff(self.offsets) < 2).any():
                raise ValueError(f"{OFFSETS} does not fit {TOKENS}")

    def __len__(self) -> int:
        """Return the number of documents."""
        return len(self.offsets) - 1

    def __repr__(self) -> str:
        return f"TokenStore({str(self.folder)!r}: {len(self.tokens):,} tokens in {len(self):,} documents)"

    def __reduce__(self) -> tuple[type["TokenStore"], tuple[Path]]:
        return TokenStore, (self.folder,)

    def reading(self) -> AbstractContextManager[None]:
        """Turn errors of its files into one line."""
        return reading(f"the token store {self.folder}", "delete the folder, and it is made again")


def open_store(
    source: str | Path,
    tokenizer: TextTokenizer,
    *,
    column: str = "text",
    split: str = "train",
    progress: Progress | None = None,
) -> TokenStore:
    """Open the tokenised copy of a corpus in the cache; the first call makes it.

    The copy is found by the content of corpus and tokenizer, wherever their files are. It gets its name when it is
    complete. If two processes need the same copy, the second waits for the first. `progress` is called after every
    block of documents; for other parameters see :func:`r2mae.text.documents.corpus_of`. Text that looks like a special
    token, such as "<mask>", is encoded as text.
    """
    corpus = corpus_of(source, column=column, split=split)
    found = corpus.fingerprint()
    folder = _cached("tokens", found, tokenizer.fingerprint)
    with create_once(folder) as unfinished:
        if unfinished is not None:
            _tokenise(corpus, tokenizer, unfinished, progress)
            if corpus.fingerprint() != found:
                raise UserError(f"{corpus.name} changed while it was read: run the same command again")
    return TokenStore(folder)


def corpus_tokenizer(
    source: str | Path, vocab_size: int, *, column: str = "text", split: str = "train", limit: int = 1 << 30
) -> TextTokenizer:
    """Load the byte-level BPE of a corpus; the first call trains it on the first `limit` characters."""
    corpus = corpus_of(source, column=column, split=split)
    folder = _cached("tokenizers", corpus.fingerprint(), str(vocab_size), str(limit))

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
        with reading("the text", "the tokenizer fails on it: take another"):
            ids = [one.ids for one in backend.encode_batch_fast(block, add_special_tokens=False)]
        lengths = np.array([len(one) + 2 for one in ids], np.int64)
        framed = chain.from_iterable(((tokenizer.bos_id,), one, (tokenizer.eos_id,)) for one in ids)
        yield np.fromiter(chain.from_iterable(framed), dtype, count=int(lengths.sum())), lengths


def unknown_note(name: object, unknown: int, tokens: int, documents: int) -> str | None:
    """Return a line on the share of a corpus's tokens that are unknown to the tokenizer, from 5 % on.

    `tokens` counts all, with <s> and </s> of each document. A UserError is raised if all are unknown, so that no token
    can be hidden.
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


def _cached(kind: str, *parts: str) -> Path:
    content = "\0".join((str(FORMAT), *parts)).encode()
    return cache_folder() / kind / hashlib.blake2b(content, digest_size=16).hexdigest()


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
    lengths: list[Int64[np.ndarray, " n"]] = []
    done = unknown = 0

    def read() -> Iterator[str]:
        nonlocal done
        for document in corpus.documents():
            done += len(document)
            yield document

    with (folder / TOKENS).open("wb") as file:
        for tokens, counts in encoded(read(), tokenizer, _dtype(tokenizer.vocab_size)):
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


class TokenBatches(Batches):
    """Rows of tokens, read in batches (:class:`r2mae.training.task.Batches`).

    The chosen documents are concatenated and cut into rows of `length` without padding. A document may continue in the
    next row. The remainder at the end of the stream, less than a row, is dropped.

    Parameters
    ----------
    store : TokenStore
        The store of the documents. Every process that reads maps its files.
    length : int
        Tokens of a row.
    documents : int64 ndarray, shape (chosen,), optional
        Numbers of the documents; by default all. They are read in the order of the store.
    """

    def __init__(self, store: TokenStore, length: int, documents: Int64[np.ndarray, " chosen"] | None = None) -> None:
        self.store, self.length = store, length
        chosen = np.arange(len(store)) if documents is None else np.unique(documents)
        # Neighbouring documents make one segment of the file.
        first = np.flatnonzero(np.diff(chosen, prepend=-2) != 1)
        last = np.append(first[1:], len(chosen)) - 1
        starts, ends = store.offsets[chosen[first]], store.offsets[chosen[last] + 1]
        self._ends: Int64[np.ndarray, " segments"] = np.cumsum(ends - starts)  # in the stream
        self._shift: Int64[np.ndarray, " segments"] = ends - self._ends  # from stream to file
        self.documents = len(chosen)
        self.tokens = int((ends - starts).sum())

    def __repr__(self) -> str:
        return f"TokenBatches({len(self):,} sequences of {self.length} tokens)"

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.tokens // self.length

    def batch(self, indices: Sequence[int] | np.ndarray, key: Key) -> Int64[Tensor, "batch length"]:
        """Return these rows; the key has no effect. A UserError is raised for tokens outside the vocabulary."""
        rows = np.asarray(indices, dtype=np.int64)
        if rows.size and not 0 <= rows.min() <= rows.max() < len(self):
            raise IndexError(f"rows {rows.min()} to {rows.max()} of {len(self)}")
        starts = rows * self.length
        segments = np.searchsorted(self._ends, starts, side="right")
        tokens = self.store.tokens
        # At every token of the file; numpy's sliding_window_view takes as long as a batch.
        windows = np.ndarray((len(tokens) - self.length + 1, self.length), tokens.dtype, tokens, 0, 2 * tokens.strides)
        # The last rows of segments continue in others, and may begin too late for a window.
        found = windows[np.minimum(starts + self._shift[segments], len(windows) - 1)].astype(np.int64)
        for row in np.flatnonzero(starts + self.length > self._ends[segments]):
            inside = starts[row] + np.arange(self.length)
            found[row] = tokens[inside + self._shift[np.searchsorted(self._ends, inside, side="right")]]
        if found.size and (largest := int(found.max())) >= self.store.vocab_size:
            with self.store.reading():
                raise ValueError(f"token {largest:,} is not in its vocabulary of {self.store.vocab_size:,}")
        return torch.from_numpy(found)


@dataclass(frozen=True, repr=False)
class TextData(Data):
    """The data of a run on text.

    Parameters
    ----------
    store : TokenStore
        All documents.
    train, validation : TokenBatches
        Rows of the training documents, and of the held-out documents.
    architecture : dict
        The values that the model is built from, including the tokenizer.
    notes : tuple of str
        Notes on the data for the user.
    """

    store: TokenStore
    tokenizer: TextTokenizer
    train: TokenBatches
    validation: TokenBatches | None
    architecture: dict[str, Any]
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"TextData({self.store!r}, train={self.train!r}, validation={self.validation!r})"


def load_data(config: TextConfig, *, tokenizer: TextTokenizer | None = None, hold_out: bool = True) -> TextData:
    """Read a corpus, tokenised once, and split its documents; the split depends on the seed.

    Parameters
    ----------
    config : TextConfig
        Without a tokenizer, a byte-level BPE is trained on the corpus.
    tokenizer : TextTokenizer, optional
        That of a run, in place of the configuration's.
    hold_out : bool
        Otherwise all documents are both training and validation data.
    """
    if config.model.name == PRETRAINED and config.init is None:
        raise UserError(f"the model {PRETRAINED} is the checkpoint of init, which is missing: give --init PATH")
    options: dict[str, Any] = {"column": config.data.text_column, "split": config.data.split}
    if tokenizer is None and config.init is not None:
        tokenizer = load_tokenizer(checkpoint_folder(config.init))
    elif tokenizer is None and config.data.tokenizer is not None:
        tokenizer = load_tokenizer(config.data.tokenizer)
    elif tokenizer is None:
        tokenizer = corpus_tokenizer(config.data.source, config.data.vocab_size, **options)
    with counting_bar(f"{config.data.source}: characters", counted=False, transient=True) as bar:
        store = open_store(config.data.source, tokenizer, progress=bar, **options)
    data = split_data(store, tokenizer, config, hold_out=hold_out)
    return data if hold_out else replace(data, validation=data.train, notes=())


def split_data(store: TokenStore, tokenizer: TextTokenizer, config: TextConfig, *, hold_out: bool = True) -> TextData:
    """Split the documents into training and, with `hold_out`, validation documents by the configuration.

    A UserError is raised if the documents of either part do not fill a row, or no token is known to the tokenizer.
    """
    length, tokens, validation = config.data.sequence_length, len(store.tokens), None
    train = TokenBatches(store, length)
    if not len(train):
        raise UserError(
            f"{config.data.source}: holds {tokens:,} tokens, less than one sequence of {length}: give more text, or "
            "pretrain with a smaller --sequence-length"
        )
    if hold_out and config.data.validation:
        held_out = _validation_documents(store, config)
        train = TokenBatches(store, length, np.delete(np.arange(len(store)), held_out))
        validation = TokenBatches(store, length, held_out)
    if not len(train):
        raise UserError(f"{config.data.source}: {_TOO_FEW_DOCUMENTS}")
    notes = [
        unknown_note(config.data.source, store.unknown, tokens, len(store)),
        f"{tokens:,} tokens in {len(store):,} documents make {len(train):,} sequences of {length} to train on "
        f"({train.tokens % length} tokens at the end are omitted); "
        + ("none are held out, and no loss is measured" if validation is None else f"{len(validation):,} are held out"),
    ]
    share = 0.0 if validation is None else validation.tokens / tokens
    if share > max(2 * config.data.validation, config.data.validation + 0.05):
        notes.append(f"{share:.0%} of the tokens are held out, since whole documents are, and these are few and long")
    if config.optimizer.batch_size > len(train):
        notes.append(
            f"a step takes {config.optimizer.batch_size:,} sequences and there are {len(train):,}: each is seen "
            "several times in a step (--batch-size)"
        )
    built = architecture(config, tokenizer)
    return TextData(store, tokenizer, train, validation, built, tuple(note for note in notes if note is not None))


def _validation_documents(store: TokenStore, config: TextConfig) -> Int64[np.ndarray, " held"]:
    """Return the documents to hold out: the fraction of the configuration, but enough to fill a row."""
    order = permutation(Key.root(config.seed).fold("validation"), len(store))
    lengths = np.diff(store.offsets)[order]
    enough = int(np.searchsorted(np.cumsum(lengths), config.data.sequence_length)) + 1
    count = max(round(config.data.validation * len(store)), enough)
    if count >= len(store):
        raise UserError(f"{config.data.source}: {_TOO_FEW_DOCUMENTS}")
    return np.sort(order[:count])


def architecture(config: TextConfig, tokenizer: TextTokenizer) -> dict[str, Any]:
    """Return the values that the model is built from, including the tokenizer, so that no data are needed."""
    own = {} if config.init is None else checkpoint_architecture(config.init, tokenizer, config.data.sequence_length)
    return {
        **own,
        "vocab_size": tokenizer.vocab_size,
        "special_ids": list(tokenizer.special_ids),
        "mask_id": tokenizer.mask_id,
        "pad_id": tokenizer.pad_id,
        "bos_id": tokenizer.bos_id,
        "eos_id": tokenizer.eos_id,
        "length": config.data.sequence_length,
        **config.model.architecture(),
        "corruption": config.task.corruption,
        "exact": config.task.exact,
        **({} if config.task.mask == "tokens" else {"units": config.task.mask}),
        "roles": tokenizer.roles,
        "tokenizer": tokenizer.to_json(),
    }
