"""The runs of a sweep: every variant (a configuration) under every seed, each in a folder of its own."""

import itertools
import math
import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from r2mae.errors import UserError
from r2mae.training.config import RunConfig
from r2mae.training.fields import short_repr

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


@dataclass(frozen=True)
class SweepParameter:
    """A parameter that a sweep varies.

    Parameters
    ----------
    name : str
        Name of its column in the table.
    points : mapping of str to mapping
        For each point its label and the fields of the configuration that it sets, as in a domain's `presets`.
    """

    name: str
    points: Mapping[str, Mapping[str, Any]]

    @classmethod
    def over(cls, field_name: str, values: Sequence[float | int | str]) -> "SweepParameter":
        """Return a parameter that sets one field of the configuration to each of these values."""
        return cls(field_name, {_point_label(value): {field_name: value} for value in values})


def grid(base: RunConfig, parameters: Sequence[SweepParameter]) -> list[Variant]:
    """Return a variant for each combination of the parameters' points, the last parameter changing fastest.

    Raises
    ------
    UserError
        If a parameter has no points, two parameters set the same field, or a configuration is invalid.
    """
    fields = [{name for point in parameter.points.values() for name in point} for parameter in parameters]
    for parameter, own in zip(parameters, fields, strict=True):
        if not parameter.points:
            raise UserError(
                f"the parameter {parameter.name!r} of the sweep has no points: name one, or omit the parameter"
            )
        if any(own & others for others in fields if others is not own):
            raise UserError(
                f"the parameter {parameter.name!r} of the sweep sets a field that another parameter sets: omit one"
            )
    variants = []
    for labels in itertools.product(*(parameter.points for parameter in parameters)):
        config = base
        for parameter, label in zip(parameters, labels, strict=True):
            config = config.replace(**parameter.points[label])
        values = {parameter.name: label for parameter, label in zip(parameters, labels, strict=True)}
        variants.append(Variant(" ".join(labels), config, values))
    return variants


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

    Raises
    ------
    UserError
        If two variants would share a folder.
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


def runs_of_groups(groups: Mapping[str, Sequence[Variant]], seeds: Sequence[int], out: Path) -> list[SweepRun]:
    """Return the runs of several groups of variants, such as one for each data set, each in a folder of its name."""
    return [run for name, variants in groups.items() for run in runs_of(variants, seeds, out / name)]


def data_key(config: RunConfig) -> Hashable:
    """Return a key that is equal for runs that read the same data in the same way."""
    return repr((config.data, config.task))


def _point_label(value: float | str) -> str:
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:.2f}" if round(value, 2) == value else f"{value:g}"
    return str(value)
