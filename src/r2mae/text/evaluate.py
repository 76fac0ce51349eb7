"""Evaluate a masked language model: loss and accuracy by mask ratio on held-out text, GLUE, and embeddings.

An embedding is the mean of the last hidden states over the ordinary tokens of a sequence, without a mask. A linear
probe fits logistic regression (ridge regression for similarities) to the embeddings of a task of GLUE: fine-tuning
small models of short pretraining may end near the commonest label, however they were pretrained.
"""

import logging
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int64
from sklearn.preprocessing import StandardScaler
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from r2mae.catalogue import data_root
from r2mae.cores import refuse_beyond_memory
from r2mae.environment import sum_dtype
from r2mae.errors import UserError, warn_once
from r2mae.evaluation.items import ItemRecorder, item_shares
from r2mae.evaluation.probes import LinearProbe, RidgeProbe
from r2mae.masking.keys import Key
from r2mae.text.batches import TextData, encoded, unknown_note
from r2mae.text.config import MOST_SEQUENCES, TextConfig
from r2mae.text.documents import corpus_of
from r2mae.text.finetune import LENGTH, Progress, encode, finetune
from r2mae.text.glue import GlueExamples, GlueScores, glue_task, read_glue, score
from r2mae.text.task import HiddenTokens, TokenModel, TokenTask
from r2mae.training.run import cpu_threads
from r2mae.training.task import Batches
from r2mae.training.validation import EVALUATION_KEY, RecordedBatches, evaluating

RATIOS = (0.15, 0.3, 0.4, 0.5, 0.6, 0.8)  # from the default ratio to the highest of the paper's Fig. 1F
_ROWS = 64
_LOGITS = 1 << 20  # logits at a time: 4 MiB, which fit into a CPU's caches
_DEVICE_LOGITS = 1 << 25
_EMBEDDED_ROWS = 128
_BEGINNING_LENGTH = 80  # characters of a document's beginning that identify it
# Inverse strengths of the penalty on standardised features, and strengths for similarities. Both grids extend beyond
# the strengths chosen with a few hundred features and a few thousand sentences.
CS = tuple(10.0**power for power in range(-5, 2))
ALPHAS = tuple(10.0**power for power in range(7))
_FOLDS = 5
_BYTES = 24  # bytes per entry of the features: as float32, in the folds as float64, and temporarily


def evaluate(
    config: TextConfig,
    task: TokenTask,
    model: TokenModel,
    data: TextData | None,
    *,
    curve: bool = True,
    progress: Progress | None = None,
    items: ItemRecorder | None = None,
    **recipe: Any,
) -> dict[str, float]:
    """Return the scores of a pretrained model.

    Parameters
    ----------
    config, task, model, data
        Those of the run. The configuration says how many held-out sequences, tasks and examples are measured. Without
        data, only GLUE is.
    curve : bool
        Measure loss and accuracy by mask ratio, if documents are held out.
    progress : callable, optional
        Counts held-out sequences, then the sentences of each probe, then the steps of each task.
    items : ItemRecorder, optional
        Records the share of each held-out sequence in ``loss`` and ``accuracy``.
    **recipe
        Other arguments of :func:`r2mae.text.finetune.finetune`.

    Returns
    -------
    dict
        ``loss`` (nats per hidden token) and ``accuracy``: means over :data:`RATIOS`; ``loss_0.15``, ``accuracy_0.15``
        and so on. For each probe and task :meth:`r2mae.text.glue.GlueScores.by_name`. With two or more probes or tasks
        also ``glue_probe`` or ``glue``, the mean of their main scores.
    """
    scores: dict[str, float] = {}
    chosen = config.evaluation
    if curve and data is not None and data.validation is not None and len(data.validation):
        most = chosen.eval_sequences
        curves = ratio_curve(task, model, data.validation, sequences=most, progress=progress, items=items)
        for title, values in zip(("loss", "accuracy"), curves, strict=True):
            scores[title] = float(np.mean(values))
            scores |= {f"{title}_{ratio:g}": float(value) for ratio, value in zip(RATIOS, values, strict=True)}
    where = data_root() / "glue"
    common: dict[str, Any] = {"limit": chosen.glue_limit, "length": min(LENGTH, config.data.sequence_length)}
    for mean, names in (("glue_probe", chosen.glue_probes), ("glue", chosen.glue)):
        main = []
        for name in names:
            with cpu_threads(config.machine.threads):
                if mean == "glue":
                    found = finetune(model, name, where, progress=progress, **common, **recipe)
                else:
                    found = probe_glue(task, model, name, where, progress=progress, **common)
            if multiprocessing.parent_process() is None:  # worker processes of a comparison log nothing
                logging.getLogger("r2mae").warning("%s", found)
            scores |= found.by_name()
            main.append(found.score)
        if len(main) > 1:
            scores[mean] = float(np.mean(main))
    return scores


