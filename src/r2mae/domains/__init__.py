"""The contract of a domain, and how to find a domain by its name."""

from typing import TYPE_CHECKING

from r2mae.lazy import lazy_exports

if TYPE_CHECKING:
    from r2mae.domains.base import Domain
    from r2mae.domains.baselines import Baseline, baseline
    from r2mae.domains.lookup import get_domain
    from r2mae.domains.options import Command, CommandLine, Evaluation, ModelFormat, Offered

__all__ = [
    "Baseline",
    "Command",
    "CommandLine",
    "Domain",
    "Evaluation",
    "ModelFormat",
    "Offered",
    "baseline",
    "get_domain",
]

__getattr__, __dir__ = lazy_exports(__name__, __all__)
