"""Experiment trackers by name."""

import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from r2mae.errors import UserError, warn_once
from r2mae.files import write_json
from r2mae.training.config import RunConfig
from r2mae.training.folder import RunFolder, read_json

_WANDB_STEP = "trainer/global_step"  # as in charts of other libraries
# Each tracker needs one of these packages.
_PACKAGES = {"tensorboard": ("tensorboard", "tensorboardX"), "wandb": ("wandb",), "mlflow": ("mlflow",)}


def check_logger(name: str) -> None:
    """Refuse a tracker whose library is missing, before anything is read or written.

    Raises
    ------
    UserError
        Names the package to install.
    """
    if name in _PACKAGES and not any(find_spec(package) for package in _PACKAGES[name]):
        raise UserError(
            f"the logger {name!r} needs the package {_PACKAGES[name][0]}, which is not installed: "
            f"pip install {_PACKAGES[name][0]}, or omit --logger"
        )


class Tracker(NamedTuple):
    """A run in a tracker.

    Parameters
    ----------
    log : callable
        ``log(values, step)`` records values of a step by name.
    finish : callable
        ``finish(failed)`` ends the run there.
    """

    log: Callable[[Mapping[str, float], int], None]
    finish: Callable[[bool], None]


def _tensorboard(config: RunConfig, folder: RunFolder, step: int) -> Tracker:
    """Write event files into the run folder; points after `step`, of a run that was killed, are hidden."""
    module = import_module("torch.utils.tensorboard" if find_spec("tensorboard") else "tensorboardX")
    writer = module.SummaryWriter(str(folder.path / "tensorboard"), purge_step=step + 1)

    def log(values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            writer.add_scalar(name, value, step)

    return Tracker(log, lambda failed: writer.close())


def _wandb(config: RunConfig, folder: RunFolder, step: int) -> Tracker:
    """Open a run of Weights & Biases, or resume it; one that the caller opened in this process is used."""
    wandb: Any = import_module("wandb")
    file, known = _record(folder)
    identity = str(known.get("id") or secrets.token_hex(8))
    write_json(file, {"id": identity})
    run = wandb.run
    if run is None:
        settings = {"domain": config.domain, **config.flat()}
        where = {"project": "r2mae", "name": _name_of(folder), "dir": str(folder.path)}
        run = wandb.init(id=identity, resume="allow", config=settings, **where)
        run.define_metric("*", step_metric=_WANDB_STEP)

    def finish(failed: bool) -> None:
        # Otherwise, the next run of this process would be logged into it; the caller's stays open.
        if wandb.run is not None and wandb.run.id == identity:
            wandb.finish(exit_code=int(failed))

    return Tracker(lambda values, step: run.log({**values, _WANDB_STEP: step}), finish)


def _mlflow(config: RunConfig, folder: RunFolder, step: int) -> Tracker:
    """Open a run of MLflow, in ``MLFLOW_TRACKING_URI`` if that is set, else in a file in the run folder."""
    uri = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{folder.path.resolve() / 'mlflow.db'}"
    client = import_module("mlflow").MlflowClient(tracking_uri=uri)
    file, known = _record(folder)
    if known.get("uri") != uri:
        experiment = client.get_experiment_by_name("r2mae")
        number = client.create_experiment("r2mae") if experiment is None else experiment.experiment_id
        known = {"run_id": client.create_run(number, run_name=_name_of(folder)).info.run_id, "uri": uri}
        write_json(file, known)
    run = str(known["run_id"])

    def log(values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            client.log_metric(run, name, value, step=step)

    return Tracker(log, lambda failed: client.set_terminated(run, "FAILED" if failed else "FINISHED"))


_TRACKERS = {"tensorboard": _tensorboard, "wandb": _wandb, "mlflow": _mlflow}


@contextmanager
def tracker_of(config: RunConfig, folder: RunFolder, step: int = 0) -> Iterator[Tracker | None]:
    """Open the tracker that a configuration names, for a block, at whose end the run ends there, too.

    Parameters
    ----------
    config, folder
        Of the run.
    step : int
        From which it resumes.

    Raises
    ------
    UserError
        If its library is not installed, or cannot be used.
    """
    name = config.machine.logger
    check_logger(name)
    if name not in _TRACKERS:
        yield None
        return
    try:
        tracker = _TRACKERS[name](config, folder, step)
    except UserError:
        raise
    except Exception as error:  # too old, without a login, or without a server: foreign code may raise anything
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise UserError(f"the logger {name!r} cannot be used ({reason}): omit --logger") from None
    failed = True
    try:
        yield tracker
        failed = False
    finally:
        try:
            tracker.finish(failed)
        except Exception as error:
            warn_once(f"the logger {name!r} did not end its run: {error}")


def _name_of(folder: RunFolder) -> str:
    """Return the name of a run. Folders of a comparison end in variant/seed; the seed alone does not identify it."""
    return "-".join(folder.path.resolve().parts[-2:])


def _record(folder: RunFolder) -> tuple[Path, dict[str, Any]]:
    """Return the file with the run's names in its tracker, and its content; empty if there is none."""
    file = folder.path / "tracker.json"
    return file, read_json(file) if file.exists() else {}
