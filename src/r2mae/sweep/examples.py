"""The same masked examples, as the models of several finished runs complete them."""

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

from r2mae.evaluation.examples import Examples
from r2mae.sweep.cells import Cell, reading_of
from r2mae.training.saving import load_model
from r2mae.wings.contract import Wing


def examples_of(cells: Sequence[Cell], wing: Wing, *, ratio: float | None = None) -> dict[str, Examples] | None:
    """Return the examples of each run by its label, or None if the wing or a model has none.

    Data are read once for all runs that read the same.

    Parameters
    ----------
    cells : sequence of Cell
        Finished runs of the wing.
    wing : Wing
        Theirs.
    ratio : float, optional
        What part is hidden; by default the usual ratio of the first run's model.
    """
    if not wing.has_examples:
        return None
    read: dict[Hashable, Any] = {}
    made: dict[str, Examples] = {}
    for cell in cells:
        config, task, model = load_model(cell.folder, wing)
        source = (reading_of(config), config.seed, config.validation)  # on which the division of the data depends
        if source not in read:
            read.clear()  # one set at a time is held in memory
            read[source] = wing.load(config)
        chosen = {} if ratio is None else {"ratio": ratio}
        examples = wing.examples(replace(config, **cell.config.measured_as()), task, model, read[source], **chosen)
        if examples is None:
            return None
        made[cell.row.label], ratio = examples, examples.ratio
    return made
