"""Finds results of targets and of comparisons below some folders, reads their tables, and pairs runs by seed.

Tables with a line a run tell on which data schemes were compared.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from io import BytesIO
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

import r2mae
from r2mae.cells.config import CellsConfig
from r2mae.cells.domain import DOMAIN
from r2mae.errors import UserError, brief
from r2mae.evaluation.statistics import AVERAGE_RANK, best_fixed, rank_table
from r2mae.files import read_confined
from r2mae_paper.bases import CELL_SETS
from r2mae_paper.claims.claim import typeset
from r2mae_paper.claims.estimates import Differences
from r2mae_paper.state import MADE, json_in, state_of, version_in
from r2mae_paper.studies import ENTRIES

_DEPTH = 4  # levels of folders below one that is given
_COMPARISON = ("label", "scheme", "ratio", "low", "high", "seed")  # first columns of a comparison's results.csv
_FIRST_TABLE = {"r2mae-vs-fixed": "rules"}  # others have a table of their own name
_TABLES = {f"{_FIRST_TABLE.get(entry.name, entry.name)}.csv": entry.name for entry in ENTRIES.values()}
"""Targets by the file of their first table."""


class UnavailableError(Exception):
    """The results do not have what a claim needs; the message says why."""


class UndecidableError(Exception):
    """No number of seeds would tell; the message says why."""


class MissingRowsError(UnavailableError):
    """The results lack rows that a claim compares; others may have them."""


Comparison: TypeAlias = tuple[str, str, Mapping[str, Any], pd.DataFrame]
"""The name of its folder, that of its data (or else again of the folder), what its runs share, and a line a run."""


class Results:
    """Results below some folders.

    A folder with the table of a target is that target's, whatever its name; one with the results.csv of a comparison is
    a comparison. Tables are read when they are asked for.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self.targets: dict[str, Path] = {}
        self.comparisons: list[Path] = []
        self._unfinished: dict[str, Path] = {}
        self._read: dict[Path, pd.DataFrame] = {}
        found: dict[Path, tuple[Path, list[str]]] = {}
        for folder in folders:
            if not folder.is_dir():
                raise UserError(f"there is no folder {folder}: give folders that `r2mae reproduce --out` wrote to")
            for path, files in _below(folder):
                found.setdefault(path.resolve(), (path, files))
        for path, files in found.values():
            for target in (_TABLES[file] for file in files if file in _TABLES):
                if target in self.targets:
                    raise UserError(
                        f"{self.targets[target]} and {path} both have results of {target}: give one of them"
                    )
                self.targets[target] = path
            if path.name in ENTRIES and MADE in files:
                self._unfinished[path.name] = path
            if "results.csv" in files and self._columns(path / "results.csv")[: len(_COMPARISON)] == _COMPARISON:
                self.comparisons.append(path)

    @property
    def empty(self) -> bool:
        """Whether nothing was found."""
        return not (self.targets or self.comparisons or self._unfinished)

    def folder(self, target: str) -> Path:
        """Return the folder of a target's results."""
        folder = self.targets.get(target) or self._unfinished.get(target)
        if folder is None:
            raise UnavailableError(f"{target} has not run")
        state, version = state_of(folder), version_in(json_in(folder / MADE))
        if target not in self.targets:
            raise UnavailableError(f"{target}: {state.in_words()}")
        if version not in ("", r2mae.__version__):
            raise UnavailableError(f"{target} is of r2mae {version}, this is {r2mae.__version__}")
        if not state.written:
            raise UnavailableError(
                f"{target} has tables of an earlier call; a later one did not finish ({state.in_words()})"
            )
        if state.damaged:
            raise UnavailableError(f"{target}: {MADE}, which has its scale, is damaged")
        if state.scale == "smoke":
            raise UnavailableError(f"{target} is of the scale smoke, whose models have learned nothing")
        return folder

    def as_the_paper(self, target: str) -> bool:
        """Return whether a target's results are of the paper's settings, which is the scale `full`."""
        return state_of(self.folder(target)).scale == "full"

    def usable_comparisons(self, *columns: str) -> tuple[list[Comparison], list[str]]:
        """Return the comparisons whose results.csv has these columns, and why others that are found cannot be used.

        What they say of themselves is in ``compare.json`` or ``results.json``; damaged files say nothing.
        """
        usable, reasons = [], []
        for folder in self.comparisons:
            published, table = json_in(folder / "results.json"), self.read(folder / "results.csv")
            written = json_in(folder / "compare.json") or published.get("config")
            config: Mapping[str, Any] = written if isinstance(written, dict) else {}
            version, data = version_in(published), config.get("data")
            if version not in ("", r2mae.__version__):
                reasons.append(f"{folder.name} is of r2mae {version}, this is {r2mae.__version__}")
            elif set(columns) <= set(table):
                name = Path(data).name if isinstance(data, str) and data else folder.name
                usable.append((folder.name, name, config, table))
        return usable, reasons

    def _columns(self, path: Path) -> tuple[str, ...]:
        try:
            return tuple(self.read(path).columns)
        except UnavailableError:
            return ()

    def table(self, target: str, *columns: str, name: str = "") -> pd.DataFrame:
        """Return a table of a target that has these columns: that of a name without suffix, by default its first."""
        path = self.folder(target) / f"{name or _FIRST_TABLE.get(target, target)}.csv"
        return self.read(path, *columns)

    def read(self, path: Path, *columns: str) -> pd.DataFrame:
        """Return a CSV file that has these columns."""
        if path not in self._read:
            try:
                self._read[path] = pd.read_csv(BytesIO(read_confined(path)), encoding="utf-8")
            except FileNotFoundError:
                raise UnavailableError(f"{path.parent.name} has no {path.name}") from None
            except (OSError, ValueError) as error:  # errors of pandas and of decoding are ValueErrors
                raise UnavailableError(f"{path.parent.name}/{path.name} cannot be read ({brief(error)})") from None
        table = self._read[path]
        if not len(table):
            raise UnavailableError(f"{path.parent.name}/{path.name} has no rows")
        for column in columns:
            if column not in table:
                raise UnavailableError(f"{path.parent.name}/{path.name} has no column {column}")
        return table


