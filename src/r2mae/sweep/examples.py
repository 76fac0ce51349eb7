"""Reconstructions of the same masked examples by the models of several finished runs."""

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

from r2mae.domains.base import Domain
from r2mae.evaluation.examples import Examples
from r2mae.sweep.runs import SweepRun, data_key
from r2mae.training.saving import load_model


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
    return made
