"""The paper's linear probe: a new linear layer on frozen features (appendix, MNIST, Evaluation).

It has its own short training loop with an explicit gradient, because this package may not import `training/`. The loop
takes seconds, so it needs no checkpoints.
"""

import math
from dataclasses import dataclass
from operator import index

import numpy as np
import torch
from jaxtyping import Float, Int, Integer
from torch import Tensor

from r2mae.errors import UserError

Features = Float[Tensor, "n d"] | Float[np.ndarray, "n d"]
_PAPER_EPOCHS = 15  # the paper's
_MIN_STEPS = 2000  # with few rows, 15 epochs end long before the loss stops falling
Labels = Integer[Tensor, " n"] | Integer[np.ndarray, " n"]


@dataclass(frozen=True, eq=False)
class LinearHead:
    """A trained linear layer.

    Attributes
    ----------
    weight : Tensor, shape (classes, d)
        Weights.
    bias : Tensor, shape (classes,)
        Biases.
    """

    weight: Float[Tensor, "classes d"]
    bias: Float[Tensor, " classes"]

    def logits(self, features: Features) -> Float[Tensor, "n classes"]:
        """Return the logits of every row, on the head's device."""
        return torch.addmm(self.bias, as_features(features, self.weight.device), self.weight.T)

    def predict(self, features: Features) -> Int[Tensor, " n"]:
        """Return the predicted class of every row, on the head's device."""
        return self.logits(features).argmax(dim=1)

    def accuracy(self, features: Features, labels: Labels) -> float:
        """Return the fraction of rows with a correctly predicted class."""
        truth = torch.as_tensor(labels, device=self.weight.device)
        return float((self.predict(features) == truth).double().mean())


def fit_head(
    features: Features,
    labels: Labels,
    *,
    epochs: int | None = None,
    lr: float = 3e-3,
    batch_size: int = 128,
    seed: int = 0,
) -> LinearHead:
    """Train a linear layer on fixed features with cross-entropy and Adam.

    Parameters
    ----------
    features : Tensor or ndarray, shape (n, d)
        Features of the frozen model, computed once.
    labels : Tensor or ndarray of int, shape (n,)
        Classes 0 … K−1.
    epochs : int, optional
        By default the paper's 15; below 17,025 rows (with the default batch size) as many as give 2,000 steps.
    lr : float
        Learning rate; by default the paper's.
    batch_size : int
        By default 128, as in the paper's pretraining; the paper gives none for the probe.
    seed : int
        Determines the initial weights (those of ``nn.Linear``: uniform within ``1/sqrt(d)``) and the order of the rows.
        No other random state is read or changed.

    Raises
    ------
    UserError
        If there are no rows, a feature is NaN or infinite, a label is negative, or the numbers of rows differ.
    """
    x = as_features(features, features.device if isinstance(features, Tensor) else torch.device("cpu"))
    y = torch.as_tensor(labels, device=x.device).long()
    check_features(x, y, "linear probe")
    generator = torch.Generator().manual_seed(index(seed))
    classes, width = int(y.max()) + 1, x.shape[1]
    bound = width**-0.5
    weight, bias = (
        torch.empty(shape).uniform_(-bound, bound, generator=generator).to(x.device)
        for shape in ((classes, width), (classes,))
    )
    if epochs is None:
        epochs = max(_PAPER_EPOCHS, math.ceil(_MIN_STEPS / math.ceil(len(x) / batch_size)))
    optimizer = torch.optim.Adam([weight, bias], lr=lr, fused=x.device.type in ("cpu", "cuda"))
    with torch.no_grad():
        for _ in range(epochs):
            order = torch.randperm(len(x), generator=generator).to(x.device)
            for start in range(0, len(x), batch_size):
                rows = order[start : start + batch_size]
                batch = x[rows]
                # The gradient of the mean cross-entropy, (probabilities - one-hot)ᵀ x / batch: half of autograd's time.
                residual = torch.softmax(torch.addmm(bias, batch, weight.T), dim=1)
                residual.scatter_add_(1, y[rows, None], residual.new_full((len(rows), 1), -1.0))
                residual /= len(rows)
                weight.grad, bias.grad = residual.T @ batch, residual.sum(dim=0)
                optimizer.step()
    return LinearHead(weight, bias)


def as_features(features: Features, device: torch.device) -> Float[Tensor, "n d"]:
    """Return features on a device, as 32-bit floats; bytes are refused, as probes of them want 0 to 1."""
    x = torch.as_tensor(features).detach()
    if x.dtype == torch.uint8:
        raise UserError("the features are bytes: give floats, such as pixels / 255")
    return x.to(device=device, dtype=torch.float32)


def check_features(x: Tensor, y: Tensor | np.ndarray, what: str) -> None:
    """Refuse features that are not finite or not as many as labels, and labels below 0; `what` is the evaluation."""
    if len(x) == 0 or len(x) != len(y):
        raise UserError(f"{what}: {len(x)} rows of features and {len(y)} labels; expected equally many, at least one")
    if not bool(x.isfinite().all()):
        raise UserError(f"{what}: the features contain NaN or infinity; check the model's training")
    if not bool((y >= 0).all()):
        raise UserError(f"{what}: labels must be 0, 1, …; found {float(y.min()):g}")
