"""Mask ratios: what fraction is hidden at an optimiser step, and the distribution the theory integrates over.

A ratio is a small frozen object whose class inherits from :class:`Ratio`. ``bind(total_steps)`` fixes its schedule,
``ratio(step, key)`` is the mask ratio of one optimiser step, and ``nodes()`` is a quadrature of its distribution over
the whole run. No torch.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, replace
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float

from r2mae.errors import UserError
from r2mae.fields import plain, short_repr, whole_number
from r2mae.masking.keys import Key, permutation, uniforms

if TYPE_CHECKING:
    _Member = property
else:

    class _Member:
        """A property of instances only, so that it is no default of a dataclass's field of the same name."""

        def __init__(self, get):
            self.get, self.__doc__ = get, get.__doc__

        def __get__(self, instance, owner=None):
            if instance is None:
                raise AttributeError(self.get.__name__)
            return self.get(instance)


Nodes = tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"]]
"""Ratios and their weights, which sum to 1."""
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(9)
_STRATA = 16  # steps in a block of stratified draws
_MOST_STEPS = 10_000  # of a grid


class Ratio(ABC):
    """The base of every ratio. Only :meth:`nodes` must be defined; a schedule has `scheduled` and :meth:`bind`, too."""

    @_Member
    def scheduled(self) -> bool:
        """Whether the ratio depends on the step beyond the step's own random draw."""
        return False

    @_Member
    def needs_total_steps(self) -> bool:
        """Whether the schedule is still to be fixed to the number of steps, by :meth:`bind`."""
        known = getattr(self, "total_steps", None) is not None
        return self.scheduled and type(self).bind is not Ratio.bind and not known

    @_Member
    def per_sample(self) -> bool:
        """Whether every sample has a ratio of its own, by :meth:`draw`."""
        return False

    @_Member
    def stratified_per_sample(self) -> bool:
        """Whether the samples of a step divide the range among them: one ratio in each of as many equal parts."""
        return False

    @_Member
    def never_falls(self) -> bool:
        """Whether a falling ratio stays constant, because the run ends before it falls."""
        return False

    @_Member
    def ends(self) -> tuple[float, float]:
        """The ends of the range, as tables show them; by default the lowest and the highest node."""
        p, _ = self.nodes()
        return float(np.min(p)), float(np.max(p))

    def bind(self, total_steps: int) -> "Ratio":
        """Return the ratio with its schedule fixed to a run of `total_steps` optimiser steps."""
        return self

    def with_epochs(self, steps: float) -> "Ratio":
        """Return the ratio for epochs of `steps` optimiser steps; itself, unless its schedule counts epochs."""
        return self

    def with_rows(self, rows: int) -> "Ratio":
        """Return the ratio for optimiser steps of `rows` samples; itself, unless it is stratified per sample."""
        return self

    @abstractmethod
    def nodes(self) -> Nodes:
        """Return ratios and weights (which sum to 1) that integrate over the ratio's distribution."""

    def quantile(self, u: Float[np.ndarray, "*n"]) -> Float[np.ndarray, "*n"]:
        """Map uniform numbers in [0, 1) to ratios; by default to the nodes, as often as their weights say."""
        p, weight = self.nodes()
        return np.asarray(np.take(p, np.searchsorted(np.cumsum(weight)[:-1], u, side="right")))

    def __call__(self, step: int, key: Key) -> float:
        """Return the ratio of optimiser step `step` (from 0), by default a draw; `key` is the run's key for ratios.

        Raises
        ------
        UserError
            If every sample has its own.
        """
        if self.per_sample:
            raise UserError(f"{self} has one ratio for each sample: call draw(step, key, rows)")
        return float(self.quantile(np.asarray(key.fold(step).uniform())))

    def draw(self, step: int, key: Key, rows: int) -> float | Float[np.ndarray, " rows"]:
        """Draw the ratio of a mini-batch of `rows`, or one ratio for each row if it is `per_sample`.

        Parameters
        ----------
        step : int
            Optimiser step, from 0.
        key : Key
            The run's key for ratios; its row is the first row in the global batch.
        rows : int
            Number of rows.
        """
        return self.quantile(uniforms(key.fold(step), rows)) if self.per_sample else self(step, key)


@dataclass(frozen=True)
class Fixed(Ratio):
    """One ratio for the whole run.

    Parameters
    ----------
    value : float
        Fraction hidden, strictly between 0 and 1.
    """

    value: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", _number("ratio", self.value))
        _check_not_constant("ratio", self.value, self.value)

    def __call__(self, step: int, key: Key) -> float:
        """Return the ratio."""
        return self.value

    def nodes(self) -> Nodes:
        """Return the single node."""
        return np.array([self.value]), np.array([1.0])


