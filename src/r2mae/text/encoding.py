"""Tokenise documents in parallel threads."""

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain
from typing import Any

import numpy as np
from jaxtyping import Int64

from r2mae.errors import UserError
from r2mae.text.tokenizer import TextTokenizer

_BLOCK = 1 << 18  # characters that one thread tokenises at a time
_MANY_UNKNOWN = 0.05  # share of unknown tokens from which the tokenizer hardly fits the text

Progress = Callable[[int, int | None], None]
"""Called with the amount done and the total, or None if that is unknown."""
_Block = tuple[np.ndarray, Int64[np.ndarray, " n"]]


def encoded(
    documents: Iterator[str], tokenizer: TextTokenizer, dtype: np.dtype[Any], threads: int
) -> Iterator[tuple[np.ndarray, Int64[np.ndarray, " n"]]]:
    """Tokenise documents in threads (the library releases Python's lock), in their order.

    Parameters
    ----------
    documents : iterator of str
        The documents.
    tokenizer : TextTokenizer
        Text that looks like a special token is encoded as text.
    dtype : numpy dtype
        A type that is wide enough for the vocabulary.
    threads : int
        Number of threads.

    Yields
    ------
    tokens : ndarray
        <s> tokens </s> of each document in a block, concatenated.
    lengths : int64 ndarray
        Tokens of each document, including <s> and </s>.
    """
    backend = tokenizer.literal()

    def encode(block: list[str]) -> _Block:
        found = [entry.ids for entry in backend.encode_batch_fast(block, add_special_tokens=False)]
        lengths = np.array([len(ids) + 2 for ids in found], np.int64)
        framed = chain.from_iterable(((tokenizer.bos_id,), ids, (tokenizer.eos_id,)) for ids in found)
        return np.fromiter(chain.from_iterable(framed), dtype, count=int(lengths.sum())), lengths

    waiting: deque[Future[_Block]] = deque()
    with _own_threads(), ThreadPoolExecutor(threads, "tokenise") as pool:
        for block in _blocks(documents):
            waiting.append(pool.submit(encode, block))
            if len(waiting) > 2 * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def unknown_note(name: object, unknown: int, tokens: int, documents: int) -> str | None:
    """Return a line on the share of a corpus's tokens that are unknown to the tokenizer, from 5 % on.

    Parameters
    ----------
    name : object
        The name of the corpus.
    unknown, tokens, documents : int
        Numbers of unknown tokens, of all tokens including <s> and </s> of each document, and of documents.

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
    """Turn off the threads of `tokenizers`, which would cause a warning in every process that is forked later."""
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
