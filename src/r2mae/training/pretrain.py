"""Pretrain one run and measure it: what the command line, comparisons and Python users call."""

import logging
import multiprocessing
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from r2mae.evaluation.items import ItemRecorder, ItemScores
from r2mae.files import write_json
from r2mae.progress import Reporter
from r2mae.training.config import RunConfig
from r2mae.training.distributed import together
from r2mae.training.folder import FolderLock, RunFolder
from r2mae.training.loop import Fitted, fit_run
from r2mae.training.run import Run
from r2mae.training.saving import load_model
from r2mae.training.task import Data, Trainable


def pretrain(
    config: RunConfig,
    domain: Trainable,
    out: Path,
    *,
    reporter: Reporter | None = None,
    data: Data | None = None,
    progress: Callable[[int, int], None] | None = None,
    single_process: bool = False,
) -> tuple[Fitted, dict[str, Any]]:
    """Pretrain into a run folder, measure the model and write ``results.json``. Finished parts are not repeated.

    Of several processes, which torchrun starts (see :func:`~r2mae.training.loop.fit`), the first one measures, and all
    return its results. With `single_process`, this process trains on its own, even if torchrun started several.

    Returns
    -------
    fitted : Fitted
        As returned by :func:`r2mae.training.fit`.
    results : dict
        ``scores`` by name, ``steps``, ``seconds`` of training and ``samples_per_second``.
    """
    with together(config):
        run, folder = Run.resolve(config, domain, single_process=single_process), RunFolder(out)
        folder.check_config(config, lambda: run.fingerprint)
        if data is None and not (folder.trained and folder.results_for(config) is not None):
            data = log_notes(domain.load(config))
        fitted = fit_run(run, out, data=data, reporter=reporter)
        while (results := folder.results_for(config)) is None and run.rank > 0:
            time.sleep(1)  # rank 0 measures
        if results is None:
            _, task, model = load_model(out, domain, device=config.machine.device)
            folder.check_data(config.data.source, domain.fingerprint(config))
            items = ItemRecorder()
            working = supported(domain, kept=folder.evaluation_file, progress=progress, items=items)
            scores = domain.evaluate(config, task, model, data or domain.load(config), **working)
            speed = fitted.steps * config.optimizer.batch_size / max(fitted.seconds, 1e-9)
            timed = {"steps": fitted.steps, "seconds": fitted.seconds, "samples_per_second": speed}
            results = write_results(folder, config, items, {"scores": scores, **timed})
        return fitted, results


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
    """Write ``results.json``, with how was measured, and the recorded scores of single test items; return its content.

    A trained run records in its configuration how it was measured.
    """
    written = {**results, "measured": config.measurement_settings()}
    found = items.item_scores()
    with FolderLock(folder.path):
        if found is None:
            folder.items_file.unlink(missing_ok=True)
        else:
            found.write(folder.items_file, written["measured"])
        write_json(folder.results_file, written)  # last: without it, the items are ignored
        if folder.trained:
            folder.record_measurement(config)
    return written


def items_of(folder: RunFolder) -> ItemScores | None:
    """Return the scores of single test items of a finished run; None if its results have none."""
    measured = (folder.results or {}).get("measured", {})
    return ItemScores.read(folder.items_file, measured) if isinstance(measured, dict) else None
