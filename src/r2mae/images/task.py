"""Masked reconstruction of pixels: hidden pixels are filled, and the loss is the squared error at hidden pixels."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from typing_extensions import TypeVar

from r2mae.errors import UserError
from r2mae.masking.curriculum import FeatureWeights
from r2mae.masking.keys import Key
from r2mae.masking.masks import RatioLike, element_mask
from r2mae.masking.schemes import Curriculum
from r2mae.training.task import Corrupted, Output, Task

# The paper's weight network has 64 channels per gene. With 784 pixels, its last layer alone would be 17 times the size
# of the autoencoder; 4 channels make it about as large as the autoencoder.
_CHANNELS = 4

_Own = TypeVar("_Own", bound="PixelTask")
_Model_contra = TypeVar("_Model_contra", contravariant=True, bound=nn.Module, default=Any)


GREY = 0.5  # hidden patches in pictures; black could be mistaken for a black part of the image


Pictures = tuple[Tensor, Tensor, Tensor]
"""Images, masked images and their completions to show, 0 to 1, in the shape (batch, height, width, channels).

Hidden pixels of masked images are the model's input there, or :data:`GREY` if it has none there.
"""


class ImageTask(Task[Tensor, _Model_contra]):
    """The task of a model of images: that of the training loop, with batches (batch, height, width, channels)."""

    def complete(self, model: _Model_contra, batch: Tensor, ratio: float, key: Key) -> Pictures | None:
        """Mask images, and complete them with a model in evaluation mode; None if this makes no pictures.

        By default pictures are inputs, targets and predictions, if these have as many values as the images.
        """
        corrupted: Any = self.corrupt(batch, ratio, key)
        made = (corrupted.targets, corrupted.inputs, self.forward(model, corrupted).prediction)
        if any(not isinstance(tensor, Tensor) or tensor.numel() != batch.numel() for tensor in made):
            return None
        original, masked, completed = (tensor.reshape(batch.shape) for tensor in made)
        return original, masked, completed

    def check_images(self, name: str, shape: tuple[int, int, int]) -> None:
        """Refuse images of another height, width and channels than the task's `shape`, if it has one."""
        if taken := getattr(self, "shape", None):
            check_images(name, shape, taken)


def check_images(name: str, shape: Sequence[int], taken: Sequence[int]) -> None:
    """Refuse images of another height, width or number of channels than the model accepts."""
    if list(shape) != list(taken):
        given, expected = (" x ".join(map(str, one)) for one in (shape, taken))
        resizable = shape[2] == taken[2] and taken[0] == taken[1]
        hint = f"add --resize {taken[0]}" if resizable else "convert them to the size and channels of the model's"
        raise UserError(f"{name} has images of {given}, and the model takes {expected}: {hint}")


@dataclass(frozen=True)
class PixelTask(ImageTask[Any]):
    """Hide single pixels (and colour channels); images are flattened for mask and model.

    The model returns the reconstruction and the representation of flattened images, and by ``encode`` the latter alone.

    Parameters
    ----------
    pixels : int
        Number of values of an image (height × width × channels).
    exact : bool
        Hide a fixed count of pixels in every image (the rounded one), instead of each pixel independently.
    fill : tuple of float
        Value of hidden pixels (0 to 1), for each colour channel or for each value of an image; if empty, zero.
    together : int
        Number of successive values that are hidden together: 1, or the colours of a pixel.
    mask_input : bool
        Whether the model also takes the mask: ``model(images, hidden)``, for unmasked images ``model(images)``.
    """

    pixels: int
    exact: bool = False
    fill: tuple[float, ...] = ()
    together: int = 1
    mask_input: bool = False

    @property
    def with_fixed_counts(self: _Own) -> _Own:
        """The task with a fixed count of hidden pixels (the rounded one) in every image."""
        return replace(self, exact=True)

    def check_images(self, name: str, shape: tuple[int, int, int]) -> None:
        """Refuse images with another number of values."""
        height, width, channels = shape
        if height * width * channels != self.pixels:
            raise UserError(
                f"{name} has images of {height} x {width} x {channels}, and the model takes {self.pixels} values: give "
                "them the size (--resize N) and the channels of the training images"
            )

    def model_input(self, batch: Tensor) -> Float[Tensor, "batch ..."]:
        """Return pixels from 0 to 1 in the shape that the model takes: flattened."""
        return scaled(batch.flatten(1))  # a view

    @cached_property
    def _filling(self) -> Float[Tensor, "pixels"]:
        """The value of each pixel where it is hidden; colours are the last axis of a flattened image."""
        return torch.tensor(self.fill).repeat(self.pixels // len(self.fill))

    def corrupt(self, batch: Tensor, ratio: RatioLike, key: Key) -> Corrupted:
        """Replace hidden pixels by zero, or by :attr:`fill`; images are uint8, or floats from 0 to 1."""
        clean = self.model_input(batch)
        flat = clean.flatten(1)
        units = (len(flat), flat.shape[1] // self.together)
        hidden = element_mask(units, ratio, key, exact=self.exact, device=clean.device)
        if self.together > 1:
            hidden = hidden.repeat_interleave(self.together, dim=1)
        filled = torch.where(hidden, self._filling.to(flat), flat) if self.fill else flat * ~hidden
        return Corrupted(filled.view(clean.shape), hidden.view(clean.shape), clean, entries=clean.numel())

    def forward(self, model: Any, corrupted: Corrupted) -> Output:
        """Reconstruct all pixels."""
        prediction, representation = model(corrupted.inputs, *([corrupted.hidden] if self.mask_input else []))
        return Output(prediction, representation)

    def losses(self, output: Output, corrupted: Corrupted) -> Float[Tensor, "batch pixels"]:
        """Return the squared error at hidden pixels, and zero at kept ones; images are flattened."""
        squares = nn.functional.mse_loss(output.prediction, corrupted.targets, reduction="none")
        return (squares * corrupted.hidden).flatten(1)

    @torch.no_grad()
    def embed(self, model: Any, batch: Tensor) -> Float[Tensor, "batch latent"]:
        """Return the representation of unmasked images."""
        found: Tensor = model.encode(self.model_input(batch))
        return found

    @torch.no_grad()
    def reconstruct(self, model: Any, batch: Tensor) -> Float[Tensor, "batch ..."]:
        """Return the output for unmasked images."""
        prediction: Tensor = model(self.model_input(batch))[0]
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


def zeroed(layer: nn.Module) -> nn.Module:
    """Set all weights of a layer to zero, and return it."""
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)
    return layer
