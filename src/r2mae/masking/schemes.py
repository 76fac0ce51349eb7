"""Schemes by name: a ratio, and for curricula learned loss weights.

A scheme is one function, registered by a decorator, that turns a wing's defaults and the user's own numbers into a
:class:`Scheme`. No torch: the networks that learn the weights are in :mod:`r2mae.masking.curriculum`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from r2mae.errors import nearest
from r2mae.masking.ratios import Fixed, Grid, LinearDecay, Ratio, Uniform, UniformAbove


@dataclass(frozen=True)
class CurriculumDefaults:
    """A wing's numbers for the curricula (appendix "Implementations of CL and R²MAE + CL").

    The moments are fractions of the whole run, so that a shorter run has the same shape.

    Parameters
    ----------
    frozen : float
        The weight network stands still until then.
    start, end : float
        The gradient multiplier falls from 1 to −1 between these moments.
    spacing : float
        Distance between the ratios of the grid.
    columns : int, optional
        l, the number of ratios of the grid, evenly spaced; it takes the place of `spacing`.
    iterations : int
        K, iterations of Sinkhorn's normalisation.
    floor : float
        Added to the sigmoid, so that weights stay positive.
    ours : bool
        True where the paper gives no numbers, and those of another domain stand in.
    """

    frozen: float
    start: float
    end: float
    spacing: float = 0.05
    columns: int | None = None
    iterations: int = 4
    floor: float = 1e-9
    ours: bool = False

    def grid(self, low: float, high: float) -> Grid:
        """Return the grid of ratios on [low, high]."""
        if self.columns is None:
            return Grid.spaced(low, high, self.spacing)
        return Grid.spaced(low, high, (high - low) / max(self.columns - 1, 1) or 1.0)


def _single_cells(steps: int) -> CurriculumDefaults:
    """Frozen for 5,000 steps; the multiplier falls from step 30,000 to 120,000."""
    return CurriculumDefaults(frozen=5_000 / steps, start=30_000 / steps, end=120_000 / steps)


# A run of the paper is 50 epochs of 90 % of the cells in batches of 400: 2,161,082 cells (HLCA), 1,378,211 (SEA-AD).
HLCA_CURRICULUM = _single_cells(243_122)
"""The paper's single-cell curricula on HLCA: fractions 0.021, 0.123 and 0.494 of the run."""

SEA_AD_CURRICULUM = _single_cells(155_049)
"""The same steps in SEA-AD's shorter run: fractions 0.032, 0.193 and 0.774."""

DNA_CURRICULUM = CurriculumDefaults(frozen=5_000 / 30_000, start=0.0, end=1.0, columns=10, iterations=10, floor=0.5)
"""The paper's DNA curricula: 10 ratios, 10 iterations, floor 0.5, frozen for a sixth, falling throughout the run."""


@dataclass(frozen=True)
class RatioDefaults:
    """A wing's numbers: those of the paper where it gives them, else ours.

    Parameters
    ----------
    fixed, low, high : float
        The fixed ratio and the range of R²MAE.
    dynamic : (float, float), optional
        Start and end of the dynamic ratio; by default from `high` to `low`.
    above : (float, float), optional
        Start and end of the floor of R²MAE + dynamic; by default as `dynamic`.
    dynamic_end : float
        Fraction of the run after which both have fallen to their end.
    curriculum : CurriculumDefaults
        Of the schemes with learned loss weights; by default those of the paper's single cells.
    ours : bool
        True where the paper gives no ratios.
    """

    fixed: float
    low: float
    high: float
    dynamic: tuple[float, float] | None = None
    above: tuple[float, float] | None = None
    dynamic_end: float = 1.0
    curriculum: CurriculumDefaults = HLCA_CURRICULUM
    ours: bool = False


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

    def frozen(self, step: int) -> bool:
        """Return whether the weight network stands still at this step."""
        return step < self._moment(self.warmup_steps, self.warmup)

    def multiplier_at(self, step: int) -> float:
        """Return the factor on the weight network's gradient, from 1 (easy) to −1 (hard)."""
        if self.multiplier == "constant":
            return 1.0
        first, last = self._moment(self.start_step, self.start), self._moment(self.end_step, self.end)
        if last <= first:
            return 1.0 if step < first else -1.0
        return 1.0 - 2.0 * min(max((step - first) / (last - first), 0.0), 1.0)

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

    def bind(self, total_steps: int) -> "Scheme":
        """Fix all schedules to a run of `total_steps` optimiser steps."""
        curriculum = self.curriculum.bind(total_steps) if self.curriculum else None
        return replace(self, ratio=self.ratio.bind(total_steps), curriculum=curriculum)


