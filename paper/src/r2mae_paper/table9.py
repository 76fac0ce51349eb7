"""Table 9: R²MAE against fixed ratios in the linear model."""

from collections.abc import Mapping

from r2mae_paper.artefact import Part, TableRow, Tables
from r2mae_paper.drawing import Figures
from r2mae_paper.published import published
from r2mae_paper.tables import TableSize, draw_gains, parts_of

TITLE = "Table 9: R²MAE, U(0.4, 0.5), against the best and the middle fixed ratio"
DATA = "simulated"
COST = {
    "small": "seconds",
    "full": "half an hour on two cores, with table5, table9, r2mae-vs-fixed and ranges together",
}
PAPER = "R²MAE beats the middle ratio for every seed, and the best fixed ratio for most."
SIZE = TableSize


def parts(size: TableSize) -> list[Part]:
    """Return a part for each model and seed."""
    return parts_of(published("table9"), size)


def table(results: Mapping[str, TableRow]) -> Tables:
    """Return the rows of all models and seeds."""
    return {"table9": list(results.values())}


def draw(tables: Tables, size: TableSize) -> Figures:
    """Draw R²MAE minus the middle ratio."""
    return {"table9": draw_gains(published("table9"), tables["table9"])}
