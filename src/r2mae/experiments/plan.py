"""What a comparison runs: its rows (schemes, with every fixed ratio a row of its own) and cells (rows × seeds)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from r2mae.errors import UserError
from r2mae.experiments.results import BASELINE
from r2mae.masking.schemes import RatioDefaults, Scheme, scheme_takes
from r2mae.training.config import RunConfig, scheme_of

DEFAULT_SCHEMES = ("fixed", "dynamic", "mdlm", "r2mae", "cl", "r2mae-cl")


@dataclass(frozen=True)
class Row:
    """A line of the comparison.

    Parameters
    ----------
    label : str
        "fixed 0.50", "r2mae", …
    scheme : str
        Registered name.
    ratio : float, optional
        The ratio of a fixed scheme.
    low, high : float
        Ends of the ratios that the scheme uses.
    config : RunConfig
        With the scheme and its numbers; the seed is still open.

    A baseline is a row with the scheme :data:`BASELINE` and without ratios; it is measured, not pretrained.
    """

    label: str
    scheme: str
    ratio: float | None
    low: float
    high: float
    config: RunConfig

    @property
    def baseline(self) -> bool:
        """Whether there is nothing to pretrain."""
        return self.scheme == BASELINE


@dataclass(frozen=True)
class Cell:
    """A run of the comparison: a row under a seed, in a folder of its own."""

    row: Row
    seed: int
    config: RunConfig
    folder: Path


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
    for number in ("low", "high", "ratio"):
        takers = [name for name in schemes if number in _takes(name)]
        if getattr(base, number) is not None and not takers:
            raise UserError(f"none of the schemes {' '.join(schemes)} takes {number!r}: leave it out")
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

    takers = {number for name in schemes if name != "fixed" or ratios is None for number in _takes(name)}
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
    return [Row(name, BASELINE, None, math.nan, math.nan, base) for name in names]


def plan_cells(rows: Sequence[Row], seeds: Sequence[int], out: Path) -> list[Cell]:
    """Return the cells, seed by seed, so that a first comparison of all rows is there early."""
    return [
        Cell(
            row,
            seed,
            replace(row.config, seed=seed),
            out / "runs" / row.label.replace(" ", "-") / f"seed-{seed}",
        )
        for seed in seeds
        for row in rows
    ]


def words_of(values: Sequence[object]) -> list[str]:
    """Read lists as people type them: words, or one word with commas."""
    return [word for value in values for word in str(value).split(",") if word]


def parse_ratios(words: Sequence[str]) -> list[float]:
    """Read ``--ratios 0.1 0.5``."""
    try:
        return [float(word) for word in words]
    except ValueError:
        raise UserError(f"ratios must be numbers, not {' '.join(words)!r}") from None


def parse_seeds(words: Sequence[str]) -> list[int]:
    """Read ``--seeds 3`` as 0, 1, 2, and ``--seeds 2 12 22`` as these seeds."""
    try:
        numbers = [int(word) for word in words]
    except ValueError:
        raise UserError(f"seeds must be whole numbers, not {' '.join(words)!r}") from None
    if len(numbers) == 1:
        if numbers[0] < 1:
            raise UserError(f"a comparison needs at least one seed, not {numbers[0]}")
        return list(range(numbers[0]))
    if min(numbers) < 0 or len(set(numbers)) < len(numbers):
        raise UserError(f"seeds must be different numbers of 0 or more, not {' '.join(words)!r}")
    return numbers


def fixed_label(ratio: float) -> str:
    """Return the label of a fixed ratio's row."""
    return f"fixed {ratio:.2f}" if round(ratio, 2) == ratio else f"fixed {ratio:g}"


def _row(base: RunConfig, defaults: RatioDefaults, name: str, ratio: float | None) -> Row:
    takes = _takes(name)
    random, learned = name in ("r2mae", "mdlm"), "cl" in name.split("-")
    config = replace(
        base,
        scheme=name,
        ratio=ratio if "ratio" in takes else None,
        low=base.low if "low" in takes and name != "fixed" else None,
        high=base.high if "high" in takes and name != "fixed" else None,
        decay=base.decay if name in ("dynamic", "r2mae-dynamic") else None,
        cl_warmup=base.cl_warmup if learned else None,
        cl_start=base.cl_start if learned else None,
        cl_end=base.cl_end if learned else None,
        cl_iterations=base.cl_iterations if learned else None,
        sampling=base.sampling if random else "independent",
        per=base.per if random else "batch",
    )
    ends = scheme_of(config, defaults).ratio.bind(base.steps or 1000)
    p, _ = ends.nodes()
    low, high = _ends(config, defaults, float(p.min()), float(p.max()))
    single = name == "fixed"
    return Row(
        label=fixed_label(p[0]) if single else name,
        scheme=name,
        ratio=float(p[0]) if single else None,
        low=low,
        high=high,
        config=config,
    )


def _takes(name: str) -> tuple[str, ...]:
    try:
        return ("ratio", "low", "high") if name == "fixed" else scheme_takes(name)
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
