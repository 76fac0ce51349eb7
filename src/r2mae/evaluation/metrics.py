"""What a score is called, and which way is up."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

_RATIO = re.compile(r"(?P<metric>.+)_(?P<ratio>0|1|[01]?\.\d+)")


@dataclass(frozen=True)
class Metric:
    """One score of an evaluation.

    Parameters
    ----------
    name : str
        Its key in results files, such as ``"accuracy"``.
    label : str
        Its name in tables and figures.
    higher_is_better : bool, optional
        Which way is up; None for a number that describes without judging (effective rank), which is shown but neither
        ranked nor compared with the best fixed ratio.
    bounds : (float, float)
        Least and largest possible value; intervals of means end there.
    ranked : bool
        Whether it counts in the average score and rank of a comparison; not if it sums others up or is another task.
    optional : bool
        Whether there are data for which it is not defined; that no cell has it is then no news.
    """

    name: str
    label: str
    higher_is_better: bool | None = True
    bounds: tuple[float, float] = (-inf, inf)
    ranked: bool = True
    optional: bool = False

    @property
    def arrow(self) -> str:
        """Which way is up, in a character; nothing for a metric that does not judge."""
        return {True: "↑", False: "↓", None: ""}[self.higher_is_better]


def by_ratio(names: Iterable[str]) -> dict[str, dict[float, str]]:
    """Find scores that were measured at several mask ratios, ``<metric>_<ratio>``.

    Parameters
    ----------
    names : iterable of str
        Of all scores.

    Returns
    -------
    dict
        For each such metric its names by ratio, rising.
    """
    found: dict[str, dict[float, str]] = {}
    for name in names:
        if (match := _RATIO.fullmatch(name)) and float(match["ratio"]) <= 1:
            found.setdefault(match["metric"], {})[float(match["ratio"])] = name
    # Names such as top_1 end in a number, too: a ratio between 0 and 1 tells.
    return {
        metric: dict(sorted(ratios.items()))
        for metric, ratios in found.items()
        if len(ratios) > 1 and any(0 < ratio < 1 for ratio in ratios)
    }
