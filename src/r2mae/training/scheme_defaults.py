"""The defaults that a domain gives to masking schemes, such as the ratio and the range."""

from typing import Any, Protocol, runtime_checkable

from r2mae.masking.defaults import RatioDefaults
from r2mae.training.config import RunConfig


@runtime_checkable
class HasRatios(Protocol):
    """The part of a domain with its numbers for the schemes."""

    @property
    def ratios(self) -> RatioDefaults:
        """The numbers of the domain's own defaults."""


@runtime_checkable
class HasTimings(Protocol):
    """A domain whose numbers depend on the configuration, such as on the paper's run whose schedules it follows."""

    def ratios_of(self, config: Any) -> RatioDefaults:
        """Return the numbers for such a run."""


def ratios_of(domain: HasRatios, config: RunConfig) -> RatioDefaults:
    """Return a domain's defaults for the schemes of a run."""
    return domain.ratios_of(config) if isinstance(domain, HasTimings) else domain.ratios
