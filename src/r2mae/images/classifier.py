"""Classifiers of images, a pretrained encoder with a new head: their task, their augmented data and their scores."""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, cast

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, log_softmax

from r2mae.errors import UserError
from r2mae.images.arrays import StoredImages
from r2mae.images.augment import augment, crops_of_originals, soft_targets
from r2mae.images.batches import check_classes, reading_of, training_rows
from r2mae.images.config import FinetuneConfig, weights_of
from r2mae.images.data import ImageSet, Splits, load_splits
from r2mae.images.evaluate import outputs_of
from r2mae.images.files import DecodedImages
from r2mae.images.models.mlp import MLPAutoencoder
from r2mae.images.models.vit_mae.model import NORM_EPSILON, VisionTransformerMAE, unmasked_states
from r2mae.images.patches import patchify, standardised
from r2mae.images.task import ImageTask, check_images, scaled
from r2mae.masking.keys import Key, uniforms
from r2mae.masking.masks import RatioLike
from r2mae.training.folder import RunFolder
from r2mae.training.task import Batches, Corrupted, Data, Output, ParameterGroup

TOP = 5
_BATCH = 256  # of evaluation

Images = Float[Tensor, "batch height width channels"]
Factors = Float[Tensor, "batch layers 2"]


class Classifier(nn.Module, ABC):
    """A classifier: :meth:`features` of images, then a linear layer, the head, whose fresh weights have a `deviation`.

    `depth` is the number of layers below it whose learning rates differ.
    """

    def __init__(self, width: int, classes: int, *, deviation: float, depth: int) -> None:
        super().__init__()
        self.depth = depth
        self.head = nn.Linear(width, classes)
        nn.init.trunc_normal_(self.head.weight, std=deviation)
        nn.init.zeros_(self.head.bias)

    @abstractmethod
    def features(self, images: Images, factors: Factors | None = None) -> Float[Tensor, "batch features"]:
        """Return what the head classifies; images are 0 to 1, `factors` those of a training step."""

    @abstractmethod
    def depth_of(self, name: str) -> int:
        """Return the layer of a parameter, from 0 (lowest) to :attr:`depth` (the head)."""

    def factors(self, rows: int, key: Key) -> Factors | None:
        """Return the factors of the parts of layers in a training step; None for a model that skips no layers."""
        return None

    def forward(self, images: Images, factors: Factors | None = None) -> Float[Tensor, "batch classes"]:
        """Return the logits."""
        return self.head(self.features(images, factors))  # type: ignore[no-any-return]


class VisionTransformerClassifier(Classifier):
    """A vision transformer of a pretrained one's layers, with the names of timm: `blocks`, `norm` or `fc_norm`, `head`.

    It classifies the mean over patches, after a fresh norm, or the class token, after the pretrained one. `drop_path`
    is the probability that each part of the last layer is skipped (Huang 2016); it rises linearly over the layers.
    """

    def __init__(
        self, pretrained: VisionTransformerMAE, classes: int, *, pool: Literal["mean", "class"], drop_path: float
    ) -> None:
        width = pretrained.norm.normalized_shape[0]
        super().__init__(width, classes, deviation=2e-5, depth=len(pretrained.blocks) + 1)
        self.patch, self.pool = pretrained.patch, pool
        self.patch_embed = pretrained.patch_embed
        self.cls_token = pretrained.cls_token
        self.pos_embed = nn.Parameter(pretrained.pos_embed.detach().clone())  # which is trained, as in the original
        self.blocks = pretrained.blocks
        self.rates = [drop_path * place / max(len(self.blocks) - 1, 1) for place in range(len(self.blocks))]
        if pool == "mean":
            self.fc_norm = nn.LayerNorm(width, eps=NORM_EPSILON)
        else:
            self.norm = pretrained.norm

    def factors(self, rows: int, key: Key) -> Factors | None:
        """Return 0 for attention or MLP of a layer that an image skips; otherwise such that the mean stays."""
        if not self.training or not any(self.rates):
            return None
        drawn = uniforms(key.fold("drop path"), rows, 2 * len(self.rates)).reshape(rows, -1, 2)
        rates = np.array(self.rates)[:, None]
        return torch.from_numpy((drawn >= rates) / (1 - rates)).float().to(self.pos_embed.device)

    def features(self, images: Images, factors: Factors | None = None) -> Float[Tensor, "batch features"]:
        """Return the normed mean over patches, or the normed class token."""
        states = unmasked_states(self, patchify(standardised(images), self.patch), factors)
        if self.pool == "mean":
            return self.fc_norm(states[:, 1:].mean(1))  # type: ignore[no-any-return]
        return self.norm(states[:, 0])  # type: ignore[no-any-return]

    def depth_of(self, name: str) -> int:
        """Return 0 for the embedding of patches, n + 1 for block n, and the depth for norm and head."""
        if name.startswith("blocks."):
            return int(name.split(".")[1]) + 1
        return 0 if name.startswith(("patch_embed.", "cls_token", "pos_embed")) else self.depth


