"""A model of images as one file: it hides whole columns of pixels, and so needs the images' shape."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from r2mae.fields import Size
from r2mae.images.models import ImageModelSettings
from r2mae.images.task import ImageTask, scaled
from r2mae.masking import FeatureWeights, Key, column_mask, element_mask
from r2mae.masking.masks import RatioLike
from r2mae.masking.schemes import Curriculum
from r2mae.training.task import Corrupted, Output


@dataclass(frozen=True, kw_only=True)
class Settings(ImageModelSettings):
    """Settings of the toy.

    Parameters
    ----------
    latent : int
        Channels of the toy.
    last_bias : float
        Of the last layer.
    kernels : {"small", "large"}
        Their size.
    strides : list of int
        Of nothing.
    """

    latent: Size = 4
    last_bias: float = 0.0
    kernels: Literal["small", "large"] = "small"
    strides: tuple[int, ...] = ()


class Toy(nn.Module):
    def __init__(self, channels: int, latent: int, kernel: int, bias: float) -> None:
        super().__init__()
        self.encoder = nn.Conv2d(channels, latent, kernel, padding=kernel // 2)
        self.decoder = nn.Conv2d(latent, channels, 1)
        nn.init.constant_(self.decoder.bias, bias)  # type: ignore[arg-type]

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        states = self.encoder(images.movedim(3, 1)).relu()
        return self.decoder(states).movedim(1, 3), states.mean((2, 3))


@dataclass(frozen=True)
class ColumnTask(ImageTask["Toy"]):
    width: int
    pixels: int

    def corrupt(self, batch: Tensor, ratio: RatioLike, key: Key) -> Corrupted:
        clean = scaled(batch)
        assert clean.shape[2] == self.width
        if isinstance(ratio, float):
            columns = column_mask(self.width, ratio, key, device=clean.device)[None]
        else:  # a ratio for each image
            columns = element_mask((len(clean), self.width), ratio, key, exact=True, device=clean.device)
        hidden = columns[:, None, :, None].expand(clean.shape)
        return Corrupted(clean * ~hidden, hidden, clean, entries=clean.numel())

    def forward(self, model: Toy, corrupted: Corrupted) -> Output:
        return Output(*model(corrupted.inputs))

    def losses(self, output: Output, corrupted: Corrupted) -> Tensor:
        return (output.prediction - corrupted.targets).square() * corrupted.hidden

    @torch.no_grad()
    def embed(self, model: Toy, batch: Tensor) -> Tensor:
        made: Tensor = model(scaled(batch))[1]
        return made

    @torch.no_grad()
    def reconstruct(self, model: Toy, batch: Tensor) -> Tensor:
        made: Tensor = model(scaled(batch))[0]
        return made

    def weight_network(self, curriculum: Curriculum) -> nn.Module:
        return FeatureWeights(self.pixels, curriculum, channels=4)

    def learned_weights(self, network: nn.Module, corrupted: Corrupted, output: Output) -> Tensor:
        raise NotImplementedError


def build(architecture: Mapping[str, Any]) -> tuple[ColumnTask, Toy]:
    height, width, channels = architecture["shape"]
    kernel = {"small": 3, "large": 5}[architecture["kernels"]]
    model = Toy(channels, architecture["latent"], kernel, architecture["last_bias"])
    return ColumnTask(width, height * width * channels), model
