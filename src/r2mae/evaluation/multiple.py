"""Corrections for several comparisons: Holm over schemes, and a share of the error for every look at growing seeds.

A comparison of five schemes gives five verdicts, and someone who adds seeds while the verdict does not please takes
several looks at the same question. Without correction the chance of at least one wrong verdict is then well above 5 %
(``tests/evaluation/coverage.py``). With both corrections it is at most 5 % over all schemes and all looks.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float64

from r2mae.evaluation.statistics import finite_array

ERROR = 0.05
"""The chance of a wrong verdict that all looks at all schemes share."""
PLANNED_SHARE = 0.8
"""The first look, at the seeds that were planned, takes this share of it."""


def holm(p_values: Any) -> Float64[np.ndarray, " n"]:
    """Adjust p-values for their number by Holm's step-down method (1979).

    An adjusted p-value is at most α if and only if the method rejects the hypothesis at the level α. The chance that
    any true hypothesis is rejected is then at most α, however the tests depend on each other.

    Parameters
    ----------
    p_values : array-like, shape (n,)
        Between 0 and 1.

    Raises
    ------
    ValueError
        If there are none, or some are not finite.
    """
    values = finite_array(p_values, "p-values", ndim=1)
    order = np.argsort(values, kind="stable")
    steps = np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1))
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(steps, 1.0)
    return adjusted


def level_of_look(look: int) -> float:
    """Return the error that a look may take, so that all looks together take at most :data:`ERROR`.

    The first look takes :data:`PLANNED_SHARE`. Each further one takes half of what is left: adding seeds after a look
    stays possible, and has to show more.

    Parameters
    ----------
    look : int
        1 for the first.

    Raises
    ------
    ValueError
        If `look` is below 1.
    """
    if look < 1:
        raise ValueError(f"looks are counted from 1; got {look}")
    return ERROR * PLANNED_SHARE if look == 1 else ERROR * (1 - PLANNED_SHARE) / 2 ** (look - 1)


def corrected_p_values(p_values: Any, *, looks: int | Sequence[int] = 1) -> Float64[np.ndarray, " n"]:
    """Adjust the p-values of several schemes at one of several looks; at most :data:`ERROR` means decided.

    Parameters
    ----------
    p_values : array-like, shape (n,)
        A p-value for each scheme.
    looks : int or sequence of int
        The number of looks so far, with this one: of all schemes, or of each.

    Returns
    -------
    ndarray, shape (n,)
        Holm's p-values of the p-values times :data:`ERROR` over the level of their look; at most 1.
    """
    values = finite_array(p_values, "p-values", ndim=1)
    each = [looks] * len(values) if isinstance(looks, int) else looks
    levels = np.array([level_of_look(look) for look in each])
    return holm(np.minimum(values * (ERROR / levels), 1.0))
