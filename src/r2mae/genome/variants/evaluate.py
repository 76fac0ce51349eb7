"""Measure scores of variants against a label: those of a model, of the alignment, and of columns of the file."""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Bool, Float32, Float64, Int64
from torch.nn.functional import one_hot

from r2mae.errors import UserError
from r2mae.genome.baselines import composition
from r2mae.genome.config import GenomeConfig
from r2mae.genome.data import GenomeData, species_columns
from r2mae.genome.store.tokens import GAP, LETTERS
from r2mae.genome.task import WindowModel
from r2mae.genome.variants.alleles import REASONS, Substitutions, tally
from r2mae.genome.variants.labelled import Labelled, read_labelled
from r2mae.genome.variants.metrics import Measure, blocks_of, correlation, ranking, with_intervals
from r2mae.genome.variants.settings import BENIGN, VariantSettings
from r2mae.genome.variants.sites import SiteLogs, model_scorer, scores_of
from r2mae.training.validation import evaluating

_PSEUDOCOUNT = 0.25
_CHUNK = 2048  # sites between reports of progress


def model_scores(
    config: GenomeConfig, model: WindowModel, data: GenomeData, *, progress: Callable[[int, int], None] | None = None
) -> dict[str, float]:
    """Measure a model on the variants that the configuration names.

    Returns
    -------
    dict
        ``variants``, how many have a score; ``auroc``, ``partial_auroc`` and ``auprc``, or ``spearman``; those of
        classes, ``spearman_missense``; each with the ends of its interval.

    Raises
    ------
    UserError
        As :func:`r2mae.genome.variants.labelled.read_labelled`; or if none of the variants can be scored.
    """
    read = read_labelled(config)
    found = _found(read, config, data)
    with evaluating(model):
        logs = _told(model_scorer(data.store, model, config.window), progress)
        return measured(read, found, scores_of(found, logs).astype(np.float64))


def baseline_variants(config: GenomeConfig, name: str, data: GenomeData) -> dict[str, float]:
    """Measure a baseline on the variants that the configuration names, as :func:`model_scores` does.

    Parameters
    ----------
    config : GenomeConfig
    name : str
        ``alignment``, ``composition``, or a column of the file: high values are harmful, as those of phyloP and CADD,
        or benign where ``:benign`` is added to the name.
    data : GenomeData
    """
    if name in ("alignment", "composition"):
        read = read_labelled(config)
        found = _found(read, config, data)
        logs = alignment_logs(data) if name == "alignment" else composition_logs(data)
        return measured(read, found, scores_of(found, logs).astype(np.float64))
    column = name.removesuffix(BENIGN)
    read = read_labelled(config, [column])
    found = _found(read, config, data)
    values = read.columns[column] if name.endswith(BENIGN) else -read.columns[column]
    return measured(read, found, np.where(found.reasons == 0, values, np.nan))


def alignment_logs(data: GenomeData) -> SiteLogs:
    """Return logarithms of how often the aligned species have each base at a site.

    The pseudocount is a quarter for each base: divided as the composition, it would rank the many alternatives that no
    species has by their letter. Species are those that the model is shown; where it is shown none, all of the store.
    """
    store = data.store
    names = tuple(data.architecture["species"])
    columns = species_columns(store, names) if names else None

    def logs(
        contigs: Int64[np.ndarray, " sites"], positions: Int64[np.ndarray, " sites"]
    ) -> Float32[np.ndarray, "sites 4"]:
        tokens = torch.from_numpy(store.windows(contigs, positions, 1)[:, 0, 1:])
        if columns is not None:
            tokens = tokens[:, columns.tolist()]
        counts = one_hot(tokens.long(), len(LETTERS))[..., :GAP].sum(1)
        # Not divided by their sum: equal counts have to give equal scores, to the last bit.
        found: Float32[np.ndarray, "sites 4"] = (counts + _PSEUDOCOUNT).log().float().numpy()
        return found

    return logs


def composition_logs(data: GenomeData) -> SiteLogs:
    """Return logarithms of the composition of the training windows, the same at every site."""
    shares: Float32[np.ndarray, " 4"] = composition(data).log().float().numpy()

    def logs(
        contigs: Int64[np.ndarray, " sites"], positions: Int64[np.ndarray, " sites"]
    ) -> Float32[np.ndarray, "sites 4"]:
        return np.broadcast_to(shares, (len(contigs), GAP))

    return logs


def measured(read: Labelled, found: Substitutions, scores: Float64[np.ndarray, " n"]) -> dict[str, float]:
    """Compare scores, which are low for harmful variants, with the label; NaN counts as no score."""
    usable = np.isfinite(scores)
    blocks = blocks_of(found.contigs, found.positions)
    named = {f"_{name}": usable & (read.whose == number) for number, name in enumerate(read.classes)}
    result = {"variants": float(usable.sum())}
    for suffix, chosen in {"": usable, **named}.items():
        if chosen.sum() < 2:
            continue
        measure = _measure(read, chosen, scores)
        numbered: Int64[np.ndarray, " n"] = np.unique(blocks[chosen], return_inverse=True)[1]
        values = with_intervals(measure, numbered)
        result |= {_renamed(name, suffix): value for name, value in values.items()}
    return result


def _measure(read: Labelled, chosen: Bool[np.ndarray, " n"], scores: Float64[np.ndarray, " n"]) -> Measure:
    if read.binary:
        return ranking(read.labels[chosen] == 1, -scores[chosen])
    return correlation(read.labels[chosen], scores[chosen])


def _renamed(name: str, suffix: str) -> str:
    """Put the class behind the metric's name: ``auprc_missense_blocks_low``."""
    metric, mark, end = name.partition("_blocks_")
    return f"{metric}{suffix}{mark}{end}"


def _found(read: Labelled, settings: VariantSettings, data: GenomeData) -> Substitutions:
    found = read.found_in(data.store)
    if not (found.reasons == 0).any():
        most = list(REASONS)[int(tally(found.reasons).argmax())]
        raise UserError(f"{settings.variants}: none of the variants can be scored with this store ({REASONS[most]})")
    return found


def _told(logs: SiteLogs, progress: Callable[[int, int], None] | None) -> SiteLogs:
    """Report progress between chunks of sites."""
    if progress is None:
        return logs

    def told(
        contigs: Int64[np.ndarray, " sites"], positions: Int64[np.ndarray, " sites"]
    ) -> Float32[np.ndarray, "sites 4"]:
        found = np.empty((len(contigs), 4), np.float32)
        for first in range(0, len(contigs), _CHUNK):
            part = slice(first, first + _CHUNK)
            found[part] = logs(contigs[part], positions[part])
            progress(min(first + _CHUNK, len(contigs)), len(contigs))
        return found

    return told
