"""The runs of a sweep: every variant (a configuration) under every seed, each in a folder of its own."""

import itertools
import math
import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from r2mae.errors import UserError
from r2mae.training.config import RunConfig
from r2mae.training.models import with_values

_SHARED_FIELDS = {one.name for one in fields(RunConfig)}


@dataclass(frozen=True)
class Variant:
    """A line of the sweep's table.

    Parameters
    ----------
    label : str
        "fixed 0.50", "mlp-16-64 0.30", …
    config : RunConfig
        Of its runs; the seed is set for each of them.
    values : mapping
        Columns of the table that distinguish the variant from others, such as `scheme` and `ratio`.
    baseline : bool
        Whether the variant is a baseline, which is measured without pretraining; the label is then its name.
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
    """A dimension of a sweep.

    Parameters
    ----------
    name : str
        Its column in the table.
    points : mapping of str to mapping
        Fields of the configuration by the label of each point: a domain's `presets` are such a mapping.
    """

    name: str
    points: Mapping[str, Mapping[str, Any]]

    @classmethod
    def over(cls, field_name: str, values: Sequence[float | int | str]) -> "SweepParameter":
        """Return the parameter on which one field of the configuration takes these values."""
        return cls(field_name, {_point_label(value): {field_name: value} for value in values})


def grid(base: RunConfig, parameters: Sequence[SweepParameter]) -> list[Variant]:
    """Return a variant for each combination of the parameters' points, the last parameter changing fastest.

    Raises
    ------
    UserError
        If an parameter is empty, two set the same field, or a point is no possible configuration.
    """
    fields = [{name for point in parameter.points.values() for name in point} for parameter in parameters]
    for parameter, mine in zip(parameters, fields, strict=True):
        if not parameter.points:
            raise UserError(
                f"the parameter {parameter.name!r} of the sweep has no points: name one, or leave the parameter out"
            )
        if any(mine & others for others in fields if others is not mine):
            raise UserError(
                f"the parameter {parameter.name!r} of the sweep sets a field that another sets, too: leave one out"
            )
    variants = []
    for labels in itertools.product(*(parameter.points for parameter in parameters)):
        config = base
        for parameter, label in zip(parameters, labels, strict=True):
            config = with_values(config, parameter.points[label])
        values = {parameter.name: label for parameter, label in zip(parameters, labels, strict=True)}
        variants.append(Variant(" ".join(labels), config, values))
    return variants


def runs_of(variants: Sequence[Variant], seeds: Sequence[int], out: Path) -> list[SweepRun]:
    """Return the runs, seed by seed, so that one seed of all variants is finished early.

    Raises
    ------
    UserError
        If two variants would have one folder.
    """
    names = {variant.label: _folder_name(variant.label) for variant in variants}
    owners: dict[str, str] = {}
    for label, name in names.items():
        if owners.setdefault(name, label) != label:
            both = f"{owners[name]!r} and {label!r}"
            raise UserError(f"the variants {both} would have one folder, {name}: leave one of them out")
    return [
        SweepRun(
            variant, seed, replace(variant.config, seed=seed), out / "runs" / names[variant.label] / f"seed-{seed}"
        )
        for seed in seeds
        for variant in variants
    ]


def _folder_name(label: str) -> str:
    """Return the name of a row's folder; what no folder may have in its name, such as "/", stands as %2F."""
    never = r"[/\x00-\x1f]|%(?=[0-9A-F]{2})"
    name = re.sub(never, lambda found: f"%{ord(found[0]):02X}", label.replace(" ", "-"))
    return name if name.strip(".") else name.replace(".", "%2E")


def runs_of_groups(groups: Mapping[str, Sequence[Variant]], seeds: Sequence[int], out: Path) -> list[SweepRun]:
    """Return the runs of several tables, such as one for each set of data, each in a folder of its name."""
    return [run for name, variants in groups.items() for run in runs_of(variants, seeds, out / name)]


def data_key(config: RunConfig) -> Hashable:
    """Return what the data that a run reads depend on: their name, and the fields of its domain, which say how."""
    own = sorted({field.name for field in fields(config)} - _SHARED_FIELDS)
    return tuple((name, repr(getattr(config, name))) for name in ("data", *own))


def _point_label(value: float | str) -> str:
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:.2f}" if round(value, 2) == value else f"{value:g}"
    return str(value)
