"""Pretrain and measure runs; measure finished runs and baselines with their domain's evaluation."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from r2mae.domains.base import Domain
from r2mae.domains.lookup import domain_of_run, get_domain
from r2mae.environment import standard_session
from r2mae.errors import UserError
from r2mae.evaluation.items import ItemRecorder
from r2mae.masking.schemes import scheme_kind
from r2mae.progress import Reporter
from r2mae.training.config import RunConfig
from r2mae.training.folder import RunFolder, read_json
from r2mae.training.pretraining import log_notes, pretrain, supported, write_results
from r2mae.training.saving import load_model
from r2mae.training.task import Data


def train_run(
    domain_name: str, fields: dict[str, Any], folder: Path, baseline: str | None, reporter: Reporter | None
) -> None:
    """Pretrain or measure one run of a sweep, in a process of its own.

    Parameters
    ----------
    domain_name : str
    fields : dict
        The configuration, as plain types.
    folder : Path
        Folder of the run.
    baseline : str or None
        The baseline to measure, instead of pretraining.
    reporter : Reporter, optional
        Receives the progress.

    Raises
    ------
    SystemExit
        After a signal, when the run has been saved.
    """
    check_scheme(fields["scheme"]["name"] if "scheme" in fields else "r2mae")
    domain = get_domain(domain_name)
    config = domain.config.from_dict(fields)
    if baseline is None:
        pretrain(config, domain, folder, reporter=reporter)
    else:
        measure_baseline(config, domain, baseline, domain.load(config), folder, domain.fingerprint(config))


def check_scheme(name: str) -> None:
    """Refuse a scheme that is registered only in the parent process."""
    try:
        scheme_kind(name)
    except UserError as error:
        raise UserError(
            f"{error} (processes of a comparison know the schemes of installed packages, and those that a script "
            "registers outside functions and outside `if __name__ == ...`: see docs/add-a-scheme.md)"
        ) from None


@standard_session()
def measure_baseline(config: RunConfig, domain: Domain, name: str, data: Data, out: Path, fingerprint: str) -> None:
    """Measure a baseline; write its scores and the data's fingerprint to ``results.json`` in `out`."""
    began = time.perf_counter()
    items = ItemRecorder()
    scores = domain.score_baseline(config, name, data, **supported(domain, items=items))
    seconds = time.perf_counter() - began  # training included, where the baseline is trained
    results = {"baseline": name, "data": fingerprint, "scores": scores, "measuring_seconds": seconds}
    write_results(RunFolder(out), config, items, results)


@dataclass(frozen=True)
class EvaluationResult:
    """The result of :func:`evaluate`: configuration, the run's scores, baselines' scores by name, and seconds taken.

    `measured` is how: the settings of the evaluation, and other columns of the data where they were asked for.
    """

    config: RunConfig
    scores: dict[str, float]
    baselines: dict[str, dict[str, float]]
    seconds: float
    measured: dict[str, Any]


@standard_session()
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
    """Measure the finished run in a folder.

    Only a long evaluation writes into the folder: it saves its finished parts.

    Parameters
    ----------
    path : Path
        Run folder.
    source : str, optional
        Other data to measure the run on. Probes are then fitted on the training part of these data.
    reading : mapping, optional
        The domain's options for reading them (:meth:`r2mae.domains.base.Domain.load_other_data`).
    own_data : bool
        Whether the evaluation has its own data (:attr:`r2mae.domains.options.Evaluation.own_data`). The run's data are
        then neither read nor needed.
    baselines : sequence of str
        Baselines to measure on the same data.
    device : str
    progress : callable, optional
        Long evaluations call it with the amount done and the total.
    **options
        Fields of the configuration's group `evaluation` and of its `measured_data`, and other options of the domain's
        evaluation.

    Raises
    ------
    UserError
        For a folder without a finished run, unknown baselines, or data that do not fit the model.
    """
    folder = RunFolder(path)
    domain = domain_of_run(folder.read_config(), folder.path)
    began = time.perf_counter()
    config, task, model = load_model(folder.path, domain, device=device)
    measured = {name: options.pop(name) for name in vars(config.evaluation) if name in options}
    for name in measured.keys() & {*config.model.ignores}:
        raise UserError(f"{name} has no effect on the model {config.model.name!r} with these settings: omit it")
    asked = {name: options.pop(name) for name in config.measured_data if name in options}
    if asked and own_data:
        raise UserError(f"{next(iter(asked))} has no effect on an evaluation with its own data: omit it")
    config = config.with_measurement(**asked)
    asked = {name: config[name] for name in asked}
    data: Data | None = None
    if source is not None:
        config, data = _read_other_data(folder, domain, config, source, reading or {})
    elif not own_data:
        folder.check_data(config.data.source, domain.fingerprint(config))
    if lost := [name for name, value in asked.items() if config[name] != value]:
        raise UserError(f"{source}: {lost[0]}: not all of these can be measured there (see above): name others")
    config = config.with_measurement(**measured)
    check_baselines(config, domain, baselines)
    if source is None and not own_data:
        data = log_notes(domain.load(config)) if asked else domain.load(config)
    if baselines and data is not None:
        domain.check_baseline_sizes(config, baselines, data)
    working = supported(domain, kept=folder.evaluation_file, progress=progress)
    scores = domain.evaluate(config, task, model, data, **options, **working)
    options |= {name: value for name, value in working.items() if name == "progress"}
    here = replace(config, machine=replace(config.machine, device=device))
    baseline_scores = {name: domain.score_baseline(here, name, data, **options) for name in baselines}
    how = config.measurement_settings() | asked
    return EvaluationResult(config, scores, baseline_scores, time.perf_counter() - began, how)


def _read_other_data(
    folder: RunFolder, domain: Domain, config: RunConfig, source: str, reading: Mapping[str, Any]
) -> tuple[RunConfig, Data]:
    """Return the configuration for measuring a run on other data, and these data."""
    known = read_json(folder.data_file).get("fingerprint") if folder.data_file.exists() else None
    if known == domain.fingerprint(moved := config.replace(data=source)):
        if source == config.data.source or Path(config.data.source).exists() or reading:
            raise UserError(f"{folder.path} was trained on {source}: omit --data")
        return moved, log_notes(domain.load(moved))
    config, data = domain.load_other_data(config, source, folder.description.architecture, **reading)
    return config, log_notes(data)


def check_baselines(config: RunConfig, domain: Domain, names: Sequence[str]) -> None:
    """Refuse baselines that the domain does not have for the data of `config`."""
    for name in names:
        domain.baseline(config, name).check_package()


def scores_of(folder: RunFolder) -> dict[str, float]:
    """Return the scores of a finished run; missing ones are NaN."""
    results = folder.results
    if results is None:
        raise UserError(f"{folder.results_file} holds no scores: run the same command again to measure the run")
    return {name: float("nan") if value is None else float(value) for name, value in results["scores"].items()}
