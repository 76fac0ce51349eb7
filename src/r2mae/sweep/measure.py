"""Measure finished runs and baselines with the evaluation of their domain."""

import logging
import multiprocessing
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from r2mae.domains.abilities import HasBaselines, HasItems, MeasuresElsewhere, SizesBaselines
from r2mae.domains.contract import Domain
from r2mae.domains.lookup import domain_of_run
from r2mae.errors import UserError, unknown
from r2mae.evaluation.items import ItemRecorder, ItemScores
from r2mae.training.config import RunConfig
from r2mae.training.folder import FolderLock, RunFolder, read_json
from r2mae.training.saving import load_model
from r2mae.training.task import Data


def log_notes(data: Data) -> Data:
    """Log what was left out of the data or filled in, on the logger ``r2mae`` (by default on standard error).

    The worker processes of a comparison log nothing: their parent has logged the same notes once.
    """
    if multiprocessing.parent_process() is None:
        for note in getattr(data, "notes", ()):
            logging.getLogger("r2mae").warning("%s", note)
    return data


def measure(
    folder: RunFolder,
    domain: Domain,
    config: RunConfig,
    *,
    data: Data | None = None,
    device: str = "auto",
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, float]:
    """Measure a finished run with its domain's default evaluation, as `config` says.

    Scores of single test items are written into the run folder, where the domain has some. They come before
    ``results.json``, without which they count for nothing.
    """
    _, task, model = load_model(folder.path, domain, device=device)
    folder.check_data(config.data, domain.fingerprint(config))
    items = recorder_for(domain)
    working = _progress_arguments(folder, domain, progress) | items
    scores = domain.evaluate(config, task, model, data or domain.load(config), **working)
    write_items(folder, config, items)
    return scores


def recorder_for(domain: Domain | HasBaselines) -> dict[str, ItemRecorder]:
    """Return a recorder of scores of single test items as an argument for a domain's evaluation, if it takes one."""
    return {"items": ItemRecorder()} if isinstance(domain, HasItems) else {}


def write_items(folder: RunFolder, config: RunConfig, recorder: Mapping[str, ItemRecorder]) -> None:
    """Write what a recorder took down, if there is one, and delete what is there of an earlier measurement if not."""
    found = recorder["items"].taken() if recorder else None
    with FolderLock(folder.path):
        if found is not None:
            found.write(folder.items_file, config.measured_as())
        else:
            folder.items_file.unlink(missing_ok=True)


def items_of(folder: RunFolder) -> ItemScores | None:
    """Return the scores of single test items of a finished run; None if it kept none with its results."""
    measured = (folder.results or {}).get("measured", {})
    return ItemScores.read(folder.items_file, measured) if isinstance(measured, dict) else None


def _progress_arguments(
    folder: RunFolder, domain: Domain, progress: Callable[[int, int], None] | None
) -> dict[str, Any]:
    """Return the arguments with which a long evaluation shows its progress and can be resumed."""
    offered = {"kept": folder.evaluation_file, "progress": progress}
    return {name: value for name, value in offered.items() if name in domain.evaluation_support}


@dataclass(frozen=True)
class EvaluationResult:
    """What :func:`evaluate` measured: configuration, the run's scores, those of baselines by name, and the seconds."""

    config: RunConfig
    scores: dict[str, float]
    baselines: dict[str, dict[str, float]]
    seconds: float


def evaluate(
    path: Path,
    *,
    source: str | None = None,
    reading: Mapping[str, Any] | None = None,
    own_data: bool = False,
    baselines: Sequence[str] = (),
    device: str = "auto",
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> EvaluationResult:
    """Measure a finished run, given its folder.

    Only a long evaluation writes into the folder: it keeps the parts that it has finished.

    Parameters
    ----------
    path : Path
        Run folder.
    source : str, optional
        Other data to measure the run on. Probes are then fitted on the training part of these data.
    reading : mapping, optional
        How the domain shall read them (:meth:`r2mae.domains.abilities.MeasuresElsewhere.elsewhere`).
    own_data : bool
        Whether the evaluation brings data of its own (:attr:`r2mae.domains.options.Evaluation.own_data`): those of the
        run are neither read nor needed.
    baselines : sequence of str
        To be measured on the same data.
    device : str
    progress : callable, optional
        Evaluations that take long call it with the amount done and the total.
    **options
        Of the domain's evaluation.

    Raises
    ------
    UserError
        For a folder without a finished run, unknown baselines, or data that do not fit the model.
    """
    folder = RunFolder(path)
    domain = domain_of_run(folder.read_config(), folder.path)
    began = time.perf_counter()
    config, task, model = load_model(folder.path, domain, device=device)
    measured = {name: value for name, value in options.items() if name in config.measured_with}
    data: Data | None = None
    if source is not None:
        config, data = _read_other_data(folder, domain, config, source, reading or {})
    elif not own_data:
        folder.check_data(config.data, domain.fingerprint(config))
    check_baselines(config.measuring(**measured), domain, baselines)
    if source is None and not own_data:
        data = domain.load(config)
    if baselines:
        check_sizes(config.measuring(**measured), domain, baselines, data)
    working = _progress_arguments(folder, domain, progress)
    scores = domain.evaluate(config, task, model, data, **options, **working)
    beside = {}
    if isinstance(domain, HasBaselines):
        # Baselines find in the configuration what a pretrained model's evaluation takes as options.
        theirs = {name: value for name, value in options.items() if name not in measured}
        theirs |= {name: value for name, value in working.items() if name == "progress"}
        there = config.measuring(**measured)
        beside = {name: domain.score_baseline(there, name, data, **theirs) for name in baselines}
    return EvaluationResult(config, scores, beside, time.perf_counter() - began)


def _read_other_data(
    folder: RunFolder, domain: Domain, config: RunConfig, source: str, reading: Mapping[str, Any]
) -> tuple[RunConfig, Data]:
    """Read other data for a run."""
    if not isinstance(domain, MeasuresElsewhere):
        raise UserError(f"runs of the domain {domain.name} are measured on their own data alone: leave --data out")
    known = read_json(folder.data_file).get("fingerprint") if folder.data_file.exists() else None
    if known == domain.fingerprint(replace(config, data=source)):
        raise UserError(f"{source} is what {folder.path} was trained on: leave --data out")
    config, data = domain.elsewhere(config, source, folder.description.architecture, **reading)
    return config, log_notes(data)


def check_baselines(config: RunConfig, domain: Domain, names: Sequence[str]) -> None:
    """Refuse baselines that the domain does not have for such data."""
    if not names:
        return
    if not isinstance(domain, HasBaselines):
        raise UserError(f"the domain {domain.name} has no baselines: leave --baselines out")
    known = domain.baselines_of(config)
    for name in names:
        if name not in known:
            raise unknown("baseline", name, known)
    domain.check_baselines(names)


def check_sizes(config: RunConfig, domain: Domain, names: Sequence[str], data: Data | None) -> None:
    """Refuse baselines of these data that do not fit into memory."""
    if names and data is not None and isinstance(domain, SizesBaselines):
        domain.check_baseline_sizes(config, names, data)


def scores_of(folder: RunFolder) -> dict[str, float]:
    """Return the scores of a finished run, NaN where one is missing."""
    results = folder.results
    if results is None:
        raise UserError(f"{folder.results_file} holds no scores: run the same command again to measure the run")
    return {name: float("nan") if value is None else float(value) for name, value in results["scores"].items()}
