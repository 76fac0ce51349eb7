"""Devices by name, and threads by number."""

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from r2mae.errors import UserError

_ALWAYS_ALLOWED_THREADS = 64  # so many are allowed on any machine


def torch_device(name: str) -> torch.device:
    """Return the device that "auto", "cpu", "cuda" or "cuda:N" means on this machine.

    Raises
    ------
    UserError
        For another name, or a device that is not there.
    """
    kind, _, number = name.partition(":")
    if kind not in ("auto", "cpu", "cuda") or (number and (kind != "cuda" or not number.isdigit())):
        raise UserError(f"unknown device {name!r}: choose auto, cpu, cuda or cuda:N")
    if kind == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if kind == "cuda" and int(number or 0) >= torch.cuda.device_count():
        raise UserError(f"this machine has no device {name!r}: leave --device out to take what there is")
    return torch.device(name)


def has_fast_bf16(device: torch.device) -> bool:
    """Tell whether products in bf16 are faster than in 32 bits here; of a CPU, oneDNN and the instructions say."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported())
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return onednn_takes_bf16()
    # There oneDNN also takes bf16 where it has to compute in 32 bits.
    asked = (getattr(torch.cpu, name, bool) for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"))
    return onednn_takes_bf16() and any(ask() for ask in asked)


def onednn_takes_bf16() -> bool:
    """Tell whether oneDNN has kernels of bf16 for this processor, with instructions of bf16 or without."""
    try:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    except (AttributeError, RuntimeError):  # torch without oneDNN
        return False


def check_threads(count: int | None) -> None:
    """Refuse more threads than make sense on this machine."""
    cores = os.cpu_count() or 1
    if count is not None and count > max(_ALWAYS_ALLOWED_THREADS, 4 * cores):
        raise UserError(
            f"--threads {count} is far above the {cores} cores of this machine: leave it out, or say {cores}"
        )


@contextmanager
def cpu_threads(count: int | None) -> Iterator[None]:
    """Within the block, let torch use this many threads (None: do not change the number)."""
    check_threads(count)
    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
