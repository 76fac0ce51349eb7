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
from r2mae.cells.table import CellTable, cells_in_words
from r2mae.errors import UserError, nearest
from r2mae.evaluation.missing import is_missing
from r2mae.masking.keys import Key, permutation, uniforms

Kind = Literal["label", "number"]
_MAX_CELLS = 200_000  # largest number of training cells of a probe, and of test cells, as in the paper


class Rule(NamedTuple):
    """Cells that `exclude` or `only` omits from a probe (all probes if it is None), and why, in words."""

    probe: str | None
    cells: Bool[np.ndarray, " cells"]
    why: str


class DonorSplit(NamedTuple):
    """Donors of the cells that no rule for all probes excludes, and which of them are test donors.

    Without a donor column, every cell counts as a donor of its own, and `grouped` is False.
    """

    names: tuple[str, ...]
    codes: Int64[np.ndarray, " cells"]  # donor of every cell of the table; -1 for an excluded cell
    test: Bool[np.ndarray, " donors"]
    grouped: bool
    notes: tuple[str, ...]
    rules: tuple[Rule, ...]


@dataclass(frozen=True, eq=False)
class ProbeCells:
    """Cells (rows of the table), targets (names of classes, or float64) and donors of one probe.

    `donor_level` says whether all cells of a donor have the same value, as with a disease, and `grouped` whether donors
    are known.
    """

    column: str
    kind: Kind
    train: Int64[np.ndarray, " train"]
    test: Int64[np.ndarray, " test"]
    train_values: np.ndarray
    test_values: np.ndarray
    train_donors: Int64[np.ndarray, " train"]
    test_donors: Int64[np.ndarray, " test"]
    donor_level: bool
    grouped: bool


def split_donors(table: CellTable, config: CellsConfig) -> DonorSplit:
    """Exclude cells by rules and split the donors of the others; the split depends on the seed alone.

    ``⌊(1 − test_donors) × donors⌋`` are training donors; there is at least one training and one test donor. If a label
    column is constant within every donor (such as a condition), donors of each value of the first such column are
    split in the same proportion, and a value of two or more donors is among both training and test donors.

    Raises
    ------
    UserError
        For an unknown column, a rule of `exclude` or `only` that no cell meets, or rules that leave no cell.
    """
    rules = rules_of(table, config)
    kept, notes = apply_rules(rules, None, np.ones(len(table.obs), dtype=bool))
    if config.data.donor_key is None:
        codes = np.where(kept, np.cumsum(kept) - 1, -1).astype(np.int64)
        names = tuple(str(row) for row in np.flatnonzero(kept))
        if config.data.labels or config.data.regress:
            notes += ("no donor_key: training and test cells of the probes share donors, and scores are too high",)
    else:
        column = column_of(table, config.data.donor_key, "donor_key").astype(str).to_numpy()
        donors, inverse = np.unique(column[kept], return_inverse=True)
        names = tuple(str(name) for name in donors)
        codes = np.full(len(kept), -1, dtype=np.int64)
        codes[kept] = inverse
    strata = _stratum_of_donors(table, config, codes, len(names))
    key = Key.root(config.seed).fold("donor split")
    test = choose_test_donors(strata, config.data.test_donors, key)
    return DonorSplit(names, codes, test, config.data.donor_key is not None, notes, rules)


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

    Rules for one probe remove cells from this probe alone and do not affect the split of the donors. Cells without a
    known value are removed: missing or "Unknown" labels, and text that is not a number ("60-69"). So are cells of
    classes that fewer than two donors have, and test cells of classes that no training donor has. Then each donor
    keeps at most ``max_cells / donors`` cells, where ``donors`` counts the training or the test donors. A column has no
    probe if its training or test donors have fewer than two values left.

    Raises
    ------
    UserError
        As :func:`split_donors`.
    """
    split = split_donors(table, config)
    notes = list(split.notes)
    columns: list[tuple[Kind, str]] = [("label", column) for column in config.data.labels]
    columns += [("number", column) for column in config.data.regress]
    probes = [_choose_probe_cells(table, config, split, column, kind, notes) for kind, column in columns]
    return tuple(probe for probe in probes if probe is not None), tuple(notes)


def check_probes(table: CellTable, config: CellsConfig) -> tuple[str, ...]:
    """Find mistakes in the columns before a model is trained, and return the notes of :func:`probe_cells`.

    Raises
    ------
    UserError
        As :func:`split_donors`; also for a single donor, a label column of one class, or a column without numbers.
    """
    probed = (*config.data.labels, *config.data.regress)
    for entry in config.data.max_cells:
        column = entry.partition("=")[0]
        if column not in probed:
            hint = nearest(column, probed) if probed else "name it in labels (--labels), too"
            raise UserError(f"max_cells has no probe of {column!r}: {hint}")
    if not probed:
        rules_of(table, config)
        return ()
    split = split_donors(table, config)
    if len(split.names) < 2:
        raise UserError(
            f"{table.name}: column {config.data.donor_key!r} (donor_key) has one donor only, {split.names[0]!r}, and "
            "probes are tested on other donors: omit donor_key to split cells, or omit labels and regress"
        )
    for column in probed:
        kind: Kind = "label" if column in config.data.labels else "number"
        values, known = probe_values(table, column, kind)
        values = np.unique(values[known & apply_rules(split.rules, column, split.codes >= 0)[0]])
        if len(values) < 2:
            field, what = ("labels", "classes") if kind == "label" else ("regress", "numbers")
            found = f"only {str(values[0])!r}" if len(values) else "none"
            raise UserError(
                f"{table.name}: column {column!r} ({field}) has not two different {what}, {found}: omit it from {field}"
            )
    return probe_cells(table, config)[1]


def probe_values(table: CellTable, column: str, kind: Kind) -> tuple[np.ndarray, Bool[np.ndarray, " cells"]]:
    """Return a column's labels as text or its numbers, and which of them are known; a range is no number."""
    if kind == "label":
        series = column_of(table, column, "labels")
        values = series.astype(str).to_numpy().astype(str)
        return values, ~(series.isna().to_numpy() | is_missing(values))
    series = column_of(table, column, "regress")
    if not pd.api.types.is_numeric_dtype(series.dtype):
        series = pd.to_numeric(series.astype(str), errors="coerce")
    numbers = series.to_numpy(dtype=np.float64, na_value=np.nan)
    return numbers, np.isfinite(numbers)


