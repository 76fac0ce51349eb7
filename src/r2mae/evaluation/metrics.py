"""The metrics of an evaluation: their names, and whether a higher or a lower value is better."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

FEATURES, FILLING_IN = "features", "filling in"
"""The two questions that are asked of pretrained models."""
_RATIO = re.compile(r"(?P<metric>.+)_(?P<ratio>0|1|[01]?\.\d+)")


@dataclass(frozen=True)
class Metric:
    """One score of an evaluation.

    Parameters
    ----------
    name : str
        Key in results files, such as ``"accuracy"``.
    label : str
        Name in tables and figures.
    higher_is_better : bool, optional
        None if neither is better, as for the effective rank. Such a metric is shown, but neither ranked nor compared
        with the best fixed ratio.
    bounds : (float, float)
        Lowest and highest possible value, where intervals of means are cut off.
    ranked : bool
        Whether it counts in the average score and rank of a comparison. A metric that summarises others, or measures
        another task, does not.
    optional : bool
        Whether it is undefined for some data. If so, a report does not mention that no run has it.
    question : str
        What it tells, such as "features": a comparison says of each question's first metric which scheme is better.
    """

    name: str
    label: str
    higher_is_better: bool | None = True
    bounds: tuple[float, float] = (-inf, inf)
    ranked: bool = True
    optional: bool = False
    question: str = ""

    @property
    def arrow(self) -> str:
        """An arrow up if higher is better, down if lower is better; empty if neither is."""
        return {True: "↑", False: "↓", None: ""}[self.higher_is_better]


def metrics_by_ratio(names: Iterable[str]) -> dict[str, dict[float, str]]:
    """Return, of metrics measured at several mask ratios, the names of scores, ``<metric>_<ratio>``, by ratio."""
    names_by_ratio: dict[str, dict[float, str]] = {}
    for name in names:
        if (match := _RATIO.fullmatch(name)) and float(match["ratio"]) <= 1:
            names_by_ratio.setdefault(match["metric"], {})[float(match["ratio"])] = name
    # Names such as top_1 end in a number, too; a metric was measured at ratios only if one is between 0 and 1.
    return {
        metric: dict(sorted(ratios.items()))
        for metric, ratios in names_by_ratio.items()
        if len(ratios) > 1 and any(0 < ratio < 1 for ratio in ratios)
    }


def label_of(name: str, metrics: Iterable[Metric]) -> str:
    """Return the label of a score in tables: that of its metric, with the ratio if it has one, or its name."""
    labels = {metric.name: metric.label for metric in metrics}
    match = _RATIO.fullmatch(name)
    if name not in labels and match and match["metric"] in labels:
        return f"{labels[match['metric']]} at {match['ratio']}"
    return labels.get(name, name.replace("_", " "))
