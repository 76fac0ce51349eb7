"""The runs of a sweep: every variant (a configuration) under every seed, each in a folder of its own."""

import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from r2mae.errors import UserError
from r2mae.fields import short_repr
from r2mae.training.config import RunConfig

_MOST_SEEDS = 10_000


@dataclass(frozen=True)
class Variant:
    """A configuration of the sweep, to be run under every seed.

    Parameters
    ----------
    label : str
        "fixed 0.50", "mlp-16-64 0.30", …
    config : RunConfig
        The configuration of its runs, except for the seed.
    values : mapping
        Columns of the table that distinguish the variant from others, such as `scheme` and `ratio`.
    baseline : bool
        Whether the variant is a baseline, which is measured without pretraining. Its label is the baseline's name.
    """

    label: str
    config: RunConfig
    values: Mapping[str, Any] = field(default_factory=dict)
    baseline: bool = False


@dataclass(frozen=True)
class SweepRun:
    """A run of the sweep: a variant under a seed, in a folder of its own."""

    variant: Variant
    seed: int
    config: RunConfig
    folder: Path


def seeds_of(numbers: Sequence[int]) -> list[int]:
    """Return the seeds: 0, 1, 2 for the one number 3, and several numbers as they are."""
    if len(numbers) == 1:
        if not 1 <= numbers[0] <= _MOST_SEEDS:
            raise UserError(f"a comparison takes 1 to {_MOST_SEEDS:,} seeds, not {short_repr(numbers[0])}")
        return list(range(numbers[0]))
    if not numbers or min(numbers) < 0 or len(set(numbers)) < len(numbers):
        words = " ".join(map(short_repr, numbers)) or "an empty list"
        raise UserError(f"seeds must be their number, or different numbers of 0 or more, not {words}")
    return list(numbers)


def runs_of(variants: Sequence[Variant], seeds: Sequence[int], out: Path) -> list[SweepRun]:
    """Return the runs, seed by seed, so that all variants have a finished seed early.

    Raises a :class:`UserError` if two variants would share a folder.
    """
    names = {variant.label: _folder_name(variant.label) for variant in variants}
    owners: dict[str, str] = {}
    for label, name in names.items():
        if owners.setdefault(name, label) != label:
            both = f"{owners[name]!r} and {label!r}"
            raise UserError(f"the variants {both} would share the folder {name}: omit one of them")
    return [
        SweepRun(variant, seed, variant.config.replace(seed=seed), out / "runs" / names[variant.label] / f"seed-{seed}")
        for seed in seeds
        for variant in variants
    ]


def _folder_name(label: str) -> str:
    """Return the name of a variant's folder. Characters that names cannot contain are escaped, such as "/" as %2F."""
    never = r"[/\x00-\x1f]|%(?=[0-9A-F]{2})"
    name = re.sub(never, lambda found: f"%{ord(found[0]):02X}", label.replace(" ", "-"))
    return name if name.strip(".") else name.replace(".", "%2E")


def data_key(config: RunConfig) -> Hashable:
    """Return a key that is equal for runs that read the same data in the same way."""
    return repr((config.data, config.task))
