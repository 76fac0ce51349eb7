"""Rules for the cells that probes use, such as ``condition=control``, for all probes or for that of one column."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool

from r2mae.cells.config import CellsConfig
from r2mae.errors import UserError, nearest

if TYPE_CHECKING:
    import pandas as pd

    from r2mae.cells.table import CellTable


@dataclass(frozen=True, eq=False)
class Rule:
    """One rule of `exclude` or `only`.

    Attributes
    ----------
    field : {"exclude", "only"}
        Whether cells with the value are omitted, or all other cells.
    probe : str or None
        The label or number column of the probe to which the rule applies; None for all probes.
    column, value : str
        Column of obs, and the value.
    cells : ndarray of bool, shape (cells,)
        Which cells of the table have the value.
    """

    field: str
    probe: str | None
    column: str
    value: str
    cells: Bool[np.ndarray, " cells"]

    def __str__(self) -> str:
        return f"{self.column}={self.value}"


def rules_of(table: "CellTable", config: CellsConfig) -> tuple[Rule, ...]:
    """Read a configuration's rules, and check them against the table.

    The text before ``=`` is a column of obs, or the label or number column of a probe, a colon and a column of obs.

    Raises
    ------
    UserError
        For an unknown column, a probe that does not exist, or a value that no cell has.
    """
    return tuple(
        _parse_rule(table, config, field, entry)
        for field, entries in (("exclude", config.data.exclude), ("only", config.data.only))
        for entry in entries
    )


def rule_columns(config: CellsConfig) -> tuple[str, ...]:
    """Return the columns in rules for all probes. In other rules, only the table shows which part is the column."""
    named = [entry.partition("=")[0] for entry in (*config.data.exclude, *config.data.only)]
    return tuple(name for name in named if ":" not in name)


def apply_rules(
    rules: Sequence[Rule], probe: str | None, kept: Bool[np.ndarray, " cells"]
) -> tuple[Bool[np.ndarray, " cells"], tuple[str, ...]]:
    """Omit cells by the rules for one probe, or by those for all probes if `probe` is None.

    If `only` has several values of a column, a cell needs one of them; if it has several columns, a cell needs each.

    Returns
    -------
    kept : ndarray of bool
        Cells that were kept before and still are.
    notes : tuple of str
        How many cells each rule omitted.

    Raises
    ------
    UserError
        If no cell is kept.
    """
    own = [rule for rule in rules if rule.probe == probe]
    if not own:
        return kept, ()
    start, where = "" if probe is None else f"{probe}: ", " from the probes" if probe is None else ""
    left, notes = kept.copy(), []
    for rule in (rule for rule in own if rule.field == "exclude"):
        notes.append(f"{start}{cells_in_words(int((left & rule.cells).sum()))} with {rule} omitted{where}")
        left &= ~rule.cells
    for column in dict.fromkeys(rule.column for rule in own if rule.field == "only"):
        allowed = [rule for rule in own if rule.field == "only" and rule.column == column]
        hit = np.logical_or.reduce([rule.cells for rule in allowed])
        wanted = " or ".join(str(rule) for rule in allowed)
        notes.append(f"{start}{cells_in_words(int((left & ~hit).sum()))} without {wanted} omitted{where}")
        left &= hit
    if kept.any() and not left.any():
        fields = " and ".join(dict.fromkeys(rule.field for rule in own))
        whose = "the probes" if probe is None else f"the probe of {probe}"
        raise UserError(f"{fields} ({', '.join(str(rule) for rule in own)}) leaves no cell for {whose}: remove a rule")
    return left, tuple(notes)


def column_of(table: "CellTable", name: str, field: str) -> "pd.Series[str]":
    """Return a column of obs; `field` is the field of the configuration that names it, for the error."""
    if name not in table.obs.columns:
        raise UserError(
            f"{table.name}: obs has no column {name!r} ({field}): {nearest(name, [str(c) for c in table.obs.columns])}"
        )
    column: pd.Series[str] = table.obs[name]
    return column


def cells_in_words(count: int) -> str:
    """Write "1 cell", "2 cells"."""
    return f"{count:,} cell{'' if count == 1 else 's'}"


def _parse_rule(table: "CellTable", config: CellsConfig, field: str, entry: str) -> Rule:
    name, _, value = entry.partition("=")
    probed = (*config.data.labels, *config.data.regress)
    probe, column = None, name
    if name not in table.obs.columns and ":" in name:
        # Names may contain colons, so the longest matching name of a probe is used.
        starts = [one for one in probed if name.startswith(f"{one}:")]
        if not starts:
            what = name.partition(":")[0]
            hint = nearest(what, probed) if probed else "name it in labels or regress"
            raise UserError(f"{table.name}: {entry} ({field}) is for the probe of {what!r}, and there is none: {hint}")
        probe = max(starts, key=len)
        column = name[len(probe) + 1 :]
    values = column_of(table, column, field).astype(str).to_numpy().astype(str)
    cells = np.asarray(values == value)
    if not cells.any():
        hint = nearest(value, np.unique(values).tolist())
        raise UserError(f"{table.name}: no cell has {column}={value} ({field}): {hint}")
    return Rule(field, probe, column, value, cells)
