"""The runs of a sweep: every variant under every seed, and the variants of a comparison.

A variant is a scheme, or one fixed ratio of a scheme that has one.
"""

import math
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, SupportsFloat, SupportsIndex

from r2mae.compare.comparison import BASELINE
from r2mae.errors import UserError, nearest
from r2mae.fields import describe_type, plain, several, short_repr, value_of
from r2mae.masking.schemes import option_not_taken, scheme_kind, scheme_names
from r2mae.training.config import RunConfig
from r2mae.training.scheme import SchemeSpec

_MOST = 10_000  # seeds of a comparison


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


def seeds_of(given: SupportsIndex | Iterable[SupportsIndex]) -> list[int]:
    """Return the seeds: 0, 1, 2 for the number 3, and those of a list as they are."""
    count, seeds = plain(given), listed("seeds", given, int)
    if not isinstance(count, Iterable):
        if not 1 <= seeds[0] <= _MOST:
            raise UserError(f"a comparison takes 1 to {_MOST:,} seeds, not {short_repr(given)}")
        return list(range(seeds[0]))
    if not seeds or min(seeds) < 0 or len(set(seeds)) < len(seeds):
        words = " ".join(map(short_repr, seeds[:9])) or "an empty list"
        raise UserError(f"seeds must be their number, or different numbers of 0 or more, not {words}")
    return seeds


def listed(name: str, given: Any, kind: Any) -> list[Any]:
    """Return one value or several of a type as a list; an error names them by `name`."""
    values = several(name, given)
    try:
        return [value_of(value, kind) for value in values]
    except ValueError:
        raise UserError(f"{name} takes {describe_type(kind)}, or a list of such, not {short_repr(given)}") from None


def runs_of(variants: Sequence[Variant], seeds: Iterable[SupportsIndex], out: Path) -> list[SweepRun]:
    """Return the runs, seed by seed, so that all variants have a finished seed early.

    Raises a :class:`UserError` if two variants would share a folder.
    """
    names = {variant.label: _folder_name(variant.label) for variant in variants}
    owners: dict[str, str] = {}
    for label, name in names.items():
        if owners.setdefault(name, label) != label:
            both = f"{owners[name]!r} and {label!r}"
            raise UserError(f"the variants {both} would share the folder {name}: omit one of them")
    each = [(variant, variant.config.replace(seed=seed)) for seed in seeds for variant in variants]
    return [
        SweepRun(variant, config.seed, config, out / "runs" / names[variant.label] / f"seed-{config.seed}")
        for variant, config in each
    ]


def _folder_name(label: str) -> str:
    """Return the name of a variant's folder. Characters that names cannot contain are escaped, such as "/" as %2F."""
    never = r"[/\x00-\x1f]|%(?=[0-9A-F]{2})"
    name = re.sub(never, lambda found: f"%{ord(found[0]):02X}", label.replace(" ", "-"))
    return name if name.strip(".") else name.replace(".", "%2E")


def data_key(config: RunConfig) -> Hashable:
    """Return a key that is equal for runs that read the same data in the same way."""
    return repr((config.data, config.task))


_RATIO_OPTIONS = ("ratio", "low", "high")  # a scheme of fixed ratios has a variant at each of them


def default_schemes(config: RunConfig) -> list[str]:
    """Return the default schemes: those that cost no more than a fixed ratio, and that the weighting allows."""
    names = ["fixed", "dynamic", "mdlm", "r2mae"]
    return names if config.task.weighting == "inverse-ratio" else [*names, "r2mae-per-sample"]


def plan_variants(
    base: RunConfig,
    schemes: str | Iterable[str],
    options: Mapping[str, Any] | None = None,
    ratios: SupportsFloat | Iterable[SupportsFloat] | None = None,
) -> list[Variant]:
    """Return the variants of a comparison.

    Parameters
    ----------
    base : RunConfig
        The fields that all variants share; its scheme is replaced.
    schemes : str or iterable of str
        Registered names. "fixed" and every other scheme registered with ``per_ratio=True`` give one variant for each
        fixed ratio.
    options : mapping, optional
        Options of schemes by name, by default those that the scheme of `base` was given. Each variant has those that
        its scheme takes, and the domain's defaults for others.
    ratios : float or iterable of float, optional
        The fixed ratios. The default: low, the default ratio and high, or the ratios that the domain sets for the
        model.

    Raises
    ------
    UserError
        For unknown or repeated schemes, impossible ratios, and options that no variant takes.
    """
    schemes = listed("schemes", schemes, str)
    chosen = None if ratios is None else listed("ratios", ratios, float)
    if not schemes:
        raise UserError("schemes is an empty list: name schemes, or omit the option")
    if chosen is not None and not chosen:
        raise UserError("ratios is an empty list: name ratios, or omit the option")
    if len(set(schemes)) < len(schemes):
        raise UserError(f"a scheme is named twice: {' '.join(schemes)}")
    if chosen is not None and not any(scheme_kind(name).per_ratio for name in schemes):
        raise UserError(f"ratios are for the scheme {' or '.join(map(repr, per_ratio_schemes()))}: add it to --schemes")
    given = base.scheme.given_options if options is None else options
    given = {name: value for name, value in given.items() if value is not None}
    taken = {option for name in schemes for option in _options_of_variants(name, chosen)}
    for option in given:
        if option not in taken:
            if chosen and option in _RATIO_OPTIONS:
                raise UserError(f"--ratios sets the fixed ratios, so --{option} has no effect: omit it")
            raise UserError(option_not_taken(option, schemes))
    variants = []
    for name in schemes:
        kind = scheme_kind(name)
        own = {option: value for option, value in given.items() if option in kind.options}
        each = [own]
        if kind.per_ratio:
            each = [{**own, "ratio": ratio} for ratio in sorted({*(chosen or _fixed_ratios(base, given))})]
        variants += [variant_of(_with_scheme(base, name, one)) for one in each]
    return variants


