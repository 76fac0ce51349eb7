"""The states of runs, and the finished runs of a comparison, no matter which command made them."""

import json
import logging
import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from r2mae.compare.runs import SweepRun, baseline_variants, variant_of
from r2mae.domains.base import Domain
from r2mae.domains.baselines import known_baselines
from r2mae.errors import UserError
from r2mae.files import read_confined
from r2mae.masking.schemes import scheme_names
from r2mae.training.config import RunConfig
from r2mae.training.folder import RunFolder, read_json

_OF_RUNS = ("scheme", "seed", "preset", "machine")


def finished(run: SweepRun) -> bool:
    """Return whether a run is trained and measured."""
    folder = RunFolder(run.folder)
    return (run.variant.baseline or folder.trained) and folder.results_for(run.config) is not None


def read_looks(out: Path) -> dict[str, dict[str, list[list[int]]]]:
    """Return the seeds of each look, by what the headline compared with and by scheme, from ``looks.json``.

    Raises a :class:`UserError` if the file is damaged.
    """
    file = out / "looks.json"
    if not file.exists():
        return {}
    try:
        looks = json.loads(read_confined(file))
        return {
            str(against): {
                str(label): [[int(seed) for seed in seeds] for seeds in shown] for label, shown in schemes.items()
            }
            for against, schemes in looks.items()
        }
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        raise UserError(
            f"{file} is damaged: restore it (if you delete it, verdicts no longer count how often they were shown)"
        ) from None


def shared_fields(base: RunConfig) -> dict[str, Any]:
    """Return the fields that all runs of a comparison share: all but those of the variant, the seed and the machine."""
    return {name: value for name, value in base.to_dict().items() if name not in _OF_RUNS}


def shared_differences(base: RunConfig, other: RunConfig) -> dict[str, tuple[Any, Any]]:
    """Return the shared fields in which two configurations differ, with both values."""
    return base.differences(replace(other, scheme=base.scheme, seed=base.seed, preset=base.preset))


def finished_runs(
    out: Path, domain: Domain, base: RunConfig, first: Sequence[str] = (), *, skip: Collection[Path] = ()
) -> list[SweepRun]:
    """Return every finished run and measured baseline of a comparison, in the order of display.

    If `first` names every variant found, variants are in that order. Otherwise schemes are in the order of
    registration, their fixed ratios in increasing order, and baselines last. Within a variant, runs are in the order
    of their seeds.

    Parameters
    ----------
    out : Path
        Folder of the comparison.
    domain : Domain
        Domain of its data.
    base : RunConfig
        The fields that its runs share.
    first : sequence of str
        Labels of variants, in the order of display.
    skip : collection of Path
        Folders to ignore. If there are any, no warning is logged about omitted runs.

    Raises
    ------
    UserError
        For a run of another comparison, or runs of one variant with different options.
    """
    folders = [folder for folder in sorted((out / "runs").glob("*/seed-*")) if folder not in skip]
    runs = [run for folder in folders if (run := _finished_run(folder, domain, base, warn=not skip))]
    check_options_agree(runs)
    labels = {run.variant.label for run in runs}
    names = scheme_names()
    registered = list(known_baselines(domain.name))

    def order(run: SweepRun) -> tuple[Any, ...]:
        variant = run.variant
        if labels <= set(first):
            return (list(first).index(variant.label), run.seed)
        kind = registered.index(variant.label) if variant.label in registered else len(registered)
        scheme = kind if variant.baseline else names.index(variant.config.scheme.name)
        ratio = 0.0 if math.isnan(variant.values["ratio"]) else variant.values["ratio"]
        return (variant.baseline, scheme, ratio, variant.label, run.seed)

    return sorted(runs, key=order)


def damaged_results(out: Path) -> list[str]:
    """Return a sentence for each run whose ``results.json`` cannot be read: the file, and how to measure the run again.

    The scores of these runs are missing from the report.
    """
    runs = [RunFolder(folder) for folder in sorted((out / "runs").glob("*/seed-*"))]
    return [
        f"{run.results_file} cannot be read, or belongs to other weights: repeat the `r2mae compare` command of the "
        "comparison to measure the run again"
        for run in runs
        if run.results_file.is_file() and run.results is None
    ]


def check_options_agree(runs: Sequence[SweepRun]) -> None:
    """Refuse runs of one variant with different scheme options: their mean would have no meaning."""
    known: dict[str, SweepRun] = {}
    for run in runs:
        other = known.setdefault(run.variant.label, run)
        if run.variant.baseline or run.config.scheme == other.config.scheme:
            continue
        used, expected = run.config.scheme.options, other.config.scheme.options
        option = next(name for name in {**used, **expected} if used.get(name) != expected.get(name))
        raise UserError(
            f"{other.folder} ran with {option} {expected.get(option)!r}, and seed {run.seed} of {run.variant.label!r} "
            f"has {used.get(option)!r}: choose another --out, or repeat the options of those runs"
        )


def _finished_run(folder: Path, domain: Domain, base: RunConfig, *, warn: bool) -> SweepRun | None:
    """Return the run in a folder, if it is finished; log one that was measured with other options."""
    run, seed = RunFolder(folder), folder.name.removeprefix("seed-")
    results = run.results
    if results is None or not seed.isdecimal():
        return None
    if isinstance(results.get("baseline"), str):
        config = base.replace(seed=int(seed))
        found = SweepRun(baseline_variants(config, [results["baseline"]], [])[0], int(seed), config, folder)
    elif run.config_file.exists() and run.trained:
        config = domain.config.from_dict(run.read_config(), source=str(run.config_file))
        for name, (value, its) in shared_differences(base, config).items():
            raise UserError(
                f"{folder} is no run of this comparison ({name} is {its!r} there and {value!r} in "
                f"{folder.parents[2] / 'compare.json'}): move it away"
            )
        config = replace(config, evaluation=base.evaluation)
        found = SweepRun(variant_of(config), config.seed, config, folder)
    else:
        return None
    if finished(found):
        return found
    if warn:
        logging.getLogger("r2mae").warning(
            "%s was measured with other options than this comparison and is omitted from its report: to measure it "
            "again, add its scheme or baseline to the command",
            folder,
        )
    return None


def read_shared_fields(out: Path) -> dict[str, Any]:
    """Return the fields that the runs of a comparison share, from ``compare.json``.

    Raises a :class:`UserError` if the folder does not exist, or holds no comparison.
    """
    file = out / "compare.json"
    if not out.is_dir():
        raise UserError(f"there is no folder {out}: name a folder that `r2mae compare` made")
    if not file.is_file():
        inner = sorted(path.parent for path in out.glob("*/compare.json"))
        hint = f"did you mean {inner[0]}?" if inner else "name a folder that `r2mae compare` made"
        raise UserError(f"{out} is not the folder of a comparison (it has no compare.json): {hint}")
    shared = read_json(file)
    if not isinstance(shared, dict) or not isinstance(shared.get("domain"), str):
        raise UserError(f"{file} names no domain: repeat the command of the comparison, or choose another folder")
    return shared
