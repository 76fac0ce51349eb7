"""The negative binomial likelihood of counts, stable for any mean and dispersion, and fast if most counts are zero.

With mean μ and inverse dispersion θ (scvi-tools' parametrisation; the variance is μ + μ²/θ) and d = log μ − log θ,

    log NB(x | μ, θ) = x·log μ − (x + θ)·log(1 + e^d) − log x! + r(x, θ),   r = log Γ(x + θ) − log Γ(θ) − x·log θ.

No precision is lost for μ → 0 or θ → ∞ (the Poisson distribution): log(1 + e^d) is a softplus, and r goes to zero as θ
grows. At x = 0 only −θ·log(1 + e^d) remains, and most counts of single cells are zero.
"""

import math

import torch
from jaxtyping import Float, Int64
from torch import Tensor
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

    A zero costs one softplus; the other terms are computed for counts above zero alone.

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
    log_theta = (log_theta if columns is None else log_theta.index_select(0, columns)).float()
    log_share = torch.log_softmax(logits.float(), 1)
    log_share = log_share if columns is None else log_share.index_select(1, columns)
    odds = log_share + library.float().log()[:, None] - log_theta  # d
    soft = softplus(odds, threshold=40.0)
    # Positions are unique, so that gradients are summed in one order on every device.
    at_soft, at_odds, at_theta = (
        values.reshape(-1).index_select(0, places) for values in (soft, odds, log_theta.expand_as(odds))
    )
    above = counts * (at_soft - at_odds - at_theta) - _gamma_term(counts, at_theta)
    losses = soft * log_theta.exp()
    return losses.view(-1).index_add(0, places, above).view_as(losses)


def _gamma_term(x: Float[Tensor, " entries"], log_theta: Float[Tensor, " entries"]) -> Float[Tensor, " entries"]:
    """Return r(x, θ) − log x!, computed in 64-bit floats if the device has them: a small difference of large log Γ."""
    wide = torch.float32 if x.device.type == "mps" else torch.float64
    log_of, count = log_theta.to(wide), x.to(wide)
    small = log_of.exp().clamp(max=_LARGE)
    rise = torch.lgamma(small + count) - (torch.lgamma(small) + count * log_of)
    # On other devices both forms are computed, since reading the values would make the host wait.
    if x.device.type != "cpu" or bool((log_of > math.log(_LARGE)).any()):
        theta = log_of.exp().clamp(min=_LARGE)
        total, growth = theta + count, torch.log1p(count / theta)
        series = (total - 0.5) * growth - count + (1 / total - 1 / theta) / 12
        rise = torch.where(log_of > math.log(_LARGE), series, rise)
    return (rise - torch.lgamma(count + 1)).to(x.dtype)
