"""Find run folders and their states."""

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from r2mae.compare.runs import SweepRun
from r2mae.domains.lookup import domain_of_run
from r2mae.errors import UserError
from r2mae.files import confined_file
from r2mae.registry import DOMAINS
from r2mae.training.folder import RunFolder
from r2mae.training.metrics import step_of


@dataclass(frozen=True)
class RunState:
    """The state of a run folder.

    Parameters
    ----------
    path : str
        The folder.
    domain, data, scheme : str
        From its configuration; "" if that cannot be read.
    seed : int or None
        Its seed.
    state : str
        "finished", "trained" (not measured yet), "running", "stopped" (the same command resumes it), "new", or
        "damaged".
    step : int
        Last step in the metrics file.
    score : float or None
        Value of the domain's first metric.
    note : str
        The reason why a folder is damaged.
    """

    path: str
    domain: str
    data: str
    scheme: str
    seed: int | None
    state: str
    step: int
    score: float | None
    note: str = ""


def find_runs(root: Path) -> list[RunState]:
    """Return the states of all run folders below `root`, in the order of their paths.

    Raises a :class:`UserError` if `root` is no folder.
    """
    if not root.is_dir():
        raise UserError(f"there is no folder {root}: name one that holds runs")
    return [_run_state(RunFolder(file.parent)) for file in sorted(root.rglob("config.yaml"))]


def _run_state(folder: RunFolder) -> RunState:
    try:
        config = folder.read_config()
        step = folder.description.steps if folder.trained else last_step(folder)
    except UserError as error:
        return RunState(str(folder.path), "", "", "", None, "damaged", 0, None, str(error))
    results = folder.results
    if folder.trained:
        state = "trained" if results is None else "finished"
    elif is_locked(folder):
        state = "running"
    else:
        state = "stopped" if folder.checkpoint.exists() else "new"
    seed, scheme, data = config.get("seed"), config.get("scheme"), config.get("data")
    return RunState(
        path=str(folder.path),
        domain=str(config.get("domain", "")),
        data=str(data.get("source", "")) if isinstance(data, dict) else "",
        scheme=str(scheme.get("name", "")) if isinstance(scheme, dict) else "",
        seed=seed if isinstance(seed, int) else None,
        state=state,
        step=step,
        score=_score(config, results),
    )


def _score(config: dict[str, Any], results: dict[str, Any] | None) -> float | None:
    name = config.get("domain")
    if results is None or not isinstance(name, str) or name not in DOMAINS:
        return None
    try:
        domain = domain_of_run(config, Path(name))
        metrics = domain.metrics_of(domain.config.from_dict(config))
    except UserError:  # a run of a newer version is listed without a score
        return None
    value: float | None = results["scores"].get(metrics[0].name)
    return value


def finished(run: SweepRun) -> bool:
    """Return whether a run is trained and measured."""
    folder = RunFolder(run.folder)
    return (run.variant.baseline or folder.trained) and folder.results_for(run.config) is not None


def last_step(folder: RunFolder) -> int:
    """Return the last step in the metrics file, 0 without one. Only the end of the file is read: it may be long."""
    try:
        metrics = confined_file(folder.metrics_file)
    except (OSError, ValueError):
        return 0
    with metrics.open("rb") as file:
        file.seek(max(0, metrics.stat().st_size - 400))
        lines = file.read().decode(errors="replace").split("\n")[:-1]
    return (step_of(lines[-1]) or 0) if lines else 0


def is_locked(folder: RunFolder) -> bool:
    """Return whether a process holds the lock of the folder; a shared lock is then refused."""
    try:
        handle = os.open(folder.path / ".lock", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.lockf(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    else:
        return False
    finally:
        os.close(handle)
