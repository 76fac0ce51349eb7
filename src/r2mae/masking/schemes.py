"""Schemes by name: a ratio, and for curricula learned loss weights.

A scheme is one function, registered by a decorator, that makes a :class:`Scheme` from its options. Other code reads the
properties of a scheme from its :class:`SchemeKind`, and never compares names. The paper's schemes are in
:mod:`r2mae.masking.builtin_schemes`; other packages register theirs by entry points. This module does not import torch:
the networks that learn the weights are in :mod:`r2mae.masking.curriculum`. NumPy is imported when a scheme is made.
"""

import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from numbers import Integral, Real
from textwrap import shorten
from typing import TYPE_CHECKING, Any, Literal, get_args

from r2mae.errors import UserError, nearest, warn_once
from r2mae.fields import plain, short_repr, whole_number
from r2mae.masking.defaults import HLCA_CURRICULUM, SchemeDefaults
from r2mae.registry import external_schemes, same

if TYPE_CHECKING:
    from r2mae.masking.ratios import Grid, Ratio


@dataclass(frozen=True)
class Curriculum:
    """How learned loss weights are trained (appendix "Implementations of CL and R²MAE + CL").

    A time is a fraction of the complete run, so that a shorter run has a schedule of the same shape.

    Parameters
    ----------
    grid : Grid
        One weight column for every ratio.
    multiplier : {"constant", "falling"}
        Gradient multiplier of the weight network: always 1 (``k0``: easy), or falling from 1 to −1.
    warmup, start, end : float
        The network is frozen until `warmup`; the multiplier falls between `start` and `end`. The defaults are the
        paper's for single cells (HLCA).
    iterations : int
        K, iterations of Sinkhorn's normalisation.
    floor : float
        Added to the sigmoid, so that weights stay positive.
    total_steps : int, optional
        Set by :meth:`bind`.
    """

    grid: "Grid"
    multiplier: Literal["constant", "falling"] = "falling"
    warmup: float = HLCA_CURRICULUM["cl_warmup"]
    start: float = HLCA_CURRICULUM["cl_start"]
    end: float = HLCA_CURRICULUM["cl_end"]
    iterations: int = 4
    floor: float = 1e-9
    total_steps: int | None = None

    def __post_init__(self) -> None:
        for name in ("warmup", "start", "end"):
            check_option(f"cl_{name}", getattr(self, name))
        if self.multiplier == "falling" and self.end < self.start:
            raise UserError(
                f"cl_start ({self.start:g}) is after cl_end ({self.end:g}): give both, the start before the end"
            )

    def bind(self, total_steps: int) -> "Curriculum":
        """Fix the times to a run of `total_steps` optimiser steps."""
        return replace(self, total_steps=whole_number(total_steps, "total_steps"))

    def frozen(self, step: int) -> bool:
        """Return whether the weight network is frozen at this step."""
        return step < self._step_of(self.warmup) - 1e-9  # k / N of N steps are k

    def multiplier_at(self, step: int) -> float:
        """Return the factor on the weight network's gradient, from 1 (easy) to −1 (hard)."""
        if self.multiplier == "constant":
            return 1.0
        first, last = self._step_of(self.start), self._step_of(self.end)
        if last <= first:
            return 1.0 if step < first else -1.0
        return 1.0 - 2.0 * min(max((step - first) / (last - first), 0.0), 1.0)

    def _step_of(self, time: float) -> float:
        if self.total_steps is None:
            raise UserError("a curriculum needs the number of steps: call bind(total_steps) first")
        return time * self.total_steps


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
    ratio: "Ratio"
    curriculum: Curriculum | None = None

    def __post_init__(self) -> None:
        from r2mae.masking.ratios import as_ratio

        object.__setattr__(self, "ratio", as_ratio(self.ratio))

    @property
    def needs_total_steps(self) -> bool:
        """Whether a schedule is still to be fixed to the number of steps, by :meth:`bind`."""
        unbound = self.curriculum is not None and self.curriculum.total_steps is None
        return unbound or self.ratio.needs_total_steps

    def bind(
        self, total_steps: int | None, steps_per_epoch: float | None = None, batch_size: int | None = None
    ) -> "Scheme":
        """Fix all schedules to a run of `total_steps` optimiser steps.

        A schedule in epochs needs `steps_per_epoch`, and a ratio stratified per sample needs `batch_size`, the samples
        of an optimiser step. Without `total_steps`, what depends on it stays as it is.
        """
        curriculum, ratio = self.curriculum, self.ratio
        if total_steps is not None:
            total_steps = whole_number(total_steps, "total_steps")
            curriculum, ratio = curriculum and curriculum.bind(total_steps), ratio.bind(total_steps)
        if steps_per_epoch is not None:
            ratio = ratio.with_epochs(steps_per_epoch)
        if batch_size is not None:
            ratio = ratio.with_rows(batch_size)
        return replace(self, ratio=ratio, curriculum=curriculum)

    @property
    def ends(self) -> tuple[float, float]:
        """The lowest and the highest ratio, as tables show them."""
        return self.ratio.ends


