"""One cell of a comparison, or one run by itself: pretrain, then measure."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from r2mae.files import write_json
from r2mae.sweep.measure import measure, tell
from r2mae.training.config import RunConfig
from r2mae.training.devices import torch_device
from r2mae.training.folder import FolderLock, RunFolder
from r2mae.training.loggers import check_logger
from r2mae.training.loop import Fitted, fit
from r2mae.training.numbers import ratios_of
from r2mae.training.progress import Reporter
from r2mae.training.ranks import FOLLOWING, process_rank
from r2mae.training.scheme_options import scheme_of
from r2mae.training.task import Data
from r2mae.wings.contract import HasBaselines, Wing


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


def measure_baseline(config: RunConfig, wing: HasBaselines, name: str, data: Data, out: Path, fingerprint: str) -> None:
    """Measure a baseline into a folder of its own: ``results.json``, which says on which data."""
    began = time.perf_counter()
    scores = wing.score_baseline(config, name, data)
    seconds = time.perf_counter() - began  # of all, since only some of them are trained
    results = {"baseline": name, "data": fingerprint, "scores": scores, "measuring_seconds": seconds}
    with FolderLock(out):
        write_json(RunFolder(out).results_file, results)
