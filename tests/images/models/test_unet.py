"""The U-Net: its shape, what it may see, and that it equals the network as the paper's words put it."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from r2mae.errors import UserError
from r2mae.images.batches import ImageBatches
from r2mae.images.config import ImagesConfig
from r2mae.images.data import ImageSet
from r2mae.images.domain import DOMAIN
from r2mae.images.evaluate import embed_set
from r2mae.images.models.unet import PositionWeights, Settings, UNet, UNetTask
from r2mae.masking.keys import Key
from r2mae.training.validation import batch_norms, estimate_statistics

SIDES = st.integers(1, 37)


def images(*shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8))


def task_of(shape: tuple[int, int, int], **options: Any) -> UNetTask:
    return UNetTask(math.prod(shape), together=shape[2], **options)


def replace_samples(task: UNetTask, samples: int) -> UNetTask:
    class Fewer(UNetTask):
        statistics_samples = samples

    return Fewer(task.pixels, task.exact, task.fill, task.together)


def unet(colours: int = 3, channels: int = 2) -> UNet:
    torch.manual_seed(0)
    return UNet(colours, channels).eval()


def as_written(weights: Mapping[str, Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    """The network step by step, on images (batch, colours, height, width); odd sides get −∞ beyond before pooling."""

    def block(name: str, x: Tensor) -> Tensor:
        for conv, norm in ((0, 1), (3, 4)):
            x = functional.conv2d(x, weights[f"{name}.{conv}.weight"], padding=1)
            mean, variance, scale, shift = (
                weights[f"{name}.{norm}.{part}"][:, None, None]
                for part in ("running_mean", "running_var", "weight", "bias")
            )
            x = ((x - mean) / (variance + 1e-5).sqrt() * scale + shift).clamp(min=0)
        return x

    skips = []
    for level in range(4):
        x = block(f"down.{level}", x)
        skips.append(x)
        even = functional.pad(x, (0, x.shape[3] % 2, 0, x.shape[2] % 2), value=-torch.inf)
        x = even.unflatten(3, (-1, 2)).unflatten(2, (-1, 2)).amax((3, 5))
    x = block("bottleneck", x)
    pooled = x.flatten(2).mean(2)
    for level, skip in enumerate(reversed(skips)):
        x = functional.conv_transpose2d(
            x, weights[f"enlarge.{level}.weight"], weights[f"enlarge.{level}.bias"], stride=2
        )
        x = block(f"up.{level}", torch.cat([skip, x[..., : skip.shape[2], : skip.shape[3]]], 1))
    x = functional.conv2d(x, weights["output.0.weight"], weights["output.0.bias"])
    return 1 / (1 + torch.exp(-x)), pooled


@settings(max_examples=12, deadline=None)
@given(height=SIDES, width=SIDES, colours=st.sampled_from([1, 3]))
def test_images_of_any_size_and_the_network_as_it_is_written(height: int, width: int, colours: int) -> None:
    model = unet(colours)
    for norm in batch_norms(model).values():  # not the identity
        for part in (norm.weight, norm.bias, norm.running_mean, norm.running_var):
            assert part is not None
            part.data += 0.3 * torch.rand(part.shape)
    x = torch.rand(2, height, width, colours)
    with torch.no_grad():
        prediction, representation = model(x)
        expected, pooled = as_written(model.state_dict(), x.movedim(3, 1))
    assert prediction.shape == x.shape
    assert representation.shape == (2, 32)
    torch.testing.assert_close(prediction, expected.movedim(1, 3), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(representation, pooled, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(model.encode(x), representation)


def test_the_model_is_that_of_the_paper() -> None:
    model = UNet(3, 16)
    blocks = [*model.down, model.bottleneck, *model.up]
    assert [[type(layer) for layer in block] for block in blocks] == [[nn.Conv2d, nn.BatchNorm2d, nn.ReLU] * 2] * 9
    made = [(block[0].in_channels, block[3].out_channels) for block in blocks]
    assert made == [
        *((3, 16), (16, 32), (32, 64), (64, 128)),
        (128, 256),
        *((256, 128), (128, 64), (64, 32), (32, 16)),
    ]
    assert {block[place].kernel_size for block in blocks for place in (0, 3)} == {(3, 3)}
    assert Settings(channels=16).latent == 256


def test_the_order_in_memory_changes_nothing_but_speed() -> None:
    model, x = unet(channels=4), torch.rand(2, 16, 24, 3)
    expected, _ = as_written(model.state_dict(), x.movedim(3, 1).contiguous())
    torch.testing.assert_close(model(x)[0], expected.movedim(1, 3), rtol=1e-4, atol=1e-5)
    state = model._descend(x)[0]
    assert state.is_contiguous(memory_format=torch.channels_last)


def test_every_skip_connection_is_used() -> None:
    model, x = unet(channels=2), torch.rand(2, 32, 32, 3)
    whole = model(x)[0]
    for block in model.up:
        first, half = block[0].weight, block[0].in_channels // 2
        before = first.detach().clone()
        with torch.no_grad():
            first[:, :half] = 0  # what comes from next to
            assert not torch.equal(model(x)[0], whole)
            first.copy_(before)
    assert torch.equal(model(x)[0], whole)


@settings(max_examples=15, deadline=None)
@given(st.integers(2, 19), st.integers(1, 19), st.booleans(), st.floats(0.05, 0.95))
def test_the_model_sees_kept_pixels_alone(height: int, width: int, exact: bool, ratio: float) -> None:
    task, key = task_of((height, width, 3), exact=exact, fill=(0.2, 0.4, 0.6)), Key.root(3)
    batch = images(3, height, width, 3)
    corrupted = task.corrupt(batch, ratio, key)
    assert corrupted.hidden.shape == batch.shape  # and so no padding is ever hidden
    assert corrupted.entries == batch.numel()
    other = task.corrupt(torch.where(corrupted.hidden, 255 - batch, batch), ratio, key)
    assert torch.equal(other.inputs, corrupted.inputs)
    expected = torch.tensor([0.2, 0.4, 0.6]).expand(batch.shape)
    assert torch.equal(corrupted.inputs[corrupted.hidden], expected[corrupted.hidden])
    clean = batch.float() / 255
    torch.testing.assert_close(corrupted.inputs[~corrupted.hidden], clean[~corrupted.hidden])
    assert (corrupted.hidden == corrupted.hidden[..., :1]).all()
    if exact:
        pixels = height * width
        count = min(max(int(pixels * ratio + 0.5 + 1e-9), 1), pixels - 1) * 3
        assert corrupted.hidden.flatten(1).sum(1).tolist() == [count] * 3


def test_the_loss_is_at_hidden_pixels_of_the_image_alone() -> None:
    task, model, batch = task_of((7, 9, 3)), unet(), images(4, 7, 9, 3)
    corrupted = task.corrupt(batch, 0.4, Key.root(1))
    output = task.forward(model, corrupted)
    losses = task.losses(output, corrupted)
    assert losses.shape == (4, 7 * 9 * 3)
    expected = (output.prediction - batch / 255).square() * corrupted.hidden
    torch.testing.assert_close(losses, expected.flatten(1))
    output.prediction.retain_grad()
    losses.sum().backward()
    assert output.prediction.grad is not None
    assert not output.prediction.grad[~corrupted.hidden].any()


def test_embedding_and_reconstruction_are_of_whole_images() -> None:
    task, model, batch = task_of((20, 12, 3)), unet(), images(5, 20, 12, 3)
    prediction, representation = model(batch / 255)
    torch.testing.assert_close(task.reconstruct(model, batch), prediction)
    torch.testing.assert_close(task.embed(model, batch), representation)
    torch.testing.assert_close(task.embed(model, batch[2:3]), representation[2:3], rtol=1e-4, atol=1e-6)


def test_other_colours_are_refused() -> None:
    task = task_of((8, 8, 3))
    with pytest.raises(UserError, match=r"faces has images of 8 x 8 x 1, and the model takes 192 values: give them"):
        embed_set(task, unet(), ImageSet("faces", images(2, 8, 8, 1).numpy()))
    with pytest.raises(UserError, match=r"model\.channels must be 1 or more"):
        Settings(channels=0)


def test_learned_weights_are_one_per_pixel_and_ratio() -> None:
    curriculum = DOMAIN.config.make(data="x", scheme="r2mae-cl").scheme.make().curriculum
    assert curriculum is not None
    task, batch = task_of((10, 6, 3)), images(8, 10, 6, 3)
    torch.manual_seed(0)
    network = task.weight_network(curriculum)
    assert isinstance(network, PositionWeights)
    assert sum(weight.numel() for weight in network.parameters()) < 5000
    corrupted = task.corrupt(batch, 0.5, Key.root(0))
    weights = task.learned_weights(network, corrupted, task.forward(unet(), corrupted))
    assert weights.shape == (10 * 6 * 3, 9)
    torch.testing.assert_close(weights.mean(0), torch.ones(9))
    by_pixel = weights.view(60, 3, 9)
    assert torch.equal(by_pixel[:, 0], by_pixel[:, 2])
    # The masks are no part of it, and neither is the order of the images.
    again = network(corrupted.targets.flip(0))
    torch.testing.assert_close(again, weights)


def test_batch_statistics_of_whole_images() -> None:
    task, model, batch = task_of((16, 16, 3)), unet(), images(40, 16, 16, 3)
    found = estimate_statistics(task, model, ImageBatches(batch.numpy()))
    assert len(found) == 2 * 18
    first = functional.conv2d((batch / 255).movedim(3, 1), model.down[0][0].weight, padding=1)
    torch.testing.assert_close(found["down.0.1.running_mean"], first.mean((0, 2, 3)), rtol=1e-4, atol=1e-6)
    # As many images as the task says, the same ones in every call.
    few = estimate_statistics(replace_samples(task, 7), model, ImageBatches(batch.numpy()))
    again = estimate_statistics(replace_samples(task, 7), model, ImageBatches(batch.numpy()))
    for name, value in few.items():
        assert torch.equal(value, again[name])
    assert not torch.equal(few["down.0.1.running_mean"], found["down.0.1.running_mean"])
    # The last block, too, which an embedding does not reach.
    assert not torch.equal(found["up.3.4.running_mean"], model.state_dict()["up.3.4.running_mean"])


@pytest.mark.parametrize("channels", [4, 8, 16, 32])
def test_presets_have_the_recipe_of_the_paper(channels: int) -> None:
    config = ImagesConfig.from_dict({"data": "digits", **DOMAIN.presets[f"unet-{channels}"]})
    assert (config.model.name, config.model.channels) == ("unet", channels)
    assert (config.optimizer.name, config.optimizer.lr, config.optimizer.batch_size, config.optimizer.epochs) == (
        "adam",
        1e-3,
        256,
        10,
    )
    assert (config.optimizer.weight_decay, config.optimizer.schedule, config.optimizer.warmup) == (0, "constant", 0)
