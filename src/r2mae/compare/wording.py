"""Numbers as text, for the terminal, the figures and the report."""

import math
from collections.abc import Iterable, Sequence

import numpy as np

BEST_FIXED = "best fixed"
CONFIDENCE = 0.95
_UNITS = ((100.0, 1.0, "s"), (6_000.0, 60.0, "min"), (360_000.0, 3600.0, "h"), (float("inf"), 86_400.0, "days"))


def decimals(means: Iterable[float], half_widths: Iterable[float]) -> int:
    """Return the number of decimals for a metric: two digits of the median half-width of its intervals.

    Parameters
    ----------
    means, half_widths : iterable of float
        Means and half-widths of all variants. Without half-widths (one seed) the standard deviation of the means is
        used; if that is 0, four digits of the largest mean.
    """
    centres = _finite(means)
    spreads = [width for width in _finite(half_widths) if width > 0]
    if spreads:
        return _digits(float(np.median(spreads)), 2)
    spread = float(np.std(centres)) if centres else 0.0
    size = max((abs(centre) for centre in centres), default=0.0)
    if spread > 1e-9 * size:
        return _digits(spread, 2)
    return _digits(size, 4) if size > 0 else 1


def number(value: float, places: int, *, signed: bool = False) -> str:
    """Return a number as text, with a true minus sign; a dash if it is not finite."""
    if not math.isfinite(value):
        return "–"  # noqa: RUF001
    text = f"{value:+.{places}f}" if signed else f"{value:.{places}f}"
    if float(text) == 0:
        text = text.lstrip("+-")
    return text.replace("-", "−")  # noqa: RUF001


def interval(low: float, high: float, places: int, *, signed: bool = False) -> str:
    """Return an interval as text, empty if an end is not finite."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return ""
    return f"{number(low, places, signed=signed)} to {number(high, places, signed=signed)}"


def difference_places(mean: float, low: float, high: float, places: int) -> int:
    """Return the number of decimals for a difference: enough that no end of an interval without 0 is rounded to 0."""
    half = (high - low) / 2
    if not (low > 0 or high < 0):
        return places
    for more in range(places, places + 4):
        distinct = f"{abs(mean):.{more}f}" != f"{half:.{more}f}"
        if distinct and all(float(f"{end:.{more}f}") != 0 for end in (low, high)):
            return more
    return places


def listing(words: Sequence[str]) -> str:
    """Join words as in a sentence: a, b and c."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def sentence_case(text: str) -> str:
    """Return text with a capital first letter, unless its first word already has capitals, such as k-NN."""
    first = text.split(" ", 1)[0]
    return text if first != first.lower() else text[:1].upper() + text[1:]


def duration(seconds: float) -> str:
    """Return a duration in the largest unit that suits it: ``3.2 h``."""
    _, unit, name = next(one for one in _UNITS if seconds < one[0])
    return f"{float(f'{seconds / unit:.2g}'):,g} {name}"


def seeds(count: int) -> str:
    """Return "1 seed" or "3 seeds"."""
    return f"{count} seed" if count == 1 else f"{count} seeds"


def chance(p: float) -> str:
    """Return a p-value as text; a dash if it is not finite."""
    if not math.isfinite(p):
        return "–"  # noqa: RUF001
    return "below 0.001" if p < 0.001 else f"{p:.3f}"


def _digits(size: float, significant: int) -> int:
    return min(max(significant - 1 - math.floor(math.log10(size)), 0), 6)


def _finite(values: Iterable[float]) -> list[float]:
    return [float(value) for value in values if math.isfinite(value)]