Builder = Callable[..., Scheme]
"""Makes a scheme. Its parameters are the options of the scheme."""


@dataclass(frozen=True)
class CommonOption:
    """An option that several schemes take.

    Parameters
    ----------
    kind : type
        Type of the values.
    help : str
        What it sets.
    least, most : float
        Bounds of numbers that make no ratio; ratios are checked where they are made.
    unit : str
        What a number is, for errors.
    """

    kind: Any
    help: str
    least: float = -math.inf
    most: float = math.inf
    unit: str = ""


_RUN = "a fraction of the run"
SCHEME_OPTIONS: Mapping[str, CommonOption] = {
    "ratio": CommonOption(float, "Ratio of schemes that have one."),
    "low": CommonOption(float, "Lower end of the range of ratios."),
    "high": CommonOption(float, "Upper end of the range of ratios."),
    "sampling": CommonOption(
        Literal["independent", "stratified"],
        "How a random ratio is drawn: independently, or stratified over consecutive steps (over the samples of each "
        "step if each sample has its own ratio).",
    ),
    "per": CommonOption(
        Literal["batch", "sample"],
        "One random ratio per mini-batch (the paper), or one per sample. Per-sample ratios weight samples by their "
        "number of hidden entries; with stratified sampling, as in r2mae-per-sample, all samples have equal weight.",
    ),
    "decay_in": CommonOption(
        Literal["steps", "epochs"], "Whether a falling ratio changes at every step, or at every epoch."
    ),
    "decay_end": CommonOption(float, "Fraction of the run at which a falling ratio reaches low.", 1e-6, 1, _RUN),
    "cl_warmup": CommonOption(
        float, "Fraction of the run in which the loss weights of curricula are frozen.", 0, 1, _RUN
    ),
    "cl_start": CommonOption(
        float,
        "Fraction of the run at which the gradient multiplier of the loss weights starts to fall from 1.",
        0,
        1,
        _RUN,
    ),
    "cl_end": CommonOption(float, "Fraction of the run at which the multiplier reaches -1.", 0, 1, _RUN),
    "cl_iterations": CommonOption(int, "Iterations of Sinkhorn's normalisation.", 1, 10_000),
    "cl_grid": CommonOption(
        int | float, "Ratios of a curriculum: their number (10), or below 1 their distance (0.05).", 1e-4, 10_000
    ),
    "cl_floor": CommonOption(float, "Added to the loss weights of curricula, so that they stay positive.", 0, 1e9),
}
"""The options that several schemes take, by name. A scheme takes some of them, and refuses the others."""


@dataclass(frozen=True)
class SchemeKind:
    """The registered properties of a scheme, known before it is built.

    Parameters
    ----------
    name : str
        Registered name.
    build : callable
        Makes a :class:`Scheme` from the values of its options.
    defaults : mapping
        The options that the scheme takes, its own last, with the defaults of `build`. An option without a default there
        has one in every domain, and here None.
    colour : str, optional
        ``#rrggbb``, for figures; by default an unused colour.
    per_ratio : bool
        Whether a comparison has one variant of this scheme for each fixed ratio.
    group : str
        Heading in the list of schemes of the help.
    words : str
        The scheme in about five words, for that list; by default its summary, shortened.
    """

    name: str
    build: Builder
    defaults: Mapping[str, Any]
    colour: str | None = None
    per_ratio: bool = False
    group: str = "others"
    words: str = ""

    @property
    def options(self) -> tuple[str, ...]:
        """All options that the scheme takes; its own are last."""
        return tuple(self.defaults)

    @property
    def own(self) -> tuple[str, ...]:
        """The options of this scheme only."""
        return tuple(name for name in self.defaults if name not in SCHEME_OPTIONS)

    @property
    def summary(self) -> str:
        """One line that describes the scheme."""
        return next(iter((self.build.__doc__ or "").strip().splitlines()), "")


