"""The stock masked autoencoder of transformers with the weights of ours."""

import torch
from torch import Tensor

from r2mae.images.models.vit_mae.model import VisionTransformerMAE


def stock_names(name: str, value: Tensor) -> dict[str, Tensor]:
    """Return what transformers calls a parameter; queries, keys and values are three there."""
    head, _, rest = name.partition(".")
    fixed = {
        "cls_token": "vit.embeddings.cls_token",
        "pos_embed": "vit.embeddings.position_embeddings",
        "mask_token": "decoder.mask_token",
        "decoder_pos_embed": "decoder.decoder_pos_embed",
    }
    if name in fixed:
        return {fixed[name]: value}
    if head == "patch_embed":
        return {name.replace("patch_embed.proj", "vit.embeddings.patch_embeddings.projection"): value}
    if head == "norm":
        return {f"vit.layernorm.{rest}": value}
    if head not in ("blocks", "decoder_blocks"):
        return {f"decoder.{name}": value}
    place, _, inner = rest.partition(".")
    before = f"vit.layers.{place}" if head == "blocks" else f"decoder.decoder_layers.{place}"
    if inner.startswith("attn.qkv"):
        kind = inner.rpartition(".")[2]
        parts = zip(("q_proj", "k_proj", "v_proj"), value.chunk(3), strict=True)
        return {f"{before}.attention.{part}.{kind}": piece for part, piece in parts}
    for ours, theirs in {
        "attn.proj": "attention.o_proj",
        "norm1": "layernorm_before",
        "norm2": "layernorm_after",
    }.items():
        inner = inner.replace(ours, theirs)
    return {f"{before}.{inner}": value}


def stock_of(model: VisionTransformerMAE, *, norm_pix: bool = True, ratio: float = 0.75) -> torch.nn.Module:
    """Return ``ViTMAEForPreTraining`` with the model's sizes and weights."""
    from transformers import ViTMAEConfig, ViTMAEForPreTraining

    encoder, decoder = model.blocks[0].attn, model.decoder_blocks[0].attn
    width, narrow = model.cls_token.shape[2], model.mask_token.shape[2]
    stock = ViTMAEForPreTraining(
        ViTMAEConfig(
            hidden_size=width,
            num_hidden_layers=len(model.blocks),
            num_attention_heads=encoder.heads,
            intermediate_size=4 * width,
            image_size=model.shape[0],
            patch_size=model.patch,
            num_channels=model.shape[2],
            decoder_hidden_size=narrow,
            decoder_num_hidden_layers=len(model.decoder_blocks),
            decoder_num_attention_heads=decoder.heads,
            decoder_intermediate_size=4 * narrow,
            layer_norm_eps=1e-6,
            norm_pix_loss=norm_pix,
            mask_ratio=ratio,
        )
    )
    weights = {}
    for name, value in model.state_dict().items():
        weights |= stock_names(name, value)
    stock.load_state_dict(weights)
    return stock
