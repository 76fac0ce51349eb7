"""Learning rate schedules: pure functions of the optimiser step."""

import math
from typing import Literal

Shape = Literal["constant", "linear", "cosine"]


def learning_rate_factor(step: int, total: int, shape: Shape, warmup: float, lowest: float = 0.0) -> float:
    """Return the factor on the learning rate at optimiser step `step` (from 0) of `total`.

    The factor rises linearly to 1 over the first fraction `warmup` of the run. Then it stays constant, or falls to
    `lowest` at the end of the run along a line or half a cosine.

    Parameters
    ----------
    step, total : int
        Step, and number of steps of the run.
    shape : {"constant", "linear", "cosine"}
        Schedule after the warm-up.
    warmup : float
        Fraction of the run.
    lowest : float
        The factor at the end of a falling schedule.
    """
    rising = warmup * total
    if step < rising:
        return (step + 1) / math.ceil(rising)
    if shape == "constant":
        return 1.0
    done = (step - rising) / max(total - rising, 1)
    falling = 1.0 - done if shape == "linear" else 0.5 * (1.0 + math.cos(math.pi * done))
    return lowest + (1.0 - lowest) * falling