def _below(folder: Path) -> Iterator[tuple[Path, list[str]]]:
    """Yield a folder and those in it, in the order of their names, with the names of their files."""
    for here, inside, files in os.walk(folder):
        deep = len(Path(here).relative_to(folder).parts)
        inside[:] = sorted(one for one in inside if not one.startswith(".") and deep < _DEPTH)
        yield Path(here), files


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

    runs: pd.DataFrame
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
    """Return the runs of a study, or of those of several that there are; their names have spaces between them."""
    names = study.split()
    found: dict[str, tuple[Source, ...]] = {}
    reasons = []
    for name in dict.fromkeys("cells" if name in _PAPERS else name for name in names):
        try:
            if name == "cells":
                found |= _of_cells(results, [one for one in names if one in _PAPERS])
            elif name == "table2":
                found |= _texts(results)
            else:
                title, main = _MAIN[name]
                runs = results.table(name, "label", "scheme", "seed", name=f"{name}-runs")
                found[title] = (Source(runs, main, results.as_the_paper(name)),)
        except UnavailableError as error:
            reasons.append(str(error))
    if not found:
        raise UnavailableError("; ".join(reasons))
    return found


def _of_cells(results: Results, studies: Sequence[str]) -> Sources:
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
    for _, data, config, rows in comparisons:
        has_condition = rows.filter(regex="^condition").notna().any(axis=None)
        table = TABLES.get(data) or ("table4" if has_condition else "table6")
        other = Source(rows, "score", False, _ranked_of(data), _types_of(data, config), table)
        found[data] = (*found.get(data, ()), other)
    chosen = {name: all_ for name, all_ in found.items() if all_[0].table in studies}
    if not chosen:
        raise UnavailableError("; ".join([*reasons, *broken]))
    return {name: all_ for name, all_ in chosen.items() if all_[0].own} or chosen


def _types_of(name: str, config: Mapping[str, Any]) -> str:
    known = {**CELL_SETS.get(name, {}), **{key: value for key, value in config.items() if value}}
    first = str((known.get("labels") or ("cell_type",))[0])
    return "" if first == "condition" or first in known.get("auroc_labels", ()) else f"{first}_bacc"


def _ranked_of(name: str) -> tuple[str, ...]:
    """Return the scores of a named set that count for its rank: of a condition its AUROCs."""
    known = CELL_SETS.get(name)
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
        found = {f"{data} ({name})": _of_model(rows, False) for name, data, _, rows in comparisons}
    if not any(found.values()):
        raise UnavailableError(reason)
    return {name: all_ for name, all_ in found.items() if all_}


def _of_model(runs: pd.DataFrame, own: bool) -> tuple[Source, ...]:
    """Return the trained runs of a model with their mean over the tasks of GLUE, which all of them must have."""
    runs = runs[runs["scheme"] != "none"]
    tasks = [score for score in _GLUE if score in runs and runs[score].notna().any()]
    scored = runs.assign(main=runs[tasks].mean(axis=1, skipna=False))
    return (Source(scored, "main", own and tasks == [*_GLUE], tuple(tasks)),) if tasks else ()


def gaps_of(runs: pd.DataFrame, label: str, others: Sequence[str], score: str, *, higher: bool = True) -> Differences:
    """Return how much better a row is than another, or than the best of several, under each seed that has all.

    The best is chosen for each seed by the mean over the other seeds, and the differences spread as this choice does:
    see :class:`r2mae.evaluation.statistics.BestFixed`.
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


def rivals_of(runs: pd.DataFrame, others: str) -> list[str]:
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


def scored(source: Source, score: str) -> tuple[pd.DataFrame, str]:
    """Return runs with a score, and its column.

    The score is a column; or "main", the one that counts; "rank", the average rank; "types", that of cell types; or a
    pattern with a star, for the first fitting one of those that the paper ranks.
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


def ranks_of(runs: pd.DataFrame, scores: Sequence[str]) -> pd.DataFrame:
    """Return the average rank of every row under every seed; a row without one of the scores is left out."""
    found = []
    for seed, rows in runs.dropna(subset=scores).groupby("seed"):
        ranked = rank_table(rows.set_index("label")[list(scores)], dict.fromkeys(scores, True))
        found += [{"label": label, "seed": seed, "rank": rank} for label, rank in ranked[AVERAGE_RANK].items()]
    return pd.DataFrame(found)


def each_in_words(by_set: Mapping[str, Differences]) -> str:
    """Return the mean of every set as words."""
    means = ((name, round(float(np.mean(list(one.values()))), 3)) for name, one in by_set.items())
    return typeset(", ".join(f"{name} {mean:+.3f}" if mean else f"{name} 0.000" for name, mean in means))
