"""Devices by name, and threads by number."""

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from r2mae.errors import UserError

_ALWAYS_ALLOWED_THREADS = 64  # on any machine


def torch_device(name: str) -> torch.device:
    """Return the device that "auto", "cpu", "cuda" or "cuda:N" means on this machine; one that it lacks is refused."""
    kind, _, number = name.partition(":")
    if kind not in ("auto", "cpu", "cuda") or (number and (kind != "cuda" or not number.isdigit())):
        raise UserError(f"unknown device {name!r}: choose auto, cpu, cuda or cuda:N")
    if kind == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if kind == "cuda" and int(number or 0) >= torch.cuda.device_count():
        raise UserError(f"this machine has no device {name!r}: omit --device to choose automatically")
    return torch.device(name)


def has_fast_bf16(device: torch.device) -> bool:
    """Return whether bf16 products are faster than 32 bits on a device; on a CPU, by oneDNN and instructions."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported())
    try:
        known = bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    except (AttributeError, RuntimeError):  # torch without oneDNN
        return False
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return known
    # On x86, oneDNN also takes bf16 if it has to compute in 32 bits.
    checks = (getattr(torch.cpu, name, bool) for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"))
    return known and any(check() for check in checks)


def uses_bf16(precision: str, device: torch.device) -> bool:
    """Return whether products of a run are in bf16; "auto" means bf16 on a GPU that supports it.

    A device without instructions for bf16, where such products take many times as long as in 32 bits, is refused.
    """
    if precision == "auto":
        return device.type == "cuda" and has_fast_bf16(device)
    if precision == "bf16" and not has_fast_bf16(device):
        kind = "GPU" if device.type == "cuda" else "processor"
        raise UserError(f"this {kind} has no bf16 instructions: give --precision 32, or use a GPU that has them")
    return precision == "bf16"


def check_threads(count: int | None) -> None:
    """Refuse far more threads than this machine has cores."""
    cores = os.cpu_count() or 1
    if count is not None and count > max(_ALWAYS_ALLOWED_THREADS, 4 * cores):
        raise UserError(f"--threads {count} is far above the {cores} cores of this machine: omit it, or set {cores}")


@contextmanager
def cpu_threads(count: int | None) -> Iterator[None]:
    """Let torch use this many threads within the block (None: do not change the number)."""
    check_threads(count)
    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
