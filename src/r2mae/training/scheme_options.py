"""Make the scheme of a configuration: the options that are given, and the values of those left open."""

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any

from r2mae.errors import UserError
from r2mae.masking.defaults import RatioDefaults
from r2mae.masking.ratios import is_stratified_per_sample
from r2mae.masking.schemes import (
    SCHEME_OPTIONS,
    Scheme,
    SchemeKind,
    make_scheme,
    option_not_taken,
    resolved_options,
    scheme_kind,
    scheme_names,
)
from r2mae.training.config import RunConfig

OWN_OPTIONS = "scheme_options"  # the field with the options that only one scheme has
OPTION_FIELDS = (*SCHEME_OPTIONS, OWN_OPTIONS)
"""The fields of a configuration that speak to its scheme."""

OPTION_DEFAULTS: dict[str, Any] = {one.name: one.default for one in fields(RunConfig) if one.name in OPTION_FIELDS}
"""Their values where nothing is said."""


def field_of(option: str) -> str:
    """Return the field of a configuration that holds an option."""
    return option if option in SCHEME_OPTIONS else OWN_OPTIONS


def kind_of(name: str) -> SchemeKind:
    """Return what is known of a scheme.

    Raises
    ------
    UserError
        For an unknown scheme.
    """
    try:
        return scheme_kind(name)
    except ValueError as error:
        raise UserError(str(error)) from None


def given_options(config: RunConfig) -> dict[str, Any]:
    """Return the options of schemes that differ from the configuration's defaults, by name."""
    values = {name: getattr(config, name) for name in SCHEME_OPTIONS}
    common = {name: value for name, value in values.items() if value != OPTION_DEFAULTS[name]}
    return {**common, **config.scheme_option_values}


def check_typed(options: Collection[str], schemes: Sequence[str]) -> None:
    """Refuse options of a command line that none of the schemes takes, also where their value is the default one.

    Unknown schemes are passed over here, and refused where they are made.

    Raises
    ------
    UserError
        It names the schemes that take the option.
    """
    known = [name for name in schemes if name in scheme_names()]
    taken = {option for name in known for option in scheme_kind(name).takes}
    for option in SCHEME_OPTIONS if known else ():
        if option in options and option not in taken:
            raise UserError(option_not_taken(option, schemes))


def scheme_of(config: RunConfig, defaults: RatioDefaults) -> Scheme:
    """Return the scheme that a configuration names, not yet bound to a number of steps.

    Raises
    ------
    UserError
        For an unknown scheme, impossible ratios, options that the scheme does not take, or a weighting that it cannot
        have.
    """
    try:
        scheme = make_scheme(config.scheme, defaults, **given_options(config))
    except ValueError as error:
        raise UserError(str(error)) from None
    if is_stratified_per_sample(scheme.ratio) and config.weighting == "inverse-ratio":
        raise UserError(
            f"weighting 'inverse-ratio' needs one ratio for the mini-batch, and every sample has its own under the "
            f"scheme {config.scheme!r}: leave weighting at 'mean', which counts its samples alike"
        )
    return scheme


def effective_options(config: RunConfig, defaults: RatioDefaults, steps: int | None = None) -> dict[str, Any]:
    """Return every option that the scheme takes, as a run of `steps` uses it.

    Parameters
    ----------
    config : RunConfig
        Of the run.
    defaults : RatioDefaults
        The domain's defaults.
    steps : int, optional
        Length of the run; by default the configuration's, or 1000 where it counts epochs.

    Raises
    ------
    UserError
        As :func:`scheme_of`.
    """
    try:
        return resolved_options(config.scheme, defaults, given_options(config), steps or config.steps or 1000)
    except ValueError as error:
        raise UserError(str(error)) from None


def chosen_options(config: RunConfig, defaults: RatioDefaults) -> list[str]:
    """Return the given options that differ from the values that the scheme uses without them.

    Configurations of finished runs hold these values, too, as if they had been given.
    """
    plain: dict[str, Any] = dict(OPTION_DEFAULTS)
    default = as_used(replace(config, **plain), defaults).to_dict()
    with suppress(ValueError):  # an unknown scheme is refused where it is made
        default |= scheme_kind(config.scheme).own
    return [name for name, value in given_options(config).items() if value != default.get(name)]


def for_scheme(config: RunConfig, name: str) -> RunConfig:
    """Return the configuration with another scheme, and with only those options that this scheme takes.

    Raises
    ------
    UserError
        For an unknown scheme.
    """
    kind = kind_of(name)
    kept: dict[str, Any] = {
        option: getattr(config, option) if option in kind.takes else OPTION_DEFAULTS[option]
        for option in SCHEME_OPTIONS
    }
    own = _written({option: value for option, value in config.scheme_option_values.items() if option in kind.own})
    return replace(config, scheme=name, **kept, scheme_options=own)


def check_schedule(scheme: Scheme) -> None:
    """Refuse a scheme, bound to a number of steps, whose curriculum has moments in a wrong order.

    Raises
    ------
    UserError
        It names them.
    """
    if scheme.curriculum is not None:
        try:
            scheme.curriculum.check_order()
        except ValueError as error:
            raise UserError(str(error)) from None


def resolved(config: RunConfig, defaults: RatioDefaults) -> RunConfig:
    """Return the configuration with the domain's defaults in place of None, for the options that its scheme takes.

    Both configurations mean the same run, so a file with the numbers repeats the run of a file without them. Options
    that depend on the length of the run (`decay`, `cl_warmup`, `cl_start`, `cl_end`) stay None. Options of the scheme's
    own are written in a standard form, and left out where they have their default.

    Raises
    ------
    UserError
        As :func:`scheme_of`.
    """
    if not config.hides:
        return config
    wanted, used = scheme_of(config, defaults), effective_options(config, defaults)
    for names in (("ratio",), ("low", "high"), ("cl_iterations",)):
        numbers = {name: used[name] for name in names if name in used and getattr(config, name) is None}
        filled = replace(config, **numbers)
        if numbers and _makes(filled, wanted, defaults):
            config = filled
    default = kind_of(config.scheme).own
    own = {option: value for option, value in config.scheme_option_values.items() if value != default[option]}
    return replace(config, scheme_options=_written(own))


def as_used(config: RunConfig, defaults: RatioDefaults | None) -> RunConfig:
    """Return the configuration with the numbers that its run uses, where the domain's are given."""
    if defaults is None or not config.hides:
        return config
    try:  # a folder of another version may hold options that its scheme does not take here: they stay as they are
        taken = for_scheme(config, config.scheme)
        found = resolved(taken, defaults)
    except UserError:  # nor may its scheme be known here
        return config
    strange = given_options(config).keys() - given_options(taken).keys()
    ignored: dict[str, Any] = {field: getattr(config, field) for field in map(field_of, strange)}
    return replace(found, **ignored)


def _makes(config: RunConfig, wanted: Scheme, defaults: RatioDefaults) -> bool:
    """A range that `low` and `high` cannot say stays open, such as a floor that begins below high."""
    try:
        return scheme_of(config, defaults) == wanted
    except UserError:
        return False


def _written(own: dict[str, float]) -> tuple[str, ...]:
    return tuple(f"{name}={value!r}" for name, value in sorted(own.items()))
