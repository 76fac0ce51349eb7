"""Schemes by name: a ratio, and for curricula learned loss weights.

A scheme is one function, registered by a decorator. From a domain's defaults and the user's options it makes a
:class:`Scheme`. Its :class:`SchemeKind` holds everything that other code needs to know about it, so that no other code
compares names of schemes. The paper's schemes are in :mod:`r2mae.masking.builtin_schemes`; those of other packages are
found by their entry points. This module does not import torch: the networks that learn the weights are in
:mod:`r2mae.masking.curriculum`.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, Literal

from r2mae.errors import nearest, warn_once
from r2mae.masking.defaults import HLCA_CURRICULUM, RatioDefaults
from r2mae.masking.ratios import CountsEpochs, CountsRows, Grid, Ratio, Uniform, ends_of
from r2mae.registry import external_schemes


@dataclass(frozen=True)
class Curriculum:
    """How learned loss weights are trained (appendix "Implementations of CL and R²MAE + CL").

    The fractions are of the whole run, so that a shorter run has the same shape.

    Parameters
    ----------
    grid : Grid
        One weight column for every ratio.
    multiplier : {"constant", "falling"}
        Gradient multiplier of the weight network: 1 throughout (``k0``: easy), or falling from 1 to −1.
    warmup, start, end : float
        Fractions of the run: frozen until `warmup`; the multiplier falls between `start` and `end`. By default those
        of the paper's single cells (HLCA).
    iterations : int
        K, iterations of Sinkhorn's normalisation.
    floor : float
        Added to the sigmoid, so that weights stay positive.
    warmup_steps, start_step, end_step : int, optional
        The same moments as steps; they win over the fractions.
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
        """Refuse moments in a wrong order, of a bound schedule: the multiplier would not fall but jump.

        Raises
        ------
        ValueError
            If it would have fallen before it begins to fall.
        """
        first, last = self._moment(self.start_step, self.start), self._moment(self.end_step, self.end)
        if self.multiplier == "falling" and last < first:
            default = f", by default in a run of {self.total_steps} steps"
            raise ValueError(
                f"cl_start ({first:.0f}{'' if self.start_step is not None else default}) is after cl_end ({last:.0f}"
                f"{'' if self.end_step is not None else default}): give both, the start before the end"
            )

    def frozen(self, step: int) -> bool:
        """Return whether the weight network is frozen at this step."""
        return step < self._moment(self.warmup_steps, self.warmup)

    def multiplier_at(self, step: int) -> float:
        """Return the factor on the weight network's gradient, from 1 (easy) to −1 (hard)."""
        if self.multiplier == "constant":
            return 1.0
        first, last = self._moment(self.start_step, self.start), self._moment(self.end_step, self.end)
        if last <= first:
            return 1.0 if step < first else -1.0
        return 1.0 - 2.0 * min(max((step - first) / (last - first), 0.0), 1.0)

    @property
    def used(self) -> dict[str, Any]:
        """The options that describe this schedule, as name and value."""
        return {
            "cl_warmup": round(self._moment(self.warmup_steps, self.warmup)),
            "cl_start": round(self._moment(self.start_step, self.start)),
            "cl_end": round(self._moment(self.end_step, self.end)),
            "cl_iterations": self.iterations,
        }

    def _moment(self, step: int | None, fraction: float) -> float:
        if step is not None:
            return step
        if self.total_steps is None:
            raise ValueError("a curriculum needs the number of steps: call bind(total_steps) first")
        return fraction * self.total_steps


