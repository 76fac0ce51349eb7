"""Embeddings of documents: the mean of the last hidden states over their ordinary tokens, without a mask."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float32, Int64

from r2mae.cores import cores
from r2mae.errors import warn_once
from r2mae.text.config import TextConfig
from r2mae.text.documents import Source, read_documents
from r2mae.text.encoding import encoded, unknown_note
from r2mae.text.task import TokenModel, TokenTask
from r2mae.text.tokenizer import TextTokenizer
from r2mae.training.validation import evaluating

_ROWS = 64
_BEGINNING_LENGTH = 80  # characters of a document's beginning that identify it


def embed_documents(
    config: TextConfig, task: TokenTask, model: TokenModel, source: Source, *, rows: int = _ROWS
) -> dict[str, np.ndarray]:
    """Embed every document of a corpus, cut to the length of the model's sequences.

    Parameters
    ----------
    config, task, model
        Those of the run.
    source : str, list of files, or data set
        See :func:`r2mae.text.documents.corpus_of`.
    rows : int
        Documents at a time.

    Returns
    -------
    dict
        ``embedding``, shape (documents, width); ``documents``, their beginnings; ``tokens``, their numbers of tokens
        before cutting.

    Raises
    ------
    UserError
        If the source cannot be read, or its tokens are all unknown.
    """
    assert isinstance(model.tokenizer, TextTokenizer)
    tokenizer, beginnings = model.tokenizer, []

    def read() -> Iterator[str]:
        for document in read_documents(source, column=config.data.text_column, split=config.data.split):
            beginnings.append(" ".join(document[: 2 * _BEGINNING_LENGTH].split())[:_BEGINNING_LENGTH])
            yield document

    parts, counts, unknown, device = [], [], 0, next(model.parameters()).device
    with evaluating(model), torch.no_grad():
        for tokens, lengths in encoded(read(), tokenizer, np.dtype(np.int64), cores()):
            unknown += int((tokens == tokenizer.unk_id).sum())
            batches = _batches(tokens, lengths, tokenizer, config.data.sequence_length, rows)
            parts += [task.embed(model, batch.to(device)).float().cpu().numpy() for batch in batches]
            counts.append(lengths)
    total = int(np.concatenate(counts).sum())
    if note := unknown_note(
        source if isinstance(source, str | Path) else "the corpus", unknown, total, len(beginnings)
    ):
        warn_once(note)
    embedding: Float32[np.ndarray, "documents width"] = np.concatenate(parts)
    return {"embedding": embedding, "documents": np.array(beginnings), "tokens": lengths}


def _batches(
    tokens: Int64[np.ndarray, " tokens"],
    lengths: Int64[np.ndarray, " documents"],
    tokenizer: TextTokenizer,
    length: int,
    rows: int,
) -> Iterator[torch.Tensor]:
    """Yield batches of documents, <s> tokens </s>, cut to `length` and padded."""
    starts = np.cumsum(lengths) - lengths
    for first in range(0, len(lengths), rows):
        kept = np.minimum(lengths[first : first + rows], length)
        batch = np.full((len(kept), int(kept.max())), tokenizer.pad_id, dtype=np.int64)
        for row, (start, count) in enumerate(zip(starts[first:], kept, strict=False)):
            batch[row, :count] = tokens[start : start + count]
            batch[row, count - 1] = tokenizer.eos_id
        yield torch.from_numpy(batch)
