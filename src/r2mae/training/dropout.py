"""Dropout on a CPU from few random bits, in a quarter of the time of torch's dropout."""

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import dropout

_BITS = 65536


def uses_cpu_kernels(tensor: Tensor) -> bool:
    """Return whether 32-bit or bf16 CPU kernels apply: not on other devices, or in compiled code (which fuses)."""
    known = tensor.dtype in (torch.float32, torch.bfloat16)
    return known and tensor.device.type == "cpu" and not torch.compiler.is_compiling()


def drop(states: Float[Tensor, "*shape"], rate: float) -> Float[Tensor, "*shape"]:
    """Apply dropout; on a CPU from 16 random bits per entry.

    On a CPU the rate is rounded to a multiple of 2⁻¹⁶ (0.1 becomes 0.100006), and the scale matches it exactly.
    """
    if rate in {0, 1} or not uses_cpu_kernels(states):
        return dropout(states, rate)
    if states.dtype == torch.float32:
        return states * keep_factors(states.shape, rate)
    return (states * _keep_mask(states.shape, rate)).mul_(_scale(rate))


def add_dropped(
    residual: Float[Tensor, "*shape"], states: Float[Tensor, "*shape"], rate: float
) -> Float[Tensor, "*shape"]:
    """Return ``residual + drop(states, rate)``, in one pass on a CPU."""
    if rate in {0, 1} or not uses_cpu_kernels(states):
        return residual + dropout(states, rate)
    if states.dtype == torch.float32 and residual.dtype == torch.float32:
        return torch.addcmul(residual, states, keep_factors(states.shape, rate))
    return residual + drop(states, rate)


def mix_dropped(
    probabilities: Float[Tensor, "*batch places length"], values: Float[Tensor, "*batch length width"], rate: float
) -> Float[Tensor, "*batch places width"]:
    """Return ``drop(probabilities, rate) @ values``, where :func:`uses_cpu_kernels` holds and the rate is above 0."""
    if probabilities.dtype == torch.float32:
        return (probabilities * keep_factors(probabilities.shape, rate)) @ values
    return ((probabilities * _keep_mask(probabilities.shape, rate)) @ values).mul_(_scale(rate))


def keep_factors(shape: torch.Size, rate: float) -> Float[Tensor, "*shape"]:
    """Return 0 at dropped entries and 1/(1 − rate) at the others, in 32 bits."""
    return _draw_keep_mask(shape, rate, torch.float32).mul_(_scale(rate)).view(shape)


def _keep_mask(shape: torch.Size, rate: float) -> Float[Tensor, "*shape"]:
    """Return 0 at dropped entries and 1 at the others, in bf16, which has no number near 1/(1 − rate)."""
    return _draw_keep_mask(shape, rate, torch.bfloat16).view(shape)


def _draw_keep_mask(shape: torch.Size, rate: float, kind: torch.dtype) -> Float[Tensor, " n"]:
    """Draw 0 and 1. Torch's generator seeds numpy's fastest one, which makes bits in half the time."""
    count = shape.numel()
    seed = int(torch.empty((), dtype=torch.int64, device="cpu").random_())
    bits = torch.from_numpy(np.random.SFC64(seed).random_raw(-(-count // 4)).view(np.int16))[:count]
    limit = _dropped_levels(rate) - _BITS // 2
    if kind == torch.float32:
        return torch.ge(bits, limit, out=torch.empty(count, dtype=kind, device="cpu"))
    kept: Bool[Tensor, " n"] = torch.ge(bits, limit)
    return kept.view(torch.int8).to(kind)


def _dropped_levels(rate: float) -> int:
    return min(round(rate * _BITS), _BITS - 1)


def _scale(rate: float) -> float:
    return _BITS / (_BITS - _dropped_levels(rate))
