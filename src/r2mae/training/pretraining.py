"""Pretrain one run and measure it: what the command line, comparisons and Python users call."""

import logging
import multiprocessing
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from r2mae.environment import standard_session
from r2mae.errors import UserError
from r2mae.evaluation.items import ItemRecorder, ItemScores
from r2mae.files import write_json
from r2mae.progress import Reporter
from r2mae.spawned import end_if_started_by_script
from r2mae.training.config import RunConfig
from r2mae.training.distributed import Failure, together
from r2mae.training.folder import FolderLock, RunFolder
from r2mae.training.initial import check_initial_weights_unchanged
from r2mae.training.loop import Fitted, begin, fit_run, keyed_torch
from r2mae.training.run import Run
from r2mae.training.saving import load_model
from r2mae.training.task import Data, Trainable


@standard_session()
def pretrain(
    config: RunConfig,
    domain: Trainable,
    out: Path,
    *,
    reporter: Reporter | None = None,
    data: Data | None = None,
    progress: Callable[[int, int], None] | None = None,
    single_process: bool = False,
    before: bool = False,
) -> tuple[Fitted, dict[str, Any]]:
    """Pretrain into a run folder, measure the model and write ``results.json``. Finished parts are not repeated.

    Of several processes, which torchrun starts (see :func:`~r2mae.training.loop.fit`), the first one measures, and all
    return its results. With `single_process`, this process trains on its own, even if torchrun started several. With
    `before`, the weights of a file that a run begins with are measured, too, where the domain does so and the file is
    still there.

    Returns
    -------
    fitted : Fitted
        As returned by :func:`r2mae.training.fit`.
    results : dict
        ``scores`` by name, perhaps ``before`` (those of the initial weights), ``steps``, ``seconds`` of training and
        ``samples_per_second``.
    """
    end_if_started_by_script()
    with together(config):
        run, folder = Run.resolve(config, domain, single_process=single_process), RunFolder(out)
        failure = Failure(run)
        folder.check_config(config, lambda: run.fingerprint)
        if data is None and not (folder.trained and folder.results_for(config) is not None):
            data = log_notes(domain.load(config))
        fitted = fit_run(run, out, data=data, reporter=reporter)
        while (results := folder.results_for(config)) is None and run.rank > 0:
            failure.check()
            time.sleep(1)  # rank 0 measures
        if results is None:
            with failure.told():
                results = _measure(run, folder, fitted, data, progress, before=before)
        return fitted, results


def _measure(
    run: Run,
    folder: RunFolder,
    fitted: Fitted,
    data: Data | None,
    progress: Callable[[int, int], None] | None,
    *,
    before: bool,
) -> dict[str, Any]:
    """Measure the model of a trained run, and write its results."""
    config, domain = run.config, run.domain
    _, task, model = load_model(folder.path, domain, device=config.machine.device)
    folder.check_data(config.data.source, domain.fingerprint(config))
    items = ItemRecorder()
    working = supported(domain, kept=folder.evaluation_file, progress=progress, items=items)
    data = data or domain.load(config)
    scored = {"scores": domain.evaluate(config, task, model, data, **working)}
    if before and (start := _before(run, folder, data, progress)):
        scored["before"] = start
    speed = fitted.steps * config.optimizer.batch_size / max(fitted.seconds, 1e-9)
    timed = {"steps": fitted.steps, "seconds": fitted.seconds, "samples_per_second": speed}
    return write_results(folder, config, items, {**scored, **timed})


def _before(run: Run, folder: RunFolder, data: Data, progress: Callable[[int, int], None] | None) -> dict[str, float]:
    """Return scores of the weights that a run began with; nothing if it measures none, or their file is gone."""
    domain, config = run.domain, run.domain.before_training(run.config)
    if config is None:
        return {}
    try:
        check_initial_weights_unchanged(folder)
        with keyed_torch(config.key):
            task, model, _ = begin(config, domain, data)
    except UserError:
        return {}
    return domain.evaluate(config, task, model.to(run.device), data, **supported(domain, progress=progress))


def log_notes(data: Data) -> Data:
    """Log the notes of data (what was omitted or filled in) on the logger ``r2mae``, by default standard error.

    Worker processes of a comparison log nothing: their parent has logged the same notes.
    """
    if multiprocessing.parent_process() is None:
        for note in getattr(data, "notes", ()):
            logging.getLogger("r2mae").warning("%s", note)
    return data


def supported(domain: Trainable, **arguments: Any) -> dict[str, Any]:
    """Return those arguments that a domain's evaluation takes."""
    return {name: value for name, value in arguments.items() if name in domain.evaluation_support}


def write_results(
    folder: RunFolder, config: RunConfig, items: ItemRecorder, results: Mapping[str, Any]
) -> dict[str, Any]:
    """Write ``results.json`` and the recorded scores of single test items; return the content of the first.

    It has the settings of the measurement, and the SHA-256 of the files that the scores belong to.

    A trained run records in its configuration how it was measured.
    """
    written = {**results, "measured": config.measurement_settings()}
    found = items.item_scores()
    with FolderLock(folder.path):
        if found is None:
            folder.items_file.unlink(missing_ok=True)
        else:
            found.write(folder.items_file, written["measured"])
        written["sha256"] = folder.files
        write_json(folder.results_file, written)  # last: without it, the items are ignored
        if folder.trained:
            folder.record_measurement(config)
    return written


def items_of(folder: RunFolder) -> ItemScores | None:
    """Return the scores of single test items of a finished run; None if its results have none."""
    results = folder.results or {}
    measured = results.get("measured", {})
    if not isinstance(measured, dict) or not folder.holds(results, folder.items_file):
        return None
    return ItemScores.read(folder.items_file, measured)
