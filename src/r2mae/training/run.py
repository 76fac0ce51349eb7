"""A run on this machine: resolves once what the configuration leaves to the machine."""

from dataclasses import dataclass
from functools import cached_property

import torch

from r2mae.masking.keys import Key
from r2mae.training.config import RunConfig
from r2mae.training.devices import check_threads, torch_device
from r2mae.training.loggers import check_logger
from r2mae.training.ranks import process_rank
from r2mae.training.task import Trainable


@dataclass(frozen=True, eq=False)
class Run:
    """A configuration together with its device and rank on this machine; make it with :meth:`resolve`.

    Parameters
    ----------
    config : RunConfig
        The user's configuration.
    domain : Trainable
        The domain of its data and model.
    device : torch.device
        Device of the training.
    rank : int
        Rank of this process among those that train the model; only rank 0 writes.
    """

    config: RunConfig
    domain: Trainable
    device: torch.device
    rank: int

    @classmethod
    def resolve(cls, config: RunConfig, domain: Trainable, *, single_process: bool = False) -> "Run":
        """Resolve a configuration, and find its mistakes before data are read or files are written.

        With `single_process`, a launcher's ranks are ignored: the run belongs to this process alone.

        Raises
        ------
        UserError
            For a missing device, far too many threads, a tracker that is not installed,
            or another number of processes than in the configuration.
        """
        device = torch_device(config.device)
        check_threads(config.threads)
        check_logger(config.logger)
        return cls(config, domain, device, 0 if single_process else process_rank(config.devices, config.nodes))

    @property
    def key(self) -> Key:
        """The root of all random numbers of the run."""
        return self.config.key

    @cached_property
    def fingerprint(self) -> str:
        """The fingerprint of the run's data, computed on first use."""
        return self.domain.fingerprint(self.config)
