"""Options of commands on cells. No torch."""

from dataclasses import dataclass

from r2mae.cells.config import CellsDataConfig, CellsEvaluationConfig
from r2mae.domains.options import as_in_run


@dataclass(frozen=True)
class Mapping:
    """How other cells are mapped onto the model.

    Parameters
    ----------
    transform_batch : str, optional
        The training batch to use for cells whose own is unknown to the model.
    """

    transform_batch: str | None = None


Layer = as_in_run(CellsEvaluationConfig, "representation")
"""The layer of the model that is used."""
Probing = as_in_run(CellsEvaluationConfig, "representation", "bn_statistics")
"""Options of the evaluation."""
Reading = as_in_run(CellsDataConfig, "layer", base=Mapping)
"""Options of reading other cells."""
