"""Parts of a transformer's layers: rotary positions, attention and dropout, fast on a CPU, too."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import dropout, scaled_dot_product_attention

from r2mae.training.dropout import keep_factors, plain_cpu


def rotary_angles(length: int, width: int) -> Float[Tensor, "length half"]:
    """Return the angles of rotary positions: position p turns pair i of a head by p / 10000^(2i / width)."""
    speeds = 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    return torch.outer(torch.arange(length, dtype=torch.float64), speeds).float()


def rotate(
    states: Float[Tensor, "batch heads length width"], cos: Float[Tensor, "..."], sin: Float[Tensor, "..."]
) -> Float[Tensor, "batch heads length width"]:
    """Turn pairs of neighbouring numbers by the angles of their positions (RoFormer)."""
    first, second = states[..., 0::2], states[..., 1::2]
    turned = torch.stack([first * cos - second * sin, second * cos + first * sin], -1).flatten(-2)
    return turned.to(states.dtype)  # angles have 32 bits, whatever the states have


def attend(
    query: Float[Tensor, "batch heads places share"],
    key: Float[Tensor, "batch heads length share"],
    value: Float[Tensor, "batch heads length share"],
    rate: float,
) -> Float[Tensor, "batch heads places share"]:
    """Return softmax(QKᵀ/√d)V of each head, with dropout of the probabilities."""
    if rate == 0 or not plain_cpu(key):
        return scaled_dot_product_attention(query, key, value, dropout_p=rate)
    scores = (query * query.shape[-1] ** -0.5) @ key.transpose(2, 3)
    probabilities = scores.softmax(-1)
    found: Tensor = (probabilities * keep_factors(probabilities.shape, rate)) @ value
    return found


def drop(states: Float[Tensor, "*shape"], rate: float) -> Float[Tensor, "*shape"]:
    """Apply dropout; see :func:`r2mae.training.dropout.keep_factors`."""
    if rate == 0:
        return states
    return states * keep_factors(states.shape, rate) if plain_cpu(states) else dropout(states, rate)


def add_dropped(
    residual: Float[Tensor, "*shape"], states: Float[Tensor, "*shape"], rate: float
) -> Float[Tensor, "*shape"]:
    """Return ``residual + drop(states, rate)``, in one pass on a CPU."""
    if rate and plain_cpu(states):
        return torch.addcmul(residual, states, keep_factors(states.shape, rate))
    return residual + drop(states, rate)
