"""A run on this machine: device, number format, threads and rank, which the configuration leaves to the machine."""

import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import torch

from r2mae.errors import UserError
from r2mae.training.config import RunConfig
from r2mae.training.metrics import check_logger
from r2mae.training.ranks import local_rank, process_rank
from r2mae.training.task import Trainable


@dataclass(frozen=True, eq=False)
class Run:
    """A configuration and its domain on this machine; make it with :meth:`resolve`.

    `bf16` says whether products are in bf16. `rank` is that of this process among those that train the model; only rank
    0 writes.
    """

    config: RunConfig
    domain: Trainable
    device: torch.device
    bf16: bool
    rank: int

    @classmethod
    def resolve(cls, config: RunConfig, domain: Trainable, *, single_process: bool = False) -> "Run":
        """Resolve a configuration, and find its mistakes before data are read or files are written.

        With `single_process`, torchrun's ranks are ignored: the run belongs to this process alone.

        Raises
        ------
        UserError
            For missing devices or number formats, a tracker that is not installed, or another number of processes than
            in the configuration.
        """
        machine = config.machine
        device = torch_device(machine.device)
        check_logger(machine.logger)
        bf16 = uses_bf16(config.optimizer.precision, device)
        rank = 0 if single_process else process_rank(machine.devices, machine.nodes)
        if machine.ranks > 1 and ":" in machine.device:
            raise UserError(f"--device {machine.device} names one device: omit the number with --devices")
        if device.type == "cuda" and torch.cuda.device_count() < machine.devices:
            raise UserError(f"this machine has {torch.cuda.device_count()} CUDA devices, not {machine.devices}")
        if device.type == "cuda" and ":" not in machine.device:
            device = torch.device("cuda", local_rank() if machine.ranks > 1 else torch.cuda.current_device())
        return cls(config, domain, device, bf16, rank)

    @property
    def ranks(self) -> int:
        """Processes that train the model together."""
        return self.config.machine.ranks

    @cached_property
    def fingerprint(self) -> str:
        """The fingerprint of the run's data, computed on first use."""
        return self.domain.fingerprint(self.config)


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


@contextmanager
def cpu_threads(count: int | None) -> Iterator[None]:
    """Let torch use this many threads within the block (None: do not change the number)."""
    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
