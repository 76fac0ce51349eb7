"""The data of a fine-tuning run: batches of labelled images, augmented; and the scores of a classifier."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn.functional import cross_entropy

from r2mae.domains.lookup import get_domain
from r2mae.errors import UserError
from r2mae.images.arrays import StoredImages
from r2mae.images.augment import augment, crops_of_originals, soft_targets
from r2mae.images.batches import reading_of, validation_rows
from r2mae.images.data import ImageSet, Splits, load_splits
from r2mae.images.decode import DecodedImages
from r2mae.images.evaluate import has_classes, outputs_of
from r2mae.images.finetune.classifier import IMAGES, TARGETS, Classifier
from r2mae.images.finetune.config import FinetuneConfig
from r2mae.images.task import check_images, scaled
from r2mae.masking.keys import Key
from r2mae.training.folder import RunFolder
from r2mae.training.saving import load_model
from r2mae.training.task import Batches, Data

TOP = 5
_DIGITS = 16  # of the hash of weights
_BATCH = 256  # of evaluation


@dataclass(frozen=True, eq=False)
class LabelledBatches(Batches):
    """Images with soft labels, those of some rows, a batch at a time; a tensor is on the device where batches are made.

    The configuration says how images are augmented and mixed; by default not at all.
    """

    images: np.ndarray | StoredImages | Tensor
    labels: Int64[np.ndarray, " n"]
    classes: int
    rows: Int64[np.ndarray, " m"]
    config: FinetuneConfig | None = None

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.rows)

    def batch(self, indices: Sequence[int] | np.ndarray, key: Key) -> dict[str, Tensor]:
        """Return these images with their soft labels; from 0 to 1 where they are augmented."""
        rows, config = self.rows[np.asarray(indices)], self.config
        if isinstance(self.images, Tensor):
            images = self.images[torch.from_numpy(rows).to(self.images.device)]
        elif config is not None and config.crop_from == "original":
            images = torch.from_numpy(crops_of_originals(self.images, rows, key, scale=(config.crop, 1.0)))
        else:
            images = torch.from_numpy(self.images.take(rows, axis=0))
        labels = torch.from_numpy(self.labels[rows]).to(images.device)
        targets = soft_targets(labels, self.classes, 0.0 if config is None else config.smoothing)
        if config is not None:
            images, targets = augment(images, targets, key, config)
        return {IMAGES: images, TARGETS: targets}

    def on_device(self, device: torch.device) -> "LabelledBatches":
        """Move the images to a GPU, which then augments them, unless they need more than a quarter of its memory.

        The limit is on the GPU's total memory, not on its free memory: augmented values of a CPU and a GPU differ in
        the last bits, and a run that resumes next to another one must not change.
        """
        if device.type != "cuda" or not isinstance(self.images, np.ndarray):
            return self
        if self.images.nbytes > torch.cuda.mem_get_info(device)[1] // 4:
            return self
        return replace(self, images=torch.from_numpy(np.ascontiguousarray(self.images)).to(device))


class FinetuneData(Data):
    """The data of a fine-tuning run, with `splits` if they are read already.

    Each part is read on access: evaluation needs no pretrained model. Access raises a UserError for images without two
    classes or of another size than the model's, and for weights that have changed.
    """

    def __init__(self, config: FinetuneConfig, splits: Splits | None = None) -> None:
        self.config = config
        if splits is not None:
            self.splits = splits

    @cached_property
    def splits(self) -> Splits:
        """Training and test images, which have classes."""
        config = self.config
        reading = reading_of(config)
        if config.crop_from == "original":
            reading["cache"] = "none"
        fraction = config.data.test_fraction
        splits = load_splits(config.data.source, test_fraction=fraction, seed=config.split_seed, **reading)
        if not has_classes(splits):
            raise UserError(f"{config.data.source}: fine-tuning needs labels of two classes or more")
        if config.crop_from == "original" and not isinstance(splits.train.images, DecodedImages):
            raise UserError(f"crop_from original is for files of images, and {config.data.source} is an array: omit it")
        return splits

    @cached_property
    def architecture(self) -> dict[str, Any]:
        """Description from which the classifier is built."""
        config = self.config
        if config.weights and weights_of(config.run) != config.weights:
            raise UserError(f"the weights in {config.run} have changed since this run started: choose another --out")
        encoder = RunFolder(config.run).description.architecture
        if encoder["model"] != "vit-mae":
            for name, word in (("pool", "class token"), ("drop_path", "layers to skip")):
                if config[name] not in ("mean", 0):
                    option = name.replace("_", "-")
                    raise UserError(f"the model {encoder['model']!r} has no {word}: omit --{option}")
        check_images(config.data.source, self.splits.train.shape, encoder["shape"])
        return {
            "encoder": dict(encoder),
            "classes": list(self.splits.train.classes or ()),
            "pool": config.pool,
            "drop_path": config.drop_path,
        }

    @cached_property
    def _order(self) -> tuple[Int64[np.ndarray, " train"], Int64[np.ndarray, " held"]]:
        """Indices of the training images that are trained on, and of those for the validation loss."""
        count, fraction = len(self.splits.train), self.config.data.validation
        if fraction and self.splits.validation is None and count > 1:
            return validation_rows(count, fraction, self.config.split_seed)
        return np.arange(count), np.arange(0)

    @cached_property
    def train(self) -> LabelledBatches:
        """The training images, augmented."""
        return replace(_labelled(self.splits.train), rows=self._order[0], config=self.config)

    @cached_property
    def validation(self) -> LabelledBatches | None:
        """The validation images, which are not among the training images."""
        if self.config.data.validation and self.splits.validation is not None:
            return _labelled(self.splits.validation)
        return replace(_labelled(self.splits.train), rows=self._order[1]) if len(self._order[1]) else None

    def load_start_weights(self, model: Classifier) -> None:
        """Load the pretrained weights into a fresh classifier."""
        pretrained = load_model(self.config.run, get_domain("images"), unmasked=True)[2].state_dict()
        own = model.state_dict()
        model.load_state_dict({name: value for name, value in pretrained.items() if name in own}, strict=False)


def _labelled(images: ImageSet) -> LabelledBatches:
    assert images.labels is not None
    return LabelledBatches(images.images, images.labels, len(images.classes or ()), np.arange(len(images)))


def weights_of(run: str | Path) -> str:
    """Return the beginning of the SHA-256 of a finished run's weights.

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


