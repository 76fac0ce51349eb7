"""Parts of a transformer's layers: rotary positions, and attention that is also fast on CPUs."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from r2mae.training.dropout import mix_dropped, uses_cpu_kernels


def rotary_angles(length: int, width: int) -> Float[Tensor, "length half"]:
    """Return the angles of rotary positions: position p rotates pair i of a head by p / 10000^(2i / width)."""
    speeds = 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    return torch.outer(torch.arange(length, dtype=torch.float64), speeds).float()


def rotate(
    states: Float[Tensor, "batch heads length width"], cos: Float[Tensor, "..."], sin: Float[Tensor, "..."]
) -> Float[Tensor, "batch heads length width"]:
    """Rotate pairs of neighbouring components by the angles of their positions (RoFormer)."""
    first, second = states[..., 0::2], states[..., 1::2]
    turned = torch.stack([first * cos - second * sin, second * cos + first * sin], -1).flatten(-2)
    return turned.to(states.dtype)  # angles are float32


def attend(
    query: Float[Tensor, "batch heads places share"],
    key: Float[Tensor, "batch heads length share"],
    value: Float[Tensor, "batch heads length share"],
    rate: float,
) -> Float[Tensor, "batch heads places share"]:
    """Return softmax(QKᵀ/√d)V of each head, with dropout of the probabilities."""
    if rate == 0 or not uses_cpu_kernels(key):
        return scaled_dot_product_attention(query, key, value, dropout_p=rate)
    scores = (query * query.shape[-1] ** -0.5) @ key.transpose(2, 3)
    return mix_dropped(scores.softmax(-1), value, rate)
