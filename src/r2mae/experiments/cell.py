"""One cell of a comparison, or one run by itself: pretrain, then measure."""

import logging
import multiprocessing
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from r2mae.errors import UserError, unknown
from r2mae.experiments.wing import HasBaselines, MeasuresElsewhere, Wing
from r2mae.experiments.wings import wing_of_run
from r2mae.files import write_json
from r2mae.training.config import RunConfig, scheme_of
from r2mae.training.devices import torch_device
from r2mae.training.folder import FolderLock, RunFolder, read_json
from r2mae.training.loggers import check_logger
from r2mae.training.loop import Fitted, fit
from r2mae.training.numbers import ratios_of
from r2mae.training.progress import Reporter
from r2mae.training.ranks import FOLLOWING, process_rank
from r2mae.training.saving import load_model
from r2mae.training.task import Data


def pretrain(
    config: RunConfig,
    wing: Wing,
    out: Path,
    *,
    reporter: Reporter | None = None,
    data: Data | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Fitted, dict[str, Any]]:
    """Pretrain into a run folder and write ``results.json``; what is done already is not done again.

    Returns
    -------
    fitted : Fitted
        What the loop did.
    results : dict
        ``scores`` by name, ``steps``, ``seconds`` of training and ``samples_per_second``.
    """
    FOLLOWING.start()  # data may take long to read
    folder = RunFolder(out)
    # Mistakes here are found before any data are read.
    scheme_of(config, ratios_of(wing, config))
    torch_device(config.device)
    check_logger(config.logger)
    folder.check(config, ratios_of(wing, config))
    if data is None and not (folder.trained and folder.results_for(config) is not None):
        data = tell(wing.load(config))
    fitted = fit(config, wing, out, data=data, reporter=reporter)
    if process_rank(config.devices) > 0:
        raise SystemExit(0)  # the first process measures and reports
    results = folder.results_for(config)
    if results is None:
        results = {
            "scores": measure(folder, wing, config, data=data, device=config.device, progress=progress),
            "measured": config.measured_as(),
            "steps": fitted.steps,
            "seconds": fitted.seconds,
            "samples_per_second": fitted.steps * config.batch_size / max(fitted.seconds, 1e-9),
        }
        with FolderLock(folder.path):
            write_json(folder.results_file, results)
            folder.note_measured(config)
    return fitted, results


def tell(data: Data) -> Data:
    """Say on the logger ``r2mae`` (by default on standard error) what was left out of data or filled in.

    Processes of a comparison keep silent: it has told so itself, once.
    """
    if multiprocessing.parent_process() is None:
        for note in getattr(data, "notes", ()):
            logging.getLogger("r2mae").warning("%s", note)
    return data


def measure_baseline(config: RunConfig, wing: HasBaselines, name: str, data: Data, out: Path, fingerprint: str) -> None:
    """Measure a baseline into a folder of its own: ``results.json``, which says on which data."""
    began = time.perf_counter()
    scores = wing.score_baseline(config, name, data)
    seconds = time.perf_counter() - began  # of all, since only some of them are trained
    results = {"baseline": name, "data": fingerprint, "scores": scores, "measuring_seconds": seconds}
    with FolderLock(out):
        write_json(RunFolder(out).results_file, results)


def measure(
    folder: RunFolder,
    wing: Wing,
    config: RunConfig,
    *,
    data: Data | None = None,
    device: str = "auto",
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, float]:
    """Measure a finished run with its wing's usual evaluation, as `config` says."""
    _, task, model = load_model(folder.path, wing, device=device)
    folder.check_data(config.data, wing.fingerprint(config))
    return wing.evaluate(config, task, model, data or wing.load(config), **_working(folder, wing, progress))


def _working(folder: RunFolder, wing: Wing, progress: Callable[[int, int], None] | None) -> dict[str, Any]:
    """Return what lets a long evaluation show itself, and go on where it was cut off."""
    offered = {"kept": folder.evaluation_file, "progress": progress}
    return {name: value for name, value in offered.items() if name in wing.evaluation_options}


@dataclass(frozen=True)
class Evaluated:
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
    baselines: Sequence[str] = (),
    device: str = "auto",
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> Evaluated:
    """Measure a finished run by its folder alone; nothing in the folder changes but what a long evaluation keeps.

    Parameters
    ----------
    path : Path
        Run folder.
    source : str, optional
        Other data to measure it on than its own; what is fitted is fitted on their training part.
    reading : mapping, optional
        How the wing shall read them (:meth:`r2mae.experiments.wing.MeasuresElsewhere.elsewhere`).
    baselines : sequence of str
        To be measured on the same data.
    device : str
    progress : callable, optional
        Called with what is done and what there is to do, by evaluations that take long.
    **options
        Of the wing's evaluation.

    Raises
    ------
    UserError
        For a folder without a finished run, unknown baselines, or data that do not fit the model.
    """
    folder = RunFolder(path)
    wing = wing_of_run(folder.read_config(), folder.path)
    began = time.perf_counter()
    config, task, model = load_model(folder.path, wing, device=device)
    if source is None:
        folder.check_data(config.data, wing.fingerprint(config))
        check_baselines(config, wing, baselines)
        data = wing.load(config)
    else:
        config, data = _elsewhere(folder, wing, config, source, reading or {})
        check_baselines(config, wing, baselines)
    working = _working(folder, wing, progress)
    scores = wing.evaluate(config, task, model, data, **options, **working)
    beside = {}
    if isinstance(wing, HasBaselines):
        # How a model of ours is measured does not concern them.
        theirs = {name: value for name, value in options.items() if name not in config.measured_with}
        theirs |= {name: value for name, value in working.items() if name == "progress"}
        beside = {name: wing.score_baseline(config, name, data, **theirs) for name in baselines}
    return Evaluated(config, scores, beside, time.perf_counter() - began)


def _elsewhere(
    folder: RunFolder, wing: Wing, config: RunConfig, source: str, reading: Mapping[str, Any]
) -> tuple[RunConfig, Data]:
    """Read other data for a run."""
    if not isinstance(wing, MeasuresElsewhere):
        raise UserError(f"runs of the wing {wing.name} are measured on their own data alone: leave --data out")
    known = read_json(folder.data_file).get("fingerprint") if folder.data_file.exists() else None
    if known == wing.fingerprint(replace(config, data=source)):
        raise UserError(f"{source} is what {folder.path} was trained on: leave --data out")
    found: tuple[RunConfig, Data] = wing.elsewhere(config, source, folder.description.architecture, **reading)
    tell(found[1])
    return found


def check_baselines(config: RunConfig, wing: Wing, names: Sequence[str]) -> None:
    """Refuse baselines that the wing does not have for such data."""
    if not names:
        return
    if not isinstance(wing, HasBaselines):
        raise UserError(f"the wing {wing.name} has no baselines: leave --baselines out")
    known = wing.baselines_of(config)
    for name in names:
        if name not in known:
            raise unknown("baseline", name, known)
    wing.check_baselines(names)


def scores_of(folder: RunFolder) -> dict[str, float]:
    """Return the scores of a finished cell."""
    results = folder.results
    if results is None:
        raise UserError(f"{folder.results_file} holds no scores: run the same command again to measure the run")
    return {name: float("nan") if value is None else float(value) for name, value in results["scores"].items()}