def evaluate(model: Classifier, images: ImageSet) -> dict[str, float]:
    """Measure a classifier on images without augmentation.

    The scores are ``top1``; ``top5``, if there are more than five classes; and ``cross_entropy`` in nats. Logits that
    are not finite raise a UserError.
    """
    assert images.labels is not None
    logits = torch.from_numpy(outputs_of(lambda batch: model(scaled(batch)), model, images, _BATCH))
    labels = torch.from_numpy(images.labels)
    if broken := int((~torch.isfinite(logits)).any(1).sum()):
        raise UserError(
            f"the logits of {broken:,} of {len(images):,} images of {images.name} are not finite: train the "
            "classifier again with a lower --base-lr"
        )
    scores = {"top1": top_accuracy(logits, labels, 1)}
    if logits.shape[1] > TOP:
        scores["top5"] = top_accuracy(logits, labels, TOP)
    return {**scores, "cross_entropy": float(cross_entropy(logits.double(), labels))}


def top_accuracy(logits: Float[Tensor, "n classes"], labels: Int64[Tensor, " n"], k: int) -> float:
    """Return the fraction of images for which fewer than `k` other classes have a logit as large as the true class's.

    A NaN counts as wrong.
    """
    own = logits.gather(1, labels[:, None])
    above = (~(logits < own)).sum(1) - 1
    return float((above < k).double().mean())
