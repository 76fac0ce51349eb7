"""Evaluation of a model of images: linear probe, reconstruction, effective rank."""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from jaxtyping import Float32, Int
from torch import Tensor, nn

from r2mae.errors import UserError
from r2mae.evaluation.attributes import fit_attributes, score_attributes
from r2mae.evaluation.bn_statistics import BnStatistics, score_with_statistics
from r2mae.evaluation.examples import Examples
from r2mae.evaluation.head import as_floats, fit_head
from r2mae.evaluation.items import ItemRecorder, item_shares
from r2mae.evaluation.knn import knn_predict
from r2mae.evaluation.probes import LinearProbe
from r2mae.evaluation.spectrum import spectrum_scores
from r2mae.images.batches import ImageBatches, ImageData
from r2mae.images.config import ImagesConfig
from r2mae.images.data import ImageSet, Splits
from r2mae.images.task import ImageTask, scaled
from r2mae.masking.keys import Key
from r2mae.training.bn_statistics import re_estimated_statistics, statistics_at_ratios
from r2mae.training.validation import EVALUATION_KEY, evaluating, masked_losses, to_device

RATIOS = (0.1, 0.3, 0.5, 0.7, 0.9)
ITEM_METRICS = ("probe_accuracy", "knn_accuracy", "masked_mse", "clean_mse")
"""Scores that are means over test images."""
_BATCH = 2048
_MAX_NUMBERS = 1 << 23  # values of the images of a batch: 55 of 224 x 224; a U-Net's states are many times as large
_EXAMPLES = 8

Probe = Literal["head", "logistic"]
_Model = TypeVar("_Model", bound=nn.Module)


def evaluate(
    config: ImagesConfig,
    task: ImageTask[_Model],
    model: _Model,
    data: ImageData,
    *,
    probe: Probe = "head",
    bn_statistics: BnStatistics | None = None,
    progress: Callable[[int, int], None] | None = None,
    items: ItemRecorder | None = None,
) -> dict[str, float]:
    """Measure a pretrained autoencoder on the test images.

    Parameters
    ----------
    config, task, model, data
        Those of the run.
    probe : {"head", "logistic"}
        The paper's probe (a new layer, Adam, 15 epochs), or logistic regression with cross-validated strength.
    bn_statistics : {"yes", "no", "both"}, optional
        Whether batch statistics are re-estimated on training images: unmasked ones for the probe and the unmasked
        error, masked ones at each ratio for the masked error. By default as in the configuration.
    progress : callable, optional
        Called with the number of finished fits of the logistic probe, and of all its fits.
    items : ItemRecorder, optional
        Records the scores of :data:`ITEM_METRICS` for single test images.

    Returns
    -------
    dict
        ``probe_accuracy`` and ``knn_accuracy`` (with two classes or more); ``attribute_accuracy`` (scaled), its
        ``…_raw`` and ``attribute_auroc`` (with attributes); ``masked_mse`` (mean over :data:`RATIOS`, on frozen masks)
        and ``masked_mse_0.1`` and so on; ``clean_mse`` (of models that reconstruct unmasked images);
        ``effective_rank`` and ``spectral_entropy`` of the test embeddings. With "both", also each score as
        ``as_trained_…``.
    """
    batches = ImageBatches(data.splits.test.images)

    def measure(re_estimated: bool, items: ItemRecorder | None) -> dict[str, float]:
        identify_labels(items, data.splits)
        with re_estimated_statistics(task, model, data.train, wanted=re_estimated):
            scores = embedding_scores(
                partial(embed_set, task, model), data.splits, config.seed, probe=probe, progress=progress, items=items
            )
            if task.reconstructs:
                scores["clean_mse"] = clean_mse(task, model, batches, items)
        with statistics_at_ratios(task, model, data.train, RATIOS, wanted=re_estimated) as prepare:
            return scores | masked_scores(task, model, batches, prepare, items)

    return score_with_statistics(bn_statistics or config.evaluation.bn_statistics, measure, items)


