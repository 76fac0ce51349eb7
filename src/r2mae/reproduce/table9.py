"""Table 9: R²MAE against fixed ratios in the linear model."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from r2mae.reproduce.published import TABLE_9
from r2mae.reproduce.tables import Size, reproduce

TITLE = "Table 9: R²MAE, U(0.4, 0.5), against the best and the middle fixed ratio"
PAPER = "R²MAE beats the middle ratio for every seed, and the best fixed ratio for most."


def run(
    out: Path,
    *,
    scale: Literal["small", "full"] = "full",
    jobs: int = 1,
    progress: Callable[[int, int], None] | None = None,
    size: Size | None = None,
) -> list[Path]:
    """Write table9.csv and its figure."""
    return reproduce(TABLE_9, out, scale=scale, jobs=jobs, progress=progress, size=size)
