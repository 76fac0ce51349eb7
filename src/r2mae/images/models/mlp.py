"""`mlp`, the paper's three-layer MLP autoencoder for flattened images (appendix "MNIST")."""

import math
from collections.abc import Mapping
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from r2mae.images.models import MLPSettings as Settings
from r2mae.images.task import PixelAutoencoder, PixelTask

__all__ = ["MLPAutoencoder", "Settings", "build"]


class MLPAutoencoder(PixelAutoencoder):
    """pixels → hidden → latent → pixels.

    Both hidden layers have batch normalisation and ReLU, the output a sigmoid. The representation that probes use is
    the second hidden layer.

    Parameters
    ----------
    pixels : int
        Numbers of an image (784 for MNIST).
    hidden, latent : int
        Widths of the hidden layers (paper: 16 or 512, and 16, 32, 64, 256 or 1024).
    """

    def __init__(self, pixels: int, hidden: int = 512, latent: int = 256) -> None:
        super().__init__()
        self.pixels, self.hidden, self.latent = pixels, hidden, latent
        self.encoder = nn.Sequential(
            nn.Linear(pixels, hidden),
            nn.BatchNorm1d(hidden),
            nn.ReLU(),
            nn.Linear(hidden, latent),
            nn.BatchNorm1d(latent),
            nn.ReLU(),
        )
        self.decoder = nn.Sequential(nn.Linear(latent, pixels), nn.Sigmoid())

    def encode(self, flat: Float[Tensor, "batch pixels"]) -> Float[Tensor, "batch latent"]:
        """Return the second hidden layer."""
        return self.encoder(flat)  # type: ignore[no-any-return]

    def forward(
        self, flat: Float[Tensor, "batch pixels"]
    ) -> tuple[Float[Tensor, "batch pixels"], Float[Tensor, "batch latent"]]:
        """Return the reconstruction and the second hidden layer."""
        latent = self.encode(flat)
        return self.decoder(latent), latent


def build(architecture: Mapping[str, Any]) -> tuple[PixelTask, MLPAutoencoder]:
    """Make the task and a fresh model; see :mod:`r2mae.images.models`."""
    pixels = math.prod(int(side) for side in architecture["shape"])
    model = MLPAutoencoder(pixels, int(architecture["hidden"]), int(architecture["latent"]))
    fill = tuple(float(value) for value in architecture.get("fill", ()))
    return PixelTask(pixels, exact=bool(architecture["exact"]), fill=fill), model
