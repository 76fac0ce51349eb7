"""Ranges of ratios: what they may be, and how the theory integrates over them."""

import numpy as np
from jaxtyping import Float

Nodes = tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"]]
"""Ratios and their weights, which sum to 1."""
_LEGENDRE = 9


def legendre(low: float, high: float) -> Nodes:
    """Return 9 Gauss–Legendre nodes of U(low, high), or the single ratio where both are the same."""
    if high == low:
        return np.array([low]), np.array([1.0])
    x, w = np.polynomial.legendre.leggauss(_LEGENDRE)
    return low + (high - low) * (x + 1) / 2, w / 2


def check_ratio(name: str, value: float) -> None:
    """Refuse what is no number between 0 and 1.

    Raises
    ------
    ValueError
        With the name of the number.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not 0 <= value <= 1:
        raise ValueError(f"{name} must be a number between 0 and 1, not {value!r}")


def check_range(low: float, high: float) -> None:
    """Refuse ends outside [0, 1], in the wrong order, or both 0 or both 1.

    Raises
    ------
    ValueError
        With the hint.
    """
    check_ratio("low", low)
    check_ratio("high", high)
    if low > high:
        raise ValueError(f"low ({low:g}) is above high ({high:g}): exchange them")
    check_not_constant("range", low, high)


def check_not_constant(name: str, low: float, high: float) -> None:
    """Refuse a ratio that can only be 0, or only 1.

    Raises
    ------
    ValueError
        With what it would hide.
    """
    if low == high and low in (0, 1):
        what = "nothing" if low == 0 else "everything"
        raise ValueError(f"a {name} that is always {low:g} hides {what}: there would be nothing to learn from")


def check_total(total_steps: int) -> int:
    """Return the length of a run, which has one step at least.

    Raises
    ------
    ValueError
        If it has none.
    """
    if total_steps < 1:
        raise ValueError(f"a run needs at least one step, not {total_steps}")
    return int(total_steps)
