"""The default numbers that a wing gives to masking schemes, such as the ratio and the range."""

from typing import Any, Protocol, runtime_checkable

from r2mae.masking.defaults import RatioDefaults
from r2mae.training.config import RunConfig


@runtime_checkable
class HasRatios(Protocol):
    """The part of a wing with its numbers for the schemes."""

    @property
    def ratios(self) -> RatioDefaults:
        """The numbers of the wing's own defaults."""


@runtime_checkable
class HasTimings(Protocol):
    """A wing whose numbers depend on the configuration, such as on the run of the paper whose schedules it follows."""

    def ratios_of(self, config: Any) -> RatioDefaults:
        """Return the numbers for such a run."""


def ratios_of(wing: HasRatios, config: RunConfig) -> RatioDefaults:
    """Return a wing's numbers for the schemes of a run."""
    return wing.ratios_of(config) if isinstance(wing, HasTimings) else wing.ratios