@dataclass(frozen=True)
class Scheme:
    """A masking scheme: what fraction is hidden, and how the hidden entries are weighted.

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
        """Fix all schedules to a run of `total_steps` optimiser steps, and those that count epochs to their length.

        A ratio that is spread over the samples of a step is told their number, `batch_size`.
        """
        curriculum = self.curriculum.bind(total_steps) if self.curriculum else None
        ratio = self.ratio.bind(total_steps)
        if steps_per_epoch is not None and isinstance(ratio, CountsEpochs):
            ratio = ratio.with_epochs(steps_per_epoch)
        if batch_size is not None and isinstance(ratio, CountsRows):
            ratio = ratio.with_rows(batch_size)
        return replace(self, ratio=ratio, curriculum=curriculum)

    @property
    def ends(self) -> tuple[float, float]:
        """The lowest and the highest ratio, as tables show them."""
        return ends_of(self.ratio)

    @property
    def used(self) -> dict[str, Any]:
        """The options of :data:`SCHEME_OPTIONS` that describe this scheme, which must be bound; None where unused."""
        stratified = getattr(self.ratio, "sampling", None) == "stratified"
        low, high = ends_of(self.curriculum.grid) if self.curriculum else self.ends
        in_epochs = getattr(self.ratio, "unit", "steps") == "epochs"
        unknown = in_epochs and getattr(self.ratio, "epoch", None) is None
        return {
            "ratio": self.ends[0],
            "low": low,
            "high": high,
            # λ of a schedule in epochs is not known before their length is.
            "decay": None if unknown else getattr(self.ratio, "rate", None),
            "decay_in": "epochs" if in_epochs else None,
            "sampling": getattr(self.ratio, "sampling", None),
            "per": getattr(self.ratio, "per", None),
            "strata": getattr(self.ratio, "strata", None) if stratified else None,
            **(self.curriculum.used if self.curriculum else {}),
        }


Builder = Callable[..., Scheme]
"""Makes a scheme from a domain's :class:`RatioDefaults`. Further parameters are options of this scheme alone."""

SCHEME_OPTIONS = (
    *("ratio", "low", "high", "decay", "decay_in", "sampling", "per", "strata"),
    *("cl_warmup", "cl_start", "cl_end", "cl_iterations"),
)
"""The options of schemes. Each scheme takes some of them; an option that it does not take is refused."""

# The fields of RatioDefaults that the options set. low and high are not here: they set several fields at once.
_NUMBERS = {"ratio": "fixed", **{name: name for name in ("decay", "decay_in", "sampling", "per", "strata")}}
_MOMENTS = {
    "cl_warmup": "warmup_steps",
    "cl_start": "start_step",
    "cl_end": "end_step",
    "cl_iterations": "iterations",
}


@dataclass(frozen=True)
class SchemeKind:
    """What is known of a scheme before it is built.

    Parameters
    ----------
    name : str
        Registered name.
    build : callable
        Makes a :class:`Scheme` from :class:`RatioDefaults` and the scheme's own options.
    takes : tuple of str
        The options of :data:`SCHEME_OPTIONS` that it takes.
    own : mapping of str to float
        The scheme's own options and their defaults: the builder's further parameters.
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
        """All options that it listens to."""
        return (*self.takes, *self.own)

    @property
    def summary(self) -> str:
        """The scheme in one line."""
        return next(iter((self.build.__doc__ or "").strip().splitlines()), "")


_REGISTRY: dict[str, SchemeKind] = {}


def register(
    name: str, takes: Iterable[str] = (), *, colour: str | None = None, per_ratio: bool = False
) -> Callable[[Builder], Builder]:
    """Register the function below as a scheme.

    Its first parameter is a :class:`RatioDefaults` that holds the domain's defaults, with the user's options already
    put in. Every further parameter needs a number as its default, and becomes an option of this scheme alone.

    Parameters
    ----------
    name : str
        Name of the scheme.
    takes : iterable of str
        The options of :data:`SCHEME_OPTIONS` that the scheme takes.
    colour : str, optional
        ``#rrggbb``, for figures; by default a colour that no other scheme has.
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
        if strange := [option for option in options if option not in SCHEME_OPTIONS]:
            raise ValueError(f"no scheme takes {strange[0]!r}: choose from {', '.join(SCHEME_OPTIONS)}")
        if colour is not None and not re.fullmatch("#[0-9a-fA-F]{6}", colour):
            raise ValueError(f"the colour of the scheme {name!r} must be #rrggbb, not {colour!r}")
        _REGISTRY[name] = SchemeKind(name, build, options, _own_options(name, build), colour, per_ratio)
        return build

    return add


def _own_options(name: str, build: Builder) -> dict[str, float]:
    own = {}
    for parameter in list(inspect.signature(build).parameters.values())[1:]:
        if parameter.name in SCHEME_OPTIONS:
            raise ValueError(f"{parameter.name!r} is an option of many schemes: {name!r} names it in `takes`")
        if isinstance(parameter.default, bool) or not isinstance(parameter.default, int | float):
            raise ValueError(f"the option {parameter.name!r} of the scheme {name!r} needs a number as its default")
        own[parameter.name] = float(parameter.default)
    return own


def scheme_names() -> list[str]:
    """Return the names of all schemes: the paper's in its order, then those of other packages.

    For one that cannot be loaded, a line is logged, once.
    """
    for name in external_schemes():
        if name not in _REGISTRY:
            try:
                _load(name)
            except ValueError as error:
                warn_once(str(error))
    return [*(name for name in _REGISTRY if name not in _LOADED), *sorted(_LOADED)]


