"""Batches of tokens for the training loop: a packed stream, cut into rows of equal length."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64
from numpy.lib.stride_tricks import sliding_window_view
from torch import Tensor

from r2mae.errors import UserError
from r2mae.masking.keys import Key, permutation
from r2mae.progress import counting_bar
from r2mae.text.checkpoint import checkpoint_architecture, checkpoint_folder
from r2mae.text.config import PAPER_PRESETS, PRETRAINED, TextConfig
from r2mae.text.store import TokenStore, corpus_tokenizer, open_store, unknown_note
from r2mae.text.tokenizer import TextTokenizer, load_tokenizer
from r2mae.training.task import Batches, Data


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
        offsets = store.offsets()
        chosen = np.arange(len(store)) if documents is None else np.unique(documents)
        # Neighbouring documents make one segment of the file.
        first = np.flatnonzero(np.diff(chosen, prepend=-2) != 1)
        last = np.append(first[1:], len(chosen)) - 1
        starts, sizes = offsets[chosen[first]], offsets[chosen[last] + 1] - offsets[chosen[first]]
        self._ends: Int64[np.ndarray, " segments"] = np.cumsum(sizes)  # in the stream
        self._shift: Int64[np.ndarray, " segments"] = starts - (self._ends - sizes)  # from stream to file
        self.documents = len(chosen)
        self.tokens = int(sizes.sum())
        self._windows: np.ndarray | None = None  # at every token of the file

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_windows": None}

    def __repr__(self) -> str:
        return f"TokenBatches({len(self):,} sequences of {self.length} tokens)"

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.tokens // self.length

    def batch(self, indices: Sequence[int] | np.ndarray, key: Key) -> Int64[Tensor, "batch length"]:
        """Return these rows; the key has no effect.

        Raises
        ------
        UserError
            If the store has changed since it was opened.
        """
        rows = np.asarray(indices, dtype=np.int64)
        if rows.size and not 0 <= rows.min() <= rows.max() < len(self):
            raise IndexError(f"rows {rows.min()} to {rows.max()} of {len(self)}")
        starts = rows * self.length
        segments = np.searchsorted(self._ends, starts, side="right")
        if self._windows is None:
            self._windows = sliding_window_view(self.store.tokens, self.length)
        # The last rows of segments continue in others, and may begin too late for a window.
        found = self._windows[np.minimum(starts + self._shift[segments], len(self._windows) - 1)].astype(np.int64)
        for row in np.flatnonzero(starts + self.length > self._ends[segments]):
            inside = starts[row] + np.arange(self.length)
            found[row] = self.store.tokens[inside + self._shift[np.searchsorted(self._ends, inside, side="right")]]
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


def load_data(
    config: TextConfig,
    *,
    tokenizer: TextTokenizer | None = None,
    hold_out: bool = True,
    cache: str | Path | None = None,
) -> TextData:
    """Read a corpus, tokenised once, and split its documents; the split depends on the seed.

    Parameters
    ----------
    config : TextConfig
        Without a tokenizer, a byte-level BPE is trained on the corpus.
    tokenizer : TextTokenizer, optional
        That of a run, in place of the configuration's.
    hold_out : bool
        Otherwise all documents are both training and validation data.
    cache : path, optional
        Folder of tokenised corpora, by default :func:`r2mae.cache.cache_folder`.

    Raises
    ------
    UserError
        As :func:`r2mae.text.store.open_store` and :func:`r2mae.text.tokenizer.load_tokenizer`; or too little text.
    """
    if config.model.name == PRETRAINED and config.init is None:
        raise UserError(f"the model {PRETRAINED} is the checkpoint of init, which is missing: give --init PATH")
    options: dict[str, Any] = {"column": config.data.text_column, "split": config.data.split, "cache": cache}
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

    Raises
    ------
    UserError
        If the documents of either part do not fill a row, or no token is known to the tokenizer.
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
    own = config.preset in PAPER_PRESETS and config.data.tokenizer is None
    notes = [
        f"{config.preset} with a BPE of {tokenizer.vocab_size:,} tokens that is trained on the corpus: the paper's is "
        "RoBERTa's (--tokenizer FacebookAI/roberta-base fetches it)"
        if own
        else None,
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


_TOO_FEW_DOCUMENTS = (
    "holds too few documents to hold some out: set documents apart by blank lines, add some, or give --validation 0"
)


def _validation_documents(store: TokenStore, config: TextConfig) -> Int64[np.ndarray, " held"]:
    """Return the documents to hold out: the fraction of the configuration, but enough to fill a row."""
    order = permutation(Key.root(config.seed).fold("validation"), len(store))
    lengths = np.diff(store.offsets())[order]
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
        "roles": tokenizer.roles,
        "tokenizer": tokenizer.to_json(),
    }
