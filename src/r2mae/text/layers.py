"""Layers of stock encoders, where only some of the last hidden states are asked for."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from r2mae.text.kernels import self_attention
from r2mae.text.swapping import Swapped
from r2mae.training.dropout import drop

# Attention modules of transformers that are written alike: query, key and value of `self`, then `output`.
ATTENTIONS = ("BertAttention", "RobertaAttention", "XLMRobertaAttention", "CamembertAttention", "ElectraAttention")


def attend_at(
    states: Float[Tensor, "batch length width"],
    attention: Any,
    columns: Int64[Tensor, "batch most"] | None,
    mask: Bool[Tensor, "#batch #heads #length length"] | None,
    rate: float,
) -> tuple[Float[Tensor, "batch places width"], Float[Tensor, "batch places width"]]:
    """Return what tokens attend to, and the states of these tokens: of all, or of those in `columns` alone.

    Parameters
    ----------
    states : Float tensor, shape (batch, length, width)
        What the layer is given.
    attention : nn.Module
        Self-attention of transformers, with `query`, `key`, `value` and `num_attention_heads`.
    columns : int64 tensor, shape (batch, most), optional
        Some tokens of each row; they attend to all tokens.
    mask : Bool tensor, shape (batch or 1, heads or 1, length or 1, length), optional
        False where a token (third axis) does not attend to another (fourth).
    rate : float
        Dropout of the probabilities.
    """
    heads, (batch, length, width) = attention.num_attention_heads, states.shape
    key, value = attention.key(states), attention.value(states)
    if columns is not None:
        rows = torch.arange(0, batch * length, length, device=columns.device)[:, None] + columns
        states = states.flatten(0, 1).index_select(0, rows.flatten()).view(batch, -1, width)
        if mask is not None and mask.shape[2] > 1:
            at = columns[:, None, :, None].expand(-1, mask.shape[1], -1, length)
            mask = mask.expand(batch, -1, -1, -1).gather(2, at)
    return self_attention(attention.query(states), key, value, heads, mask=mask, rate=rate), states


def hooked(module: nn.Module) -> bool:
    """Whether somebody listens to a module, or changes what it does (pruning, adapters, sharding).

    Torch has no public way to ask, so these are attributes that it might rename.
    """
    kinds = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    return any(kinds)


@dataclass
class Wanted:
    """The tokens whose last hidden states one forward pass is asked for.

    Attributes
    ----------
    places : int64 tensor, shape (units,)
        Their numbers among the flattened tokens.
    columns : int64 tensor, shape (batch, most), optional
        The same by rows, filled with other tokens; None where the last layer has to be computed for all.
    units : int64 tensor, shape (units,)
        Which of the flattened `columns` are wanted.
    narrowed : bool
        Whether the last layer has left out all but `columns`.
    """

    places: Tensor
    columns: Tensor | None = None
    units: Tensor | None = None
    narrowed: bool = False

    @classmethod
    def of(cls, wanted: Bool[Tensor, "batch length"], *, narrow: bool) -> "Wanted":
        """Find places and, to `narrow` the last layer, columns."""
        places = wanted.flatten().nonzero()[:, 0]
        if not narrow:
            return cls(places)
        most = max(1, int(wanted.sum(1).max()))
        columns = torch.sort(wanted.to(torch.uint8), dim=1, stable=True, descending=True).indices[:, :most]
        return cls(places, columns, wanted.gather(1, columns).flatten().nonzero()[:, 0])


class Selection:
    """What the forward passes under way want, by thread, since DataParallel runs copies that share this object.

    Called as a hook on an encoder's output it picks the wanted states.
    """

    def __init__(self) -> None:
        self._wanted: dict[int, Wanted] = {}

    @property
    def current(self) -> Wanted | None:
        """What this thread's forward pass wants."""
        return self._wanted.get(threading.get_ident())

    @contextmanager
    def wanting(self, wanted: Wanted) -> Iterator[None]:
        """Compute no more than is wanted meanwhile."""
        thread = threading.get_ident()
        self._wanted[thread] = wanted
        try:
            yield
        finally:
            del self._wanted[thread]

    def __call__(self, module: nn.Module, arguments: Any, output: Any) -> Any:
        """Return the output with the wanted states alone, shape (1, units, width)."""
        wanted = self.current
        if wanted is None:
            return output
        chosen = wanted.units if wanted.narrowed else wanted.places
        assert chosen is not None
        states = output[0].flatten(0, 1).index_select(0, chosen.to(output[0].device))[None]
        if isinstance(output, tuple):
            return (states, *output[1:])
        output["last_hidden_state"] = states
        return output


class NarrowAttention(Swapped):
    """Attention (with what follows it in `output`) by the kernels; the last layer's at the wanted tokens alone."""

    selection: Selection
    last: bool
    training: bool
    self: Any
    output: Any

    def forward(this, hidden_states: Tensor, attention_mask: Tensor | None = None, **others: Any) -> tuple[Any, Any]:  # noqa: N805
        """Run as the stock module does, unless a forward pass wants some states alone."""
        wanted, own = this.selection.current, this.self
        known = attention_mask is None or (attention_mask.ndim == 4 and attention_mask.dtype == torch.bool)
        stock = wanted is None or wanted.columns is None or not known or own.config._attn_implementation != "sdpa"
        more = any(others.get(name) is not None for name in ("encoder_hidden_states", "past_key_values"))
        if stock or more or own.is_causal or hooked(own):
            return super().forward(hidden_states, attention_mask, **others)  # type: ignore[misc, no-any-return]
        assert wanted is not None
        columns = wanted.columns if this.last else None
        rate = own.dropout.p if this.training else 0.0
        context, states = attend_at(hidden_states, own, columns, attention_mask, rate)
        wanted.narrowed = wanted.narrowed or this.last
        return this.output(context, states), None


class QuickDropout(Swapped):
    """Dropout by :func:`r2mae.training.dropout.drop`."""

    p: float
    inplace: bool
    training: bool

    def forward(self, input: Tensor) -> Tensor:
        """Drop entries in training."""
        if not self.training or self.inplace:
            return super().forward(input)  # type: ignore[misc, no-any-return]
        return drop(input, self.p)
