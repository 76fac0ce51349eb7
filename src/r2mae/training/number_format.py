"""The number format of a run's matrix products on its device."""

from typing import Literal, TypeAlias

import torch

from r2mae.training.config import RunConfig
from r2mae.training.devices import has_fast_bf16, onednn_takes_bf16

NumberFormat: TypeAlias = Literal["32", "bf16", "rounded"]
"""32 bits; torch's own bf16; or bf16 in products of 32 bits (:mod:`r2mae.training.rounded_products`)."""


def number_format(config: RunConfig, device: torch.device) -> NumberFormat:
    """Return the number format of a run on a device.

    bf16 is emulated by rounding ("rounded") on processors for which oneDNN has no bf16 kernels: there, torch's kernels
    are many times slower than 32 bits. Compiled code has its own kernels.
    """
    quick = device.type == "cuda" and config.precision == "auto" and has_fast_bf16(device)
    if config.precision != "bf16" and not quick:
        return "32"
    rounds = device.type == "cpu" and not config.compile and not onednn_takes_bf16()
    return "rounded" if rounds else "bf16"


def precision_warning(config: RunConfig, device: torch.device) -> str:
    """Return a warning about bf16 on this device; empty if there is none."""
    if config.precision != "bf16" or has_fast_bf16(device):
        return ""
    if number_format(config, device) == "rounded":
        return (
            "torch finds no bf16 instructions on this processor: products are made in 32 bits from numbers rounded to "
            "bf16, with the results of bf16 up to rounding, and without its speed"
        )
    return "torch finds no bf16 instructions on this processor: --precision bf16 may be slower than 32 bits"
