"""The task of fine-tuning: nothing is hidden, and the loss is the cross entropy of each image's soft label."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
from r2mae.training.task import Corrupted, Output, ParameterGroup, Task

IMAGES, TARGETS = "images", "targets"
"""Entries of a batch: images (or cached features), and soft labels."""


@dataclass(frozen=True)
class ClassificationTask(Task[Any, Any]):
    """Classify images. For the training loop, every image is one "hidden" entry, so that all images are in the loss."""

    def corrupt(self, batch: Mapping[str, Tensor], ratio: RatioLike, key: Key) -> Corrupted:
        """Return the batch unchanged: it is augmented and mixed already.

        The model draws the layers to skip from the key. The draws of an image depend on its row in the global batch,
        not on the number of processes and micro-batches.
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
        """Return the input of the last layer, for unaugmented images."""
        return model.features(scaled(batch))

    def weight_network(self, curriculum: Curriculum) -> nn.Module:
        """Raise TypeError: only hidden entries have learned weights."""
        raise TypeError("fine-tuning has no curriculum")

    def learned_weights(self, network: nn.Module, corrupted: Corrupted, output: Output) -> Tensor:
        """Raise TypeError, as :meth:`weight_network`."""
        raise TypeError("fine-tuning has no curriculum")

    def parameter_groups(self, model: Classifier, config: FinetuneConfig) -> list[ParameterGroup]:
        """Return the parameters that are trained, the head's first.

        The learning rate of a layer is `layer_decay` times that of the layer above it. Weight decay applies to matrices
        only, not to biases, norms, the class token and position embeddings.
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
