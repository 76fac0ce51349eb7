"""Classification of frozen embeddings by nearest neighbours, without a trained layer."""

import numpy as np
import torch
from jaxtyping import Float, Int64, Integer
from torch import Tensor
from torch.nn.functional import normalize

from r2mae.errors import UserError
from r2mae.evaluation.head import check_classes, check_features

NEIGHBOURS = 20
TEMPERATURE = 0.07
_MAX_ROWS = 1024
_MAX_SIMILARITIES = 1 << 22  # in memory at a time: 16 MiB

Embeddings = Float[np.ndarray, "n d"] | Float[Tensor, "n d"]


@torch.no_grad()
def knn_predict(
    train: Embeddings,
    labels: Integer[np.ndarray, " n"],
    test: Float[np.ndarray, "m d"] | Float[Tensor, "m d"],
    *,
    k: int = NEIGHBOURS,
    temperature: float | None = TEMPERATURE,
) -> Int64[np.ndarray, " m"]:
    """Predict the class of every test sample by a vote of the k training samples with the largest cosine similarity.

    A vote has weight exp(similarity / temperature), as is common in the evaluation of self-supervised models (Wu et al.
    2018, with a temperature of 0.07). Similarities are computed in blocks, so no matrix of all pairs is stored.

    Parameters
    ----------
    train, test : ndarray or tensor, shapes (n, d) and (m, d)
        Embeddings. The device of `train` computes. A row of zeros has equal similarity to all rows.
    labels : ndarray of int, shape (n,)
        Classes 0 … K−1 of the training samples.
    k : int
        Number of neighbours; all training samples if there are fewer.
    temperature : float, optional
        None gives every neighbour one vote. Of classes with equal votes the first is predicted.

    Returns
    -------
    int64 ndarray, shape (m,)

    Raises
    ------
    UserError
        If there are no training samples, a label is negative, an embedding is not finite, or the numbers of samples
        differ.
    """
    known, asked = normalize(_as_floats(train)), normalize(_as_floats(test).to(_as_floats(train).device))
    classes = torch.as_tensor(np.asarray(labels), dtype=torch.int64, device=known.device)
    check_features(known, len(classes), "nearest neighbours")
    if len(asked):
        check_features(asked, len(asked), "nearest neighbours")
    check_classes(classes, "nearest neighbours")
    if k < 1:
        raise UserError(f"nearest neighbours: k must be 1 or more, not {k}")
    k, count = min(k, len(known)), int(classes.max()) + 1
    rows = max(1, min(_MAX_ROWS, _MAX_SIMILARITIES // len(known)))
    columns = max(k, _MAX_SIMILARITIES // rows)
    predicted = [
        _vote_weights(*_nearest(asked[first : first + rows], known, k, columns), classes, count, temperature).argmax(1)
        for first in range(0, len(asked), rows)
    ]
    return torch.cat(predicted).cpu().numpy() if predicted else np.zeros(0, np.int64)


def _nearest(
    asked: Float[Tensor, "m d"], known: Float[Tensor, "n d"], k: int, columns: int
) -> tuple[Float[Tensor, "m k"], Int64[Tensor, "m k"]]:
    """Return similarity and index of the k nearest training samples, found block by block."""
    best, places = asked.new_zeros(len(asked), 0), torch.zeros(len(asked), 0, dtype=torch.int64, device=asked.device)
    for first in range(0, len(known), columns):
        found = asked @ known[first : first + columns].T
        near, where = found.topk(min(k, found.shape[1]), dim=1)
        best, places = torch.cat([best, near], 1), torch.cat([places, where + first], 1)
        best, chosen = best.topk(min(k, best.shape[1]), dim=1)
        places = places.gather(1, chosen)
    return best, places


def _vote_weights(
    similarity: Float[Tensor, "m k"],
    places: Int64[Tensor, "m k"],
    classes: Int64[Tensor, " n"],
    count: int,
    temperature: float | None,
) -> Float[Tensor, "m classes"]:
    # Subtracting 1, the largest similarity, prevents overflow at any temperature.
    weights = torch.ones_like(similarity) if temperature is None else ((similarity - 1) / temperature).exp()
    return similarity.new_zeros(len(similarity), count).scatter_add_(1, classes[places], weights)


def _as_floats(values: Float[np.ndarray, "n d"] | Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    return torch.as_tensor(values).detach().float()