_REGISTRY: dict[str, SchemeKind] = {}


def register(
    name: str, *, colour: str | None = None, per_ratio: bool = False, group: str = "others", words: str = ""
) -> Callable[[Builder], Builder]:
    """Register the decorated function as a scheme, with the further fields of :class:`SchemeKind`.

    The function's parameters are the options of the scheme. Those of :data:`SCHEME_OPTIONS` have the domain's default,
    or else the parameter's. Every other parameter needs a number as its default, and is an option of this scheme only.

    Raises
    ------
    UserError
        If the name is taken, an option has no default, or the colour is not of the form ``#rrggbb``. The same function
        defined again, as in a notebook, takes its place.
    """

    def add(build: Builder) -> Builder:
        if name in _REGISTRY and not same(_REGISTRY[name].build, build):
            raise UserError(f"there is already a scheme called {name!r}: rename it")
        if colour is not None and not re.fullmatch("#[0-9a-fA-F]{6}", colour):
            raise UserError(f"the colour of the scheme {name!r} must be #rrggbb, not {colour!r}")
        _REGISTRY[name] = SchemeKind(name, build, _options_of(name, build), colour, per_ratio, group, words)
        return build

    return add


def _options_of(name: str, build: Builder) -> dict[str, Any]:
    parameters = inspect.signature(build).parameters.values()
    given: dict[str, Any] = {one.name: None if one.default is one.empty else one.default for one in parameters}
    for option, default in given.items():
        if option in ("name", "given"):
            raise UserError(f"no option of a scheme can be called {option!r}: rename it in the scheme {name!r}")
        if option in SCHEME_OPTIONS and default is not None:
            check_option(option, default)
        if option not in SCHEME_OPTIONS and (isinstance(default, bool) or not isinstance(default, int | float)):
            common = ", ".join(SCHEME_OPTIONS)
            raise UserError(
                f"the option {option!r} of the scheme {name!r} needs a number as its default, or the name of a common "
                f"option ({common})"
            )
        if default is None and option not in ("ratio", "low", "high"):
            raise UserError(f"the option {option!r} of the scheme {name!r} needs a default")
    own = {option: float(default) for option, default in given.items() if option not in SCHEME_OPTIONS}
    return {**{option: default for option, default in given.items() if option in SCHEME_OPTIONS}, **own}


def scheme_names() -> list[str]:
    """Return the names of all schemes: the paper's in its order, then those of other packages.

    For a scheme that cannot be loaded, a warning is logged once.
    """
    for name in external_schemes():
        if name not in _REGISTRY:
            try:
                _load_plugin(name)
            except UserError as error:
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
        raise UserError(
            f"the scheme {name!r} of {package} cannot be loaded ({reason}): repair or uninstall {package}"
        ) from None
    if name not in _REGISTRY:
        raise UserError(
            f"the scheme {name!r} of {package} is not registered by {target}: repair or uninstall {package}"
        )
    _PLUGINS.add(name)


_GROUPS = ("fixed", "random", "schedules", "curricula")  # of the package's schemes, in this order


def schemes_in_words() -> str:
    """Return the list of schemes for help texts: group, name and a few words, a line each."""
    kinds = {name: _REGISTRY[name] for name in scheme_names()}
    lines = []
    for group in dict.fromkeys([*_GROUPS, *(kind.group for kind in kinds.values())]):
        own = {name: kind.words or shorten(kind.summary, 40) for name, kind in kinds.items() if kind.group == group}
        lines += [
            f"  {'' if place else group:<10} {name:<16}  {words}" for place, (name, words) in enumerate(own.items())
        ]
    return "\n".join(["schemes:", *lines])


