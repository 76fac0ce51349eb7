"""Scores of models of images, and of baselines: raw pixels, principal components, the mean image, a Gaussian."""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32
from torch import Tensor, nn

from r2mae.environment import sum_dtype
from r2mae.evaluation.attributes import fit_attributes, score_attributes
from r2mae.evaluation.bn_statistics import score_with_statistics
from r2mae.evaluation.examples import Examples
from r2mae.evaluation.gaussian import GaussianConditionalMean
from r2mae.evaluation.head import fit_head
from r2mae.evaluation.items import ItemRecorder, item_shares
from r2mae.evaluation.knn import knn_predict
from r2mae.evaluation.spectrum import spectrum_scores
from r2mae.images.batches import MAX_NUMBERS, ImageBatches, ImageData
from r2mae.images.config import ImagesConfig
from r2mae.images.data import ImageSet, Splits
from r2mae.images.task import ImageTask, PixelTask, scaled
from r2mae.masking.keys import Key, permutation
from r2mae.progress import counter
from r2mae.training.validation import (
    BATCH,
    EVALUATION_KEY,
    RecordedBatches,
    evaluating,
    masked_losses,
    re_estimated_statistics,
    read_all,
    statistics_at_ratios,
    to_device,
)

RATIOS = (0.1, 0.3, 0.5, 0.7, 0.9)
_BATCH = 2048
_EXAMPLES = 8
_SAMPLE_BYTES = 1 << 28  # of the images that principal axes are found on
_RANK_NUMBERS = 1 << 26  # of the test part, up to which its spectrum is taken: 512 MiB in double precision
_NOISE = 1e-6  # of the largest variance; directions below it are rounding error

_Model = TypeVar("_Model", bound=nn.Module)


