"""Experiment trackers by name."""

from typing import Literal

from lightning.pytorch.loggers import Logger, MLFlowLogger, TensorBoardLogger, WandbLogger

from r2mae.errors import UserError
from r2mae.training.config import RunConfig
from r2mae.training.folder import RunFolder

Name = Literal["none", "tensorboard", "wandb", "mlflow"]


def make_logger(config: RunConfig, folder: RunFolder) -> Logger | bool:
    """Return the tracker that a configuration names; its files lie in the run folder.

    Raises
    ------
    UserError
        If its library is not installed.
    """
    name = folder.path.resolve().name
    try:
        match config.logger:
            case "tensorboard":
                return TensorBoardLogger(folder.path, name="", version="tensorboard")
            case "wandb":
                return WandbLogger(project="r2mae", name=name, id=name, save_dir=folder.path, config=config.to_dict())
            case "mlflow":
                uri = (folder.path / "mlflow").resolve().as_uri()
                return MLFlowLogger(experiment_name="r2mae", run_name=name, tracking_uri=uri)
            case _:
                return False
    except ModuleNotFoundError as error:
        raise UserError(
            f"the logger {config.logger!r} is not installed: pip install {config.logger} ({str(error).split('.')[0]})"
        ) from None
