"""Classification of frozen embeddings by nearest neighbours, without a trained layer."""

import numpy as np
import torch
from jaxtyping import Float, Int64, Integer
from torch import Tensor
from torch.nn.functional import normalize

from r2mae.evaluation.head import check_features

NEIGHBOURS = 20
TEMPERATURE = 0.07


def knn_predict(
    train: Float[np.ndarray, "n d"] | Float[Tensor, "n d"],
    labels: Integer[np.ndarray, " n"],
    test: Float[np.ndarray, "m d"] | Float[Tensor, "m d"],
) -> Int64[np.ndarray, " m"]:
    """Predict the class of every test sample by a vote of the 20 training samples with the largest cosine similarity.

    A vote has weight exp(similarity / 0.07), as is common in the evaluation of self-supervised models (Wu et al. 2018).

    Parameters
    ----------
    train, test : ndarray or tensor, shapes (n, d) and (m, d)
        Embeddings. A row of zeros has equal similarity to all rows.
    labels : ndarray of int, shape (n,)
        Classes 0 … K−1 of the training samples; of fewer than 20 all vote.
    """
    from sklearn.neighbors import KNeighborsClassifier

    known, asked = (normalize(torch.as_tensor(one).detach().float().cpu()) for one in (train, test))
    check_features(known, labels, "nearest neighbours")
    if not len(asked):
        return np.zeros(0, np.int64)
    check_features(asked, np.zeros(len(asked)), "nearest neighbours")
    # Of unit vectors the squared distance is 2 − 2 · similarity; similarities of 1 have weight 1.
    neighbours = KNeighborsClassifier(
        min(NEIGHBOURS, len(known)),
        weights=lambda distance: np.exp(-np.square(distance) / (2 * TEMPERATURE)),
        algorithm="brute",
    )
    return np.asarray(neighbours.fit(known.numpy(), labels).predict(asked.numpy()), dtype=np.int64)