def rules_of(table: CellTable, config: CellsConfig) -> tuple[Rule, ...]:
    """Read the rules of `exclude` and `only`, and check them against the table.

    The text before ``=`` is a column of obs, or the label or number column of a probe, a colon and a column of obs. If
    `only` has several values of a column, a cell needs one of them; if it has several columns, a cell needs each.

    Raises
    ------
    UserError
        For an unknown column, or a value that no cell has.
    """
    probed = sorted((*config.data.labels, *config.data.regress), key=len)  # names may contain colons: the longest wins
    rules, allowed = [], dict[tuple[str | None, str], list[tuple[np.ndarray, str]]]()
    for field in ("exclude", "only"):
        for entry in getattr(config.data, field):
            column, _, value = entry.partition("=")
            probe = None
            if column not in table.obs:
                probe = next((one for one in reversed(probed) if column.startswith(f"{one}:")), None)
                column = column.removeprefix(f"{probe}:")
            values = column_of(table, column, field).astype(str).to_numpy().astype(str)
            cells = np.asarray(values == value)
            if not cells.any():
                hint = nearest(value, np.unique(values).tolist())
                raise UserError(f"{table.name}: no cell has {column}={value} ({field}): {hint}")
            if field == "exclude":
                rules.append(Rule(probe, cells, f"with {column}={value}"))
            else:
                allowed.setdefault((probe, column), []).append((cells, f"{column}={value}"))
    for (probe, _), found in allowed.items():
        some = np.logical_or.reduce([cells for cells, _ in found])
        rules.append(Rule(probe, ~some, f"without {' or '.join(words for _, words in found)}"))
    return tuple(rules)


def apply_rules(
    rules: Sequence[Rule], probe: str | None, kept: Bool[np.ndarray, " cells"]
) -> tuple[Bool[np.ndarray, " cells"], tuple[str, ...]]:
    """Omit cells by the rules for one probe, or by those for all probes if `probe` is None.

    Returns the cells that were kept before and still are, and notes on how many each rule omitted.

    Raises
    ------
    UserError
        If no cell is kept.
    """
    start, whose = ("", "the probes") if probe is None else (f"{probe}: ", f"the probe of {probe}")
    left, notes = kept, []
    for rule in rules:
        if rule.probe == probe:
            omitted = cells_in_words(int((left & rule.cells).sum()))
            notes.append(f"{start}{omitted} {rule.why} omitted{' from the probes' if probe is None else ''}")
            left = left & ~rule.cells
    if kept.any() and not left.any():
        raise UserError(f"exclude and only leave no cell for {whose}: remove a rule")
    return left, tuple(notes)


def column_of(table: CellTable, name: str, field: str) -> "pd.Series[str]":
    """Return a column of obs; `field` is the field of the configuration that names it, for the error."""
    if name not in table.obs:
        known = [str(column) for column in table.obs]
        raise UserError(f"{table.name}: obs has no column {name!r} ({field}): {nearest(name, known)}")
    column: pd.Series[str] = table.obs[name]
    return column


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
    kept, omitted = apply_rules(split.rules, column, split.codes >= 0)
    notes += omitted
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
    donor_level = split.grouped and _constant_in_donors(values, split.codes, kept)
    on_test = split.test[split.codes]  # code -1 is not kept
    key = Key.root(config.seed).fold("donor cells")
    most = int(dict(entry.split("=", 1) for entry in config.data.max_cells).get(column, _MAX_CELLS))
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
    for side, rows in (("training", train), ("test", test)):
        if len(np.unique(values[rows])) < 2:
            notes.append(f"{column}: no probe, as the {side} donors have fewer than two values")
            return None
    donors = split.codes
    return ProbeCells(
        column, kind, train, test, values[train], values[test], donors[train], donors[test], donor_level, split.grouped
    )


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
