"""GPN-MSA: a transformer over a window of a genome that receives the aligned species at each position.

The target's base and the bases of the aligned species are embedded as one vector per position, the input of a RoFormer
(rotary positions, layer norms after the residuals). If only some positions are needed, the last layer's queries and
inner layers, and the head, are computed only there. Dropout on a CPU takes few random bits, and a third of the time of
torch's.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor, nn
from torch.nn.functional import dropout, embedding, gelu, one_hot, scaled_dot_product_attention

from r2mae.errors import UserError
from r2mae.genome.config import GpnMsaSettings as Settings
from r2mae.genome.store.tokens import BASES, LETTERS, MASK
from r2mae.genome.task import AlignmentTask
from r2mae.training.models import saved_layers

__all__ = ["AlignmentTransformer", "ColumnEmbedding", "Settings", "build"]

_TOKENS = len(LETTERS)
_EPS = 1e-12  # epsilon of layer norms, as in RoFormer
_DEVIATION = 0.02  # standard deviation of initial weights
_BITS = 65536

Bases = Int64[Tensor, "batch length"]
Aligned = UInt8[Tensor, "batch length others"]
Columns = Int64[Tensor, "batch most"]
Heads = Float[Tensor, "batch heads _ share"]
Shape = Float[Tensor, "*shape"]


class AlignmentTransformer(nn.Module):
    """The network of GPN-MSA, or without other species of a single sequence (DNA appendix of the paper).

    `others` is the number of aligned species other than the target, 0 for a single sequence; `length` is that of the
    longest window; for other parameters see :class:`r2mae.genome.config.GpnMsaSettings`.
    """

    def __init__(
        self,
        *,
        others: int,
        length: int = 128,
        width: int = 768,
        layers: int = 12,
        heads: int = 12,
        inner: int = 3072,
        dropout: float = 0.1,
        one_hot: bool = False,
    ) -> None:
        super().__init__()
        self.length, self.dropout = length, dropout
        self.sizes = {"width": width, "layers": layers, "heads": heads, "inner": inner, "one_hot": one_hot}
        self.embedding = ColumnEmbedding(others, width, one_hot)
        self.layers = nn.ModuleList(Layer(width, heads, inner, dropout) for _ in range(layers))
        self.transform = nn.Linear(width, width)
        self.transform_norm = nn.LayerNorm(width, eps=_EPS)
        self.decoder = nn.Linear(width, BASES)
        angles = rotary_angles(length, width // heads)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)
        self.apply(_initialise)

    cos: Tensor
    sin: Tensor
    species: tuple[str, ...] = ()
    """Names of the aligned species, in the order of the model's inputs."""

    def units(self) -> list[nn.Module]:
        """Return the layers; see :func:`r2mae.training.task.units_of`."""
        return [*self.layers]

    def forward(
        self, target: Bases, aligned: Aligned, columns: Columns
    ) -> tuple[Float[Tensor, "batch most bases"], Float[Tensor, "batch most width"]]:
        """Return logits over A, C, G and T at some positions (`columns` of each row), and the last hidden states there.

        In `target`, A C G T - unknown and hidden are 0 to 6; the aligned species have 0 to 5.
        """
        states = self.encode(target, aligned, columns=columns)
        return self.head(states), states

    def encode(
        self, target: Bases, aligned: Aligned, *, columns: Columns | None = None
    ) -> Float[Tensor, "batch places width"]:
        """Return the last hidden states at all positions, or only at those in `columns`."""
        length = target.shape[1]
        if length > self.length:
            raise ValueError(f"windows have {length} positions, and the model takes at most {self.length}")
        rate = self.dropout if self.training and not self.embedding.one_hot else 0.0
        states = drop(self.embedding(target, aligned), rate)
        turn = (self.cos[:length], self.sin[:length])
        last = len(self.layers) - 1
        for number, layer in enumerate(self.layers):
            states = layer(states, turn, columns if number == last else None)
        return states

    def head(self, states: Float[Tensor, "*places width"]) -> Float[Tensor, "*places bases"]:
        """Return logits over A, C, G and T."""
        logits: Tensor = self.decoder(self.transform_norm(gelu(self.transform(states))))
        return logits


