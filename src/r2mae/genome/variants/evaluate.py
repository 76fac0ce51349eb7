"""Measure scores of variants against a label: those of a model, of the alignment, and of columns of the file."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float32, Float64, Int64
from torch.nn.functional import one_hot

from r2mae.errors import UserError
from r2mae.genome.batches import GenomeData
from r2mae.genome.config import HELD_OUT, GenomeConfig, contrast_name, sides_of
from r2mae.genome.evaluate import composition
from r2mae.genome.models.gpn_msa import AlignmentTransformer
from r2mae.genome.score import Logs, Numbers, SiteLogs, scores_of, site_scorer
from r2mae.genome.store.tokens import GAP, LETTERS
from r2mae.genome.variants.files import REASONS, substitutions
from r2mae.genome.variants.labelled import (
    SMALLEST,
    Labelled,
    Measure,
    blocks_of,
    correlation,
    is_large,
    numbers,
    ranking,
    read_labelled,
    with_intervals,
)
from r2mae.training.validation import evaluating

_PSEUDOCOUNT = 0.25


def model_scores(
    config: GenomeConfig,
    model: AlignmentTransformer,
    data: GenomeData,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, float]:
    """Measure a model on the variants that the configuration names.

    Returns ``variants``, how many have a score; ``auroc``, ``partial_auroc`` and ``auprc``, or ``spearman``; those of
    classes, ``spearman_missense``; contrasts of classes, ``auroc_stop_gained_vs_synonymous``; all of these again for
    variants at held-out positions, ``spearman_missense_held_out``; each with the ends of its interval. A UserError is
    raised if none of the variants can be scored.
    """
    with evaluating(model):
        return _measured(config, data, site_scorer(data.store, model, config.data.window, progress=progress))


def baseline_variants(config: GenomeConfig, name: str, data: GenomeData) -> dict[str, float]:
    """Measure a baseline on the variants that the configuration names, as :func:`model_scores` does.

    It is ``alignment``, ``composition``, or a column of the file: high values are harmful, as those of phyloP and CADD.
    """
    if name == "alignment":
        return _measured(config, data, alignment_logs(data))
    return _measured(config, data, composition_logs(data) if name == "composition" else name)


def alignment_logs(data: GenomeData) -> SiteLogs:
    """Return logarithms of how often the aligned species have each base at a site.

    The pseudocount is a quarter for each base: divided as the composition, it would rank the many alternatives that no
    species has by their letter. Species are those that the model is shown; where it is shown none, all of the store.
    """
    names = tuple(data.architecture["species"])
    columns = data.store.columns(names) if names else None

    def logs(contigs: Numbers, positions: Numbers) -> Logs:
        tokens = torch.from_numpy(data.store.windows(contigs, positions, 1)[:, 0, 1:])
        if columns is not None:
            tokens = tokens[:, columns]
        counts = one_hot(tokens.long(), len(LETTERS))[..., :GAP].sum(1)
        # Not divided by their sum: equal counts have to give equal scores, to the last bit.
        return np.asarray((counts + _PSEUDOCOUNT).log().float())

    return logs


def composition_logs(data: GenomeData) -> SiteLogs:
    """Return logarithms of the composition of the training windows, the same at every site."""
    shares: Float32[np.ndarray, " 4"] = composition(data).log().float().numpy()
    return lambda contigs, positions: np.broadcast_to(shares, (len(contigs), GAP))


def _measured(config: GenomeConfig, data: GenomeData, predictor: SiteLogs | str) -> dict[str, float]:
    """Compare scores of sites, or a column, with the label. Low scores are harmful; NaN counts as no score.

    Variants at positions that the model has not learned are also measured by themselves.
    """
    read = read_labelled(config.evaluation, [predictor] if isinstance(predictor, str) else [])
    found = substitutions(read.table[0].tolist(), data.store)
    if found.reasons.all():
        most = list(REASONS)[int(np.bincount(found.reasons).argmax())]
        raise UserError(
            f"{config.evaluation.variants}: none of the variants can be scored with this store ({REASONS[most]})"
        )
    if isinstance(predictor, str):
        scores = np.where(found.reasons == 0, -numbers(read.table[predictor]), np.nan)
    else:
        scores = scores_of(found, predictor).astype(np.float64)
    usable = np.isfinite(scores)
    if isinstance(predictor, str) and not usable.any():
        raise UserError(f"{config.evaluation.variants}: column {predictor!r} has no numbers: a baseline is a score")
    blocks = blocks_of(found.contigs, found.positions)
    parts = {"": usable}
    if data.held_out is not None:
        parts[HELD_OUT] = usable & data.held_out.hold(found.places)
    result = {f"variants{where}": float(inside.sum()) for where, inside in parts.items()}
    for where, inside in parts.items():
        for suffix, chosen, measure in _measures(read, config.evaluation.contrasts, scores, inside, bool(where)):
            numbered: Int64[np.ndarray, " n"] = np.unique(blocks[chosen], return_inverse=True)[1]
            for name, value in with_intervals(measure, numbered).items():
                metric, mark, end = name.partition("_blocks_")
                result[f"{metric}{suffix}{where}{mark}{end}"] = value
    return result


def _measures(
    read: Labelled,
    contrasts: Sequence[str],
    scores: Float64[np.ndarray, " n"],
    inside: Bool[np.ndarray, " n"],
    is_part: bool,
) -> Iterator[tuple[str, Bool[np.ndarray, " n"], Measure]]:
    """Yield what is measured on these variants: all, if they are enough; the classes; and the contrasts of classes."""
    if inside.sum() >= 2 and (not is_part or is_large(inside, read.labels, read.binary)):
        yield "", inside, _against_label(read, inside, scores)
    for name in read.classes:
        if is_large(members := inside & (read.of_class == name), read.labels, read.binary):
            yield f"_{name}", members, _against_label(read, members, scores)
    for contrast in contrasts:
        harmful, other = (inside & (read.of_class == name) for name in sides_of(contrast))
        if min(harmful.sum(), other.sum()) >= SMALLEST:
            chosen = harmful | other
            areas = ranking(harmful[chosen], -scores[chosen], only=("auroc",))
            yield f"_{contrast_name(contrast)}", chosen, areas


def _against_label(read: Labelled, chosen: Bool[np.ndarray, " n"], scores: Float64[np.ndarray, " n"]) -> Measure:
    labels = read.labels[chosen]
    return ranking(labels == 1, -scores[chosen]) if read.binary else correlation(labels, scores[chosen])