def scheme_kind(name: str) -> SchemeKind:
    """Return the registered description of a scheme.

    Raises
    ------
    UserError
        For an unknown name, or a scheme of another package that cannot be loaded.
    """
    if name not in _REGISTRY and name in external_schemes():
        _load_plugin(name)
    if name not in _REGISTRY:
        raise UserError(f"unknown scheme {name!r}: {nearest(name, scheme_names())}")
    return _REGISTRY[name]


def option_not_taken(option: str, names: Sequence[str]) -> str:
    """Return the error line for an option that none of these schemes takes; it names the schemes that take it."""
    takers = [name for name in scheme_names() if option in _REGISTRY[name].options]
    if not takers:
        known = dict.fromkeys(one for name in names for one in _REGISTRY[name].options)
        return f"no scheme takes {option!r}: {nearest(option, known)}"
    refusal = f"the scheme {names[0]!r} does not take" if len(names) == 1 else f"none of {', '.join(names)} takes"
    return f"{refusal} {option!r}: omit it, or choose a scheme that does ({', '.join(takers)})"


def resolve_options(name: str, given: Mapping[str, Any], defaults: SchemeDefaults) -> dict[str, Any]:
    """Return the value of every option of a scheme: the user's, the domain's or the scheme's default.

    This is the only place where given options meet defaults.

    Parameters
    ----------
    name : str
        One of :func:`scheme_names`.
    given : mapping
        Options by name; None keeps the default.
    defaults : SchemeDefaults
        The domain's defaults.

    Raises
    ------
    UserError
        For an unknown name, an option that the scheme does not take, or an impossible range.
    """
    kind = scheme_kind(name)
    given = {option: value for option, value in given.items() if value is not None}
    for option in given:
        if option not in kind.options:
            raise UserError(option_not_taken(option, [name]))
    options = {**kind.defaults, **defaults.for_scheme(name), **given}
    options = {option: check_option(option, options[option]) for option in kind.options}
    _check_range(options, given)
    return options


def make_scheme(name: str, defaults: SchemeDefaults, /, **given: Any) -> Scheme:
    """Build a scheme from a domain's defaults and given options; see :func:`resolve_options`."""
    return scheme_kind(name).build(**resolve_options(name, given, defaults))


def check_option(option: str, value: Any) -> Any:
    """Return a value of an option, a whole number as a float where that is its type.

    Raises
    ------
    UserError
        For a value of another type, or out of the bounds.
    """
    common, value = SCHEME_OPTIONS.get(option, CommonOption(float, "")), plain(value)
    kinds = {kind for part in (common.kind, *get_args(common.kind)) for kind in (part, *get_args(part))}
    words = [kind for kind in kinds if isinstance(kind, str)]
    if value in words:
        return value
    real, whole = (isinstance(value, kind) and not isinstance(value, bool) for kind in (Real, Integral))
    if not (whole and kinds & {int, float}) and not (real and float in kinds):
        numbers = ["a number"] if float in kinds else ["a whole number"] if int in kinds else []
        raise UserError(f"{option} takes {' or '.join([*numbers, *sorted(words)])}, not {short_repr(value)}")
    if not whole and not math.isfinite(value):
        raise UserError(f"{option} takes a finite number, not {value}")
    if not common.least <= value <= common.most:
        unit = common.unit and f" ({common.unit})"
        raise UserError(f"{option} must be {common.least:g} to {common.most:g}{unit}, not {short_repr(value)}")
    if whole and int in kinds:
        return int(value)
    try:
        return float(value)
    except OverflowError:
        raise UserError(f"{option} takes a finite number, not {short_repr(value)}") from None


def _check_range(options: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Refuse a range whose ends are exchanged, in terms of what the user gave."""
    if "low" not in options or "high" not in options or not ("low" in given or "high" in given):
        return
    low, high = options["low"], options["high"]
    if 0 <= high < low <= 1 and ("low" not in given or "high" not in given):
        missing = "high" if "low" in given else "low"
        raise UserError(f"low ({low:g}) is above high ({high:g}), and {missing} is the default: give {missing}, too")
    from r2mae.masking.ratios import Uniform

    Uniform(low, high)  # raises for an invalid range
