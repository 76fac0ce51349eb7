"""Linear probes of frozen features on GLUE: a measure of pretrained features without fine-tuning.

Fine-tuning small models of short pretraining may end near the commonest label, however they were pretrained. A probe
does not change the model: it fits logistic regression (ridge regression for similarities) to its embeddings.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64

from r2mae.errors import UserError
from r2mae.evaluation.probes import LinearProbe, RidgeProbe
from r2mae.text.classifier import LENGTH
from r2mae.text.glue import GlueExamples, GlueScores, GlueTask, glue_task, rarest_class, read_limited, score
from r2mae.text.sentences import encode
from r2mae.text.task import TokenModel, TokenTask
from r2mae.text.tokenizer import TextTokenizer
from r2mae.training.devices import cpu_threads
from r2mae.training.memory import available_memory
from r2mae.training.validation import evaluating

Progress = Callable[[int, int], None]

# Inverse strengths of the penalty on standardised features, and strengths for similarities. Both grids extend beyond
# the strengths chosen with a few hundred features and a few thousand sentences.
CS = tuple(10.0**power for power in range(-5, 2))
ALPHAS = tuple(10.0**power for power in range(7))
_ROWS = 128
_FOLDS = 5
_BYTES = 24  # bytes per entry of the features: as float32, in the folds as float64, and temporarily


def probe_glue(
    task: TokenTask,
    model: TokenModel,
    name: str,
    folder: str | Path,
    *,
    limit: int | None = None,
    length: int = LENGTH,
    threads: int | None = None,
    progress: Progress | None = None,
) -> GlueScores:
    """Fit a linear probe to frozen embeddings of a task's training examples, and measure it on the held-out examples.

    The embedding of a sentence is the mean of the last hidden states over its ordinary tokens, cut as in fine-tuning.
    A sentence that is longer than the model's sequences is embedded in pieces, and the mean is over all pieces. The
    features of a pair of sentences are both embeddings u and v, |u − v| and u · v (elementwise), as in InferSent. The
    strength of the penalty is chosen by five-fold cross-validation on the training examples, with fewer folds if the
    rarest class has fewer examples. Nothing is random: the same model gives the same scores.

    Parameters
    ----------
    task, model
        Those of the run.
    name, folder
        See :func:`r2mae.text.glue.read_glue`.
    limit : int, optional
        Most training examples, the same for every model.
    length : int
        Tokens of a piece, including the two special tokens: the length of the model's sequences, at least 3.
    threads : int, optional
        CPU threads of the model.
    progress : callable, optional
        Called with the number of sentences embedded and the total.

    Returns
    -------
    GlueScores

    Raises
    ------
    UserError
        As :func:`r2mae.text.glue.read_limited`, also for a class with a single training example, which no fold can hold
        out; and for features that do not fit into memory.
    """
    glue = glue_task(name)
    train, test = read_limited(glue, folder, limit, fewest=2)
    _check_memory(glue, len(train) + len(test), task.width)
    with cpu_threads(threads):
        count = _Counter(progress, len(glue.sentences) * (len(train) + len(test)))
        features = [_features(task, model, part, length, count) for part in (train, test)]
        predicted = _fit_and_predict(glue, features[0], train, features[1])
    return GlueScores.of(glue, train, test, [score(glue, test.labels, predicted)])


def _check_memory(glue: GlueTask, examples: int, width: int) -> None:
    needed = _BYTES * examples * width * (1 if len(glue.sentences) == 1 else 4)
    free = available_memory()
    if free is not None and needed > free:
        raise UserError(
            f"{glue.title}: features of {examples:,} examples take about {needed / 1e9:.1f} GB, and "
            f"{free / 1e9:.1f} GB are free: probe fewer, --limit 10000 (pretrain, compare: --glue-limit)"
        )


def _fit_and_predict(
    glue: GlueTask,
    features: Float32[np.ndarray, "n d"],
    train: GlueExamples,
    held_out: Float32[np.ndarray, "m d"],
) -> Float[np.ndarray, "m outputs"]:
    """Fit the probe, and return the held-out examples' probabilities of all classes, or their similarities."""
    if not glue.classes:
        ridge = RidgeProbe(ALPHAS, standardize=True).fit(features, train.labels)
        return np.asarray(ridge.predict(held_out))[:, None]
    folds = min(_FOLDS, rarest_class(train))
    probe = LinearProbe(CS, cv=folds, scoring="accuracy", standardize=True).fit(features, train.labels)
    outputs = np.zeros((len(held_out), len(glue.classes)))  # 0 for classes without a training example
    outputs[:, probe.classes_] = probe.predict_proba(held_out)
    return outputs


def _features(
    task: TokenTask, model: TokenModel, examples: GlueExamples, length: int, count: "_Counter"
) -> Float32[np.ndarray, "n d"]:
    """Return the features of the examples: one sentence's embedding, or the combination of two."""
    found = [_embeddings(task, model, examples, column, length, count) for column in range(len(examples.texts))]
    if len(found) == 1:
        return found[0]
    first, second = found
    return np.concatenate([first, second, np.abs(first - second), first * second], axis=1)


@torch.no_grad()
def _embeddings(
    task: TokenTask, model: TokenModel, examples: GlueExamples, column: int, length: int, count: "_Counter"
) -> Float32[np.ndarray, "n width"]:
    assert isinstance(model.tokenizer, TextTokenizer)
    sentences = GlueExamples(examples.file, (examples.texts[column],), examples.labels)
    tokens = encode(model.tokenizer, sentences, LENGTH)
    pieces, owners = _pieces(tokens.ids, length)
    sizes = np.array([len(piece) - 2 for piece in pieces])  # without the two special tokens
    first = np.append(True, owners[1:] != owners[:-1])
    cut = replace(tokens, ids=pieces)
    device = next(model.parameters()).device
    order = np.argsort(sizes, kind="stable")  # rows of a batch are about equally long
    sums = np.zeros((len(tokens.ids), task.width))
    with evaluating(model):
        for start in range(0, len(order), _ROWS):
            rows = order[start : start + _ROWS]
            means = task.embed(model, cut.batch(rows, device)["input_ids"]).float().cpu().numpy()
            np.add.at(sums, owners[rows], sizes[rows, None] * means)
            count(int(first[rows].sum()))
    counts = np.bincount(owners, sizes).clip(min=1)  # a sentence without a token is zero
    embedded: np.ndarray = (sums / counts[:, None]).astype(np.float32)
    return embedded


def _pieces(
    ids: Sequence[Int64[np.ndarray, " _"]], length: int
) -> tuple[list[Int64[np.ndarray, " _"]], Int64[np.ndarray, " pieces"]]:
    """Return sentences in pieces of `length` tokens between special tokens, and the sentence number of each piece."""
    found, owners = [], []
    for row, (begin, *inner, end) in enumerate(ids):
        for start in range(0, max(len(inner), 1), length - 2):
            found.append(np.array([begin, *inner[start : start + length - 2], end], dtype=np.int64))
            owners.append(row)
    return found, np.array(owners)


class _Counter:
    """Reports the number of a task's embedded sentences."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self.progress, self.total, self.done = progress, total, 0

    def __call__(self, more: int) -> None:
        self.done += more
        if self.progress is not None:
            self.progress(self.done, self.total)
