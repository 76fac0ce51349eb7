"""Tables with a line a run: on which data schemes were compared, and differences that are paired by seed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import TYPE_CHECKING, Any

import numpy as np

from r2mae.cells.config import CellsConfig
from r2mae.cells.domain import DOMAIN
from r2mae.cells.sets import SET_DEFAULTS
from r2mae.evaluation.statistics import AVERAGE_RANK, best_fixed, rank_table
from r2mae_paper.claims.claim import typeset
from r2mae_paper.claims.estimates import Differences
from r2mae_paper.claims.results import MissingRowsError, Results, UnavailableError

if TYPE_CHECKING:
    import pandas as pd

OURS = "r2mae"
_PAPERS = {"table4": "sea-ad", "table6": "hlca"}
TABLES = {
    **dict.fromkeys(("sea-ad", "csle", "covid-tcells", "pig-airway"), "table4"),
    **dict.fromkeys(("hlca", "onek1k", "perez-tcells", "combat"), "table6"),
}
"""The table of each named set of cells: "table4" if donors have a condition."""
_CELLS = ("score", "reconstruction_r", "label", "scheme", "seed")
_CEILING = 0.97  # a balanced accuracy above it leaves no room for an advantage; the number is ours
_GLUE = ("mnli_accuracy", "qqp_accuracy", "sst2_accuracy", "qnli_accuracy")
_MAIN = {"table1": ("images", "finetune_top1"), "table3": ("DNA", "spearman")}


@dataclass(frozen=True)
class Source:
    """Runs on a set of data, or of a model."""

    runs: "pd.DataFrame"
    """A line a run."""
    main: str
    """The score that counts."""
    own: bool = False
    """Whether data and sizes are the paper's."""
    ranked: tuple[str, ...] = ()
    """Scores that the paper ranks."""
    types: str = ""
    """Score of the cell types; empty if there is none."""
    table: str = ""
    """Of cells, the table that the set belongs to."""


Sources = Mapping[str, tuple[Source, ...]]
"""By the name of the data: the results that count, then others that count where the first lack a row."""


def sources_of(results: Results, study: str) -> Sources:
    """Return the runs of a study, or of several, whose names have spaces between them.

    Raises
    ------
    UnavailableError
        If there are none.
    """
    if set(study.split()) <= {*_PAPERS}:
        return _cells(results, study.split())
    if study == "table2":
        return _texts(results)
    name, main = _MAIN[study]
    runs = results.table(study, "label", "scheme", "seed", name=f"{study}-runs")
    return {name: (Source(runs, main, results.as_the_paper(study)),)}


def _cells(results: Results, studies: Sequence[str]) -> Sources:
    """Return the sets of cells of some tables; the paper's own set at its own sizes is judged alone."""
    found: dict[str, tuple[Source, ...]] = {}
    reasons = []
    for name, paper in _PAPERS.items():
        try:
            runs = results.table(name, "set", "label", "scheme", "seed", "score", name=f"{name}-runs")
        except UnavailableError as error:
            reasons.append(str(error))
            continue
        for key, group in runs.groupby("set", sort=False):
            own = results.as_the_paper(name) and key == paper
            ranked, types = _ranked_of(str(key)), _types_of(str(key), {})
            found.setdefault(str(key), (Source(group, "score", own, ranked, types, name),))
    comparisons, broken = results.usable_comparisons(*_CELLS)
    for one in comparisons:
        table = TABLES.get(one.data) or (
            "table4" if one.table.filter(regex="^condition").notna().any(axis=None) else "table6"
        )
        types = _types_of(one.data, one.config)
        other = Source(one.table, "score", False, _ranked_of(one.data), types, table)
        found[one.data] = (*found.get(one.data, ()), other)
    chosen = {name: all_ for name, all_ in found.items() if all_[0].table in studies}
    if not chosen:
        raise UnavailableError("; ".join([*reasons, *broken]))
    return {name: all_ for name, all_ in chosen.items() if all_[0].own} or chosen


def _types_of(name: str, config: Mapping[str, Any]) -> str:
    known = {**SET_DEFAULTS.get(name, {}), **{key: value for key, value in config.items() if value}}
    first = str((known.get("labels") or ("cell_type",))[0])
    return "" if first == "condition" or first in known.get("auroc_labels", ()) else f"{first}_bacc"


def _ranked_of(name: str) -> tuple[str, ...]:
    """Return the scores of a named set that count for its rank: of a condition its AUROCs."""
    known = SET_DEFAULTS.get(name)
    if known is None:
        return ()
    by_auroc = known.get("auroc_labels") or [label for label in known.get("labels", ()) if label == "condition"]
    config = CellsConfig.make(**{**known, "data": name, "auroc_labels": tuple(by_auroc)})
    return tuple(metric.name for metric in DOMAIN.metrics_of(config) if metric.ranked and metric.higher_is_better)


