"""Pretrain and measure one run of a sweep, in a process of its own."""

import time
from pathlib import Path
from typing import Any

from r2mae.domains.base import Domain
from r2mae.domains.lookup import get_domain
from r2mae.errors import UserError
from r2mae.files import write_json
from r2mae.training.config import RunConfig
from r2mae.training.folder import FolderLock, RunFolder
from r2mae.training.measure import recorder_for, write_items
from r2mae.training.pretrain import pretrain
from r2mae.training.progress import Reporter
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
