"""Schemes by name: a ratio, and for curricula learned loss weights.

A scheme is one function, registered by a decorator, that makes a :class:`Scheme` from a domain's defaults and the
user's options. Other code reads the properties of a scheme from its :class:`SchemeKind`, and never compares names. The
paper's schemes are in :mod:`r2mae.masking.builtin_schemes`; other packages register theirs by entry points. This module
does not import torch: the networks that learn the weights are in :mod:`r2mae.masking.curriculum`.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, Literal

from r2mae.errors import nearest, warn_once
from r2mae.masking.defaults import HLCA_CURRICULUM, RatioDefaults
from r2mae.masking.ratios import Grid, NeedsBatchSize, NeedsEpochLength, Ratio, Uniform, ends_of
from r2mae.registry import external_schemes


@dataclass(frozen=True)
class Curriculum:
    """How learned loss weights are trained (appendix "Implementations of CL and R²MAE + CL").

    Fractions are of the complete run, so that a shorter run has a schedule of the same shape.

    Parameters
    ----------
    grid : Grid
        One weight column for every ratio.
    multiplier : {"constant", "falling"}
        Gradient multiplier of the weight network: always 1 (``k0``: easy), or falling from 1 to −1.
    warmup, start, end : float
        Fractions of the run: the network is frozen until `warmup`; the multiplier falls between `start` and `end`. The
        defaults are the paper's for single cells (HLCA).
    iterations : int
        K, iterations of Sinkhorn's normalisation.
    floor : float
        Added to the sigmoid, so that weights stay positive.
    warmup_steps, start_step, end_step : int, optional
        The same times in optimiser steps; if given, they replace the fractions.
    total_steps : int, optional
        Set by :meth:`bind`.
    """

    grid: Grid
    multiplier: Literal["constant", "falling"] = "falling"
    warmup: float = HLCA_CURRICULUM.frozen
    start: float = HLCA_CURRICULUM.start
    end: float = HLCA_CURRICULUM.end
    iterations: int = 4
    floor: float = 1e-9
    warmup_steps: int | None = None
    start_step: int | None = None
    end_step: int | None = None
    total_steps: int | None = None

    def bind(self, total_steps: int) -> "Curriculum":
        """Fix the fractions to a run of `total_steps` optimiser steps."""
        return replace(self, total_steps=total_steps)

    def check_order(self) -> None:
        """Refuse a bound schedule whose end is before its start: the multiplier would jump instead of fall.

        Raises
        ------
        ValueError
            If the end is before the start.
        """
        first, last = self._step_of(self.start_step, self.start), self._step_of(self.end_step, self.end)
        if self.multiplier == "falling" and last < first:
            default = f", by default in a run of {self.total_steps} steps"
            raise ValueError(
                f"cl_start ({first:.0f}{'' if self.start_step is not None else default}) is after cl_end ({last:.0f}"
                f"{'' if self.end_step is not None else default}): give both, the start before the end"
            )

    def frozen(self, step: int) -> bool:
        """Return whether the weight network is frozen at this step."""
        return step < self._step_of(self.warmup_steps, self.warmup)

    def multiplier_at(self, step: int) -> float:
        """Return the factor on the weight network's gradient, from 1 (easy) to −1 (hard)."""
        if self.multiplier == "constant":
            return 1.0
        first, last = self._step_of(self.start_step, self.start), self._step_of(self.end_step, self.end)
        if last <= first:
            return 1.0 if step < first else -1.0
        return 1.0 - 2.0 * min(max((step - first) / (last - first), 0.0), 1.0)

    @property
    def option_values(self) -> dict[str, Any]:
        """Options that describe this schedule, by name."""
        return {
            "cl_warmup": round(self._step_of(self.warmup_steps, self.warmup)),
            "cl_start": round(self._step_of(self.start_step, self.start)),
            "cl_end": round(self._step_of(self.end_step, self.end)),
            "cl_iterations": self.iterations,
        }

    def _step_of(self, step: int | None, fraction: float) -> float:
        if step is not None:
            return step
        if self.total_steps is None:
            raise ValueError("a curriculum needs the number of steps: call bind(total_steps) first")
        return fraction * self.total_steps