Builder = Callable[[RatioDefaults], Scheme]


@dataclass(frozen=True)
class _Entry:
    build: Builder
    takes: tuple[str, ...]
    summary: str


_REGISTRY: dict[str, _Entry] = {}

# What a run may say about its scheme. Each scheme takes some of them; what it does not take is refused.
SCHEME_OPTIONS = (
    *("ratio", "low", "high", "decay", "sampling", "per"),
    *("cl_warmup", "cl_start", "cl_end", "cl_iterations"),
)
_CURRICULUM_OPTIONS = SCHEME_OPTIONS[-4:]
_EASY_OPTIONS = ("cl_warmup", "cl_iterations")  # a multiplier that never falls has neither start nor end


def register(name: str, takes: Iterable[str]) -> Callable[[Builder], Builder]:
    """Register a scheme under `name`; `takes` names those of :data:`SCHEME_OPTIONS` that it listens to."""

    def add(build: Builder) -> Builder:
        if name in _REGISTRY:
            raise ValueError(f"there is already a scheme called {name!r}")
        options = tuple(takes)
        if strange := [option for option in options if option not in SCHEME_OPTIONS]:
            raise ValueError(f"no scheme takes {strange[0]!r}: choose from {', '.join(SCHEME_OPTIONS)}")
        _REGISTRY[name] = _Entry(build, options, (build.__doc__ or "").strip().splitlines()[0])
        return build

    return add


def scheme_names() -> list[str]:
    """Return the names of all schemes, in the order of the paper."""
    return list(_REGISTRY)


def scheme_takes(name: str) -> tuple[str, ...]:
    """Return which of :data:`SCHEME_OPTIONS` the scheme listens to."""
    return _entry(name).takes


def not_taken(option: str, names: Sequence[str]) -> str:
    """Say that no scheme of these takes an option, and which do."""
    whose = f"the scheme {names[0]!r} does not take" if len(names) == 1 else f"none of {', '.join(names)} takes"
    takers = [name for name, entry in _REGISTRY.items() if option in entry.takes]
    return f"{whose} {option!r}: leave it out, or choose a scheme that does ({', '.join(takers)})"


def scheme_summary(name: str) -> str:
    """Return the scheme in one line."""
    return _entry(name).summary


def make_scheme(
    name: str,
    defaults: RatioDefaults,
    *,
    ratio: float | None = None,
    low: float | None = None,
    high: float | None = None,
) -> Scheme:
    """Build a scheme from a wing's defaults and the user's own numbers.

    Parameters
    ----------
    name : str
        One of :func:`scheme_names`.
    defaults : RatioDefaults
        The wing's numbers.
    ratio, low, high : float, optional
        Override the default; one that the scheme does not listen to is an error, since it would change nothing.

    Raises
    ------
    ValueError
        For an unknown name, a number outside [0, 1], low above high, or a number the scheme ignores.
    """
    entry = _entry(name)
    given = {key: value for key, value in (("ratio", ratio), ("low", low), ("high", high)) if value is not None}
    for key in given:
        if key not in entry.takes:
            raise ValueError(not_taken(key, [name]))
    numbers = defaults if ratio is None else replace(defaults, fixed=ratio)
    if low is not None or high is not None:
        bottom, top = defaults.low if low is None else low, defaults.high if high is None else high
        if 0 <= top < bottom <= 1 and (low is None or high is None):
            lacking = "low" if low is None else "high"
            raise ValueError(
                f"low ({bottom:g}) is above high ({top:g}), and {lacking} is the default: give {lacking}, too"
            )
        Uniform(bottom, top)  # refuses bad ranges in the user's own words
        numbers = replace(numbers, low=bottom, high=top, dynamic=None, above=None)
    return entry.build(numbers)


