"""From a configuration to its scheme: the options that are given, and what the scheme makes of those left open."""

from contextlib import suppress
from dataclasses import fields, replace
from typing import Any

from r2mae.errors import UserError
from r2mae.masking.defaults import RatioDefaults
from r2mae.masking.schemes import SCHEME_OPTIONS, Scheme, SchemeKind, effective, make_scheme, scheme_kind
from r2mae.training.config import RunConfig

OWN_OPTIONS = "scheme_options"  # the field with the options that only one scheme has
OPTION_FIELDS = (*SCHEME_OPTIONS, OWN_OPTIONS)
"""The fields of a configuration that speak to its scheme."""

OPTION_DEFAULTS: dict[str, Any] = {one.name: one.default for one in fields(RunConfig) if one.name in OPTION_FIELDS}
"""Their values where nothing is said."""


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
    """Return the options of schemes that are not at their defaults, by name."""
    values = {name: getattr(config, name) for name in SCHEME_OPTIONS}
    common = {name: value for name, value in values.items() if value != OPTION_DEFAULTS[name]}
    return {**common, **config.own_options}


def scheme_of(config: RunConfig, defaults: RatioDefaults) -> Scheme:
    """Return the scheme that a configuration names, unbound.

    Raises
    ------
    UserError
        For an unknown scheme, impossible ratios, or options that the scheme does not listen to.
    """
    try:
        return make_scheme(config.scheme, defaults, **given_options(config))
    except ValueError as error:
        raise UserError(str(error)) from None


def effective_options(config: RunConfig, defaults: RatioDefaults, steps: int | None = None) -> dict[str, Any]:
    """Return every option that the scheme takes, as a run of `steps` uses it.

    Parameters
    ----------
    config : RunConfig
        Of the run.
    defaults : RatioDefaults
        The wing's numbers.
    steps : int, optional
        Length of the run; by default the configuration's, or 1000 where it counts epochs.

    Raises
    ------
    UserError
        As :func:`scheme_of`.
    """
    try:
        return effective(config.scheme, defaults, given_options(config), steps or config.steps or 1000)
    except ValueError as error:
        raise UserError(str(error)) from None


def chosen_options(config: RunConfig, defaults: RatioDefaults) -> list[str]:
    """Return the given options that differ from what the scheme uses without them, which finished runs hold as well."""
    plain: dict[str, Any] = dict(OPTION_DEFAULTS)
    usual = as_used(replace(config, **plain), defaults).to_dict()
    with suppress(ValueError):  # an unknown scheme is refused where it is made
        usual |= scheme_kind(config.scheme).own
    return [name for name, value in given_options(config).items() if value != usual.get(name)]


def for_scheme(config: RunConfig, name: str) -> RunConfig:
    """Return the configuration with a scheme, and of the options only those that this scheme takes.

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
    own = _written({option: value for option, value in config.own_options.items() if option in kind.own})
    return replace(config, scheme=name, **kept, scheme_options=own)


def resolved(config: RunConfig, defaults: RatioDefaults) -> RunConfig:
    """Return the configuration with the wing's numbers in place of None, as far as its scheme takes them.

    Both mean the same scheme, so that a file with the numbers reruns the run of one without. What depends on the length
    of the run (`decay`, `cl_warmup`, `cl_start`, `cl_end`) stays open. Options of the scheme's own are written in one
    way, and left out where they say nothing new.

    Raises
    ------
    UserError
        As :func:`scheme_of`.
    """
    wanted, used = scheme_of(config, defaults), effective_options(config, defaults)
    for names in (("ratio",), ("low", "high"), ("cl_iterations",)):
        numbers = {name: used[name] for name in names if name in used and getattr(config, name) is None}
        filled = replace(config, **numbers)
        if numbers and _makes(filled, wanted, defaults):
            config = filled
    usual = kind_of(config.scheme).own
    own = {option: value for option, value in config.own_options.items() if value != usual[option]}
    return replace(config, scheme_options=_written(own))


def as_used(config: RunConfig, defaults: RatioDefaults | None) -> RunConfig:
    """Return the configuration with the numbers that its run uses, where the wing's are given.

    Options that its scheme does not take, as a folder of another version may hold them, stay as they are.
    """
    if defaults is None:
        return config
    with suppress(UserError):  # a scheme of another version
        takes = kind_of(config.scheme).takes
        ignored: dict[str, Any] = {name: getattr(config, name) for name in SCHEME_OPTIONS if name not in takes}
        plain: dict[str, Any] = {name: OPTION_DEFAULTS[name] for name in ignored}
        return replace(resolved(replace(config, **plain), defaults), **ignored)
    return config


def _makes(config: RunConfig, wanted: Scheme, defaults: RatioDefaults) -> bool:
    """A range that `low` and `high` cannot say stays open, such as a floor that begins below high."""
    try:
        return scheme_of(config, defaults) == wanted
    except UserError:
        return False


def _written(own: dict[str, float]) -> tuple[str, ...]:
    return tuple(f"{name}={value!r}" for name, value in sorted(own.items()))
