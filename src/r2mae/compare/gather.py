"""Gather run folders into tables, and those of a comparison into a :class:`~r2mae.compare.comparison.Comparison`."""

import logging
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from r2mae.compare.comparison import Comparison
from r2mae.compare.measure import scores_of
from r2mae.compare.pictures import check_alike
from r2mae.compare.run_states import damaged_results, finished_runs, read_shared_fields
from r2mae.compare.runs import SweepRun, data_key, default_label
from r2mae.domains.base import Domain
from r2mae.domains.lookup import domain_of_run
from r2mae.environment import environment
from r2mae.errors import UserError
from r2mae.evaluation.examples import Examples
from r2mae.training.config import RunConfig, fields_of
from r2mae.training.folder import RunFolder, read_json
from r2mae.training.initial import INIT, read_initial_weights
from r2mae.training.metrics import read_metrics
from r2mae.training.pretraining import items_of
from r2mae.training.saving import load_model
from r2mae.training.scheme import SchemeSpec

_POINTS = 200  # of a training curve


def gather(
    runs: Sequence[SweepRun], domain: Domain, base: RunConfig, extra: Mapping[str, Any], *, examples: bool = True
) -> Comparison:
    """Return the comparison of finished runs: scores and curves, and with `examples` their reconstructions."""
    ordered = ordered_runs(runs)
    trained = [run for run in ordered if not run.variant.baseline]
    finished = Counter(run.seed for run in trained)  # examples are compared within the seed of most variants
    first = min(finished, key=lambda seed: (-finished[seed], seed))
    seeds = sorted({int(run.seed) for run in runs})
    shown = [run for run in trained if run.seed == first]
    found = examples_of(shown, domain) if examples else None
    begun = read_initial_weights(RunFolder(trained[0].folder)) if trained else {}
    items = {(run.variant.label, run.seed): items_of(RunFolder(run.folder)) for run in ordered}
    return Comparison(
        title=Path(base.data.source).name,
        metrics=domain.metrics_of(base),
        table=table_of(ordered),
        curves=pd.concat(map(_curve, trained), ignore_index=True),  # thinned: label, seed, step, losses
        by_sample=tuple(run.variant.label for run in shown if run.variant.config.scheme.make().ratio.per_sample),
        reconstructions=found or {},
        config={
            **_config_fields(base),
            "schemes": list(dict.fromkeys(run.variant.label for run in ordered)),
            "seeds": seeds,
            "rows": _options_by_label(trained),
            **extra,
        },
        environment=environment() | ({INIT: dict(begun)} if begun else {}),
        measured=base.measured_in_words(),
        items={run: one for run, one in items.items() if one is not None},
    )


def gather_again(out: Path, against: str | None = None, *, examples: bool = True) -> Comparison:
    """Return the comparison of all finished runs in a folder, without running anything.

    `against` is the label that the headline compares with, by default that of the last report. If the data can no
    longer be read, the comparison has no examples, and a warning is logged.

    Raises a :class:`UserError` if the folder holds no comparison, or no finished run.
    """
    shared = read_shared_fields(out)
    domain = domain_of_run(shared, out)
    base = domain.config.from_dict(shared, source=str(out / "compare.json"))
    previous = _previous_config(out)
    schemes = previous.get("schemes")
    labels = [str(label) for label in schemes] if isinstance(schemes, list) else []
    runs, unread = finished_runs(out, domain, base, labels), damaged_results(out)
    if not any(not run.variant.baseline for run in runs):
        if unread:
            raise UserError(unread[0])
        raise UserError(f"no run in {out} is finished: repeat the command of the comparison to resume it")
    label = previous.get("default_fixed_label") or default_label(base)
    extra = {"default_fixed_label": label, "against": against or previous.get("against")}
    extra |= {"command": command} if isinstance(command := previous.get("command"), list) else {}
    try:
        comparison = gather(runs, domain, base, extra=extra, examples=examples)
    except UserError as error:
        if not (domain.has_examples and examples):
            raise
        comparison = gather(runs, domain, base, extra=extra, examples=False)
        logging.getLogger("r2mae").warning("%s: the report has no examples (%s)", out, error)
    return replace(comparison, unread=tuple(unread))


