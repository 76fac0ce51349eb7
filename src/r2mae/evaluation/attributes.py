"""The paper's probe of attributes: a shared layer and a linear head for each, on frozen features (appendix "CelebA").

The features of the frozen model are computed once. The paper does not specify activation, dropout rate, batch size and
the meaning of "scaled"; docs/images.md lists the choices made here.
"""

import numpy as np
import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor, nn

from r2mae.errors import UserError
from r2mae.evaluation.head import Features, as_features, check_features
from r2mae.masking.keys import Key, permutation
from r2mae.masking.masks import element_mask

Attributes = UInt8[np.ndarray, "m k"] | Bool[np.ndarray, "m k"]
_LR = 1e-3  # the paper's
_DROPOUT = 0.5  # after the shared layer; the paper has no rate
_TestAttributes = UInt8[np.ndarray, "n k"] | Bool[np.ndarray, "n k"]


class AttributeHead(nn.Module):
    """Features → a shared layer with ReLU → a logit for each attribute.

    Parameters
    ----------
    width : int
        Width of the features.
    attributes : int
        Number of attributes.
    hidden : int
        Width of the shared layer.
    """

    def __init__(self, width: int, attributes: int, hidden: int = 512) -> None:
        super().__init__()
        self.shared = nn.Linear(width, hidden)
        self.heads = nn.Linear(hidden, attributes)  # the heads share no weights

    def forward(
        self, features: Float[Tensor, "batch d"], dropout: Float[Tensor, "batch hidden"] | None = None
    ) -> Float[Tensor, "batch k"]:
        """Return a logit for each attribute; `dropout` has the factors of :func:`_dropout_factors`."""
        shared = self.shared(features).relu()
        logits: Tensor = self.heads(shared if dropout is None else shared * dropout)
        return logits

    @torch.no_grad()
    def logits(self, features: Features, rows: int = 4096) -> Float[np.ndarray, "n k"]:
        """Return the logits of all rows of features, computed `rows` at a time."""
        x = as_features(features, self.heads.weight.device)
        parts = [self(x[first : first + rows]) for first in range(0, max(len(x), 1), rows)]
        return torch.cat(parts).cpu().double().numpy()


def fit_attributes(
    features: Features,
    attributes: Attributes,
    *,
    hidden: int = 512,
    epochs: int = 10,
    batch_size: int = 256,
    seed: int = 0,
) -> AttributeHead:
    """Train a head for each attribute with Adam; the loss is the binary cross-entropy, averaged over attributes.

    Parameters
    ----------
    features : Tensor or ndarray, shape (n, d)
        Features of the frozen model.
    attributes : uint8 or bool ndarray, shape (n, k)
        0 or 1.
    hidden, epochs : int
        The paper's.
    batch_size : int
        As in pretraining; not in the paper.
    seed : int
        Determines initial weights, order of the rows and dropout. No other random state is read or changed.

    Raises
    ------
    UserError
        If there are no rows, a feature is NaN or infinite, an attribute is not 0 or 1, or the numbers of rows differ.
    """
    x = as_features(features, features.device if isinstance(features, Tensor) else torch.device("cpu"))
    check_features(x, attributes, "attribute probe")
    if attributes.max() > 1:
        raise UserError(f"attribute probe: attributes must be 0 or 1; found {attributes.max()}")
    y = torch.from_numpy(np.asarray(attributes, dtype=np.float32)).to(x.device)
    key = Key.root(seed).fold("attribute probe")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(key.fold("init").seed())
        head = AttributeHead(x.shape[1], y.shape[1], hidden)
    head.to(x.device)
    optimizer = torch.optim.Adam(head.parameters(), lr=_LR, fused=x.device.type in ("cpu", "cuda"))
    for epoch in range(epochs):
        order = torch.from_numpy(permutation(key.fold("order", epoch), len(x))).to(x.device)
        for start in range(0, len(x), batch_size):
            rows = order[start : start + batch_size]
            factors = _dropout_factors(key.fold("dropout", epoch, start), len(rows), hidden, x.device)
            loss = nn.functional.binary_cross_entropy_with_logits(head(x[rows], factors), y[rows])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return head.requires_grad_(False)


def score_attributes(logits: Float[np.ndarray, "n k"], truth: _TestAttributes, train: Attributes) -> dict[str, float]:
    """Score logits of the attributes of test samples, given the attributes of training samples.

    Parameters
    ----------
    logits : ndarray, shape (n, k)
        Logits of test samples; a logit above zero predicts 1.
    truth, train : ndarray, shapes (n, k) and (m, k)
        The attributes of test and training samples.

    Returns
    -------
    dict
        ``attribute_accuracy``: the median over attributes of the scaled accuracy (accuracy − majority) / (1 −
        majority), where the majority predicts the value that is more frequent in training: 0 is no better, 1 perfect.
        ``attribute_accuracy_raw``: the median accuracy. ``attribute_auroc``: the mean area under the receiver operating
        characteristic. Attributes without both values in training and in test are not scored; if no others are left,
        the dict is empty.
    """
    from sklearn.metrics import roc_auc_score

    both_values = truth.any(0) & ~truth.all(0) & train.any(0) & ~train.all(0)
    if not both_values.any():
        return {}
    logits, truth, train = logits[:, both_values], truth[:, both_values], train[:, both_values]
    accuracy = ((logits > 0) == truth).mean(axis=0)
    majority = ((train.mean(axis=0) > 0.5) == truth).mean(axis=0)  # below 1, because both values occur
    return {
        "attribute_accuracy": float(np.median((accuracy - majority) / (1 - majority))),
        "attribute_accuracy_raw": float(np.median(accuracy)),
        "attribute_auroc": float(roc_auc_score(truth, logits, average="macro")),
    }


def _dropout_factors(key: Key, rows: int, hidden: int, device: torch.device) -> Tensor:
    """Return the factors of dropout: 0 or 2."""
    return ~element_mask((rows, hidden), _DROPOUT, key, device=device) / (1 - _DROPOUT)
