"""Start a model with weights from a file: what fits is taken, what is missing stays random, the rest is refused."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import interpolate

from r2mae.errors import UserError
from r2mae.images.models.vit_mae.model import VisionTransformerMAE, positions
from r2mae.images.patches import MEAN
from r2mae.images.weight_conversion.files import Weights, read_weights
from r2mae.images.weight_conversion.names import PATCHES, State, count_layers
from r2mae.training.initial import Origin

_SHOWN = 3  # names that a line repeats
_DECODER = ("decoder_", "mask_token")
# Of classifiers, and of other losses: no part of what is pretrained here.
_OMITTED = (
    *("head.", "head_dist.", "fc_norm.", "pooler.", "pre_logits.", "classifier.", "decoder.", "vit.pooler."),
    *("embeddings.mask_token", "vit.embeddings.mask_token"),
)
_CLOSE = 1e-3
_SINE_ERROR = 5e-3  # the largest change of sines that are stored in 16 bits
Table = Float[Tensor, "1 tokens width"]
Found = Float[Tensor, "1 others width"]


@dataclass(frozen=True)
class Fitted:
    """Weights for a model.

    Parameters
    ----------
    state : mapping of str to tensor
        A value for every name that is not fresh, in the model's own type.
    fresh, unused : tuple of str
        Names of the model that the file does not have, and names of the file that the model does not have.
    notes : tuple of str
        What a user should know.
    """

    state: State
    fresh: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def load_initial_weights(path: str | Path, model: nn.Module) -> Origin:
    """Let a fresh model start with the weights of a file or folder.

    Parameters
    ----------
    path : path
        See :func:`r2mae.images.weight_conversion.files.read_weights`.
    model : VisionTransformerMAE
        Its encoder gets all of its weights from there; so does its decoder if the file has one.

    Raises
    ------
    UserError
        If the weights are of another architecture, or damaged.
    """
    assert isinstance(model, VisionTransformerMAE)
    weights = read_weights(path)
    fitted = fit_weights(weights, model)
    model.load_state_dict({**model.state_dict(), **fitted.state})
    return Origin(Path(path), weights.files, weights.layout, fitted.notes)


def fit_weights(weights: Weights, model: VisionTransformerMAE) -> Fitted:
    """Choose and check the weights for a model, which is not changed.

    Raises
    ------
    UserError
        If they are of another architecture. It names the sizes, or the first weights that are missing, unknown or of
        another shape.
    """
    own, path = model.state_dict(), weights.path
    _check_sizes(weights, own, model)
    wanted = [name for name in own if weights.has_decoder or not name.startswith(_DECODER)]
    missing = [name for name in wanted if name not in weights.state]
    pooled = bool(missing) and all(name.startswith("norm.") for name in missing) and "fc_norm.weight" in weights.state
    if missing and not pooled:
        raise UserError(f"{path} has no {_list_names(missing)}: it is not a complete vision transformer")
    unused = sorted(weights.state.keys() - own.keys())
    if strange := [name for name in unused if not name.startswith((*_DECODER, *_OMITTED))]:
        raise UserError(f"{path} has {_list_names(strange)}, which our model has not: it is another architecture")
    there = None if weights.image is None else (weights.image[0] // weights.patch, weights.image[1] // weights.patch)
    state, notes = {name: weights.state[name] for name in wanted if name in weights.state}, []
    for name in ("pos_embed", "decoder_pos_embed"):
        if name in state and state[name].ndim == 3:
            state[name], note = fitted_positions(state[name], model.grid, there=there, name=name)
            notes += [note] if note else []
    _check_values(path, state, own)
    fresh = tuple(name for name in own if name not in state)
    converted = {name: value.to(own[name].dtype) for name, value in state.items()}
    return Fitted(converted, fresh, tuple(unused), (*_notes(weights, fresh, unused), *notes))


def _check_sizes(weights: Weights, own: Mapping[str, Tensor], model: VisionTransformerMAE) -> None:
    """Refuse another architecture in the words in which it is configured."""
    path, state, (width, channels, patch) = weights.path, weights.state, own[PATCHES].shape[:3]
    there = state[PATCHES]
    if there.ndim != own[PATCHES].ndim:
        raise UserError(f"{path}: {PATCHES} has the shape {tuple(there.shape)}, which no images have")
    if there.shape[1] != channels:
        raise UserError(
            f"{path} takes images of {there.shape[1]} channels, and these have {channels}: bring the images to "
            f"{there.shape[1]} channels, or omit init"
        )
    if weights.patch != patch:
        raise UserError(
            f"{path} has patches of {weights.patch} pixels, and the model of {patch}: take "
            f"--model.patch {weights.patch}, or resize the images so that their patches fit"
        )
    blocks, heads = count_layers(state, "blocks"), int(model.blocks[0].attn.heads)  # type: ignore[union-attr,arg-type]
    if (len(there), blocks, weights.heads or heads) != (width, len(model.blocks), heads):
        raise UserError(
            f"{path} has width {len(there)}, {blocks} layers"
            + (f" and {weights.heads} heads" if weights.heads else "")
            + f", and the model {width}, {len(model.blocks)} and {heads}: take --model.width {len(there)} "
            f"--model.layers {blocks}" + (f" --model.heads {weights.heads}" if weights.heads else "")
        )
    if not weights.has_decoder:
        return
    own_heads = int(model.decoder_blocks[0].attn.heads)  # type: ignore[union-attr,arg-type]
    wide, layers = len(state.get("decoder_embed.weight", ())), count_layers(state, "decoder_blocks")
    found = (wide, layers, weights.decoder_heads or own_heads)
    expected = (model.mask_token.shape[2], len(model.decoder_blocks), own_heads)
    if found != expected:
        raise UserError(
            "the decoder of {} has width {}, {} layers and {} heads, and the model's {}, {} and {}: take "
            "--model.decoder-width {} --model.decoder-layers {} --model.decoder-heads {}, or weights of an encoder "
            "alone".format(path, *found, *expected, *found)
        )


def _check_values(path: Path, state: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> None:
    """Refuse wrong shapes, and what are no finite numbers."""
    wrong = [name for name, value in state.items() if value.shape != own[name].shape]
    if wrong:
        shapes = [f"{name} {tuple(state[name].shape)} for {tuple(own[name].shape)}" for name in wrong]
        raise UserError(f"{path} has other shapes: {_list_names(shapes)}: it is another architecture")
    for name, value in state.items():
        if not value.is_floating_point() or not torch.isfinite(value).all():
            raise UserError(f"{path}: {name} does not hold finite numbers alone: fetch or save it again")


def _notes(weights: Weights, fresh: Iterable[str], unused: list[str]) -> Iterable[str]:
    if any(name.startswith(_DECODER) for name in fresh):
        yield "the decoder is fresh"
    if rest := [name for name in fresh if not name.startswith(_DECODER)]:
        yield f"{_list_names(rest)} fresh"
    if unused:
        yield f"{_list_names(unused)} not used"
    if weights.mean is not None and (
        len(weights.mean) == len(MEAN) and max(abs(a - b) for a, b in zip(weights.mean, MEAN, strict=True)) > _CLOSE
    ):
        yield f"it was trained on pixels around {weights.mean}, and here they are around ImageNet's {MEAN}"


def _list_names(names: list[str]) -> str:
    """List the first names, and say how many more there are."""
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def fitted_positions(
    table: Table, grid: tuple[int, int], *, there: tuple[int, int] | None = None, name: str = "pos_embed"
) -> tuple[Found, str]:
    """Return embeddings of positions for a grid, and how they were made.

    Parameters
    ----------
    table : tensor, shape (1, 1 + patches, width)
        Those of the file, the class token's first.
    grid : (int, int)
        Patches down and across that are wanted.
    there : (int, int), optional
        Those of the file; without it, its patches are taken to be a square.
    name : str
        For errors.

    Returns
    -------
    tensor, shape (1, 1 + down · across, width)
        The same tensor for the same grid. For another one: sines and cosines again if the file's are those of its own
        grid, otherwise the file's after bicubic interpolation; the class token's stays as it is.
    note : str
        What was done; empty for the same grid.

    Raises
    ------
    UserError
        If the file's number of patches is no square, and nothing says which rectangle it is.
    """
    count = table.shape[1] - 1
    if there is None or math.prod(there) != count:
        there = (math.isqrt(max(count, 0)),) * 2
    if count == math.prod(grid) and (there == grid or math.prod(there) != count):
        return table, ""
    if count < 1 or math.prod(there) != count:
        raise UserError(
            f"{name} has {table.shape[1]} positions, which are not those of a square of patches and a class token: "
            f"take images that are cut into {count} patches, or other weights"
        )
    sizes = f"{grid[0]} x {grid[1]} patches from {there[0]} x {there[1]}"
    width = table.shape[2]
    if width % 4 == 0 and torch.allclose(table.float(), positions(width, there), rtol=0, atol=_SINE_ERROR):
        return positions(width, grid).to(table.dtype), f"{name} computed again for {sizes} (sines and cosines)"
    image = table[:, 1:].float().reshape(1, *there, -1).permute(0, 3, 1, 2)
    made = interpolate(image, size=grid, mode="bicubic", align_corners=False).flatten(2).transpose(1, 2)
    found = torch.cat([table[:, :1], made.to(table.dtype)], 1)
    return found, f"{name} interpolated for {sizes} (bicubic; it holds no sines)"
