"""Experiment trackers by name."""

import os
import secrets
from importlib.util import find_spec
from typing import TYPE_CHECKING

from r2mae.errors import UserError
from r2mae.files import write_json
from r2mae.training.config import RunConfig
from r2mae.training.folder import RunFolder, read_json

if TYPE_CHECKING:
    from lightning.pytorch.loggers import Logger

# Packages of which a tracker needs one.
_NEEDS = {"tensorboard": ("tensorboard", "tensorboardX"), "wandb": ("wandb",), "mlflow": ("mlflow",)}


def check_logger(name: str) -> None:
    """Refuse a tracker whose library is missing, before anything is read or written.

    Raises
    ------
    UserError
        With the package to install.
    """
    if name in _NEEDS and not any(find_spec(package) for package in _NEEDS[name]):
        raise UserError(
            f"the logger {name!r} needs the package {_NEEDS[name][0]}, which is not installed: "
            f"pip install {_NEEDS[name][0]}, or leave --logger out"
        )


def make_logger(config: RunConfig, folder: RunFolder) -> "Logger | bool":
    """Return the tracker that a configuration names.

    Its files lie in the run folder; MLflow goes to ``MLFLOW_TRACKING_URI`` where that is set.

    Raises
    ------
    UserError
        If its library is not installed, or Lightning cannot use the installed one.
    """
    from lightning.pytorch.loggers import MLFlowLogger, TensorBoardLogger, WandbLogger

    check_logger(config.logger)
    # Runs of a comparison end in row/seed; the last name alone would be the same for all rows.
    name = "-".join(folder.path.resolve().parts[-2:])
    try:
        match config.logger:
            case "tensorboard":
                return TensorBoardLogger(folder.path, name="", version="tensorboard")
            case "wandb":
                identity = _identity(folder)
                return WandbLogger(
                    project="r2mae", name=name, id=identity, save_dir=folder.path, config=config.to_dict()
                )
            case "mlflow":
                uri = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{folder.path.resolve() / 'mlflow.db'}"
                return MLFlowLogger(experiment_name="r2mae", run_name=name, tracking_uri=uri)
            case _:
                return False
    except ModuleNotFoundError as error:  # there, but too old
        reason = " ".join(str(error).split())
        raise UserError(f"the logger {config.logger!r} cannot be used ({reason}): leave --logger out") from None


def _identity(folder: RunFolder) -> str:
    """Return the run's own id, made once: a resumed run goes on with it."""
    file = folder.path / "tracker.json"
    if not file.exists():
        write_json(file, {"id": secrets.token_hex(8)})
    return str(read_json(file).get("id"))
