"""Chooses the training and test cells of the probes: by donor, with cells removed by rules, and a limit per donor.

The paper's rules (appendix "Single-cell gene expression models", Evaluation).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Int64

from r2mae.cells.config import CellsConfig
from r2mae.cells.table import CellTable, cells_in_words, column_of
from r2mae.errors import UserError, nearest
from r2mae.masking.keys import Key, permutation, uniforms

Kind = Literal["label", "number"]
_TEST_DONORS = 0.4  # fraction of the donors whose cells test the probes, as in the paper
_MAX_CELLS = 200_000  # largest number of training cells of a probe, and of test cells, as in the paper
_MISSING = ("", "unknown", "na", "n/a", "nan", "<na>", "none", "nat")  # spellings of a missing label, in any case


class DonorSplit(NamedTuple):
    """Donors of the cells that no rule for all probes excludes, and which of them are test donors.

    Without a donor column, every cell counts as a donor of its own, and `grouped` is False.
    """

    names: tuple[str, ...]
    codes: Int64[np.ndarray, " cells"]  # donor of every cell of the table; -1 for an excluded cell
    test: Bool[np.ndarray, " donors"]
    grouped: bool
    notes: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class ProbeCells:
    """Cells (rows of the table), targets (names of classes, or float64) and donors of one probe.

    `by_donor` says whether donors are scored too: labels if all cells of a donor have the same, as with a disease, and
    numbers if donors are known. If they are not, all test cells count as those of one donor.
    """

    column: str
    kind: Kind
    train: Int64[np.ndarray, " train"]
    test: Int64[np.ndarray, " test"]
    train_values: np.ndarray
    test_values: np.ndarray
    train_donors: Int64[np.ndarray, " train"]
    test_donors: Int64[np.ndarray, " test"]
    by_donor: bool


def split_donors(table: CellTable, config: CellsConfig) -> DonorSplit:
    """Exclude cells by rules and split the donors of the others; the split depends on the seed alone.

    ``⌊0.6 × donors⌋`` are training donors, as in the paper; there is at least one training and one test donor. If a
    label column is constant within every donor (such as a condition), donors of each value of the first such column are
    split in the same proportion, and a value of two or more donors is among both training and test donors.
    """
    kept, notes = kept_cells(table, config)
    if config.data.donor_key is None:
        donor_of_cell: np.ndarray = np.arange(len(kept))
        if config.data.labels or config.data.regress:
            notes += ("no donor_key: training and test cells of the probes share donors, and scores are too high",)
    else:
        donor_of_cell = column_of(table, config.data.donor_key, whole=True).astype(str).to_numpy()
    names, inverse = np.unique(donor_of_cell[kept], return_inverse=True)
    codes = np.full(len(kept), -1, dtype=np.int64)
    codes[kept] = inverse
    strata = _stratum_of_donors(table, config, codes, len(names))
    test = choose_test_donors(strata, _TEST_DONORS, Key.root(config.seed).fold("donor split"))
    return DonorSplit(tuple(map(str, names)), codes, test, config.data.donor_key is not None, notes)


def choose_test_donors(strata: Sequence[str], test_fraction: float, key: Key) -> Bool[np.ndarray, " donors"]:
    """Choose the test donors, a fraction of all, in about the same proportion in every stratum (one for each donor)."""
    n = len(strata)
    wanted = min(max(int(np.floor((1 - test_fraction) * n + 1e-9)), 1), n - 1) if n > 1 else n
    values, stratum = np.unique(np.asarray(strata, dtype=str), return_inverse=True)
    size = np.bincount(stratum, minlength=len(values))
    quota = size * wanted / n
    least, most = np.where(size > 1, 1, 0), np.where(size > 1, size - 1, 1)
    train = np.clip(np.floor(quota).astype(np.int64), least, most)
    order = permutation(key.fold("ties"), len(values))  # the seed decides between strata with equal claims
    while train.sum() != wanted:
        up = train.sum() < wanted
        movable = order[(train < most)[order]] if up else order[(train > least)[order]]
        if not len(movable):
            break
        claim = (quota - train)[movable]
        train[movable[np.argmax(claim if up else -claim)]] += 1 if up else -1
    test = np.ones(n, dtype=bool)
    for number, value in enumerate(values):
        members = np.flatnonzero(stratum == number)
        chosen = permutation(key.fold("stratum", str(value)), len(members))[: train[number]]
        test[members[chosen]] = False
    return test


def probe_cells(table: CellTable, config: CellsConfig) -> tuple[tuple[ProbeCells, ...], tuple[str, ...]]:
    """Choose the cells of every probe, in the order of labels, then regress; note which cells were removed, and why.

    Rules for one probe remove its cells, and do not affect the split of the donors. Cells without a known value are
    removed: missing or "Unknown" labels, and text that is not a number ("60-69"). So are cells of classes that fewer
    than two donors have, and test cells of classes that no training donor has. Then each donor keeps at most
    ``max_cells / donors`` cells, where ``donors`` counts the training or the test donors; for columns in `limit_first`
    before cells without a known label and of rare classes are removed. A column has no probe if its training or test
    donors have fewer than two values left.
    """
    split = split_donors(table, config)
    notes = list(split.notes)
    columns: list[tuple[Kind, str]] = [("label", column) for column in config.data.labels]
    columns += [("number", column) for column in config.data.regress]
    probes = [_choose_probe_cells(table, config, split, column, kind, notes) for kind, column in columns]
    return tuple(probe for probe in probes if probe is not None), tuple(notes)


def check_probes(table: CellTable, config: CellsConfig) -> tuple[tuple[ProbeCells, ...], tuple[str, ...]]:
    """Return what :func:`probe_cells` does; refuse columns none of which has a probe, with its notes."""
    probes, notes = probe_cells(table, config)
    if not probes and (config.data.labels or config.data.regress):
        raise UserError(f"{table.name}: no column of labels or regress can be predicted: {'; '.join(notes)}")
    return probes, notes


def probe_values(table: CellTable, column: str, kind: Kind) -> tuple[np.ndarray, Bool[np.ndarray, " cells"]]:
    """Return a column's labels as text or its numbers, and which of them are known; a range is no number."""
    if kind == "label":
        series = column_of(table, column)
        values = series.astype(str).to_numpy().astype(str)
        return values, ~(series.isna().to_numpy() | np.isin(np.char.lower(np.char.strip(values)), _MISSING))
    series = column_of(table, column)
    if not pd.api.types.is_numeric_dtype(series.dtype):
        series = pd.to_numeric(series.astype(str), errors="coerce")
    numbers = series.to_numpy(dtype=np.float64, na_value=np.nan)
    return numbers, np.isfinite(numbers)