@dataclass(frozen=True)
class Scheme:
    """A masking scheme: the fraction hidden, and the weights of hidden entries in the loss.

    Parameters
    ----------
    name : str
        Registered name.
    ratio : Ratio
        Mask ratio of a step.
    curriculum : Curriculum, optional
        Learned loss weights.
    """

    name: str
    ratio: Ratio
    curriculum: Curriculum | None = None

    def bind(self, total_steps: int, steps_per_epoch: float | None = None, batch_size: int | None = None) -> "Scheme":
        """Fix all schedules to a run of `total_steps` optimiser steps.

        A schedule in epochs needs `steps_per_epoch`, and a ratio stratified per sample needs `batch_size`, the samples
        of an optimiser step.
        """
        curriculum = self.curriculum.bind(total_steps) if self.curriculum else None
        ratio = self.ratio.bind(total_steps)
        if steps_per_epoch is not None and isinstance(ratio, NeedsEpochLength):
            ratio = ratio.with_epochs(steps_per_epoch)
        if batch_size is not None and isinstance(ratio, NeedsBatchSize):
            ratio = ratio.with_rows(batch_size)
        return replace(self, ratio=ratio, curriculum=curriculum)

    @property
    def ends(self) -> tuple[float, float]:
        """The lowest and the highest ratio, as tables show them."""
        return ends_of(self.ratio)

    @property
    def option_values(self) -> dict[str, Any]:
        """Values of :data:`SCHEME_OPTIONS` that describe this (bound) scheme; None for an option without effect."""
        stratified = getattr(self.ratio, "sampling", None) == "stratified"
        low, high = ends_of(self.curriculum.grid) if self.curriculum else self.ends
        in_epochs = getattr(self.ratio, "unit", "steps") == "epochs"
        unknown = in_epochs and getattr(self.ratio, "epoch", None) is None
        return {
            "ratio": self.ends[0],
            "low": low,
            "high": high,
            # λ of a schedule in epochs is unknown until the length of an epoch is known.
            "decay": None if unknown else getattr(self.ratio, "rate", None),
            "decay_in": "epochs" if in_epochs else None,
            "sampling": getattr(self.ratio, "sampling", None),
            "per": getattr(self.ratio, "per", None),
            "strata": getattr(self.ratio, "strata", None) if stratified else None,
            **(self.curriculum.option_values if self.curriculum else {}),
        }


Builder = Callable[..., Scheme]
"""Makes a scheme from a domain's :class:`RatioDefaults`. Further parameters are options of this scheme only."""

SCHEME_OPTIONS = (
    *("ratio", "low", "high", "decay", "decay_in", "sampling", "per", "strata"),
    *("cl_warmup", "cl_start", "cl_end", "cl_iterations"),
)
"""All common options of schemes. A scheme takes some of them, and refuses the others."""

# The field of RatioDefaults that an option sets. low and high are absent: they set several fields at once.
_FIELD_OF_OPTION = {"ratio": "fixed", **{name: name for name in ("decay", "decay_in", "sampling", "per", "strata")}}
_CURRICULUM_FIELD_OF_OPTION = {
    "cl_warmup": "warmup_steps",
    "cl_start": "start_step",
    "cl_end": "end_step",
    "cl_iterations": "iterations",
}


@dataclass(frozen=True)
class SchemeKind:
    """The registered properties of a scheme, known before it is built.

    Parameters
    ----------
    name : str
        Registered name.
    build : callable
        Makes a :class:`Scheme` from :class:`RatioDefaults` and the scheme's own options.
    takes : tuple of str
        The options of :data:`SCHEME_OPTIONS` that the scheme takes.
    own : mapping of str to float
        The options of this scheme only, with their defaults: the builder's further parameters.
    colour : str, optional
        ``#rrggbb``, for figures.
    per_ratio : bool
        Whether a comparison has one row of this scheme for each fixed ratio.
    """

    name: str
    build: Builder
    takes: tuple[str, ...]
    own: Mapping[str, float] = field(default_factory=dict)
    colour: str | None = None
    per_ratio: bool = False

    @property
    def options(self) -> tuple[str, ...]:
        """All options that the scheme takes; its own are last."""
        return (*self.takes, *self.own)

    @property
    def summary(self) -> str:
        """One line that describes the scheme."""
        return next(iter((self.build.__doc__ or "").strip().splitlines()), "")