@torch.no_grad()
def ratio_curve(
    task: TokenTask,
    model: TokenModel,
    rows: Batches,
    ratios: Sequence[float] = RATIOS,
    *,
    sequences: int = MOST_SEQUENCES,
    progress: Progress | None = None,
    items: ItemRecorder | None = None,
) -> tuple[Float64[np.ndarray, " ratios"], Float64[np.ndarray, " ratios"]]:
    """Return loss and accuracy at each mask ratio, on masks that are the same for every model.

    Hidden tokens are corrupted as in pretraining. In each sequence the rounded count is hidden. The mask of a sequence
    depends only on its place and the ratio, not on the other ratios, the size of batches, or the device. At most
    `sequences` rows are used, evenly spaced. `items` records the share of each in the mean of a score over the ratios.

    Returns
    -------
    losses : ndarray, shape (ratios,)
        Cross entropy of a hidden token in nats, mean over all hidden tokens.
    accuracies : ndarray, shape (ratios,)
        Fraction of hidden tokens to which the model gives the highest probability.
    """
    task = replace(task, exact=True)  # also for runs trained with exact=False
    if len(rows) < 1 or sequences < 1:
        raise UserError("there is no held-out sequence to measure on: hold documents out with --validation 0.01")
    chosen = np.linspace(0, len(rows) - 1, min(len(rows), sequences)).round().astype(np.int64)
    device = next(model.parameters()).device
    key = Key.root(0).fold("ratio curve")
    sums = torch.zeros(3, len(ratios), len(chosen), dtype=sum_dtype(device), device=device)
    read = rows if items is None else RecordedBatches(rows, items)
    with evaluating(model):
        for first in range(0, len(chosen), _ROWS):
            batch = read.batch(chosen[first : first + _ROWS], EVALUATION_KEY.rows(first)).to(device)
            for place, ratio in enumerate(ratios):
                own = key.fold(round(ratio * 10_000)).rows(first)
                sums[:, place, first : first + _ROWS] = _sums(task, model, task.corrupt(batch, ratio, own))
            if progress is not None:
                progress(min(first + _ROWS, len(chosen)), len(chosen))
    of_rows = sums.cpu().numpy()
    losses, hits, counts = of_rows.sum(-1)
    if not counts.all():
        raise UserError("the held-out sequences have no token that can be hidden: give more text")
    if items is not None:
        for name, each, totals in zip(("loss", "accuracy"), of_rows[:2], (losses, hits), strict=True):
            items.add(name, item_shares(each, totals / counts))
    return losses / counts, hits / counts