def target_of(rule: str, table: CellTable, config: CellsConfig) -> tuple[str | None, str]:
    """Return the probe of a rule of `exclude` or `only`, or None for all of them, and its column of obs."""
    name = rule.partition("=")[0]
    if name not in table.obs:  # names of columns may have colons
        for probe in (*config.data.labels, *config.data.regress):
            if name.startswith(f"{probe}:"):
                return probe, name.removeprefix(f"{probe}:")
    return None, name


def kept_cells(
    table: CellTable, config: CellsConfig, probe: str | None = None
) -> tuple[Bool[np.ndarray, " cells"], tuple[str, ...]]:
    """Return the cells that `exclude` and `only` leave for all probes or for one, and notes on how many a rule omits.

    If `only` has several values of a column, a cell needs one of them; if it has several columns, a cell needs each.

    Raises
    ------
    UserError
        For an unknown column or probe, a value that no cell has, or if no cell is left.
    """
    probes = (*config.data.labels, *config.data.regress)

    def rules(field: Literal["exclude", "only"]) -> list[tuple[str, str, Bool[np.ndarray, " cells"]]]:
        found = []
        for rule in getattr(config.data, field):
            of, column = target_of(rule, table, config)
            if of != probe:
                continue
            if of is None and column not in table.obs and ":" in column:
                hint = nearest(column.partition(":")[0], probes)
                raise UserError(f"{table.name}: {field} {rule}: no probe or column of obs has this name: {hint}")
            value = rule.partition("=")[2]
            values = column_of(table, column).astype(str).to_numpy().astype(str)
            if value not in values:
                hint = nearest(value, np.unique(values).tolist())
                raise UserError(f"{table.name}: no cell has {column}={value} ({field}): {hint}")
            found.append((column, f"{column}={value}", np.asarray(values == value)))
        return found

    omitted = {f"with {words}": cells for _, words, cells in rules("exclude")}
    only = rules("only")
    for column in dict.fromkeys(column for column, _, _ in only):
        wanted = {words: cells for other, words, cells in only if other == column}
        omitted[f"without {' or '.join(wanted)}"] = ~np.logical_or.reduce([*wanted.values()])
    whose = f"the probe of {probe}" if probe else "the probes"
    kept, notes = np.ones(len(table.obs), dtype=bool), []
    for why, cells in omitted.items():
        number = cells_in_words(int((kept & cells).sum()))
        notes.append(f"{number} {why} omitted from {whose}")
        kept &= ~cells
    if not kept.any():
        raise UserError(f"exclude and only leave no cell for {whose}: remove a rule")
    return kept, tuple(notes)


