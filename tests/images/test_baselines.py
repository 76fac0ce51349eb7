"""Raw pixels, principal components and the mean image."""

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from tests.images.reading import memory_of

from r2mae.evaluation.gaussian import GaussianConditionalMean
from r2mae.evaluation.head import fit_head
from r2mae.images import evaluate as baselines
from r2mae.images.arrays import read_npy
from r2mae.images.batches import ImageBatches, ImageData, load_data
from r2mae.images.config import ImagesConfig
from r2mae.images.data import ImageSet, Splits
from r2mae.images.domain import DOMAIN
from r2mae.images.evaluate import RATIOS, evaluate, fit_components
from r2mae.masking.keys import Key
from r2mae.masking.masks import element_mask

MASKED = {"masked_mse", *(f"masked_mse_{ratio:g}" for ratio in RATIOS)}
SPECTRUM = {"effective_rank", "spectral_entropy"}


@pytest.fixture(scope="module")
def config() -> ImagesConfig:
    return ImagesConfig.make(data="digits", hidden=32, latent=8)


@pytest.fixture(scope="module")
def data(config: ImagesConfig) -> ImageData:
    return load_data(config)


SIMPLE = ("pixels", "pca", "mean")


def flat(images: ImageSet) -> np.ndarray:
    return images.images.reshape(len(images), -1).astype(np.float64) / 255


@pytest.mark.slow
def test_names_are_those_of_a_model(config: ImagesConfig, data: ImageData) -> None:
    torch.manual_seed(0)
    task, model = DOMAIN.build(data.architecture)
    known = set(evaluate(config, task, model, data))

    def progress(done: int, total: int) -> None:
        """`r2mae evaluate` gives this to all baselines."""

    found = {
        name: set(DOMAIN.score_baseline(config, name, data, progress=progress)) for name in DOMAIN.baselines_of(config)
    }
    assert found == {
        "untrained": known,
        "pixels": {"probe_accuracy", "knn_accuracy", *SPECTRUM},
        "pca": known - MASKED,
        "mean": {"clean_mse", *MASKED},
        "gaussian": set(MASKED),
    }


@pytest.mark.slow
def test_pixels_are_probed_as_an_embedding_is(config: ImagesConfig, data: ImageData) -> None:
    train, test = (part.images.reshape(len(part), -1) for part in (data.splits.train, data.splits.test))
    truth, labels = data.splits.test.labels, data.splits.train.labels
    scores = DOMAIN.score_baseline(config, "pixels", data)
    head = fit_head((train / 255).astype(np.float32), labels, seed=config.seed)
    assert scores["probe_accuracy"] == pytest.approx(head.accuracy((test / 255).astype(np.float32), truth), abs=0.01)
    assert scores["probe_accuracy"] > 0.8


def test_the_mean_image_is_the_prediction(config: ImagesConfig, data: ImageData) -> None:
    scores = DOMAIN.score_baseline(config, "mean", data)
    test, mean = flat(data.splits.test), flat(data.splits.train).mean(axis=0)
    assert scores["clean_mse"] == pytest.approx(((test - mean) ** 2).mean(), rel=1e-5)
    for place, ratio in enumerate(RATIOS):
        key = Key.root(0).fold("evaluation masks").fold(place)  # the masks on which models are scored
        hidden = element_mask(test.shape, ratio, key).numpy()
        assert scores[f"masked_mse_{ratio:g}"] == pytest.approx(((test - mean) ** 2)[hidden].mean(), rel=1e-5)
    assert scores["masked_mse"] == pytest.approx(np.mean([scores[f"masked_mse_{ratio:g}"] for ratio in RATIOS]))


@pytest.mark.slow
def test_components_reconstruct_as_scikit_learns(config: ImagesConfig, data: ImageData) -> None:
    train, test = flat(data.splits.train), flat(data.splits.test)
    pca = PCA(config.model.latent, svd_solver="full").fit(train)
    scores = DOMAIN.score_baseline(config, "pca", data)
    clean = pca.inverse_transform(pca.transform(test))
    assert scores["clean_mse"] == pytest.approx(((test - clean) ** 2).mean(), rel=1e-3)
    assert not MASKED & set(scores)  # a projection fills in nothing


