"""Rules for the cells that probes use, such as ``condition=control``, for all probes or for that of one column."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Bool

from r2mae.cells.config import CellsConfig
from r2mae.errors import UserError, nearest

if TYPE_CHECKING:
    import pandas as pd

    from r2mae.cells.table import CellTable


class Rule(NamedTuple):
    """One rule of `exclude` or `only`: its field, its probe (None for all), column and value, and the cells with it."""

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
    data, rules = config.data, []
    probed = (*data.labels, *data.regress)
    for field, entry in (*(("exclude", one) for one in data.exclude), *(("only", one) for one in data.only)):
        column, _, value = entry.partition("=")
        probe = None
        if column not in table.obs.columns and ":" in column:
            # Names may contain colons, so the longest matching name of a probe is used.
            probe = max((one for one in probed if column.startswith(f"{one}:")), key=len, default=None)
            if probe is None:
                what = column.partition(":")[0]
                hint = nearest(what, probed) if probed else "name it in labels or regress"
                raise UserError(
                    f"{table.name}: {entry} ({field}) is for the probe of {what!r}, and there is none: {hint}"
                )
            column = column.removeprefix(f"{probe}:")
        values = column_of(table, column, field).astype(str).to_numpy().astype(str)
        cells = np.asarray(values == value)
        if not cells.any():
            hint = nearest(value, np.unique(values).tolist())
            raise UserError(f"{table.name}: no cell has {column}={value} ({field}): {hint}")
        rules.append(Rule(field, probe, column, value, cells))
    return tuple(rules)


def rule_columns(config: CellsConfig) -> tuple[str, ...]:
    """Return the columns in rules for all probes. In other rules, only the table shows which part is the column."""
    named = [entry.partition("=")[0] for entry in (*config.data.exclude, *config.data.only)]
    return tuple(name for name in named if ":" not in name)


def apply_rules(
    rules: Sequence[Rule], probe: str | None, kept: Bool[np.ndarray, " cells"]
) -> tuple[Bool[np.ndarray, " cells"], tuple[str, ...]]:
    """Omit cells by the rules for one probe, or by those for all probes if `probe` is None.

    If `only` has several values of a column, a cell needs one of them; if it has several columns, a cell needs each.
    Returns the cells that were kept before and still are, and notes on how many each rule omitted.

    Raises
    ------
    UserError
        If no cell is kept.
    """
    own = [rule for rule in rules if rule.probe == probe]
    if not own:
        return kept, ()
    start, where = "" if probe is None else f"{probe}: ", " from the probes" if probe is None else ""
    # Each rule of `exclude` alone, and those of `only` by column: the cells that go, and why.
    omitted = [(rule.cells, f"with {rule}") for rule in own if rule.field == "exclude"]
    for column in dict.fromkeys(rule.column for rule in own if rule.field == "only"):
        allowed = [rule for rule in own if rule.field == "only" and rule.column == column]
        hit = np.logical_or.reduce([rule.cells for rule in allowed])
        omitted.append((~hit, f"without {' or '.join(map(str, allowed))}"))
    left, notes = kept.copy(), []
    for cells, why in omitted:
        notes.append(f"{start}{cells_in_words(int((left & cells).sum()))} {why} omitted{where}")
        left &= ~cells
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
