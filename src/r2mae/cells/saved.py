"""Saves and loads models of `MaskedAutoencoder`, as run folders, which the command line reads too."""

import tempfile
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import yaml
from safetensors import safe_open

from r2mae.cells.batches import architecture_of
from r2mae.cells.config import CellsConfig
from r2mae.cells.domain import CellsDomain, check_run_of_cells
from r2mae.cells.task import CountModel, GeneTask
from r2mae.errors import UserError
from r2mae.files import sync
from r2mae.training.folder import RunFolder
from r2mae.training.metrics import COLUMNS, read_metrics
from r2mae.training.saving import load_model, save_model
from r2mae.training.validation import Statistics, set_statistics, statistics_of


@dataclass(frozen=True)
class TrainedModel:
    """A trained model, in evaluation mode, with everything that `MaskedAutoencoder` needs.

    Parameters
    ----------
    config : CellsConfig
        Configuration of the training.
    task : GeneTask
    model : CountModel
    history : DataFrame or None
        Loss, ratio and validation loss by step.
    as_trained : mapping
        The batch statistics of training; the model has those of unmasked inputs.
    """

    config: CellsConfig
    task: GeneTask
    model: CountModel
    history: pd.DataFrame | None
    as_trained: Statistics


def save_trained(folder: Path, trained: TrainedModel, *, overwrite: bool = False) -> None:
    """Write a run folder without a checkpoint.

    Raises
    ------
    UserError
        If the folder exists and `overwrite` is not given, or is one of a training.
    OSError
        If the disk is full or the folder is read-only; an earlier saved model remains intact.
    """
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file: name a folder")
    if RunFolder(folder).environment_file.exists():
        raise UserError(f"{folder} is a run folder, which MaskedAutoencoder.load reads as it is: name another folder")
    if folder.exists() and any(folder.iterdir()) and not overwrite:
        raise UserError(f"{folder} exists: name another folder, or pass overwrite=True")
    config, model, history = trained.config, trained.model, trained.history
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".", dir=folder) as place:
        run = RunFolder(place)
        run.config_file.write_text(yaml.safe_dump(config.to_dict(), sort_keys=False), encoding="utf-8")
        if history is not None:
            history.reset_index()[list(COLUMNS)].to_csv(run.metrics_file, index=False)
        architecture = architecture_of(model.gene_names, model.batch_names, config)
        unmasked, model = statistics_of(model), deepcopy(model)
        set_statistics(model, trained.as_trained)
        save_model(run, architecture, model, {"domain": CellsDomain.name}, unmasked)
        for file in (run.config_file, run.metrics_file, run.statistics, run.weights, run.model_file):
            if file.exists():
                file.replace(folder / file.name)
            else:
                (folder / file.name).unlink(missing_ok=True)
    sync(folder)


def load_trained(path: Path, domain: CellsDomain, *, device: str = "cpu") -> TrainedModel:
    """Read a finished run on cells, or a model that :func:`save_trained` wrote; refuse what is damaged."""
    folder = RunFolder(path)
    check_run_of_cells(folder)
    config, task, model = load_model(path, domain, device=device, unmasked=True)
    with safe_open(folder.weights, "pt") as weights:
        as_trained = {name: weights.get_tensor(name) for name in statistics_of(model)}
    task = replace(task, representation=config.evaluation.representation)
    has_metrics = folder.metrics_file.is_file()
    history = read_metrics(folder.metrics_file).astype({"step": np.int64}).set_index("step") if has_metrics else None
    return TrainedModel(config, task, model, history, as_trained)
