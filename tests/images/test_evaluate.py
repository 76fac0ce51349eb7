from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.images.reading import memory_of
from torch import nn

from r2mae.errors import UserError
from r2mae.evaluation.items import ItemRecorder
from r2mae.images.arrays import read_npy
from r2mae.images.batches import ImageBatches, ImageData, architecture, load_data
from r2mae.images.config import ImagesConfig
from r2mae.images.data import ImageSet
from r2mae.images.domain import DOMAIN
from r2mae.images.evaluate import RATIOS, clean_mse, complete, embed_set, evaluate, masked_scores
from r2mae.masking.keys import Key


@pytest.fixture
def config() -> ImagesConfig:
    return ImagesConfig.make(data="digits", hidden=32, latent=16)


@pytest.fixture
def data(config: ImagesConfig) -> ImageData:
    return load_data(config)


def build(data: ImageData) -> tuple[object, nn.Module]:
    torch.manual_seed(0)
    return DOMAIN.build(data.architecture)


def test_batches_are_rows_of_one_array() -> None:
    images = np.arange(5 * 2 * 3, dtype=np.uint8).reshape(5, 2, 3, 1)
    batches = ImageBatches(images, np.array([4, 2, 0]))
    assert len(batches) == 3
    assert batches.batch([1, 2], Key.root(0)).tolist() == images[[2, 0]].tolist()
    assert batches.batch(np.array([0]), Key.root(0)).dtype == torch.uint8


def test_validation_images_are_held_out_of_training(config: ImagesConfig) -> None:

    data = load_data(config.replace(validation=0.1))
    assert data.validation is not None
    assert data.train.rows is not None
    assert data.validation.rows is not None
    both = np.concatenate([data.train.rows, data.validation.rows])
    assert sorted(both.tolist()) == list(range(len(data.splits.train)))
    assert len(data.validation) == round(0.1 * len(data.splits.train))


def test_of_a_single_training_image_none_is_held_out(tmp_path: Path) -> None:
    np.save(tmp_path / "two.npy", np.random.default_rng(0).integers(0, 255, (2, 6, 5), dtype=np.uint8))
    data = load_data(ImagesConfig.make(data=str(tmp_path / "two.npy"), validation=0.1))
    assert (len(data.train), data.validation) == (1, None)


def test_seeds_split_differently_and_schemes_alike(config: ImagesConfig) -> None:

    same = load_data(config.replace(scheme="mdlm"))
    other = load_data(config.replace(seed=1))
    first = load_data(config)
    np.testing.assert_array_equal(first.splits.test.images, same.splits.test.images)
    assert not np.array_equal(first.splits.test.images, other.splits.test.images)


@pytest.mark.slow
def test_scores(config: ImagesConfig, data: ImageData) -> None:
    task, model = build(data)
    scores = evaluate(config, task, model, data)
    told: list[tuple[int, int]] = []
    assert scores == evaluate(config, task, model, data, progress=lambda done, total: told.append((done, total)))
    assert [done for done, _ in told] == sorted(done for done, _ in told) and told[-1][0] == told[-1][1]
    assert len({total for _, total in told}) == 1
    assert {metric.name for metric in DOMAIN.metrics if not metric.optional} <= scores.keys()
    assert 0.5 < scores["probe_accuracy"] <= 1  # even a random layer separates digits
    assert scores["masked_mse"] == pytest.approx(np.mean([scores[f"masked_mse_{ratio:g}"] for ratio in RATIOS]))
    assert 1 <= scores["effective_rank"] <= 16
    assert scores["spectral_entropy"] == pytest.approx(np.log(scores["effective_rank"]))


def test_reconstruction_errors_are_means_over_pixels(data: ImageData) -> None:
    task, model = build(data)
    images = torch.from_numpy(data.splits.test.images.reshape(-1, 64)).float() / 255
    with torch.no_grad():
        expected = (model.eval()(images)[0] - images).square().mean()
    assert clean_mse(task, model, ImageBatches(data.splits.test.images), ItemRecorder()) == pytest.approx(
        float(expected), rel=1e-5
    )


def test_embeddings_keep_the_order_of_the_images(data: ImageData) -> None:
    task, model = build(data)
    whole = embed_set(task, model, data.splits.test)
    assert whole.shape == (len(data.splits.test), 16)
    np.testing.assert_allclose(
        whole[:3], embed_set(task, model, type(data.splits.test)("few", data.splits.test.images[:3])), rtol=1e-5
    )


def test_examples_are_one_of_each_class(data: ImageData) -> None:
    task, model = build(data)
    examples = complete(task, model, data, 0.7)
    assert examples.original.shape == examples.masked.shape == examples.prediction.shape == (8, 8, 8, 1)
    assert (examples.masked[examples.masked != examples.original] == 0).all()


def test_images_without_labels_have_no_probe(tmp_path: Path) -> None:
    np.save(tmp_path / "noise.npy", np.random.default_rng(0).integers(0, 255, (40, 6, 5), dtype=np.uint8))
    config = ImagesConfig.make(data=str(tmp_path / "noise.npy"), hidden=16, latent=8)
    data = load_data(config)
    task, model = build(data)
    scores = evaluate(config, task, model, data)
    assert "probe_accuracy" not in scores
    assert scores["masked_mse"] > 0


def test_another_size_is_refused(data: ImageData) -> None:
    task, model = build(data)
    other = type(data.splits.test)("other", np.zeros((3, 9, 9, 1), dtype=np.uint8))
    with pytest.raises(UserError, match=r"9 x 9 x 1, and the model takes 64 values"):
        embed_set(task, model, other)


def resident(kind: str) -> int:
    """Return how much memory of this process is of a kind, in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(kind))


class Watched(ImageBatches):
    """Images that note the memory of the process whenever some are read."""

    kind = "RssAnon"

    def batch(self, indices: Sequence[int] | np.ndarray, key: Key) -> torch.Tensor:
        made = super().batch(indices, key)
        self.found: list[int] = [*getattr(self, "found", []), resident(self.kind)]
        return made


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="asks Linux for its memory")
def test_memory_does_not_grow_with_the_images_that_are_measured() -> None:
    images = np.random.default_rng(0).integers(0, 256, (16 * 512, 48, 48, 1), np.uint8)
    task, model = DOMAIN.build(
        architecture(ImagesConfig.make(data="digits", hidden=32, latent=16), ImageSet("noise", images))
    )
    batches = Watched(images)
    masked_scores(task, model, batches, items=ItemRecorder())
    assert len(batches.found) == 16
    assert max(batches.found[2:]) - batches.found[1] < 1 << 27  # a batch of losses in double precision takes 9 MiB


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="asks Linux for its memory")
def test_what_was_read_of_a_file_is_no_memory_of_the_process(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.lib.format.open_memmap(path, "w+", np.uint8, (60_000, 64, 64, 1))
    with memory_of(1):
        images = read_npy(path)
    batches = Watched(images, np.random.default_rng(0).permutation(60_000))
    batches.kind = "RssFile"
    before = resident("RssFile")
    for first in range(0, len(batches), 1000):
        batches.batch(np.arange(first, first + 1000), Key.root(0))
    assert max(batches.found) - before < 1 << 24  # of 234 MiB
