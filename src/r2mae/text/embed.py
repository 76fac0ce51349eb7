"""Embeddings: the mean of the last hidden states over the ordinary tokens of a sequence, without a mask."""

from collections.abc import Callable, Iterator, Sequence
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

_ROWS = 128
_BEGINNING_LENGTH = 80  # characters of a document's beginning that identify it


@torch.no_grad()
def embed_sequences(
    task: TokenTask,
    model: TokenModel,
    sequences: Sequence[Int64[Tensor, " _"]],
    length: int,
    count: Callable[[int], None] = lambda more: None,
) -> Float32[np.ndarray, "n width"]:
    """Embed sequences of tokens, in batches of similar lengths.

    Parameters
    ----------
    task, model
        Those of the run.
    sequences : sequence of int64 tensor
        Tokens with the two that open and close. A sequence without any other is zero.
    length : int
        Longest sequence of the model, at least 3. A longer one is embedded in pieces, and the mean is over all of its
        tokens.
    count : callable, optional
        Called with the number of further sequences that are embedded.
    """
    pieces, owners = [], []
    for row, ids in enumerate(sequences):
        for piece in torch.split(ids[1:-1], length - 2):
            pieces.append(torch.cat([ids[:1], piece, ids[-1:]]))
            owners.append(row)
    owner, sizes = np.array(owners), np.array([len(piece) - 2 for piece in pieces])
    first = np.diff(owner, prepend=-1) != 0
    sums, device = np.zeros((len(sequences), task.width)), next(model.parameters()).device
    order = np.argsort(sizes, kind="stable")
    with evaluating(model):
        for rows in np.split(order, range(_ROWS, len(order), _ROWS)):
            padded = pad_sequence([pieces[row] for row in rows], batch_first=True, padding_value=task.pad_id)
            states = task.embed(model, padded.to(device)).float().cpu().numpy()
            np.add.at(sums, owner[rows], sizes[rows, None] * states)
            count(int(first[rows].sum()))
    embedded: np.ndarray = (sums / np.bincount(owner, sizes).clip(min=1)[:, None]).astype(np.float32)
    return embedded


def embed_documents(config: TextConfig, task: TokenTask, model: TokenModel, source: Source) -> dict[str, np.ndarray]:
    """Embed every document of a corpus, cut to the length of the model's sequences.

    Parameters
    ----------
    config, task, model
        Those of the run.
    source : str, list of files, or data set
        See :func:`r2mae.text.documents.corpus_of`.

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
    tokenizer, beginnings, length = model.tokenizer, [], config.data.sequence_length

    def read() -> Iterator[str]:
        for document in read_documents(source, column=config.data.text_column, split=config.data.split):
            beginnings.append(" ".join(document[: 2 * _BEGINNING_LENGTH].split())[:_BEGINNING_LENGTH])
            yield document

    parts, counts, unknown = [], [], 0
    for tokens, lengths in encoded(read(), tokenizer, np.dtype(np.int64)):
        unknown += int((tokens == tokenizer.unk_id).sum())
        counts.append(lengths)
        documents = torch.split(torch.from_numpy(tokens), lengths.tolist())
        cut = [ids if len(ids) <= length else torch.cat([ids[: length - 1], ids[-1:]]) for ids in documents]
        parts.append(embed_sequences(task, model, cut, length))
    name = source if isinstance(source, str | Path) else "the corpus"
    numbers: Int64[np.ndarray, " documents"] = np.concatenate(counts)
    if note := unknown_note(name, unknown, int(numbers.sum()), len(numbers)):
        warn_once(note)
    return {"embedding": np.concatenate(parts), "documents": np.array(beginnings), "tokens": numbers}
