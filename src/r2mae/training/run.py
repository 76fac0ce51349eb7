"""A run on this machine: everything that the configuration leaves to the domain or the machine, decided once."""

from dataclasses import dataclass
from functools import cached_property

import torch

from r2mae.masking.defaults import RatioDefaults
from r2mae.masking.keys import Key
from r2mae.masking.schemes import Scheme
from r2mae.training.config import RunConfig
from r2mae.training.devices import check_threads, torch_device
from r2mae.training.loggers import check_logger
from r2mae.training.ranks import process_rank
from r2mae.training.scheme_defaults import ratios_of
from r2mae.training.scheme_options import scheme_of
from r2mae.training.task import Trainable


@dataclass(frozen=True, eq=False)
class Run:
    """A configuration together with its scheme, device and rank on this machine; make it with :meth:`of`.

    Parameters
    ----------
    config : RunConfig
        The user's configuration.
    domain : Trainable
        The domain of its data and model.
    defaults : RatioDefaults
        The domain's defaults for the schemes of such a run.
    scheme : Scheme, optional
        Not yet bound to a number of steps, which is only known once the data are read; None for a run that hides
        nothing.
    device : torch.device
        Where it trains.
    rank : int
        Of this process among those that train the model together; 0 alone writes.
    """

    config: RunConfig
    domain: Trainable
    defaults: RatioDefaults
    scheme: Scheme | None
    device: torch.device
    rank: int

    @classmethod
    def of(cls, config: RunConfig, domain: Trainable, *, alone: bool = False) -> "Run":
        """Resolve a configuration. Its mistakes are found here, before data are read or files are written.

        With `alone` the run is this process's own, whatever a launcher says of it: one that follows the run of several.

        Raises
        ------
        UserError
            For a scheme or options that do not exist, a device that is not here, far too many threads, a tracker that
            is not installed, or another number of processes than the configuration says.
        """
        defaults = ratios_of(domain, config)
        scheme = scheme_of(config, defaults) if config.hides else None
        device = torch_device(config.device)
        check_threads(config.threads)
        check_logger(config.logger)
        return cls(config, domain, defaults, scheme, device, 0 if alone else process_rank(config.devices, config.nodes))

    @property
    def key(self) -> Key:
        """The root of all random defaults of the run."""
        return self.config.key

    @cached_property
    def fingerprint(self) -> str:
        """The fingerprint of the run's data, computed on first use."""
        return self.domain.fingerprint(self.config)
