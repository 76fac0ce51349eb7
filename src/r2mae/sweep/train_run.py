"""Pretrain and measure one run, of a sweep or single."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from r2mae.domains.base import Domain
from r2mae.domains.lookup import get_domain
from r2mae.errors import UserError
from r2mae.files import write_json
from r2mae.sweep.measure import log_notes, measure, recorder_for, write_items
from r2mae.training.config import RunConfig
from r2mae.training.distributed import together
from r2mae.training.folder import FolderLock, RunFolder
from r2mae.training.loop import Fitted, fit_run
from r2mae.training.progress import Reporter
from r2mae.training.run import Run
from r2mae.training.scheme import kind_of
from r2mae.training.task import Data


def train_run(domain_name: str, fields: dict[str, Any], folder: Path, baseline: str | None, reporter: Reporter) -> None:
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
    reporter : Reporter
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
        kind_of(name)
    except UserError as error:
        raise UserError(
            f"{error} (processes of a comparison know the schemes of installed packages, and those that a script "
            "registers outside functions and outside `if __name__ == ...`: see docs/add-a-scheme.md)"
        ) from None


def pretrain(
    config: RunConfig,
    domain: Domain,
    out: Path,
    *,
    reporter: Reporter | None = None,
    data: Data | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Fitted, dict[str, Any]]:
    """Pretrain into a run folder, measure the model and write ``results.json``. Finished parts are not repeated.

    Returns
    -------
    fitted : Fitted
        As returned by :func:`r2mae.training.fit`.
    results : dict
        ``scores`` by name, ``steps``, ``seconds`` of training and ``samples_per_second``.
    """
    with together(config):
        return _pretrain(config, domain, out, reporter, data, progress)


def _pretrain(
    config: RunConfig,
    domain: Domain,
    out: Path,
    reporter: Reporter | None,
    data: Data | None,
    progress: Callable[[int, int], None] | None,
) -> tuple[Fitted, dict[str, Any]]:
    run, folder = Run.resolve(config, domain), RunFolder(out)
    folder.check_config(config)
    if data is None and not (folder.trained and folder.results_for(config) is not None):
        data = log_notes(domain.load(config))
    fitted = fit_run(run, out, data=data, reporter=reporter)
    if run.rank > 0:
        raise SystemExit(0)  # rank 0 measures and reports
    results = folder.results_for(config)
    if results is None:
        scores = measure(folder, domain, config, data=data, device=config.device, progress=progress)
        results = fitted.write_results(config, scores)
    return fitted, results


def measure_baseline(config: RunConfig, domain: Domain, name: str, data: Data, out: Path, fingerprint: str) -> None:
    """Measure a baseline; write its scores and the data's fingerprint to ``results.json`` in `out`."""
    began = time.perf_counter()
    items = recorder_for(domain)
    scores = domain.score_baseline(config, name, data, **items)
    seconds = time.perf_counter() - began  # training included, where the baseline is trained
    write_items(RunFolder(out), config, items)
    results: dict[str, Any] = {"baseline": name, "data": fingerprint, "measured": config.measurement_settings()}
    results |= {"scores": scores, "measuring_seconds": seconds}
    with FolderLock(out):
        write_json(RunFolder(out).results_file, results)
