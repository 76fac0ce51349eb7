"""Alternating measurements: as timings vary over time, contenders take turns in one process."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Timing:
    """Seconds of one contender over several rounds."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """Median over the rounds."""
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """Half the distance between the quartiles."""
        if len(self.seconds) < 4:
            return (max(self.seconds) - min(self.seconds)) / 2
        first, _, third = statistics.quantiles(self.seconds, n=4)
        return (third - first) / 2


def alternate(contenders: Mapping[str, Callable[[], float | None]], rounds: int) -> dict[str, Timing]:
    """Run contenders in turns.

    If a contender returns a number, this is its time in seconds; otherwise the call is timed.
    """
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, run in contenders.items():
            began = time.perf_counter()
            own = run()
            seconds[name].append(time.perf_counter() - began if own is None else own)
    return {name: Timing(tuple(values)) for name, values in seconds.items()}


def ratio_of(a: Timing, b: Timing) -> tuple[float, float]:
    """Return the median over rounds of a/b, and half the distance between its quartiles."""
    ratios = Timing(tuple(x / y for x, y in zip(a.seconds, b.seconds, strict=True)))
    return ratios.median, ratios.spread