class ColumnEmbedding(nn.Module):
    """One vector per position: the sum of an embedding of the target's token and of each species' token, normalised.

    This equals the concatenated one-hot vectors of target (with the mask token) and species, times a matrix, followed
    by a layer norm. The original has no such matrix: its first hidden states are one-hot vectors, filled up with zeros.

    With `one_hot`, the vectors are those of the original: the matrix is fixed, and there is no norm.
    """

    target: Tensor
    aligned: Tensor | None

    def __init__(self, others: int, width: int, one_hot: bool = False) -> None:
        super().__init__()
        self.others, self.one_hot = others, one_hot
        if one_hot:
            target, aligned = one_hot_tables(others, width)
            self.register_buffer("target", target, persistent=False)
            self.register_buffer("aligned", aligned if others else None, persistent=False)
            self.norm: nn.Module = nn.Identity()
            return
        self.target = nn.Parameter(torch.empty(MASK + 1, width))
        self.aligned = nn.Parameter(torch.empty(others * _TOKENS, width)) if others else None
        self.norm = nn.LayerNorm(width, eps=_EPS)
        for table in (self.target, self.aligned):
            if table is not None:
                nn.init.normal_(table, std=_DEVIATION)

    def forward(self, target: Bases, aligned: Aligned) -> Float[Tensor, "batch length width"]:
        """Embed windows of tokens, as :class:`AlignmentTransformer` takes them."""
        if aligned.shape[2] != self.others:
            raise ValueError(f"the windows have {aligned.shape[2]} aligned species, and the model takes {self.others}")
        states = embedding(target, self.target)
        if self.aligned is not None:
            states = states + one_hot(aligned.long(), _TOKENS).flatten(2).to(self.aligned.dtype) @ self.aligned
        normed: Tensor = self.norm(states)
        return normed


