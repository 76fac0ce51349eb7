"""Sets of images with attributes: what is measured of models and baselines, and that masks are the same for both."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from r2mae.evaluation.items import ItemRecorder
from r2mae.images.batches import ImageBatches, ImageData, architecture
from r2mae.images.config import ImagesConfig
from r2mae.images.data import ImageSet, Splits
from r2mae.images.domain import DOMAIN
from r2mae.images.evaluate import evaluate, masked_scores
from r2mae.images.models.unet import UNet
from r2mae.images.task import ImageTask, PixelTask
from r2mae.masking.keys import Key

NAMES = ("attribute_accuracy", "attribute_accuracy_raw", "attribute_auroc")


def faces(rows: int, seed: int, *, attributes: bool = True) -> ImageSet:
    """Images whose colours tell three attributes; the fourth is rare."""
    random = np.random.default_rng(seed)
    colours = random.integers(0, 2, (rows, 3))
    pixels = 60 * colours[:, None, None] + random.integers(0, 120, (rows, 9, 7, 3))
    own = np.concatenate([colours, np.arange(rows)[:, None] % 20 == 0], axis=1).astype(np.uint8)
    names = ("Red", "Green", "Blue", "Rare")
    return ImageSet("faces", pixels.astype(np.uint8), None, None, *((own, names) if attributes else ()))


def data_of(config: ImagesConfig, *, attributes: bool = True) -> ImageData:
    splits = Splits(faces(600, 0, attributes=attributes), faces(200, 1, attributes=attributes))
    return ImageData(splits, ImageBatches(splits.train.images), None, architecture(config, splits.train))


@pytest.fixture
def config() -> ImagesConfig:
    return ImagesConfig.make(data="faces", model={"name": "unet", "channels": 2}, device="cpu")


def made(data: ImageData) -> tuple[ImageTask, nn.Module]:
    torch.manual_seed(0)
    return DOMAIN.build(data.architecture)


@pytest.mark.slow
def test_attributes_are_probed_where_there_are_some(config: ImagesConfig) -> None:
    data = data_of(config)
    scores = evaluate(config, *made(data), data)
    assert scores == evaluate(config, *made(data), data)
    assert "probe_accuracy" not in scores
    assert scores["attribute_accuracy_raw"] > 0.6  # even a random network sees colours
    assert scores["attribute_accuracy"] > 0.2
    assert 0.6 < scores["attribute_auroc"] <= 1
    assert evaluate(config.replace(seed=1), *made(data), data)["attribute_auroc"] != scores["attribute_auroc"]
    without = data_of(config, attributes=False)
    assert not set(NAMES) & evaluate(config, *made(without), without).keys()


def test_tables_know_them(config: ImagesConfig) -> None:
    known = {metric.name: metric for metric in DOMAIN.metrics_of(config.replace(bn_statistics="both"))}
    for name in NAMES:
        assert known[name].optional
        assert known[f"as_trained_{name}"].optional
    assert known["attribute_accuracy"].ranked
    assert not known["attribute_auroc"].ranked


@pytest.mark.slow
def test_attributes_of_one_value_give_no_score(config: ImagesConfig) -> None:
    data = data_of(config)
    assert data.splits.test.attributes is not None
    none = replace(data.splits.test, attributes=np.zeros_like(data.splits.test.attributes))
    data = replace(data, splits=replace(data.splits, test=none))
    assert not set(NAMES) & evaluate(config, *made(data), data).keys()


@pytest.mark.slow
@pytest.mark.parametrize("baseline", ["pixels", "pca", "mean"])
def test_baselines_are_probed_as_well(config: ImagesConfig, baseline: str) -> None:
    scores = DOMAIN.score_baseline(config, baseline, data_of(config))
    if baseline == "mean":
        assert not set(NAMES) & scores.keys()
    else:
        assert scores["attribute_accuracy"] > 0.2
        assert scores["attribute_auroc"] > 0.6


def test_baselines_are_measured_on_the_masks_of_the_model(config: ImagesConfig) -> None:
    config = config.replace(model={"channels": 2})
    data = data_of(config)
    batch, key = torch.from_numpy(data.splits.test.images), Key.root(0).fold("mask")
    flat = PixelTask(9 * 7 * 3, together=3).corrupt(batch, 0.3, key)
    own = made(data)[0].corrupt(batch, 0.3, key)
    assert torch.equal(flat.hidden.view(own.hidden.shape), own.hidden)
    # The mean image has no parameter to learn: its error is that of the mean at those masks.
    images = batch / 255
    mean = torch.from_numpy(data.splits.train.images).double().mean(0) / 255

    class Mean(UNet):
        def __init__(self) -> None:
            super().__init__(3, 1)
            self.mean = nn.Parameter(mean.float())

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.mean.expand(x.shape), torch.zeros(len(x), 1)

    expected = masked_scores(made(data)[0], Mean(), ImageBatches(data.splits.test.images), ItemRecorder())
    found = DOMAIN.score_baseline(config, "mean", data)
    assert found["masked_mse"] == pytest.approx(expected["masked_mse"], rel=1e-5)
    assert found["clean_mse"] == pytest.approx(float((images - mean).square().mean()), rel=1e-4)
