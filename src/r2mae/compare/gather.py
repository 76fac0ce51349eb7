"""Gather the run folders of a comparison into one :class:`~r2mae.report.comparison.Comparison`."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from r2mae.domains.base import Domain
from r2mae.masking.ratios import Uniform
from r2mae.report.comparison import Comparison, Reconstructions
from r2mae.report.pictures import to_reconstructions
from r2mae.sweep.examples import examples_of
from r2mae.sweep.gather import curves_of, items_by_run, metrics_of, ordered_runs, table_of
from r2mae.sweep.runs import SweepRun
from r2mae.training.config import RunConfig, fields_of
from r2mae.training.environment import environment
from r2mae.training.folder import RunFolder
from r2mae.training.initial import INIT, read_initial_weights
from r2mae.training.scheme import SchemeSpec

_QUANTILES = 20_000  # evenly spaced quantiles that represent the ratios of all samples


def gather(
    runs: Sequence[SweepRun], domain: Domain, base: RunConfig, extra: Mapping[str, Any], *, examples: bool = True
) -> Comparison:
    """Return the comparison of finished runs: scores, curves and ratios, and with `examples` their reconstructions."""
    ordered = ordered_runs(runs)
    trained = [run for run in ordered if not run.variant.baseline]
    first = _first_seed(trained)
    seeds = sorted({int(run.seed) for run in runs})
    shown = [run for run in trained if run.seed == first]
    return Comparison(
        title=Path(base.data.source).name,
        metrics=domain.metrics_of(base),
        table=table_of(ordered),
        curves=curves_of(trained),
        ratios={run.variant.label: _drawn_ratios(run) for run in shown},
        by_sample=tuple(run.variant.label for run in shown if _per_sample_ratios(run) is not None),
        reconstructions=_examples(shown, domain) if examples else None,
        config={
            **_config_fields(base),
            "schemes": list(dict.fromkeys(run.variant.label for run in ordered)),
            "seeds": seeds,
            "rows": _options_by_label(trained),
            **extra,
        },
        environment=environment() | _initial_weights(trained),
        measured=base.measured_in_words(),
        items=items_by_run(ordered),
    )


def _initial_weights(trained: Sequence[SweepRun]) -> dict[str, Any]:
    """Return the record of the initial weights of all variants; empty for fresh weights."""
    record = read_initial_weights(RunFolder(trained[0].folder)) if trained else {}
    return {INIT: dict(record)} if record else {}


def _first_seed(trained: Sequence[SweepRun]) -> int:
    """Return the seed with the most finished variants, the lowest of several: examples are compared within a seed."""
    counts = Counter(run.seed for run in trained)
    return min(counts, key=lambda seed: (-counts[seed], seed))


def _per_sample_ratios(run: SweepRun) -> Uniform | None:
    """Return the distribution of a run's ratios if every sample has its own ratio; else None."""
    ratio = run.variant.config.scheme.make().ratio
    return ratio if isinstance(ratio, Uniform) and ratio.per == "sample" else None


def _drawn_ratios(run: SweepRun) -> Float[np.ndarray, " ratios"]:
    """Return the ratios of a run's steps, or quantiles of their distribution.

    Quantiles are for schemes with a ratio for every sample: runs do not record the ratios of samples.
    """
    ratio = _per_sample_ratios(run)
    if ratio is not None:
        return ratio.quantile((np.arange(_QUANTILES) + 0.5) / _QUANTILES)
    return np.asarray(metrics_of(run)["ratio"].to_numpy(), dtype=np.float64)


def _config_fields(base: RunConfig) -> dict[str, Any]:
    """Return the fields that all variants share by their short names; `epochs` only if `steps` is not given."""
    groups = fields_of(type(base))
    own = {"scheme", *base.scheme.options, "seed", "preset"} | ({"epochs"} if base.optimizer.steps else set())
    own |= {name for name, (group, _) in groups.items() if group == "machine"}
    return {"domain": base.domain, **{name: value for name, value in base.flat().items() if name not in own}}


def _options_by_label(trained: Sequence[SweepRun]) -> dict[str, dict[str, Any]]:
    """Return for every variant its scheme's options with the values used, and the names of the options given."""
    first = {run.variant.label: run for run in reversed(trained)}
    return {label: _used_options(first[label].variant.config.scheme) for label in reversed(first)}


def _used_options(scheme: SchemeSpec) -> dict[str, Any]:
    # The label of a fixed-ratio variant contains the ratio.
    given = [name for name in scheme.given if not (scheme.kind.per_ratio and name == "ratio")]
    return {"scheme": scheme.name, **scheme.options, "given": given}


def _examples(runs: Sequence[SweepRun], domain: Domain) -> Reconstructions | None:
    """Return the reconstructions of the same masked examples by each run's model; None if the domain has none."""
    found = examples_of(runs, domain)
    return None if found is None else to_reconstructions(found)
