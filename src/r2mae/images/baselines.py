"""Baselines for models of images: raw pixels, principal components, the mean image, the Gaussian conditional mean."""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32
from torch import Tensor, nn

from r2mae.errors import warn_once
from r2mae.evaluation.gaussian import GaussianConditionalMean
from r2mae.evaluation.items import ItemRecorder
from r2mae.images.arrays import StoredImages, in_chunks
from r2mae.images.batches import ImageBatches, ImageData
from r2mae.images.config import ImagesConfig
from r2mae.images.data import ImageSet
from r2mae.images.evaluate import (
    Probe,
    clean_mse,
    embed_set,
    embedding_scores,
    identify_labels,
    masked_scores,
)
from r2mae.images.formats import memory_limit
from r2mae.images.task import PixelAutoencoder, PixelTask, scaled
from r2mae.masking.keys import Key, permutation
from r2mae.training.validation import EVALUATION_KEY, read_all

_BATCH = 4096
_MAX_COVARIANCE = 4096  # numbers of an image up to which the covariance is formed; and images of wider ones
_SAMPLE_BYTES = 1 << 28  # of the images that wider axes are found on
_RANK_NUMBERS = 1 << 26  # of the test part, up to which its spectrum is taken: 512 MiB in double precision
_NOISE = 1e-6  # of the largest variance; directions below it are rounding error


def baseline_scores(
    config: ImagesConfig,
    name: str,
    data: ImageData,
    *,
    probe: Probe = "head",
    progress: Callable[[int, int], None] | None = None,
    items: ItemRecorder | None = None,
) -> dict[str, float]:
    """Score a baseline as :func:`r2mae.images.evaluate.evaluate` scores a model, as far as its scores apply.

    ``pixels``: the pixels, from 0 to 1, as an embedding, without reconstruction. ``pca``: as many principal components
    of the training images as the representation is wide; it fills in nothing, so it has no error at hidden pixels.
    ``mean``: the mean training image as the prediction of every image; no embedding. ``gaussian``: hidden pixels are
    predicted from the kept ones (:mod:`r2mae.evaluation.gaussian`); no embedding.
    """
    identify_labels(items, data.splits)
    test = ImageBatches(data.splits.test.images)
    options: dict[str, Any] = {"probe": probe, "progress": progress, "items": items}
    if name == "pixels":
        if items is not None:
            read_all(items.recording(test))
        parts = [data.splits.train.images, data.splits.test.images]
        stored = [images for images in parts if isinstance(images, StoredImages)]
        size = sum(images.size * (images.dtype.itemsize if probe == "head" else 4) for images in stored)
        if size > memory_limit():
            warn_once(f"pixels: not measured, since {size / 2**30:,.3g} GiB of images do not fit into memory")
            return {}
        return embedding_scores(_flat_pixels, data.splits, config.seed, most=_RANK_NUMBERS, **options)
    together = data.splits.train.shape[2] if getattr(config.model, "share_colours", False) else 1
    if name == "gaussian":
        size = GaussianConditionalMean.bytes_to_fit(len(data.train), math.prod(data.splits.train.shape))
        if size > memory_limit():
            warn_once(f"gaussian: not measured, since it needs {size / 2**30:,.3g} GiB of memory")
            return {}
        gaussian = _GaussianImages(data.train.unaugmented)
        task = PixelTask(gaussian.pixels, exact=config.task.exact, together=together, mask_input=True)
        return masked_scores(task, gaussian, test, items=items)
    model = fit_components(data.train.unaugmented, config.model.latent if name == "pca" else 0, seed=config.seed)
    task = PixelTask(model.pixels, exact=config.task.exact, fill=tuple(model.mean.tolist()), together=together)
    scores: dict[str, float] = {}
    if config.model.reconstructs:  # otherwise the model's errors are not over pixels
        scores = masked_scores(task, model, test, items=items) if name == "mean" else {}
        scores["clean_mse"] = clean_mse(task, model, test, items)
    if items is not None and (name == "pca" or not scores):
        read_all(items.recording(test))  # items are identified by what an evaluation reads
    if not model.axes.shape[1]:
        return scores
    return scores | embedding_scores(partial(embed_set, task, model), data.splits, config.seed, **options)