def _fixed_ratios(base: RunConfig, given: Mapping[str, Any]) -> list[float]:
    """Return the fixed ratios of a comparison that names none."""
    defaults = base.scheme_defaults
    if defaults.fixed_ratios and not any(option in given for option in _RATIO_OPTIONS):
        return list(defaults.fixed_ratios)
    middle, low, high = (given.get(name, getattr(defaults, name)) for name in _RATIO_OPTIONS)
    # A range may reach 0 or 1; a fixed ratio there would hide nothing or everything.
    return [middle, *(end for end in (low, high) if 0 < end < 1)]


def _with_scheme(base: RunConfig, name: str, options: Mapping[str, Any]) -> RunConfig:
    return replace(base, scheme=SchemeSpec.resolve(name, options, base.scheme_defaults))


def baseline_variants(base: RunConfig, names: Sequence[str], variants: Sequence[Variant]) -> list[Variant]:
    """Return one variant per baseline.

    Raises a :class:`UserError` if a baseline is named twice, or has the name of a scheme's variant.
    """
    taken = {variant.label for variant in variants}
    for name in names:
        if name in taken:
            raise UserError(f"two variants of the comparison would be called {name!r}: name each baseline once")
        taken.add(name)
    nothing = {"scheme": BASELINE, "ratio": math.nan, "low": math.nan, "high": math.nan}
    return [Variant(name, base, nothing, baseline=True) for name in names]


def per_ratio_schemes() -> list[str]:
    """Return the schemes that have a variant for each fixed ratio."""
    return [name for name in scheme_names() if scheme_kind(name).per_ratio]


def ratio_label(name: str, ratio: float) -> str:
    """Return the label of a variant at a fixed ratio."""
    return f"{name} {ratio:.2f}" if round(ratio, 2) == ratio else f"{name} {ratio:g}"


def default_label(base: RunConfig, options: Mapping[str, Any] | None = None) -> str:
    """Return the label of the variant at the default fixed ratio, whether or not it is in the comparison."""
    given = (base.scheme.given_options if options is None else options).get("ratio")
    return ratio_label(per_ratio_schemes()[0], base.scheme_defaults.ratio if given is None else given)


def against_label(word: float | str | None, variants: Sequence[Variant]) -> str | None:
    """Return the label of the variant that a ratio or a scheme names, to compare the others with; None for None.

    Raises a :class:`UserError` if the comparison has no such variant, or several.
    """
    if word is None:
        return None
    try:
        ratio = value_of(word, float)
    except ValueError:
        ratio = math.nan
    pretrained = [variant for variant in variants if not variant.baseline]
    found = [one.label for one in pretrained if one.label == word or one.values["ratio"] == ratio]
    if len(found) != 1:
        known = nearest(str(word), [variant.label for variant in pretrained])
        raise UserError(f"--against {short_repr(word)} is not one fixed ratio or scheme of this comparison: {known}")
    return found[0]


def variant_of(config: RunConfig) -> Variant:
    """Return the variant that a run belongs to."""
    steps, scheme = config.optimizer.steps or 1000, config.scheme
    epoch = (
        None if config.optimizer.steps else steps / config.optimizer.epochs
    )  # a schedule in epochs may end within the first epoch
    low, high = replace(scheme.make(), curriculum=None).bind(steps, epoch).ends
    values = {"scheme": scheme.name, "ratio": low if scheme.kind.per_ratio else math.nan, "low": low, "high": high}
    return Variant(ratio_label(scheme.name, low) if scheme.kind.per_ratio else scheme.name, config, values)


def _options_of_variants(name: str, ratios: Sequence[float] | None) -> tuple[str, ...]:
    """Return the options that the variants of a scheme depend on.

    For a scheme of one fixed ratio, `ratio`, `low` and `high` are among them only without `ratios`: they are then its
    fixed ratios.
    """
    kind = scheme_kind(name)
    if not kind.per_ratio:
        return kind.options
    others = tuple(option for option in kind.options if option not in _RATIO_OPTIONS)
    return others if ratios else (*_RATIO_OPTIONS, *others)
