"""A network whose output is added to the conditional mean of a Gaussian (``--fill gaussian``).

The conditional mean is the best linear prediction for each mask, in closed form; the network learns what is left. Its
last layer begins at zero, so before the first step the prediction is that of the Gaussian.
"""

from dataclasses import replace
from typing import TypeVar

from jaxtyping import Bool, Float
from torch import Tensor, nn

from r2mae.evaluation.conditional import ConditionalMean
from r2mae.images.task import PixelTask

_Task = TypeVar("_Task", bound=PixelTask)


class OnGaussian(nn.Module):
    """Fill hidden pixels by their conditional mean, and add a network's output to it.

    The network sees the filled image. Its output is in units of each pixel's standard deviation given all others. In
    evaluation mode the sum is kept between 0 and 1.

    Parameters
    ----------
    network : module
        It begins at zero.
    pixels : int
        Number of values of an image.
    takes_mask : bool
        Whether the network takes the mask, too.
    """

    def __init__(self, network: nn.Module, pixels: int, *, takes_mask: bool = False) -> None:
        super().__init__()
        self.network, self.takes_mask = network, takes_mask
        self.gaussian = ConditionalMean(pixels)

    def units(self) -> list[nn.Module]:
        """Return the network's layers; see :func:`r2mae.training.task.units_of`."""
        return list(self.network.units()) if hasattr(self.network, "units") else []  # type: ignore[operator]

    def encode(self, images: Float[Tensor, "batch ..."]) -> Float[Tensor, "batch latent"]:
        """Return the network's representation of unmasked images."""
        return self.network.encode(images)  # type: ignore[operator, no-any-return]

    def forward(
        self, images: Float[Tensor, "batch ..."], hidden: Bool[Tensor, "batch ..."] | None = None
    ) -> tuple[Float[Tensor, "batch ..."], Float[Tensor, "batch latent"]]:
        """Return the reconstruction and the network's representation; by default nothing is hidden."""
        start = images if hidden is None else self.gaussian(images.flatten(1), hidden.flatten(1)).view_as(images)
        correction, representation = self.network(start, *([hidden] if self.takes_mask and hidden is not None else []))
        made = start + correction * self.gaussian.deviation.view(images.shape[1:])
        return made if self.training else made.clamp(0.0, 1.0), representation


def on_gaussian(task: _Task, network: nn.Module) -> tuple[_Task, OnGaussian]:
    """Return the task and the model of a network that begins at the Gaussian; the task of one that fills in nothing."""
    network.begin_at_zero()  # type: ignore[operator]
    return replace(task, fill=(), mask_input=True), OnGaussian(network, task.pixels, takes_mask=task.mask_input)
