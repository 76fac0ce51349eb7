"""The task of fine-tuning: nothing is hidden, and the loss is the cross entropy of each image's soft label."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import log_softmax

from r2mae.images.finetune.classifier import Classifier
from r2mae.images.finetune.config import FinetuneConfig
from r2mae.images.task import scaled
from r2mae.masking.keys import Key
from r2mae.masking.masks import RatioLike
from r2mae.masking.schemes import Curriculum
from r2mae.training.task import Corrupted, Output, ParameterGroup

IMAGES, TARGETS = "images", "targets"
"""Entries of a batch: images (or features that were computed before), and soft labels."""


@dataclass(frozen=True)
class ClassificationTask:
    """Classify images. For the loop, every image is one entry, and all of them are "hidden": they are in the loss."""

    def corrupt(self, batch: Mapping[str, Tensor], ratio: RatioLike, key: Key) -> Corrupted:
        """Return the batch as it is: it was augmented and mixed when it was made.

        The key goes to the model, whose layers are skipped by it: the numbers of an image are those of its row in the
        global batch, however many processes and micro-batches there are.
        """
        images = batch[IMAGES]
        everything = torch.ones(len(images), dtype=torch.bool, device=images.device)
        return Corrupted((scaled(images), key), everything, batch[TARGETS], entries=len(images))

    def forward(self, model: Classifier, corrupted: Corrupted) -> Output:
        """Return the logits."""
        images, key = corrupted.inputs
        logits: Tensor = model(images, model.draws(len(images), key))
        return Output(logits, logits)

    def losses(self, output: Output, corrupted: Corrupted) -> Float[Tensor, " batch"]:
        """Return the cross entropy of every image, in nats."""
        return -(corrupted.targets * log_softmax(output.prediction.float(), dim=1)).sum(1)

    @torch.no_grad()
    def embed(self, model: Classifier, batch: Tensor) -> Float[Tensor, "batch features"]:
        """Return what the last layer classifies, of whole images."""
        return model.features(scaled(batch))

    def weight_network(self, curriculum: Curriculum) -> nn.Module:
        """Refuse: only hidden entries have learned weights."""
        raise TypeError("fine-tuning has no curriculum")

    def learned_weights(self, network: nn.Module, corrupted: Corrupted, output: Output) -> Tensor:
        """Refuse, as :meth:`weight_network`."""
        raise TypeError("fine-tuning has no curriculum")

    def parameter_groups(self, model: Classifier, config: FinetuneConfig) -> list[ParameterGroup]:
        """Return the parameters that are trained, the head's first.

        A layer learns `layer_decay` times as fast as the one above it.

        Weight decay is for matrices: not for biases, norms, the class token and the embedding of places.
        """
        found: dict[tuple[int, bool], list[nn.Parameter]] = defaultdict(list)
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                decayed = parameter.ndim > 1 and not name.endswith(("cls_token", "pos_embed"))
                found[model.depth_of(name), decayed].append(parameter)
        return [
            ParameterGroup(parameters, scale=config.layer_decay ** (model.depth - layer), decayed=decayed)
            for (layer, decayed), parameters in sorted(found.items(), key=lambda one: one[0], reverse=True)
        ]
