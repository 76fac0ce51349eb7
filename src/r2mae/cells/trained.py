"""Trained models: saved and loaded as run folders, and with new batches added, in the manner of scArches."""

import hashlib
import tempfile
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import yaml
from safetensors import safe_open
from torch import nn

from r2mae.cells.batches import architecture_of
from r2mae.cells.config import CellsConfig
from r2mae.cells.counts import Counts, DatasetCounts
from r2mae.cells.domain import DOMAIN, CellsDomain
from r2mae.cells.table import CellTable
from r2mae.cells.task import CountModel, CountOutput, GeneTask, MaskedGenes, copy_weights, places_of
from r2mae.errors import UserError, listed
from r2mae.files import sync
from r2mae.training.folder import RunFolder
from r2mae.training.metrics import COLUMNS, read_metrics
from r2mae.training.saving import load_model, save_model
from r2mae.training.task import ParameterGroup
from r2mae.training.validation import Statistics, set_statistics, statistics_of


@dataclass(frozen=True)
class TrainedModel:
    """A trained model, in evaluation mode, with everything that `MaskedAutoencoder` needs.

    `history` has loss, ratio and validation loss by step. `as_trained` are the batch statistics of training; the model
    has those of unmasked inputs.
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
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".", dir=folder) as place:
        run, model = RunFolder(place), deepcopy(trained.model)
        run.config_file.write_text(yaml.safe_dump(trained.config.to_dict(), sort_keys=False), encoding="utf-8")
        if trained.history is not None:
            trained.history.reset_index()[list(COLUMNS)].to_csv(run.metrics_file, index=False)
        set_statistics(model, trained.as_trained)
        architecture = architecture_of(model.gene_names, model.batch_names, trained.config)
        save_model(run, architecture, model, {"domain": DOMAIN.name}, statistics_of(trained.model))
        for file in (run.config_file, run.metrics_file, run.statistics, run.weights, run.model_file):
            if file.exists():
                file.replace(folder / file.name)
            else:
                (folder / file.name).unlink(missing_ok=True)
    sync(folder)


def load_trained(path: Path, domain: CellsDomain, *, device: str = "cpu") -> TrainedModel:
    """Read a finished run on cells, or a model that :func:`save_trained` wrote; refuse what is damaged."""
    folder = RunFolder(path)
    config, task, model = load_model(path, domain, device=device, unmasked=True)
    with safe_open(folder.weights, "pt") as weights:
        as_trained = {name: weights.get_tensor(name) for name in statistics_of(model)}
    has_metrics = folder.metrics_file.is_file()
    history = read_metrics(folder.metrics_file).astype({"step": np.int64}).set_index("step") if has_metrics else None
    return TrainedModel(config, task, model, history, as_trained)


class InMemoryDomain(CellsDomain):
    """The domain for cells in memory, identified by a hash of their counts instead of a file's."""

    def __init__(self, table: CellTable) -> None:
        self.table = table

    def fingerprint(self, config: CellsConfig) -> str:
        """Return a hash of counts, genes and batches."""
        counts, digest = self.table.counts, hashlib.blake2b(self.table.batch.tobytes(), digest_size=16)
        matrix = counts.matrix
        if isinstance(counts, DatasetCounts):  # of a thousand cells
            matrix = counts.rows(np.unique(np.linspace(0, len(self.table) - 1, 1000).astype(np.int64)))
        for array in (matrix.indptr, matrix.indices, matrix.data):
            digest.update(np.ascontiguousarray(array).data)
        digest.update("\0".join((*self.table.genes, *self.table.batches)).encode())
        return digest.hexdigest()


class QueryTask(GeneTask):
    """The task of a model of which only the decoder's weights of batches are trained."""

    def forward(self, model: CountModel, corrupted: MaskedGenes) -> CountOutput:
        """Predict with the batch statistics of the reference."""
        model.eval()
        return super().forward(model, corrupted)

    def parameter_groups(self, model: CountModel, config: Any) -> list[ParameterGroup]:
        """Return the decoder's weights of batches, and freeze the others."""
        model.requires_grad_(False)
        weights = model.get_parameter(model.batch_rows[-1])
        weights.requires_grad = True
        return [ParameterGroup([weights], decayed=False)]


class QueryDomain(InMemoryDomain):
    """The domain for query cells, in the manner of scArches: only the decoder's weights of new batches are trained.

    The encoder gives a new batch the mean weights of its batches. To train these too would let the batch into the
    representation: of 30 neighbours of a query cell, 26 % were cells of the reference then, and 40 % with the mean
    (OneK1K, two of 29 batches as the query). A missing gene is hidden in all cells, which to the encoder means that it
    is zero. The softmax is over the genes that are there, as the library size is their sum.

    Parameters
    ----------
    table : CellTable
        Cells with the model's genes, and batches of their own.
    reference : TrainedModel

    Raises
    ------
    UserError
        If there is nothing to train, or too little to train on.
    """

    def __init__(self, table: CellTable, reference: TrainedModel) -> None:
        known = reference.model.batch_names
        new = tuple(name for name in table.batches if name not in known)
        if len(known) < 2 or not new:
            why = f"knows the batches {listed(table.batches)}" if len(known) > 1 else "has no batch covariate"
            raise UserError(f"the model {why}: there is nothing to train; use MaskedAutoencoder.load(folder, adata)")
        batches = (*known, *new)
        batch = places_of(table.batches, batches)[table.batch]
        cells, genes = np.flatnonzero(batch >= len(known)), np.delete(np.arange(len(table.genes)), table.missing)
        if len(cells) < 2 or len(genes) < 2:
            raise UserError(
                f"{table.name}: training needs two cells of new batches and two of the model's genes, not {len(cells)} "
                f"and {len(genes)}"
            )
        super().__init__(
            CellTable(
                table.name,
                Counts(table.counts.rows(cells)[:, genes]),
                tuple(table.genes[gene] for gene in genes),
                table.obs.iloc[cells],
                batch[cells],
                batches,
                (f"only the decoder's weights of new batches are trained: {listed(new)} ({len(cells):,} cells)",),
            )
        )
        self._reference = reference

    def build(self, architecture: Any) -> tuple[QueryTask, CountModel]:
        """Make a task that trains the weights of batches alone, and a model that keeps its batch statistics."""
        task, model = super().build(architecture)
        return QueryTask(**vars(task)), model.eval()

    @torch.no_grad()
    def load_initial_weights(self, config: CellsConfig, model: nn.Module) -> None:
        """Load the weights of the reference, and its batch statistics of masked inputs."""
        assert isinstance(model, CountModel)
        other = self._reference.model
        copy_weights(model, other)
        set_statistics(model, self._reference.as_trained)
        if self._reference.task.mask_input:  # what the mask of the missing genes adds after the first normalisation
            missing = [gene not in model.gene_names for gene in other.gene_names]
            shift = other.get_parameter("mask_weight")[torch.tensor(missing)].sum(0)
            model.get_parameter("encoder.0.bias").add_(shift.cpu())

    @torch.no_grad()
    def completed(self, trained: TrainedModel) -> TrainedModel:
        """Return the reference with the trained weights of the new batches."""
        reference, known = self._reference, len(self._reference.model.batch_names)
        task, model = DOMAIN.build(architecture_of(reference.model.gene_names, self.table.batches, trained.config))
        copy_weights(model, reference.model)
        name = model.batch_rows[-1]
        model.get_parameter(name)[known:] = trained.model.get_parameter(name)[known:].cpu()
        device = next(trained.model.parameters()).device
        return replace(trained, task=task, model=model.to(device).eval(), as_trained=reference.as_trained)
