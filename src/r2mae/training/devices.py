"""Devices by name, and threads by number."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from r2mae.errors import UserError

_THREADS = 64  # so many are allowed on any machine


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


def check_threads(count: int | None) -> None:
    """Refuse more threads than make sense on this machine."""
    cores = os.cpu_count() or 1
    if count is not None and count > max(_THREADS, 4 * cores):
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
