"""Which cells train the probes and which test them: donors apart, removal by rule, at most so many cells a donor.

The paper's rules (appendix "Single-cell gene expression models", Evaluation).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float64, Int64

from r2mae.cells.config import CellsConfig
from r2mae.cells.rules import Rule, apply_rules, cells_in_words, column_of, rules_of
from r2mae.errors import UserError, unknown
from r2mae.evaluation.missing import is_missing
from r2mae.masking.keys import Key, permutation, uniforms

if TYPE_CHECKING:
    from r2mae.cells.table import CellTable

MAX_CELLS = 200_000  # of the training cells of a probe, and of its test cells; shared evenly by the donors
_AGE = r"^(\d+)[- ]year[- ]old(?: human)? stage$"  # of CELLxGENE's column development_stage


@dataclass(frozen=True, eq=False)
class DonorSplit:
    """Donors of the cells that no rule excludes, and which of them test.

    Attributes
    ----------
    names : tuple of str
        Donors, sorted; cell numbers where no donor column is named.
    codes : ndarray of int, shape (cells,)
        Donor of every cell of the table; -1 for an excluded cell.
    test : ndarray of bool, shape (donors,)
        Whether a donor's cells test.
    grouped : bool
        False where no donor column is named, so that every cell is a donor of its own.
    notes : tuple of str
        What was done with which cells.
    rules : tuple of Rule
        All of them; those for one probe are still to be applied.
    """

    names: tuple[str, ...]
    codes: Int64[np.ndarray, " cells"]
    test: Bool[np.ndarray, " donors"]
    grouped: bool
    notes: tuple[str, ...]
    rules: tuple[Rule, ...]


@dataclass(frozen=True, eq=False)
class ProbeCells:
    """Cells and targets of one probe.

    Attributes
    ----------
    column : str
        Of obs.
    kind : {"label", "number"}
    train, test : ndarray of int
        Rows of the table.
    train_values, test_values : ndarray
        Names of classes, or float64.
    train_donors, test_donors : ndarray of int
        Donor of each cell, as numbered by the split.
    donor_level : bool
        Whether all cells of a donor have the same value, as with a disease.
    grouped : bool
        Whether donors are known.
    """

    column: str
    kind: Literal["label", "number"]
    train: Int64[np.ndarray, " train"]
    test: Int64[np.ndarray, " test"]
    train_values: np.ndarray
    test_values: np.ndarray
    train_donors: Int64[np.ndarray, " train"]
    test_donors: Int64[np.ndarray, " test"]
    donor_level: bool
    grouped: bool


def split_donors(table: "CellTable", config: CellsConfig) -> DonorSplit:
    """Exclude cells by rule and divide the donors of the others; the division depends on the seed alone.

    ``⌊(1 − test_donors) × donors⌋`` train, at least one, and at least one tests. Within each value of the first label
    column that is constant in every donor (a condition), donors are divided in the same proportion, and a value of two
    donors or more is on both sides.

    Raises
    ------
    UserError
        An unknown column, or a rule of `exclude` or `only` that no cell meets, or that leaves none.
    """
    rules = rules_of(table, config)
    kept, notes = apply_rules(rules, None, np.ones(len(table.obs), dtype=bool))
    if config.donor_key is None:
        codes = np.where(kept, np.cumsum(kept) - 1, -1).astype(np.int64)
        names = tuple(str(row) for row in np.flatnonzero(kept))
        if config.labels or config.regress:
            notes += ("no donor_key: training and test cells of the probes share donors, and scores are too good",)
    else:
        column = column_of(table, config.donor_key, "donor_key").astype(str).to_numpy()
        found, inverse = np.unique(column[kept], return_inverse=True)
        names = tuple(str(name) for name in found)
        codes = np.full(len(kept), -1, dtype=np.int64)
        codes[kept] = inverse
    strata = _strata(table, config, codes, len(names))
    key = Key.root(config.seed).fold("donor split")
    test = divide(names, strata, config.test_donors, key)
    return DonorSplit(names, codes, test, config.donor_key is not None, notes, rules)


def divide(names: Sequence[str], strata: Sequence[str], test_fraction: float, key: Key) -> Bool[np.ndarray, " donors"]:
    """Choose the donors that test, in about the same proportion in every stratum.

    Parameters
    ----------
    names : sequence of str, one per donor
    strata : sequence of str, one per donor
    test_fraction : float
        Of the donors.
    key : Key
        Of the choice.
    """
    n = len(names)
    wanted = min(max(int(np.floor((1 - test_fraction) * n + 1e-9)), 1), n - 1) if n > 1 else n
    values, stratum = np.unique(np.asarray(strata, dtype=str), return_inverse=True)
    size = np.bincount(stratum, minlength=len(values))
    quota = size * wanted / n
    least, most = np.where(size > 1, 1, 0), np.where(size > 1, size - 1, 1)
    train = np.clip(np.floor(quota).astype(np.int64), least, most)
    order = permutation(key.fold("ties"), len(values))  # equal claims are settled by the seed
    while train.sum() != wanted:
        up = train.sum() < wanted
        movable = order[(train < most)[order]] if up else order[(train > least)[order]]
        if not len(movable):
            break
        claim = (quota - train)[movable]
        train[movable[np.argmax(claim if up else -claim)]] += 1 if up else -1
    test = np.ones(n, dtype=bool)
    for place, value in enumerate(values):
        members = np.flatnonzero(stratum == place)
        chosen = permutation(key.fold("stratum", str(value)), len(members))[: train[place]]
        test[members[chosen]] = False
    return test


def probe_cells(
    table: "CellTable", config: CellsConfig, *, max_cells: int = MAX_CELLS
) -> tuple[tuple[ProbeCells, ...], tuple[str, ...]]:
    """Choose the cells of every probe.

    Rules for one probe leave cells out of it alone; the division of the donors does not hear of them. Cells without a
    known value are removed: missing or "Unknown" labels, numbers that are none ("60-69"). So are classes that fewer
    than two donors have, and test cells of classes that no training donor has. Then no donor keeps more than
    ``max_cells / donors`` cells of its side. A column of which too little is left has no probe.

    Parameters
    ----------
    table : CellTable
    config : CellsConfig
        Its labels, regress, exclude, only, donor_key, test_donors and seed.
    max_cells : int
        Cells of one side, where the configuration does not say it of a column.

    Returns
    -------
    probes : tuple of ProbeCells
        In the order of labels, then regress.
    notes : tuple of str
        What was removed or left out, and why.

    Raises
    ------
    UserError
        As :func:`split_donors`.
    """
    split = split_donors(table, config)
    probes: list[ProbeCells] = []
    notes = list(split.notes)
    columns: list[tuple[str, Literal["label", "number"]]] = [(column, "label") for column in config.labels]
    columns += [(column, "number") for column in config.regress]
    for column, kind in columns:
        made = _probe(table, config, split, column, kind, max_cells, notes)
        if made is not None:
            probes.append(made)
    return tuple(probes), tuple(notes)


def check_probes(table: "CellTable", config: CellsConfig) -> tuple[str, ...]:
    """Find mistakes in the columns before a model is trained, and return the notes of :func:`probe_cells`.

    Raises
    ------
    UserError
        As :func:`split_donors`; also one donor only, a label column of one class, a column of no numbers.
    """
    for entry in config.max_cells:
        column = entry.partition("=")[0]
        if column not in (*config.labels, *config.regress):
            raise unknown("column of max_cells", column, (*config.labels, *config.regress))
    if not (config.labels or config.regress):
        rules_of(table, config)
        return ()
    split = split_donors(table, config)
    if len(split.names) < 2:
        raise UserError(
            f"{table.name}: column {config.donor_key!r} (donor_key) has one donor only, {split.names[0]!r}, and probes "
            f"are tested on other donors: leave donor_key out to divide cells, or leave labels and regress out"
        )
    for column in config.labels:
        values, known = label_values(table, column)
        own, _ = apply_rules(split.rules, column, split.codes >= 0)
        classes = np.unique(values[known & own])
        if len(classes) < 2:
            what = f"one class only, {str(classes[0])!r}" if len(classes) else "no known label"
            raise UserError(f"{table.name}: column {column!r} (labels) has {what}: leave it out of labels")
    for column in config.regress:
        numbers = number_values(table, column)[apply_rules(split.rules, column, split.codes >= 0)[0]]
        if len(np.unique(numbers[np.isfinite(numbers)])) < 2:
            raise UserError(
                f"{table.name}: column {column!r} (regress) has not two different numbers: name it in labels, or "
                f"leave it out"
            )
    return probe_cells(table, config)[1]


def label_values(table: "CellTable", column: str) -> tuple[np.ndarray, Bool[np.ndarray, " cells"]]:
    """Return a column's labels as text, and which of them are known."""
    series = column_of(table, column, "labels")
    values = series.astype(str).to_numpy().astype(str)
    return values, ~(series.isna().to_numpy() | is_missing(values))


