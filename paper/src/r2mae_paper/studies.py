"""Every figure, table and study by name, from ``studies.toml`` next to this module: to list them imports none."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal, TypeAlias

from r2mae.errors import unknown

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


@dataclass(frozen=True)
class Entry:
    """A line of the list.

    Attributes
    ----------
    name : str
        Of the study, and of its folder.
    title : str
        Description of one line.
    paper : str
        What the paper shows.
    data : str
        What it reads.
    cost : mapping
        Time by scale.
    module : str
        Of this package; it has a :class:`r2mae_paper.study.Study` of this name among its `STUDIES`.
    also : sequence of str
        Names of other figures or tables that are made of the same runs.
    """

    name: str
    title: str
    paper: str
    data: str
    cost: Mapping[str, str]
    module: str
    also: Sequence[str] = ()


def _read() -> dict[str, Entry]:
    listed = tomllib.loads(Path(__file__).with_name("studies.toml").read_text("utf-8"))
    entries = [Entry(name, **fields) for name, fields in listed.items()]
    found = {name: entry for entry in entries for name in (entry.name, *entry.also)}
    return {name: found[name] for name in (*PAPER, *(name for name in found if name not in PAPER))}


ENTRIES: Mapping[str, Entry] = MappingProxyType(_read())
"""The paper's figures and tables in its order, then our own studies. Several names may have the same entry."""


def entry_of(name: str) -> Entry:
    """Return the entry of a figure, table or study.

    Raises
    ------
    UserError
        If there is none of this name.
    """
    if name not in ENTRIES:
        raise unknown("figure, table or study", name, list(ENTRIES))
    return ENTRIES[name]


def folder_of(name: str) -> str:
    """Return the name of the folder of a figure, table or study.

    Raises
    ------
    UserError
        If there is none of this name.
    """
    return entry_of(name).name
