"""The variants of a comparison: one for each scheme, and one for each fixed ratio of a scheme that has one."""

import math
from collections.abc import Sequence
from dataclasses import replace

from r2mae.errors import UserError
from r2mae.masking.defaults import RatioDefaults
from r2mae.masking.schemes import Scheme, option_not_taken, scheme_kind, scheme_names
from r2mae.report.comparison import BASELINE
from r2mae.sweep.runs import Variant
from r2mae.training.config import RunConfig
from r2mae.training.scheme_options import for_scheme, given_options, kind_of, scheme_of

DEFAULT_SCHEMES = ("fixed", "dynamic", "mdlm", "r2mae", "cl", "r2mae-cl")
_RATIO_OPTIONS = ("ratio", "low", "high")  # a scheme of fixed ratios has a variant at each of them


def plan_variants(
    base: RunConfig, defaults: RatioDefaults, schemes: Sequence[str], ratios: Sequence[float] | None = None
) -> list[Variant]:
    """Return the variants of a comparison.

    Parameters
    ----------
    base : RunConfig
        The fields that all variants share; its `ratio`, `low` and `high` replace the domain's defaults.
    defaults : RatioDefaults
        The domain's defaults.
    schemes : sequence of str
        Registered names. "fixed" and every other scheme registered with ``per_ratio=True`` give one variant for each
        fixed ratio.
    ratios : sequence of float, optional
        The fixed ratios. The default: low, the default ratio and high, or the ratios that the domain sets for the
        model.

    Raises
    ------
    UserError
        For unknown or repeated schemes and impossible ratios.
    """
    if not schemes:
        raise UserError("schemes is an empty list: name schemes, or omit the option")
    if len(set(schemes)) < len(schemes):
        raise UserError(f"a scheme is named twice: {' '.join(schemes)}")
    if ratios is not None and not any(kind_of(name).per_ratio for name in schemes):
        raise UserError(f"ratios are for the scheme {' or '.join(map(repr, per_ratio_schemes()))}: add it to --schemes")
    taken = {option for name in schemes for option in _options_of_variants(name, ratios)}
    for option in given_options(base):
        if option not in taken:
            if ratios and option in _RATIO_OPTIONS:
                raise UserError(f"--ratios sets the fixed ratios, so --{option} has no effect: omit it")
            raise UserError(option_not_taken(option, schemes))
    variants = []
    for name in schemes:
        if kind_of(name).per_ratio:
            ends = (defaults.low if base.low is None else base.low, defaults.high if base.high is None else base.high)
            middle = defaults.fixed if base.ratio is None else base.ratio
            # A range may reach 0 or 1; a fixed ratio there would hide nothing or everything.
            chosen = ratios or [middle, *(end for end in ends if 0 < end < 1)]
            if (
                not ratios
                and defaults.fixed_ratios
                and not any(option in given_options(base) for option in _RATIO_OPTIONS)
            ):
                chosen = list(defaults.fixed_ratios)
            variants += [_variant(base, defaults, name, ratio) for ratio in sorted(set(chosen))]
        else:
            variants.append(_variant(base, defaults, name, base.ratio))
    return variants


def with_defaults(
    base: RunConfig,
    defaults: RatioDefaults,
    variants: Sequence[Variant],
    schemes: Sequence[str],
    ratios: Sequence[float] | None = None,
) -> RunConfig:
    """Return `base` with None replaced by the domain's default wherever `variants` stay the same."""

    def labelled_schemes(planned: Sequence[Variant]) -> list[tuple[str, Scheme]]:
        return [(variant.label, scheme_of(variant.config, defaults)) for variant in planned]

    takers = {number for name in schemes for number in _options_of_variants(name, ratios)}
    for number, value in (("ratio", defaults.fixed), ("low", defaults.low), ("high", defaults.high)):
        if number in takers and getattr(base, number) is None:
            filled = replace(base, **{number: value})  # type: ignore[arg-type]
            if labelled_schemes(plan_variants(filled, defaults, schemes, ratios)) == labelled_schemes(variants):
                base = filled
    return base


def baseline_variants(base: RunConfig, names: Sequence[str], variants: Sequence[Variant]) -> list[Variant]:
    """Return one variant per baseline.

    Raises
    ------
    UserError
        If a baseline is named twice, or has the name of a scheme's variant.
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


def default_label(config: RunConfig, defaults: RatioDefaults) -> str:
    """Return the label of the variant at the default fixed ratio, whether or not it is in the comparison."""
    return ratio_label(per_ratio_schemes()[0], defaults.fixed if config.ratio is None else config.ratio)


def variant_of(config: RunConfig, defaults: RatioDefaults) -> Variant:
    """Return the variant that a run belongs to."""
    return _variant(config, defaults, config.scheme, config.ratio)


def _variant(base: RunConfig, defaults: RatioDefaults, name: str, ratio: float | None) -> Variant:
    config, kind = for_scheme(replace(base, ratio=ratio), name), kind_of(name)
    steps = config.steps or 1000
    epoch = None if config.steps else steps / config.epochs  # a schedule in epochs may end within the first epoch
    low, high = scheme_of(config, defaults).bind(steps, epoch).ends
    values = {"scheme": name, "ratio": low if kind.per_ratio else math.nan, "low": low, "high": high}
    return Variant(ratio_label(name, low) if kind.per_ratio else name, config, values)


def _options_of_variants(name: str, ratios: Sequence[float] | None) -> tuple[str, ...]:
    """Return the options that the variants of a scheme depend on.

    For a scheme of one fixed ratio, `ratio`, `low` and `high` are among them only without `ratios`: they are then its
    fixed ratios.
    """
    kind = kind_of(name)
    if not kind.per_ratio:
        return kind.options
    others = tuple(option for option in kind.options if option not in _RATIO_OPTIONS)
    return others if ratios else (*_RATIO_OPTIONS, *others)