@dataclass(frozen=True)
class Uniform(Ratio):
    """R²MAE: p ~ U(low, high), drawn for every mini-batch (section 4 of the paper).

    ``Uniform(0, 1)`` is MDLM's ratio.

    Parameters
    ----------
    low, high : float
        The range, within [0, 1].
    sampling : {"independent", "stratified"}
        "stratified" divides the range into equal parts, and draws once in each. With ``per="batch"``, a block of 16
        consecutive steps has one draw in each of 16 parts, in an order keyed by the run. With ``per="sample"``, an
        optimiser step of B samples has one sample in each of B parts. A single draw is still U(low, high).
    per : {"batch", "sample"}
        One ratio per mini-batch (the paper), or one for every sample (by :meth:`draw`).
    rows : int, optional
        Samples of an optimiser step, set by :meth:`with_rows`; for ratios stratified per sample only.
    """

    low: float
    high: float
    sampling: Literal["independent", "stratified"] = "independent"
    per: Literal["batch", "sample"] = "batch"
    rows: int | None = None

    def __post_init__(self) -> None:
        _set_range(self)
        if self.sampling not in ("independent", "stratified"):
            raise UserError(f"sampling must be 'independent' or 'stratified', not {self.sampling!r}")
        if self.per not in ("batch", "sample"):
            raise UserError(f"per must be 'batch' or 'sample', not {self.per!r}")
        if self.rows is not None:
            if not self.stratified_per_sample:
                raise UserError("rows are for ratios stratified per sample: omit them")
            object.__setattr__(self, "rows", whole_number(self.rows, "rows"))

    def __call__(self, step: int, key: Key) -> float:
        """Return the draw of this step; a UserError if every sample has its own."""
        if self.per_sample:
            raise UserError(f"{self} has one ratio for each sample: call draw(step, key, rows)")
        u = key.fold(step).uniform()
        if self.scheduled:
            block, position = divmod(step, _STRATA)
            u = (permutation(key.fold("strata", block), _STRATA)[position] + u) / _STRATA
        return float(self.low + (self.high - self.low) * u)

    def draw(self, step: int, key: Key, rows: int) -> float | Float[np.ndarray, " rows"]:
        """Draw as :meth:`Ratio.draw` says.

        Stratified per sample, the ratio of row i in a global batch of B rows is low + (high − low)·(π(i) + u)/B. π is a
        permutation of 0 … B − 1, drawn for the step. u in [0, 1) is the draw of the row without strata.

        Raises
        ------
        UserError
            If rows are outside the global batch. Without :meth:`with_rows`, the global batch is the rows drawn.
        """
        if not self.per_sample:
            return self(step, key)
        u = uniforms(key.fold(step), rows)
        if self.stratified_per_sample:
            end, total = key.row + rows, rows if self.rows is None else self.rows
            if end > total:
                raise UserError(
                    f"rows {key.row} to {end - 1} are not in a batch of {total}: call with_rows(rows) first, "
                    "or give MaskRatio batch_size"
                )
            u = (permutation(key.fold("strata", step), total)[key.row : end] + u) / total
        return self.quantile(u)

    def with_rows(self, rows: int) -> "Uniform":
        """Return the ratio for optimiser steps of `rows` samples; itself, unless it is stratified per sample."""
        return replace(self, rows=rows) if self.stratified_per_sample else self

    @property
    def per_sample(self) -> bool:
        """Whether every sample has a ratio of its own."""
        return self.per == "sample"

    @property
    def stratified_per_sample(self) -> bool:
        """Whether the samples of a step divide the range among them."""
        return self.per == "sample" and self.sampling == "stratified"

    @property
    def scheduled(self) -> bool:
        """Whether the ratio depends on the step beyond the step's own random draw."""
        return self.sampling == "stratified" and self.per == "batch"

    @property
    def ends(self) -> tuple[float, float]:
        """`low` and `high`."""
        return float(self.low), float(self.high)

    def quantile(self, u: Float[np.ndarray, "*n"]) -> Float[np.ndarray, "*n"]:
        """Map uniform numbers in [0, 1) to ratios of this range."""
        return np.asarray(self.low + (self.high - self.low) * u)

    def nodes(self) -> Nodes:
        """Return 9 Gauss–Legendre nodes on the range."""
        return _uniform_nodes(self.low, self.high)


