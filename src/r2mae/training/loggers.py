"""Experiment trackers by name."""

import os
import secrets
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from r2mae.errors import UserError
from r2mae.files import write_json
from r2mae.training.config import RunConfig
from r2mae.training.folder import RunFolder, read_json

if TYPE_CHECKING:
    from lightning.pytorch.loggers import Logger

_TRACKER = "tracker.json"  # in a run folder: the run's id in its tracker
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


def make_logger(config: RunConfig, folder: RunFolder) -> "Logger | bool":
    """Return the tracker that a configuration names.

    Its files are in the run folder; MLflow uses ``MLFLOW_TRACKING_URI`` if that is set.

    Raises
    ------
    UserError
        If its library is not installed, or Lightning cannot use the installed one.
    """
    from lightning.pytorch.loggers import MLFlowLogger, TensorBoardLogger, WandbLogger

    check_logger(config.logger)
    # Run folders of a comparison end in variant/seed; the seed alone does not identify the run.
    name = "-".join(folder.path.resolve().parts[-2:])
    try:
        match config.logger:
            case "tensorboard":
                return TensorBoardLogger(folder.path, name="", version="tensorboard")
            case "wandb":
                identity = _wandb_id(folder)
                return WandbLogger(
                    project="r2mae", name=name, id=identity, save_dir=folder.path, config=config.to_dict()
                )
            case "mlflow":
                uri = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{folder.path.resolve() / 'mlflow.db'}"
                known = _tracker_record(folder) if _tracker_record(folder).get("uri") == uri else {}
                logger = MLFlowLogger(
                    experiment_name="r2mae", run_name=name, tracking_uri=uri, run_id=known.get("run_id")
                )
                if not known:  # MLflow names its runs itself
                    write_json(folder.path / _TRACKER, {"run_id": logger.run_id, "uri": uri})
                return logger
            case _:
                return False
    except ModuleNotFoundError as error:  # installed, but too old
        reason = " ".join(str(error).split())
        raise UserError(f"the logger {config.logger!r} cannot be used ({reason}): omit --logger") from None


def _wandb_id(folder: RunFolder) -> str:
    """Return the run's id, which is made once and reused by a resumed run."""
    if "id" not in _tracker_record(folder):
        write_json(folder.path / _TRACKER, {"id": secrets.token_hex(8)})
    return str(_tracker_record(folder)["id"])


def _tracker_record(folder: RunFolder) -> dict[str, Any]:
    """Return the folder's record of the run in its tracker; empty if there is none."""
    file = folder.path / _TRACKER
    return read_json(file) if file.exists() else {}


def finish_logger(logger: "Logger | None", folder: RunFolder) -> None:
    """End the folder's run in a tracker with one open run per process; otherwise the next run would be logged into it.

    A run that the caller opened, and that Lightning uses, stays open.
    """
    from lightning.pytorch.loggers import WandbLogger

    if isinstance(logger, WandbLogger):
        wandb = import_module("wandb")
        if wandb.run is not None and wandb.run.id == _tracker_record(folder).get("id"):
            wandb.finish()
