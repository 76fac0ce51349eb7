"""Pictures of several runs: test images, masked images and reconstructions, a column for each run."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from r2mae.domains.checks import open_run
from r2mae.domains.lookup import all_domains
from r2mae.errors import UserError
from r2mae.training.config import RunConfig

if TYPE_CHECKING:
    from r2mae.domains.base import Domain
    from r2mae.evaluation.examples import Examples

Runs = list[tuple[Path, RunConfig]]
"""Run folders with their configurations."""


def runs_with_pictures(paths: Sequence[Path]) -> "tuple[Domain, Runs]":
    """Return the domain of all runs, which must have pictures, and the runs with their configurations."""
    found = [(path, *open_run(path)) for path in paths]
    first = found[0][1]
    for path, domain, _ in found:
        if not domain.has_examples:
            known = ", ".join(one.name for one in all_domains() if one.has_examples)
            raise UserError(
                f"{path} is a run of the domain {domain.name}, which has no pictures; domains with pictures: {known}"
            )
        if domain.name != first.name:
            raise UserError(
                f"{path} is a run of the domain {domain.name}, and {paths[0]} of {first.name}: draw runs of one domain"
            )
    return first, [(path, config) for path, _, config in found]


def reconstructions_of(domain: "Domain", runs: Runs, ratio: float | None) -> "dict[str, Examples]":
    """Let finished runs complete the same masked test images; by default at the default ratio of the first run's model.

    Raises a :class:`UserError` if the data of a run have changed, or its examples are not pictures.
    """
    from r2mae.compare.gather import examples_of
    from r2mae.compare.runs import SweepRun
    from r2mae.compare.variants import variant_of
    from r2mae.training.folder import RunFolder

    variants = [variant_of(config) for _, config in runs]
    names = _column_names([variant.label for variant in variants], [path for path, _ in runs])
    for path, config in runs:
        RunFolder(path).check_data(config.data.source, domain.fingerprint(config))
    finished = [
        SweepRun(replace(variant, label=name), config.seed, config, path)
        for variant, name, (path, config) in zip(variants, names, runs, strict=True)
    ]
    examples = examples_of(finished, domain, ratio=ratio)
    if examples is None:
        raise UserError(f"{runs[0][0]}: the examples of this model are not pictures: see `r2mae evaluate`")
    return examples


def _column_names(labels: Sequence[str], paths: Sequence[Path]) -> list[str]:
    """Return the names of the columns: the labels if all differ, else the folders."""
    if len(set(labels)) == len(labels):
        return list(labels)
    twice = [str(path) for path, times in Counter(paths).items() if times > 1]
    if twice:
        raise UserError(f"{twice[0]} is named twice: name each run once")
    return [str(path) for path in paths]