@dataclass(frozen=True)
class LinearDecay(Ratio):
    """Dynamic ratio: ρ_t = max(ρ_min, ρ_max − ρ_max·t·λ) at step or epoch t (the paper's "Dynamic MR").

    Parameters
    ----------
    high, low : float
        ρ_max and ρ_min. Better given by name, since :class:`Uniform` has them in the other order.
    end : float
        Fraction of the run after which ρ_min is reached, which sets λ; 1 means the last step or epoch.
    unit : {"steps", "epochs"}
        What t counts (the paper: epochs for ViT-MAE, steps elsewhere).
    total_steps : int, optional
        Set by :meth:`bind`.
    epoch : float, optional
        Steps of an epoch, set by :meth:`with_epochs`. Without it, a schedule in epochs falls with every step.
    """

    scheduled = True
    high: float
    low: float
    _: KW_ONLY
    end: float = 1.0
    unit: Literal["steps", "epochs"] = "steps"
    total_steps: int | None = None
    epoch: float | None = None

    def __post_init__(self) -> None:
        _set_range(self, f": its order is {type(self).__name__}(high, low)")
        if not _is_number(self.end) or not 0 < self.end <= 1:
            raise UserError(f"end must be a fraction of the run, above 0 and at most 1, not {short_repr(self.end)}")
        if self.unit not in ("steps", "epochs"):
            raise UserError(f"a decay is in 'steps' or 'epochs', not {self.unit!r}")

    def bind(self, total_steps: int) -> "LinearDecay":
        """Fix λ for a run of `total_steps` steps."""
        return replace(self, total_steps=whole_number(total_steps, "total_steps"))

    def with_epochs(self, steps: float) -> "LinearDecay":
        """Return the ratio for epochs of `steps` optimiser steps."""
        if not _is_number(steps) or not 0 < steps < np.inf:
            raise UserError(f"an epoch must have more than 0 steps, not {short_repr(steps)}")
        return replace(self, epoch=float(steps)) if self.unit == "epochs" else self

    def __call__(self, step: int, key: Key) -> float:
        """Return ρ_t."""
        return float(max(self.low, self.high - self.high * self._elapsed(step) * self.rate))

    def _elapsed(self, step: int) -> int:
        """Return t: the step, or the number of completed epochs (a step belongs to the epoch of its first sample)."""
        return step if self.epoch is None else int(step / self.epoch + 1e-9)

    @property
    def rate(self) -> float:
        """λ per optimiser step or epoch."""
        if self.total_steps is None:
            raise UserError("a schedule needs the number of steps: call bind(total_steps) first")
        return (self.high - self.low) / (self.high * max(self.end * self._elapsed(self.total_steps - 1), 1))

    @property
    def ends(self) -> tuple[float, float]:
        """ρ_min and ρ_max; ρ_max twice if the ratio never falls."""
        return (float(self.high if self.never_falls else self.low), float(self.high))

    @property
    def never_falls(self) -> bool:
        """Whether a schedule in epochs never falls, because the run ends within its first epoch."""
        known = self.epoch is not None and self.total_steps is not None
        return known and self._elapsed(self.total_steps - 1) == 0  # type: ignore[operator]

    def nodes(self) -> Nodes:
        """Return nodes of the falling part and one at ρ_min for the steps after it; in epochs, one node per epoch."""
        if self.epoch is not None and self.total_steps is not None:
            return self._epoch_nodes()
        p, w = _uniform_nodes(self.low, self.high)
        return (p, w) if self.end == 1 else (np.append(p, self.low), np.append(w * self.end, 1 - self.end))

    def _epoch_nodes(self) -> Nodes:
        assert self.epoch is not None
        assert self.total_steps is not None
        begins = np.arange(self._elapsed(self.total_steps - 1) + 1) * self.epoch
        lengths = np.diff(np.append(begins, self.total_steps))
        falling = self.high - self.high * np.arange(len(begins)) * self.rate
        return np.maximum(self.low, falling), lengths / lengths.sum()


@dataclass(frozen=True)
class UniformAbove(LinearDecay):
    """R²MAE + dynamic: p ~ U(ρ_t, high), above the falling ρ_t of :class:`LinearDecay`, whose parameters it has."""

    def __call__(self, step: int, key: Key) -> float:
        """Return the draw of this step."""
        floor = super().__call__(step, key)
        return float(floor + (self.high - floor) * key.fold(step).uniform())

    def nodes(self) -> Nodes:
        """Return the product quadrature over the schedule and the range above it."""
        floors, outer = super().nodes()
        p, w = zip(*(_uniform_nodes(float(floor), self.high) for floor in floors), strict=True)
        return np.concatenate(p), np.concatenate([o * x for o, x in zip(outer, w, strict=True)])


