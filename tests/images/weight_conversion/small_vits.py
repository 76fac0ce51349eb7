"""Small vision transformers, ours and those of transformers, with numbers that are not those of a fresh model."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import ViTConfig, ViTForImageClassification, ViTMAEConfig, ViTMAEForPreTraining, ViTModel

from r2mae.images.config import ImagesConfig
from r2mae.images.domain import DOMAIN
from r2mae.images.models.vit_mae.model import VisionTransformerMAE
from r2mae.training.loop import fit

SIZES: dict[str, Any] = {
    "width": 32,
    "layers": 2,
    "heads": 4,
    "decoder_width": 16,
    "decoder_layers": 2,
    "decoder_heads": 2,
}
ENCODER = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
DECODER = {
    "decoder_hidden_size": 16,
    "decoder_num_hidden_layers": 2,
    "decoder_num_attention_heads": 2,
    "decoder_intermediate_size": 64,
}


def ours(
    shape: tuple[int, int, int] = (16, 16, 3), patch: int = 4, seed: int = 0, **sizes: Any
) -> VisionTransformerMAE:
    torch.manual_seed(seed)
    model = VisionTransformerMAE(shape, patch=patch, **{**SIZES, **sizes})
    return moved(model)


def moved(model: Any) -> Any:
    """Move biases and norms from their default zeros and ones, so that none can be confused with another."""
    for value in model.parameters():
        if value.requires_grad:
            nn.init.normal_(value, std=0.1) if value.ndim < 2 else value.data.add_(torch.randn_like(value) * 0.02)
    return model.eval()


def stock_mae(**more: Any) -> ViTMAEForPreTraining:
    torch.manual_seed(1)
    made = ViTMAEForPreTraining(ViTMAEConfig(**{"image_size": 16, "patch_size": 4, **ENCODER, **DECODER, **more}))
    return moved(made)


def stock_vit(kind: type = ViTModel, **more: Any) -> ViTModel | ViTForImageClassification:
    torch.manual_seed(2)
    return moved(kind(ViTConfig(**{"image_size": 16, "patch_size": 4, **ENCODER, **more})))


def pth(path: Path, content: Any) -> Path:
    torch.save(content, path)
    return path


def equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


def picture_file(folder: Path, side: int = 16, channels: int = 3) -> Path:
    """Write a few random images."""
    pixels = np.random.default_rng(0).integers(0, 256, (24, side, side, channels), dtype=np.uint8)
    np.save(folder / f"pictures-{side}-{channels}.npy", pixels)
    return folder / f"pictures-{side}-{channels}.npy"


def config(data: Path, patch: int = 4, **fields: Any) -> ImagesConfig:
    default = {"steps": 2, "batch_size": 8, "threads": 1, "device": "cpu", "scheme": "fixed", "ratio": 0.75}
    settings = {"patch": patch, **SIZES, **fields.pop("settings", {})}
    return ImagesConfig.make(data=str(data), model={"name": "vit-mae", **settings}, **{**default, **fields})


def finished(folder: Path, **fields: Any) -> Path:
    """Pretrain for two steps; return the run folder."""
    made = config(picture_file(folder), **fields)
    return fit(made, DOMAIN, folder / "run").folder.path
