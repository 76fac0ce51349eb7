"""The negative binomial likelihood of counts, stable for any mean and dispersion, and fast if most counts are zero.

With mean μ and inverse dispersion θ (scvi-tools' parametrisation; the variance is μ + μ²/θ) and d = log μ − log θ,

    log NB(x | μ, θ) = x·log μ − (x + θ)·log(1 + e^d) − log x! + r(x, θ),   r = log Γ(x + θ) − log Γ(θ) − x·log θ.

No precision is lost for μ → 0 or θ → ∞ (the Poisson distribution): log(1 + e^d) is a softplus, and r goes to zero as θ
grows. At x = 0 only −θ·log(1 + e^d) remains, and most counts of single cells are zero.
"""

from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import softplus

_LARGE = 1e3  # above this, differences of log Γ lose digits, and Stirling's series is accurate


def hidden_losses(
    logits: Float[Tensor, "cells genes"],
    log_theta: Float[Tensor, " genes"],
    library: Float[Tensor, " cells"],
    columns: Int64[Tensor, " hidden"] | None,
    places: Int64[Tensor, " entries"],
    counts: Float[Tensor, " entries"],
) -> Float[Tensor, "cells hidden"]:
    """Return −log NB of the hidden genes, with μ = library · softmax(logits).

    A zero costs one softplus; the other terms are computed for counts above zero alone. The gradients are in closed
    form.

    Parameters
    ----------
    logits, log_theta, library
        Logits and log θ of all genes, over which the softmax is taken; total counts of the cells, above zero.
    columns : int64 tensor, shape (hidden,), optional
        Indices of the hidden genes, none twice; by default the losses of all genes are returned.
    places, counts : tensors, shape (entries,)
        The hidden counts above zero and their positions in the flattened (cells, hidden) array, none twice. An entry
        with a count of 0 has no effect, and may have any position.
    """
    log_theta = log_theta if columns is None else log_theta.index_select(0, columns)
    losses: Tensor = _HiddenLosses.apply(  # type: ignore[no-untyped-call]
        logits.float(), log_theta.float(), library.float().log(), columns, places, counts
    )
    return losses


class _HiddenLosses(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        log_theta: Tensor,
        log_library: Tensor,
        columns: Tensor | None,
        places: Tensor,
        x: Tensor,
    ) -> Tensor:
        log_share = torch.log_softmax(logits, 1)
        chosen = log_share.clone() if columns is None else log_share.index_select(1, columns)
        odds = chosen.add_(log_library[:, None]).sub_(log_theta)  # d
        soft = softplus(odds, threshold=40.0)
        gene = places % len(log_theta)
        rise, slope = _gamma_terms(x, log_theta, gene)
        above = x * (soft.view(-1)[places] - odds.view(-1)[places] - log_theta[gene]) - rise
        theta = log_theta.exp()
        losses = soft * theta
        losses.view(-1).index_add_(0, places, above)
        ctx.save_for_backward(log_share, odds, soft, theta, slope, columns, places, x)
        return losses

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None, None, None]:
        log_share, odds, soft, theta, slope, columns, places, x = ctx.saved_tensors
        share = torch.sigmoid(odds)  # μ / (μ + θ)
        at = share.view(-1)[places]
        by_theta = (soft - share).mul_(theta)  # the next line adds −x·share − ∂r for counts above zero
        by_theta.view(-1).index_add_(0, places, torch.addcmul(slope, x, at).neg_())
        by_mean = share.mul_(theta)  # the next line adds (share − 1)·x for counts above zero
        by_mean.view(-1).index_add_(0, places, x * (at - 1))
        by_mean = by_mean.mul_(grad)
        by_logits = log_share.exp().mul_(by_mean.sum(1, keepdim=True).neg_())
        if columns is None:
            by_logits.add_(by_mean)
        else:
            by_logits.index_add_(1, columns, by_mean)
        return by_logits, by_theta.mul_(grad).sum(0), None, None, None, None


def _gamma_terms(
    x: Float[Tensor, " entries"], log_theta: Float[Tensor, " genes"], gene: Int64[Tensor, " entries"]
) -> tuple[Float[Tensor, " entries"], Float[Tensor, " entries"]]:
    """Return r(x, θ) − log x! and θ·(ψ(x + θ) − ψ(θ)) − x, its derivative with respect to log θ.

    Computed in 64-bit floats if the device has them, since these are small differences of large values of log Γ.
    """
    wide = torch.float32 if x.device.type == "mps" else torch.float64
    log_of, count = log_theta.to(wide), x.to(wide)
    small = log_of.exp().clamp_(max=_LARGE)
    total = count + small[gene]
    rise = torch.lgamma(total) - (torch.lgamma(small)[gene] + count * log_of[gene])
    slope = small[gene] * (torch.digamma(total) - torch.digamma(small)[gene])
    # On other devices both forms are computed, since reading the values would make the host wait.
    if x.device.type != "cpu" or bool((log_of.exp() > _LARGE).any()):
        theta = log_of.exp().clamp_(min=_LARGE)[gene]
        total, growth = theta + count, torch.log1p(count / theta)
        large = log_of.exp()[gene] > _LARGE
        series = (total - 0.5) * growth - count + (1 / total - 1 / theta) / 12
        by_theta = theta * (growth - (1 / total**2 - 1 / theta**2) / 12) + 0.5 * count / total
        rise, slope = torch.where(large, series, rise), torch.where(large, by_theta, slope)
    return (rise - torch.lgamma(count + 1)).to(x.dtype), (slope - count).to(x.dtype)
