"""Variants with a label, with which scores are compared."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float64

from r2mae.errors import UserError, nearest, warn_once
from r2mae.evaluation.metrics import Metric
from r2mae.genome.config import HELD_OUT, GenomeEvaluationConfig, contrast_name, sides_of
from r2mae.genome.variants.files import open_variants

if TYPE_CHECKING:
    import pandas as pd

SMALLEST = 20
"""Variants of a class that is measured by itself; of a label with two values, of each."""

_RANKING = (
    Metric("auroc", "AUROC of variants", bounds=(0, 1)),
    Metric("auprc", "AUPRC of variants", bounds=(0, 1)),
    Metric("partial_auroc", "partial AUROC of variants", bounds=(0, 1)),
)
_CORRELATION = (Metric("spearman", "Spearman of variants", bounds=(-1, 1)),)
_ROWS = 65_536
_WORDS = {"1": 1.0, "true": 1.0, "yes": 1.0, "1.0": 1.0, "0": 0.0, "false": 0.0, "no": 0.0, "0.0": 0.0}
_MISSING = ("", ".", "na", "nan")


@dataclass(frozen=True)
class Labelled:
    """Variants that have a label.

    The table has columns of the file as text, and 0, the alleles. Labels with two values (`binary`) are 1 and 0. Of the
    classes, the `small` ones are not measured by themselves.
    """

    table: "pd.DataFrame"
    labels: Float64[np.ndarray, " n"]
    binary: bool
    of_class: np.ndarray
    classes: tuple[str, ...]
    small: tuple[str, ...]


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
    return Labelled(table, labels, binary, of_class, classes, tuple(name for name in names if name not in classes))


def is_large(chosen: Bool[np.ndarray, " n"], labels: Float64[np.ndarray, " n"], binary: bool) -> bool:
    """Tell whether these rows are enough to be measured by themselves."""
    if not binary:
        return int(chosen.sum()) >= SMALLEST
    return min(int((labels[chosen] == value).sum()) for value in (0, 1)) >= SMALLEST


def _labels(
    column: "pd.Series[str]", settings: GenomeEvaluationConfig, path: Path
) -> tuple[Float64[np.ndarray, " n"], bool]:
    """Return labels as numbers, NaN where one is missing, and whether they are two values."""
    texts = column.str.strip().str.lower()
    texts = texts.mask(texts.isin(_MISSING))
    values = sorted(texts.dropna().unique())
    where = f"{path}: column {settings.label!r}"
    known = {value: number for value, number in _WORDS.items() if value in values}
    if settings.positive is not None:
        positive = settings.positive.strip().lower()
        if positive not in values:
            raise UserError(f"{where} has no value {settings.positive!r}: {nearest(positive, values)}")
        known = {value: float(value == positive) for value in values}
    elif len(known) < len(values):
        found = numbers(texts)
        if not np.isfinite(found).any() or np.isnan(found[texts.notna()]).any():
            raise UserError(
                f"{where} holds {', '.join(values[:4])}, neither two values nor numbers: say which is harmful "
                "(--positive VALUE), or name another column"
            )
        return np.where(np.isfinite(found), found, np.nan), False
    labels: Float64[np.ndarray, " n"] = texts.map(known).to_numpy(float)
    if len(set(known.values())) < 2:
        raise UserError(f"{where} has one value alone, {', '.join(values) or 'none'}: it needs two")
    return labels, True


def numbers(texts: "pd.Series[str]") -> Float64[np.ndarray, " n"]:
    """Return texts as numbers, NaN where one is none."""
    import pandas as pd

    found: Float64[np.ndarray, " n"] = pd.to_numeric(texts, errors="coerce").to_numpy(float)
    return found


def shape_of(settings: GenomeEvaluationConfig) -> tuple[bool, tuple[str, ...]]:
    """Return whether the label has two values, and the classes that are measured.

    The file is read once for each modification time. Variants that cannot be measured on raise a UserError.
    """
    path = Path(settings.variants or "").expanduser()
    return _read_shape(settings, (path.stat().st_mtime_ns, path.stat().st_size) if path.is_file() else (0, 0))


@lru_cache(maxsize=8)
def _read_shape(settings: GenomeEvaluationConfig, stamp: tuple[int, int]) -> tuple[bool, tuple[str, ...]]:
    read = read_labelled(settings)
    if read.small:
        few = f"{SMALLEST} variants of each label" if read.binary else f"{SMALLEST} variants"
        names = ", ".join(read.small)
        warn_once(f"{settings.variants}: classes with fewer than {few} are not measured by themselves: {names}")
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
