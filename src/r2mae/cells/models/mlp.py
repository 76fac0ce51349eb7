"""`mlp`, the paper's MLP for counts: a three-layer encoder and a two-layer decoder; both get the batch as input."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn
from torch.nn.functional import embedding

from r2mae.cells.models import MLPSettings as Settings
from r2mae.cells.task import CountModel, GeneTask

__all__ = ["CountAutoencoder", "GeneLinear", "Settings", "build"]

Hidden = Int64[Tensor, " hidden"] | Bool[Tensor, "cells genes"]


class GeneLinear(nn.Module):
    """A linear layer on genes and the batch, with one row of weights for each gene.

    Genes that are hidden in all cells cost nothing: they are zero, and their rows are omitted from the product. The
    weights of the batch are looked up and added, instead of a product with the one-hot batch.

    Parameters
    ----------
    genes, batches, width : int
        Sizes; with a single batch nothing is added.
    """

    def __init__(self, genes: int, batches: int, width: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(genes + (batches if batches > 1 else 0))  # as torch.nn.Linear
        self.weight = nn.Parameter(torch.empty(genes, width).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(width).uniform_(-bound, bound))
        self.batch = nn.Parameter(torch.empty(batches, width).uniform_(-bound, bound)) if batches > 1 else None

    def forward(
        self,
        x: Float[Tensor, "cells columns"],
        batch: Int64[Tensor, " cells"],
        columns: Int64[Tensor, " columns"] | None = None,
    ) -> Float[Tensor, "cells width"]:
        """Apply the layer; `columns` gives the indices of the genes in `x`, if these are not all genes."""
        out = torch.addmm(self.bias, x, self.weight if columns is None else self.weight.index_select(0, columns))
        return out if self.batch is None else out + embedding(batch, self.batch)


class CountAutoencoder(CountModel):
    """log-counts and batch → latent → one logit per gene; their softmax is each gene's fraction of the library.

    Encoder: two hidden layers with batch (or layer) normalisation and ReLU, then a linear layer. Decoder: one hidden
    layer with normalisation and ReLU, then a linear layer. One inverse dispersion θ per gene (appendix "Single-cell
    gene expression models", Model architecture).

    Parameters
    ----------
    genes, batches : int
        Sizes of the data; with a single batch there is no covariate.
    n_hidden, n_latent : int
        Widths (paper: 2000 and 1000).
    norm : {"batch", "layer"}
        Normalisation of the hidden layers (paper: batch).
    mask_input : bool
        Whether the encoder also has an input for each gene that says whether it is hidden (ours, not the paper's).
        If all cells of a mini-batch hide the same genes, these inputs add the same values to every cell, which batch
        normalisation would remove. They are therefore added after the first normalisation, before its ReLU. Their
        weights, `mask_weight`, are drawn last: all others start as in the same run without them.
    """

    gene_rows = ("first.weight", "decoder.2.weight", "decoder.2.bias", "log_theta", "mask_weight")
    batch_rows = ("first.batch", "expand.batch")

    def __init__(
        self,
        genes: int,
        batches: int = 1,
        n_hidden: int = 2000,
        n_latent: int = 1000,
        *,
        norm: str = "batch",
        mask_input: bool = False,
    ) -> None:
        super().__init__()
        normalise = {"batch": nn.BatchNorm1d, "layer": nn.LayerNorm}[norm]
        self.genes, self.batches, self.n_hidden, self.n_latent = genes, batches, n_hidden, n_latent
        self.first = GeneLinear(genes, batches, n_hidden)
        self.encoder = nn.Sequential(
            normalise(n_hidden),
            nn.ReLU(inplace=True),
            nn.Linear(n_hidden, n_hidden),
            normalise(n_hidden),
            nn.ReLU(inplace=True),
            nn.Linear(n_hidden, n_latent),
        )
        self.expand = GeneLinear(n_latent, batches, n_hidden)
        self.decoder = nn.Sequential(normalise(n_hidden), nn.ReLU(inplace=True), nn.Linear(n_hidden, genes))
        self.log_theta = nn.Parameter(torch.zeros(genes))
        bound = 1 / math.sqrt(genes)
        self.mask_weight = nn.Parameter(torch.empty(genes, n_hidden).uniform_(-bound, bound)) if mask_input else None

    def encode(
        self,
        log_counts: Float[Tensor, "cells columns"],
        batch: Int64[Tensor, " cells"],
        columns: Int64[Tensor, " columns"] | None = None,
        hidden: Hidden | None = None,
    ) -> Float[Tensor, "cells latent"]:
        """Return the representation.

        `log_counts` is log(1 + count) of the genes with the indices `columns` (default all); all other genes are zero.
        `hidden` gives the indices of the genes that all cells hide, or a row of the mask for each cell; by default
        nothing is hidden. Only a model with `mask_input` takes it.
        """
        state: Tensor = self.encoder[0](self.first(log_counts, batch, columns))
        if hidden is not None:
            state = state + self._mask_term(hidden)
        for layer in list(self.encoder)[1:]:
            state = layer(state)
        return state

    def _mask_term(self, hidden: Hidden) -> Float[Tensor, "*cells width"]:
        """Return the mask times its weights: one row for all cells, at almost no cost, or one for each cell."""
        assert self.mask_weight is not None
        if hidden.dtype == torch.bool:
            return hidden.to(self.mask_weight.dtype) @ self.mask_weight
        mask = self.mask_weight.new_zeros(self.genes).index_fill_(0, hidden, 1.0)
        return mask @ self.mask_weight

    def decode(
        self, latent: Float[Tensor, "cells latent"], batch: Int64[Tensor, " cells"]
    ) -> Float[Tensor, "cells genes"]:
        """Return the logits: their softmax times the library size is the mean μ of the counts."""
        return self.decoder(self.expand(latent, batch))  # type: ignore[no-any-return]

    def forward(
        self,
        log_counts: Float[Tensor, "cells columns"],
        batch: Int64[Tensor, " cells"],
        columns: Int64[Tensor, " columns"] | None = None,
        decoder_batch: Int64[Tensor, " cells"] | None = None,
        hidden: Hidden | None = None,
    ) -> tuple[Float[Tensor, "cells genes"], Float[Tensor, "cells latent"]]:
        """Return the logits and the representation; the decoder may be given another batch than the encoder."""
        latent = self.encode(log_counts, batch, columns, hidden)
        return self.decode(latent, batch if decoder_batch is None else decoder_batch), latent


def build(architecture: Mapping[str, Any]) -> tuple[GeneTask, CountAutoencoder]:
    """Make the task and a fresh model; see :mod:`r2mae.cells.models`."""
    genes, batches = len(architecture["genes"]), len(architecture["batches"])
    n_hidden, n_latent = int(architecture["n_hidden"]), int(architecture["n_latent"])
    mask_input = bool(architecture.get("mask_input", False))
    norm = architecture.get("norm", "batch")
    model = CountAutoencoder(genes, batches, n_hidden, n_latent, norm=norm, mask_input=mask_input)
    model.gene_names, model.batch_names = tuple(architecture["genes"]), tuple(architecture["batches"])
    return GeneTask(genes, n_hidden, mask_input), model
