"""Masked reconstruction of pixels: hidden pixels are filled, and the squared error is taken at them alone."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, runtime_checkable

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

# The paper's weight network has 64 numbers per gene; with 784 pixels its last layer alone would be 17 times the
# autoencoder. 4 keep it near the autoencoder's own size.
_CHANNELS = 4

_Model_contra = TypeVar("_Model_contra", contravariant=True, bound=nn.Module, default=Any)


GREY = 0.5  # of hidden patches in pictures, which black ones of an image would not be told from


class Pictures(NamedTuple):
    """Images for the eye, each of shape (batch, height, width, channels) with numbers from 0 to 1.

    Parameters
    ----------
    original, masked, completed : Float tensor
        As they are; where something is hidden, with what the model sees in its place, or :data:`GREY` where it sees
        nothing; and as the model completes them.
    """

    original: Float[Tensor, "batch height width channels"]
    masked: Float[Tensor, "batch height width channels"]
    completed: Float[Tensor, "batch height width channels"]


@runtime_checkable
class ImageTask(Task[Tensor, _Model_contra], Protocol[_Model_contra]):
    """What evaluation needs of a model of images: what the loop needs, with batches (batch, height, width, channels).

    What it may offer beyond is in the protocols below and in :mod:`r2mae.training.task`, and evaluation looks for it
    there: :class:`Completes`, :class:`ChecksImages`, ``Reconstructs``, ``HasEvaluationTask``. Without them, whole
    images are not reconstructed; pictures are made of inputs, targets and predictions, where these hold those of the
    images; images of any size are embedded; and the task is measured as it is trained.
    """


@runtime_checkable
class Completes(Protocol[_Model_contra]):
    """A task that makes pictures of its own."""

    def complete(self, model: _Model_contra, batch: Tensor, ratio: float, key: Key) -> Pictures:
        """Mask images, and let a model, which is in evaluation mode, complete them."""


@runtime_checkable
class ChecksImages(Protocol):
    """A task that takes images of certain sizes."""

    def check_images(self, name: str, shape: tuple[int, int, int]) -> None:
        """Raise a UserError, which calls the images `name`, if it takes none of this height, width and channels."""


def check_images(name: str, shape: tuple[int, int, int], taken: tuple[int, int, int]) -> None:
    """Refuse images of another size than a model takes.

    Raises
    ------
    UserError
        With both sizes.
    """
    if tuple(shape) != tuple(taken):
        here, there = (" x ".join(map(str, one)) for one in (shape, taken))
        raise UserError(
            f"{name} has images of {here}, and the model takes {there}: bring them to the size (--resize N) and "
            "channels of the training images"
        )


class PixelAutoencoder(nn.Module, ABC):
    """A model of flattened images, as :class:`PixelTask` trains it."""

    @abstractmethod
    def encode(self, flat: Float[Tensor, "batch pixels"]) -> Float[Tensor, "batch latent"]:
        """Return the representation."""

    @abstractmethod
    def forward(
        self, flat: Float[Tensor, "batch pixels"]
    ) -> tuple[Float[Tensor, "batch pixels"], Float[Tensor, "batch latent"]]:
        """Return the reconstruction and the representation."""


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
    together : int
        How many successive numbers are hidden together: 1, or the colours of a pixel.
    mask_input : bool
        Whether the model takes the mask, too: ``model(flat, hidden)``. Of whole images it gets none, which stands for
        a mask of zeros.
    """

    pixels: int
    exact: bool = False
    fill: tuple[float, ...] = ()
    together: int = 1
    mask_input: bool = False

    @property
    def with_fixed_counts(self) -> "PixelTask":
        """The task that hides exactly the rounded count in every image."""
        return replace(self, exact=True)

    def check_images(self, name: str, shape: tuple[int, int, int]) -> None:
        """Refuse images of another number of numbers."""
        height, width, channels = shape
        if height * width * channels != self.pixels:
            raise UserError(
                f"{name} has images of {height} x {width} x {channels} ({height * width * channels} numbers), and "
                f"the model takes {self.pixels}: bring them to the size (--resize N) and channels of the training "
                "images"
            )

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
        units = (len(clean), clean.shape[1] // self.together)
        hidden = element_mask(units, ratio, key, exact=self.exact, device=clean.device)
        if self.together > 1:
            hidden = hidden.repeat_interleave(self.together, dim=1)
        if self.fill:  # colours are the last axis of a flattened image
            filled = torch.where(hidden, clean.new_tensor(self.fill).repeat(self.pixels // len(self.fill)), clean)
        else:
            filled = clean * ~hidden
        return Corrupted(filled, hidden, clean, entries=clean.numel())

    def forward(self, model: nn.Module, corrupted: Corrupted) -> Output:
        """Reconstruct all pixels."""
        told = (corrupted.hidden,) if self.mask_input else ()
        prediction, representation = model(corrupted.inputs, *told)
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
