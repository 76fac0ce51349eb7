"""Ranges of ratios: checks, and the quadrature by which the theory integrates over them."""

import numpy as np
from jaxtyping import Float

Nodes = tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"]]
"""Ratios and their weights, which sum to 1."""
_NODES = 9


def legendre(low: float, high: float) -> Nodes:
    """Return 9 Gauss–Legendre nodes of U(low, high), or the single ratio if both ends are equal."""
    if high == low:
        return np.array([low]), np.array([1.0])
    x, w = np.polynomial.legendre.leggauss(_NODES)
    return low + (high - low) * (x + 1) / 2, w / 2


def check_ratio(name: str, value: float) -> None:
    """Refuse a value that is not a number between 0 and 1.

    Raises
    ------
    ValueError
        Which names the value by `name`.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not 0 <= value <= 1:
        raise ValueError(f"{name} must be a number between 0 and 1, not {value!r}")


def check_range(low: float, high: float) -> None:
    """Refuse ends outside [0, 1], in the wrong order, or both 0 or both 1.

    Raises
    ------
    ValueError
        Which says how to correct them.
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
        Which says that nothing or everything would be hidden.
    """
    if low == high and low in (0, 1):
        hidden = "nothing" if low == 0 else "everything"
        raise ValueError(f"a {name} that is always {low:g} hides {hidden}: there would be nothing to learn from")


def check_total(total_steps: int) -> int:
    """Return the length of a run as an integer.

    Raises
    ------
    ValueError
        If it is below one step.
    """
    if total_steps < 1:
        raise ValueError(f"a run needs at least one step, not {total_steps}")
    return int(total_steps)
