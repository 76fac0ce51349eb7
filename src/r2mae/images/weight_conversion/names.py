"""The names of a vision transformer's parameters: the original MAE's (ours, and timm's), and those of transformers.

transformers keeps queries, keys and values apart, where MAE and timm have one matrix ``qkv``. Its names changed with
version 5; both are read, and the older are written, which every version opens.
"""

import re
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from r2mae.errors import UserError

State = dict[str, Tensor]

PATCHES = "patch_embed.proj.weight"
"""A name of every such model; its shape is (width, channels, patch, patch)."""

_ENCODER = {
    "cls_token": "embeddings.cls_token",
    "pos_embed": "embeddings.position_embeddings",
    "patch_embed.proj": "embeddings.patch_embeddings.projection",
    "norm": "layernorm",
}
_OTHERS = {
    "decoder_embed": "decoder.decoder_embed",
    "mask_token": "decoder.mask_token",
    "decoder_pos_embed": "decoder.decoder_pos_embed",
    "decoder_norm": "decoder.decoder_norm",
    "decoder_pred": "decoder.decoder_pred",
    "head": "classifier",
}
_TOKENS = ("cls_token", "pos_embed", "mask_token", "decoder_pos_embed")  # the others have weights and biases
_LAYERS = {"blocks": "encoder.layer", "decoder_blocks": "decoder.decoder_layers"}
_QKV = ("query", "key", "value")
_PARTS = {
    "norm1": ("layernorm_before",),
    "attn.qkv": tuple(f"attention.attention.{part}" for part in _QKV),
    "attn.proj": ("attention.output.dense",),
    "norm2": ("layernorm_after",),
    "mlp.fc1": ("intermediate.dense",),
    "mlp.fc2": ("output.dense",),
}
_VIT = "vit."
# From version 5 on, towards the older names. Some of its versions save the decoder's layers under a third name.
_NEWER = {
    r"^vit\.": "",
    r"^decoder\.decoder_encoder\.layer\.": "decoder.decoder_layers.",
    r"^layers\.": "encoder.layer.",
    r"\.attention\.q_proj\.": ".attention.attention.query.",
    r"\.attention\.k_proj\.": ".attention.attention.key.",
    r"\.attention\.v_proj\.": ".attention.attention.value.",
    r"\.attention\.o_proj\.": ".attention.output.dense.",
    r"\.mlp\.fc1\.": ".intermediate.dense.",
    r"\.mlp\.fc2\.": ".output.dense.",
}
_STOCK_PATCHES = "embeddings.patch_embeddings.projection.weight"


def count_layers(names: Iterable[str], prefix: str) -> int:
    """Return the number of layers in names such as ``blocks.0.norm1.bias``, for the prefix ``blocks``."""
    return len({name.removeprefix(f"{prefix}.").split(".")[0] for name in names if name.startswith(f"{prefix}.")})


def name_table(layers: Mapping[str, int], prefix: str = "") -> dict[str, tuple[str, ...]]:
    """Return the names in transformers (three for ``qkv``) of every parameter of ours.

    `layers` are the numbers of ``blocks`` and ``decoder_blocks``, and `prefix` is that of the encoder's names.
    """
    modules = {ours: prefix + theirs for ours, theirs in _ENCODER.items()} | _OTHERS
    parts: dict[str, tuple[str, ...]] = {ours: (theirs,) for ours, theirs in modules.items()}
    for blocks, place in _LAYERS.items():
        before = prefix + place if blocks == "blocks" else place
        for number in range(layers[blocks]):
            for ours, names in _PARTS.items():
                parts[f"{blocks}.{number}.{ours}"] = tuple(f"{before}.{number}.{name}" for name in names)
    pairs = {token: parts.pop(token) for token in _TOKENS}
    for ours, names in parts.items():
        pairs |= {f"{ours}.{kind}": tuple(f"{name}.{kind}" for name in names) for kind in ("weight", "bias")}
    return pairs


def unwrapped(state: Mapping[str, Tensor]) -> State:
    """Remove what wrappers put before every name, such as ``module.``, ``_orig_mod.`` or ``vit.``."""
    for known in (PATCHES, _STOCK_PATCHES):
        if found := next((name for name in state if f".{name}".endswith(f".{known}")), None):
            for wrapper in found.removesuffix(known).split(".")[:-1]:
                state = {name.removeprefix(f"{wrapper}."): value for name, value in state.items()}
            break
    return dict(state)


def is_transformers(names: Iterable[str]) -> bool:
    """Return whether names are those of a ViT of transformers."""
    return any(name.removeprefix(_VIT) == _STOCK_PATCHES for name in names)


def from_transformers(state: Mapping[str, Tensor]) -> State:
    """Rename the parameters of a ViT of transformers; those that we do not have keep their names.

    Raises
    ------
    UserError
        If a layer lacks one of queries, keys and values.
    """
    older = {_older_name(name): name for name in state}
    found: State = {}
    used = set()
    for ours, names in name_table({blocks: count_layers(older, place) for blocks, place in _LAYERS.items()}).items():
        parts = [state[older[name]] for name in names if name in older]
        if len(names) > 1 and 0 < len(parts) < len(names):
            missing = [part for part, name in zip(_QKV, names, strict=True) if name not in older]
            raise UserError(f"{ours} has no {' and no '.join(missing)} projection: the file is not complete")
        if parts:
            found[ours] = parts[0] if len(parts) == 1 else torch.cat(parts)
        used |= {older[name] for name in names if name in older}
    return found | {name: value for name, value in state.items() if name not in used}


def _older_name(name: str) -> str:
    for pattern, older in _NEWER.items():
        name = re.sub(pattern, older, name)
    return name


def for_transformers(state: Mapping[str, Tensor], prefix: str = _VIT) -> State:
    """Rename our parameters to those of transformers' ``ViTMAEForPreTraining`` or ``ViTForImageClassification``.

    They may lack a decoder and a ``head``. The prefix of the encoder is empty for a ``ViTModel``.
    """
    table = name_table({blocks: count_layers(state, blocks) for blocks in _LAYERS}, prefix)
    found: State = {}
    for ours, value in state.items():
        parts = value.chunk(len(table[ours])) if len(table[ours]) > 1 else (value,)
        found |= dict(zip(table[ours], (part.clone() if len(parts) > 1 else part for part in parts), strict=True))
    return found
