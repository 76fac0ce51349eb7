"""The rows of a comparison: masking schemes, with every fixed ratio a row of its own."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from r2mae.errors import UserError
from r2mae.masking.schemes import SCHEME_OPTIONS, RatioDefaults, Scheme, not_taken, scheme_takes
from r2mae.report.comparison import BASELINE
from r2mae.sweep.cells import Row
from r2mae.training.config import SCHEME_DEFAULTS, RunConfig, given_options, scheme_of

DEFAULT_SCHEMES = ("fixed", "dynamic", "mdlm", "r2mae", "cl", "r2mae-cl")
_SPREAD = ("ratio", "low", "high")  # the scheme "fixed" stands for a row at each of them


def plan_rows(
    base: RunConfig, defaults: RatioDefaults, schemes: Sequence[str], ratios: Sequence[float] | None = None
) -> list[Row]:
    """Return the rows of a comparison.

    Parameters
    ----------
    base : RunConfig
        What all rows share; its `ratio`, `low` and `high` replace the wing's defaults.
    defaults : RatioDefaults
        The wing's numbers.
    schemes : sequence of str
        Registered names; "fixed" stands for one row per fixed ratio.
    ratios : sequence of float, optional
        The fixed ratios; by default low, the default ratio, and high.

    Raises
    ------
    UserError
        For unknown or repeated schemes and impossible ratios.
    """
    if len(set(schemes)) < len(schemes):
        raise UserError(f"a scheme is named twice: {' '.join(schemes)}")
    if ratios is not None and "fixed" not in schemes:
        raise UserError("ratios are for the scheme 'fixed': add it to --schemes")
    taken = {option for name in schemes for option in _takes(name, ratios)}
    for option in given_options(base):
        if option not in taken:
            if ratios and option in _SPREAD:
                raise UserError(f"--ratios says which fixed ratios run: --{option} would change nothing, leave it out")
            raise UserError(not_taken(option, schemes))
    rows = []
    for name in schemes:
        if name == "fixed":
            ends = (defaults.low if base.low is None else base.low, defaults.high if base.high is None else base.high)
            middle = defaults.fixed if base.ratio is None else base.ratio
            # A range may reach 0 or 1; a fixed ratio there would hide nothing or everything.
            chosen = ratios or [middle, *(end for end in ends if 0 < end < 1)]
            rows += [_row(base, defaults, "fixed", ratio) for ratio in sorted(set(chosen))]
        else:
            rows.append(_row(base, defaults, name, base.ratio))
    return rows


def with_numbers(
    base: RunConfig,
    defaults: RatioDefaults,
    rows: Sequence[Row],
    schemes: Sequence[str],
    ratios: Sequence[float] | None = None,
) -> RunConfig:
    """Return `base` with the wing's numbers in place of None, as far as they leave `rows`, its rows, as they are."""

    def meant(planned: Sequence[Row]) -> list[tuple[str, Scheme]]:
        return [(row.label, scheme_of(row.config, defaults)) for row in planned]

    takers = {number for name in schemes if name != "fixed" or ratios is None for number in _takes(name, ratios)}
    for number, value in (("ratio", defaults.fixed), ("low", defaults.low), ("high", defaults.high)):
        if number in takers and getattr(base, number) is None:
            filled = replace(base, **{number: value})  # type: ignore[arg-type]
            if meant(plan_rows(filled, defaults, schemes, ratios)) == meant(rows):
                base = filled
    return base


def baseline_rows(base: RunConfig, names: Sequence[str], rows: Sequence[Row]) -> list[Row]:
    """Return one row per baseline.

    Raises
    ------
    UserError
        For a baseline that is named twice, or like a scheme's row.
    """
    taken = {row.label for row in rows}
    for name in names:
        if name in taken:
            raise UserError(f"two rows of the comparison would be called {name!r}: name each baseline once")
        taken.add(name)
    nothing = {"scheme": BASELINE, "ratio": math.nan, "low": math.nan, "high": math.nan}
    return [Row(name, base, nothing, baseline=True) for name in names]


def fixed_label(ratio: float) -> str:
    """Return the label of a fixed ratio's row."""
    return f"fixed {ratio:.2f}" if round(ratio, 2) == ratio else f"fixed {ratio:g}"


def row_of(config: RunConfig, defaults: RatioDefaults) -> Row:
    """Return the row that a run belongs to."""
    return _row(config, defaults, config.scheme, config.ratio)


def _row(base: RunConfig, defaults: RatioDefaults, name: str, ratio: float | None) -> Row:
    takes = scheme_takes(name)
    own: dict[str, Any] = {
        option: getattr(base, option) if option in takes else SCHEME_DEFAULTS[option] for option in SCHEME_OPTIONS
    } | {"ratio": ratio if "ratio" in takes else None}
    config = replace(base, scheme=name, **own)
    ends = scheme_of(config, defaults).ratio.bind(base.steps or 1000)
    p, _ = ends.nodes()
    low, high = _ends(config, defaults, float(p.min()), float(p.max()))
    single = name == "fixed"
    values = {"scheme": name, "ratio": float(p[0]) if single else math.nan, "low": low, "high": high}
    return Row(fixed_label(p[0]) if single else name, config, values)


def _takes(name: str, ratios: Sequence[float] | None) -> tuple[str, ...]:
    """Return the options that the rows of a scheme depend on; low and high are fixed ratios unless others are named."""
    try:
        takes = scheme_takes(name)
        return takes if name != "fixed" else () if ratios else _SPREAD
    except ValueError as error:
        raise UserError(str(error)) from None


def _ends(config: RunConfig, defaults: RatioDefaults, first: float, last: float) -> tuple[float, float]:
    """Gauss nodes lie inside the range: report its ends."""
    if config.scheme == "mdlm":
        return 0.0, 1.0
    if first == last:
        return first, last
    low = defaults.low if config.low is None else config.low
    high = defaults.high if config.high is None else config.high
    return min(low, first), max(high, last)
