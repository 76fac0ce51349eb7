"""The paper's probe of attributes: a shared layer and a linear head for each, on frozen features (appendix "CelebA").

The features of the frozen model are computed once. What the paper leaves open (activation, dropout rate, batch size,
what "scaled" means) is chosen here, and listed in docs/images.md.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor, nn

from r2mae.errors import UserError
from r2mae.evaluation.head import Features, as_features, as_floats
from r2mae.masking.keys import Key, permutation
from r2mae.masking.masks import element_mask

Attributes = UInt8[np.ndarray, "m k"] | Bool[np.ndarray, "m k"]
_Test = UInt8[np.ndarray, "n k"] | Bool[np.ndarray, "n k"]


class AttributeHead(nn.Module):
    """Features → a shared layer with ReLU → a logit for each attribute.

    Parameters
    ----------
    width : int
        Of the features.
    attributes : int
        How many.
    hidden : int
        Width of the shared layer.
    """

    def __init__(self, width: int, attributes: int, hidden: int = 512) -> None:
        super().__init__()
        self.shared = nn.Linear(width, hidden)
        self.heads = nn.Linear(hidden, attributes)  # independent: no head sees another's weights

    def forward(
        self, features: Float[Tensor, "batch d"], kept: Float[Tensor, "batch hidden"] | None = None
    ) -> Float[Tensor, "batch k"]:
        """Return a logit for each attribute; `kept` are the factors of dropout."""
        shared = self.shared(features).relu()
        logits: Tensor = self.heads(shared if kept is None else shared * kept)
        return logits

    @torch.no_grad()
    def logits(self, features: Features, rows: int = 4096) -> Float[np.ndarray, "n k"]:
        """Return the logits of all rows of features, so many at a time."""
        x = as_features(features, self.heads.weight.device)
        parts = [self(as_floats(x[first : first + rows])) for first in range(0, max(len(x), 1), rows)]
        return torch.cat(parts).double().cpu().numpy()


def fit_attributes(
    features: Features,
    attributes: Attributes,
    *,
    hidden: int = 512,
    dropout: float = 0.5,
    epochs: int = 10,
    lr: float = 1e-3,
    batch_size: int = 256,
    seed: int = 0,
    device: str | torch.device | None = None,
) -> AttributeHead:
    """Train a head for each attribute with binary cross-entropy and Adam; the mean over attributes is the loss.

    Parameters
    ----------
    features : Tensor or ndarray, shape (n, d)
        Features of the frozen model; or pixels as bytes (uint8), which count as 0 to 1.
    attributes : uint8 or bool ndarray, shape (n, k)
        0 or 1.
    hidden, epochs, lr : int, int, float
        The paper's: 512, 10 and 0.001.
    dropout, batch_size : float, int
        Ours: 0.5 after the shared layer, and the pretraining's 256.
    seed : int
        Decides initial weights, the order of the rows and dropout; no other random state is read or changed.
    device : str or torch.device, optional
        Where to train; default where the features are.

    Returns
    -------
    AttributeHead

    Raises
    ------
    UserError
        No rows, NaN or infinite features, attributes of another length, or other than 0 and 1.
    """
    if device is None:
        device = features.device if isinstance(features, Tensor) else torch.device("cpu")
    x = as_features(features, torch.device(device))
    _check(x, attributes)
    y = torch.from_numpy(np.asarray(attributes, dtype=np.float32)).to(x.device)
    key = Key.root(seed).fold("attribute probe")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(key.fold("init").seed())
        head = AttributeHead(x.shape[1], y.shape[1], hidden)
    head.to(x.device)
    optimizer = torch.optim.Adam(head.parameters(), lr=lr, fused=x.device.type in ("cpu", "cuda"))
    for epoch in range(epochs):
        order = torch.from_numpy(permutation(key.fold("order", epoch), len(x))).to(x.device)
        for start in range(0, len(x), batch_size):
            rows = order[start : start + batch_size]
            kept = _kept(key.fold("dropout", epoch, start), len(rows), hidden, dropout, x.device)
            loss = nn.functional.binary_cross_entropy_with_logits(head(as_floats(x[rows]), kept), y[rows])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return head.requires_grad_(False)


@dataclass(frozen=True)
class AttributeScores:
    """How well attributes are predicted.

    Attributes
    ----------
    accuracy : float
        Median over attributes of the scaled accuracy (accuracy − majority) / (1 − majority), where the majority is the
        accuracy of predicting the value that is commoner in training: 0 is no better than that, 1 perfect.
    raw : float
        Median over attributes of the accuracy, with a logit above zero as a yes.
    auroc : float
        Mean over attributes of the area under the receiver operating characteristic.
    attributes : int
        How many there are with both values in training and test; the others say nothing, and are left out.
    """

    accuracy: float
    raw: float
    auroc: float
    attributes: int


def score_attributes(logits: Float[np.ndarray, "n k"], truth: _Test, train: Attributes) -> AttributeScores | None:
    """Score predictions of attributes; None if no attribute has both values in training and in test.

    Parameters
    ----------
    logits : ndarray, shape (n, k)
        Of test samples.
    truth, train : ndarray, shapes (n, k) and (m, k)
        The attributes of test and training samples.
    """
    from sklearn.metrics import roc_auc_score

    kept = truth.any(0) & ~truth.all(0) & train.any(0) & ~train.all(0)
    if not kept.any():
        return None
    logits, truth, train = logits[:, kept], truth[:, kept], train[:, kept]
    accuracy = ((logits > 0) == truth).mean(axis=0)
    majority = ((train.mean(axis=0) > 0.5) == truth).mean(axis=0)  # below 1, as both values are there
    return AttributeScores(
        float(np.median((accuracy - majority) / (1 - majority))),
        float(np.median(accuracy)),
        float(roc_auc_score(truth, logits, average="macro")),
        int(kept.sum()),
    )


def _kept(key: Key, rows: int, hidden: int, dropout: float, device: torch.device) -> Tensor | None:
    """Return the factors of dropout: zero, or what keeps the mean."""
    if not dropout:
        return None
    return ~element_mask((rows, hidden), dropout, key, device=device) / (1 - dropout)


def _check(x: Tensor, attributes: Attributes) -> None:
    if len(x) == 0 or len(x) != len(attributes):
        raise UserError(
            f"attribute probe: {len(x)} rows of features and {len(attributes)} of attributes; expected as many, one at "
            "least"
        )
    if x.is_floating_point() and not bool(torch.isfinite(x).all()):
        raise UserError("attribute probe: the features hold NaN or infinity; check the model's training")
    if attributes.max() > 1:
        raise UserError(f"attribute probe: attributes must be 0 or 1; found {attributes.max()}")
