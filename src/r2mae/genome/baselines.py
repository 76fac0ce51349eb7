"""Baselines of genomes: the bases of the aligned species, and the composition of the genome."""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor
from torch.nn.functional import one_hot

from r2mae.genome.batches import WindowBatches
from r2mae.genome.config import MOST_WINDOWS
from r2mae.genome.data import GenomeData, SpeciesWindows
from r2mae.genome.evaluate import curve_scores
from r2mae.genome.store.tokens import LETTERS
from r2mae.genome.task import BASES, HiddenBases
from r2mae.training.validation import EVALUATION_KEY

_SAMPLE = 4096  # windows for the composition


def baseline_scores(
    name: str, data: GenomeData, *, windows: int = MOST_WINDOWS, progress: Callable[[int, int], None] | None = None
) -> dict[str, float]:
    """Return the scores of a baseline, as :func:`r2mae.genome.evaluate.evaluate` of a model, on the same masks.

    Parameters
    ----------
    name : {"alignment", "composition"}
        ``alignment``: the frequency of each base at the position among the model's species, with a pseudocount of one
        base that is divided by the training windows' composition. For a model without aligned species, all species of
        the store are used. ``composition``: that composition alone.
    data : GenomeData
    windows, progress
        As for a model.
    """
    if data.measured is None:
        return {}
    prior, measured = composition(data), data.measured
    if not data.architecture["species"]:
        measured = SpeciesWindows(measured.batches, None, measured.chosen)

    def predict(corrupted: HiddenBases) -> Float[Tensor, "batch most bases"]:
        if name == "composition":
            return prior.log().expand(*corrupted.columns.shape, -1)
        return alignment_logs(corrupted, prior)

    return curve_scores(predict, measured.spread(windows), progress=progress)


def composition(data: GenomeData) -> Float64[Tensor, "4"]:
    """Return the fractions of A, C, G and T in the training windows, on the strand of the reference."""
    batches = WindowBatches(data.store, data.train.batches.starts, reverse=0)
    rows = np.linspace(0, len(batches) - 1, min(_SAMPLE, len(batches))).round().astype(np.int64)
    counts = torch.ones(BASES, dtype=torch.float64)  # no base is impossible
    for first in range(0, len(rows), 256):
        target = batches.batch(rows[first : first + 256], EVALUATION_KEY)["target"]
        counts += torch.bincount(target.flatten().long(), minlength=len(LETTERS))[:BASES]
    return counts / counts.sum()


def alignment_logs(corrupted: HiddenBases, prior: Float64[Tensor, "4"]) -> Float64[Tensor, "batch most 4"]:
    """Return logarithms of the frequencies of the bases among the aligned species, with a pseudocount of one."""
    others = corrupted.aligned.shape[2]
    tokens = corrupted.aligned.gather(1, corrupted.columns[:, :, None].expand(-1, -1, others)).long()
    counts = one_hot(tokens, len(LETTERS))[..., :BASES].sum(2).double() + prior
    logs: Tensor = (counts / counts.sum(-1, keepdim=True)).log()
    return logs
