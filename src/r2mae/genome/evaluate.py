"""Apply models and baselines of genomes: loss and accuracy of hidden bases by mask ratio, variants, and embeddings.

An embedding is the mean of the last hidden states over the target's bases, without a mask.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32, Float64
from torch import Tensor
from torch.nn.functional import one_hot

from r2mae.environment import sum_dtype
from r2mae.errors import UserError
from r2mae.genome.batches import GenomeData, WindowBatches, unweighted, windows_of
from r2mae.genome.config import GenomeConfig
from r2mae.genome.models.gpn_msa import AlignmentTransformer
from r2mae.genome.score import site_scorer
from r2mae.genome.store.alignment import AlignmentStore
from r2mae.genome.store.intervals import Intervals, read_regions
from r2mae.genome.store.tokens import BASES, LETTERS
from r2mae.genome.task import AlignmentTask, HiddenBases
from r2mae.genome.variants.files import Logs, Numbers, SiteLogs
from r2mae.genome.variants.labelled import measure_variants
from r2mae.masking.keys import Key
from r2mae.training.validation import EVALUATION_KEY, evaluating, to_device

RATIOS = (0.05, 0.15, 0.3, 0.5, 0.8)
_ROWS = 64
_ENOUGH_WINDOWS = 500  # fewer windows are masked several times
_MOST_REPEATS = 20
_SAMPLE = 4096  # windows for the composition

Predict = Callable[[HiddenBases], Float[Tensor, "batch most bases"]]
"""Log probabilities of A, C, G and T at `columns`, up to a constant per position."""


def evaluate(
    config: GenomeConfig,
    task: AlignmentTask,
    model: AlignmentTransformer,
    data: GenomeData,
    *,
    curve: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, float]:
    """Return the scores of a pretrained model, on variants if the configuration names some, and on windows.

    Those of variants are of :func:`measure_variants`. Those of windows (with `curve`) are ``masked_loss`` (nats per
    hidden base) and ``accuracy``: means over :data:`RATIOS`; ``masked_loss_0.15``, ``accuracy_0.15`` and so on. They
    are measured on the test windows, or without any on the validation windows, evenly spaced; there are none if no
    windows are held out. `progress` is called with the number of sites or windows that is done, and the total.
    """
    found = {}
    with evaluating(model):
        if config.evaluation.variants is not None:
            logs = site_scorer(data.store, model, config.data.window, progress=progress)
            found = measure_variants(config.evaluation, data.store, data.held_out, logs)
        if curve and data.measured is not None:
            found |= curve_scores(
                lambda corrupted: task.forward(model, corrupted).prediction,
                data.measured.spread(config.evaluation.eval_windows),
                device=next(model.parameters()).device,
                progress=progress,
            )
    return found


@torch.no_grad()
def curve_scores(
    predict: Predict,
    windows: WindowBatches,
    *,
    ratios: Sequence[float] = RATIOS,
    device: torch.device | str = "cpu",
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, float]:
    """Return loss and accuracy at each mask ratio, on masks that are the same for every model and baseline.

    In each window the rounded count of bases is hidden, always by the mask token, and all hidden bases have equal
    weight, regardless of the run's training. The masks of a window depend only on its place and the ratio. Fewer than
    500 windows are masked several times, at most 20, so that scores do not depend on a few bases. A UserError is raised
    if a mask ratio hides no base in any window.
    """
    task = AlignmentTask(0, corruption="mask", exact=True, repeat_weight=1)
    key = Key.root(0).fold("ratio curve")
    sums = torch.zeros(len(ratios), 3, dtype=sum_dtype(device), device=device)
    times = min(-(-_ENOUGH_WINDOWS // len(windows)), _MOST_REPEATS)
    for first in range(0, len(windows), _ROWS):
        rows = np.arange(first, min(first + _ROWS, len(windows)))
        batch = to_device(windows.batch(rows, EVALUATION_KEY.rows(first)), device)
        for (place, ratio), time in product(enumerate(ratios), range(times)):
            corrupted = task.corrupt(batch, ratio, key.fold(round(ratio * 10_000), time).rows(first))
            sums[place] += _sums(predict(corrupted), corrupted)
        if progress is not None:
            progress(int(rows[-1]) + 1, len(windows))
    losses, hits, counts = sums.cpu().numpy().T
    if not counts.all():
        raise UserError("the held-out windows have no base that can be hidden: hold out other regions")
    scores: dict[str, float] = {}
    for title, values in (("masked_loss", losses / counts), ("accuracy", hits / counts)):
        scores[title] = float(np.mean(values))
        scores |= {f"{title}_{ratio:g}": float(value) for ratio, value in zip(ratios, values, strict=True)}
    return scores


def _sums(prediction: Float[Tensor, "batch most bases"], corrupted: HiddenBases) -> Float64[Tensor, "3"]:
    """Return the sum of losses, the number of correct predictions, and the number of hidden bases."""
    wide = sum_dtype(prediction.device)
    scores, real = prediction.to(wide), corrupted.real
    losses = scores.logsumexp(-1) - scores.gather(-1, corrupted.targets[..., None])[..., 0]
    hits = scores.argmax(-1) == corrupted.targets
    return torch.stack([(losses * real).sum(), (hits & real).sum().to(wide), real.sum().to(wide)])


def score_alignment(config: GenomeConfig, data: GenomeData, **options: Any) -> dict[str, float]:
    """Score the frequency of each base at the position among the model's species, as :func:`evaluate` a model.

    In windows it has a pseudocount of one base that is divided by the training windows' composition. For a model
    without aligned species, all species of the store are used. `options` are `curve` and `progress` of
    :func:`evaluate`.
    """
    prior = composition(data)
    return _score_frequencies(config, data, _site_frequencies, lambda hidden: alignment_logs(hidden, prior), **options)


def score_composition(config: GenomeConfig, data: GenomeData, **options: Any) -> dict[str, float]:
    """Score the composition of the training windows, as :func:`score_alignment`."""
    logs = composition(data).log()

    def predict(corrupted: HiddenBases) -> Float[Tensor, "batch most bases"]:
        return logs.expand(*corrupted.columns.shape, -1)

    return _score_frequencies(config, data, _site_composition, predict, **options)


def _score_frequencies(
    config: GenomeConfig,
    data: GenomeData,
    of_sites: Callable[[GenomeData], SiteLogs],
    predict: Callable[[HiddenBases], Float[Tensor, "batch most bases"]],
    *,
    curve: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, float]:
    """Return the scores of frequencies on variants, if any, and in windows, on the masks of all models."""
    found = {}
    if config.evaluation.variants is not None:
        found = measure_variants(config.evaluation, data.store, data.held_out, of_sites(data))
    if not curve or data.measured is None:
        return found
    measured = data.measured if data.architecture["species"] else replace(data.measured, columns=slice(None))
    return found | curve_scores(predict, measured.spread(config.evaluation.eval_windows), progress=progress)


def composition(data: GenomeData) -> Float64[Tensor, "4"]:
    """Return the fractions of A, C, G and T in the training windows, on the strand of the reference."""
    some = data.train.spread(_SAMPLE)
    bases = data.store.reference_windows(*some.at(np.arange(len(some))), some.length)
    counts = torch.from_numpy(np.bincount(bases.ravel(), minlength=len(LETTERS))[:BASES]).double() + 1  # all can occur
    return counts / counts.sum()


def alignment_logs(corrupted: HiddenBases, prior: Float64[Tensor, "4"]) -> Float64[Tensor, "batch most 4"]:
    """Return logarithms of the frequencies of the bases among the aligned species, with a pseudocount of one."""
    others = corrupted.aligned.shape[2]
    tokens = corrupted.aligned.gather(1, corrupted.columns[:, :, None].expand(-1, -1, others)).long()
    counts = one_hot(tokens, len(LETTERS))[..., :BASES].sum(2).double() + prior
    logs: Tensor = (counts / counts.sum(-1, keepdim=True)).log()
    return logs


def _site_frequencies(data: GenomeData) -> SiteLogs:
    """Return logarithms of how often the aligned species have each base at a site.

    The pseudocount is a quarter for each base: divided as the composition, it would rank the many alternatives that no
    species has by their letter. Species are those that the model is shown; where it is shown none, all of the store.
    """
    names = tuple(data.architecture["species"])
    columns = data.store.columns(names) if names else slice(None)

    def logs(contigs: Numbers, positions: Numbers) -> Logs:
        tokens = torch.from_numpy(data.store.windows(contigs, positions, 1)[:, 0, 1:])[:, columns]
        counts = one_hot(tokens.long(), len(LETTERS))[..., :BASES].sum(1)
        # Not divided by their sum: equal counts have to give equal scores, to the last bit.
        return np.asarray((counts + 1 / BASES).log().float())

    return logs


def _site_composition(data: GenomeData) -> SiteLogs:
    """Return logarithms of the composition of the training windows, the same at every site."""
    shares = np.asarray(composition(data).log().float())
    return lambda contigs, positions: np.broadcast_to(shares, (len(contigs), BASES))


def embed_windows(
    config: GenomeConfig,
    task: AlignmentTask,
    model: AlignmentTransformer,
    source: str,
    *,
    regions: Sequence[str] = (),
) -> dict[str, np.ndarray]:
    """Embed the adjacent windows of a store, or of some regions; the model's species are found by name.

    The number of positions that are in no window is logged on the logger ``r2mae``. The arrays are ``embedding``, of
    shape (windows, width); ``contigs``; and ``starts``, the first position of each, counted from 1. A
    UserError is raised if `source` is not a store, lacks species of the model, or has no window in the regions.
    """
    store = AlignmentStore(source)
    part = read_regions(regions, store.layout) if regions else Intervals.everywhere(store.layout)
    windows = windows_of(store, unweighted(config), part, model.species)
    if left := part.positions - len(windows) * windows.length:
        unknown = f", or in {windows.omitted:,} windows with too many unknown bases" if windows.omitted else ""
        inside = f"{left:,} of {part.positions:,} positions are in no window of {windows.length}"
        logging.getLogger("r2mae").warning("%s: at ends of regions%s", inside, unknown)
    device = next(model.parameters()).device
    parts = []
    with evaluating(model):
        for first in range(0, len(windows), _ROWS):
            rows = np.arange(first, min(first + _ROWS, len(windows)))
            batch = windows.batch(rows, EVALUATION_KEY.rows(first))
            parts.append(task.embed(model, to_device(batch, device)).float().cpu().numpy())
    contigs, first_positions = windows.at(np.arange(len(windows)))
    embedding: Float32[np.ndarray, "windows width"] = np.concatenate(parts)
    return {
        "embedding": embedding,
        "contigs": np.array(store.contigs)[contigs],
        "starts": first_positions + 1,
    }
