"""Query cells of new batches, in the manner of scArches: only the decoder's weights of these batches are trained.

The encoder gives a new batch the mean weights of its batches. To train these too would let the batch into the
representation: of 30 neighbours of a query cell, 26 % were cells of the reference then, and 40 % with the mean (OneK1K,
two of 29 batches as the query).
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from torch import nn

from r2mae.cells.batches import architecture_of
from r2mae.cells.counts import Counts
from r2mae.cells.domain import DOMAIN
from r2mae.cells.initial import copy_weights, listed
from r2mae.cells.setup import InMemoryDomain
from r2mae.cells.table import CellTable
from r2mae.cells.task import CountModel, CountOutput, GeneTask, MaskedGenes
from r2mae.errors import UserError
from r2mae.training.task import ParameterGroup
from r2mae.training.validation import set_statistics

if TYPE_CHECKING:
    from r2mae.cells.config import CellsConfig
    from r2mae.cells.saved import TrainedModel


class QueryTask(GeneTask):
    """The task of a model of which only the decoder's weights of batches are trained."""

    def forward(self, model: CountModel, corrupted: MaskedGenes) -> CountOutput:
        """Predict with the batch statistics of the reference."""
        model.eval()
        return super().forward(model, corrupted)

    def parameter_groups(self, model: CountModel, config: Any) -> list[ParameterGroup]:
        """Return the decoder's weights of batches, and freeze the others."""
        model.requires_grad_(False)
        weights = model.get_parameter(_trained(model))
        weights.requires_grad = True
        return [ParameterGroup([weights], decayed=False)]


class QueryDomain(InMemoryDomain):
    """The domain for query cells: those of batches that a trained model does not know, with the genes that are there.

    A missing gene is hidden in all cells, which to the encoder means that it is zero. The softmax is over the genes
    that are there, as the library size is their sum.

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

    def __init__(self, table: CellTable, reference: "TrainedModel") -> None:
        known = reference.model.batch_names
        new = tuple(name for name in table.batches if name not in known)
        if len(known) < 2 or not new:
            why = f"knows the batches {listed(table.batches)}" if len(known) > 1 else "has no batch covariate"
            raise UserError(f"the model {why}: there is nothing to train; use MaskedAutoencoder.load(folder, adata)")
        batches = (*known, *new)
        batch = pd.Index(batches).get_indexer(pd.Index(table.batches))[table.batch]
        cells, genes = np.flatnonzero(batch >= len(known)), np.delete(np.arange(len(table.genes)), table.missing)
        if len(cells) < 2 or len(genes) < 2:
            raise UserError(
                f"{table.name}: training needs two cells of new batches and two of the model's genes, not {len(cells)} "
                f"and {len(genes)}"
            )
        self.table = CellTable(
            table.name,
            Counts(table.counts.rows(cells)[:, genes]),
            tuple(table.genes[gene] for gene in genes),
            table.obs.iloc[cells],
            batch[cells].astype(np.int64),
            batches,
            (f"only the decoder's weights of new batches are trained: {listed(new)} ({len(cells):,} cells)",),
        )
        self._reference = reference

    def build(self, architecture: Any) -> tuple[QueryTask, CountModel]:
        """Make a task that trains the weights of batches alone, and a model that keeps its batch statistics."""
        task, model = super().build(architecture)
        return QueryTask(**vars(task)), model.eval()

    @torch.no_grad()
    def load_initial_weights(self, config: "CellsConfig", model: nn.Module) -> None:
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
    def completed(self, trained: "TrainedModel") -> "TrainedModel":
        """Return the reference with the trained weights of the new batches."""
        reference, known = self._reference, len(self._reference.model.batch_names)
        task, model = DOMAIN.build(architecture_of(reference.model.gene_names, self.table.batches, trained.config))
        copy_weights(model, reference.model)
        name = _trained(model)
        model.get_parameter(name)[known:] = trained.model.get_parameter(name)[known:].cpu()
        device = next(trained.model.parameters()).device
        return replace(trained, task=task, model=model.to(device).eval(), as_trained=reference.as_trained)


def _trained(model: CountModel) -> str:
    """Return the name of the decoder's weights of batches."""
    return model.batch_rows[-1]