def limit_cells(
    rows: Int64[np.ndarray, " n"], donors: Int64[np.ndarray, " n"], max_cells: int, key: Key
) -> Int64[np.ndarray, " m"]:
    """Choose at most ``max_cells / donors`` of the ascending rows of each donor (at least one), `max_cells` in all.

    Each row of the table has its own random number, so that probes of several columns choose the same rows.
    """
    if len(rows) <= max_cells // max(len(np.unique(donors)), 1):
        return rows
    most = max(1, max_cells // len(np.unique(donors)))
    order = np.argsort(uniforms(key, int(rows[-1]) + 1)[rows], kind="stable")
    order = order[np.argsort(donors[order], kind="stable")]
    rank = pd.Series(donors[order]).groupby(donors[order]).cumcount().to_numpy()
    kept = order[rank < most]
    if len(kept) > max_cells:
        kept = kept[permutation(key.fold("all"), len(kept))[:max_cells]]
    return np.sort(rows[kept])


def _choose_probe_cells(
    table: CellTable, config: CellsConfig, split: DonorSplit, column: str, kind: Kind, notes: list[str]
) -> ProbeCells | None:
    values, known = probe_values(table, column, kind)
    own, omitted = kept_cells(table, config, column)
    notes += omitted
    allowed = kept = own & (split.codes >= 0)
    if (kept & ~known).any():
        lack = "known label" if kind == "label" else "number"
        notes.append(f"{column}: {cells_in_words(int((kept & ~known).sum()))} with no {lack} removed")
    kept = kept & known
    if kind == "label" and split.grouped:  # a class of one donor cannot be in both training and test
        donors_of = pd.Series(split.codes[kept]).groupby(values[kept]).nunique()
        rare = donors_of.index[donors_of < 2].to_list()
        if rare:
            removed = kept & np.isin(values, rare)
            kept &= ~removed
            number = cells_in_words(int(removed.sum()))
            notes.append(f"{column}: {number} removed of classes in one donor only: {', '.join(rare)}")
    by_donor = split.grouped and (kind == "number" or _constant_in_donors(values, split.codes, kept))
    on_test = split.test[split.codes]  # code -1 is not kept
    key = Key.root(config.seed).fold("donor cells")
    most = int(dict(entry.split("=", 1) for entry in config.data.max_cells).get(column, _MAX_CELLS))
    limited = allowed if column in config.data.limit_first else kept
    train, test = (
        limit_cells(rows, split.codes[rows], most, key.fold(side))
        for side, rows in (("train", np.flatnonzero(limited & ~on_test)), ("test", np.flatnonzero(limited & on_test)))
    )
    train, test = train[kept[train]], test[kept[test]]
    if kind == "label":
        learned = np.isin(values[test], np.unique(values[train]))
        if not learned.all():
            unlearned = ", ".join(np.unique(values[test][~learned]))
            lost = cells_in_words(int((~learned).sum()))
            notes.append(f"{column}: {lost} removed from the test: no training donor has {unlearned}")
            test = test[learned]
    for side, rows in (("training", train), ("test", test)):
        if len(np.unique(values[rows])) < 2:
            notes.append(f"{column}: no probe, as the {side} donors have fewer than two values")
            return None
    test_donors = split.codes[test] if split.grouped else np.zeros_like(test)
    return ProbeCells(column, kind, train, test, values[train], values[test], split.codes[train], test_donors, by_donor)


def _constant_in_donors(
    values: np.ndarray, codes: Int64[np.ndarray, " cells"], kept: Bool[np.ndarray, " cells"]
) -> bool:
    counts = pd.Series(values[kept]).groupby(codes[kept]).nunique()
    return len(counts) > 0 and bool((counts == 1).all())


def _stratum_of_donors(
    table: CellTable, config: CellsConfig, codes: Int64[np.ndarray, " cells"], donors: int
) -> list[str]:
    """Return each donor's value in the first label column that is constant within every donor (but for unknowns)."""
    if config.data.donor_key is not None:
        for column in config.data.labels:
            values, known = probe_values(table, column, "label")
            kept = known & (codes >= 0)
            if _constant_in_donors(values, codes, kept):
                strata = np.full(donors, "", dtype=object)
                strata[codes[kept]] = values[kept]
                return [str(value) for value in strata]
    return [""] * donors