_REGISTRY: dict[str, SchemeKind] = {}


def register(
    name: str, takes: Iterable[str] = (), *, colour: str | None = None, per_ratio: bool = False
) -> Callable[[Builder], Builder]:
    """Register the decorated function as a scheme.

    Its first parameter is a :class:`RatioDefaults`: the domain's defaults, replaced by the user's options. Every
    further parameter needs a number as its default, and becomes an option of this scheme only.

    Parameters
    ----------
    name : str
        Name of the scheme.
    takes : iterable of str
        The options of :data:`SCHEME_OPTIONS` that the scheme takes.
    colour : str, optional
        ``#rrggbb``, for figures; by default an unused colour.
    per_ratio : bool
        Whether a comparison has one row of this scheme for each fixed ratio.

    Raises
    ------
    ValueError
        If the name is taken, an option does not exist, or the colour is not of the form ``#rrggbb``.
    """

    def add(build: Builder) -> Builder:
        if name in _REGISTRY:
            raise ValueError(f"there is already a scheme called {name!r}")
        options = tuple(takes)
        if unknown := [option for option in options if option not in SCHEME_OPTIONS]:
            raise ValueError(f"no scheme takes {unknown[0]!r}: choose from {', '.join(SCHEME_OPTIONS)}")
        if colour is not None and not re.fullmatch("#[0-9a-fA-F]{6}", colour):
            raise ValueError(f"the colour of the scheme {name!r} must be #rrggbb, not {colour!r}")
        _REGISTRY[name] = SchemeKind(name, build, options, _own_options(name, build), colour, per_ratio)
        return build

    return add


def _own_options(name: str, build: Builder) -> dict[str, float]:
    own = {}
    for parameter in list(inspect.signature(build).parameters.values())[1:]:
        if parameter.name in SCHEME_OPTIONS:
            raise ValueError(f"{parameter.name!r} is a common option: name it in `takes` of the scheme {name!r}")
        if isinstance(parameter.default, bool) or not isinstance(parameter.default, int | float):
            raise ValueError(f"the option {parameter.name!r} of the scheme {name!r} needs a number as its default")
        own[parameter.name] = float(parameter.default)
    return own


def scheme_names() -> list[str]:
    """Return the names of all schemes: the paper's in its order, then those of other packages.

    For a scheme that cannot be loaded, a warning is logged once.
    """
    for name in external_schemes():
        if name not in _REGISTRY:
            try:
                _load_plugin(name)
            except ValueError as error:
                warn_once(str(error))
    return [*(name for name in _REGISTRY if name not in _PLUGINS), *sorted(_PLUGINS)]


_PLUGINS: set[str] = set()  # names of the schemes loaded by their entry points


def _load_plugin(name: str) -> None:
    """Import the module named by the entry point; the import registers the scheme."""
    target, package = external_schemes()[name]
    try:
        import_module(target.partition(":")[0])
    except Exception as error:  # foreign code may raise anything
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:120]
        raise ValueError(
            f"the scheme {name!r} of {package} cannot be loaded ({reason}): repair or uninstall {package}"
        ) from None
    if name not in _REGISTRY:
        raise ValueError(
            f"the scheme {name!r} of {package} is not registered by {target}: repair or uninstall {package}"
        )
    _PLUGINS.add(name)


