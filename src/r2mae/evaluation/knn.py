"""Nearest neighbours: what frozen embeddings say of classes without a layer that is trained."""

import numpy as np
import torch
from jaxtyping import Float, Int64, Integer
from torch import Tensor
from torch.nn.functional import normalize

from r2mae.errors import UserError

NEIGHBOURS = 20
TEMPERATURE = 0.07
_ROWS = 1024
_NUMBERS = 1 << 22  # similarities at a time: 16 MiB

Embeddings = Float[np.ndarray, "n d"] | Float[Tensor, "n d"]


def knn_accuracy(
    train: Embeddings,
    labels: Integer[np.ndarray, " n"],
    test: Float[np.ndarray, "m d"] | Float[Tensor, "m d"],
    test_labels: Integer[np.ndarray, " m"],
    *,
    k: int = NEIGHBOURS,
    temperature: float | None = TEMPERATURE,
) -> float:
    """Return the fraction of test samples whose class their nearest training samples vote for.

    See :func:`knn_predict`.
    """
    return float((knn_predict(train, labels, test, k=k, temperature=temperature) == test_labels).mean())


@torch.no_grad()
def knn_predict(
    train: Embeddings,
    labels: Integer[np.ndarray, " n"],
    test: Float[np.ndarray, "m d"] | Float[Tensor, "m d"],
    *,
    k: int = NEIGHBOURS,
    temperature: float | None = TEMPERATURE,
) -> Int64[np.ndarray, " m"]:
    """Let the k training samples with the largest cosine similarity vote for the class of every test sample.

    A vote weighs exp(similarity / temperature), as is usual in the evaluation of self-supervised models (Wu et al.
    2018, who use a temperature of 0.07). Similarities are computed block by block: no matrix of all pairs exists.

    Parameters
    ----------
    train, test : ndarray or tensor, shapes (n, d) and (m, d)
        Embeddings; tensors are compared where those of training lie. A row of zeros is as far from one as from another.
    labels : ndarray of int, shape (n,)
        Classes 0 … K−1 of the training samples.
    k : int
        Neighbours; all of them where there are fewer.
    temperature : float, optional
        None: every neighbour has one vote. Of classes with equally many votes the first wins.

    Returns
    -------
    int64 ndarray, shape (m,)

    Raises
    ------
    UserError
        No training samples, labels of another length or below 0, embeddings that are not finite.
    """
    known, asked = normalize(_floats(train)), normalize(_floats(test).to(_floats(train).device))
    classes = torch.as_tensor(np.asarray(labels), dtype=torch.int64, device=known.device)
    _check(known, classes, asked, k)
    k, count = min(k, len(known)), int(classes.max()) + 1
    rows = max(1, min(_ROWS, _NUMBERS // len(known)))
    columns = max(k, _NUMBERS // rows)
    predicted = [
        _votes(*_nearest(asked[first : first + rows], known, k, columns), classes, count, temperature).argmax(1)
        for first in range(0, len(asked), rows)
    ]
    return torch.cat(predicted).cpu().numpy() if predicted else np.zeros(0, np.int64)


def _nearest(
    asked: Float[Tensor, "m d"], known: Float[Tensor, "n d"], k: int, columns: int
) -> tuple[Float[Tensor, "m k"], Int64[Tensor, "m k"]]:
    """Return similarity and index of the k nearest, going over the known samples in blocks."""
    best, places = asked.new_zeros(len(asked), 0), torch.zeros(len(asked), 0, dtype=torch.int64, device=asked.device)
    for first in range(0, len(known), columns):
        found = asked @ known[first : first + columns].T
        near, where = found.topk(min(k, found.shape[1]), dim=1)
        best, places = torch.cat([best, near], 1), torch.cat([places, where + first], 1)
        best, chosen = best.topk(min(k, best.shape[1]), dim=1)
        places = places.gather(1, chosen)
    return best, places


def _votes(
    similarity: Float[Tensor, "m k"],
    places: Int64[Tensor, "m k"],
    classes: Int64[Tensor, " n"],
    count: int,
    temperature: float | None,
) -> Float[Tensor, "m classes"]:
    # One is the largest similarity: without it nothing overflows, however small the temperature.
    weights = torch.ones_like(similarity) if temperature is None else ((similarity - 1) / temperature).exp()
    return similarity.new_zeros(len(similarity), count).scatter_add_(1, classes[places], weights)


def _floats(values: Float[np.ndarray, "n d"] | Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    return torch.as_tensor(values).detach().float()


def _check(known: Tensor, classes: Tensor, asked: Tensor, k: int) -> None:
    if len(known) == 0 or len(known) != len(classes):
        raise UserError(f"nearest neighbours: {len(known)} embeddings and {len(classes)} labels; expected as many")
    if int(classes.min()) < 0:
        raise UserError(f"nearest neighbours: labels must be 0, 1, …; found {int(classes.min())}")
    if k < 1:
        raise UserError(f"nearest neighbours: k must be 1 or more, not {k}")
    if not bool(known.isfinite().all()) or not bool(asked.isfinite().all()):
        raise UserError("nearest neighbours: the embeddings hold NaN or infinity; check the model's training")
