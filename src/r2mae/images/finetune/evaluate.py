"""Evaluation of a classifier: top-1 and top-5 accuracy, and cross entropy."""

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn.functional import cross_entropy

from r2mae.errors import UserError
from r2mae.images.batches import ImageBatches
from r2mae.images.data import ImageSet
from r2mae.images.finetune.classifier import Classifier
from r2mae.images.task import scaled
from r2mae.training.validation import EVALUATION_KEY, evaluating, to_device

_BATCH = 256
TOP = 5


def evaluate(model: Classifier, images: ImageSet) -> dict[str, float]:
    """Measure a classifier on images without augmentation.

    Returns
    -------
    dict
        ``top1``; ``top5``, if there are more than five classes; ``cross_entropy`` in nats.

    Raises
    ------
    UserError
        If logits are not finite.
    """
    assert images.labels is not None
    logits, labels = predict(model, images), torch.from_numpy(images.labels)
    if broken := int((~torch.isfinite(logits)).any(1).sum()):
        raise UserError(
            f"the logits of {broken:,} of {len(images):,} images of {images.name} are not finite: train the "
            "classifier again with a lower --base-lr"
        )
    scores = {"top1": top_accuracy(logits, labels, 1)}
    if logits.shape[1] > TOP:
        scores["top5"] = top_accuracy(logits, labels, TOP)
    return {**scores, "cross_entropy": float(cross_entropy(logits.double(), labels))}


@torch.no_grad()
def predict(model: Classifier, images: ImageSet) -> Float[Tensor, "n classes"]:
    """Return the logits of all images, on the CPU."""
    batches, device, parts = ImageBatches(images.images), next(model.parameters()).device, []
    with evaluating(model):
        for first in range(0, len(batches), _BATCH):
            rows = np.arange(first, min(first + _BATCH, len(batches)))
            batch = to_device(batches.batch(rows, EVALUATION_KEY.rows(first)), device)
            parts.append(model(scaled(batch)).float().cpu())
    return torch.cat(parts)


def top_accuracy(logits: Float[Tensor, "n classes"], labels: Int64[Tensor, " n"], k: int) -> float:
    """Return the fraction of images for which fewer than `k` other classes have a logit as large as the true class's.

    A NaN counts as wrong.
    """
    own = logits.gather(1, labels[:, None])
    above = (~(logits < own)).sum(1) - 1
    return float((above < k).double().mean())
