"""Experiment trackers by name."""

import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol, runtime_checkable

from r2mae.errors import UserError, warn_once
from r2mae.files import write_json
from r2mae.training.config import RunConfig
from r2mae.training.folder import RunFolder, read_json

_TRACKER = "tracker.json"  # in a run folder: the run's id in its tracker
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


@runtime_checkable
class Tracker(Protocol):
    """Receives the metrics of a run."""

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Record values of a step."""

    def finish(self, *, failed: bool) -> None:
        """End the run in the tracker."""


class TensorBoard:
    """Event files in the run folder.

    Parameters
    ----------
    folder : RunFolder
    """

    def __init__(self, folder: RunFolder) -> None:
        module = "torch.utils.tensorboard" if find_spec("tensorboard") else "tensorboardX"
        self._writer = import_module(module).SummaryWriter(str(folder.path / "tensorboard"))

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Record values of a step."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def finish(self, *, failed: bool) -> None:
        """Close the files."""
        self._writer.close()


class Wandb:
    """A run of Weights & Biases. One that the caller opened in this process is used, and stays open.

    Parameters
    ----------
    folder : RunFolder
    config : RunConfig
        Recorded as the run's configuration.
    """

    def __init__(self, folder: RunFolder, config: RunConfig) -> None:
        self._wandb: Any = import_module("wandb")
        if "id" not in _tracker_record(folder):  # made once, and reused by a resumed run
            write_json(folder.path / _TRACKER, {"id": secrets.token_hex(8)})
        self._id = str(_tracker_record(folder)["id"])
        self._run = self._wandb.run
        if self._run is None:
            self._run = self._wandb.init(
                project="r2mae",
                name=_name_of(folder),
                id=self._id,
                resume="allow",
                dir=str(folder.path),
                config={"domain": config.domain, **config.flat()},
            )
            self._run.define_metric("*", step_metric=_WANDB_STEP)

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Record values of a step."""
        self._run.log({**values, _WANDB_STEP: step})

    def finish(self, *, failed: bool) -> None:
        """End the run: otherwise, the next one of this process would be logged into it."""
        if self._wandb.run is not None and self._wandb.run.id == self._id:
            self._wandb.finish(exit_code=int(failed))


class MLFlow:
    """A run of MLflow, in ``MLFLOW_TRACKING_URI`` if that is set, else in a file in the run folder.

    Parameters
    ----------
    folder : RunFolder
    """

    def __init__(self, folder: RunFolder) -> None:
        uri = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{folder.path.resolve() / 'mlflow.db'}"
        self._client = import_module("mlflow").MlflowClient(tracking_uri=uri)
        known = _tracker_record(folder)
        if known.get("uri") == uri:
            self._run = str(known["run_id"])
            return
        experiment = self._client.get_experiment_by_name("r2mae")
        number = self._client.create_experiment("r2mae") if experiment is None else experiment.experiment_id
        self._run = self._client.create_run(number, run_name=_name_of(folder)).info.run_id
        write_json(folder.path / _TRACKER, {"run_id": self._run, "uri": uri})

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Record values of a step."""
        for name, value in values.items():
            self._client.log_metric(self._run, name, value, step=step)

    def finish(self, *, failed: bool) -> None:
        """Mark the run as ended."""
        self._client.set_terminated(self._run, "FAILED" if failed else "FINISHED")


@contextmanager
def tracker_of(config: RunConfig, folder: RunFolder) -> Iterator[Tracker | None]:
    """Open the tracker that a configuration names, for a block, at whose end the run ends there, too.

    Raises
    ------
    UserError
        If its library is not installed, or cannot be used.
    """
    check_logger(config.machine.logger)
    tracker: Tracker | None = None
    try:
        match config.machine.logger:
            case "tensorboard":
                tracker = TensorBoard(folder)
            case "wandb":
                tracker = Wandb(folder, config)
            case "mlflow":
                tracker = MLFlow(folder)
    except UserError:
        raise
    except Exception as error:  # too old, without a login, or without a server: foreign code may raise anything
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise UserError(f"the logger {config.machine.logger!r} cannot be used ({reason}): omit --logger") from None
    failed = True
    try:
        yield tracker
        failed = False
    finally:
        if tracker is not None:
            try:
                tracker.finish(failed=failed)
            except Exception as error:
                warn_once(f"the logger {config.machine.logger!r} did not end its run: {error}")


def _name_of(folder: RunFolder) -> str:
    """Return the name of a run. Folders of a comparison end in variant/seed; the seed alone does not identify it."""
    return "-".join(folder.path.resolve().parts[-2:])


def _tracker_record(folder: RunFolder) -> dict[str, Any]:
    """Return the folder's record of the run in its tracker; empty if there is none."""
    file = folder.path / _TRACKER
    return read_json(file) if file.exists() else {}
