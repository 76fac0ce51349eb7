"""The baseline scVI, trained by scvi-tools."""

import logging
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor

from r2mae.cells.batches import split_data
from r2mae.cells.config import CellsConfig
from r2mae.cells.task import CSR, dense
from r2mae.errors import UserError

if TYPE_CHECKING:
    from anndata import AnnData

    from r2mae.cells.table import CellTable

_CHUNK = 8192
_KL_WARMUP = 400  # epochs, as in scvi-tools


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the messages and warnings of scvi-tools and of Lightning, which trains it."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


@dataclass(frozen=True)
class TrainedScvi:
    """A trained model of scvi-tools.

    Parameters
    ----------
    model : scvi.model.SCVI
    """

    model: Any

    def embedding(self) -> Float32[np.ndarray, "cells latent"]:
        """Return the means of the posteriors of its cells."""
        with _quiet():
            return np.asarray(self.model.get_latent_representation(batch_size=_CHUNK), dtype=np.float32)

    @torch.no_grad()
    def expected(self, batch: CSR, hidden: Int64[Tensor, " hidden"]) -> Float[Tensor, "cells genes"]:
        """Return each gene's expected fraction of the library, at the posterior's mean; hidden genes are zeros."""
        module = self.model.module.eval()
        counts = dense(batch, self.model.summary_stats.n_vars)
        library = counts.sum(1, keepdim=True).clamp(min=1.0).log()
        counts.index_fill_(1, hidden, 0.0)
        covariate = batch["batch"][:, None]
        # scVI's own library size is the logarithm of zero for a cell whose expressed genes are all hidden.
        posterior, _ = module.z_encoder(counts.log1p(), covariate)
        share: Tensor = module.generative(posterior.loc, library, covariate)["px"].scale
        return share


def train_scvi(table: "CellTable", config: CellsConfig) -> TrainedScvi:
    """Train scVI with scvi-tools.

    Sizes and training are those of the configuration: n_hidden, n_latent, two hidden layers (as our
    encoder), negative binomial likelihood, epochs (or the number of epochs that makes its steps), batch_size, lr,
    weight_decay, the same validation cells, and batch_key. As in scvi-tools the decoder has as many hidden layers as
    the encoder (ours has one). The weight of the Kullback-Leibler term rises to one over 400 epochs, or over the whole
    training if that is shorter; otherwise the term would have little effect. scvi-tools seeds the global generators of
    NumPy and torch.

    Raises
    ------
    UserError
        If scvi-tools is not installed.
    """
    try:
        import scvi
    except ImportError:
        raise UserError("scVI needs scvi-tools: pip install 'r2mae[scvi]', or omit the baseline scvi") from None

    data = split_data(table, config)
    every = np.arange(table.counts.shape[0])
    held_out = every[:0]
    if data.validation is not None and data.validation.rows is not None:
        held_out = data.validation.rows
    trained = np.setdiff1d(every, held_out)
    epochs = _epochs_of(config, len(trained))
    batch = min(config.optimizer.batch_size, max(2, len(trained)))
    with _quiet():
        scvi.settings.seed = config.seed
        adata = _adata_of(table)
        scvi.model.SCVI.setup_anndata(adata, batch_key="batch" if len(table.batches) > 1 else None)
        sizes = {"n_hidden": config.model.n_hidden, "n_latent": config.model.n_latent, "n_layers": 2}
        model = scvi.model.SCVI(adata, gene_likelihood="nb", **sizes)
        model.train(
            max_epochs=epochs,
            batch_size=batch,
            accelerator="cpu" if config.machine.device == "cpu" else "auto",
            plan_kwargs={
                "lr": config.optimizer.peak_lr,
                "weight_decay": config.optimizer.weight_decay,
                "n_epochs_kl_warmup": min(_KL_WARMUP, epochs),
            },
            datasplitter_kwargs={
                "external_indexing": [trained, held_out],
                "drop_last": len(trained) % batch == 1,  # a last mini-batch of one cell cannot be normalised
            },
            enable_progress_bar=False,
            enable_model_summary=False,
        )
    model.to_device("cpu")
    return TrainedScvi(model)


def _epochs_of(config: CellsConfig, trained: int) -> int:
    """Return the number of passes over the training cells, also if the configuration gives steps."""
    if config.optimizer.steps is None:
        return max(1, round(config.optimizer.epochs))
    return max(1, round(config.optimizer.steps / math.ceil(trained / config.optimizer.batch_size)))


def _adata_of(table: "CellTable") -> "AnnData":
    import pandas as pd
    from anndata import AnnData

    names = pd.Categorical(np.array(table.batches, dtype=object)[table.batch], categories=list(table.batches))
    obs = pd.DataFrame({"batch": names}, index=table.obs.index.astype(str))
    return AnnData(table.counts.rows(np.arange(len(table))).astype(np.float32), obs=obs)
