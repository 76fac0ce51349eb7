"""`mlp`, the paper's three-layer MLP autoencoder for flattened images (appendix "MNIST")."""

import math
from collections.abc import Mapping
from typing import Any

from jaxtyping import Bool, Float
from torch import Tensor, nn

from r2mae.images.models import MLPSettings as Settings
from r2mae.images.task import PixelTask, zeroed

__all__ = ["MLPAutoencoder", "Settings", "build"]


class MLPAutoencoder(nn.Module):
    """pixels → hidden → latent → pixels; see :class:`~r2mae.images.models.MLPSettings`.

    Both hidden layers have batch (or layer) normalisation and ReLU, the output a sigmoid. The representation that
    probes use is the second hidden layer. With `mask_input` the first layer also has an input for each value of the
    mask (ours, not the paper's). Their weights, `mask_layer`, are drawn last: all others start as in the same run
    without them.
    """

    def __init__(
        self, pixels: int, hidden: int = 512, latent: int = 256, *, norm: str = "batch", mask_input: bool = False
    ) -> None:
        super().__init__()
        normalise = {"batch": nn.BatchNorm1d, "layer": nn.LayerNorm}[norm]
        self.pixels, self.hidden, self.latent = pixels, hidden, latent
        self.encoder = nn.Sequential(
            nn.Linear(pixels, hidden),
            normalise(hidden),
            nn.ReLU(),
            nn.Linear(hidden, latent),
            normalise(latent),
            nn.ReLU(),
        )
        self.decoder = nn.Sequential(nn.Linear(latent, pixels), nn.Sigmoid())
        self.mask_layer = nn.Linear(pixels, hidden, bias=False) if mask_input else None

    def begin_at_zero(self) -> None:
        """Make the output a correction, which is zero at first; see :mod:`r2mae.images.models.on_gaussian`."""
        self.decoder = nn.Sequential(zeroed(self.decoder[0]))

    def encode(
        self, flat: Float[Tensor, "batch pixels"], mask: Bool[Tensor, "batch pixels"] | None = None
    ) -> Float[Tensor, "batch latent"]:
        """Return the second hidden layer; by default nothing is hidden. Only a model with `mask_input` takes a mask."""
        if mask is None:
            return self.encoder(flat)  # type: ignore[no-any-return]
        assert self.mask_layer is not None
        state: Tensor = self.encoder[0](flat) + self.mask_layer(mask.to(flat.dtype))
        return self.encoder[1:](state)  # type: ignore[no-any-return]

    def forward(
        self, flat: Float[Tensor, "batch pixels"], mask: Bool[Tensor, "batch pixels"] | None = None
    ) -> tuple[Float[Tensor, "batch pixels"], Float[Tensor, "batch latent"]]:
        """Return the reconstruction and the second hidden layer; `mask` is as in :meth:`encode`."""
        latent = self.encode(flat, mask)
        return self.decoder(latent), latent


def build(architecture: Mapping[str, Any]) -> tuple[PixelTask, MLPAutoencoder]:
    """Make the task and a fresh model; see :mod:`r2mae.images.models`."""
    pixels = math.prod(int(side) for side in architecture["shape"])
    mask_input = bool(architecture.get("mask_input", False))
    hidden, latent, norm = architecture["hidden"], architecture["latent"], architecture.get("norm", "batch")
    model = MLPAutoencoder(pixels, hidden, latent, norm=norm, mask_input=mask_input)
    fill = tuple(float(value) for value in architecture.get("fill", ()))
    return PixelTask(pixels, exact=bool(architecture["exact"]), fill=fill, mask_input=mask_input), model