def _sums(task: TokenTask, model: TokenModel, corrupted: HiddenTokens) -> Float64[Tensor, "3 rows"]:
    """Return the sum of losses, the number of correct predictions and the number of hidden tokens of each row."""
    states, logits_of = model.at_hidden(corrupted.inputs, corrupted.columns)
    targets, found = corrupted.targets, []
    block = max(1, (_LOGITS if states.device.type == "cpu" else _DEVICE_LOGITS) // task.vocab_size)
    for first in range(0, len(targets), block):
        part = slice(first, first + block)
        logits = logits_of(part).float()
        chosen = logits.gather(1, targets[part, None])[:, 0]
        highest, answer = logits.max(1)
        losses = logits.sub_(highest[:, None]).exp_().sum(1).log() + highest - chosen
        found.append(torch.stack([losses, (answer == targets[part]).float(), torch.ones_like(losses)]))
    units = (torch.cat(found, 1) * corrupted.real).to(sum_dtype(states.device))
    return units.view(3, len(corrupted.inputs), -1).sum(-1)


@torch.no_grad()
def embed_sequences(
    task: TokenTask,
    model: TokenModel,
    sequences: Sequence[Int64[Tensor, " _"]],
    length: int,
    count: Callable[[int], None] = lambda more: None,
) -> Float32[np.ndarray, "n width"]:
    """Embed sequences of tokens, in batches of similar lengths.

    `sequences` have the two tokens that open and close; one without any other is zero. One of more than `length`
    tokens, at least 3, is embedded in pieces, and the mean is over all of its tokens. `count` is called with the number
    of further sequences that are embedded.
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
        for rows in np.split(order, range(_EMBEDDED_ROWS, len(order), _EMBEDDED_ROWS)):
            padded = pad_sequence([pieces[row] for row in rows], batch_first=True, padding_value=task.pad_id)
            states = task.embed(model, padded.to(device)).float().cpu().numpy()
            np.add.at(sums, owner[rows], sizes[rows, None] * states)
            count(int(first[rows].sum()))
    embedded: np.ndarray = (sums / np.bincount(owner, sizes).clip(min=1)[:, None]).astype(np.float32)
    return embedded


def embed_documents(
    config: TextConfig, task: TokenTask, model: TokenModel, source: str | Path
) -> dict[str, np.ndarray]:
    """Embed every document of a corpus, in its order; an empty one is zeros.

    A document of more tokens than the model's sequences is embedded in pieces, and the mean is over all of its tokens.
    A line says how many are empty or have several pieces. `source` is that of
    :func:`r2mae.text.documents.corpus_of`.

    The arrays are ``embedding``, of shape (documents, width); ``index``, the documents' numbers, from 0; ``documents``,
    their beginnings; ``tokens``, their numbers of tokens, with the two that open and close; and ``files``, the file of
    each, if there are several.
    """
    assert model.tokenizer is not None
    tokenizer, length = model.tokenizer, config.data.sequence_length
    corpus = corpus_of(source, column=config.data.text_column, split=config.data.split)
    beginnings, files = list[str](), list[str]()
    first = list[int]()  # piece of each document
    pieces = 0

    def read() -> Iterator[str]:
        nonlocal pieces
        for document, file, text in corpus.pieces():
            if document == len(first):
                first.append(pieces)
                beginnings.append(" ".join(text[: 2 * _BEGINNING_LENGTH].split())[:_BEGINNING_LENGTH])
                files.append(file.removeprefix(f"{Path(source).expanduser()}/"))
            pieces += 1
            yield text

    parts, counts, unknown = [], [], 0
    for tokens, lengths in encoded(read(), tokenizer, np.dtype(np.int64)):
        unknown += int((tokens == tokenizer.unk_id).sum())
        counts.append(lengths - 2)
        parts.append(embed_sequences(task, model, torch.split(torch.from_numpy(tokens), lengths.tolist()), length))
    sizes: Int64[np.ndarray, " pieces"] = np.concatenate(counts)
    if note := unknown_note(source, unknown, int(sizes.sum()) + 2 * pieces, pieces):
        warn_once(note)
    found, of_documents = np.concatenate(parts), np.add.reduceat(sizes, first)
    embedded = found[first]
    for row in np.flatnonzero(np.diff(first, append=pieces) > 1).tolist():
        own = slice(first[row], (*first, pieces)[row + 1])
        embedded[row] = sizes[own] @ found[own].astype(np.float64) / max(of_documents[row], 1)
    empty, long = int((of_documents == 0).sum()), int((of_documents > length - 2).sum())
    notes = [f"{empty:,} are empty, and zeros"] if empty else []
    notes += [f"{long:,} have more than {length} tokens, and the mean over their pieces"] if long else []
    if notes:
        warn_once(f"{source}: of {len(first):,} documents {'; '.join(notes)}")
    arrays = {"embedding": embedded, "index": np.arange(len(first))}
    arrays |= {"documents": np.array(beginnings), "tokens": of_documents + 2}
    return arrays if len(set(files)) == 1 else {**arrays, "files": np.array(files)}


def probe_glue(
    task: TokenTask,
    model: TokenModel,
    name: str,
    folder: str | Path,
    *,
    limit: int | None = None,
    length: int = LENGTH,
    progress: Progress | None = None,
) -> GlueScores:
    """Fit a linear probe to frozen embeddings of a task's training examples, and measure it on the held-out examples.

    The embedding of a sentence is the mean of the last hidden states over its ordinary tokens, cut as in fine-tuning.
    A sentence that is longer than the model's sequences is embedded in pieces, and the mean is over all pieces. The
    features of a pair of sentences are both embeddings u and v, |u - v| and u * v (elementwise), as in InferSent. The
    strength of the penalty is chosen by five-fold cross-validation on the training examples, with fewer folds if the
    rarest class has fewer examples. Nothing is random: the same model gives the same scores.

    `name`, `folder` and `limit` are those of :func:`r2mae.text.finetune.finetune`; `length` is that of the model's
    sequences. `progress` is called with the number of sentences embedded and the total. A UserError is raised for a
    class with a single training example, which no fold can hold out, and for features that do not fit into memory.
    """
    glue = glue_task(name)
    train, test = read_glue(glue, folder, limit, fewest=2)
    needed = _BYTES * (len(train) + len(test)) * task.width * (1 if len(glue.sentences) == 1 else 4)
    refuse_beyond_memory(
        needed,
        f"{glue.title}: features of {len(train) + len(test):,} examples take",
        "probe fewer, --limit 10000 (pretrain, compare: --glue-limit)",
    )
    total, done = len(glue.sentences) * (len(train) + len(test)), 0

    def count(more: int) -> None:
        nonlocal done
        done += more
        if progress is not None:
            progress(done, total)

    features = _features(task, model, train, length, count)
    scaler = StandardScaler(copy=False).fit(features)  # in place, as features are large
    features, held_out = scaler.transform(features), scaler.transform(_features(task, model, test, length, count))
    if not glue.classes:
        ridge = RidgeProbe(ALPHAS).fit(features, train.labels)
        predicted = np.asarray(ridge.predict(held_out))[:, None]
    else:
        folds = min(_FOLDS, train.rarest_class)
        probe = LinearProbe(CS, cv=folds, scoring="accuracy").fit(features, train.labels)
        predicted = np.zeros((len(test), len(glue.classes)))  # 0 for classes without a training example
        predicted[:, probe.classes_] = probe.predict_proba(held_out)
    return GlueScores(glue, train, test, (score(glue, test.labels, predicted),))


def _features(
    task: TokenTask, model: TokenModel, examples: GlueExamples, length: int, count: Callable[[int], None]
) -> Float32[np.ndarray, "n d"]:
    """Return the features of the examples: one sentence's embedding, or the combination of two."""
    assert model.tokenizer is not None
    columns = [encode(model.tokenizer, (column,), LENGTH) for column in examples.texts]
    found = [embed_sequences(task, model, ids, length, count) for ids in columns]
    if len(found) == 1:
        return found[0]
    first, second = found
    return np.concatenate([first, second, np.abs(first - second), first * second], axis=1)
