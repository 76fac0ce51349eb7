"""Variants with a label, and how well scores agree with it, with intervals over blocks of neighbouring positions."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import isfinite
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float64, Int64

from r2mae.errors import UserError, nearest, warn_once
from r2mae.evaluation.metrics import Metric
from r2mae.fields import decimal
from r2mae.genome.config import HELD_OUT, GenomeEvaluationConfig, contrast_name, sides_of
from r2mae.genome.store.alignment import AlignmentStore
from r2mae.genome.store.contigs import RENAME, Contigs, read_renamed
from r2mae.genome.store.intervals import SHIFT, Intervals
from r2mae.genome.variants.files import REASONS, SiteLogs, open_variants, scores_of, substitutions
from r2mae.masking.keys import Key, uniforms

if TYPE_CHECKING:
    import pandas as pd

SMALLEST = 20
"""Variants of a class that is measured by itself; of a label with two values, of each."""
MOST_FALSE = 0.001
"""The false-positive rate up to which the partial area is measured (Table 3 of the paper)."""
SPAN = 500
"""Positions of a block."""
RESAMPLES = 200
_KEY = Key.root(0).fold("blocks of variants")

Values = Float64[np.ndarray, " n"]
Chosen = Bool[np.ndarray, " n"]
Places = Int64[np.ndarray, " n"]
Measure = Callable[[Values], dict[str, float]]
"""From weights of the variants to metrics; 1 for each is the plain value."""
VARIANTS = "scores of variants"
_RANKING = (
    Metric("auroc", "AUROC of variants", bounds=(0, 1), question=VARIANTS),
    Metric("auprc", "AUPRC of variants", bounds=(0, 1)),
    Metric("partial_auroc", "partial AUROC of variants", bounds=(0, 1)),
)
_CORRELATION = (Metric("spearman", "Spearman of variants", bounds=(-1, 1), question=VARIANTS),)
_ROWS = 65_536
_WORDS = {"true": 1.0, "yes": 1.0, "pathogenic": 1.0, "false": 0.0, "no": 0.0, "benign": 0.0}
_MISSING = ("", ".", "na", "nan")


@dataclass(frozen=True)
class Labelled:
    """Variants that have a label.

    The table has columns of the file as text, and 0, the alleles. Labels with two values (`binary`) are 1 and 0. The
    `classes` are those that are measured by themselves.
    """

    table: "pd.DataFrame"
    labels: Values
    binary: bool
    of_class: np.ndarray
    classes: tuple[str, ...]


def read_labelled(settings: GenomeEvaluationConfig, more: Sequence[str] = ()) -> Labelled:
    """Read variants, and of `more` columns than those that the settings name."""
    import pandas as pd

    path = Path(settings.variants or "").expanduser()
    source = open_variants(path)
    named = {*filter(None, (settings.label, settings.classes)), *more}
    tables = [
        pd.DataFrame({0: block.alleles} | {name: source.values(block, name) for name in named})
        for block in source.blocks(_ROWS)
    ]
    if not tables:
        raise UserError(f"{path}: has no variants")
    table = pd.concat(tables, ignore_index=True)
    labels, binary = _labels(table[settings.label], settings, path)
    table, labels = table[~np.isnan(labels)], labels[~np.isnan(labels)]
    of_class = np.array(table[settings.classes].tolist() if settings.classes else [""] * len(table))
    names = [str(name) for name in np.unique(of_class) if name]
    classes = tuple(name for name in names if is_large(of_class == name, labels, binary))
    for contrast in settings.contrasts:
        for name in sides_of(contrast):
            if (of_class == name).sum() < SMALLEST:
                raise UserError(
                    f"{path}: column {settings.classes!r} has no {SMALLEST} labelled variants {name!r} for the "
                    f"contrast {contrast}: {nearest(name, [other for other in names if other != name])}"
                )
    return Labelled(table, labels, binary, of_class, classes)


def is_large(chosen: Chosen, labels: Values, binary: bool) -> bool:
    """Tell whether these rows are enough to be measured by themselves."""
    if not binary:
        return int(chosen.sum()) >= SMALLEST
    return min(int((labels[chosen] == value).sum()) for value in (0, 1)) >= SMALLEST


def _labels(column: "pd.Series[str]", settings: GenomeEvaluationConfig, path: Path) -> tuple[Values, bool]:
    """Return labels as numbers, NaN where one is missing, and whether they are two values, which are then 1 and 0."""
    texts = column.str.strip().str.lower()
    texts = texts.mask(texts.isin(_MISSING))
    written = dict(zip(texts, column.str.strip(), strict=True))  # as the file has them
    values = sorted(texts.dropna().unique())
    where = f"{path}: column {settings.label!r}"
    known = {value: _WORDS.get(value, decimal(value)) for value in values}
    levels = sorted({number for number in known.values() if number is not None and isfinite(number)})
    if settings.positive is not None:
        positive = settings.positive.strip().lower()
        if positive not in values:
            raise UserError(f"{where} has no value {settings.positive!r}: {nearest(positive, values)}")
        known, levels = {value: float(value == positive) for value in values}, [0.0, 1.0][: len(values)]
    elif None in known.values() or (not {*levels} <= {0.0, 1.0} and not known.keys().isdisjoint(_WORDS)):
        names = [written[value] for value in values]
        if len(names) == 2:
            one, other = names
            raise UserError(
                f"{where} has two values, {one} and {other}, and which of them is harmful is unknown: name it, "
                f"--positive {quote(one)} or --positive {quote(other)}"
            )
        raise UserError(
            f"{where} holds {', '.join(names[:4])}, neither two values nor numbers: say which is harmful "
            "(--positive VALUE), or name another column"
        )
    if len(levels) < 2:
        raise UserError(f"{where} has one value only, {', '.join(values) or 'none'}: it needs two")
    found = np.asarray(texts.map(known), float)
    found[np.isinf(found)] = np.nan
    if len(levels) > 2:
        return found, False
    return np.where(np.isnan(found), np.nan, found == levels[1]), True


def numbers(texts: "pd.Series[str]") -> Values:
    """Return texts as numbers, NaN where one is none."""
    found = (decimal(text.strip()) for text in texts)
    return np.array([np.nan if number is None else number for number in found])


def shape_of(settings: GenomeEvaluationConfig) -> tuple[bool, tuple[str, ...]]:
    """Return whether the label has two values, and the classes that are measured.

    The file is read once for each modification time. Variants that cannot be measured on raise a UserError.
    """
    path = Path(settings.variants or "").expanduser()
    return _read_shape(settings, (path.stat().st_mtime_ns, path.stat().st_size) if path.is_file() else (0, 0))


@lru_cache(maxsize=8)
def _read_shape(settings: GenomeEvaluationConfig, stamp: tuple[int, int]) -> tuple[bool, tuple[str, ...]]:
    read = read_labelled(settings)
    if small := ", ".join(name for name in np.unique(read.of_class) if name and name not in read.classes):
        few = f"{SMALLEST} variants of each label" if read.binary else f"{SMALLEST} variants"
        warn_once(f"{settings.variants}: classes with fewer than {few} are not measured by themselves: {small}")
    return read.binary, read.classes


def metrics_on(settings: GenomeEvaluationConfig) -> tuple[Metric, ...]:
    """Return the metrics of variants, the most important first; none without variants."""
    if settings.variants is None:
        return ()
    try:
        binary, classes = shape_of(settings)
    except UserError:  # the file has gone: scores that were measured are shown
        return tuple(replace(one, optional=True) for one in (*_RANKING, *_CORRELATION))
    default, main = (_RANKING, _RANKING[1]) if binary else (_CORRELATION, _CORRELATION[0])
    extra = {main.name: main} | {
        f"{main.name}_{name}": replace(main, name=f"{main.name}_{name}", label=f"{main.label}, {name}")
        for name in classes
    }
    for one in settings.contrasts:
        name = f"auroc_{contrast_name(one)}"
        extra[name] = Metric(name, f"AUROC of {' from '.join(sides_of(one))}", bounds=(0, 1))
    held_out = [replace(one, name=name + HELD_OUT, label=f"{one.label}, held out") for name, one in extra.items()]
    more = (*list(extra.values())[1:], *held_out)
    return (*default, *(replace(one, ranked=False, optional=True) for one in more))


def ranking(labels: Chosen, scores: Values, only: Sequence[str] = ("auroc", "partial_auroc", "auprc")) -> Measure:
    """Return a function for ``auroc``, ``partial_auroc`` and ``auprc`` of scores that are high where the label is true.

    The partial area is standardised (McClish): 0.5 is chance. The area under the precision-recall curve is the average
    precision. They equal those of scikit-learn, which would sort again for each of the many weights.
    """
    order = np.argsort(-scores, kind="stable")
    sorted_labels, sorted_scores = labels[order], scores[order]
    last = np.flatnonzero(np.append(sorted_scores[1:] != sorted_scores[:-1], True))  # of each score

    def measure(weights: Values) -> dict[str, float]:
        ordered = weights[order]
        hits = np.cumsum(ordered * sorted_labels)[last]
        misses = np.cumsum(ordered * ~sorted_labels)[last]
        if not (hits[-1] > 0 and misses[-1] > 0):
            return dict.fromkeys(only, float("nan"))
        recall, false = np.append(0.0, hits / hits[-1]), np.append(0.0, misses / misses[-1])
        precision = hits / np.maximum(hits + misses, 1e-300)
        areas = {
            "auroc": float(np.trapezoid(recall, false)),
            "partial_auroc": _partial(false, recall),
            "auprc": float((np.diff(recall) * precision).sum()),
        }
        return {name: areas[name] for name in only}

    return measure


def _partial(false: Values, recall: Values) -> float:
    """Return the standardised area up to :data:`MOST_FALSE`."""
    stop = int(np.searchsorted(false, MOST_FALSE, "right"))
    edge = float(np.interp(MOST_FALSE, false[stop - 1 : stop + 1], recall[stop - 1 : stop + 1]))
    area = float(np.trapezoid(np.append(recall[:stop], edge), np.append(false[:stop], MOST_FALSE)))
    least = MOST_FALSE**2 / 2
    return 0.5 * (1 + (area - least) / (MOST_FALSE - least))


def correlation(labels: Values, scores: Values) -> Measure:
    """Return a function for ``spearman``, the correlation of ranks, as that of SciPy."""
    ranked = [np.unique(values, return_inverse=True)[1] for values in (labels, scores)]

    def measure(weights: Values) -> dict[str, float]:
        total = weights.sum()
        centred = []
        for places in ranked:
            counts = np.bincount(places, weights)
            ranks = (np.cumsum(counts) - counts / 2)[places]
            centred.append(ranks - (weights * ranks).sum() / total)
        one, other = centred
        scale = np.sqrt((weights * one**2).sum() * (weights * other**2).sum())
        return {"spearman": float((weights * one * other).sum() / scale) if scale > 0 else float("nan")}

    return measure


def with_intervals(measure: Measure, blocks: Places) -> dict[str, float]:
    """Measure, and add ends of 95 % intervals as ``NAME_blocks_low`` and ``NAME_blocks_high``.

    Whole blocks (each variant has the number of its block, from 0) are drawn with replacement, as variants of
    neighbouring positions are not independent. With fewer than two blocks there is no interval.
    """
    found = measure(np.ones(len(blocks)))
    count = int(blocks.max()) + 1
    drawn: dict[str, list[float]] = {name: [] for name in found}
    for number in range(RESAMPLES if count > 1 else 0):
        chosen = (uniforms(_KEY.fold(number), count) * count).astype(np.int64)
        weights = np.bincount(chosen, minlength=count)[blocks].astype(np.float64)
        for name, value in (measure(weights) if weights.any() else {}).items():
            drawn[name].append(value)
    scores: dict[str, float] = {}
    for name, value in found.items():
        scores[name] = value
        usable = [one for one in drawn[name] if np.isfinite(one)]
        if len(usable) > RESAMPLES // 2:
            low, high = np.quantile(usable, [0.025, 0.975])
            scores |= {f"{name}_blocks_low": float(low), f"{name}_blocks_high": float(high)}
    return scores


def measure_variants(
    settings: GenomeEvaluationConfig, store: AlignmentStore, held_out: Intervals | None, predictor: SiteLogs | str
) -> dict[str, float]:
    """Compare scores of sites, or a column, with the label. Low scores are harmful; NaN counts as no score.

    Variants at held-out positions are also measured by themselves. Returns ``variants``, how many have a score;
    ``auroc``, ``partial_auroc`` and ``auprc``, or ``spearman``; those of classes, ``spearman_missense``; contrasts of
    classes, ``auroc_stop_gained_vs_synonymous``; all of these again for variants at held-out positions,
    ``spearman_missense_held_out``; each with the ends of its interval. A UserError is raised if none of the variants
    can be scored.
    """
    read = read_labelled(settings, [predictor] if isinstance(predictor, str) else [])
    contigs = Contigs(store.layout, read_renamed(settings.rename))
    found = substitutions(read.table[0].tolist(), store, contigs)
    contigs.report(settings.variants, hint=RENAME)
    if found.reasons.all():
        most = list(REASONS)[int(np.bincount(found.reasons).argmax())]
        raise UserError(f"{settings.variants}: none of the variants can be scored with this store ({REASONS[most]})")
    if isinstance(predictor, str):
        scores = np.where(found.reasons == 0, -numbers(read.table[predictor]), np.nan)
    else:
        scores = scores_of(found, predictor).astype(np.float64)
    usable = np.isfinite(scores)
    if isinstance(predictor, str) and not usable.any():
        raise UserError(f"{settings.variants}: column {predictor!r} has no numbers: a baseline is a score")
    blocks = found.contigs << SHIFT | found.positions // SPAN
    parts = {"": usable}
    if held_out is not None:
        parts[HELD_OUT] = usable & held_out.hold(found.places)
    result = {f"variants{where}": float(inside.sum()) for where, inside in parts.items()}
    for where, inside in parts.items():
        for suffix, chosen, measure in _measures(read, settings.contrasts, scores, inside, bool(where)):
            numbered: Places = np.unique(blocks[chosen], return_inverse=True)[1]
            for name, value in with_intervals(measure, numbered).items():
                metric, mark, end = name.partition("_blocks_")
                result[f"{metric}{suffix}{where}{mark}{end}"] = value
    return result


def _measures(
    read: Labelled, contrasts: Sequence[str], scores: Values, inside: Chosen, is_part: bool
) -> Iterator[tuple[str, Chosen, Measure]]:
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


def _against_label(read: Labelled, chosen: Chosen, scores: Values) -> Measure:
    labels = read.labels[chosen]
    return ranking(labels == 1, -scores[chosen]) if read.binary else correlation(labels, scores[chosen])
