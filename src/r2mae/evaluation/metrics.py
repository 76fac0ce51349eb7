"""What a score is called, and which way is up."""

from dataclasses import dataclass
from math import inf


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
    """

    name: str
    label: str
    higher_is_better: bool | None = True
    bounds: tuple[float, float] = (-inf, inf)

    @property
    def arrow(self) -> str:
        """Which way is up, in a character; nothing for a metric that does not judge."""
        return {True: "↑", False: "↓", None: ""}[self.higher_is_better]
