"""Begin with the weights of another model: those of genes and batches are found by name."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch
from jaxtyping import Int64

from r2mae.cells.task import CountModel
from r2mae.errors import UserError
from r2mae.training.folder import RunFolder
from r2mae.training.initial import Origin
from r2mae.training.saving import load_model
from r2mae.training.task import Trainable

if TYPE_CHECKING:
    from torch import nn

    from r2mae.cells.config import CellsConfig


def load_initial_weights(config: "CellsConfig", model: "nn.Module", domain: Trainable) -> Origin:
    """Let a fresh model begin with the weights of the run that `init` names.

    Raises
    ------
    UserError
        If that run has none of the genes of this one.
    """
    assert isinstance(model, CountModel)
    folder = RunFolder(str(config.init))
    _, _, other = load_model(folder.path, domain)
    new = sorted({*model.gene_names} - {*other.gene_names})
    if len(new) == len(model.gene_names):
        raise UserError(
            f"{folder.path} (init) has none of the run's genes (its first is {other.gene_names[0]!r}, the first here "
            f"{model.gene_names[0]!r}): name genes in var_names as there"
        )
    copy_weights(model, other)
    number = len(model.gene_names)
    notes = [f"it has {number - len(new):,} of the run's {number:,} genes"]
    if new:
        notes.append(f"new genes, with random weights: {listed(new)}")
    if len(model.batch_names) > 1 and (new := sorted({*model.batch_names} - {*other.batch_names})):
        notes.append(f"new batches, with the mean weights of its batches: {listed(new)}")
    return Origin(folder.path, (folder.weights,), "r2mae", tuple(notes))


def listed(names: Sequence[str]) -> str:
    """Write the first five names, and how many more there are."""
    more = f" and {len(names) - 5:,} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more


@torch.no_grad()
def copy_weights(model: CountModel, other: CountModel) -> None:
    """Give a fresh model, on the CPU, the weights of another one of the same sizes.

    Those of genes that the other lacks stay as they are. Those of batches that it lacks become the mean of its batches.
    A model of one batch has no weights for it: as the new model, it gets those of the other in its bias.
    """
    own, given = model.state_dict(), {name: values.cpu() for name, values in other.state_dict().items()}
    genes, batches = _places(model.gene_names, other.gene_names), _places(model.batch_names, other.batch_names)
    for name, values in given.items():
        if name in model.gene_rows:
            own[name][genes >= 0] = values[genes[genes >= 0]]
        elif name not in model.batch_rows:
            own[name].copy_(values)
    for name in model.batch_rows:
        if name in given:
            rows = given[name]
            rows = torch.where(torch.from_numpy(batches[:, None] >= 0), rows[batches], rows.mean(0))
            if name in own:
                own[name].copy_(rows)
            else:
                own[name.replace(".batch", ".bias")].add_(rows[0])
        elif name in own:
            own[name].zero_()


def _places(names: Sequence[str], of: Sequence[str]) -> Int64[np.ndarray, " names"]:
    """Return the place of each name among others; −1 if it is not there."""
    return pd.Index(of).get_indexer(pd.Index(names)).astype(np.int64)
