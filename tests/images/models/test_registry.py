"""A further model of images is one file and one line."""

from pathlib import Path

import numpy as np
import pytest
import torch

from r2mae.domains.base import Domain
from r2mae.images.batches import load_data
from r2mae.images.config import ImagesConfig
from r2mae.images.domain import DOMAIN
from r2mae.images.models import MODELS
from r2mae.images.models.mlp import MLPAutoencoder, Settings
from r2mae.images.task import ImageTask, PixelTask
from r2mae.masking.keys import Key
from r2mae.training.pretraining import pretrain
from r2mae.training.saving import load_model


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(MODELS, "toy", "toy_image_model")
    return "toy"


@pytest.mark.slow
def test_one_file_and_one_line(toy: str, tmp_path: Path) -> None:
    config = ImagesConfig.make(data="digits", model={"name": toy, "latent": 3}, steps=2, threads=1, device="cpu")
    _, results = pretrain(config, DOMAIN, tmp_path / "run")
    assert results["scores"].keys() >= {"probe_accuracy", "masked_mse", "clean_mse", "effective_rank"}
    there, task, model = load_model(tmp_path / "run", DOMAIN)
    assert there.differences(config) == {}
    assert there.model.latent == 3
    assert isinstance(task, ImageTask)
    embedded = DOMAIN.embed(config, task, model, "digits")["embedding"]
    assert embedded.shape == (1797, 3)


def test_settings_reach_the_model(toy: str) -> None:
    config = ImagesConfig.make(data="digits", model={"name": toy, "last_bias": 2, "strides": [1, 2]})
    data = load_data(config)
    assert data.architecture == {
        "model": "toy", "shape": [8, 8, 1], "latent": 4, "last_bias": 2.0, "kernels": "small", "strides": [1, 2],
        "exact": False,
    }  # fmt: skip
    _, model = DOMAIN.build(data.architecture)
    assert model.state_dict()["decoder.bias"].tolist() == [2.0]


def test_every_model_is_there() -> None:
    assert isinstance(DOMAIN, Domain)
    taken = {"model", "shape", "exact", "fill"}  # by the architecture itself
    for name in MODELS:
        small = {"patch": 4, "width": 8, "heads": 2, "layers": 1} if name == "vit-mae" else {}
        config = ImagesConfig.make(data="digits", model={"name": name, **small})
        assert not taken & (config.model.architecture().keys() - {"model"})
        assert config.model.latent > 0
        task, _ = DOMAIN.build(load_data(config).architecture)
        assert isinstance(task, ImageTask)


def test_the_mlp_of_the_paper_has_the_old_description() -> None:
    assert list(load_data(ImagesConfig.make(data="digits", fill="mean")).architecture) == [
        "model", "shape", "hidden", "latent", "norm", "exact", "fill",
    ]  # fmt: skip
    assert Settings(hidden=3).latent == ImagesConfig.make(data="digits").model.latent


def test_the_mlp_flattens_images_and_takes_flat_ones() -> None:
    images = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (6, 3, 4, 2), dtype=np.uint8))
    task, model = PixelTask(24, fill=(0.25, 0.5)), MLPAutoencoder(24, 8, 4).eval()
    whole, flat = (task.corrupt(batch, 0.5, Key.root(0)) for batch in (images, images.flatten(1)))
    assert whole.inputs.shape == (6, 24)
    for name in ("inputs", "hidden", "targets"):
        assert torch.equal(getattr(whole, name), getattr(flat, name))
    assert torch.equal(task.embed(model, images), task.embed(model, images.flatten(1)))
    assert torch.equal(task.reconstruct(model, images), task.reconstruct(model, images.flatten(1)))
