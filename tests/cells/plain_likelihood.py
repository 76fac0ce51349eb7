"""The likelihood of every count, zero or not: what the sparse losses of training are compared with."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import softplus

from r2mae.cells.likelihood import _gamma_terms


def nb_log_likelihood(
    counts: Float[Tensor, "cells genes"], log_mean: Float[Tensor, "cells genes"], log_theta: Float[Tensor, " genes"]
) -> Float[Tensor, "cells genes"]:
    """Return log NB(x | μ, θ) of every count (natural logarithm), differentiable by mean and dispersion.

    Parameters
    ----------
    counts : tensor, shape (cells, genes)
        x ≥ 0.
    log_mean : tensor, shape (cells, genes)
        log μ.
    log_theta : tensor, shape (genes,)
        log θ, one for each gene.
    """
    positions = torch.arange(counts.numel(), device=counts.device)
    constant = _GammaTerms.apply(counts.reshape(-1), log_theta, positions % counts.shape[1])  # type: ignore[no-untyped-call]
    soft = softplus(log_mean - log_theta, threshold=40.0)
    value: Tensor = counts * log_mean - (counts + log_theta.exp()) * soft + constant.view_as(counts)
    return value


class _GammaTerms(torch.autograd.Function):
    """r(x, θ) − log x! of counts, with its derivative with respect to log θ."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, log_theta: Tensor, gene: Tensor) -> Tensor:
        rise, slope = _gamma_terms(x, log_theta, gene)
        ctx.save_for_backward(slope, gene, log_theta)
        return rise

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, None]:
        slope, gene, log_theta = ctx.saved_tensors
        return None, torch.zeros_like(log_theta).index_add_(0, gene, grad * slope), None
