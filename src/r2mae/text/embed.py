"""Embeddings of documents: the mean of the last hidden states over their ordinary tokens, without a mask."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float32, Int64
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from r2mae.errors import warn_once
from r2mae.text.config import TextConfig
from r2mae.text.documents import Source, read_documents
from r2mae.text.store import encoded, unknown_note
from r2mae.text.task import TokenModel, TokenTask
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
    assert model.tokenizer is not None
    tokenizer, beginnings = model.tokenizer, []

    def read() -> Iterator[str]:
        for document in read_documents(source, column=config.data.text_column, split=config.data.split):
            beginnings.append(" ".join(document[: 2 * _BEGINNING_LENGTH].split())[:_BEGINNING_LENGTH])
            yield document

    parts, counts, unknown, device = [], [], 0, next(model.parameters()).device
    with evaluating(model), torch.no_grad():
        for tokens, lengths in encoded(read(), tokenizer, np.dtype(np.int64)):
            unknown += int((tokens == tokenizer.unk_id).sum())
            counts.append(lengths)
            documents = torch.split(torch.from_numpy(tokens), lengths.tolist())
            for first in range(0, len(documents), rows):
                batch = [_shortened(ids, config.data.sequence_length) for ids in documents[first : first + rows]]
                padded = pad_sequence(batch, batch_first=True, padding_value=tokenizer.pad_id)
                parts.append(task.embed(model, padded.to(device)).float().cpu().numpy())
    name = source if isinstance(source, str | Path) else "the corpus"
    numbers: Int64[np.ndarray, " documents"] = np.concatenate(counts)
    if note := unknown_note(name, unknown, int(numbers.sum()), len(numbers)):
        warn_once(note)
    embedding: Float32[np.ndarray, "documents width"] = np.concatenate(parts)
    return {"embedding": embedding, "documents": np.array(beginnings), "tokens": numbers}


def _shortened(ids: Int64[Tensor, " n"], length: int) -> Int64[Tensor, " m"]:
    """Return a document of at most `length` tokens, the last of which is </s>."""
    return ids if len(ids) <= length else torch.cat([ids[: length - 1], ids[-1:]])