class Layer(nn.Module):
    """A layer of RoFormer: attention with rotary positions and a feed-forward block, each followed by a layer norm."""

    def __init__(self, width: int, heads: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.output = nn.Linear(width, width)
        self.attention_norm = nn.LayerNorm(width, eps=_EPS)
        self.inner, self.outer = nn.Linear(width, inner), nn.Linear(inner, width)
        self.norm = nn.LayerNorm(width, eps=_EPS)

    def forward(
        self,
        states: Float[Tensor, "batch length width"],
        turn: tuple[Float[Tensor, "length half"], Float[Tensor, "length half"]],
        columns: Columns | None = None,
    ) -> Float[Tensor, "batch places width"]:
        """Apply the layer; with `columns` only at these positions, which attend to all positions."""
        rate = self.dropout if self.training else 0.0
        key, value = rotate(self._split(self.key(states)), *turn), self._split(self.value(states))
        if columns is not None:
            states = states.gather(1, columns[:, :, None].expand(-1, -1, states.shape[2]))
            turn = (turn[0][columns][:, None], turn[1][columns][:, None])
        query = rotate(self._split(self.query(states)), *turn)
        context = self.output(attend(query, key, value, rate).transpose(1, 2).flatten(2))
        states = self.attention_norm(add_dropped(states, context, rate))
        found: Tensor = self.norm(add_dropped(states, self.outer(gelu(self.inner(states))), rate))
        return found

    def _split(self, joint: Tensor) -> Tensor:
        """Split the width into heads: (batch, heads, length, share)."""
        return joint.view(*joint.shape[:2], self.heads, -1).transpose(1, 2)


def rotary_angles(length: int, width: int) -> Float[Tensor, "length half"]:
    """Return the angles of rotary positions: position p rotates pair i of a head by p / 10000^(2i / width)."""
    speeds = 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    return torch.outer(torch.arange(length, dtype=torch.float64), speeds).float()


def rotate(states: Heads, cos: Float[Tensor, "..."], sin: Float[Tensor, "..."]) -> Heads:
    """Rotate pairs of neighbouring components by the angles of their positions (RoFormer)."""
    first, second = states[..., 0::2], states[..., 1::2]
    turned = torch.stack([first * cos - second * sin, second * cos + first * sin], -1).flatten(-2)
    return turned.to(states.dtype)  # angles are float32


def attend(query: Heads, key: Heads, value: Heads, rate: float) -> Heads:
    """Return softmax(QKᵀ/√d)V of each head, with dropout of the probabilities."""
    if rate == 0 or not uses_cpu_kernels(key):
        return scaled_dot_product_attention(query, key, value, dropout_p=rate)
    scores = (query * query.shape[-1] ** -0.5) @ key.transpose(2, 3)
    return drop(scores.softmax(-1), rate) @ value


def uses_cpu_kernels(tensor: Tensor) -> bool:
    """Return whether 32-bit or bf16 CPU kernels apply: not on other devices, or in compiled code (which fuses)."""
    known = tensor.dtype in (torch.float32, torch.bfloat16)
    return known and tensor.device.type == "cpu" and not torch.compiler.is_compiling()


def drop(states: Shape, rate: float) -> Shape:
    """Apply dropout; on a CPU from 16 random bits per entry.

    On a CPU the rate is rounded to a multiple of 2⁻¹⁶ (0.1 becomes 0.100006), and the scale matches it exactly.
    """
    if rate in {0, 1} or not uses_cpu_kernels(states):
        return dropout(states, rate)
    return (states * keep_factors(states.shape, rate)).to(states.dtype)


def add_dropped(residual: Shape, states: Shape, rate: float) -> Shape:
    """Return ``residual + drop(states, rate)``, in one pass on a CPU in 32 bits."""
    if rate in {0, 1} or not uses_cpu_kernels(states) or {residual.dtype, states.dtype} != {torch.float32}:
        return residual + drop(states, rate)
    return torch.addcmul(residual, states, keep_factors(states.shape, rate))


def keep_factors(shape: torch.Size, rate: float) -> Shape:
    """Return 0 at dropped entries and 1/(1 − rate) at the others, in 32 bits.

    Torch's generator seeds numpy's fastest one, which makes bits in half the time.
    """
    count, dropped = shape.numel(), min(round(rate * _BITS), _BITS - 1)
    seed = int(torch.empty((), dtype=torch.int64, device="cpu").random_())
    bits = torch.from_numpy(np.random.SFC64(seed).random_raw(-(-count // 4)).view(np.int16))[:count]
    kept = torch.ge(bits, dropped - _BITS // 2, out=torch.empty(count, dtype=torch.float32, device="cpu"))
    return kept.mul_(_BITS / (_BITS - dropped)).view(shape)


def one_hot_tables(others: int, width: int) -> tuple[Float[Tensor, "7 width"], Float[Tensor, "tokens width"]]:
    """Return the vectors of the original for our tokens: of the target, and of species after species.

    Its tokens are - A C G T ?, where unknown bases are gaps, and ? is a hidden base, which aligned species lack.
    """
    if (needed := 6 + 5 * others) > width:
        raise UserError(f"one-hot vectors of {others} species need a width of {needed:,} or more, not {width:,}")
    theirs = torch.tensor([1, 2, 3, 4, 0, 0, 5])
    aligned = 6 + 5 * torch.arange(others)[:, None] + theirs[:_TOKENS]
    return one_hot(theirs, width).float(), one_hot(aligned.flatten(), width).float()


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=_DEVIATION)
        nn.init.zeros_(module.bias)


def build(architecture: Mapping[str, Any]) -> tuple[AlignmentTask, AlignmentTransformer]:
    """Return the task and a freshly initialised model; see :mod:`r2mae.genome.models`."""
    width, inner = int(architecture["width"]), architecture["inner"]
    model = AlignmentTransformer(
        others=len(architecture["species"]),
        length=int(architecture["window"]),
        width=width,
        layers=saved_layers(architecture),
        heads=int(architecture["heads"]),
        inner=4 * width if inner is None else int(inner),
        dropout=float(architecture["dropout"]),
        one_hot=bool(architecture.get("one_hot")),
    )
    model.species = tuple(architecture["species"])
    task = AlignmentTask(
        width=width,
        corruption=architecture["corruption"],
        exact=bool(architecture["exact"]),
        repeat_weight=float(architecture["repeat_weight"]),
        flip=float(architecture["flip"]),
    )
    return task, model
