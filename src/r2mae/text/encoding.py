"""Tokenise a corpus in parallel threads."""

import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from jaxtyping import Int64

from r2mae.text.tokenizer import TextTokenizer

_BLOCK = 1 << 18  # characters that one thread tokenises at a time


@dataclass(frozen=True)
class Tokenised:
    """The progress of tokenising, or of training a tokenizer.

    Parameters
    ----------
    documents, tokens : int
        Numbers of documents and tokens done.
    fraction : float, optional
        Fraction done of the corpus or of the merges; None if the size is unknown.
    seconds, seconds_left : float
        Seconds passed, and seconds left (None if unknown).
    stage : {"", "reading", "merging"}
        Stage of the training of a tokenizer; seconds are those of the stage.
    """

    documents: int
    tokens: int
    fraction: float | None
    seconds: float
    seconds_left: float | None
    stage: str = ""

    @classmethod
    def after(cls, start: float, documents: int, tokens: int, fraction: float | None, stage: str = "") -> "Tokenised":
        """Return the progress with the time since `start`, a value of ``time.monotonic``."""
        seconds = time.monotonic() - start
        return cls(documents, tokens, fraction, seconds, seconds * (1 / fraction - 1) if fraction else None, stage)


Progress = Callable[[Tokenised], None]


def encoded(
    documents: Iterator[str], tokenizer: TextTokenizer, dtype: np.dtype[Any], threads: int
) -> Iterator[tuple[np.ndarray, Int64[np.ndarray, " n"]]]:
    """Tokenise documents in threads (the library releases Python's lock), in their order.

    Parameters
    ----------
    documents : iterator of str
    tokenizer : TextTokenizer
        Text that looks like a special token is encoded as text.
    dtype : numpy dtype
        Wide enough for the vocabulary.
    threads : int

    Yields
    ------
    tokens : ndarray
        <s> tokens </s> of each document in a block, concatenated.
    lengths : int64 ndarray
        Tokens of each document, including <s> and </s>.
    """
    from tokenizers import Tokenizer

    backend = Tokenizer.from_str(tokenizer.to_json())
    backend.encode_special_tokens = True

    def encode(block: list[str]) -> tuple[np.ndarray, Int64[np.ndarray, " n"]]:
        found = [entry.ids for entry in backend.encode_batch_fast(block, add_special_tokens=False)]
        lengths = np.array([len(ids) + 2 for ids in found], np.int64)
        framed = chain.from_iterable(((tokenizer.bos_id,), ids, (tokenizer.eos_id,)) for ids in found)
        return np.fromiter(chain.from_iterable(framed), dtype, count=int(lengths.sum())), lengths

    waiting: deque[Future[tuple[np.ndarray, Int64[np.ndarray, " n"]]]] = deque()
    with _own_threads(), ThreadPoolExecutor(threads, "tokenise") as pool:
        try:
            for block in _blocks(documents):
                waiting.append(pool.submit(encode, block))
                if len(waiting) > 2 * threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


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


@contextmanager
def _own_threads() -> Iterator[None]:
    """Turn off the own threads of `tokenizers`, which would cause a warning in every forked process."""
    name = "TOKENIZERS_PARALLELISM"
    before = os.environ.get(name)
    os.environ[name] = "false"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
