"""Masked reconstruction of pixels: hidden pixels are filled, and the squared error is taken at them alone."""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from typing_extensions import TypeVar

from r2mae.masking.curriculum import FeatureWeights
from r2mae.masking.keys import Key
from r2mae.masking.masks import RatioLike, element_mask
from r2mae.masking.schemes import Curriculum
from r2mae.training.task import Corrupted, Output, Task

# The paper's weight network has 64 numbers per gene; with 784 pixels its last layer alone would be 17 times the
# autoencoder. 4 keep it near the autoencoder's own size.
_CHANNELS = 4

_Model_contra = TypeVar("_Model_contra", contravariant=True, bound=nn.Module, default=Any)


@runtime_checkable
class ImageTask(Task[Tensor, _Model_contra], Protocol[_Model_contra]):
    """What evaluation needs of a model of images beyond the loop's needs.

    A batch has the shape (batch, height, width, channels). Inputs, targets and predictions hold the numbers of the
    images in this order, in any shape.
    """

    def reconstruct(self, model: _Model_contra, batch: Tensor) -> Tensor:
        """Return the output for images as they are, without a mask."""


class PixelAutoencoder(nn.Module):
    """A model of flattened images, as :class:`PixelTask` trains it."""

    def encode(self, flat: Float[Tensor, "batch pixels"]) -> Float[Tensor, "batch latent"]:
        """Return the representation."""
        raise NotImplementedError

    def forward(
        self, flat: Float[Tensor, "batch pixels"]
    ) -> tuple[Float[Tensor, "batch pixels"], Float[Tensor, "batch latent"]]:
        """Return the reconstruction and the representation."""
        raise NotImplementedError


@dataclass(frozen=True)
class PixelTask:
    """Hide single pixels (and colour channels); images are flattened for mask and model.

    Parameters
    ----------
    pixels : int
        Numbers of an image.
    exact : bool
        Hide exactly the rounded count in every image, instead of each pixel independently.
    fill : tuple of float
        What hidden pixels become (0 to 1): a number for each colour channel, or for each number of an image; without
        one, zero.
    """

    pixels: int
    exact: bool = False
    fill: tuple[float, ...] = ()

    def corrupt(self, batch: Tensor, ratio: RatioLike, key: Key) -> Corrupted:
        """Fill hidden pixels with zero, or with :attr:`fill`.

        Parameters
        ----------
        batch : tensor, shape (batch, height, width, channels) or (batch, pixels)
            uint8 (0 to 255) or float (0 to 1).
        ratio, key
            See :func:`r2mae.masking.element_mask`.
        """
        clean = _flat(batch)
        hidden = element_mask(tuple(clean.shape), ratio, key, exact=self.exact, device=clean.device)
        if self.fill:  # colours are the last axis of a flattened image
            filled = torch.where(hidden, clean.new_tensor(self.fill).repeat(self.pixels // len(self.fill)), clean)
        else:
            filled = clean * ~hidden
        return Corrupted(filled, hidden, clean, entries=clean.numel())

    def forward(self, model: nn.Module, corrupted: Corrupted) -> Output:
        """Reconstruct all pixels."""
        prediction, representation = model(corrupted.inputs)
        return Output(prediction, representation)

    def losses(self, output: Output, corrupted: Corrupted) -> Float[Tensor, "batch pixels"]:
        """Return the squared error at hidden pixels, and zero elsewhere."""
        return nn.functional.mse_loss(output.prediction, corrupted.targets, reduction="none") * corrupted.hidden

    @torch.no_grad()
    def embed(self, model: PixelAutoencoder, batch: Tensor) -> Float[Tensor, "batch latent"]:
        """Return the representation of whole images."""
        return model.encode(_flat(batch))

    @torch.no_grad()
    def reconstruct(self, model: nn.Module, batch: Tensor) -> Float[Tensor, "batch pixels"]:
        """Return the output for images as they are, without a mask."""
        prediction: Tensor = model(_flat(batch))[0]
        return prediction

    def weight_network(self, curriculum: Curriculum) -> nn.Module:
        """Return a network that makes one weight per pixel and ratio from the clean batch."""
        return FeatureWeights(self.pixels, curriculum, channels=_CHANNELS)

    def learned_weights(
        self, network: nn.Module, corrupted: Corrupted, output: Output
    ) -> Float[Tensor, "pixels ratios"]:
        """Return the weights of this mini-batch."""
        weights: Tensor = network(corrupted.targets)
        return weights


def scaled(batch: Tensor) -> Float[Tensor, "batch ..."]:
    """Return pixels as 32-bit floats in [0, 1]."""
    return batch.float().mul_(1 / 255) if batch.dtype == torch.uint8 else batch.float()


def _flat(batch: Tensor) -> Float[Tensor, "batch pixels"]:
    return scaled(batch.flatten(1))  # a view