def scheme_kind(name: str) -> SchemeKind:
    """Return the registered description of a scheme.

    Raises
    ------
    ValueError
        For an unknown name, or a scheme of another package that cannot be loaded.
    """
    if name not in _REGISTRY and name in external_schemes():
        _load_plugin(name)
    if name not in _REGISTRY:
        raise ValueError(f"unknown scheme {name!r}: {nearest(name, scheme_names())}")
    return _REGISTRY[name]


def scheme_takes(name: str) -> tuple[str, ...]:
    """Return the options that the scheme takes; its own are last."""
    return scheme_kind(name).options


def scheme_summary(name: str) -> str:
    """Return one line that describes the scheme."""
    return scheme_kind(name).summary


def option_not_taken(option: str, names: Sequence[str]) -> str:
    """Return the error line for an option that none of these schemes takes; it names the schemes that take it."""
    takers = [name for name in scheme_names() if option in _REGISTRY[name].options]
    if not takers:
        return f"no scheme takes {option!r}: omit it"
    refusal = f"the scheme {names[0]!r} does not take" if len(names) == 1 else f"none of {', '.join(names)} takes"
    return f"{refusal} {option!r}: omit it, or choose a scheme that does ({', '.join(takers)})"


def make_scheme(name: str, defaults: RatioDefaults, /, **given: Any) -> Scheme:
    """Build a scheme from a domain's defaults and the user's options.

    Parameters
    ----------
    name : str
        One of :func:`scheme_names`.
    defaults : RatioDefaults
        The domain's defaults.
    **given
        Options that replace the domain's defaults; None keeps the default. An option that the scheme does not take is
        refused, because it would have no effect.

    Raises
    ------
    ValueError
        For an unknown name, a number outside [0, 1], low above high, or an option that the scheme does not take.
    """
    kind = scheme_kind(name)
    given = {option: value for option, value in given.items() if value is not None}
    for option in given:
        if option not in kind.options:
            raise ValueError(option_not_taken(option, [name]))
    return kind.build(
        _with_user_options(defaults, given), **{option: given[option] for option in kind.own if option in given}
    )


def resolved_options(name: str, defaults: RatioDefaults, given: Mapping[str, Any], total_steps: int) -> dict[str, Any]:
    """Return the value of every option that a scheme takes: the user's, or the default of this run.

    Parameters
    ----------
    name, defaults, given
        As for :func:`make_scheme`.
    total_steps : int
        Length of the run, which determines the schedules.

    Raises
    ------
    ValueError
        As :func:`make_scheme`.
    """
    kind, scheme = scheme_kind(name), make_scheme(name, defaults, **given)
    used = {**scheme.bind(total_steps).option_values, **kind.own}
    domain = {"ratio": defaults.fixed, "low": defaults.low, "high": defaults.high}
    missing = {option: value for option, value in domain.items() if option in kind.takes and given.get(option) is None}
    if make_scheme(name, defaults, **{**given, **missing}) == scheme:  # otherwise the scheme has its own default range
        used |= missing
    used |= {option: value for option, value in given.items() if value is not None}
    return {option: used[option] for option in kind.options if used.get(option) is not None}


def _with_user_options(defaults: RatioDefaults, given: Mapping[str, Any]) -> RatioDefaults:
    """Return the domain's defaults, replaced by the options that the user gave."""
    fields = {name: given[option] for option, name in _FIELD_OF_OPTION.items() if option in given}
    of_curriculum = {name: given[option] for option, name in _CURRICULUM_FIELD_OF_OPTION.items() if option in given}
    replaced = replace(defaults, **fields, curriculum=replace(defaults.curriculum, **of_curriculum))
    if "low" in given or "high" in given:
        low, high = given.get("low", defaults.low), given.get("high", defaults.high)
        if 0 <= high < low <= 1 and ("low" not in given or "high" not in given):
            missing = "high" if "low" in given else "low"
            raise ValueError(
                f"low ({low:g}) is above high ({high:g}), and {missing} is the default: give {missing}, too"
            )
        Uniform(low, high)  # raises for an invalid range, in terms of the user's options
        replaced = replace(replaced, low=low, high=high, dynamic=None, falling_floor=None)
    return replaced