@register("fixed", takes=["ratio"])
def _fixed(numbers: RatioDefaults) -> Scheme:
    """One mask ratio for the whole run."""
    return Scheme("fixed", Fixed(numbers.fixed))


@register("dynamic", takes=["low", "high", "decay"])
def _dynamic(numbers: RatioDefaults) -> Scheme:
    """Ratio falls linearly from high to low over the run."""
    return Scheme("dynamic", _decay(numbers.dynamic, numbers))


@register("mdlm", takes=["sampling", "per"])
def _mdlm(numbers: RatioDefaults) -> Scheme:
    """p ~ U(0, 1) for every mini-batch, as in masked diffusion language models."""
    return Scheme("mdlm", Uniform(0.0, 1.0))


@register("r2mae", takes=["low", "high", "sampling", "per"])
def _r2mae(numbers: RatioDefaults) -> Scheme:
    """p ~ U(low, high) for every mini-batch."""
    return Scheme("r2mae", Uniform(numbers.low, numbers.high))


@register("r2mae-dynamic", takes=["low", "high", "decay"])
def _r2mae_dynamic(numbers: RatioDefaults) -> Scheme:
    """p ~ U(floor, high) for every mini-batch, with a floor that falls over the run."""
    return Scheme("r2mae-dynamic", UniformAbove(_decay(numbers.above or numbers.dynamic, numbers), numbers.high))


@register("cl", takes=["ratio", "low", "high", *_CURRICULUM_OPTIONS])
def _cl(numbers: RatioDefaults) -> Scheme:
    """Fixed ratio with loss weights learned from easy to hard."""
    return Scheme("cl", Fixed(numbers.fixed), _curriculum(numbers))


@register("cl-k0", takes=["ratio", "low", "high", *_EASY_OPTIONS])
def _cl_k0(numbers: RatioDefaults) -> Scheme:
    """Fixed ratio with loss weights that always learn the easy entries."""
    return Scheme("cl-k0", Fixed(numbers.fixed), _curriculum(numbers, "constant"))


@register("r2mae-cl", takes=["low", "high", *_CURRICULUM_OPTIONS])
def _r2mae_cl(numbers: RatioDefaults) -> Scheme:
    """Ratio from a grid on [low, high], with loss weights learned from easy to hard."""
    return Scheme("r2mae-cl", _grid(numbers), _curriculum(numbers))


@register("r2mae-cl-k0", takes=["low", "high", *_EASY_OPTIONS])
def _r2mae_cl_k0(numbers: RatioDefaults) -> Scheme:
    """Ratio from a grid on [low, high], with loss weights that always learn the easy entries."""
    return Scheme("r2mae-cl-k0", _grid(numbers), _curriculum(numbers, "constant"))


def _decay(ends: tuple[float, float] | None, numbers: RatioDefaults) -> LinearDecay:
    high, low = ends or (numbers.high, numbers.low)
    return LinearDecay(high, low, end=numbers.dynamic_end)


def _grid(numbers: RatioDefaults) -> Grid:
    return numbers.curriculum.grid(numbers.low, numbers.high)


def _curriculum(numbers: RatioDefaults, multiplier: Literal["constant", "falling"] = "falling") -> Curriculum:
    given = numbers.curriculum
    return Curriculum(
        _grid(numbers),
        multiplier,
        warmup=given.frozen,
        start=given.start,
        end=given.end,
        iterations=given.iterations,
        floor=given.floor,
    )


def _entry(name: str) -> _Entry:
    if name not in _REGISTRY:
        raise ValueError(f"unknown scheme {name!r}: {nearest(name, _REGISTRY)}")
    return _REGISTRY[name]