def _texts(results: Results) -> Sources:
    """Return the models that were fine-tuned on GLUE: those of Table 2, or else those of comparisons."""
    found: dict[str, tuple[Source, ...]] = {}
    reason = "table2 has no fine-tuning on GLUE"
    try:
        own = results.as_the_paper("table2")
        runs = results.table("table2", "model", "label", "scheme", "seed", name="table2-runs")
        found = {str(model): _of_model(group, own) for model, group in runs.groupby("model", sort=False)}
    except UnavailableError as error:
        reason = str(error)
    if not any(found.values()):
        comparisons, _ = results.usable_comparisons("glue", "loss", "label", "scheme")
        found = {f"{one.data} ({one.name})": _of_model(one.table, False) for one in comparisons}
    if not any(found.values()):
        raise UnavailableError(reason)
    return {name: all_ for name, all_ in found.items() if all_}


def _of_model(runs: "pd.DataFrame", own: bool) -> tuple[Source, ...]:
    """Return the trained runs of a model with their mean over the tasks of GLUE, which all of them must have."""
    runs = runs[runs["scheme"] != "none"]
    tasks = [score for score in _GLUE if score in runs and runs[score].notna().any()]
    scored = runs.assign(main=runs[tasks].mean(axis=1, skipna=False))
    return (Source(scored, "main", own and tasks == [*_GLUE], tuple(tasks)),) if tasks else ()


def gaps_of(runs: "pd.DataFrame", label: str, others: Sequence[str], score: str, *, higher: bool = True) -> Differences:
    """Return how much better a row is than another, or than the best of several, under each seed that has all.

    The best is chosen for each seed by the mean over the other seeds, and the differences spread as this choice does:
    see :class:`r2mae.evaluation.statistics.BestFixed`.

    Raises
    ------
    UnavailableError
        If a row has no runs, or too few seeds have all rows.
    """
    if score not in runs or runs[score].dtype.kind not in "fi" or not runs[score].notna().any():
        raise UnavailableError(f"the runs have no {score}")
    table = runs.dropna(subset=[score]).pivot_table(index="seed", columns="label", values=score)
    missing = [other for other in (label, *others) if other not in table]
    if missing or not others:
        raise MissingRowsError(f"there are no runs of {', '.join(missing) or 'rows to compare with'}")
    whole = table[[label, *others]].dropna()
    if len(whole) < min(len(others), 2):
        raise UnavailableError(f"{score}: fewer than {min(len(others), 2)} seeds have every row")
    mine, rest = whole[label].to_numpy(float), whole[list(others)].to_numpy(float)
    best = rest[:, 0] if len(others) == 1 else best_fixed(rest, higher_is_better=higher).partner(mine)
    gaps = (mine - best) * (1 if higher else -1)
    return dict(zip((int(seed) for seed in whole.index), map(float, gaps), strict=True))


def rivals_of(runs: "pd.DataFrame", others: str) -> list[str]:
    """Return the labels of rows to compare with: those listed, all fixed ratios ("fixed"), or all ("all").

    One with a question mark counts where it was run.
    """
    labels = list(dict.fromkeys(runs["label"]))
    if others == "all":
        return [str(label) for label in labels if label != OURS]
    if others == "fixed":
        return [str(label) for label in dict.fromkeys(runs.loc[runs["scheme"] == "fixed", "label"])]
    listed = [other.strip() for other in others.split(",")]
    return [other.rstrip("?") for other in listed if not other.endswith("?") or other[:-1] in labels]


def scored(source: Source, score: str) -> tuple["pd.DataFrame", str]:
    """Return runs with a score, and its column.

    The score is a column; or "main", the one that counts; "rank", the average rank; "types", that of cell types; or a
    pattern with a star, for the first fitting one of those that the paper ranks.

    Raises
    ------
    UnavailableError
        If the set has none, or all rows are at its ceiling.
    """
    runs = source.runs
    if score == "rank":
        scores = [name for name in source.ranked if name in runs and runs[name].notna().any()]
        if not scores:
            raise UnavailableError("the runs have none of the scores that the paper ranks")
        return ranks_of(runs, scores), "rank"
    if score == "types":
        if source.types not in runs or not runs[source.types].notna().any():
            raise UnavailableError(f"the runs have no {source.types or 'labels of cell types'}")
        if runs.loc[runs["scheme"] == "fixed", source.types].mean() > _CEILING:
            raise UnavailableError(f"all rows have a balanced accuracy above {_CEILING:g}")
        return runs, source.types
    if "*" in score:
        named = next((name for name in source.ranked if fnmatch(name, score)), None)
        if named is None:
            raise UnavailableError(f"the set has no score {score}")
        return runs, named
    return runs, source.main if score == "main" else score


def ranks_of(runs: "pd.DataFrame", scores: Sequence[str]) -> "pd.DataFrame":
    """Return the average rank of every row under every seed; a row without one of the scores is left out."""
    import pandas as pd

    found = []
    for seed, rows in runs.dropna(subset=scores).groupby("seed"):
        ranked = rank_table(rows.set_index("label")[list(scores)], dict.fromkeys(scores, True))
        found += [{"label": label, "seed": seed, "rank": rank} for label, rank in ranked[AVERAGE_RANK].items()]
    return pd.DataFrame(found)


def each_in_words(by_set: Mapping[str, Differences]) -> str:
    """Return the mean of every set as words."""
    means = ((name, round(float(np.mean(list(one.values()))), 3)) for name, one in by_set.items())
    return typeset(", ".join(f"{name} {mean:+.3f}" if mean else f"{name} 0.000" for name, mean in means))