_LOADED: set[str] = set()  # those found by their entry points


def _load(name: str) -> None:
    """Import the module that an entry point names, which registers the scheme."""
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
    _LOADED.add(name)


def scheme_kind(name: str) -> SchemeKind:
    """Return the registered description of a scheme.

    Raises
    ------
    ValueError
        For an unknown name, or a scheme of another package that cannot be loaded.
    """
    if name not in _REGISTRY and name in external_schemes():
        _load(name)
    if name not in _REGISTRY:
        raise ValueError(f"unknown scheme {name!r}: {nearest(name, scheme_names())}")
    return _REGISTRY[name]


def scheme_takes(name: str) -> tuple[str, ...]:
    """Return the options that the scheme takes; the scheme's own come last."""
    return scheme_kind(name).options


def scheme_summary(name: str) -> str:
    """Return the scheme in one line."""
    return scheme_kind(name).summary


def not_taken(option: str, names: Sequence[str]) -> str:
    """Return the error line for an option that none of these schemes takes; it names the schemes that do."""
    takers = [name for name in scheme_names() if option in _REGISTRY[name].options]
    if not takers:
        return f"no scheme takes {option!r}: leave it out"
    whose = f"the scheme {names[0]!r} does not take" if len(names) == 1 else f"none of {', '.join(names)} takes"
    return f"{whose} {option!r}: leave it out, or choose a scheme that does ({', '.join(takers)})"


def make_scheme(name: str, defaults: RatioDefaults, /, **given: Any) -> Scheme:
    """Build a scheme from a domain's defaults and the user's options.

    Parameters
    ----------
    name : str
        One of :func:`scheme_names`.
    defaults : RatioDefaults
        The domain's defaults.
    **given
        Options that replace the domain's defaults; None keeps the domain's. An option that the scheme does not take is
        an error, since it would have no effect.

    Raises
    ------
    ValueError
        For an unknown name, a number outside [0, 1], low above high, or an option that the scheme does not take.
    """
    kind = scheme_kind(name)
    given = {option: value for option, value in given.items() if value is not None}
    for option in given:
        if option not in kind.options:
            raise ValueError(not_taken(option, [name]))
    return kind.build(_numbers(defaults, given), **{option: given[option] for option in kind.own if option in given})


def effective(name: str, defaults: RatioDefaults, given: Mapping[str, Any], total_steps: int) -> dict[str, Any]:
    """Return every option that a scheme takes with the value that a run uses, given by the user or by default.

    Parameters
    ----------
    name, defaults, given
        As for :func:`make_scheme`.
    total_steps : int
        Length of the run, on which schedules depend.

    Raises
    ------
    ValueError
        As :func:`make_scheme`.
    """
    kind, scheme = scheme_kind(name), make_scheme(name, defaults, **given)
    used = {**scheme.bind(total_steps).used, **kind.own}
    domains = {"ratio": defaults.fixed, "low": defaults.low, "high": defaults.high}
    plain = {option: value for option, value in domains.items() if option in kind.takes and given.get(option) is None}
    if make_scheme(name, defaults, **{**given, **plain}) == scheme:  # otherwise the scheme has its own default range
        used |= plain
    used |= {option: value for option, value in given.items() if value is not None}
    return {option: used[option] for option in kind.options if used.get(option) is not None}


def _numbers(defaults: RatioDefaults, given: Mapping[str, Any]) -> RatioDefaults:
    """Replace the domain's defaults by those that the user gave."""
    own = {number: given[option] for option, number in _NUMBERS.items() if option in given}
    moments = {moment: given[option] for option, moment in _MOMENTS.items() if option in given}
    numbers = replace(defaults, **own, curriculum=replace(defaults.curriculum, **moments))
    if "low" in given or "high" in given:
        low, high = given.get("low", defaults.low), given.get("high", defaults.high)
        if 0 <= high < low <= 1 and ("low" not in given or "high" not in given):
            lacking = "high" if "low" in given else "low"
            raise ValueError(
                f"low ({low:g}) is above high ({high:g}), and {lacking} is the default: give {lacking}, too"
            )
        Uniform(low, high)  # raises for a bad range, with the names that the user knows
        numbers = replace(numbers, low=low, high=high, dynamic=None, above=None)
    return numbers