def embedding_scores(
    embed: Callable[[ImageSet], np.ndarray],
    splits: Splits,
    seed: int,
    *,
    probe: Probe = "head",
    progress: Callable[[int, int], None] | None = None,
    items: ItemRecorder | None = None,
    most: float = math.inf,
) -> dict[str, float]:
    """Return the scores of the embeddings of unmasked images: of the probes that the set has labels for, and ranks.

    `embed` returns a row for each image: its embedding, or its pixels as bytes, which become floats from 0 to 1. Above
    `most` numbers of all embeddings of a part, neighbours and spectrum are left out.
    """
    test = embed(splits.test)
    train = embed(splits.train) if has_classes(splits) or has_attributes(splits) else None
    predicted: dict[str, np.ndarray] = {}
    scores: dict[str, float] = {}
    if train is not None and splits.train.labels is not None and has_classes(splits):
        predicted["probe_accuracy"] = _probe_predictions(probe, train, splits.train.labels, test, seed, progress)
        if train.size <= most:
            predicted["knn_accuracy"] = knn_predict(_floats(train), splits.train.labels, _floats(test))
    for name, labels in predicted.items():
        right = labels == splits.test.labels
        scores[name] = float(right.mean())
        if items is not None:
            items.add(name, right.astype(np.float32))
    if train is not None and splits.train.attributes is not None and splits.test.attributes is not None:
        head = fit_attributes(train, splits.train.attributes, seed=seed)
        found = score_attributes(head.logits(test), splits.test.attributes, splits.train.attributes)
        if found is not None:  # an attribute has both values in training and in test images
            scores |= {"attribute_accuracy": found.accuracy, "attribute_accuracy_raw": found.raw}
            scores["attribute_auroc"] = found.auroc
    return scores | (spectrum_scores(_floats(test)) if test.size <= most else {})


def _probe_predictions(
    probe: Probe,
    train: np.ndarray,
    labels: Int[np.ndarray, " n"],
    test: np.ndarray,
    seed: int,
    progress: Callable[[int, int], None] | None,
) -> Int[np.ndarray, " m"]:
    """Fit a probe on embeddings of training images, and return its predictions for test images."""
    if probe == "head":
        return fit_head(train, labels, seed=seed).predict(test).cpu().numpy()
    smallest = int(np.bincount(labels)[np.unique(labels)].min())
    if smallest < 2:
        raise UserError("the logistic probe needs two training images of every class: use --probe head")
    fitted = LinearProbe(scoring="accuracy", cv=min(5, smallest)).fit(_floats(train), labels, progress=progress)
    return np.asarray(fitted.predict(_floats(test)))


def _floats(features: np.ndarray) -> Float32[np.ndarray, "n d"]:
    """Return bytes as floats from 0 to 1, and floats unchanged."""
    if features.dtype != np.uint8:
        return features
    made: np.ndarray = as_floats(torch.from_numpy(features)).numpy()
    return made


