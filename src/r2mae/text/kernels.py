"""What a CPU spends a masked language model's time and memory on besides matrix products: dropout, vocabulary losses.

On other devices and in compiled code torch's own operations take their place; under autocast products are in bf16. The
losses are written out with their gradients; second derivatives are refused there, not made wrongly. What each of these
buys is measured by ``python -m benchmarks.tricks``.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy, linear, log_softmax, scaled_dot_product_attention

from r2mae.training.dropout import mix_dropped, uses_cpu_kernels, uses_float32_kernels

_BLOCK = 1 << 25  # logits at a time where no gradients are kept, 128 MiB
_SOFTMAX_BLOCK = 1 << 18  # logits at a time that turn into errors in 32 bits, 1 MiB, which stays in the cache
_RARE = 1e-30  # probabilities below are not trusted to have a logarithm in 32 bits


def _first_derivatives(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Refuse to be differentiated again: what is saved counts as constant, and the result would be wrong."""

    @wraps(backward)
    def once(ctx: Any, *grads: Tensor) -> Any:
        if torch.is_grad_enabled():
            raise RuntimeError("second derivatives (create_graph=True) are not made here: take the stock model")
        return backward(ctx, *grads)

    return once


def _in_given_types(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let autocast change nothing within a function."""

    @wraps(function)
    def run(*arguments: Any) -> Any:
        with torch.autocast("cpu", enabled=False):
            return function(*arguments)

    return run


def self_attention(
    query: Float[Tensor, "batch places width"],
    key: Float[Tensor, "batch length width"],
    value: Float[Tensor, "batch length width"],
    heads: int,
    *,
    mask: Bool[Tensor, "#batch #heads #places length"] | None = None,
    rate: float = 0.0,
) -> Float[Tensor, "batch places width"]:
    """Return softmax(QKᵀ/√d)V of all heads, with dropout of the probabilities.

    On a CPU it is that of :mod:`r2mae.training.dropout`.

    Parameters
    ----------
    query : Float tensor, shape (batch, places, width)
        Queries at all tokens, or at some, in any order.
    key, value : Float tensor, shape (batch, length, width)
        Of all tokens.
    heads : int
        Heads that the width is divided among.
    mask : Bool tensor, shape (batch or 1, heads or 1, places or 1, length), optional
        False where a token is not attended to.
    rate : float
        Of the dropout.
    """
    if rate in {0, 1} or not uses_cpu_kernels(key):
        asked, keys, values = (_split(part, heads) for part in (query, key, value))
        found = scaled_dot_product_attention(asked, keys, values, attn_mask=mask, dropout_p=rate)
        return found.transpose(1, 2).flatten(2)
    asked, keys, values = (_split(part, heads).flatten(0, 1) for part in (query, key, value))
    scores = torch.bmm(asked * asked.shape[-1] ** -0.5, keys.transpose(1, 2))
    if mask is not None:
        by_row = scores.view(-1, heads, *scores.shape[1:]).masked_fill(~mask, -torch.inf)
        # What attends to nothing gets nothing, as in torch's own.
        scores = by_row.softmax(-1).masked_fill(~mask.any(-1, keepdim=True), 0.0).flatten(0, 1)
    else:
        scores = scores.softmax(-1)
    context = mix_dropped(scores, values, rate)
    return context.view(-1, heads, *context.shape[1:]).transpose(1, 2).flatten(2)


def _split(joint: Float[Tensor, "batch length width"], heads: int) -> Float[Tensor, "batch heads length share"]:
    """Divide the width among heads."""
    return joint.reshape(*joint.shape[:2], heads, -1).transpose(1, 2)


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
    if uses_float32_kernels(features):
        return _VocabularyLoss.apply(features, weight, bias, targets.long())  # type: ignore[no-any-return, no-untyped-call]
    if uses_cpu_kernels(features) and torch.is_autocast_enabled("cpu"):
        return _HalfVocabularyLoss.apply(features, weight, bias, targets.long())  # type: ignore[no-any-return, no-untyped-call]
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


class _HalfVocabularyLoss(torch.autograd.Function):
    """The same with products in bf16, as under autocast; softmax and losses have 32 bits, a few units at a time."""

    @staticmethod
    @_in_given_types
    def forward(ctx: Any, features: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
        half, narrow = features.bfloat16(), weight.bfloat16()
        logits = torch.addmm(bias.bfloat16(), half, narrow.t())
        losses = torch.empty(len(targets), dtype=torch.float32)
        block = max(1, _SOFTMAX_BLOCK // len(weight))
        for first in range(0, len(targets), block):
            part = slice(first, first + block)
            at = targets[part, None]
            logarithms = log_softmax(logits[part], 1, dtype=torch.float32)
            losses[part] = -logarithms.gather(1, at)[:, 0]
            errors = logarithms.exp_()
            logits[part] = errors.scatter_add_(1, at, torch.full(at.shape, -1.0))
        ctx.save_for_backward(half, narrow, logits)
        ctx.kinds = features.dtype, weight.dtype, bias.dtype
        return losses

    @staticmethod
    @_first_derivatives
    @_in_given_types
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        half, narrow, errors = ctx.saved_tensors
        each, asked, kinds = grads[0][:, None], ctx.needs_input_grad, ctx.kinds
        of_features = ((errors @ narrow) * each).to(kinds[0]) if asked[0] else None
        of_weight = (errors.t() @ (half * each).bfloat16()).to(kinds[1]) if asked[1] else None
        of_bias = errors.t().mv(grads[0].bfloat16()).to(kinds[2]) if asked[2] else None
        return of_features, of_weight, of_bias, None


def summed_cross_entropy(
    logits: Float[Tensor, "units words"], targets: Int[Tensor, " units"], factor: float | Tensor
) -> Float[Tensor, ""]:
    """Return the sum of cross entropies, in nats, times a factor; the logits stay as they are."""
    if uses_float32_kernels(logits) and torch.is_grad_enabled():
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