class MLPClassifier(Classifier):
    """The encoder of the MLP autoencoder with a linear layer on its representation."""

    def __init__(self, pretrained: MLPAutoencoder, classes: int) -> None:
        super().__init__(pretrained.latent, classes, deviation=0.01, depth=2)
        self.encoder = pretrained.encoder

    def features(self, images: Images, factors: Factors | None = None) -> Float[Tensor, "batch features"]:
        """Return the second hidden layer."""
        return self.encoder(images.flatten(1))  # type: ignore[no-any-return]

    def depth_of(self, name: str) -> int:
        """Return 0 and 1 for the hidden layers with their norms, and 2 for the head."""
        return int(name.split(".")[1]) // 3 if name.startswith("encoder.") else self.depth


def make_classifier(pretrained: nn.Module, architecture: Mapping[str, Any]) -> Classifier:
    """Return the classifier that an architecture describes, with the layers of a pretrained model."""
    classes = len(architecture["classes"])
    if architecture["encoder"]["model"] == "mlp":
        return MLPClassifier(cast("Any", pretrained), classes)
    drop, pool = float(architecture["drop_path"]), architecture["pool"]
    return VisionTransformerClassifier(cast("Any", pretrained), classes, pool=pool, drop_path=drop)


@dataclass(frozen=True)
class ClassificationTask(ImageTask[Classifier]):
    """Classify images of a shape. For the loop, every image is one "hidden" entry, so that all are in the loss."""

    shape: tuple[int, ...]

    def check_images(self, name: str, shape: tuple[int, int, int]) -> None:
        """Refuse images of another size than the encoder's."""
        check_images(name, shape, self.shape)

    def corrupt(self, batch: Any, ratio: RatioLike, key: Key) -> Corrupted:
        """Return the images and soft labels of a batch, augmented and mixed already, with the key of layers to skip."""
        images = batch["images"]
        everything = torch.ones(len(images), dtype=torch.bool, device=images.device)
        return Corrupted((scaled(images), key), everything, batch["targets"], entries=len(images))

    def forward(self, model: Classifier, corrupted: Corrupted) -> Output:
        """Return the logits."""
        images, key = corrupted.inputs
        logits: Tensor = model(images, model.factors(len(images), key))
        return Output(logits, logits)

    def losses(self, output: Output, corrupted: Corrupted) -> Float[Tensor, " batch"]:
        """Return the cross entropy of every image and its soft label, in nats."""
        return -(corrupted.targets * log_softmax(output.prediction.float(), dim=1)).sum(1)

    @torch.no_grad()
    def embed(self, model: Classifier, batch: Tensor) -> Float[Tensor, "batch features"]:
        """Return the input of the last layer, for unaugmented images."""
        return model.features(scaled(batch))

    def parameter_groups(self, model: Classifier, config: FinetuneConfig) -> list[ParameterGroup]:
        """Return the parameters, the head's first; the rate of a layer is `layer_decay` times that of the one above.

        Weight decay applies to matrices only, not to biases, norms, the class token and position embeddings.
        """
        found: dict[tuple[int, bool], list[nn.Parameter]] = defaultdict(list)
        for name, parameter in model.named_parameters():
            decayed = parameter.ndim > 1 and not name.endswith(("cls_token", "pos_embed"))
            found[model.depth_of(name), decayed].append(parameter)
        return [
            ParameterGroup(parameters, scale=config.layer_decay ** (model.depth - layer), decayed=decayed)
            for (layer, decayed), parameters in sorted(found.items(), key=lambda one: one[0], reverse=True)
        ]


@dataclass(frozen=True, eq=False)
class LabelledBatches(Batches):
    """Images with soft labels, of some rows, augmented and mixed as a configuration says; a tensor is on a GPU."""

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
        return {"images": images, "targets": targets}

    def on_device(self, device: torch.device) -> "LabelledBatches":
        """Move the images to a GPU, which then augments them, unless they need more than a quarter of its memory.

        The limit is on the total memory, not on the free: augmented values of a CPU and a GPU differ in the last bits,
        and a run that resumes next to another one must not change.
        """
        images = self.images
        if device.type != "cuda" or not isinstance(images, np.ndarray):
            return self
        fits = images.nbytes <= torch.cuda.mem_get_info(device)[1] // 4
        return replace(self, images=torch.from_numpy(np.ascontiguousarray(images)).to(device)) if fits else self


class FinetuneData(Data):
    """The data of a fine-tuning run, with `splits` if they are read already.

    Each part is read on access, as evaluation needs no pretrained model.
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
        check_classes(config.data.source, splits)
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
    def train(self) -> LabelledBatches:
        """The training images, augmented."""
        rows, _ = training_rows(self.splits, self.config.data.validation, self.config.split_seed)
        return _labelled(self.splits.train, rows, self.config)

    @cached_property
    def validation(self) -> LabelledBatches | None:
        """The validation images, which are not among the training images."""
        _, held_out = training_rows(self.splits, self.config.data.validation, self.config.split_seed)
        return None if held_out is None else _labelled(*held_out)


def _labelled(images: ImageSet, rows: Int64[np.ndarray, " m"], config: FinetuneConfig | None = None) -> LabelledBatches:
    assert images.labels is not None
    return LabelledBatches(images.images, images.labels, len(images.classes or ()), rows, config)


def evaluate(model: Classifier, images: ImageSet) -> dict[str, float]:
    """Return ``top1``, ``cross_entropy`` in nats and, of more than five classes, ``top5``, without augmentation."""
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
