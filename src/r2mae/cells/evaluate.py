"""Evaluation of a representation of cells: probes across donors, reconstruction of hidden genes, effective rank.

The paper's evaluation (appendix "Single-cell gene expression models").
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from r2mae.cells.batches import embed_rows
from r2mae.cells.config import CellsConfig
from r2mae.cells.donors import ProbeCells, check_probes
from r2mae.cells.predictions import Predictions, cluster_bootstrap
from r2mae.cells.task import CountModel, GeneTask, dense
from r2mae.environment import sum_dtype
from r2mae.errors import UserError
from r2mae.evaluation.bn_statistics import score_with_statistics
from r2mae.evaluation.items import ItemRecorder, item_shares
from r2mae.evaluation.probes import LinearProbe, RidgeProbe
from r2mae.evaluation.spectrum import spectrum_scores
from r2mae.masking.keys import Key, permutation
from r2mae.masking.masks import column_mask
from r2mae.progress import counter
from r2mae.training.task import Batches
from r2mae.training.validation import (
    EVALUATION_KEY,
    RecordedBatches,
    evaluating,
    re_estimated_statistics,
    statistics_at_ratios,
    to_device,
)

if TYPE_CHECKING:
    from r2mae.cells.batches import CellData
    from r2mae.cells.table import CellTable

RATIOS = (0.1, 0.2, 0.3, 0.5, 0.7)  # of the correlation (paper)
LOSS_RATIOS = (0.1, 0.3, 0.5, 0.7, 0.9)  # of the loss, evenly spaced
GENE_SETS = 32
"""Smallest number of draws of hidden genes in a masked loss, at each ratio."""
_SMALL_BATCH = 64
_ALL_RATIOS = tuple(sorted({*RATIOS, *LOSS_RATIOS}))
TARGET_SUM = 1e4  # total to which cells are scaled for log-normalised expression
_FOLDS = 5
_BATCH = 512  # the masks depend on it, as all cells of a mini-batch have the same hidden genes: do not change it
_RANK_CELLS = 10_000
_ROUNDING = 1e-10  # share of a sum of squares below which what is left about the mean is rounding alone
Lookup = Callable[[np.ndarray], np.ndarray]
Expected = Callable[[Mapping[str, Tensor], Tensor], Tensor]


def evaluate(
    config: CellsConfig,
    task: GeneTask,
    model: CountModel,
    data: "CellData",
    *,
    items: ItemRecorder | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, float]:
    """Measure a pretrained autoencoder.

    Parameters
    ----------
    config, task, model, data
        Those of the run. If the configuration says so, batch statistics are re-estimated on training cells: unmasked
        ones for the probes, masked ones at each ratio for reconstruction.
    items : ItemRecorder, optional
        Records the share of each validation cell in ``masked_loss``.
    progress : callable, optional
        Called with the number of batches done and the total.

    Returns
    -------
    dict
        The scores of :func:`evaluate_embedding`. With validation cells also ``masked_loss`` (nats per hidden gene, mean
        over :data:`LOSS_RATIOS`), ``gene_r`` and ``reconstruction_r`` (means over :data:`RATIOS`), and all three at
        each ratio, such as ``masked_loss_0.1``. Undefined scores are omitted;
        :func:`r2mae.cells.donors.check_probes` gives the reason. With "both", also each score as ``as_trained_…``.
    """
    embedded, validation = -(-len(data.table) // _BATCH), len(data.validation or ())
    draws = -(-GENE_SETS // (parts := max(1, validation // _SMALL_BATCH))) * parts
    read = (len(RATIOS) * -(-validation // _BATCH) + len(LOSS_RATIOS) * draws) if validation else 0
    add = counter(progress, (embedded + read) * (1 + (config.evaluation.bn_statistics == "both")))

    def measure(wanted: bool, items: ItemRecorder | None) -> dict[str, float]:
        with re_estimated_statistics(task, model, data.train, wanted=wanted):
            scores = evaluate_embedding(data.table, partial(embed_rows, task, model, data.table), config)
        add(embedded)
        if data.validation is None or not len(data.validation):
            return scores
        with evaluating(model), statistics_at_ratios(task, model, data.train, _ALL_RATIOS, wanted=wanted) as prepare:

            def at_ratio(ratio: float) -> None:
                add(1)
                prepare(ratio)

            scores |= reconstruction_scores(
                lambda batch, hidden: task.expected(model, batch, hidden=hidden)[0],
                task.genes,
                data.validation,
                device=next(model.parameters()).device,
                prepare=at_ratio,
            )
            losses = masked_gene_losses(task, model, data.validation, prepare=at_ratio, items=items)
        return scores | _finite_scores(by_ratio("masked_loss", LOSS_RATIOS, losses))

    return score_with_statistics(config.evaluation.bn_statistics, measure, items)


def evaluate_embedding(
    table: "CellTable",
    embedding: np.ndarray | Lookup,
    config: CellsConfig,
) -> dict[str, float]:
    """Measure any embedding of a table's cells: that of a model or another package, or expression itself.

    Parameters
    ----------
    table : CellTable
    embedding : ndarray of shape (cells, width), or function
        The function is called once, with the needed rows in ascending order.
    config : CellsConfig
        Its labels, auroc_labels, regress, exclude, only, donor_key, max_cells and seed.

    Returns
    -------
    dict
        ``score``: the mean of the ranked scores of labels and numbers that are defined for the test donors: as in the
        paper balanced accuracy and macro F1 of each label (both AUROCs for one in `auroc_labels`), and both Spearman
        correlations of each number. For a label column ``_bacc``, ``_f1``, ``_auroc``, and ``_auroc_donor`` if each
        donor has one value; for a number column ``_spearman_cell`` and ``_spearman_donor``; ``effective_rank`` and
        ``spectral_entropy`` of at most 10,000 cells. If donors are known, also the limits of a cluster bootstrap over
        test donors, ``<score>_donors_low`` and ``<score>_donors_high``. Undefined scores are omitted;
        :func:`r2mae.cells.donors.check_probes` gives the reason, and says which cells the probes omit.

    Raises
    ------
    UserError
        If the embedding does not have one row per cell of the table, or has values that are not finite, or no column
        can be predicted; see also :func:`r2mae.cells.donors.split_donors`.
    """
    probes, _ = check_probes(table, config)
    sample, wanted = embedded_rows(table, config, probes)
    features = _checked_features(table, embedding, wanted)
    predictions = [
        predict(one, features[np.searchsorted(wanted, one.train)], features[np.searchsorted(wanted, one.test)])
        for one in probes
    ]
    scores = {name: value for one in predictions for name, value in one.scores().items()}
    ranked = [metric.name for metric in config.metrics if metric.ranked]
    averaged = [name for name in ranked if np.isfinite(scores.get(name, np.nan))]
    if averaged:
        scores = {"score": float(np.mean([scores[name] for name in averaged])), **scores}
    if config.data.donor_key is not None:
        for name, limits in cluster_bootstrap(predictions, averaged).items():
            scores[f"{name}_donors_low"], scores[f"{name}_donors_high"] = limits
    return _finite_scores(scores | spectrum_scores(features[np.searchsorted(wanted, sample)]))


def embedded_rows(
    table: "CellTable", config: CellsConfig, probes: Sequence[ProbeCells]
) -> tuple[Int64[np.ndarray, " sample"], Int64[np.ndarray, " n"]]:
    """Return the rows whose effective rank is measured, and all rows that are embedded, in ascending order."""
    sample = np.sort(permutation(Key.root(config.seed).fold("effective rank"), len(table.obs))[:_RANK_CELLS])
    return sample, np.unique(np.concatenate([sample, *(part for one in probes for part in (one.train, one.test))]))


def predict(
    cells: ProbeCells, train: Float[np.ndarray, "train width"], test: Float[np.ndarray, "test width"]
) -> Predictions:
    """Fit the probe of a column on the cells of training donors and predict those of test donors.

    Logistic regression chooses from ``logspace(−6, 2, 10)`` by balanced accuracy, ridge regression from
    ``logspace(0, 8, 20)`` by squared error, in min(5, training donors) folds that share no donor. With one training
    donor, or if donors are unknown, the folds are made of cells.
    """
    groups = cells.train_donors
    if len(np.unique(groups)) < 2:
        groups = np.arange(len(groups))
    if cells.kind == "number":
        ridge = RidgeProbe(cv=_FOLDS).fit(train, cells.train_values, groups)
        numbers = ridge.predict(test).astype(np.float64)
        return Predictions(cells.column, cells.test_values, numbers, cells.test_donors, cells.by_donor)
    with warnings.catch_warnings():
        # At the largest C of the grid, weights of separable classes grow without bound. The scores converge much
        # earlier: ten times scikit-learn's default number of steps are enough.
        warnings.simplefilter("ignore", ConvergenceWarning)
        probe = LinearProbe(cv=_FOLDS).fit(train, cells.train_values, groups)
    truth = np.searchsorted(probe.classes_, cells.test_values).astype(np.int64)
    probability = probe.predict_proba(test).astype(np.float64)
    return Predictions(cells.column, truth, probability, cells.test_donors, cells.by_donor)


@torch.no_grad()
def reconstruction_scores(
    expected: Expected,
    genes: int,
    cells: Batches,
    ratios: Sequence[float] = RATIOS,
    device: torch.device | str = "cpu",
    prepare: Callable[[float], object] = lambda ratio: None,
    *,
    logged: bool = False,
) -> dict[str, float]:
    """Correlate expected with measured expression of hidden genes, on masks that are the same for every model.

    ``reconstruction_r`` is the Pearson correlation of μ and the log-normalised expression over the hidden genes of a
    cell, averaged over cells. (The paper does not say over which genes. In its Tables 7 and 8 nearly every value
    increases from ratio 0.1 to 0.2; a correlation over all genes, most of which are kept, would decrease.) Cells whose
    hidden genes are all equal have no correlation and are omitted. Genes differ in their means, so one vector for all
    cells correlates well.

    ``gene_r`` is the correlation of expected and measured log-normalised expression over the cells that hide a gene,
    averaged over genes. A gene whose prediction is constant counts as zero, so one vector for all cells has zero. Genes
    that are constant in the measured cells are omitted.

    Parameters
    ----------
    expected : function
        Takes a batch and the indices of the hidden genes; returns each gene's expected fraction of the cell's library,
        to which μ is proportional.
    genes : int
        Number of genes.
    cells : Batches
        Validation cells.
    ratios : sequence of float
        Mask ratios.
    device : torch.device or str
        Device on which `expected` needs the batch.
    prepare : callable, optional
        Called with a ratio before `expected` is called at this ratio.
    logged : bool
        Whether `expected` returns log-normalised expression instead of fractions; both scores then use it as it is.

    Returns
    -------
    dict
        ``reconstruction_r`` and ``gene_r``, means over the ratios, and ``gene_r_0.1`` and so on, if defined.
    """
    key = Key.root(0).fold("reconstruction masks")
    sums, counts = np.zeros(len(ratios)), np.zeros(len(ratios))
    by_gene = np.zeros((len(ratios), 6, genes))
    for first in range(0, len(cells), _BATCH):
        rows = np.arange(first, min(first + _BATCH, len(cells)))
        batch = to_device(cells.batch(rows, EVALUATION_KEY.rows(first)), device)
        measured = log_normalized(batch, genes)
        for number, ratio in enumerate(ratios):
            prepare(ratio)
            hidden = column_mask(genes, ratio, key.fold(number, first), device=device).nonzero()[:, 0]
            predicted, truth = expected(batch, hidden)[:, hidden], measured[:, hidden]
            shown = predicted if logged else (TARGET_SUM * predicted).log1p()
            x, y = (values.cpu().numpy().astype(np.float64) for values in (shown, truth))
            parts = (np.ones_like(x), x, y, x * x, y * y, x * y)
            by_gene[number][:, hidden.cpu().numpy()] += [part.sum(axis=0) for part in parts]
            r = pearson(predicted, truth)
            r = r[r.isfinite()]
            sums[number] += float(r.double().sum())
            counts[number] += len(r)
    by_cell = np.divide(sums, counts, out=np.full(len(ratios), np.nan), where=counts > 0)
    genewise = by_ratio("gene_r", ratios, [_mean_r(*of_ratio) for of_ratio in by_gene])
    return _finite_scores(by_ratio("reconstruction_r", ratios, by_cell) | genewise)


def by_ratio(name: str, ratios: Sequence[float], values: Sequence[float] | np.ndarray) -> dict[str, float]:
    """Name a score at several ratios, and its mean over them."""
    named = {f"{name}_{ratio:g}": float(value) for ratio, value in zip(ratios, values, strict=True)}
    return {name: float(np.mean(values)), **named}


def _mean_r(cells: np.ndarray, x: np.ndarray, y: np.ndarray, xx: np.ndarray, yy: np.ndarray, xy: np.ndarray) -> float:
    """Return the mean correlation over genes whose measured values y vary, NaN if there are none, from sums by gene."""
    cells = np.maximum(cells, 1)
    own, measured, both = xx - x * x / cells, yy - y * y / cells, xy - x * y / cells
    varies = measured > _ROUNDING * yy
    own, measured, both, xx = (values[varies] for values in (own, measured, both, xx))
    r = np.divide(both, np.sqrt(np.maximum(own, 0) * measured), out=np.zeros_like(both), where=own > _ROUNDING * xx)
    return float(r.mean()) if len(r) else float("nan")


@torch.no_grad()
def masked_gene_losses(
    task: GeneTask,
    model: CountModel,
    cells: Batches,
    ratios: Sequence[float] = LOSS_RATIOS,
    prepare: Callable[[float], object] = lambda ratio: None,
    items: ItemRecorder | None = None,
) -> list[float]:
    """Return the mean loss of hidden genes at each ratio, in nats, on masks that are the same for every model.

    Some genes are much harder than others, and all cells of a mini-batch hide the same ones. The mean is therefore over
    at least :data:`GENE_SETS` draws of genes, each for a small part of the cells. `prepare` is called with a ratio
    before the model runs at it; `items` records the share of each cell in ``masked_loss``, over all its draws.
    """
    device, key = next(model.parameters()).device, Key.root(0).fold("evaluation masks")
    parts = np.array_split(np.arange(len(cells)), max(1, len(cells) // _SMALL_BATCH))
    sums, counts = np.zeros(len(ratios)), np.zeros(len(ratios))
    each = torch.zeros(len(ratios), 0 if items is None else len(cells), dtype=sum_dtype(device), device=device)
    read = cells if items is None else RecordedBatches(cells, items)
    with evaluating(model):
        for draw in range(-(-GENE_SETS // len(parts))):
            for rows in parts:
                first = int(rows[0])
                batch = to_device(read.batch(rows, EVALUATION_KEY.rows(first)), device)
                for number, ratio in enumerate(ratios):
                    prepare(ratio)
                    corrupted = task.corrupt(batch, ratio, key.fold(number, draw, first))
                    losses = task.losses(task.forward(model, corrupted), corrupted)
                    sums[number] += float(losses.sum().double())
                    if items is not None:
                        each[number, first : first + len(rows)] += losses.sum(1).double()
                    counts[number] += float(corrupted.hidden.sum())
    means = [float(total / count) for total, count in zip(sums, counts, strict=True)]
    if items is not None:
        items.add("masked_loss", item_shares(each.cpu().numpy(), means))
    return means


def log_normalized(batch: Mapping[str, Tensor], genes: int) -> Float[Tensor, "batch genes"]:
    """Return ``log(1 + 10,000 x / total)`` of a batch in CSR form, dense."""
    counts = dense(batch, genes)
    return counts.mul_(TARGET_SUM / counts.sum(1, keepdim=True).clamp(min=1.0)).log1p_()


def pearson(first: Float[Tensor, "batch n"], second: Float[Tensor, "batch n"]) -> Float[Tensor, " batch"]:
    """Correlate two tensors row by row; NaN where a row is constant."""
    first, second = first - first.mean(dim=1, keepdim=True), second - second.mean(dim=1, keepdim=True)
    spread = first.square().sum(dim=1).sqrt() * second.square().sum(dim=1).sqrt()
    return torch.where(spread > 0, (first * second).sum(dim=1) / spread, torch.nan)


def _checked_features(table: "CellTable", embedding: np.ndarray | Lookup, rows: Int64[np.ndarray, " n"]) -> np.ndarray:
    if callable(embedding):
        features = np.asarray(embedding(rows))
    else:
        features = np.asarray(embedding)
        if features.ndim != 2 or len(features) != len(table.obs):
            raise UserError(
                f"{table.name}: an embedding must have a row for each of the {len(table.obs):,} cells, not shape "
                f"{features.shape}"
            )
        features = features[rows]
    finite: Bool[np.ndarray, " n"] = np.isfinite(features).all(axis=1)
    if not finite.all():
        raise UserError(
            f"{table.name}: the embedding of {int((~finite).sum()):,} of {len(rows):,} cells has NaN or infinity: "
            f"omit these cells, or check the training"
        )
    return features


def _finite_scores(scores: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in scores.items() if np.isfinite(value)}