@dataclass(frozen=True)
class Grid(Ratio):
    """A ratio drawn from a finite list, for curricula, which have one weight column per ratio.

    Parameters
    ----------
    values : sequence of float
        Ratios in increasing order.
    """

    values: tuple[float, ...]

    def __post_init__(self) -> None:
        given: object = self.values
        if not isinstance(given, Iterable) or isinstance(given, str):
            raise UserError(f"a grid takes a list of ratios, not {short_repr(given)}")
        object.__setattr__(self, "values", tuple(_number("ratio", value) for value in given))
        if not self.values:
            raise UserError("a grid needs at least one ratio")
        if any(b <= a for a, b in zip(self.values, self.values[1:], strict=False)):
            raise UserError(f"the ratios of a grid must increase: {list(self.values)}")
        _check_not_constant("grid", self.values[0], self.values[-1])

    @classmethod
    def spaced(cls, low: float, high: float, step: float = 0.05) -> "Grid":
        """Return the grid low, low + step, …, high (the paper's 0.10, 0.15 … 0.50)."""
        low, high = _checked_range(low, high)
        if not _is_number(step) or not step > 0 or not high - low <= _MOST_STEPS * step:
            raise UserError(
                f"the step of a grid must be above 0, with at most {_MOST_STEPS:,} steps, not {short_repr(step)}"
            )
        count = max(1, round((high - low) / step))
        return cls(tuple(np.round(np.linspace(low, high, count + 1), 10)) if high > low else (low,))

    def __call__(self, step: int, key: Key) -> float:
        """Return the draw of this step."""
        return self.values[int(key.fold(step).uniform() * len(self.values))]

    def nearest_column(self, ratio: float) -> int:
        """Return the index of the value nearest to `ratio`."""
        return int(np.argmin(np.abs(np.asarray(self.values) - ratio)))

    def nodes(self) -> Nodes:
        """Return the values with equal weights."""
        return np.array(self.values), np.full(len(self.values), 1 / len(self.values))


def as_ratio(value: Any) -> Ratio:
    """Convert a number to :class:`Fixed` and two numbers to :class:`Uniform`; return a ratio object unchanged.

    Raises
    ------
    UserError
        If it is neither, or a number is not between 0 and 1.
    """
    if isinstance(value, Ratio):
        return value
    values = np.asarray(plain(value), dtype=object)
    numbers = [np.asarray(plain(one), dtype=object).tolist() for one in values.flat]
    if values.shape not in ((), (2,)) or not all(map(_is_number, numbers)):
        raise UserError(
            f"a ratio is a number, two numbers (low, high), or an object whose class inherits from "
            f"r2mae.masking.Ratio, not {' '.join(short_repr(value).split())}"
        )
    first, *more = numbers
    return Uniform(_number("low", first), _number("high", *more)) if more else Fixed(_number("ratio", first))


def _uniform_nodes(low: float, high: float) -> Nodes:
    """Return 9 Gauss–Legendre nodes of U(low, high), or the single ratio if both ends are equal."""
    if high == low:
        return np.array([low]), np.array([1.0])
    return low + (high - low) * (_NODES + 1) / 2, _WEIGHTS / 2


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _number(name: str, value: Any) -> float:
    """Return a number between 0 and 1 as Python's; an error names it by `name`."""
    number = plain(value)
    if not _is_number(number) or not 0 <= number <= 1:
        raise UserError(f"{name} must be a number between 0 and 1, not {short_repr(value)}")
    return float(number)


def _set_range(ratio: Any, order: str = "") -> None:
    """Make `low` and `high` of a ratio Python's numbers."""
    for name, value in zip(("low", "high"), _checked_range(ratio.low, ratio.high, order), strict=True):
        object.__setattr__(ratio, name, value)


def _checked_range(low: Any, high: Any, order: str = "") -> tuple[float, float]:
    """Return the ends; refuse those outside [0, 1], in the wrong order (`order` is the right one), both 0 or both 1."""
    low, high = _number("low", low), _number("high", high)
    if low > high:
        raise UserError(f"low ({low:g}) is above high ({high:g}): swap them{order}")
    _check_not_constant("range", low, high)
    return low, high


def _check_not_constant(name: str, low: float, high: float) -> None:
    """Refuse a ratio that can only be 0, or only 1."""
    if low == high and low in (0, 1):
        hidden = "nothing" if low == 0 else "everything"
        raise UserError(f"a {name} that is always {low:g} hides {hidden}: there would be nothing to learn from")