def evaluate(
    config: ImagesConfig,
    task: ImageTask[_Model],
    model: _Model,
    data: ImageData,
    *,
    items: ItemRecorder | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, float]:
    """Measure a pretrained autoencoder on the test images.

    The probe is the paper's: a new layer, Adam, 15 epochs, and at least 2,000 steps. If the configuration says so,
    batch statistics are re-estimated on training images: unmasked ones for the probe and the unmasked error, masked
    ones at each ratio for the masked error. `items` records accuracies and masked and clean errors of single images.
    `progress` is called with the number of batches done and the total.

    Returns
    -------
    dict
        ``probe_accuracy`` and ``knn_accuracy`` (with two classes or more); ``attribute_accuracy`` (scaled), its
        ``…_raw`` and ``attribute_auroc`` (with attributes); ``masked_mse`` (mean over :data:`RATIOS`, on frozen masks)
        and ``masked_mse_0.1`` and so on; ``clean_mse`` (of models that reconstruct unmasked images);
        ``effective_rank`` and ``spectral_entropy`` of the test embeddings. With "both", also each score as
        ``as_trained_…``.
    """
    batches, splits = ImageBatches(data.splits.test.images), data.splits
    embedded, read = (-(-images // BATCH) for images in (len(splits.train) + len(splits.test), len(batches)))
    twice = config.evaluation.bn_statistics == "both"
    add = counter(progress, (embedded + len(RATIOS) * read) * (1 + twice))

    def measure(re_estimated: bool, items: ItemRecorder) -> dict[str, float]:
        _identify_labels(items, data.splits)
        with re_estimated_statistics(task, model, data.train, wanted=re_estimated):
            scores = embedding_scores(partial(embed_set, task, model), data.splits, config.seed, items=items)
            if task.reconstructs:
                scores["clean_mse"] = clean_mse(task, model, batches, items)
        add(embedded)
        with statistics_at_ratios(task, model, data.train, RATIOS, wanted=re_estimated) as prepare:

            def at_ratio(ratio: float) -> None:
                add(1)
                prepare(ratio)

            return scores | masked_scores(task, model, batches, items, at_ratio)

    return score_with_statistics(config.evaluation.bn_statistics, measure, items)


def embedding_scores(
    embed: Callable[[ImageSet], np.ndarray],
    splits: Splits,
    seed: int,
    *,
    items: ItemRecorder,
    most: float = math.inf,
) -> dict[str, float]:
    """Return the scores of the embeddings of unmasked images: of the probes that the set has labels for, and ranks.

    `embed` returns a row for each image. Above `most` numbers of all embeddings of a part, neighbours and spectrum are
    left out.
    """
    test, labels, attributes = embed(splits.test), splits.train.labels, splits.train.attributes
    train = embed(splits.train) if splits.has_classes or attributes is not None else test
    predicted: dict[str, np.ndarray] = {}
    scores: dict[str, float] = {}
    if labels is not None and splits.has_classes:
        predicted["probe_accuracy"] = fit_head(train, labels, seed=seed).predict(test).cpu().numpy()
        if train.size <= most:
            predicted["knn_accuracy"] = knn_predict(train, labels, test)
    for name, found_labels in predicted.items():
        right = found_labels == splits.test.labels
        scores[name] = float(right.mean())
        items.add(name, right.astype(np.float32))
    if attributes is not None and splits.test.attributes is not None:
        head = fit_attributes(train, attributes, seed=seed)
        scores |= score_attributes(head.logits(test), splits.test.attributes, attributes)
    return scores | (spectrum_scores(test) if test.size <= most else {})


def in_batches(images: ImageBatches, most: int = _BATCH, device: Any = "cpu") -> Iterator[tuple[slice, Tensor]]:
    """Yield all images as batches of at most `most` images, fewer if they are large, each with its rows."""
    size = max(1, min(most, MAX_NUMBERS // math.prod(images.images.shape[1:])))
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
def clean_mse(task: ImageTask[_Model], model: _Model, batches: ImageBatches, items: ItemRecorder) -> float:
    """Return the mean squared error over all pixels of unmasked images; `items` receives that of each image."""
    device, each = next(model.parameters()).device, np.empty(len(batches))
    with evaluating(model):
        for rows, batch in in_batches(batches, device=device):
            squares = (task.reconstruct(model, batch).flatten(1) - scaled(batch).flatten(1)).square()
            each[rows] = squares.mean(1, dtype=sum_dtype(device)).cpu().numpy()
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
    batch = to_device(ImageBatches(test.images).batch(rows, EVALUATION_KEY), next(model.parameters()).device)
    with re_estimated_statistics(task, model, data.train, ratio, wanted=bn_statistics), evaluating(model):
        made = task.complete(model, batch, ratio, Key.root(0).fold("example masks"))
    if made is None:
        return None
    original, masked, completed = (tensor.float().cpu().numpy() for tensor in made)
    index = () if test.index is None else tuple(test.index[rows].tolist())
    files = () if test.files is None else tuple(str(test.files[row]) for row in index)
    return Examples(original, masked, completed, ratio, index, files)


def _identify_labels(items: ItemRecorder, splits: Splits) -> None:
    """Record the labels of the test images; the images are recorded when :func:`masked_scores` reads them."""
    if splits.test.labels is not None:
        items.identify("labels", splits.test.labels)


def masked_scores(
    task: ImageTask[_Model],
    model: _Model,
    batches: ImageBatches,
    items: ItemRecorder,
    prepare: Callable[[float], None] = lambda ratio: None,
) -> dict[str, float]:
    """Return the error at hidden pixels on frozen masks: ``masked_mse``, and at each of :data:`RATIOS`.

    `prepare` is called with a ratio before the model runs at it.
    """
    device = str(next(model.parameters()).device)
    sums = torch.full((len(RATIOS), len(batches)), math.nan, dtype=sum_dtype(device), device=device)
    read = RecordedBatches(batches, items)
    losses = masked_losses(task, model, read, RATIOS, device=device, prepare=prepare, by_sample=sums)
    items.add("masked_mse", item_shares(sums.cpu().numpy(), losses))
    by_ratio = {f"masked_mse_{ratio:g}": loss for ratio, loss in zip(RATIOS, losses, strict=True)}
    return {"masked_mse": float(np.mean(losses)), **by_ratio}


def score_pixels(config: ImagesConfig, data: ImageData, items: ItemRecorder | None = None) -> dict[str, float]:
    """Score raw pixels as an embedding."""
    items = items or ItemRecorder()
    _identify_labels(items, data.splits)
    read_all(RecordedBatches(ImageBatches(data.splits.test.images), items))
    return embedding_scores(_flat_pixels, data.splits, config.seed, items=items, most=_RANK_NUMBERS)


def score_components(
    config: ImagesConfig, data: ImageData, components: int, items: ItemRecorder | None = None
) -> dict[str, float]:
    """Score principal components of the training images as an embedding; without any, the mean image as a filling."""
    items = items or ItemRecorder()
    _identify_labels(items, data.splits)
    test = ImageBatches(data.splits.test.images)
    model = fit_components(data.train.unaugmented, components, seed=config.seed)
    task = _pixel_task(config, data, fill=tuple(model.mean.tolist()))
    scores = {} if components else masked_scores(task, model, test, items)
    if config.model.reconstructs:  # otherwise the model's errors are not over pixels
        scores["clean_mse"] = clean_mse(task, model, test, items)
    if components:
        read_all(RecordedBatches(test, items))  # items are identified by what an evaluation reads
    if not model.axes.shape[1]:
        return scores
    return scores | embedding_scores(partial(embed_set, task, model), data.splits, config.seed, items=items)


def score_gaussian(config: ImagesConfig, data: ImageData, items: ItemRecorder | None = None) -> dict[str, float]:
    """Score the conditional mean of a Gaussian (:mod:`r2mae.evaluation.gaussian`) as a filling."""
    items = items or ItemRecorder()
    _identify_labels(items, data.splits)
    task = _pixel_task(config, data, mask_input=True)
    return masked_scores(task, _GaussianImages(data.train.unaugmented), ImageBatches(data.splits.test.images), items)


def _pixel_task(config: ImagesConfig, data: ImageData, **fields: Any) -> PixelTask:
    """Return the task that hides pixels as the configuration's model does."""
    shape = data.splits.train.shape
    together = shape[2] if config.model.shares_colours else 1
    return PixelTask(math.prod(shape), exact=config.task.exact, together=together, **fields)


class _GaussianImages(nn.Module):
    """The Gaussian conditional mean of images' pixels, kept between 0 and 1, as a model that takes the mask."""

    def __init__(self, images: ImageBatches) -> None:
        super().__init__()
        self.gaussian = GaussianConditionalMean.fit(images.flat_parts)
        self.mean = nn.Parameter(torch.from_numpy(self.gaussian.mean.astype(np.float32)), requires_grad=False)

    def forward(
        self, flat: Float[Tensor, "batch pixels"], hidden: Bool[Tensor, "batch pixels"]
    ) -> tuple[Float[Tensor, "batch pixels"], Float[Tensor, "batch pixels"]]:
        filled = self.gaussian.fill(flat.numpy(), hidden.numpy()).clip(0.0, 1.0)
        return torch.from_numpy(filled.astype(np.float32)), flat


class Components(nn.Module):
    """Principal components, orthonormal axes by falling variance, as an autoencoder; without an axis the mean image."""

    def __init__(self, mean: Float32[np.ndarray, " pixels"], axes: Float32[np.ndarray, "pixels components"]) -> None:
        super().__init__()
        self.pixels = len(mean)
        self.mean = nn.Parameter(torch.from_numpy(mean), requires_grad=False)
        self.axes = nn.Parameter(torch.from_numpy(axes), requires_grad=False)

    def encode(self, flat: Float[Tensor, "batch pixels"]) -> Float[Tensor, "batch components"]:
        """Project images on the axes."""
        return (flat - self.mean) @ self.axes

    def forward(
        self, flat: Float[Tensor, "batch pixels"]
    ) -> tuple[Float[Tensor, "batch pixels"], Float[Tensor, "batch components"]]:
        """Return the reconstruction and the components."""
        components = self.encode(flat)
        return self.mean + components @ self.axes.T, components


def fit_components(images: ImageBatches, components: int, *, seed: int = 0) -> Components:
    """Compute the mean of images, and as many principal axes, or all along which they vary.

    The axes are those of a sample, drawn by the seed, of as many images as fit into 256 MiB, or of all.
    """
    from sklearn.decomposition import PCA

    total = sum((part.sum(axis=0, dtype=np.float64) for part in images.flat_parts()), np.float64(0))
    mean: np.ndarray = np.asarray(total / len(images), dtype=np.float32)
    pixels = len(mean)
    if not components:
        return Components(mean, np.zeros((pixels, 0), np.float32))
    rows = permutation(Key.root(seed).fold("principal axes"), len(images))[: max(2, _SAMPLE_BYTES // (4 * pixels))]
    sample = np.concatenate(list(ImageBatches(images.images, images.rows[np.sort(rows)]).flat_parts()))
    with np.errstate(divide="ignore", invalid="ignore"):  # of equal images, or a single one
        fitted = PCA(min(components, *sample.shape), random_state=seed).fit(sample)
    varying = fitted.explained_variance_ > _NOISE * fitted.explained_variance_[0]
    return Components(mean, np.ascontiguousarray(fitted.components_[varying].T, dtype=np.float32))


def _flat_pixels(images: ImageSet) -> Float32[np.ndarray, "n pixels"]:
    return np.concatenate(list(ImageBatches(images.images).flat_parts()))
