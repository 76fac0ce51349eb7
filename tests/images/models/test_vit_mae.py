"""The masked autoencoder of patches against transformers', and what it promises of masks, lengths and gradients."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import ViTMAEForPreTraining

from r2mae.errors import UserError
from r2mae.files import write_json
from r2mae.images.models.vit_mae import Settings, build
from r2mae.images.models.vit_mae.model import HiddenPatches, PatchTask, VisionTransformerMAE, positions
from r2mae.images.patches import patchify, standardised
from r2mae.images.weights import for_transformers, transformers_config
from r2mae.masking.keys import Key
from r2mae.masking.schemes import make_scheme

KEY = Key.root(0).fold("mask", 3)
SIZES = {"width": 48, "layers": 2, "heads": 3, "decoder_width": 32, "decoder_layers": 2, "decoder_heads": 2}


def made(seed: int = 0, **settings: Any) -> tuple[PatchTask, VisionTransformerMAE]:
    torch.manual_seed(seed)
    shape = settings.pop("shape", [32, 32, 3])
    task, model = build({"model": "vit-mae", "shape": shape, "patch": 8, **SIZES, **settings})
    with torch.no_grad():  # biases and norms that are not at their start tell more
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return task, model


def pictures(rows: int = 6, shape: tuple[int, ...] = (32, 32, 3), seed: int = 0) -> Tensor:
    return torch.randint(0, 256, (rows, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def loss_of(task: PatchTask, model: VisionTransformerMAE, corrupted: HiddenPatches) -> Tensor:
    return task.losses(task.forward(model, corrupted), corrupted).sum() / corrupted.count


@pytest.mark.parametrize("norm_pix", [True, False])
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_it_equals_the_stock_model(layers: int, norm_pix: bool, tmp_path: Path) -> None:
    task, model = made(decoder_layers=layers, norm_pix=norm_pix)
    batch = pictures()
    corrupted = task.corrupt(batch, 0.75, KEY)
    output = task.forward(model, corrupted)
    own = {"shape": [32, 32, 3], "patch": 8, "norm_pix": norm_pix, **SIZES, "decoder_layers": layers, "ratio": 0.75}
    (tmp_path / "stock").mkdir()
    save_file(for_transformers(model.state_dict()), tmp_path / "stock" / "model.safetensors", {"format": "pt"})
    write_json(tmp_path / "stock" / "config.json", transformers_config(own))
    stock, told = ViTMAEForPreTraining.from_pretrained(tmp_path / "stock", output_loading_info=True)
    assert not any(told.values()), told
    theirs = stock(
        pixel_values=standardised(batch).movedim(3, 1), noise=corrupted.hidden.float() + torch.arange(16) / 100
    )
    assert torch.equal(theirs.mask.bool(), corrupted.hidden)
    loss = loss_of(task, model, corrupted)
    torch.testing.assert_close(loss, theirs.loss, rtol=1e-5, atol=1e-5)
    predicted = theirs.logits[corrupted.hidden]
    torch.testing.assert_close(output.prediction, predicted, rtol=1e-4, atol=1e-5)
    loss.backward()
    theirs.loss.backward()
    torch.testing.assert_close(model.mask_token.grad, stock.decoder.mask_token.grad, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(model.cls_token.grad, stock.vit.embeddings.cls_token.grad, rtol=1e-4, atol=1e-6)
    first = stock.vit.layers[0].attention.q_proj.weight.grad
    torch.testing.assert_close(model.blocks[0].attn.qkv.weight.grad[:48], first, rtol=1e-4, atol=1e-6)
    pred = stock.decoder.decoder_pred.weight.grad
    torch.testing.assert_close(model.decoder_pred.weight.grad, pred, rtol=1e-4, atol=1e-6)


def test_the_model_does_not_see_hidden_patches() -> None:
    task, model = made()
    batch = pictures()
    pixels = task.corrupt(batch, 0.6, KEY).hidden.view(-1, 4, 4, 1).repeat_interleave(8, 1).repeat_interleave(8, 2)
    for ratio in (0.6, np.full(6, 0.6)):
        outputs = [
            task.forward(model, task.corrupt(one, ratio, KEY)).prediction
            for one in (batch, torch.where(pixels, pictures(seed=1), batch))
        ]
        assert torch.equal(*outputs)


def test_images_of_their_own_ratios_are_packed_and_equal_to_single_ones() -> None:
    task, model = made()
    batch = pictures(7)
    ratios = np.array([0.3, 0.9, 0.6, 0.9, 0.05, 0.5, 0.6])
    packed = task.corrupt(batch, ratios, KEY)
    hidden = np.clip(np.floor(ratios * 16 + 0.5), 1, 15)
    assert len(packed.choice.keep) == (16 - hidden).sum()  # no padding
    assert len(packed.choice.groups) == len(set(hidden))
    loss_of(task, model, packed).backward()
    together = [parameter.grad.clone() for parameter in model.parameters() if parameter.requires_grad]
    model.zero_grad()
    total = 0.0
    for row, ratio in enumerate(ratios.tolist()):
        alone = task.corrupt(batch[row : row + 1], ratio, KEY.rows(row))
        assert torch.equal(alone.hidden[0], packed.hidden[row])
        loss = task.losses(task.forward(model, alone), alone).sum() / packed.count
        loss.backward()
        total += float(loss.detach())
    assert float(loss_of(task, model, packed).detach()) == pytest.approx(total, rel=1e-5)
    single = [parameter.grad for parameter in model.parameters() if parameter.requires_grad]
    for one, other in zip(together, single, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_masks_are_the_same_for_a_ratio_of_the_batch_and_of_each_image() -> None:
    task, _ = made()
    batch = pictures()
    one, each = (task.corrupt(batch, ratio, KEY) for ratio in (0.7, np.full(6, 0.7)))
    assert torch.equal(one.hidden, each.hidden)
    assert torch.equal(one.hidden[3:], task.corrupt(batch[3:], 0.7, KEY.rows(3)).hidden)
    assert (one.hidden.sum(1) == round(0.7 * 16)).all()
    assert one.count == int(one.hidden.sum())
    assert one.entries == 6 * 16


@pytest.mark.parametrize("ratio", [0.0, 1.0])
def test_one_patch_is_hidden_and_one_is_kept_at_least(ratio: float) -> None:
    task, model = made()
    corrupted = task.corrupt(pictures(), ratio, KEY)
    assert (corrupted.hidden.sum(1) == (1 if ratio == 0 else 15)).all()
    assert torch.isfinite(loss_of(task, model, corrupted))


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_compiled_code_builds_few_graphs_for_all_ratios_and_gives_the_same_numbers() -> None:
    task, model = made()
    torch._dynamo.reset()
    counters = torch._dynamo.utils.counters["stats"]
    counters.clear()
    batches = [task.corrupt(pictures(), ratio, KEY) for ratio in np.linspace(0.3, 0.9, 9).tolist()]
    expected = [loss_of(task, model, one).item() for one in batches]
    model.compile(backend="eager")  # what is counted is graphs, and these are traced alike for any backend
    assert [loss_of(task, model, one).item() for one in batches] == pytest.approx(expected, rel=1e-5)
    assert 1 <= counters["unique_graphs"] <= 3


def test_attention_in_16_bits_has_the_gradient_of_32_bits() -> None:
    """On a CPU it is computed in 32 bits, between products of 16."""
    task, model = made(decoder_layers=3)
    corrupted = task.corrupt(pictures(), 0.75, KEY)
    gradients = []
    for enabled in (False, True):
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            loss = loss_of(task, model, corrupted)
        loss.backward()
        gradients.append({name: one.grad.clone() for name, one in model.named_parameters() if one.grad is not None})
    for name, exact in gradients[0].items():
        assert float((gradients[1][name] - exact).norm() / exact.norm()) < 0.1, name


def test_targets_are_patches_relative_to_themselves() -> None:
    batch = pictures()
    plain, own = (made(norm_pix=norm_pix)[0].corrupt(batch, 0.5, KEY) for norm_pix in (False, True))
    patches = patchify(standardised(batch), 8)
    torch.testing.assert_close(plain.targets, patches[plain.hidden])
    torch.testing.assert_close(own.targets.mean(1), torch.zeros(len(own.targets)), atol=1e-5, rtol=0)
    torch.testing.assert_close(own.targets.std(1), torch.ones(len(own.targets)), atol=1e-3, rtol=0)
    torch.testing.assert_close(plain.inputs, patches[~plain.hidden])


def test_pictures_keep_what_was_seen_and_bring_normalised_patches_back() -> None:
    task, model = made()
    batch = pictures().float() / 255

    class Knowing(VisionTransformerMAE):
        def forward(self, *arguments: Any) -> Any:
            return corrupted.targets, torch.zeros(len(corrupted.targets), 32)

    model.__class__ = Knowing
    corrupted = task.corrupt(batch, 0.5, KEY)
    original, masked, completed = task.complete(model, batch, 0.5, KEY)
    torch.testing.assert_close(completed, batch, atol=1e-4, rtol=0)  # a perfect model gives the image back
    assert torch.equal(original, batch)
    pixels = corrupted.hidden.view(-1, 4, 4, 1).repeat_interleave(8, 1).repeat_interleave(8, 2).expand(batch.shape)
    assert (masked[pixels] == 0.5).all()  # black would be a colour of the image
    assert torch.equal(masked[~pixels], batch[~pixels])


@pytest.mark.parametrize("channels", [1, 3])
def test_embeddings_are_of_whole_images(channels: int) -> None:
    task, model = made(shape=[32, 16, channels])
    batch = pictures(shape=(32, 16, channels))
    states = model.encode(standardised(batch))
    assert states.shape == (6, 1 + 8, 48)
    found = task.embed(model, batch)
    torch.testing.assert_close(found, states[:, 1:].mean(1))
    torch.testing.assert_close(task.embed(model, batch[2:3]), found[2:3], rtol=1e-4, atol=1e-5)
    with pytest.raises(UserError, match=r"has images of 16 x 16 x 3, and the model takes 32 x 16"):
        task.check_images("others", (16, 16, 3))


def test_weights_of_a_curriculum_are_of_hidden_patches() -> None:
    task, model = made()
    curriculum = make_scheme("r2mae-cl", Settings.ratios).curriculum
    assert curriculum is not None
    corrupted = task.corrupt(pictures(), 0.75, KEY)
    network = task.weight_network(curriculum)
    weights = task.learned_weights(network, corrupted, task.forward(model, corrupted))
    assert weights.shape == (corrupted.count, len(curriculum.grid.values))
    np.testing.assert_allclose(weights.detach().mean(0).numpy(), 1, rtol=1e-4)
    weights.sum().backward()
    assert model.mask_token.grad is None  # the representation is detached


def test_positions_are_those_of_the_stock_model() -> None:
    from transformers.models.vit_mae.modeling_vit_mae import build_2d_sinusoidal_position_embedding

    stock = build_2d_sinusoidal_position_embedding(3, 5, 24, cls_token=True)
    # The original has the column first, transformers the row: checkpoints bring their own table.
    expected = torch.cat([stock[:, 12:], stock[:, :12]], 1)
    torch.testing.assert_close(positions(24, (3, 5))[0], expected)
    wide = positions(24, (2, 3))[0, 1:].view(2, 3, 24)
    assert torch.equal(wide[0, :, :12], wide[1, :, :12])  # the first half tells the column
    assert torch.equal(wide[:, 0, 12:], wide[:, 2, 12:])


def test_fresh_weights_are_those_of_the_original() -> None:
    _, model = build({"model": "vit-mae", "shape": [32, 32, 3], "patch": 8, **SIZES})
    for name, parameter in model.named_parameters():
        if name.endswith("proj.weight") and parameter.ndim == 4:
            bound = (6 / (48 + 192)) ** 0.5
            assert 0.9 * bound < float(parameter.detach().abs().max()) <= bound
        elif parameter.ndim == 2:
            bound = (6 / sum(parameter.shape)) ** 0.5
            assert 0.9 * bound < float(parameter.detach().abs().max()) <= bound
    assert {name for name, one in model.named_parameters() if not one.requires_grad} == {
        "pos_embed", "decoder_pos_embed",
    }  # fmt: skip
    assert 0.005 < float(model.cls_token.detach().std()) < 0.04


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"patch": 7}, "patches of 7 x 7 do not divide images of 32 x 32"),
        ({"patch": 64}, "patches of 64 x 64 do not divide"),
        ({"heads": 5}, "width 48 does not divide among 5 heads"),
        ({"decoder_width": 6, "decoder_heads": 2}, "multiple of 4"),
        ({"layers": 0}, r"model\.layers must be 1 to 1,000"),
        ({"decoder_layers": 1001}, r"model\.decoder_layers must be 1 to 1,000, not 1001"),
    ],
)
def test_impossible_sizes_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        made(**settings)
