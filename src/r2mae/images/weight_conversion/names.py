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
"""What every such model has; its shape is (width, channels, patch, patch)."""

# Ours on the left; `@` stands for a prefix, the encoder's or none.
_SINGLE_NAMES = {
    "cls_token": "@embeddings.cls_token",
    "pos_embed": "@embeddings.position_embeddings",
    "patch_embed.proj": "@embeddings.patch_embeddings.projection",
    "norm": "@layernorm",
    "decoder_embed": "decoder.decoder_embed",
    "mask_token": "decoder.mask_token",
    "decoder_pos_embed": "decoder.decoder_pos_embed",
    "decoder_norm": "decoder.decoder_norm",
    "decoder_pred": "decoder.decoder_pred",
    "head": "classifier",
}
_BLOCK_NAMES = {
    "norm1": "layernorm_before",
    "attn.proj": "attention.output.dense",
    "norm2": "layernorm_after",
    "mlp.fc1": "intermediate.dense",
    "mlp.fc2": "output.dense",
}
_QKV = ("query", "key", "value")
_BLOCKS = {"blocks": "@encoder.layer", "decoder_blocks": "decoder.decoder_layers"}
_VIT = "vit."
# From version 5 on, towards the older names. Some of its versions save the decoder's layers under a third name.
_NEWER = (
    (re.compile(r"^decoder\.decoder_encoder\.layer\."), "decoder.decoder_layers."),
    (re.compile(r"^layers\."), "encoder.layer."),
    (re.compile(r"\.attention\.q_proj\."), ".attention.attention.query."),
    (re.compile(r"\.attention\.k_proj\."), ".attention.attention.key."),
    (re.compile(r"\.attention\.v_proj\."), ".attention.attention.value."),
    (re.compile(r"\.attention\.o_proj\."), ".attention.output.dense."),
    (re.compile(r"\.mlp\.fc1\."), ".intermediate.dense."),
    (re.compile(r"\.mlp\.fc2\."), ".output.dense."),
)
_WRAPPERS = frozenset({"module", "_orig_mod", "model", "backbone", "encoder"})
_STOCK_PATCHES = "embeddings.patch_embeddings.projection.weight"


def unwrapped(state: Mapping[str, Tensor]) -> State:
    """Take away what wrappers put before every name, such as ``module.`` or ``_orig_mod.``."""
    for known in (PATCHES, _VIT + _STOCK_PATCHES, _STOCK_PATCHES):
        found = next((name for name in state if name.endswith(f".{known}")), known)
        before = found.removesuffix(known)
        if before and set(before.split(".")) <= _WRAPPERS | {""}:
            return {name.removeprefix(before): value for name, value in state.items()}
    return dict(state)


def is_transformers(names: Iterable[str]) -> bool:
    """Return whether names are those of a ViT of transformers."""
    return any(name.removeprefix(_VIT) == _STOCK_PATCHES for name in names)


def from_transformers(state: Mapping[str, Tensor]) -> State:
    """Rename the parameters of a ViT of transformers; what has no place in ours keeps its name.

    Raises
    ------
    UserError
        If a layer lacks one of queries, keys and values.
    """
    found: State = {}
    parts: dict[str, dict[str, Tensor]] = {}
    for name, value in state.items():
        ours = _own_name(_older_name(name.removeprefix(_VIT)))
        if "|" in ours:
            whole, part = ours.split("|")
            parts.setdefault(whole, {})[part] = value
        else:
            found[ours if ours else name] = value
    for whole, three in parts.items():
        if missing := [part for part in _QKV if part not in three]:
            raise UserError(f"{whole} has no {' and no '.join(missing)} projection: the file is not complete")
        found[whole] = torch.cat([three[part] for part in _QKV])
    return found


def for_transformers(state: Mapping[str, Tensor], prefix: str = _VIT) -> State:
    """Rename our parameters to those of transformers' ``ViTMAEForPreTraining`` or ``ViTForImageClassification``.

    Parameters
    ----------
    state : mapping of str to tensor
        With or without a decoder and a ``head``.
    prefix : str
        Of the encoder; empty for a ``ViTModel``.
    """
    found: State = {}
    for name, value in state.items():
        theirs = _transformers_name(name).replace("@", prefix)
        if "|" in theirs:
            before, after = theirs.split("|")
            for part, one in zip(_QKV, value.chunk(3), strict=True):
                found[f"{before}{part}{after}"] = one.clone()
        else:
            found[theirs] = value
    return found


def _older_name(name: str) -> str:
    for pattern, older in _NEWER:
        name = pattern.sub(older, name)
    return name


def _own_name(name: str) -> str:
    """Return our name; ``whole|part`` for a third of it; nothing for what we do not have."""
    for ours, theirs in _BLOCKS.items():
        match = re.match(rf"{re.escape(theirs.removeprefix('@'))}\.(\d+)\.(.+)\.(weight|bias)$", name)
        if match is None:
            continue
        number, part, kind = match.groups()
        if part.startswith("attention.attention."):
            return f"{ours}.{number}.attn.qkv.{kind}|{part.removeprefix('attention.attention.')}"
        known = {value: key for key, value in _BLOCK_NAMES.items()}
        return f"{ours}.{number}.{known[part]}.{kind}" if part in known else ""
    for ours, theirs in _SINGLE_NAMES.items():
        place = theirs.removeprefix("@")
        if name == place or name in (f"{place}.weight", f"{place}.bias"):
            return ours + name.removeprefix(place)
    return ""


def _transformers_name(name: str) -> str:
    """Return the name in transformers, where a bar stands for query, key or value."""
    match = re.match(r"(blocks|decoder_blocks)\.(\d+)\.(.+)\.(weight|bias)$", name)
    if match is not None:
        blocks, number, part, kind = match.groups()
        place = f"{_BLOCKS[blocks]}.{number}"
        return f"{place}.attention.attention.|.{kind}" if part == "attn.qkv" else f"{place}.{_BLOCK_NAMES[part]}.{kind}"
    for ours, theirs in _SINGLE_NAMES.items():
        if name == ours or name in (f"{ours}.weight", f"{ours}.bias"):
            return theirs + name.removeprefix(ours)
    raise KeyError(name)
