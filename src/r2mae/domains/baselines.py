"""Baselines by name: what models are measured beside. Importing this module loads no torch.

A baseline is a function that is registered by a decorator, here for images::

    @baseline("median", "images", gives=("filling",), help="the median training image")
    def median(config, domain, data, *, items=None):
        return {"masked_mse": ...}

It returns scores by the names that the domain's `evaluate` uses, those that it can have. Other packages register
theirs by entry points of the group ``r2mae.baselines``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from r2mae.cores import gigabytes, memory_share
from r2mae.errors import UserError, install, warn_once
from r2mae.registry import external_baselines, same

if TYPE_CHECKING:
    from r2mae.domains.base import Domain
    from r2mae.training.config import RunConfig

Gives: TypeAlias = Literal["features", "filling", "variants"]
"""What a baseline has scores of: probes of an embedding, the error at hidden entries, or the ranking of variants."""
Score: TypeAlias = Callable[..., dict[str, float]]

EVERY = ""
"""The domain of baselines that every domain has."""


@dataclass(frozen=True)
class Baseline:
    """A registered baseline.

    Parameters
    ----------
    name : str
    domain : str
        Name of its domain, or :data:`EVERY`.
    score : callable
        ``score(config, domain, data, **options)`` returns scores by name. `options` are those of the domain's
        `evaluate` (:attr:`~r2mae.domains.base.Domain.evaluation_support`, and users' options).
    gives : tuple of {"features", "filling", "variants"}
        What it has scores of.
    help : str
        What it is, in a few words.
    default : bool
        Whether a comparison measures it by default.
    applies : callable
        ``applies(config)``: whether it exists for such a run.
    package : str, optional
        The module that it needs, such as ``"scvi"``, which is also the extra of this package that installs it.
    memory : callable, optional
        ``memory(config, data)``: the bytes that it needs besides the data.
    """

    name: str
    domain: str
    score: Score
    gives: tuple[Gives, ...]
    help: str
    default: bool = False
    applies: Callable[[Any], bool] = lambda config: True
    package: str | None = None
    memory: Callable[[Any, Any], int] | None = None

    def check_memory(self, config: Any, data: Any) -> None:
        """Refuse a baseline that needs more than this process's share of the memory."""
        if self.memory is None:
            return
        needed, limit = self.memory(config, data), memory_share()
        if needed > limit:
            raise UserError(
                f"the baseline {self.name} needs {gigabytes(needed)} of memory, and the limit is {gigabytes(limit)}: "
                "take fewer samples or features, lower --jobs of a comparison, or omit the baseline"
            )

    def takes(self, option: str) -> bool:
        """Tell whether the function has such an option."""
        parameters = signature(self.score).parameters.values()
        return any(one.name == option or one.kind is one.VAR_KEYWORD for one in parameters)

    def check_package(self) -> None:
        """Refuse a baseline whose package is missing."""
        if self.package is None:
            return
        try:
            is_there = find_spec(self.package) is not None
        except ModuleNotFoundError:  # of what is before a dot
            is_there = False
        if not is_there:
            raise UserError(f"the baseline {self.name} needs {self.package}: {install(self.package)}")


_REGISTRY: dict[tuple[str, str], Baseline] = {}


def baseline(
    name: str, domain: str, *, gives: tuple[Gives, ...], help: str, **properties: Any
) -> Callable[[Score], Score]:
    """Register the decorated function as a baseline; the arguments are the fields of :class:`Baseline`.

    Raises
    ------
    UserError
        If the domain has a baseline of this name. The same function defined again, as in a notebook, takes its place.
    """

    def add(score: Score) -> Score:
        for where in {domain, EVERY}:
            if (where, name) in _REGISTRY and not (where == domain and same(_REGISTRY[where, name].score, score)):
                raise UserError(f"there is already a baseline called {name!r} of {where or 'every domain'}: rename it")
        _REGISTRY[domain, name] = Baseline(name, domain, score, gives, help, **properties)
        return score

    return add


def known_baselines(domain: str) -> Mapping[str, Baseline]:
    """Return the baselines of a domain by name: those of every domain, its own, then those of other packages.

    For a module of another package that cannot be imported, a warning is logged once.
    """
    for name, (target, package) in external_baselines().items():
        _load(name, target, package)
    return {one.name: one for (of, _), one in _REGISTRY.items() if of in (EVERY, domain)}


@cache
def _load(name: str, target: str, package: str) -> None:
    try:
        import_module(target.partition(":")[0])
    except Exception as error:  # foreign code may raise anything
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:120]
        warn_once(f"the baseline {name!r} of {package} cannot be loaded ({reason}): repair or uninstall {package}")


@baseline("untrained", EVERY, gives=("features", "filling"), help="the network before its first step", default=True)
def untrained(config: "RunConfig", domain: "Domain", data: Any, **options: Any) -> dict[str, float]:
    """Measure the model that the run of this configuration begins with: the same architecture and initial weights."""
    from r2mae.training.loop import begin, keyed_torch
    from r2mae.training.run import torch_device

    data = domain.load(config) if data is None else data  # tasks of their own data still have the run's model
    with keyed_torch(config.key):
        task, model, _ = begin(config, domain, data)
    return domain.evaluate(config, task, model.to(torch_device(config.machine.device)).eval(), data, **options)
