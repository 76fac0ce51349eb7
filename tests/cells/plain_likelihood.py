"""The likelihood of every count, zero or not: what the sparse losses of training are compared with."""

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus

from r2mae.cells.task import _gamma_term


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
    constant = _gamma_term(counts.reshape(-1), log_theta.expand_as(counts).reshape(-1)).view_as(counts)
    soft = softplus(log_mean - log_theta, threshold=40.0)
    return counts * log_mean - (counts + log_theta.exp()) * soft + constant
