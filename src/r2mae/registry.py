"""The wings by name: where each lives, and nothing is imported before it is asked for."""

import sys
from collections.abc import Iterator, Mapping
from functools import lru_cache

JOBS = "R2MAE_JOBS"
"""Environment variable in which a comparison tells its processes how many they are."""

GROUP = "r2mae.wings"
"""Entry points by which other packages register wings: ``waves = "my_package.wing:WING"``."""

BUILT_IN = {
    "images": "r2mae.images.wing",
    "cells": "r2mae.cells.wing",
    "text": "r2mae.text.wing",
}
"""The package's own wings, one line each; the object is called WING."""

FOLLOW_UPS = {"images-finetune": "r2mae.images.finetune.wing"}
"""What opens runs that start from another run. They are no domain: a command of their wing makes them."""

WITH_COMMANDS: tuple[str, ...] = ("images",)
"""Those of them that declare commands of their own: the list of commands need not import the others."""


class Wings(Mapping[str, str]):
    """Where each wing lives, as ``module`` or ``module:object``: the built-in ones, then those of other packages.

    Entry points are read when a name that is not built in is looked up, or when all are listed. A built-in name wins.
    """

    def __getitem__(self, name: str) -> str:
        return BUILT_IN[name] if name in BUILT_IN else _elsewhere(tuple(sys.path))[name][0]

    def __iter__(self) -> Iterator[str]:
        yield from BUILT_IN
        yield from (name for name in _elsewhere(tuple(sys.path)) if name not in BUILT_IN)

    def __len__(self) -> int:
        return sum(1 for _ in self)


WINGS = Wings()


def package_of(name: str) -> str | None:
    """Return the distribution that registers a wing, or None for a built-in one."""
    return None if name in BUILT_IN or name in FOLLOW_UPS else _elsewhere(tuple(sys.path))[name][1]


@lru_cache(maxsize=4)
def _elsewhere(path: tuple[str, ...]) -> dict[str, tuple[str, str]]:
    """Return place and distribution of each wing that other packages on the path register."""
    from importlib.metadata import entry_points  # which takes milliseconds, and most commands name a built-in wing

    return {
        point.name: (point.value.split("[")[0].strip(), point.dist.name if point.dist else "another package")
        for point in sorted(entry_points(group=GROUP), key=lambda point: point.name)
    }