def in_batches(images: ImageBatches, most: int = _BATCH, device: Any = "cpu") -> Iterator[tuple[slice, Tensor]]:
    """Yield all images as batches of at most `most` images, fewer if they are large, each with its rows."""
    size = max(1, min(most, _MAX_NUMBERS // math.prod(images.images.shape[1:])))
    for first in range(0, len(images), size):
        rows = slice(first, min(first + size, len(images)))
        batch = images.batch(np.arange(rows.start, rows.stop), EVALUATION_KEY.rows(first))
        yield rows, to_device(batch, device)


@torch.no_grad()
def outputs_of(
    function: Callable[[Tensor], Tensor], model: nn.Module, images: ImageSet, most: int = _BATCH
) -> Float32[np.ndarray, "n width"]:
    """Return what a function returns for all images, in batches on the model's device."""
    outputs = None
    with evaluating(model):
        for rows, batch in in_batches(ImageBatches(images.images), most, next(model.parameters()).device):
            made = function(batch).float()
            if outputs is None:  # filled in place: many small tensors would fragment the memory of the large batches
                outputs = np.empty((len(images), made.shape[1]), np.float32)
            outputs[rows] = made.cpu().numpy()
    assert outputs is not None
    return outputs


def embed_set(task: ImageTask[_Model], model: _Model, images: ImageSet) -> Float32[np.ndarray, "n latent"]:
    """Embed every image, without a mask."""
    task.check_images(images.name, images.shape)
    return outputs_of(partial(task.embed, model), model, images)


@torch.no_grad()
def clean_mse(
    task: ImageTask[_Model], model: _Model, batches: ImageBatches, items: ItemRecorder | None = None
) -> float:
    """Return the mean squared error over all pixels of unmasked images; `items` receives that of each image."""
    device, each = next(model.parameters()).device, np.empty(len(batches))
    with evaluating(model):
        for rows, batch in in_batches(batches, device=device):
            squares = (task.reconstruct(model, batch).flatten(1) - scaled(batch).flatten(1)).square()
            each[rows] = squares.mean(1, dtype=torch.float64).cpu().numpy()
    if items is not None:
        items.add("clean_mse", each)
    return float(each.mean())


@torch.no_grad()
def complete(
    task: ImageTask[_Model], model: _Model, data: ImageData, ratio: float, *, bn_statistics: bool = False
) -> Examples | None:
    """Complete masked test images, one of each of the first eight classes, on frozen masks; None without pictures."""
    test = data.splits.test
    rows = np.arange(min(_EXAMPLES, len(test)))
    if test.labels is not None:
        rows = np.sort(np.unique(test.labels, return_index=True)[1])[:_EXAMPLES]
    device = next(model.parameters()).device
    batch = to_device(ImageBatches(test.images).batch(rows, EVALUATION_KEY), device)
    with re_estimated_statistics(task, model, data.train, ratio, wanted=bn_statistics), evaluating(model):
        made = task.complete(model, batch, ratio, Key.root(0).fold("example masks"))
    if made is None:
        return None
    original, masked, completed = (tensor.float().cpu().numpy() for tensor in made)
    return Examples(original, masked, completed, ratio)


def has_classes(splits: Splits) -> bool:
    """Return whether the set has labels of two classes or more."""
    classes = splits.train.classes
    labelled = splits.train.labels is not None and splits.test.labels is not None
    return labelled and classes is not None and len(classes) > 1


def has_attributes(splits: Splits) -> bool:
    """Return whether the set has attributes."""
    return splits.train.attributes is not None and splits.test.attributes is not None


def identify_labels(items: ItemRecorder | None, splits: Splits) -> None:
    """Record the labels of the test images; the images are recorded when :func:`masked_scores` reads them."""
    if items is not None and splits.test.labels is not None:
        items.identify("labels", splits.test.labels)


def masked_scores(
    task: ImageTask[_Model],
    model: _Model,
    batches: ImageBatches,
    prepare: Callable[[int], None] | None = None,
    items: ItemRecorder | None = None,
) -> dict[str, float]:
    """Return the error at hidden pixels on frozen masks: ``masked_mse``, and at each of :data:`RATIOS`.

    `prepare` is called with the index of a ratio before the model runs at it. `items` receives the share of each image
    in ``masked_mse``, if the task gives the image of each loss.
    """
    device = str(next(model.parameters()).device)
    sums = (
        None if items is None else torch.full((len(RATIOS), len(batches)), math.nan, dtype=torch.float64, device=device)
    )
    read = batches if items is None else items.recording(batches)
    losses = masked_losses(task, model, read, RATIOS, device=device, prepare=prepare, by_sample=sums)
    if items is not None and sums is not None:
        items.add("masked_mse", item_shares(sums.cpu().numpy(), losses))
    by_ratio = {f"masked_mse_{ratio:g}": loss for ratio, loss in zip(RATIOS, losses, strict=True)}
    return {"masked_mse": float(np.mean(losses)), **by_ratio}
