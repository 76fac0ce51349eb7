"""Batches of labelled images for fine-tuning: augmented and mixed, or features that are computed once."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor, nn

from r2mae.domains.lookup import get_domain
from r2mae.errors import UserError
from r2mae.images.arrays import StoredImages
from r2mae.images.augment import random_flip, random_resized_crop
from r2mae.images.data import ImageSet, Splits, fraction_notes, load_splits
from r2mae.images.evaluate import embed_set, has_classes
from r2mae.images.finetune.classifier import Classifier
from r2mae.images.finetune.config import FinetuneConfig
from r2mae.images.finetune.mixing import erase, mix, soft_targets
from r2mae.images.finetune.randaugment import rand_augment
from r2mae.images.finetune.task import IMAGES, TARGETS
from r2mae.images.resize import ResizeMode
from r2mae.images.sources import applicable_options
from r2mae.images.task import scaled
from r2mae.masking.keys import Key, permutation
from r2mae.training.devices import torch_device
from r2mae.training.folder import RunFolder
from r2mae.training.ranks import local_processes
from r2mae.training.saving import load_model
from r2mae.training.task import Batches, Data

_DIGITS = 16  # of the hash of weights


@dataclass(frozen=True, eq=False)
class LabelledBatches(Batches):
    """Samples with soft labels, a batch at a time.

    Parameters
    ----------
    samples : ndarray, StoredImages or tensor, shape (n, height, width, channels) or (n, width)
        Images, or features; a tensor on the device where batches are made.
    labels : int64 ndarray, shape (n,)
    classes : int
    rows : ndarray of int
        Indices of the samples.
    config : FinetuneConfig, optional
        How images are augmented and mixed; by default not at all.
    """

    samples: np.ndarray | StoredImages | Tensor
    labels: Int64[np.ndarray, " n"]
    classes: int
    rows: Int64[np.ndarray, " m"]
    config: FinetuneConfig | None = None

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.rows)

    def batch(self, indices: Sequence[int] | np.ndarray, key: Key) -> dict[str, Tensor]:
        """Return these samples with their soft labels; images from 0 to 1 where they are augmented."""
        rows = self.rows[np.asarray(indices)]
        if isinstance(self.samples, Tensor):
            samples = self.samples[torch.from_numpy(rows).to(self.samples.device)]
        else:
            samples = torch.from_numpy(self.samples.take(rows, axis=0))
        labels = torch.from_numpy(self.labels[rows]).to(samples.device)
        if self.config is None:
            return {IMAGES: samples, TARGETS: soft_targets(labels, self.classes)}
        targets = soft_targets(labels, self.classes, self.config.smoothing)
        if samples.ndim > 2:
            samples, targets = augment(samples, targets, key, self.config)
        return {IMAGES: samples, TARGETS: targets}

    def on_device(self, device: torch.device) -> "LabelledBatches":
        """Move the samples to a GPU, which then augments them, unless they need more than a quarter of its memory.

        The limit is on the GPU's total memory, not on its free memory: augmented values of a CPU and a GPU differ in
        the last bits, and a run that resumes next to another one must not change.
        """
        if device.type != "cuda" or not isinstance(self.samples, np.ndarray):
            return self
        if self.samples.nbytes > torch.cuda.mem_get_info(device)[1] // 4:
            return self
        return replace(self, samples=torch.from_numpy(np.ascontiguousarray(self.samples)).to(device))


def augment(images: Tensor, targets: Tensor, key: Key, config: FinetuneConfig) -> tuple[Tensor, Tensor]:
    """Crop, flip, change, erase and mix images, in MAE's order.

    Parameters
    ----------
    images : tensor, shape (batch, height, width, channels)
        uint8 (0 to 255) or float (0 to 1), on any device.
    targets : tensor, shape (batch, classes)
    key : Key
        Key of the step; ``key.row`` is the row of the first image in the global batch.
    config : FinetuneConfig

    Returns
    -------
    images (float, about 0 to 1), targets
    """
    if config.crop < 1:
        size = (int(images.shape[1]), int(images.shape[2]))
        made = random_resized_crop(images, size, key, scale=(config.crop, 1.0))
    else:
        made = scaled(images)
    if config.flip:
        made = random_flip(made, key)
    if config.randaugment:
        made = rand_augment(made.clamp(0, 1), key, config.randaugment)
    if config.erasing:
        made = erase(made, key, probability=config.erasing)
    return mix(made, targets, key, mixup=config.mixup, cutmix=config.cutmix)


@dataclass(frozen=True, eq=False, repr=False)
class FinetuneData(Data):
    """The data of a fine-tuning run.

    Parameters
    ----------
    splits : Splits
        Training and test images.
    train, validation : LabelledBatches
        Training samples, and validation samples, which are not among them.
    architecture : dict
        Description from which the classifier is built.
    pretrained : nn.Module
        The pretrained model.
    """

    splits: Splits
    train: LabelledBatches
    validation: LabelledBatches | None
    architecture: dict[str, Any]
    pretrained: nn.Module

    def load_start_weights(self, model: Classifier) -> None:
        """Load the pretrained weights into a fresh classifier."""
        model.start(self.pretrained)


class LazyFinetuneData(Data):
    """The data of a fine-tuning run, read on access.

    A finished run is evaluated with its images only: its pretrained model need not exist any more.

    Parameters
    ----------
    config : FinetuneConfig
    """

    def __init__(self, config: FinetuneConfig) -> None:
        self._config = config

    @cached_property
    def splits(self) -> Splits:
        """Training and test images."""
        return self._loaded.splits if "_loaded" in vars(self) else read_splits(self._config)

    @cached_property
    def _loaded(self) -> FinetuneData:
        return load_data(self._config)

    @property
    def train(self) -> LabelledBatches:
        """The training samples."""
        return self._loaded.train

    @property
    def validation(self) -> LabelledBatches | None:
        """The validation samples."""
        return self._loaded.validation

    @property
    def architecture(self) -> dict[str, Any]:
        """Description from which the classifier is built."""
        return self._loaded.architecture

    def load_start_weights(self, model: Classifier) -> None:
        """Load the pretrained weights into a fresh classifier."""
        self._loaded.load_start_weights(model)


@dataclass(frozen=True, eq=False)
class MeasuredData(Data):
    """Images on which a classifier is only evaluated."""

    splits: Splits


def load_data(config: FinetuneConfig, splits: Splits | None = None) -> FinetuneData:
    """Read images and pretrained model of a run; `splits` are its images, if they are read already.

    Raises
    ------
    UserError
        For images without two classes or of another size than the model's, or weights that have changed.
    """
    check_weights(config)
    pretraining, task, model = load_model(config.run, get_domain("images"), unmasked=True)
    described = RunFolder(config.run).description.architecture
    if splits is None:
        splits = read_splits(config, described)
        for note in fraction_notes(
            config.data.source, config.data.test_fraction, FinetuneConfig.data.test_fraction, splits
        ):
            logging.getLogger("r2mae").warning("%s", note)
    train_set = splits.train
    assert train_set.classes is not None
    if config.pool == "class" and not hasattr(task, "pool"):
        raise UserError(f"the model {described['model']!r} has no class token: omit --pool")
    if config.drop_path and described["model"] != "vit-mae":
        raise UserError(f"the model {described['model']!r} has no layers to skip: omit --drop-path")
    task = with_pool(task, config.pool)
    width = int(pretraining.model.latent)
    architecture: dict[str, Any] = {
        "encoder": dict(described),
        "classes": list(train_set.classes),
        "probe": config.probe,
        "pool": config.pool,
        "drop_path": config.drop_path,
        "width": width,
    }
    samples_of = partial(_samples, config, task, model, classes=len(train_set.classes))
    everything = samples_of(train_set)
    order, held_out = permutation(Key.root(config.split_seed).fold("validation"), len(train_set)), 0
    validation = None
    if config.data.validation and splits.validation is not None:
        validation = samples_of(splits.validation)
    elif config.data.validation and len(order) > 1:
        held_out = min(max(1, round(config.data.validation * len(order))), len(order) - 1)
        validation = replace(everything, rows=np.sort(order[:held_out]))
    train = replace(everything, rows=np.sort(order[held_out:]), config=config)
    return FinetuneData(splits, train, validation, architecture, model)


def read_splits(config: FinetuneConfig, encoder: Mapping[str, Any] | None = None) -> Splits:
    """Read the images; check that they have classes, and that they fit `encoder`, if given."""
    splits = load_splits(
        config.data.source,
        test_fraction=config.data.test_fraction,
        seed=config.split_seed,
        resize=config.data.resize,
        resize_mode=config.data.resize_mode,
        cache=config.machine.cache,
        skip_broken=config.data.skip_broken,
        draft=config.data.draft,
        processes=local_processes(config.machine.devices),
    )
    if not has_classes(splits):
        raise UserError(f"{config.data.source}: fine-tuning needs labels of two classes or more")
    if encoder is None:
        return splits
    given, expected = list(splits.train.shape), [int(side) for side in encoder["shape"]]
    if given != expected:
        sizes = [" x ".join(map(str, shape)) for shape in (given, expected)]
        resizable = expected[2] == given[2] and expected[0] == expected[1]
        hint = f"add --resize {expected[0]}" if resizable else "convert them to the size and channels of the model's"
        raise UserError(f"{config.data.source} has images of {sizes[0]}, and the model takes {sizes[1]}: {hint}")
    return splits


def other_data(
    config: FinetuneConfig,
    source: str,
    architecture: Mapping[str, Any],
    *,
    resize: int | None = None,
    resize_mode: ResizeMode | None = None,
    skip_broken: bool | None = None,
) -> tuple[FinetuneConfig, MeasuredData]:
    """Read external images to evaluate a classifier on.

    Raises
    ------
    UserError
        For images of another size or with other classes than those of the classifier.
    """
    fitting = applicable_options(source, "auto", config.data.skip_broken, config.data.draft)
    fitting |= {} if skip_broken is None else {"skip_broken": skip_broken}
    own = {"resize": resize or config.data.resize, "resize_mode": resize_mode or config.data.resize_mode, **fitting}
    config = config.replace(data=source, **own)
    splits = read_splits(config, architecture["encoder"])
    if list(splits.test.classes or ()) != list(architecture["classes"]):
        raise UserError(f"{source} has other classes than the classifier: name data with the classes of {config.run}")
    return config, MeasuredData(splits)


def with_pool(task: Any, pool: str) -> Any:
    """Return the task with this pooling, if it has the option."""
    return replace(task, pool=pool) if hasattr(task, "pool") else task


def weights_of(run: str | Path) -> str:
    """Return the beginning of the SHA-256 of a run's weights.

    Raises
    ------
    UserError
        For a folder without a finished run.
    """
    folder = RunFolder(run)
    folder.read_config()
    if not folder.trained:
        raise UserError(f"{folder.path} is not finished: rerun its `r2mae pretrain` command to resume")
    return sha256(folder.weights.read_bytes()).hexdigest()[:_DIGITS]


def check_weights(config: FinetuneConfig) -> None:
    """Refuse to resume a run whose pretrained weights have changed."""
    if config.weights and weights_of(config.run) != config.weights:
        raise UserError(f"the weights in {config.run} have changed since this run started: choose another --out")


def _samples(config: FinetuneConfig, task: Any, model: nn.Module, images: ImageSet, *, classes: int) -> LabelledBatches:
    """Return labelled images, or with `cached` their features, computed on the run's device."""
    assert images.labels is not None
    samples: Any = images.images
    if config.cached:
        samples = embed_set(task, model.to(torch_device(config.machine.device)), images)
        model.to("cpu")
    return LabelledBatches(samples, images.labels, classes, np.arange(len(images)))
