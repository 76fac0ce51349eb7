from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from r2mae.images.config import ImagesConfig
from r2mae.images.domain import DOMAIN
from r2mae.images.models.mlp import MLPAutoencoder
from r2mae.images.task import PixelTask, scaled
from r2mae.masking.keys import Key
from r2mae.training.pretraining import pretrain
from r2mae.training.saving import load_model
from r2mae.training.validation import batch_norms

KEY = Key.root(0).fold("mask", 0)


def batch(rows: int = 6, pixels: int = 16) -> torch.Tensor:
    return torch.randint(0, 256, (rows, pixels), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("exact", [True, False])
def test_hidden_pixels_are_zero_and_the_others_as_they_were(exact: bool) -> None:
    corrupted = PixelTask(16, exact=exact).corrupt(batch(), 0.5, KEY)
    clean = batch().float() / 255
    torch.testing.assert_close(corrupted.targets, clean)
    assert (corrupted.inputs[corrupted.hidden] == 0).all()
    torch.testing.assert_close(corrupted.inputs[~corrupted.hidden], clean[~corrupted.hidden])
    if exact:
        assert (corrupted.hidden.sum(1) == 8).all()


def test_losses_are_squared_errors_at_hidden_pixels_alone() -> None:
    task, model = PixelTask(16), MLPAutoencoder(16, 8, 4)
    corrupted = task.corrupt(batch(), 0.5, KEY)
    output = task.forward(model, corrupted)
    losses = task.losses(output, corrupted)
    expected = (output.prediction - corrupted.targets).square()
    torch.testing.assert_close(losses[corrupted.hidden], expected[corrupted.hidden])
    assert (losses[~corrupted.hidden] == 0).all()


def test_the_loss_does_not_see_kept_pixels() -> None:
    task = PixelTask(16)
    corrupted = task.corrupt(batch(), 0.5, KEY)
    prediction = torch.rand(6, 16, requires_grad=True)
    output = task.forward(MLPAutoencoder(16, 8, 4), corrupted)
    output = type(output)(prediction, output.representation)
    task.losses(output, corrupted).sum().backward()
    assert prediction.grad is not None
    assert (prediction.grad[~corrupted.hidden] == 0).all()
    assert (prediction.grad[corrupted.hidden] != 0).any()


def test_floats_and_bytes_are_the_same_image() -> None:
    torch.testing.assert_close(scaled(batch()), scaled(batch().float() / 255))
    assert float(scaled(torch.tensor([[255]], dtype=torch.uint8))) == pytest.approx(1.0)


def test_embedding_is_unmasked_and_deterministic() -> None:
    task, model = PixelTask(16), MLPAutoencoder(16, 8, 4).eval()
    first = task.embed(model, batch())
    assert first.shape == (6, 4)
    assert torch.equal(first, task.embed(model, batch()))
    torch.testing.assert_close(first, model.encode(batch().float() / 255))
    # In evaluation an image's embedding does not depend on its neighbours.
    torch.testing.assert_close(first[2:3], task.embed(model, batch()[2:3]))


def test_the_model_is_that_of_the_paper() -> None:
    model = MLPAutoencoder(784, 512, 256)
    kinds = [type(layer) for layer in [*model.encoder, *model.decoder]]
    block = [nn.Linear, nn.BatchNorm1d, nn.ReLU]
    assert kinds == [*block, *block, nn.Linear, nn.Sigmoid]
    shapes = [tuple(p.shape) for p in model.parameters() if p.ndim == 2]
    assert shapes == [(512, 784), (256, 512), (784, 256)]
    with torch.no_grad():
        prediction, latent = model(torch.rand(5, 784))
    assert prediction.shape == (5, 784)
    assert latent.shape == (5, 256)
    assert 0 <= float(prediction.min()) <= float(prediction.max()) <= 1


def test_the_domain_builds_from_plain_values() -> None:
    task, model = DOMAIN.build({"model": "mlp", "shape": [4, 4, 1], "hidden": 8, "latent": 4, "exact": True})
    assert (task.pixels, task.exact) == (16, True)
    assert isinstance(model, MLPAutoencoder)
    with pytest.raises(ValueError, match="unknown model"):
        DOMAIN.build({"model": "vit", "shape": [4, 4, 1], "hidden": 8, "latent": 4, "exact": True})


def test_learned_weights_are_one_per_pixel_and_ratio() -> None:

    task, model = PixelTask(16), MLPAutoencoder(16, 8, 4)
    curriculum = DOMAIN.config.make(data="x", scheme="r2mae-cl").scheme.make().curriculum
    assert curriculum is not None
    corrupted = task.corrupt(batch(), 0.5, KEY)
    weights = task.learned_weights(task.weight_network(curriculum), corrupted, task.forward(model, corrupted))
    assert weights.shape == (16, 9)
    np.testing.assert_allclose(weights.detach().mean(0).numpy(), 1, rtol=1e-5)


def test_hidden_pixels_become_those_of_the_mean_image() -> None:
    from r2mae.images.batches import mean_image

    images = np.random.default_rng(0).integers(0, 256, (20, 3, 3, 3), dtype=np.uint8)
    mean = mean_image(images)
    assert mean == pytest.approx((images / 255).mean(axis=0).ravel(), abs=1e-6)
    task = PixelTask(27, fill=tuple(mean))
    batch = torch.from_numpy(images.reshape(20, -1))
    corrupted = task.corrupt(batch, 0.5, Key.root(0))
    plain = PixelTask(27).corrupt(batch, 0.5, Key.root(0))
    assert torch.equal(corrupted.hidden, plain.hidden)
    assert torch.equal(corrupted.inputs[~corrupted.hidden], plain.inputs[~plain.hidden])
    expected = torch.tensor(mean).expand(20, 27)
    assert torch.equal(corrupted.inputs[corrupted.hidden], expected[corrupted.hidden])
    assert not plain.inputs[plain.hidden].any()


def test_the_fill_is_part_of_the_model() -> None:
    config = ImagesConfig.make(data="digits", fill="mean")
    data = DOMAIN.load(config)
    task, _ = DOMAIN.build(data.architecture)
    assert task.fill == pytest.approx((data.splits.train.images / 255).mean(axis=0).ravel(), abs=1e-6)
    plain, _ = DOMAIN.build({name: value for name, value in data.architecture.items() if name != "fill"})
    assert plain.fill == ()  # models of older versions


@pytest.mark.parametrize("fill", [(), (0.3,)])
def test_the_mask_is_as_many_inputs_again(fill: tuple[float, ...]) -> None:
    """The first layer is that of images and masks side by side."""
    torch.manual_seed(0)
    task, model = PixelTask(16, fill=fill, mask_input=True), MLPAutoencoder(16, 8, 4, mask_input=True)
    assert model.mask_layer is not None
    corrupted = task.corrupt(batch(), np.linspace(0.1, 0.9, 6), KEY)  # a ratio for each image
    joined = torch.cat([corrupted.inputs, corrupted.hidden.float()], 1)
    weight = torch.cat([model.encoder[0].weight, model.mask_layer.weight], 1)
    states = nn.functional.linear(joined, weight, model.encoder[0].bias)
    expected = model.decoder(model.encoder[1:](states))
    torch.testing.assert_close(task.forward(model, corrupted).prediction, expected)
    flipped = replace(corrupted, hidden=~corrupted.hidden)
    assert not torch.allclose(task.forward(model, flipped).prediction, expected)
    nothing = replace(corrupted, inputs=corrupted.targets, hidden=torch.zeros_like(corrupted.hidden))
    torch.testing.assert_close(task.forward(model, nothing).prediction, task.reconstruct(model, batch()))


def test_layer_normalisation_knows_each_image_alone() -> None:
    torch.manual_seed(0)
    made = {"model": "mlp", "shape": (4, 4, 1), "hidden": 8, "latent": 4, "exact": False}
    _, model = DOMAIN.build({**made, "norm": "layer"})
    assert not batch_norms(model) and not ImagesConfig.make(data="digits", norm="layer").re_estimates_statistics
    images = torch.rand(5, 16)
    torch.testing.assert_close(model.train()(images)[0][:1], model(images[:1])[0])
    assert len(batch_norms(DOMAIN.build(made)[1])) == 2  # of older folders


@pytest.mark.slow
def test_training_with_the_mask_works_on_digits(tmp_path: Path) -> None:
    config = ImagesConfig.make(data="digits", steps=60, threads=1, device="cpu", mask_input=True)
    _, results = pretrain(config, DOMAIN, tmp_path)
    scores = results["scores"]
    mean = DOMAIN.score_baseline(config, "mean", DOMAIN.load(config))
    assert scores["masked_mse"] < 0.9 * mean["masked_mse"]
    assert scores["probe_accuracy"] > 0.8
    again, task, model = load_model(tmp_path, DOMAIN)
    examples = DOMAIN.examples(again, task, model, DOMAIN.load(again))
    assert examples is not None
    assert examples.masked.shape == examples.original.shape  # pictures are of the image alone
