"""Classifiers of images, a pretrained encoder with a new head: their task, their augmented data and their scores."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, log_softmax

from r2mae.errors import UserError
from r2mae.images.arrays import AnyImages
from r2mae.images.augment import augment, soft_targets
from r2mae.images.batches import check_classes, reading_of, training_rows
from r2mae.images.config import FinetuneConfig, weights_of
from r2mae.images.data import ImageSet, Splits, load_splits
from r2mae.images.evaluate import outputs_of
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


class Classifier(nn.Module):
    """A vision transformer of a pretrained one's layers, with the names of timm: `blocks`, `fc_norm` and `head`.

    It classifies the mean over patches, after a fresh norm. `drop_path` is the probability that each part of the last
    layer is skipped (Huang 2016); it rises linearly over the layers. `depth` is the number of layers below the head
    whose learning rates differ.
    """

    def __init__(self, pretrained: VisionTransformerMAE, classes: int, *, drop_path: float) -> None:
        super().__init__()
        width = pretrained.norm.normalized_shape[0]
        self.depth = len(pretrained.blocks) + 1
        self.head = nn.Linear(width, classes)
        nn.init.trunc_normal_(self.head.weight, std=2e-5)
        nn.init.zeros_(self.head.bias)
        self.patch = pretrained.patch
        self.patch_embed = pretrained.patch_embed
        self.cls_token = pretrained.cls_token
        self.pos_embed = nn.Parameter(pretrained.pos_embed.detach().clone())  # which is trained, as in the original
        self.blocks = pretrained.blocks
        self.rates = [drop_path * place / max(len(self.blocks) - 1, 1) for place in range(len(self.blocks))]
        self.fc_norm = nn.LayerNorm(width, eps=NORM_EPSILON)

    def factors(self, rows: int, key: Key) -> Factors | None:
        """Return 0 for attention or MLP of a layer that an image skips; otherwise such that the mean stays."""
        if not self.training or not any(self.rates):
            return None
        drawn = uniforms(key.fold("drop path"), rows, 2 * len(self.rates)).reshape(rows, -1, 2)
        rates = np.array(self.rates)[:, None]
        return torch.from_numpy((drawn >= rates) / (1 - rates)).float().to(self.pos_embed.device)

    def features(self, images: Images, factors: Factors | None = None) -> Float[Tensor, "batch features"]:
        """Return the normed mean over patches; images are 0 to 1, `factors` those of a training step."""
        states = unmasked_states(self, patchify(standardised(images), self.patch), factors)
        return self.fc_norm(states[:, 1:].mean(1))  # type: ignore[no-any-return]

    def forward(self, images: Images, factors: Factors | None = None) -> Float[Tensor, "batch classes"]:
        """Return the logits."""
        return self.head(self.features(images, factors))  # type: ignore[no-any-return]

    def depth_of(self, name: str) -> int:
        """Return 0 for the embedding of patches, n + 1 for block n, and the depth for norm and head."""
        if name.startswith("blocks."):
            return int(name.split(".")[1]) + 1
        return 0 if name.startswith(("patch_embed.", "cls_token", "pos_embed")) else self.depth


@dataclass(frozen=True)
class ClassificationTask(ImageTask[Classifier]):
    """Classify images of a shape. For the loop, every image is one "hidden" entry, so that all are in the loss."""

    shape: tuple[int, ...]

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
    """Images with soft labels, of some rows, augmented and mixed as a configuration says."""

    images: AnyImages
    labels: Int64[np.ndarray, " n"]
    classes: int
    rows: Int64[np.ndarray, " m"]
    config: FinetuneConfig | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def batch(self, indices: Sequence[int] | np.ndarray, key: Key) -> dict[str, Tensor]:
        """Return these images with their soft labels; from 0 to 1 where they are augmented."""
        rows, config = self.rows[np.asarray(indices)], self.config
        targets = soft_targets(torch.from_numpy(self.labels[rows]), self.classes, config.smoothing if config else 0.0)
        if config is None:
            return {"images": torch.from_numpy(self.images.take(rows, axis=0)), "targets": targets}
        images, targets = augment(self.images, rows, targets, key, config)
        return {"images": images, "targets": targets}


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
        if config.crops_files:
            reading["cache"] = "none"
        splits = load_splits(config.data.source, seed=config.split_seed, **reading)
        check_classes(config.data.source, splits)
        return splits

    @cached_property
    def architecture(self) -> dict[str, Any]:
        """Description from which the classifier is built."""
        config = self.config
        if config.weights and weights_of(config.run) != config.weights:
            raise UserError(f"the weights in {config.run} have changed since this run started: choose another --out")
        encoder = RunFolder(config.run).description.architecture
        check_images(config.data.source, self.splits.train.shape, encoder["shape"])
        return {
            "encoder": dict(encoder),
            "classes": list(self.splits.train.classes or ()),
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
    ranked = logits.topk(min(TOP, logits.shape[1]), dim=1).indices == labels[:, None]
    scores = {"top1": float(ranked[:, 0].double().mean())}
    if logits.shape[1] > TOP:
        scores["top5"] = float(ranked.any(1).double().mean())
    return {**scores, "cross_entropy": float(cross_entropy(logits.double(), labels))}
