"""`unet`, the paper's U-Net for faces (section 4.4, appendix "CelebA"), on images that keep their shape.

Our choices where the paper gives none are listed in docs/images.md, "U-Net".
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import max_pool2d

from r2mae.fields import Size
from r2mae.images.models import ImageModelSettings
from r2mae.images.task import PixelTask, scaled, zeroed
from r2mae.masking.curriculum import mean_over_ranks, sinkhorn
from r2mae.masking.schemes import Curriculum

__all__ = ["PositionWeights", "Settings", "UNet", "UNetTask", "build"]

_LEVELS = 4  # the paper's down-sampling blocks
_WEIGHT_CHANNELS = 16


@dataclass(frozen=True, kw_only=True)
class Settings(ImageModelSettings):
    """Settings of the U-Net.

    Parameters
    ----------
    channels : int
        Channels of the first block; each of the four levels below has twice as many (paper: 8, 16 or 32).
    """

    shares_colours: ClassVar[bool] = True

    name: str = "unet"
    channels: Size = 16

    @property
    def latent(self) -> int:
        """Width of the representation: the channels of the bottleneck."""
        return self.channels << _LEVELS


class UNet(nn.Module):
    """Four down-sampling blocks, a bottleneck and four up-sampling blocks, with skip connections at each level.

    A block is two 3×3 convolutions, each with batch normalisation and ReLU. Between blocks are 2×2 max pooling, and
    transposed 2×2 convolutions. At an odd side, pooling windows extend beyond the edge, and the extra row or column is
    cropped after up-sampling, so images of any size work. Images stay in memory with the colours last, which is faster.

    `channels` are those of the first block, with twice as many at each level below.
    """

    def __init__(self, colours: int, channels: int = 16) -> None:
        super().__init__()
        self.colours = colours
        widths = [channels << level for level in range(_LEVELS + 1)]
        rising = list(zip(widths[-2::-1], widths[:0:-1], strict=True))  # (level, the one below), from the bottom up
        self.down = nn.ModuleList(_ConvBlock(*pair) for pair in zip([colours, *widths], widths[:-1], strict=False))
        self.bottleneck = _ConvBlock(widths[-2], widths[-1])
        self.enlarge = nn.ModuleList(nn.ConvTranspose2d(below, here, 2, stride=2) for here, below in rising)
        self.up = nn.ModuleList(_ConvBlock(2 * here, here) for here, _ in rising)
        self.output = nn.Sequential(nn.Conv2d(channels, colours, 1), nn.Sigmoid())

    def begin_at_zero(self) -> None:
        """Make the output a correction, which is zero at first; see :mod:`r2mae.images.models.on_gaussian`."""
        self.output = nn.Sequential(zeroed(self.output[0]))

    def units(self) -> list[nn.Module]:
        """Return the blocks and the layers between them; see :func:`r2mae.training.task.units_of`."""
        return [*self.down, self.bottleneck, *self.enlarge, *self.up]

    def encode(self, images: Float[Tensor, "batch height width colours"]) -> Float[Tensor, "batch latent"]:
        """Return the mean over the bottleneck's positions."""
        return self._descend(images)[0].mean((2, 3))

    def forward(
        self, images: Float[Tensor, "batch height width colours"]
    ) -> tuple[Float[Tensor, "batch height width colours"], Float[Tensor, "batch latent"]]:
        """Return the reconstruction and the mean over the bottleneck's positions."""
        state, kept = self._descend(images)
        representation = state.mean((2, 3))
        for enlarge, block, skip in zip(self.enlarge, self.up, reversed(kept), strict=True):
            height, width = skip.shape[2:]
            state = block(torch.cat([skip, enlarge(state)[:, :, :height, :width]], dim=1))
        return self.output(state).movedim(1, 3), representation

    def _descend(self, images: Float[Tensor, "batch height width colours"]) -> tuple[Tensor, list[Tensor]]:
        """Return the bottleneck, and the state of each level before it is pooled."""
        state, kept = images.movedim(3, 1), []
        for block in self.down:
            state = block(state)
            # With one colour, torch cannot infer the channels-last layout; with more, this changes nothing.
            kept.append(state.contiguous(memory_format=torch.channels_last))
            state = max_pool2d(kept[-1], 2, ceil_mode=True)
        return self.bottleneck(state), kept


class _ConvBlock(nn.Sequential):
    """Two convolutions, without biases, which batch normalisation would remove."""

    def __init__(self, inputs: int, outputs: int) -> None:
        layers: list[nn.Module] = []
        for width in (inputs, outputs):
            layers += [
                nn.Conv2d(width, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)
            ]  # fmt: skip
        super().__init__(*layers)


@dataclass(frozen=True)
class UNetTask(PixelTask):
    """Hide pixels of images that keep their shape, all colours of a pixel together."""

    @property
    def statistics_samples(self) -> int:
        """A quarter of the default, as every image has many positions."""
        return 2048

    def model_input(self, batch: Tensor) -> Float[Tensor, "batch height width colours"]:
        """Return pixels from 0 to 1."""
        return scaled(batch)

    def weight_network(self, curriculum: Curriculum) -> nn.Module:
        """Return a network that makes one weight for each pixel and ratio from the clean batch."""
        return PositionWeights(self.together, curriculum)


class PositionWeights(nn.Module):
    """The weight network of curricula for a U-Net: one weight for each position and ratio, from a batch's mean image.

    The last layer of the paper's network (:class:`r2mae.masking.curriculum.FeatureWeights`) would have many millions of
    weights for images. This one is ours: three convolutions over the mean image and the coordinates of each position.
    """

    def __init__(self, colours: int, curriculum: Curriculum) -> None:
        super().__init__()
        self.curriculum = curriculum
        self.layers = nn.Sequential(
            nn.Conv2d(colours + 2, _WEIGHT_CHANNELS, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(_WEIGHT_CHANNELS, _WEIGHT_CHANNELS, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(_WEIGHT_CHANNELS, len(curriculum.grid.values), 1),
        )

    def forward(self, clean: Float[Tensor, "batch height width colours"]) -> Float[Tensor, "numbers ratios"]:
        """Return the weight matrix of this batch; the weights of each ratio average to one over the positions."""
        height, width, colours = clean.shape[1:]
        mean = mean_over_ranks(clean.flatten(1)).view(height, width, colours).movedim(2, 0)
        rows, columns = (torch.linspace(-1, 1, side, device=mean.device, dtype=mean.dtype) for side in (height, width))
        places = torch.stack([rows[:, None].expand(height, width), columns.expand(height, width)])
        positive = torch.sigmoid(self.layers(torch.cat([mean, places])[None])[0]) + self.curriculum.floor
        return sinkhorn(positive.flatten(1).T, self.curriculum.iterations).repeat_interleave(colours, dim=0)


def build(architecture: Mapping[str, Any]) -> tuple[UNetTask, UNet]:
    """Make the task and a fresh model; see :mod:`r2mae.images.models`."""
    height, width, colours = (int(side) for side in architecture["shape"])
    fill = tuple(float(value) for value in architecture.get("fill", ()))
    task = UNetTask(height * width * colours, exact=bool(architecture["exact"]), fill=fill, together=colours)
    return task, UNet(colours, int(architecture["channels"]))
