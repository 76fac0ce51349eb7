from pathlib import Path

import numpy as np
import pytest
import torch

from r2mae.errors import UserError
from r2mae.images.classifier import ClassificationTask, Classifier, evaluate
from r2mae.images.config import FinetuneConfig
from r2mae.images.data import ImageSet
from r2mae.images.evaluate import embed_set
from r2mae.images.models import MODELS
from r2mae.images.models.vit_mae.model import VisionTransformerMAE
from r2mae.images.patches import standardised
from r2mae.masking.keys import Key
from r2mae.training.models import build_model

VIT = {
    "model": "vit-mae",
    "shape": [8, 8, 3],
    "patch": 4,
    "width": 12,
    "layers": 3,
    "heads": 2,
    "decoder_width": 8,
    "decoder_layers": 1,
    "decoder_heads": 1,
}
KEY = Key.root(0)
TASK = ClassificationTask((8, 8, 3))


def made(drop_path: float = 0.0, classes: int = 3) -> Classifier:
    _, model = build_model(MODELS, VIT)
    assert isinstance(model, VisionTransformerMAE)
    return Classifier(model, classes, drop_path=drop_path)


def test_a_layer_learns_at_its_share_of_the_rate() -> None:
    model, config = made(), FinetuneConfig.make(data="", run="", layer_decay=0.5)
    groups = TASK.parameter_groups(model, config)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    scales = {names[id(one)]: group.scale for group in groups for one in group.parameters}
    assert set(scales) == set(names.values()), "every parameter is in one group"
    assert groups[0].scale == 1.0, "whose rate the metrics tell"
    for name, expected in {
        "head.weight": 1.0,
        "fc_norm.weight": 1.0,
        "blocks.2.mlp.fc1.weight": 0.5,
        "blocks.0.norm1.bias": 0.5**3,
        "patch_embed.proj.weight": 0.5**4,
        "cls_token": 0.5**4,
        "pos_embed": 0.5**4,
    }.items():
        assert scales[name] == expected, name
    decayed = {names[id(one)] for group in groups if group.decayed for one in group.parameters}
    assert "blocks.0.attn.qkv.weight" in decayed
    assert not decayed & {"cls_token", "pos_embed", "head.bias", "fc_norm.weight", "blocks.0.norm1.weight"}


def test_features_of_a_fine_tuned_model_begin_as_those_of_the_pretrained_one() -> None:
    _, pretrained = build_model(MODELS, VIT)
    torch.nn.init.normal_(pretrained.norm.weight)
    images = torch.rand(5, 8, 8, 3)
    model = made()
    model.load_state_dict(pretrained.state_dict(), strict=False)
    pretrained.norm = torch.nn.Identity()  # the mean before the pretrained norm, which a fresh one replaces
    before = pretrained.encode(standardised(images))[:, 1:].mean(1)
    expected = torch.nn.functional.layer_norm(before, (12,), eps=1e-6)
    assert torch.allclose(model.eval().features(images), expected, atol=1e-5)


def test_drop_path_keeps_the_mean_and_skips_the_last_layer_most() -> None:
    model, images = made(drop_path=0.6), torch.rand(64, 8, 8, 3)
    assert model.rates == pytest.approx([0.0, 0.3, 0.6])
    assert torch.equal(model.eval().features(images), made_like(model).eval().features(images))
    assert model.factors(64, KEY) is None, "only in training"
    factors = model.train().factors(4000, KEY)
    assert factors is not None
    assert factors.shape == (4000, 3, 2)
    for layer, rate in enumerate(model.rates):
        assert factors[:, layer].unique().tolist() == pytest.approx([0.0, 1 / (1 - rate)] if rate else [1.0])
        assert float(factors[:, layer].mean()) == pytest.approx(1.0, abs=0.05)
    assert not torch.allclose(model(images, factors[:64]), model(images))
    none = torch.ones(64, 3, 2)
    assert torch.allclose(model.features(images, none), model.features(images), atol=1e-6)


@pytest.mark.parametrize("parts", [(32, 32), (8, 40, 16)])
def test_layers_are_dropped_by_row_however_the_batch_is_divided(parts: tuple[int, ...]) -> None:
    """Whatever torch's own generator, which is another one in every process, has drawn before."""
    model, images = made(drop_path=0.6).train(), torch.rand(64, 8, 8, 3)
    targets, key = torch.ones(64, 3), KEY.fold(7)
    model.head.weight.data.normal_(generator=torch.Generator().manual_seed(0))

    def logits(first: int, rows: int) -> torch.Tensor:
        batch = {"images": images[first : first + rows], "targets": targets[first : first + rows]}
        return TASK.forward(model, TASK.corrupt(batch, 0.0, key.rows(first))).prediction

    whole, first = logits(0, 64), 0
    for rows in parts:
        torch.rand(3)
        assert torch.allclose(logits(first, rows), whole[first : first + rows], atol=1e-5)
        first += rows


def made_like(model: Classifier) -> Classifier:
    other = made(drop_path=0.0)
    other.load_state_dict(model.state_dict())
    return other


def test_the_loss_is_the_cross_entropy_of_soft_labels() -> None:
    targets = torch.tensor([[0.2, 0.8, 0.0], [1.0, 0.0, 0.0]])
    model = made().eval()
    batch = {"images": torch.randint(0, 256, (2, 8, 8, 3), dtype=torch.uint8), "targets": targets}
    corrupted = TASK.corrupt(batch, 0.0, KEY)
    output = TASK.forward(model, corrupted)
    assert bool(corrupted.hidden.all())
    expected = torch.nn.functional.cross_entropy(output.prediction, targets, reduction="none")
    assert torch.allclose(TASK.losses(output, corrupted), expected)


def test_scores_are_of_the_first_classes() -> None:
    model = made(classes=8).eval()
    images, labels = np.random.default_rng(0).integers(0, 256, (20, 8, 8, 3), np.uint8), np.arange(20) % 8
    model.head.weight.data.normal_(generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        logits = model(torch.from_numpy(images).float() / 255)
    best = logits.argsort(1, descending=True)
    scores = evaluate(model, ImageSet("x", images, labels, tuple("abcdefgh")))
    for name, k in {"top1": 1, "top5": 5}.items():
        assert scores[name] == pytest.approx((best[:, :k].numpy() == labels[:, None]).any(1).mean())


def test_logits_that_are_not_finite_are_no_result() -> None:
    model = made()
    model.head.weight.data[0] = torch.nan
    images = np.zeros((5, 8, 8, 3), np.uint8)
    with pytest.raises(UserError, match="5 of 5 images of x are not finite"):
        evaluate(model, ImageSet("x", images, np.zeros(5, np.int64), ("a", "b", "c")))


def test_images_of_another_size_are_refused() -> None:
    images = ImageSet("small", np.zeros((5, 8, 4, 3), np.uint8))
    with pytest.raises(UserError, match=r"images of 8 x 4 x 3, and the model takes 8 x 8 x 3: add --resize 8"):
        embed_set(TASK, made(), images)


def test_a_folder_of_a_fine_tuned_model_has_names_of_timm(tmp_path: Path) -> None:
    names = made().state_dict().keys()
    assert {"cls_token", "pos_embed", "patch_embed.proj.weight", "blocks.0.attn.qkv.weight", "fc_norm.weight"} < names
    assert not [name for name in names if name.startswith(("decoder", "mask_token", "norm."))]
