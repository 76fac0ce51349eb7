"""The modules of the domains, and the schemes and commands of other packages. No domain is imported here."""

import sys
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

JOBS = "R2MAE_JOBS"
"""Environment variable with the number of concurrent processes of a comparison."""

GROUP = "r2mae.domains"
"""Entry points by which other packages register domains: ``waves = "my_package.domain:DOMAIN"``."""

SCHEMES = "r2mae.schemes"
"""Entry points by which other packages register schemes: ``r2mae-wide = "my_package.schemes"``."""

BASELINES = "r2mae.baselines"
"""Entry points by which other packages register baselines: ``median = "my_package.baselines"``."""

COMMANDS = "r2mae.commands"
"""Entry points by which other packages add commands: ``reproduce = "my_package.command:run"``, a function of words."""


BUILT_IN = {
    "images": "r2mae.images.domain:DOMAIN",
    "cells": "r2mae.cells.domain:DOMAIN",
    "text": "r2mae.text.domain:DOMAIN",
    "genome": "r2mae.genome.domain:DOMAIN",
}
"""The package's own domains, as ``module:object``."""

DOMAIN_COMMANDS = {
    "finetune": ("images", "fine-tune a pretrained model of images on labels"),
    "score-variants": ("genome", "score variants with a pretrained model"),
    "data alignment build": ("genome", "make a store of an alignment: MAF, FASTA or zarr"),
    "data alignment info": ("genome", "print the contents of a store, and verify it"),
    "data alignment track": ("genome", "add values for each position to a store"),
    "data alignment export": ("genome", "write a store as a zarr group"),
}
"""The commands of own domains, which define them in `command_line`: the domain and a help text, by name."""


def same(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    """Return whether two functions have the same place: one is the other, defined again, as in a cell of a notebook."""
    return (one.__module__, one.__qualname__) == (other.__module__, other.__qualname__)


class Domains(Mapping[str, str]):
    """The location of each domain, as ``module:object``: built-in domains, then those of other packages.

    Entry points are read when a name that is not built in is looked up, or when all are listed. A built-in name wins.
    """

    def __getitem__(self, name: str) -> str:
        return BUILT_IN[name] if name in BUILT_IN else _external_entries(tuple(sys.path))[GROUP][name][0]

    def __iter__(self) -> Iterator[str]:
        yield from BUILT_IN
        yield from (name for name in _external_entries(tuple(sys.path))[GROUP] if name not in BUILT_IN)

    def __len__(self) -> int:
        return sum(1 for _ in self)


DOMAINS = Domains()


def package_of(name: str) -> str | None:
    """Return the distribution that registers a domain, or None for a built-in one."""
    return None if name in BUILT_IN else _external_entries(tuple(sys.path))[GROUP][name][1]


def external_schemes() -> Mapping[str, tuple[str, str]]:
    """Return module and distribution of each scheme of another package, by name."""
    return _external_entries(tuple(sys.path))[SCHEMES]


def external_baselines() -> Mapping[str, tuple[str, str]]:
    """Return module and distribution of each baseline of another package, by name."""
    return _external_entries(tuple(sys.path))[BASELINES]


def external_commands() -> Mapping[str, tuple[str, str]]:
    """Return location and distribution of each command that other packages register, by name."""
    return _external_entries(tuple(sys.path))[COMMANDS]


@lru_cache(maxsize=4)
def _external_entries(path: tuple[str, ...]) -> dict[str, dict[str, tuple[str, str]]]:
    """Return location and distribution of all entry points of other packages on the path, by group and name."""
    from importlib.metadata import entry_points  # imported late: most commands use a built-in domain

    every = entry_points()
    return {
        group: {
            point.name: (point.value.split("[")[0].strip(), point.dist.name if point.dist else "another package")
            for point in sorted(every.select(group=group), key=lambda point: point.name)
        }
        for group in (GROUP, SCHEMES, BASELINES, COMMANDS)
    }