def test_the_gaussian_fills_in_what_the_model_is_scored_on(config: ImagesConfig, data: ImageData) -> None:
    train, test = flat(data.splits.train), flat(data.splits.test)
    scores = DOMAIN.score_baseline(config, "gaussian", data)
    hidden = element_mask(test.shape, 0.3, Key.root(0).fold("evaluation masks").fold(RATIOS.index(0.3))).numpy()
    made = GaussianConditionalMean.fit(train).fill(test, hidden).clip(0, 1)
    assert scores["masked_mse_0.3"] == pytest.approx(((test - made) ** 2)[hidden].mean(), rel=1e-3)
    assert scores["masked_mse"] < 0.6 * DOMAIN.score_baseline(config, "mean", data)["masked_mse"]


def test_axes_are_those_of_scikit_learn_and_always_the_same(data: ImageData, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = PCA(5, svd_solver="full").fit(flat(data.splits.train)).components_.T
    found = fit_components(data.train, 5).axes.numpy()
    np.testing.assert_allclose(np.abs(expected.T @ found), np.eye(5), atol=1e-3)
    monkeypatch.setattr("r2mae.images.batches._PART", 100)
    np.testing.assert_allclose(fit_components(data.train, 5).axes.numpy(), found, atol=1e-4)
    monkeypatch.setattr(baselines, "_SAMPLE_BYTES", 63 * 64 * 4)  # a sample of 63 images
    sampled = fit_components(data.train, 5).axes.numpy()
    np.testing.assert_allclose(sampled.T @ sampled, np.eye(5), atol=1e-4)
    np.testing.assert_array_equal(fit_components(data.train, 5).axes.numpy(), sampled)
    assert np.linalg.norm(expected.T @ sampled) > 1.8  # of √5: nearly the same space


def test_components_are_as_many_as_the_images_vary_along() -> None:
    rng = np.random.default_rng(0)
    images = np.zeros((6, 4, 4, 1), np.float32)
    images[:, 0, 0, 0] = rng.random(6)
    images[:, 1, 2, 0] = rng.random(6)
    assert fit_components(ImageBatches(images), 8).axes.shape == (16, 2)
    assert fit_components(ImageBatches(images[:1]), 8).axes.shape == (16, 0)


def test_images_without_labels_or_contents(config: ImagesConfig, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.save(tmp_path / "a.npy", rng.random((40, 4, 4), np.float32))
    plain = config.replace(data=str(tmp_path / "a.npy"))
    found = {name: DOMAIN.score_baseline(plain, name, load_data(plain)) for name in SIMPLE}
    assert set(found["pixels"]) == SPECTRUM
    assert set(found["pca"]) == {"clean_mse", *SPECTRUM}
    black = ImageSet("black", np.zeros((8, 4, 4, 1), np.uint8))
    nothing = ImageData(Splits(black, black), ImageBatches(black.images), None, {})
    assert DOMAIN.score_baseline(config, "pixels", nothing) == {}
    assert DOMAIN.score_baseline(config, "pca", nothing)["clean_mse"] == 0


@pytest.mark.filterwarnings("error")
def test_mapped_images_are_read_a_batch_at_a_time(config: ImagesConfig, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.random.default_rng(0).random((40, 4, 4, 1), np.float32))
    with memory_of(1):
        mapped = ImageSet("mapped", read_npy(tmp_path / "a.npy"))
    data = ImageData(Splits(mapped, mapped), ImageBatches(mapped.images), None, {})
    for name in SIMPLE:
        assert DOMAIN.score_baseline(config, name, data)


@pytest.mark.slow
def test_a_wide_test_part_has_no_spectrum(
    config: ImagesConfig, data: ImageData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(baselines, "_RANK_NUMBERS", 1000)
    assert set(DOMAIN.score_baseline(config, "pixels", data)) == {"probe_accuracy"}
