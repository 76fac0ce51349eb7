"""From the run folders of a comparison to one :class:`Comparison`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from r2mae.experiments.cell import scores_of
from r2mae.experiments.plan import Cell
from r2mae.experiments.results import Comparison, Reconstructions
from r2mae.experiments.wing import Wing
from r2mae.files import atomic_write
from r2mae.training.config import MACHINE_FIELDS, RunConfig
from r2mae.training.folder import RunFolder, environment
from r2mae.training.metrics import read_metrics
from r2mae.training.saving import load_model

_POINTS = 200
# These differ between the rows of a comparison, and stand in its table.
_OF_ROWS = {"scheme", "ratio", "low", "high", "seed", "preset"}


def shared_fields(base: RunConfig) -> dict[str, Any]:
    """Return what all cells of a comparison have in common; the rest stands in its table."""
    return {key: value for key, value in base.to_dict().items() if key not in _OF_ROWS | MACHINE_FIELDS}


def gather(cells: Sequence[Cell], wing: Wing, base: RunConfig, extra: Mapping[str, Any]) -> Comparison:
    """Read scores, curves, ratios and examples of finished cells."""
    order = {label: place for place, label in enumerate(dict.fromkeys(cell.row.label for cell in cells))}
    ordered = sorted(cells, key=lambda cell: (order[cell.row.label], cell.seed))
    trained = [cell for cell in ordered if not cell.row.baseline]
    first = cells[0].seed
    table = pd.DataFrame([_line(cell) for cell in ordered])
    seeds = [int(seed) for seed in dict.fromkeys(cell.seed for cell in cells)]
    return Comparison(
        title=Path(base.data).name,
        metrics=wing.metrics_of(base),
        table=table,
        curves=pd.concat([_curve(cell) for cell in trained], ignore_index=True),
        ratios={cell.row.label: _metrics(cell)["ratio"].to_numpy() for cell in trained if cell.seed == first},
        reconstructions=_examples([cell for cell in trained if cell.seed == first], wing),
        config={**shared_fields(base), "schemes": list(order), "seeds": seeds, **extra},
        environment=environment(),
    )


def _line(cell: Cell) -> dict[str, Any]:
    folder = RunFolder(cell.folder)
    row = cell.row
    return {
        "label": row.label,
        "scheme": row.scheme,
        "ratio": np.nan if row.ratio is None else row.ratio,
        "low": row.low,
        "high": row.high,
        "seed": cell.seed,
        "seconds": float((folder.results or {}).get("seconds") or np.nan),
        **scores_of(folder),
    }


def _metrics(cell: Cell) -> pd.DataFrame:
    return read_metrics(RunFolder(cell.folder).metrics_file)[["step", "ratio", "loss", "validation_loss"]]


def _curve(cell: Cell) -> pd.DataFrame:
    """Thin a training curve to means over windows: a random ratio makes single losses jump."""
    steps = _metrics(cell)
    window = np.arange(len(steps)) * _POINTS // max(len(steps), _POINTS)
    means = steps.groupby(window)[["loss", "validation_loss"]].mean()
    means.insert(0, "step", steps.groupby(window)["step"].max())
    means.insert(0, "seed", cell.seed)
    means.insert(0, "label", cell.row.label)
    return means


def _examples(cells: Sequence[Cell], wing: Wing) -> Reconstructions | None:
    """Let the first seed's models complete the same masked examples, where the wing has some to look at."""
    if not wing.has_examples:
        return None
    data = wing.load(cells[0].config)
    made = {}
    for cell in cells:
        config, task, model = load_model(cell.folder, wing)
        examples = wing.examples(config, task, model, data)
        if examples is None:
            return None
        made[cell.row.label] = examples
    one = next(iter(made.values()))
    return Reconstructions(one.original, one.masked, one.ratio, {label: e.prediction for label, e in made.items()})


def write_table(comparison: Comparison, path: Path) -> None:
    """Write ``results.csv``: one line a cell."""
    with atomic_write(path) as file:
        comparison.table.to_csv(file, index=False, lineterminator="\n", float_format="%.10g")