def number_values(table: "CellTable", column: str) -> Float64[np.ndarray, " cells"]:
    """Return a column's numbers, NaN for what is none, such as a range of ages; ``68-year-old stage`` is 68."""
    series = column_of(table, column, "regress")
    if not pd.api.types.is_numeric_dtype(series.dtype):
        words = series.astype(str)
        series = pd.to_numeric(words.str.extract(_AGE, expand=False).fillna(words), errors="coerce")
    numbers = series.to_numpy(dtype=np.float64, na_value=np.nan)
    return np.where(np.isfinite(numbers), numbers, np.nan)


def cell_limit(config: CellsConfig, column: str, usual: int = MAX_CELLS) -> int:
    """Return how many cells of a side the probe of a column has at most: what `max_cells` says of it, else the usual.

    The paper takes 200,000, and 100,000 for the cell types of SEA-AD.
    """
    limits = dict(entry.split("=", 1) for entry in config.max_cells)
    return int(limits.get(column, usual))


def limit_cells(
    rows: Int64[np.ndarray, " n"], donors: Int64[np.ndarray, " n"], max_cells: int, key: Key
) -> Int64[np.ndarray, " m"]:
    """Choose at most ``max_cells / donors`` rows of each donor (at least one), and `max_cells` in all.

    Parameters
    ----------
    rows : ndarray of int, shape (n,)
        Ascending.
    donors : ndarray of int, shape (n,)
        Donor of each.
    max_cells : int
    key : Key
        Of the choice: a number for each row of the table, so that probes of other columns choose the same ones.

    Returns
    -------
    ndarray of int
        Ascending.
    """
    if len(rows) <= max_cells // max(len(np.unique(donors)), 1):
        return rows
    most = max(1, max_cells // len(np.unique(donors)))
    order = np.argsort(uniforms(key, int(rows[-1]) + 1)[rows], kind="stable")
    order = order[np.argsort(donors[order], kind="stable")]
    sorted_donors = donors[order]
    starts = np.flatnonzero(np.r_[True, sorted_donors[1:] != sorted_donors[:-1]])
    place = np.arange(len(order)) - np.repeat(starts, np.diff(np.r_[starts, len(order)]))
    kept = order[place < most]
    if len(kept) > max_cells:
        kept = kept[permutation(key.fold("all"), len(kept))[:max_cells]]
    return np.sort(rows[kept])


def _probe(
    table: "CellTable",
    config: CellsConfig,
    split: DonorSplit,
    column: str,
    kind: Literal["label", "number"],
    max_cells: int,
    notes: list[str],
) -> ProbeCells | None:
    values: np.ndarray
    if kind == "label":
        values, known = label_values(table, column)
        lack = "no known label"
    else:
        values = number_values(table, column)
        known = np.isfinite(values)
        lack = "no number"
    kept, left_out = apply_rules(split.rules, column, split.codes >= 0)
    notes += left_out
    if (kept & ~known).any():
        notes.append(f"{column}: {cells_in_words(int((kept & ~known).sum()))} with {lack} removed")
    kept = kept & known
    if kind == "label" and split.grouped:
        kept &= ~_rare(values, split, kept, column, notes)
    donor_level = split.grouped and _constant_in_donors(values, split.codes, kept)
    on_test = split.test[split.codes]  # code -1 is not kept
    key = Key.root(config.seed).fold("donor cells")
    most = cell_limit(config, column, max_cells)
    train, test = (
        limit_cells(rows, split.codes[rows], most, key.fold(side))
        for side, rows in (("train", np.flatnonzero(kept & ~on_test)), ("test", np.flatnonzero(kept & on_test)))
    )
    if kind == "label":
        learned = np.isin(values[test], np.unique(values[train]))
        if not learned.all():
            unlearned = ", ".join(np.unique(values[test][~learned]))
            lost = cells_in_words(int((~learned).sum()))
            notes.append(f"{column}: {lost} removed from the test: no training donor has {unlearned}")
            test = test[learned]
    least = min((len(np.unique(values[rows])) for rows in (train, test)), default=0)
    if least < 2:
        side = "training" if len(np.unique(values[train])) < 2 else "test"
        notes.append(f"{column}: no probe, as the {side} donors have fewer than two values")
        return None
    donors = split.codes
    return ProbeCells(
        column, kind, train, test, values[train], values[test], donors[train], donors[test], donor_level, split.grouped
    )


def _rare(
    values: np.ndarray, split: DonorSplit, kept: Bool[np.ndarray, " cells"], column: str, notes: list[str]
) -> Bool[np.ndarray, " cells"]:
    """Cells of classes that one donor alone has: they cannot be both learned and tested."""
    pairs = pd.DataFrame({"value": values[kept], "donor": split.codes[kept]}).drop_duplicates()
    donors_of = pairs["value"].value_counts()
    rare = donors_of.index[donors_of < 2].to_numpy()
    out = kept & np.isin(values, rare)
    if len(rare):
        removed = cells_in_words(int(out.sum()))
        notes.append(f"{column}: {removed} removed of classes in one donor only: {', '.join(sorted(rare))}")
    return out


def _constant_in_donors(
    values: np.ndarray, codes: Int64[np.ndarray, " cells"], kept: Bool[np.ndarray, " cells"]
) -> bool:
    pairs = pd.DataFrame({"donor": codes[kept], "value": values[kept]}).drop_duplicates()
    return bool(len(pairs)) and not bool(pairs["donor"].duplicated().any())


def _strata(table: "CellTable", config: CellsConfig, codes: Int64[np.ndarray, " cells"], donors: int) -> list[str]:
    """Condition of each donor: the first label column that is constant in every donor (unknown labels aside)."""
    if config.donor_key is not None:
        for column in config.labels:
            values, known = label_values(table, column)
            kept = known & (codes >= 0)
            if _constant_in_donors(values, codes, kept):
                strata = np.full(donors, "", dtype=object)
                strata[codes[kept]] = values[kept]
                return [str(value) for value in strata]
    return [""] * donors
