"""From the run folders of a comparison to one :class:`~r2mae.report.comparison.Comparison`."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from r2mae.compare.finished import shared_fields
from r2mae.masking.ratios import Uniform
from r2mae.report.comparison import Comparison, Reconstructions
from r2mae.report.pictures import beside_each_other
from r2mae.sweep.cells import Cell
from r2mae.sweep.examples import examples_of
from r2mae.sweep.gather import curves_of, in_order, items_by_run, metrics_of, table_of
from r2mae.training.config import RunConfig
from r2mae.training.environment import environment
from r2mae.training.folder import RunFolder, read_json
from r2mae.training.initial import INIT, recorded
from r2mae.training.numbers import ratios_of
from r2mae.training.scheme_options import chosen_options, effective_options, kind_of, scheme_of
from r2mae.wings.contract import Wing

_SAMPLES = 20_000  # numbers that stand for the ratios of all samples


def gather(
    cells: Sequence[Cell], wing: Wing, base: RunConfig, extra: Mapping[str, Any], *, examples: bool = True
) -> Comparison:
    """Read scores, curves and ratios of finished cells, and with `examples` their examples."""
    ordered = in_order(cells)
    trained = [cell for cell in ordered if not cell.row.baseline]
    first = _first_seed(trained)
    seeds = sorted({int(cell.seed) for cell in cells})
    shown = [cell for cell in trained if cell.seed == first]
    return Comparison(
        title=Path(base.data).name,
        metrics=wing.metrics_of(base),
        table=table_of(ordered),
        curves=curves_of(trained),
        ratios={cell.row.label: _drawn(cell, wing) for cell in shown},
        by_sample=tuple(cell.row.label for cell in shown if _of_samples(cell, wing) is not None),
        reconstructions=_examples(shown, wing) if examples else None,
        config={
            **_shared(base),
            "schemes": list(dict.fromkeys(cell.row.label for cell in ordered)),
            "seeds": seeds,
            "rows": _rows(trained, wing),
            **extra,
        },
        environment=environment() | _begun(trained),
        measured=base.measured_in_words(),
        items=items_by_run(ordered),
    )


def _begun(trained: Sequence[Cell]) -> dict[str, Any]:
    """Return what all rows began with, where that was not fresh weights."""
    record = recorded(RunFolder(trained[0].folder)) if trained else {}
    return {INIT: dict(record)} if record else {}


def _first_seed(trained: Sequence[Cell]) -> int:
    """Return the seed under which most rows have run, the lowest of several: examples are compared within one seed."""
    counts = Counter(cell.seed for cell in trained)
    return min(counts, key=lambda seed: (-counts[seed], seed))


def _of_samples(cell: Cell, wing: Wing) -> Uniform | None:
    """Return what the ratios of a run are drawn from where every sample of a step has its own; else None."""
    ratio = scheme_of(cell.row.config, ratios_of(wing, cell.row.config)).ratio
    return ratio if isinstance(ratio, Uniform) and ratio.per == "sample" else None


def _drawn(cell: Cell, wing: Wing) -> Float[np.ndarray, " ratios"]:
    """Return the ratios of a run's steps; where every sample has its own, of which none is kept, their distribution."""
    ratio = _of_samples(cell, wing)
    if ratio is not None:
        return ratio.quantile((np.arange(_SAMPLES) + 0.5) / _SAMPLES)
    return np.asarray(metrics_of(cell)["ratio"].to_numpy(), dtype=np.float64)


def _shared(base: RunConfig) -> dict[str, Any]:
    """Return the fields that all rows share, without the epochs where steps are given."""
    return {key: value for key, value in shared_fields(base).items() if key != "epochs" or base.steps is None}


def _rows(trained: Sequence[Cell], wing: Wing) -> dict[str, dict[str, Any]]:
    """Return for every row the options that its scheme takes, with the values used, and which of them were given."""
    first = {cell.row.label: cell for cell in reversed(trained)}
    return {label: _used(first[label], wing) for label in reversed(first)}


def _used(cell: Cell, wing: Wing) -> dict[str, Any]:
    config = cell.row.config
    numbers, kind = ratios_of(wing, config), kind_of(config.scheme)
    description = read_json(RunFolder(cell.folder).model_file)
    # The length that schedules were made for: early stopping ends a run before it. Older folders do not say it.
    steps = description.get("planned_steps", description.get("steps") if config.steps is None else config.steps)
    used = effective_options(config, numbers, steps if isinstance(steps, int) else None)
    # The ratio of a row at a fixed ratio is in its label.
    given = [name for name in chosen_options(config, numbers) if not (kind.per_ratio and name == "ratio")]
    return {"scheme": config.scheme, **used, "given": given}


def _examples(cells: Sequence[Cell], wing: Wing) -> Reconstructions | None:
    """Return the same masked examples as the model of each cell completes them; None if the wing has none."""
    found = examples_of(cells, wing)
    return None if found is None else beside_each_other(found)
