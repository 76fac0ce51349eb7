"""Put weights from elsewhere into a model: what fits is taken, what is missing stays fresh, the rest is refused."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from r2mae.errors import UserError
from r2mae.images.models.vit_mae.model import VisionTransformerMAE
from r2mae.images.patches import MEAN
from r2mae.images.weight_conversion.files import Weights, read_weights
from r2mae.images.weight_conversion.names import PATCHES, State
from r2mae.images.weight_conversion.positions import fitted_positions
from r2mae.training.initial import Origin

_SHOWN = 3  # names that a line repeats
_DECODER = ("decoder_", "mask_token")
# Of classifiers, and of other losses: no part of what is pretrained here.
_OMITTED = (
    *("head.", "head_dist.", "fc_norm.", "pooler.", "pre_logits.", "classifier.", "decoder.", "vit.pooler."),
    *("embeddings.mask_token", "vit.embeddings.mask_token"),
)
_CLOSE = 1e-3


@dataclass(frozen=True)
class Sizes:
    """What the shapes of a model's weights do not tell.

    Parameters
    ----------
    grid : (int, int)
        Patches down and across.
    heads, decoder_heads : int
        Attention heads; without a decoder, the second does not matter.
    """

    grid: tuple[int, int]
    heads: int
    decoder_heads: int = 0


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
    """Let a fresh model begin with the weights of a file or folder.

    Parameters
    ----------
    path : path
        See :func:`r2mae.images.weight_conversion.files.read_weights`.
    model : VisionTransformerMAE
        Its encoder gets all of its weights from there; so does its decoder where there is one, which else stays fresh.

    Raises
    ------
    UserError
        If the weights are of another architecture, or damaged.
    """
    assert isinstance(model, VisionTransformerMAE)
    weights = read_weights(path)
    sizes = Sizes(model.grid, model.blocks[0].attn.heads, model.decoder_blocks[0].attn.heads)  # type: ignore[union-attr,arg-type]
    fitted = fit_weights(weights, model.state_dict(), sizes)
    model.load_state_dict({**model.state_dict(), **fitted.state})
    return Origin(Path(path), weights.files, weights.layout, fitted.notes)


def fit_weights(weights: Weights, own: Mapping[str, Tensor], sizes: Sizes) -> Fitted:
    """Choose and check the weights for a model, whose state is `own`; it may lack a decoder, or have a ``head``.

    Raises
    ------
    UserError
        If they are of another architecture. It names the sizes, or the first weights that are missing, unknown or of
        another shape.
    """
    _check_sizes(weights, own, sizes)
    decoder = weights.has_decoder and any(map(_is_of_decoder, own))
    wanted = [name for name in own if decoder or not _is_of_decoder(name)]
    missing = [name for name in wanted if name not in weights.state and not name.startswith("head.")]
    pooled = bool(missing) and all(name.startswith("norm.") for name in missing) and "fc_norm.weight" in weights.state
    if missing and not pooled:
        raise UserError(f"{weights.path} has no {_list_names(missing)}: it is not a whole vision transformer")
    unused = sorted(weights.state.keys() - own.keys())
    if strange := [name for name in unused if not _is_of_decoder(name) and not name.startswith(_OMITTED)]:
        raise UserError(
            f"{weights.path} has {_list_names(strange)}, which our model has not: it is another architecture"
        )
    fitted = _fit_positions(weights, [name for name in wanted if name in weights.state], sizes)
    _check_values(weights.path, fitted.state, own)
    state = {name: value.to(own[name].dtype) for name, value in fitted.state.items()}
    fresh = tuple(name for name in own if name not in state)
    notes = (*_notes(weights, fresh, unused), *fitted.notes)
    return Fitted(state, fresh, tuple(unused), notes)


def _is_of_decoder(name: str) -> bool:
    return name.startswith(_DECODER)


def _check_sizes(weights: Weights, own: Mapping[str, Tensor], sizes: Sizes) -> None:
    """Refuse another architecture in the words in which it is configured."""
    width, channels, patch = own[PATCHES].shape[:3]
    there = weights.state[PATCHES]
    if there.ndim != own[PATCHES].ndim:
        raise UserError(f"{weights.path}: {PATCHES} has the shape {tuple(there.shape)}, which no images have")
    if there.shape[1] != channels:
        raise UserError(
            f"{weights.path} takes images of {there.shape[1]} channels, and these have {channels}: bring the images to "
            f"{there.shape[1]} channels, or omit init"
        )
    if weights.patch != patch:
        raise UserError(
            f"{weights.path} has patches of {weights.patch} pixels, and the model of {patch}: take "
            f"--model.patch {weights.patch}, or resize the images so that their patches fit"
        )
    layers = [
        len({name.split(".")[1] for name in state if name.startswith("blocks.")}) for state in (weights.state, own)
    ]
    heads = (weights.heads or sizes.heads, sizes.heads)
    if (len(there), layers[0], heads[0]) != (width, layers[1], heads[1]):
        raise UserError(
            f"{weights.path} has width {len(there)}, {layers[0]} layers"
            + (f" and {weights.heads} heads" if weights.heads else "")
            + f", and the model {width}, {layers[1]} and {sizes.heads}: take --model.width {len(there)} "
            f"--model.layers {layers[0]}" + (f" --model.heads {weights.heads}" if weights.heads else "")
        )
    if weights.has_decoder and "decoder_embed.weight" in own:
        _check_decoder(weights, own, sizes)


def _check_decoder(weights: Weights, own: Mapping[str, Tensor], sizes: Sizes) -> None:
    found = []
    for state, heads in ((weights.state, weights.decoder_heads or sizes.decoder_heads), (own, sizes.decoder_heads)):
        layers = len({name.split(".")[1] for name in state if name.startswith("decoder_blocks.")})
        found.append((len(state.get("decoder_embed.weight", ())), layers, heads))
    if found[0] != found[1]:
        (width, layers, heads), (own_width, own_layers, own_heads) = found
        raise UserError(
            f"the decoder of {weights.path} has width {width}, {layers} layers and {heads} heads, and the model's "
            f"{own_width}, {own_layers} and {own_heads}: take --model.decoder-width {width} --model.decoder-layers "
            f"{layers} --model.decoder-heads {heads}, or weights of an encoder alone"
        )


def _fit_positions(weights: Weights, names: Iterable[str], sizes: Sizes) -> Fitted:
    """Take these weights, with positions for the grid of the model."""
    there = None if weights.image is None else (weights.image[0] // weights.patch, weights.image[1] // weights.patch)
    state, notes = {}, []
    for name in names:
        value = weights.state[name]
        if name.endswith("pos_embed") and value.ndim == 3:
            value, told = fitted_positions(value, sizes.grid, there=there, name=name)
            notes += [told] if told else []
        state[name] = value
    return Fitted(state, notes=tuple(notes))


def _check_values(path: Path, state: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> None:
    """Refuse wrong shapes, and what are no finite numbers."""
    wrong = [name for name, value in state.items() if value.shape != own[name].shape]
    if wrong:
        shapes = (f"{name} {tuple(state[name].shape)} for {tuple(own[name].shape)}" for name in wrong)
        raise UserError(f"{path} has other shapes: {_list_names(shapes, len(wrong))}: it is another architecture")
    for name, value in state.items():
        if not value.is_floating_point() or not torch.isfinite(value).all():
            raise UserError(f"{path}: {name} does not hold finite numbers alone: fetch or save it again")


def _notes(weights: Weights, fresh: Iterable[str], unused: Iterable[str]) -> Iterable[str]:
    decoder = [name for name in fresh if _is_of_decoder(name)]
    if decoder:
        yield "the decoder is fresh"
    if rest := [name for name in fresh if not _is_of_decoder(name) and not name.startswith("head.")]:
        yield f"{_list_names(rest)} fresh"
    if left := list(unused):
        yield f"{_list_names(left)} not used"
    if weights.mean is not None and (
        len(weights.mean) == len(MEAN) and max(abs(a - b) for a, b in zip(weights.mean, MEAN, strict=True)) > _CLOSE
    ):
        yield f"it was trained on pixels around {weights.mean}, and here they are around ImageNet's {MEAN}"


def _list_names(names: Iterable[str], count: int | None = None) -> str:
    """List the first names, and say how many more there are."""
    first = list(names)
    more = (count or len(first)) - _SHOWN
    return ", ".join(first[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def encoder_alone(weights: Weights) -> Weights:
    """Omit the decoder."""
    return replace(weights, state={name: value for name, value in weights.state.items() if not _is_of_decoder(name)})
