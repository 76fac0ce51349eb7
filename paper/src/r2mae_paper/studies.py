"""Every figure, table and study by name, and how much each computes, from ``studies.toml`` next to this module."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, Literal, TypeAlias

from r2mae.errors import UserError, unknown

Scale: TypeAlias = Literal["smoke", "small", "full"]
SCALES: Mapping[str, Scale] = MappingProxyType({"smoke": "smoke", "small": "small", "full": "full", "paper": "full"})
"""Scales by what people call them: the paper's settings have two names."""

PAPER = (
    *(f"fig1{letter}" for letter in "abcdefg"),
    *(f"fig2{letter}" for letter in "abcd"),
    *(f"fig{number}" for number in range(3, 10)),
    *(f"table{number}" for number in range(1, 10)),
)
"""All figures and tables of the paper, in its order."""


class Size(SimpleNamespace):
    """How much a study computes. Its fields are attributes, with tuples for lists; :meth:`Entry.size` makes it."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        super().__init__(**{name: _frozen(value) for name, value in fields.items()})

    @property
    def fields(self) -> Mapping[str, Any]:
        """Values by name."""
        return vars(self)

    def replace(self, **changes: Any) -> "Size":
        """Return the size with other values of some fields."""
        for name in changes.keys() - self.fields.keys():
            raise UserError(f"it has no {name}: omit --{name}")
        return Size({**self.fields, **changes})

    def with_seeds(self, seeds: int) -> "Size":
        """Return the size with another number of seeds."""
        if "seeds" not in self.fields:
            raise UserError("there are no runs under several seeds: omit --seeds")
        most = self.fields.get("parts")
        if seeds < 1 or (most is not None and seeds > most):
            allowed = "or more" if most is None else f"to {most}, as each holds out another part"
            raise UserError(f"--seeds must be 1 {allowed}, not {seeds}")
        return self.replace(seeds=seeds if isinstance(self.seeds, int) else tuple(range(seeds)))


@dataclass(frozen=True)
class Entry:
    """A figure, table or study of the list."""

    name: str
    """Of the study, and of its folder."""
    title: str
    """Description of one line."""
    paper: str
    """What the paper shows."""
    data: str
    """What it reads."""
    cost: Mapping[str, str]
    """Time by scale; it has the scales that there are."""
    module: str
    """Of this package; it has a :class:`r2mae_paper.study.Study` of this name among its `STUDIES`."""
    also: Sequence[str] = ()
    """Names of other figures or tables that are made of the same runs."""
    digits: int = 6
    """Number of digits of the numbers in the tables."""
    paper_rows: Sequence[str] = ()
    paper_baselines: Sequence[str] = ()
    """`paper_rows`, `paper_baselines`: what the paper prints of a table, which ``--rows paper`` takes."""
    chooses: Sequence[str] = ("seeds", "rows", "baselines")
    """Fields of the size that say which runs there are, and nothing of how each is trained and measured: earlier runs
    (``--earlier``) may have been made with others."""
    sizes_of: str = ""
    """Name of an entry that has the same sizes."""
    domain: str = ""
    """The domain whose preset the field `settings` of the size names; its values are filled in."""
    full: Mapping[str, Any] = field(default_factory=dict)
    small: Mapping[str, Any] = field(default_factory=dict)
    smoke: Mapping[str, Any] = field(default_factory=dict)
    """`full`, `small`, `smoke`: fields of the size at each scale; the small ones override the full ones."""

    def size(self, scale: Scale = "full", **changes: Any) -> Size:
        """Return how much is computed at a scale; `changes` replace fields."""
        if scale not in self.cost:
            raise UserError(f"--scale {scale} is for studies of training runs: here the small scale takes seconds")
        own = entry_of(self.sizes_of) if self.sizes_of else self
        fields = {**own.full, **({} if scale == "full" else own.small if scale == "small" else own.smoke)}
        if self.domain and "preset" in fields["settings"]:
            from r2mae.domains.lookup import get_domain

            preset = get_domain(self.domain).presets[fields["settings"]["preset"]]
            fields["settings"] = {**preset, **fields["settings"]}
        if "rows" in changes and not isinstance(fields.get("rows"), list):
            raise UserError("it has no rows: omit --rows")
        if tuple(changes.get("rows", ())) == ("paper",):
            if not self.paper_rows:
                raise UserError("the paper has no such table: name rows, or omit --rows")
            measured = [name for name in fields.get("baselines", ()) if name in self.paper_baselines]
            changes = {**({"baselines": measured} if "baselines" in fields else {}), **changes, "rows": self.paper_rows}
        return Size(fields).replace(**changes)


def _frozen(value: Any) -> Any:
    """Return a value with tuples in place of lists."""
    if isinstance(value, Mapping):
        return {name: _frozen(one) for name, one in value.items()}
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


def _read() -> dict[str, Entry]:
    listed = tomllib.loads(Path(__file__).with_name("studies.toml").read_text("utf-8"))
    entries = [Entry(name, **fields) for name, fields in listed.items()]
    found = {name: entry for entry in entries for name in (entry.name, *entry.also)}
    return {name: found[name] for name in (*PAPER, *(name for name in found if name not in PAPER))}


ENTRIES: Mapping[str, Entry] = MappingProxyType(_read())
"""The paper's figures and tables in its order, then our own studies. Several names may have the same entry."""


def entry_of(name: str) -> Entry:
    """Return the entry of a figure, table or study."""
    if name not in ENTRIES:
        raise unknown("figure, table or study", name, list(ENTRIES))
    return ENTRIES[name]