def _previous_config(out: Path) -> dict[str, Any]:
    """Return the configuration in the previous ``results.json``; empty without one."""
    try:
        config = read_json(out / "results.json").get("config")
    except (UserError, OSError, AttributeError):
        return {}
    return config if isinstance(config, dict) else {}


def _config_fields(base: RunConfig) -> dict[str, Any]:
    """Return the fields that all variants share by their short names; `epochs` only if `steps` is not given."""
    groups = fields_of(type(base))
    own = {"scheme", *base.scheme.options, "seed", "preset"} | ({"epochs"} if base.optimizer.steps else set())
    own |= {name for name, (group, _) in groups.items() if group == "machine"}
    return {"domain": base.domain, **{name: value for name, value in base.flat().items() if name not in own}}


def _options_by_label(trained: Sequence[SweepRun]) -> dict[str, dict[str, Any]]:
    """Return for every variant its scheme's options with the values used, and the names of the options given."""
    schemes: dict[str, SchemeSpec] = {}
    for run in trained:
        schemes.setdefault(run.variant.label, run.variant.config.scheme)
    return {
        # The label of a fixed-ratio variant contains the ratio.
        label: {
            "scheme": one.name,
            **one.options,
            "given": [name for name in one.given if not (one.kind.per_ratio and name == "ratio")],
        }
        for label, one in schemes.items()
    }


def ordered_runs(runs: Sequence[SweepRun]) -> list[SweepRun]:
    """Return the runs sorted by variant, in the order of the variants' first runs, then by seed."""
    order = {label: position for position, label in enumerate(dict.fromkeys(run.variant.label for run in runs))}
    return sorted(runs, key=lambda run: (order[run.variant.label], run.seed))


def table_of(runs: Sequence[SweepRun]) -> pd.DataFrame:
    """Return one line per run: label, the variant's values, seed, seconds of training, and scores."""
    lines = []
    for run in runs:
        folder = RunFolder(run.folder)
        seconds = float((folder.results or {}).get("seconds") or np.nan)
        own = {"label": run.variant.label, **run.variant.values, "seed": run.seed, "seconds": seconds}
        lines.append({**own, **scores_of(folder)})
    return pd.DataFrame(lines)


def metrics_of(run: SweepRun) -> pd.DataFrame:
    """Return a table of a run's steps: step, ratio, loss and validation loss."""
    return read_metrics(RunFolder(run.folder).metrics_file)[["step", "ratio", "loss", "validation_loss"]]


def _curve(run: SweepRun) -> pd.DataFrame:
    """Return a training curve as means over windows: with a random ratio, single losses are noisy."""
    steps = metrics_of(run)
    window = np.arange(len(steps)) * _POINTS // max(len(steps), _POINTS)
    means = steps.groupby(window)[["loss", "validation_loss"]].mean()
    means.insert(0, "step", steps.groupby(window)["step"].max())
    means.insert(0, "seed", run.seed)
    means.insert(0, "label", run.variant.label)
    return means


def examples_of(runs: Sequence[SweepRun], domain: Domain, *, ratio: float | None = None) -> dict[str, Examples] | None:
    """Return the examples of each run by its label, or None if the domain or a model has none.

    Runs of the same data share one reading of them.

    Parameters
    ----------
    runs : sequence of SweepRun
        Finished runs.
    domain : Domain
        Domain of the runs.
    ratio : float, optional
        The mask ratio; by default the default ratio of the first run's model.
    """
    if not domain.has_examples:
        return None
    read: dict[Hashable, Any] = {}
    made: dict[str, Examples] = {}
    for run in runs:
        config, task, model = load_model(run.folder, domain)
        source = (data_key(config), config.seed, config.data.validation)  # these determine the data and their split
        if source not in read:
            read.clear()  # one set at a time is held in memory
            read[source] = domain.load(config)
        chosen = {} if ratio is None else {"ratio": ratio}
        examples = domain.examples(
            replace(config, evaluation=run.config.evaluation), task, model, read[source], **chosen
        )
        if examples is None:
            return None
        made[run.variant.label], ratio = examples, examples.ratio
    check_alike(made)
    return made
