"""What a CPU spends a masked language model's time on besides matrix products: dropout, attention, the vocabulary loss.

Each is written out with its gradient, so that fewer arrays are made and read. On other devices, in compiled code and
under autocast torch's own operations take their place. Second derivatives are refused, not made wrongly.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, dropout, embedding, linear, scaled_dot_product_attention

_BLOCK = 1 << 25  # logits at a time where no gradients are kept, 128 MiB
_RARE = 1e-30  # probabilities below are not trusted to have a logarithm in 32 bits


def plain_cpu(tensor: Tensor) -> bool:
    """Whether the kernels apply: not on other devices, in compiled code (which fuses) or under autocast."""
    return not (
        torch.compiler.is_compiling()
        or tensor.device.type != "cpu"
        or tensor.dtype != torch.float32
        or torch.is_autocast_enabled("cpu")
    )


def _first_derivatives(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Refuse to be differentiated again: what is saved counts as constant, and the result would be wrong."""

    @wraps(backward)
    def once(ctx: Any, *grads: Tensor) -> Any:
        if torch.is_grad_enabled():
            raise RuntimeError("second derivatives (create_graph=True) are not made here: take the stock model")
        return backward(ctx, *grads)

    return once


def drop(states: Float[Tensor, "*shape"], rate: float) -> Float[Tensor, "*shape"]:
    """Apply dropout; on a CPU from 16 random bits an entry, which takes a fifth of the time of torch's own.

    The rate is then a multiple of 2⁻¹⁶ (0.1 becomes 0.100006), and the scale its exact counterpart.
    """
    if rate in {0, 1} or not plain_cpu(states):
        return dropout(states, rate)
    return states * keep_factors(states.shape, rate)


def add_dropped(
    residual: Float[Tensor, "*shape"], states: Float[Tensor, "*shape"], rate: float
) -> Float[Tensor, "*shape"]:
    """Return ``residual + drop(states, rate)``, in one pass on a CPU."""
    if rate in {0, 1} or not plain_cpu(states):
        return residual + dropout(states, rate)
    return _AddDropped.apply(residual, states, rate)  # type: ignore[no-any-return, no-untyped-call]


class _AddDropped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, residual: Tensor, states: Tensor, rate: float) -> Tensor:
        kept = keep_factors(states.shape, rate)
        ctx.save_for_backward(kept)
        return torch.addcmul(residual, states, kept)

    @staticmethod
    @_first_derivatives
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        (kept,) = ctx.saved_tensors
        return grads[0], grads[0] * kept, None


