"""One cell of a comparison, or one run by itself: pretrain, then measure."""

import time
from pathlib import Path
from typing import Any

from r2mae.errors import UserError
from r2mae.experiments.wing import Wing
from r2mae.experiments.wings import wing_of_run
from r2mae.files import write_json
from r2mae.training.config import RunConfig, scheme_of
from r2mae.training.folder import FolderLock, RunFolder
from r2mae.training.loop import Fitted, fit
from r2mae.training.progress import Reporter
from r2mae.training.ranks import process_rank
from r2mae.training.saving import load_model
from r2mae.training.task import Data


def pretrain(
    config: RunConfig, wing: Wing, out: Path, *, reporter: Reporter | None = None, data: Data | None = None
) -> tuple[Fitted, dict[str, Any]]:
    """Pretrain into a run folder and write ``results.json``; what is done already is not done again.

    Returns
    -------
    fitted : Fitted
        What the loop did.
    results : dict
        ``scores`` by name, ``steps``, ``seconds`` of training and ``samples_per_second``.
    """
    folder = RunFolder(out)
    scheme_of(config, wing.ratios)  # a mistake here is found before any data are read
    if data is None and not (folder.trained and folder.results is not None):
        data = wing.load(config)
    fitted = fit(config, wing, out, data=data, reporter=reporter)
    if process_rank(config.devices) > 0:
        raise SystemExit(0)  # the first process measures and reports
    results = folder.results
    if results is None:
        results = {
            "scores": measure(folder, wing, data=data, device=config.device),
            "steps": fitted.steps,
            "seconds": fitted.seconds,
            "samples_per_second": fitted.steps * config.batch_size / max(fitted.seconds, 1e-9),
        }
        with FolderLock(folder.path):
            write_json(folder.results_file, results)
    return fitted, results


def measure(
    folder: RunFolder, wing: Wing, *, data: Data | None = None, device: str = "auto", **options: Any
) -> dict[str, float]:
    """Measure a finished run with its wing's evaluation."""
    config, task, model = load_model(folder.path, wing, device=device)
    return wing.evaluate(config, task, model, data or wing.load(config), **options)


def evaluate(path: Path, **options: Any) -> tuple[dict[str, float], float]:
    """Measure a finished run by its folder alone, and return its scores and the seconds it took."""
    folder = RunFolder(path)
    wing = wing_of_run(folder.read_config(), folder.path)
    began = time.perf_counter()
    scores = measure(folder, wing, **options)
    return scores, time.perf_counter() - began


def scores_of(folder: RunFolder) -> dict[str, float]:
    """Return the scores of a finished cell."""
    results = folder.results
    if results is None:
        raise UserError(f"{folder.results_file} holds no scores: run the same command again to measure the run")
    return {name: float("nan") if value is None else float(value) for name, value in results["scores"].items()}
