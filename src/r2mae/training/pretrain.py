"""Pretrain one run and measure it: what the command line, comparisons and Python users call."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from r2mae.training.config import RunConfig
from r2mae.training.distributed import together
from r2mae.training.folder import RunFolder
from r2mae.training.loop import Fitted, fit_run
from r2mae.training.measure import log_notes, measure
from r2mae.training.progress import Reporter
from r2mae.training.run import Run
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

    With `single_process`, this process trains on its own, even if torchrun started several.

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
        if run.rank > 0:
            raise SystemExit(0)  # rank 0 measures and reports
        results = folder.results_for(config)
        if results is None:
            scores = measure(folder, domain, config, data=data, device=config.machine.device, progress=progress)
            results = fitted.write_results(config, scores)
        return fitted, results
