"""Masked reconstruction of pixels: hidden pixels are filled, and the squared error is taken at them alone."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from r2mae.images.model import MLPAutoencoder
from r2mae.masking.curriculum import FeatureWeights
from r2mae.masking.keys import Key
from r2mae.masking.masks import RatioLike, element_mask
from r2mae.masking.schemes import Curriculum
from r2mae.training.task import Corrupted, Output

# The paper's weight network has 64 numbers per gene; with 784 pixels its last layer alone would be 17 times the
# autoencoder. 4 keep it near the autoencoder's own size.
_CHANNELS = 4


@dataclass(frozen=True)
class PixelTask:
    """Hide single pixels (and colour channels) of flattened images.

    Parameters
    ----------
    pixels : int
        Numbers of an image.
    exact : bool
        Hide exactly the rounded count in every image, instead of each pixel independently.
    fill : tuple of float
        What hidden pixels become, for each colour channel (0 to 1); without one, zero.
    """

    pixels: int
    exact: bool = False
    fill: tuple[float, ...] = ()

    def corrupt(self, batch: Tensor, ratio: RatioLike, key: Key) -> Corrupted:
        """Fill hidden pixels with zero, or with :attr:`fill`.

        Parameters
        ----------
        batch : tensor, shape (batch, pixels)
            uint8 (0 to 255) or float (0 to 1).
        ratio, key
            See :func:`r2mae.masking.element_mask`.
        """
        clean = scaled(batch)
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
    def embed(self, model: nn.Module, batch: Tensor) -> Float[Tensor, "batch latent"]:
        """Return the second hidden layer for whole images."""
        assert isinstance(model, MLPAutoencoder)
        return model.encode(scaled(batch))

    @torch.no_grad()
    def reconstruct(self, model: nn.Module, batch: Tensor) -> Float[Tensor, "batch pixels"]:
        """Return the output for images as they are, without a mask."""
        prediction: Tensor = model(scaled(batch))[0]
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


def scaled(batch: Tensor) -> Float[Tensor, "batch pixels"]:
    """Return pixels as 32-bit floats in [0, 1]."""
    return batch.float().mul_(1 / 255) if batch.dtype == torch.uint8 else batch.float()
