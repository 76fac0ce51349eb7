"""Linear probes of frozen features on GLUE: what a model knows of sentences before it is trained on them.

Fine-tuning of small models that saw little text may end near the commonest label, whatever they were pretrained with.
A probe leaves the model as it is and fits logistic regression (ridge regression for similarities) on its embeddings.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64

from r2mae.errors import UserError
from r2mae.evaluation.probes import LinearProbe, RidgeProbe
from r2mae.text.classifier import LENGTH
from r2mae.text.glue import GlueExamples, GlueTask, commonest_share, glue_task, rarest_class, read_limited, score
from r2mae.text.sentences import encode
from r2mae.text.task import TokenModel, TokenTask
from r2mae.text.tokenizer import TextTokenizer
from r2mae.training.devices import cpu_threads
from r2mae.training.memory import available_memory
from r2mae.training.validation import evaluating

Progress = Callable[[int, int], None]

# Inverse strengths of the penalty on standardised features, and strengths for similarities: both grids reach beyond
# what a few hundred features and a few thousand sentences choose.
CS = tuple(10.0**power for power in range(-5, 2))
ALPHAS = tuple(10.0**power for power in range(7))
_ROWS = 128
_FOLDS = 5
_BYTES = 24  # of an entry of the features: as float32, in the folds as float64, and in the making


@dataclass(frozen=True)
class GlueProbe:
    """What a linear probe of a task gave.

    Attributes
    ----------
    task : str
        Its short name.
    scores : mapping of str to float
        The task's own score first; all from 0 (or −1) to 1.
    train, test : int
        Examples that the probe was fitted to, and measured on.
    files : (str, str)
        Names of the files of both: subsets are not comparable with published figures.
    commonest : float, optional
        Share of the commonest class among the held-out examples.
    """

    task: str
    scores: Mapping[str, float]
    train: int
    test: int
    files: tuple[str, str]
    commonest: float | None = None

    def __str__(self) -> str:
        """Say what the probe was fitted to, and measured on."""
        made = (
            f"{self.task}, linear probe: {self.train:,} examples of {self.files[0]}, {self.test:,} of {self.files[1]}"
        )
        return made if self.commonest is None else f"{made}; the commonest label is right in {self.commonest:.3f}"

    @property
    def score(self) -> float:
        """The task's own score."""
        return next(iter(self.scores.values()))

    def named(self) -> dict[str, float]:
        """Return ``<task>_probe_<score>``."""
        return {f"{self.task}_probe_{name}": value for name, value in self.scores.items()}


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
) -> GlueProbe:
    """Fit a linear probe to frozen embeddings of a task's training examples, and measure it on the held-out ones.

    A sentence is embedded by the mean of the last hidden states over its ordinary tokens, of which it keeps as many as
    in fine-tuning. What is longer than the model's sequences is read in pieces, and the mean is over all of them. A
    pair of sentences has both embeddings u and v, |u − v| and u · v (entry by entry), as in InferSent. The strength of
    the penalty is chosen by five-fold cross-validation of the training examples (of fewer folds where the rarest class
    has fewer examples). Nothing is drawn: the same model gives the same scores.

    Parameters
    ----------
    task, model
        Of the run.
    name, folder
        See :func:`r2mae.text.glue.read_glue`.
    limit : int, optional
        Fit to this many examples at most, the same ones for every model.
    length : int
        Tokens that the model reads at a time, the two special ones included: the length of its sequences, at least 3.
    threads : int, optional
        CPU threads of the model.
    progress : callable, optional
        Called with sentences embedded and sentences in all.

    Returns
    -------
    GlueProbe

    Raises
    ------
    UserError
        As :func:`r2mae.text.glue.read_limited`, of a class with a single training example, which no fold can hold out;
        features that memory cannot hold.
    """
    glue = glue_task(name)
    train, test = read_limited(glue, folder, limit, fewest=2)
    _check_memory(glue, len(train) + len(test), task.width)
    with cpu_threads(threads):
        count = _Counter(progress, len(glue.sentences) * (len(train) + len(test)))
        features = [_features(task, model, part, length, count) for part in (train, test)]
        predicted = _fitted(glue, features[0], train, features[1])
    scores = {str(one): value for one, value in score(glue, test.labels, predicted).items()}
    files = (train.file.name, test.file.name)
    return GlueProbe(glue.name, scores, len(train), len(test), files, commonest_share(glue, test))


def _check_memory(glue: GlueTask, examples: int, width: int) -> None:
    needed = _BYTES * examples * width * (1 if len(glue.sentences) == 1 else 4)
    free = available_memory()
    if free is not None and needed > free:
        raise UserError(
            f"{glue.title}: features of {examples:,} examples take about {needed / 1e9:.1f} GB, and "
            f"{free / 1e9:.1f} GB are free: probe fewer, --limit 10000 (pretrain, compare: --glue-limit)"
        )


def _fitted(
    glue: GlueTask,
    features: Float32[np.ndarray, "n d"],
    train: GlueExamples,
    held_out: Float32[np.ndarray, "m d"],
) -> Float[np.ndarray, "m outputs"]:
    """Return a probability of every class, or one similarity, of the held-out examples."""
    if not glue.classes:
        ridge = RidgeProbe(ALPHAS, standardize=True).fit(features, train.labels)
        return np.asarray(ridge.predict(held_out))[:, None]
    folds = min(_FOLDS, rarest_class(train))
    probe = LinearProbe(CS, cv=folds, scoring="accuracy", standardize=True).fit(features, train.labels)
    outputs = np.zeros((len(held_out), len(glue.classes)))  # of a class without an example: nothing
    outputs[:, probe.classes_] = probe.predict_proba(held_out)
    return outputs


def _features(
    task: TokenTask, model: TokenModel, examples: GlueExamples, length: int, count: "_Counter"
) -> Float32[np.ndarray, "n d"]:
    """Return one embedding, or what is made of two."""
    found = [_embedded(task, model, examples, column, length, count) for column in range(len(examples.texts))]
    if len(found) == 1:
        return found[0]
    first, second = found
    return np.concatenate([first, second, np.abs(first - second), first * second], axis=1)


@torch.no_grad()
def _embedded(
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
    """Divide sentences into pieces of `length` tokens, all between special tokens; return also whose they are."""
    found, owners = [], []
    for row, (begin, *inner, end) in enumerate(ids):
        for start in range(0, max(len(inner), 1), length - 2):
            found.append(np.array([begin, *inner[start : start + length - 2], end], dtype=np.int64))
            owners.append(row)
    return found, np.array(owners)


class _Counter:
    """Reports how many sentences of a task are embedded."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self.progress, self.total, self.done = progress, total, 0

    def __call__(self, more: int) -> None:
        self.done += more
        if self.progress is not None:
            self.progress(self.done, self.total)
