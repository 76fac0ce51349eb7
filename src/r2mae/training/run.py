"""A run on this machine: resolves once what the configuration leaves to the machine."""

from dataclasses import dataclass
from functools import cached_property

import torch

from r2mae.errors import UserError
from r2mae.training.config import RunConfig
from r2mae.training.devices import check_threads, torch_device, uses_bf16
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
            For missing devices or number formats, far too many threads, a tracker that is not installed, or another
            number of processes than in the configuration.
        """
        device = torch_device(config.machine.device)
        check_threads(config.machine.threads)
        check_logger(config.machine.logger)
        bf16 = uses_bf16(config.optimizer.precision, device)
        rank = 0 if single_process else process_rank(config.machine.devices, config.machine.nodes)
        if config.machine.ranks > 1:
            if ":" in config.machine.device:
                raise UserError(f"--device {config.machine.device} names one device: omit the number with --devices")
            if device.type == "cuda" and torch.cuda.device_count() < config.machine.devices:
                raise UserError(
                    f"this machine has {torch.cuda.device_count()} CUDA devices, not {config.machine.devices}"
                )
        if device.type == "cuda" and ":" not in config.machine.device:
            device = torch.device("cuda", local_rank() if config.machine.ranks > 1 else torch.cuda.current_device())
        return cls(config, domain, device, bf16, rank)

    @property
    def ranks(self) -> int:
        """Processes that train the model together."""
        return self.config.machine.ranks

    @cached_property
    def fingerprint(self) -> str:
        """The fingerprint of the run's data, computed on first use."""
        return self.domain.fingerprint(self.config)
