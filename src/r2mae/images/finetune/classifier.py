"""Classifiers of images: a pretrained encoder with a new head, trained as a whole or frozen."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Literal, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from r2mae.errors import UserError
from r2mae.images.models import FINETUNABLE
from r2mae.images.models.mlp import MLPAutoencoder
from r2mae.images.models.vit_mae import VisionTransformerMAE
from r2mae.images.models.vit_mae.layers import Block
from r2mae.images.patches import patchify, standardised
from r2mae.images.task import ImageTask
from r2mae.masking.keys import Key, uniforms

_DEVIATION = 2e-5  # standard deviation of a fresh head, whose first predictions are uniform
_PROBE_DEVIATION = 0.01
_EPSILON = 1e-6
Pool = Literal["mean", "class"]
Images = Float[Tensor, "batch height width channels"]
Draws = Float[Tensor, "batch layers 2"]


class Classifier(nn.Module, ABC):
    """A classifier: :meth:`features` of images, then a linear layer."""

    head: nn.Linear

    @abstractmethod
    def features(self, images: Images) -> Float[Tensor, "batch features"]:
        """Return what the last layer classifies.

        Parameters
        ----------
        images : tensor, shape (batch, height, width, channels)
            0 to 1.
        """

    @abstractmethod
    def depth_of(self, name: str) -> int:
        """Return the layer of a parameter, from 0 (lowest) to :attr:`depth` (the head)."""

    @property
    @abstractmethod
    def depth(self) -> int:
        """The layer of the head."""

    @abstractmethod
    def start(self, pretrained: nn.Module) -> None:
        """Load the weights of a pretrained model."""

    def draws(self, rows: int, key: Key) -> Draws | None:
        """Return the random numbers of a training step; None for a model that draws none.

        Parameters
        ----------
        rows : int
            Number of images.
        key : Key
            Key of the step; ``key.row`` is the row of the first image in the global batch.
        """
        return None

    def forward(
        self, inputs: Images | Float[Tensor, "batch features"], draws: Draws | None = None
    ) -> Float[Tensor, "batch classes"]:
        """Return the logits of images, or of features that were computed before."""
        found = inputs if inputs.ndim == 2 else self.features(inputs)
        return self.head(found)  # type: ignore[no-any-return]


class VisionTransformerClassifier(Classifier):
    """A vision transformer with the names of timm: `blocks`, `norm` or `fc_norm`, `head`.

    Parameters
    ----------
    pretrained : VisionTransformerMAE
        Its encoder's layers become this model's; those of its decoder are left behind.
    classes : int
    pool : {"mean", "class"}
        Classify the mean over patches, after a fresh norm, or the class token, after the pretrained one.
    drop_path : float
        Probability of the last layer's parts to be skipped.
    """

    def __init__(self, pretrained: VisionTransformerMAE, classes: int, *, pool: Pool, drop_path: float) -> None:
        super().__init__()
        width = pretrained.norm.normalized_shape[0]
        self.patch, self.pool = pretrained.patch, pool
        self.patch_embed = pretrained.patch_embed
        self.cls_token = pretrained.cls_token
        self.pos_embed = nn.Parameter(pretrained.pos_embed.detach().clone())  # which is trained, as in the original
        self.blocks = pretrained.blocks
        self.rates = [drop_path * place / max(len(self.blocks) - 1, 1) for place in range(len(self.blocks))]
        if pool == "mean":
            self.fc_norm = nn.LayerNorm(width, eps=_EPSILON)
        else:
            self.norm = pretrained.norm
        self.head = _head(width, classes, _DEVIATION)

    def draws(self, rows: int, key: Key) -> Draws | None:
        """Return a number from 0 to 1 for both parts of each layer and image, which says whether it is skipped."""
        if not self.training or not any(self.rates):
            return None
        drawn = uniforms(key.fold("drop path"), rows, 2 * len(self.rates)).reshape(rows, -1, 2)
        return torch.from_numpy(drawn).float().to(self.pos_embed.device)

    def forward(
        self, inputs: Images | Float[Tensor, "batch features"], draws: Draws | None = None
    ) -> Float[Tensor, "batch classes"]:
        """Return the logits; with `draws` of a training step, layers are skipped."""
        return self.head(self.features(inputs, draws))  # type: ignore[no-any-return]

    def features(self, images: Images, draws: Draws | None = None) -> Float[Tensor, "batch features"]:
        """Return the normed mean over patches, or the normed class token."""
        patches = patchify(standardised(images), self.patch)
        batch = len(patches)
        tokens = self.patch_embed(patches) + self.pos_embed[:, 1:]
        first = (self.cls_token + self.pos_embed[:, :1]).expand(batch, -1, -1)
        states = torch.cat([first, tokens], 1).flatten(0, 1)
        lengths = [(batch, 1 + patches.shape[1])]
        for place, (layer, rate) in enumerate(zip(self.blocks, self.rates, strict=True)):
            block = cast("Block", layer)
            if rate and draws is not None:
                states = states + drop_path(
                    block.attn.self_attention(block.norm1(states), lengths, None), draws[:, place, 0], rate
                )
                states = states + drop_path(block.mlp(block.norm2(states)), draws[:, place, 1], rate)
            else:
                states = block(states, lengths)
        states = states.view(batch, 1 + patches.shape[1], -1)
        if self.pool == "mean":
            return self.fc_norm(states[:, 1:].mean(1))  # type: ignore[no-any-return]
        return self.norm(states[:, 0])  # type: ignore[no-any-return]

    @property
    def depth(self) -> int:
        """One more than the number of blocks: the embedding is below them."""
        return len(self.blocks) + 1

    def depth_of(self, name: str) -> int:
        """Return 0 for the embedding of patches, n + 1 for block n, and the depth for norm and head."""
        if name.startswith("blocks."):
            return int(name.split(".")[1]) + 1
        return 0 if name.startswith(("patch_embed.", "cls_token", "pos_embed")) else self.depth

    def start(self, pretrained: nn.Module) -> None:
        """Load the encoder's weights; with the mean over patches, the norm is fresh."""
        state = pretrained.state_dict()
        own = {name: state[name] for name in self.state_dict() if name in state}
        self.load_state_dict(own, strict=False)