class _GaussianImages(nn.Module):
    """The Gaussian conditional mean of images' pixels, kept between 0 and 1, as a model that takes the mask."""

    def __init__(self, images: ImageBatches) -> None:
        super().__init__()
        rows = np.arange(len(images))
        self.gaussian = GaussianConditionalMean.fit(lambda: _float_batches(images, rows))
        self.pixels = len(self.gaussian.mean)
        self.mean = nn.Parameter(torch.from_numpy(self.gaussian.mean.astype(np.float32)), requires_grad=False)

    def forward(
        self, flat: Float[Tensor, "batch pixels"], hidden: Bool[Tensor, "batch pixels"]
    ) -> tuple[Float[Tensor, "batch pixels"], Float[Tensor, "batch pixels"]]:
        filled = self.gaussian.fill(flat.numpy(), hidden.numpy()).clip(0.0, 1.0)
        return torch.from_numpy(filled.astype(np.float32)), flat


class Components(PixelAutoencoder):
    """Principal components as an autoencoder; without an axis its output is the mean image.

    Parameters
    ----------
    mean : float32 ndarray, shape (pixels,)
        The mean training image.
    axes : float32 ndarray, shape (pixels, components)
        Orthonormal, by falling variance.
    """

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
    """Compute the mean of images, and as many principal axes, or all along which they vary, in batches.

    The same images give the same axes, also in sign. Images of more than 4,096 numbers give theirs by a sample of at
    most 4,096 images, drawn by the seed.
    """
    everything = np.arange(len(images))
    total = sum((part.sum(axis=0, dtype=np.float64) for part in _float_batches(images, everything)), np.float64(0))
    mean: np.ndarray = np.asarray(total / len(images), dtype=np.float32)
    pixels = len(mean)
    if not components:
        return Components(mean, np.zeros((pixels, 0), np.float32))
    if pixels <= _MAX_COVARIANCE:
        centred = (part - mean for part in _float_batches(images, everything))
        axes = _leading_eigenvectors(sum((part.T @ part for part in centred), np.zeros((pixels, pixels))), components)
    else:
        most = min(_MAX_COVARIANCE, max(2, _SAMPLE_BYTES // (4 * pixels)))
        rows = np.sort(permutation(Key.root(seed).fold("principal axes"), len(images))[:most])
        sample = np.concatenate(list(_float_batches(images, rows)))
        sample -= sample.mean(axis=0)
        # The shorter side: axes of the images' inner products, brought back to pixels.
        axes = sample.T @ _leading_eigenvectors((sample @ sample.T).astype(np.float64), components)
        axes /= np.linalg.norm(axes, axis=0)
    if axes.size:  # libraries differ in sign: the largest entry of every axis is positive
        axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])])
    return Components(mean, np.ascontiguousarray(axes, dtype=np.float32))


def _flat_pixels(images: ImageSet) -> np.ndarray:
    """Return the pixels of all images; bytes stay bytes, as a float copy would be four times as large."""
    if isinstance(images.images, StoredImages):
        return np.concatenate([chunk.reshape(len(chunk), -1) for chunk in in_chunks(images.images)])
    return images.images.reshape(len(images), -1)


def _float_batches(images: ImageBatches, rows: np.ndarray) -> Iterator[Float32[np.ndarray, "batch pixels"]]:
    """Yield images as floats, in batches."""
    for first in range(0, len(rows), _BATCH):
        yield scaled(images.batch(rows[first : first + _BATCH], EVALUATION_KEY.rows(first))).flatten(1).numpy()


def _leading_eigenvectors(symmetric: Float[np.ndarray, "n n"], count: int) -> Float[np.ndarray, "n count"]:
    """Return the eigenvectors of the largest eigenvalues in descending order, without those below rounding error."""
    from scipy.linalg import eigh

    size = len(symmetric)
    values, vectors = eigh(symmetric, subset_by_index=[max(size - count, 0), size - 1], check_finite=False)
    kept = (values > _NOISE * values[-1]) & (values > 0)
    found: np.ndarray = vectors[:, kept][:, ::-1]
    return found
