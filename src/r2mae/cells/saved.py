"""Saves and loads models of `MaskedAutoencoder`: its own folders, and run folders of the command line."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from r2mae.cells.batches import architecture_of
from r2mae.cells.config import CellsConfig
from r2mae.cells.domain import CellsDomain
from r2mae.cells.setup import EMPTY_SETUP
from r2mae.cells.task import CountModel, GeneTask
from r2mae.errors import UserError
from r2mae.training.devices import torch_device
from r2mae.training.folder import RunFolder, hint_for, read_json
from r2mae.training.metrics import read_metrics
from r2mae.training.saving import build_from_description, load_model, load_weights, save_weights_and_json

_FORMAT = 1
_WEIGHTS, _DESCRIPTION = "model.safetensors", "model.json"


@dataclass(frozen=True)
class TrainedModel:
    """A trained model with everything that `MaskedAutoencoder` needs.

    Parameters
    ----------
    setup : dict
        `layer`, `batch_key` and `labels_key` of the training cells.
    config : CellsConfig
        Configuration of the training.
    task : GeneTask
    model : CountModel
        In evaluation mode.
    history : DataFrame or None
        Loss, ratio and validation loss by step.
    """

    setup: dict[str, Any]
    config: CellsConfig
    task: GeneTask
    model: CountModel
    history: pd.DataFrame | None


def save_trained(folder: Path, trained: TrainedModel, *, overwrite: bool = False) -> None:
    """Write weights (safetensors) and everything needed to load them (JSON).

    Raises
    ------
    UserError
        If the folder exists and `overwrite` is not given.
    OSError
        If the disk is full or the folder is read-only; an earlier saved model remains intact.
    """
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file: name a folder")
    if (folder / "config.yaml").exists():
        raise UserError(f"{folder} is a run folder, which MaskedAutoencoder.load reads as it is: name another folder")
    if folder.exists() and any(folder.iterdir()) and not overwrite:
        raise UserError(f"{folder} exists: name another folder, or pass overwrite=True")
    model, history = trained.model, trained.history
    description = {
        "format": _FORMAT,
        "setup": trained.setup,
        "config": trained.config.to_dict(),
        "architecture": architecture_of(model.gene_names, model.batch_names, trained.config),
        "history": None if history is None else history.reset_index().to_dict(orient="list"),
    }
    save_weights_and_json(folder / _WEIGHTS, model, folder / _DESCRIPTION, description)


def load_trained(folder: Path, *, device: str = "cpu") -> TrainedModel:
    """Read a model that :func:`save_trained` wrote, or a finished run on cells.

    Raises
    ------
    UserError
        If the folder holds neither, is damaged, or was written by a newer version.
    """
    if (folder / "config.yaml").exists():
        return load_run(folder, CellsDomain(), device=device)
    path = folder / _DESCRIPTION
    if not path.exists():
        raise UserError(
            f"{folder} has no saved model (model.json is missing): name a folder of save(), or a run folder"
        )
    with _advise_retraining(path):
        stored = read_json(path)
        if stored.get("format") != _FORMAT:
            raise UserError(f"{path} has format {stored.get('format')!r}, and this version reads {_FORMAT}")
        if "setup" not in stored:
            raise UserError(f"{path} belongs to a run folder without its config.yaml: name the complete run folder")
        try:
            config = CellsConfig.from_dict(stored["config"], source=str(path))
            setup = {name: stored["setup"].get(name) for name in EMPTY_SETUP}
            if not all(value is None or isinstance(value, str) for value in setup.values()):
                raise TypeError("names of columns must be text")
            history = stored.get("history")
            if history is not None:
                history = pd.DataFrame(history).astype(float).astype({"step": np.int64}).set_index("step")
            architecture = dict(stored["architecture"])
        except UserError:
            raise
        except Exception as error:  # wrong types raise many types of errors
            reason = " ".join(str(error).split())[:120]
            raise UserError(f"{path} describes no model ({reason}): {hint_for(path)}") from None
        task, model = build_from_description(CellsDomain(), architecture, path, folder / _WEIGHTS)
        load_weights(folder / _WEIGHTS, model)
    return TrainedModel(setup, config, task, model.to(torch_device(device)).eval(), history)


def load_run(path: Path, domain: CellsDomain, *, device: str = "cpu") -> TrainedModel:
    """Read a finished run on cells.

    Raises
    ------
    UserError
        As :func:`r2mae.training.saving.load_model`; or if the run is of another domain.
    """
    folder = RunFolder(path)
    name = folder.read_config().get("domain")
    if name != domain.name:
        raise UserError(f"{path} is a run of the domain {name!r}, not {domain.name!r}: name a run on cells")
    with _advise_retraining(folder.model_file):
        config, task, model = load_model(path, domain, device=device, unmasked=True)
    task = replace(task, representation=config.evaluation.representation)
    label = config.data.labels[0] if config.data.labels else None
    setup = {**EMPTY_SETUP, "layer": config.data.layer, "batch_key": config.data.batch_key, "labels_key": label}
    has_metrics = folder.metrics_file.is_file()
    history = read_metrics(folder.metrics_file).astype({"step": np.int64}).set_index("step") if has_metrics else None
    return TrainedModel(setup, config, task, model, history)


@contextmanager
def _advise_retraining(path: Path) -> Iterator[None]:
    """Replace the hint of errors: a model trained in a notebook has no command to rerun."""
    try:
        yield
    except UserError as error:
        advice = "load another copy, or train and save the model again"
        raise UserError(str(error).replace(hint_for(path), advice)) from None
