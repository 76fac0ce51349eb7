"""A few images of three classes, and models that were pretrained on them for two steps."""

from pathlib import Path

import pytest

from finetune_images import MACHINE, VIT, write_images
from r2mae.images.config import ImagesConfig
from r2mae.images.domain import DOMAIN
from r2mae.training.loop import fit


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_images(tmp_path_factory.mktemp("images") / "images.npz")


@pytest.fixture(scope="session")
def vit(images: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder of a small vision transformer."""
    out = tmp_path_factory.mktemp("vit") / "run"
    config = ImagesConfig.make(data=images, model={"name": "vit-mae", **VIT}, steps=2, batch_size=8, **MACHINE)
    fit(config, DOMAIN, out)
    return out


@pytest.fixture(scope="session")
def mlp(images: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder of a small MLP."""
    out = tmp_path_factory.mktemp("mlp") / "run"
    fit(ImagesConfig.make(data=images, hidden=16, latent=8, steps=2, batch_size=8, **MACHINE), DOMAIN, out)
    return out
