"""Masked reconstruction of counts: hidden genes become zero; the loss is their negative binomial likelihood.

By default all cells of a mini-batch hide the same genes, and these columns are omitted from the input. With a ratio for
each cell, each hides its own genes, and the input has all genes.

A batch is a mapping of tensors in CSR form, on the device: `indptr` (int64, cells + 1), `indices` (int32 or int64) and
`values` (counts above zero, no gene twice in a cell), and `batch` (the cells' batch numbers).

With mean μ and inverse dispersion θ (scvi-tools' parametrisation; the variance is μ + μ²/θ) and d = log μ − log θ,

    log NB(x | μ, θ) = x·log μ − (x + θ)·log(1 + e^d) − log x! + r(x, θ),   r = log Γ(x + θ) − log Γ(θ) − x·log θ.

No precision is lost for μ → 0 or θ → ∞ (the Poisson distribution): log(1 + e^d) is a softplus, and r goes to zero as θ
grows. At x = 0 only −θ·log(1 + e^d) remains, and most counts of single cells are zero.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn.functional import softplus

from r2mae.environment import sum_dtype
from r2mae.masking.curriculum import FeatureWeights
from r2mae.masking.keys import Key
from r2mae.masking.masks import RatioLike, column_mask, element_mask, hidden_count
from r2mae.masking.schemes import Curriculum
from r2mae.training.task import Corrupted, Output, Task

CSR = Mapping[str, Tensor]
_WEIGHTS_DIVISOR = 20.0  # the input of the weight network is log(x / 20 + 1)
_PAPER_WIDTH = 2000
_LARGE = 1e3  # above this, differences of log Γ lose digits, and Stirling's series is accurate


class CountModel(nn.Module):
    """A model of counts for :class:`GeneTask`: it makes a representation, and from it logits over the genes.

    The number of genes and of batches is the number of their names. ``encode(log_counts, batch, columns=None)`` returns
    the representation, and the forward pass, which also takes `decoder_batch`, the logits and the representation. With
    :attr:`GeneTask.mask_input` both also take `hidden`. :class:`r2mae.cells.models.mlp.CountAutoencoder` says what
    these are.
    """

    gene_names: tuple[str, ...] = ()  # genes of the training data
    batch_names: tuple[str, ...] = ()
    gene_rows: ClassVar[tuple[str, ...]] = ()  # parameters with one row for each gene
    batch_rows: ClassVar[tuple[str, ...]] = ()  # and for each batch, if there are several: encoder's, then decoder's
    log_theta: Tensor
    """log θ of every gene, shape (genes,)."""
    encode: Callable[..., Tensor]


@torch.no_grad()
def copy_weights(model: CountModel, other: CountModel) -> None:
    """Give a fresh model, on the CPU, the weights of another one of the same sizes.

    Those of genes that the other lacks stay as they are. Those of batches that it lacks become the mean of its batches.
    A model of one batch has no weights for it: as the new model, it gets those of the other in its bias.
    """
    own, given = model.state_dict(), {name: values.cpu() for name, values in other.state_dict().items()}
    genes, batches = places_of(model.gene_names, other.gene_names), places_of(model.batch_names, other.batch_names)
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


def places_of(names: Sequence[str], of: Sequence[str]) -> Int64[np.ndarray, " names"]:
    """Return the place of each name among others; −1 if it is not there."""
    return pd.Index(of).get_indexer(pd.Index(names)).astype(np.int64)


@dataclass(frozen=True, kw_only=True)
class MaskedGenes(Corrupted):
    """A mini-batch with genes hidden; `targets` are the hidden counts above zero.

    `inputs` are the arguments of the model: log(1 + counts) of the kept genes, the batch number of each cell, and the
    indices of the kept genes. These are None if the first has all genes, with zeros for hidden ones.

    Parameters
    ----------
    columns : int64 tensor, shape (hidden,), optional
        Indices of the genes that all cells hide; None if every cell hides its own genes.
    places : int64 tensor
        Positions of the targets in the flattened (cells, hidden) array, or in (cells, genes) without `columns`.
    library : Float tensor, shape (cells,)
        Observed library size: the total count of a cell over all genes, including hidden ones, as in the paper. For a
        cell without counts it is 1, as the logarithm of 0 is not finite.
    batch : mapping of tensors
        The clean batch.
    """

    columns: Tensor | None
    places: Tensor
    library: Tensor
    batch: CSR

    @property
    def count(self) -> Tensor | int:
        """Number of hidden entries."""
        return self.hidden.sum() if self.columns is None else len(self.library) * len(self.columns)


@dataclass(frozen=True)
class CountOutput(Output):
    """Logits over the genes, the latent representation, and log θ of every gene."""

    log_theta: Tensor


@dataclass(frozen=True)
class GeneTask(Task[Any, "CountModel"]):
    """Hide genes, the same for all cells of a mini-batch that have one ratio, and predict their counts.

    Parameters
    ----------
    genes : int
        Number of genes.
    n_hidden : int
        Width of the model. The width of a curriculum's weight network is proportional to it (paper: 2000, with widths
        128 and 256 and 64 channels per gene of the weight network).
    mask_input : bool
        Whether the model also takes the mask as the argument `hidden`: the indices of the hidden genes, or a row for
        each cell. For unmasked cells the argument is omitted, which means a mask of zeros.
    """

    genes: int
    n_hidden: int = _PAPER_WIDTH
    mask_input: bool = False

    def corrupt(self, batch: CSR, ratio: RatioLike, key: Key) -> MaskedGenes:
        """Hide a fraction of the genes.

        With one ratio, all cells hide the same genes, and the model gets only the kept ones, so that no time is spent
        on multiplying by zeros. With a ratio for each cell, a fixed count of genes (the rounded one) is hidden in each.

        Parameters
        ----------
        batch : mapping of tensors
            In CSR form; see :meth:`r2mae.cells.batches.CellBatches.batch`.
        ratio : float or ndarray of shape (cells,)
            One ratio for all cells, or one for each.
        key : Key
            See :func:`r2mae.masking.masks.column_mask` and :func:`r2mae.masking.masks.element_mask`.
        """
        device = batch["values"].device
        on_host = device.type == "cpu"
        if not isinstance(ratio, int | float):
            cells = len(batch["indptr"]) - 1
            return self._hide(
                batch, element_mask((cells, self.genes), ratio, key, exact=True, device=device), on_host=on_host
            )
        mask = column_mask(self.genes, ratio, key, device=device)
        # The shape of a sort's output is known; a search for the hidden genes would make the host wait for the device.
        order = torch.sort(mask.to(torch.uint8), stable=True).indices
        kept = self.genes - hidden_count(self.genes, ratio)
        return self._hide(batch, mask, order[:kept], order[kept:], on_host=on_host)

    def _hide(
        self, batch: CSR, mask: Tensor, kept: Tensor | None = None, hidden: Tensor | None = None, *, on_host: bool
    ) -> MaskedGenes:
        """Hide genes: the same, `hidden`, in all cells, or in each cell those of its row of the mask.

        On the host the targets are the hidden counts. On a device a kept count becomes a target of zero, so that the
        shapes are known in advance.
        """
        cell, values, gene = _cell_of_entry(batch), batch["values"].float(), batch["indices"].long()
        whole = mask.expand(len(batch["indptr"]) - 1, self.genes)
        if hidden is None:
            places = cell * self.genes + gene
            unseen = mask.view(-1)[places]
        else:
            places, unseen = cell * len(hidden) + mask.cumsum(0)[gene] - 1, mask[gene]
        if on_host:
            entries = unseen.nonzero()[:, 0]
            places, targets = places.index_select(0, entries), values.index_select(0, entries)
        else:
            places, targets = places * unseen, values * unseen
        log_counts = dense({**batch, "values": values.log1p()}, self.genes)
        log_counts = log_counts * ~mask if kept is None else log_counts.index_select(1, kept)
        return MaskedGenes(
            inputs=(log_counts, batch["batch"], kept),
            hidden=whole,
            targets=targets,
            entries=whole.numel(),
            columns=hidden,
            places=places,
            library=_library_size(batch).clamp_(min=1.0),
            batch=batch,
        )

    def forward(self, model: CountModel, corrupted: MaskedGenes) -> CountOutput:
        """Return logits over all genes, the dispersion, and the latent representation."""
        hidden = corrupted.hidden if corrupted.columns is None else corrupted.columns
        mask_argument = {"hidden": hidden} if self.mask_input else {}
        logits, latent = model(*corrupted.inputs, **mask_argument)
        return CountOutput(logits, latent, model.log_theta)

    def losses(self, output: CountOutput, corrupted: MaskedGenes) -> Float[Tensor, "cells hidden"]:
        """Return −log NB of the hidden genes, with μ = library · softmax.

        They are in the order of `corrupted.columns`. Without `columns` they cover all genes, with zero at kept ones.
        """
        losses = hidden_losses(
            output.prediction,
            output.log_theta,
            corrupted.library,
            corrupted.columns,
            corrupted.places,
            corrupted.targets,
        )
        return losses if corrupted.columns is not None else losses * corrupted.hidden

    @torch.no_grad()
    def embed(
        self, model: CountModel, batch: CSR, hidden: Int64[Tensor, " hidden"] | None = None
    ) -> Float[Tensor, "cells width"]:
        """Return the representation of unmasked cells; `hidden` are indices of genes that were not measured."""
        mask_argument = {"hidden": hidden} if self.mask_input and hidden is not None else {}
        return model.encode(dense(batch, self.genes).log1p_(), batch["batch"], **mask_argument)

    @torch.no_grad()
    def expected(
        self,
        model: CountModel,
        batch: CSR,
        *,
        hidden: Int64[Tensor, " hidden"] | None = None,
        decoder_batch: Int64[Tensor, " cells"] | None = None,
    ) -> tuple[Float[Tensor, "cells genes"], Float[Tensor, " cells"]]:
        """Return each gene's expected fraction of the library, and the observed library size; their product is μ.

        Parameters
        ----------
        model : CountModel
            In evaluation mode.
        batch : mapping of tensors
            In CSR form.
        hidden : int64 tensor, optional
            Indices of genes that are hidden from the model; by default none.
        decoder_batch : int64 tensor, shape (cells,), optional
            Batch numbers for the decoder alone, to get expression as if the cells came from another batch.
        """
        log_counts = dense(batch, self.genes).log1p_()
        if hidden is not None:
            log_counts.index_fill_(1, hidden, 0.0)
        mask_argument = {"hidden": hidden} if self.mask_input else {}
        logits, _ = model(log_counts, batch["batch"], decoder_batch=decoder_batch, **mask_argument)
        return torch.softmax(logits.float(), 1), _library_size(batch)

    def reconstruct(self, model: CountModel, batch: CSR) -> Float[Tensor, "cells genes"]:
        """Return μ of all genes, for unmasked cells; see :meth:`expected`."""
        share, library = self.expected(model, batch)
        return share * library[:, None]

    def weight_network(self, curriculum: Curriculum) -> nn.Module:
        """Return a network that makes one weight per gene and ratio from the mean cell of the mini-batch.

        The paper's widths (128 and 256, 64 channels per gene) give 83 million weights at 5,000 genes. Applied to every
        cell, the network would also need cells × genes × 64 values, 512 MB for 400 cells. Genes are hidden for all
        cells of a mini-batch together, and the paper's constraints on W are for one weight per gene and ratio. The
        cells are therefore averaged first, as log(x / 20 + 1). The widths are proportional to the model's: with 256
        hidden units, a weight network of the paper's widths would have nine tenths of all weights.
        """
        first, second, channels = (max(4, round(w * min(1.0, self.n_hidden / _PAPER_WIDTH))) for w in (128, 256, 64))
        return FeatureWeights(self.genes, curriculum, (first, second), channels)

    def learned_weights(
        self, network: nn.Module, corrupted: MaskedGenes, output: Output
    ) -> Float[Tensor, "hidden ratios"]:
        """Return the weights of the hidden genes: their rows of a matrix that is normalised over all genes."""
        counts = dense(corrupted.batch, self.genes)
        mean_cell = counts.div_(_WEIGHTS_DIVISOR).log1p_().mean(0, keepdim=True)
        weights: Tensor = network(mean_cell)
        assert corrupted.columns is not None  # curricula have one ratio for the mini-batch
        return weights.index_select(0, corrupted.columns)


def dense(batch: CSR, genes: int) -> Float[Tensor, "cells genes"]:
    """Return the counts of a batch as 32-bit floats, on its device."""
    cells, values = len(batch["indptr"]) - 1, batch["values"]
    counts = torch.zeros(cells, genes, device=values.device)
    counts.view(-1)[_cell_of_entry(batch) * genes + batch["indices"]] = values.float()
    return counts


def _cell_of_entry(batch: CSR) -> Int64[Tensor, " entries"]:
    indptr = batch["indptr"]
    cells = torch.arange(len(indptr) - 1, device=indptr.device)
    return cells.repeat_interleave(indptr.diff(), output_size=len(batch["values"]))


def _library_size(batch: CSR) -> Float[Tensor, " cells"]:
    """Return the total count of each cell."""
    values = batch["values"].float()
    return values.new_zeros(len(batch["indptr"]) - 1).index_add_(0, _cell_of_entry(batch), values)


def hidden_losses(
    logits: Float[Tensor, "cells genes"],
    log_theta: Float[Tensor, " genes"],
    library: Float[Tensor, " cells"],
    columns: Int64[Tensor, " hidden"] | None,
    places: Int64[Tensor, " entries"],
    counts: Float[Tensor, " entries"],
) -> Float[Tensor, "cells hidden"]:
    """Return −log NB of the hidden genes, with μ = library · softmax(logits).

    A zero costs one softplus; the other terms are computed for counts above zero alone.

    Parameters
    ----------
    logits, log_theta, library
        Logits and log θ of all genes, over which the softmax is taken; total counts of the cells, above zero.
    columns : int64 tensor, shape (hidden,), optional
        Indices of the hidden genes, none twice; by default the losses of all genes are returned.
    places, counts : tensors, shape (entries,)
        The hidden counts above zero and their positions in the flattened (cells, hidden) array, none twice. An entry
        with a count of 0 has no effect, and may have any position.
    """
    log_theta = (log_theta if columns is None else log_theta.index_select(0, columns)).float()
    log_share = torch.log_softmax(logits.float(), 1)
    log_share = log_share if columns is None else log_share.index_select(1, columns)
    odds = log_share + library.float().log()[:, None] - log_theta  # d
    soft = softplus(odds, threshold=40.0)
    # Positions are unique, so that gradients are summed in one order on every device.
    at_soft, at_odds, at_theta = (
        values.reshape(-1).index_select(0, places) for values in (soft, odds, log_theta.expand_as(odds))
    )
    above = counts * (at_soft - at_odds - at_theta) - _gamma_term(counts, at_theta)
    losses = soft * log_theta.exp()
    return losses.view(-1).index_add(0, places, above).view_as(losses)


def _gamma_term(x: Float[Tensor, " entries"], log_theta: Float[Tensor, " entries"]) -> Float[Tensor, " entries"]:
    """Return r(x, θ) − log x!, computed in 64-bit floats if the device has them: a small difference of large log Γ."""
    wide = sum_dtype(x.device)
    log_of, count = log_theta.to(wide), x.to(wide)
    small = log_of.exp().clamp(max=_LARGE)
    rise = torch.lgamma(small + count) - (torch.lgamma(small) + count * log_of)
    # On other devices both forms are computed, since reading the values would make the host wait.
    if x.device.type != "cpu" or bool((log_of > math.log(_LARGE)).any()):
        theta = log_of.exp().clamp(min=_LARGE)
        total, growth = theta + count, torch.log1p(count / theta)
        series = (total - 0.5) * growth - count + (1 / total - 1 / theta) / 12
        rise = torch.where(log_of > math.log(_LARGE), series, rise)
    return (rise - torch.lgamma(count + 1)).to(x.dtype)
