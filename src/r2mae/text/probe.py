"""Linear probes of frozen features on GLUE: a measure of pretrained features without fine-tuning.

Fine-tuning small models of short pretraining may end near the commonest label, however they were pretrained. A probe
does not change the model: it fits logistic regression (ridge regression for similarities) to its embeddings.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from jaxtyping import Float32

from r2mae.cores import available_memory
from r2mae.errors import UserError
from r2mae.evaluation.probes import LinearProbe, RidgeProbe
from r2mae.text.embed import embed_sequences
from r2mae.text.finetune import LENGTH, Progress, encode
from r2mae.text.glue import GlueExamples, GlueScores, glue_task, read_glue, score
from r2mae.text.task import TokenModel, TokenTask

# Inverse strengths of the penalty on standardised features, and strengths for similarities. Both grids extend beyond
# the strengths chosen with a few hundred features and a few thousand sentences.
CS = tuple(10.0**power for power in range(-5, 2))
ALPHAS = tuple(10.0**power for power in range(7))
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
    progress: Progress | None = None,
) -> GlueScores:
    """Fit a linear probe to frozen embeddings of a task's training examples, and measure it on the held-out examples.

    The embedding of a sentence is the mean of the last hidden states over its ordinary tokens, cut as in fine-tuning.
    A sentence that is longer than the model's sequences is embedded in pieces, and the mean is over all pieces. The
    features of a pair of sentences are both embeddings u and v, |u - v| and u * v (elementwise), as in InferSent. The
    strength of the penalty is chosen by five-fold cross-validation on the training examples, with fewer folds if the
    rarest class has fewer examples. Nothing is random: the same model gives the same scores.

    Parameters
    ----------
    task, model
        Those of the run.
    name, folder, limit
        See :func:`r2mae.text.finetune.finetune`.
    length : int
        Tokens of a piece, including the two special tokens: the length of the model's sequences, at least 3.
    progress : callable, optional
        Called with the number of sentences embedded and the total.

    Raises
    ------
    UserError
        As :func:`r2mae.text.glue.read_glue`, also for a class with a single training example, which no fold can hold
        out; and for features that do not fit into memory.
    """
    glue = glue_task(name)
    train, test = read_glue(glue, folder, limit, fewest=2)
    needed = _BYTES * (len(train) + len(test)) * task.width * (1 if len(glue.sentences) == 1 else 4)
    free = available_memory()
    if free is not None and needed > free:
        raise UserError(
            f"{glue.title}: features of {len(train) + len(test):,} examples take about {needed / 1e9:.1f} GB, and "
            f"{free / 1e9:.1f} GB are free: probe fewer, --limit 10000 (pretrain, compare: --glue-limit)"
        )
    total, done = len(glue.sentences) * (len(train) + len(test)), 0

    def count(more: int) -> None:
        nonlocal done
        done += more
        if progress is not None:
            progress(done, total)

    features, held_out = (_features(task, model, part, length, count) for part in (train, test))
    if not glue.classes:
        ridge = RidgeProbe(ALPHAS, standardize=True).fit(features, train.labels)
        predicted = np.asarray(ridge.predict(held_out))[:, None]
    else:
        folds = min(_FOLDS, train.rarest_class)
        probe = LinearProbe(CS, cv=folds, scoring="accuracy", standardize=True).fit(features, train.labels)
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
