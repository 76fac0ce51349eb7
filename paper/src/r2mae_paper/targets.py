"""Every figure and table of the paper by name: what makes it here, from which data, and at which cost.

Nothing is imported to list them: a module's title, data and cost are read from its source.
"""

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from r2mae.errors import unknown

Scale: TypeAlias = Literal["smoke", "small", "full"]
SCALES: Mapping[str, Scale] = MappingProxyType({"smoke": "smoke", "small": "small", "full": "full", "paper": "full"})
"""Scales by what people call them: the paper's settings have two names."""

_MODULES = {
    "fig1a": "fig1a",
    "fig1b": "fig1b",
    "fig1c": "fig1c",
    "fig1d": "fig1d",
    "fig1e": "fig1e",
    "fig1f": "fig1f",
    "fig1g": "fig1g",
    "fig2a": "fig2a",
    "fig2b": "fig2b",
    "fig2c": "fig2c",
    "fig2d": "fig2a",
    "fig3": "fig3",
    "fig4": "fig4",
    "fig5": "fig2b",
    "fig6": "fig2b",
    "fig7": "fig2b",
    "fig8": "fig8",
    "fig9": "fig9",
    "table1": "table1",
    "table2": "table2",
    "table3": "table3",
    "table4": "table4",
    "table5": "table5",
    "table6": "table6",
    "table7": "table4",
    "table8": "table6",
    "table9": "table9",
    "table3-mtdna": "table3_mtdna",
    "table3-ablation": "table3_ablation",
    "r2mae-vs-fixed": "readings",
    "ranges": "ranges",
    "validation": "validation",
    "bias-variance": "bias_variance",
    "estimators": "estimators",
    "cells-width": "cells_width",
    "text-ratios": "text_ratios",
    "randomness": "randomness_summary",
    **{
        f"{study}-{domain}": f"{study}_{domain}"
        for study in ("randomness", "precision")
        for domain in ("images", "cells", "text", "genome")
    },
}
_PACKAGE = "r2mae_paper"
ARTEFACTS = {name: f"{_PACKAGE}.{module}" for name, module in _MODULES.items()}
"""Modules by name. Several names have one module where the same runs give several figures or tables."""

PAPER = (
    *(f"fig1{letter}" for letter in "abcdefg"),
    *(f"fig2{letter}" for letter in "abcd"),
    *(f"fig{number}" for number in range(3, 10)),
    *(f"table{number}" for number in range(1, 10)),
)
"""All figures and tables of the paper, in its order."""

_DECLARED = ("TITLE", "DATA", "COST")


@dataclass(frozen=True)
class Target:
    """A line of the list.

    Attributes
    ----------
    name, title, data : str
    folder : str
        Name of the folder of its files: that of the first name of its module.
    cost : mapping
        Time by scale.
    """

    name: str
    title: str
    data: str
    folder: str
    cost: Mapping[str, str]


def all_names() -> list[str]:
    """Return the names of the paper's figures and tables in its order, then those of studies beside it."""
    return [*PAPER, *(name for name in ARTEFACTS if name not in PAPER)]


def target_of(name: str) -> Target:
    """Return what is known of a figure, table or study.

    Raises
    ------
    UserError
        If there is none of this name.
    """
    if name not in ARTEFACTS:
        raise unknown("target", name, all_names())
    said = _declared(_MODULES[name])
    return Target(name, said["TITLE"], said["DATA"], folder_of(name), said["COST"])


def folder_of(name: str) -> str:
    """Return the first name of a target's module, which is that of its folder.

    Raises
    ------
    UserError
        If there is none of this name.
    """
    if name not in ARTEFACTS:
        raise unknown("target", name, all_names())
    return next(other for other, module in ARTEFACTS.items() if module == ARTEFACTS[name])


@cache
def _declared(module: str) -> dict[str, Any]:
    """Return the constants of a module that describe it, without importing it: its libraries take seconds."""
    source = Path(__file__).with_name(f"{module}.py").read_text(encoding="utf-8")
    return {
        target.id: ast.literal_eval(statement.value)
        for statement in ast.parse(source).body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name) and target.id in _DECLARED
    }