class MLPClassifier(Classifier):
    """The encoder of the MLP autoencoder with a linear layer on its representation.

    Parameters
    ----------
    pretrained : MLPAutoencoder
    classes : int
    """

    def __init__(self, pretrained: MLPAutoencoder, classes: int) -> None:
        super().__init__()
        self.encoder = pretrained.encoder
        self.head = _head(pretrained.latent, classes, _PROBE_DEVIATION)

    def features(self, images: Images) -> Float[Tensor, "batch features"]:
        """Return the second hidden layer."""
        return self.encoder(images.flatten(1))  # type: ignore[no-any-return]

    @property
    def depth(self) -> int:
        """Two hidden layers, then the head."""
        return 2

    def depth_of(self, name: str) -> int:
        """Return 0 and 1 for the hidden layers with their norms, and 2 for the head."""
        return int(name.split(".")[1]) // 3 if name.startswith("encoder.") else self.depth

    def start(self, pretrained: nn.Module) -> None:
        """Load the encoder's weights."""
        state = pretrained.state_dict()
        self.load_state_dict({name: state[name] for name in self.state_dict() if name in state}, strict=False)


class LinearProbe(Classifier):
    """A linear layer on frozen features, after a batch normalisation without weights of its own, as in MAE.

    Parameters
    ----------
    task : ImageTask
        Task of the pretrained model, whose embedding of unmasked images is classified.
    pretrained : nn.Module
        Frozen, in evaluation mode.
    width, classes : int
    """

    def __init__(self, task: ImageTask, pretrained: nn.Module, width: int, classes: int) -> None:
        super().__init__()
        self.task = task
        self.encoder = pretrained.requires_grad_(False).eval()
        self.norm = nn.BatchNorm1d(width, affine=False, eps=_EPSILON)
        self.head = _head(width, classes, _PROBE_DEVIATION)

    def train(self, mode: bool = True) -> "LinearProbe":
        """Switch the mode of norm and head; the encoder stays in evaluation mode."""
        super().train(mode)
        self.encoder.eval()
        return self

    @torch.no_grad()
    def features(self, images: Images) -> Float[Tensor, "batch features"]:
        """Return the embedding of unmasked images."""
        return self.task.embed(self.encoder, images)

    def forward(
        self, inputs: Images | Float[Tensor, "batch features"], draws: Draws | None = None
    ) -> Float[Tensor, "batch classes"]:
        """Return the logits of images, or of features that were computed before."""
        found = inputs if inputs.ndim == 2 else self.features(inputs)
        return self.head(self.norm(found.float()))  # type: ignore[no-any-return]

    @property
    def depth(self) -> int:
        """Only the head is trained."""
        return 0

    def depth_of(self, name: str) -> int:
        """Return 0."""
        return 0

    def start(self, pretrained: nn.Module) -> None:
        """Load all weights of the pretrained model, and its batch statistics."""
        self.encoder.load_state_dict(pretrained.state_dict())


def drop_path(
    branch: Float[Tensor, "tokens width"], draws: Float[Tensor, " batch"], rate: float
) -> Float[Tensor, "tokens width"]:
    """Skip a branch of a layer for some images; scale it for the others, so that its mean stays (Huang 2016).

    Parameters
    ----------
    branch : tensor, shape (tokens, width)
        Tokens of all images, one after the other; equally many for each.
    draws : tensor, shape (batch,)
        A random number from 0 to 1 for each image.
    rate : float
        Probability that the branch of an image is skipped.
    """
    kept = (draws >= rate)[:, None, None]
    return (branch.view(len(draws), -1, branch.shape[1]) * (kept / (1 - rate)).to(branch.dtype)).view(branch.shape)


def make_classifier(task: ImageTask, pretrained: nn.Module, architecture: Mapping[str, Any]) -> Classifier:
    """Return the classifier that an architecture of :mod:`r2mae.images.finetune` describes.

    Raises
    ------
    UserError
        For a model that cannot be fine-tuned as a whole.
    """
    classes = len(architecture["classes"])
    if architecture["probe"] == "linear":
        return LinearProbe(task, pretrained, int(architecture["width"]), classes)
    match architecture["encoder"]["model"]:
        case "vit-mae":
            drop, pool = float(architecture["drop_path"]), architecture["pool"]
            return VisionTransformerClassifier(cast("Any", pretrained), classes, pool=pool, drop_path=drop)
        case "mlp":
            return MLPClassifier(cast("Any", pretrained), classes)
        case name:
            whole = " and ".join(FINETUNABLE)
            raise UserError(f"the model {name!r} cannot be fine-tuned as a whole ({whole} can): add --probe linear")


def _head(width: int, classes: int, deviation: float) -> nn.Linear:
    made = nn.Linear(width, classes)
    nn.init.trunc_normal_(made.weight, std=deviation)
    nn.init.zeros_(made.bias)
    return made
