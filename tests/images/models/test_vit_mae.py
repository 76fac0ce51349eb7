"""The masked autoencoder of patches against transformers', and what it promises of masks, lengths and gradients."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from images.models.vit_reference import stock_of
from r2mae.errors import UserError
from r2mae.images.models.vit_mae import Settings, build
from r2mae.images.models.vit_mae.model import VisionTransformerMAE, positions
from r2mae.images.models.vit_mae.task import HiddenPatches, PatchTask
from r2mae.images.patches import patchify, standardised
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
def test_it_equals_the_stock_model(layers: int, norm_pix: bool) -> None:
    task, model = made(decoder_layers=layers, norm_pix=norm_pix)
    batch = pictures()
    corrupted = task.corrupt(batch, 0.75, KEY)
    output = task.forward(model, corrupted)
    stock = stock_of(model, norm_pix=norm_pix)
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