def keep_factors(shape: torch.Size, rate: float) -> Float[Tensor, "*shape"]:
    """Return 0 where an entry is dropped, and 1/(1 − rate) elsewhere.

    Torch's generator gives the seed of numpy's fastest one, which makes the bits in half the time.
    """
    count, dropped = shape.numel(), min(round(rate * 65536), 65535)
    seed = int(torch.empty((), dtype=torch.int64, device="cpu").random_())
    bits = torch.from_numpy(np.random.SFC64(seed).random_raw(-(-count // 4)).view(np.int16))[:count]
    kept = torch.ge(bits, dropped - 32768, out=torch.empty(count, dtype=torch.float32, device="cpu"))
    return kept.mul_(65536 / (65536 - dropped)).view(shape)


def joint_linear(states: Float[Tensor, "*shape width"], *layers: nn.Module) -> Float[Tensor, "*shape parts"]:
    """Apply several linear layers; their results lie side by side, of plain layers as one product."""
    plain = [one for one in layers if type(one) is nn.Linear and one.bias is not None and not hooked(one)]
    if len(plain) < len(layers):
        return torch.cat([one(states) for one in layers], -1)  # adapters and the like have their own way
    return linear(states, torch.cat([one.weight for one in plain]), torch.cat([one.bias for one in plain]))


def hooked(module: nn.Module) -> bool:
    """Whether somebody listens to a module, or changes what it does (pruning, adapters, sharding)."""
    kinds = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    return any(kinds)


def self_attention(
    projected: Float[Tensor, "batch length parts"],
    heads: int,
    *,
    query: Float[Tensor, "batch places width"] | None = None,
    mask: Bool[Tensor, "#batch #heads #places length"] | None = None,
    rate: float = 0.0,
) -> Float[Tensor, "batch places width"]:
    """Return softmax(QKᵀ/√d)V of all heads, with dropout of the probabilities.

    Parameters
    ----------
    projected : Float tensor, shape (batch, length, parts * width)
        Queries, keys and values side by side; or keys and values, where `query` is given.
    heads : int
        Heads that the width is divided among.
    query : Float tensor, shape (batch, places, width), optional
        Queries at some places alone, in any order.
    mask : Bool tensor, shape (batch or 1, heads or 1, places or 1, length), optional
        False where a token is not attended to.
    rate : float
        Of the dropout.
    """
    parts = 3 if query is None else 2
    batch, length, width = projected.shape[0], projected.shape[1], projected.shape[2] // parts
    if rate and rate < 1 and plain_cpu(projected):
        return _Attention.apply(projected, query, heads, mask, rate)  # type: ignore[no-any-return, no-untyped-call]
    split = projected.view(batch, length, parts, heads, width // heads).permute(2, 0, 3, 1, 4)
    asked = split[0] if query is None else query.view(batch, -1, heads, width // heads).transpose(1, 2)
    found = scaled_dot_product_attention(asked, split[-2], split[-1], attn_mask=mask, dropout_p=rate)
    return found.transpose(1, 2).reshape(batch, -1, width)


class _Attention(torch.autograd.Function):
    """Attention with dropout on arrays that lie as the products want them: a copy of the inputs, one of the outputs."""

    @staticmethod
    def forward(
        ctx: Any, projected: Tensor, query: Tensor | None, heads: int, mask: Tensor | None, rate: float
    ) -> Tensor:
        parts = _by_heads(projected, heads, 3 if query is None else 2)
        asked = parts[0] if query is None else _by_heads(query, heads, 1)[0]
        key, value = parts[-2], parts[-1]
        scale = value.shape[-1] ** -0.5
        scores = torch.baddbmm(asked.new_empty(1, 1, 1), asked, key.transpose(1, 2), beta=0, alpha=scale)
        by_row = scores.view(len(projected), heads, *scores.shape[1:])
        if mask is not None:
            by_row.masked_fill_(~mask, -torch.inf)
        torch.softmax(scores, -1, out=scores)  # row by row, so that it may write where it reads
        if mask is not None and not bool((some := mask.any(-1, keepdim=True)).all()):
            by_row.masked_fill_(~some, 0.0)  # what attends to nothing gets nothing, as in torch's own
        kept = keep_factors(scores.shape, rate)
        dropped = scores * kept
        ctx.save_for_backward(asked, key, value, scores, kept, dropped)
        ctx.heads, ctx.scale, ctx.joint = heads, scale, query is None
        return _side_by_side(torch.bmm(dropped, value)[None], heads)

    @staticmethod
    @_first_derivatives
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor | None, None, None, None]:
        asked, key, value, probabilities, kept, dropped = ctx.saved_tensors
        above = _by_heads(grads[0], ctx.heads, 1)[0]
        made = value.new_empty(3 if ctx.joint else 2, *value.shape)
        torch.bmm(dropped.transpose(1, 2), above, out=made[-1])
        errors = torch.bmm(above, value.transpose(1, 2)).mul_(kept)
        errors = errors.mul_(probabilities)  # the gradient of softmax
        errors.addcmul_(probabilities, errors.sum(-1, keepdim=True), value=-1)
        none = key.new_empty(1, 1, 1)
        torch.baddbmm(none, errors.transpose(1, 2), asked, beta=0, alpha=ctx.scale, out=made[-2])
        if ctx.joint:
            torch.baddbmm(none, errors, key, beta=0, alpha=ctx.scale, out=made[0])
            return _side_by_side(made, ctx.heads), None, None, None, None
        of_query = torch.baddbmm(none, errors, key, beta=0, alpha=ctx.scale)
        return _side_by_side(made, ctx.heads), _side_by_side(of_query[None], ctx.heads), None, None, None


def _by_heads(joint: Tensor, heads: int, parts: int) -> Tensor:
    """Turn (batch, length, parts * width) into (parts, batch * heads, length, width / heads)."""
    batch, length = joint.shape[:2]
    split = joint.view(batch, length, parts, heads, -1).permute(2, 0, 3, 1, 4)
    return split.reshape(parts, batch * heads, length, -1)


def _side_by_side(split: Tensor, heads: int) -> Tensor:
    """Turn (parts, batch * heads, length, width / heads) into (batch, length, parts * width)."""
    parts, _, length, width = split.shape
    joint = split.view(parts, -1, heads, length, width).permute(1, 3, 0, 2, 4)
    return joint.reshape(-1, length, parts * heads * width)


def look_up(
    ids: Int[Tensor, "batch length"], table: Float[Tensor, "words width"], padding: int | None
) -> tuple[Float[Tensor, "batch length width"], Float[Tensor, "words width"]]:
    """Embed tokens, and return the table for the head that is tied to it; `padding` learns nothing."""
    if torch.is_grad_enabled() and plain_cpu(table):
        return _TiedLookup.apply(ids, table, padding)  # type: ignore[no-any-return, no-untyped-call]
    return embedding(ids, table, padding_idx=padding), table


class _TiedLookup(torch.autograd.Function):
    """Adds the gradient of the tokens' embeddings to that of the head where it lies: one table, not three."""

    @staticmethod
    def forward(ctx: Any, ids: Tensor, table: Tensor, padding: int | None) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(ids)
        ctx.padding = -1 if padding is None else padding
        return embedding(ids, table), table.view_as(table)

    @staticmethod
    @_first_derivatives
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor, None]:
        (ids,), (words, table) = ctx.saved_tensors, grads
        words = words.masked_fill((ids == ctx.padding)[..., None], 0.0).flatten(0, 1)
        # The head's gradient was made for this pass, and nothing else holds it: the head is one product with the table.
        return None, table.index_add_(0, ids.flatten(), words), None


def vocabulary_losses(
    features: Float[Tensor, "units width"],
    weight: Float[Tensor, "words width"],
    bias: Float[Tensor, " words"],
    targets: Int[Tensor, " units"],
) -> Float[Tensor, " units"]:
    """Return the cross entropy of each unit over the whole vocabulary, in nats.

    Without gradients the logits are made and dropped in blocks. With gradients, on a CPU, they are turned in place into
    what the backward pass needs: the memory of one array of logits, where the stock way takes four.
    """
    if not torch.is_grad_enabled():
        block = max(1, _BLOCK // len(weight))
        parts = [slice(first, first + block) for first in range(0, max(1, len(features)), block)]
        return torch.cat([_cross_entropies(features[part], weight, bias, targets[part]) for part in parts])
    if plain_cpu(features):
        return _VocabularyLoss.apply(features, weight, bias, targets.long())  # type: ignore[no-any-return, no-untyped-call]
    return _cross_entropies(features, weight, bias, targets)


def _cross_entropies(features: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(linear(features, weight, bias).float(), targets.long(), reduction="none")


class _VocabularyLoss(torch.autograd.Function):
    """Cross entropies whose logits become the softmax minus one-hot targets where they lie."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
        logits = torch.addmm(bias, features, weight.t())
        losses, rare = _into_errors(logits, logits, targets)
        if len(rare):
            losses[rare] = _cross_entropies(features[rare], weight, bias, targets[rare])
        ctx.save_for_backward(features, weight, logits)
        return losses

    @staticmethod
    @_first_derivatives
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        features, weight, errors = ctx.saved_tensors
        each, asked = grads[0][:, None], ctx.needs_input_grad
        of_features = (errors @ weight).mul_(each) if asked[0] else None
        of_weight = errors.t() @ (features * each) if asked[1] else None
        return of_features, of_weight, errors.t().mv(grads[0]) if asked[2] else None, None


def summed_cross_entropy(
    logits: Float[Tensor, "units words"], targets: Int[Tensor, " units"], factor: float | Tensor
) -> Float[Tensor, ""]:
    """Return the sum of cross entropies, in nats, times a factor; the logits stay as they are."""
    if plain_cpu(logits) and torch.is_grad_enabled():
        return _SummedLoss.apply(logits, targets, factor)  # type: ignore[no-any-return, no-untyped-call]
    return cross_entropy(logits, targets, reduction="sum") * factor


class _SummedLoss(torch.autograd.Function):
    """Makes the gradient of the logits in the forward pass: one array beside them, where the stock way takes three."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, factor: float | Tensor) -> Tensor:
        errors = torch.empty_like(logits)
        losses, rare = _into_errors(logits, errors, targets)
        if len(rare):
            losses[rare] = cross_entropy(logits[rare], targets[rare], reduction="none")
        ctx.save_for_backward(errors.mul_(factor))
        return losses.sum() * factor

    @staticmethod
    @_first_derivatives
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (errors,) = ctx.saved_tensors
        return errors if grads[0] == 1 else errors * grads[0], None, None


def _into_errors(logits: Tensor, errors: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Write softmax minus one-hot targets to `errors`; return the losses, and which of them are too large for that."""
    at = targets[:, None]
    torch.softmax(logits, 1, out=errors)  # row by row, so that it may write where it reads
    chosen = errors.gather(1, at)
    errors.scatter_add_(1, at, torch.full_like(chosen, -1.0))
    return -chosen[:, 0].log(), (chosen[:, 0] < _RARE).nonzero()[:, 0]
