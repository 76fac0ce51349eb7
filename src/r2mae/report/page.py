"""One page about any results: the paper's claims on top, then comparisons, reproductions and runs.

The page holds all that it shows, can be read without scripts and without a network, and looks like the report of a
comparison.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from r2mae.files import atomic_write
from r2mae.report.analysis import analyse
from r2mae.report.html import context, templates
from r2mae.report.sections import Section, kinds
from r2mae.report.wording import CONFIDENCE


@dataclass(frozen=True)
class _Place:
    """A section with its id and its entry in the contents of the page, and what templates show of its comparison."""

    name: str
    entry: str
    section: Section
    context: dict[str, Any] | None


def write_page(path: str | Path, title: str, sections: Sequence[Section], claims: Section | None = None) -> None:
    """Write the page, atomically.

    Parameters
    ----------
    path : str or Path
        The file.
    title : str
        Of the page.
    sections : sequence of Section
        What it shows, kind by kind.
    claims : Section, optional
        Shown before everything else: verdicts on the paper's claims.
    """
    with atomic_write(path) as file:
        file.write(render_page(title, sections, claims))


def render_page(title: str, sections: Sequence[Section], claims: Section | None = None) -> str:
    """Return the page; everything that comes from outside is escaped."""
    places = {
        kind: [_place(f"{kind.lower()}-{number}", section, group) for number, section in enumerate(group, 1)]
        for kind, group in kinds(sections).items()
    }
    shown = [place.context for group in places.values() for place in group if place.context]
    environment = templates()
    environment.tests["plain_number"] = _is_number
    return environment.get_template("page.html.j2").render(
        title=title,
        claims=claims,
        kinds=places,
        areas=[area for one in shown for area in one["areas"]],
        confidence=f"{CONFIDENCE:.0%}",
    )


def _place(name: str, section: Section, group: Sequence[Section]) -> _Place:
    alone = sum(other.title == section.title for other in group) == 1
    entry = section.title if alone else f"{section.title} ({section.folder})"
    comparison = section.comparison
    found = None if comparison is None else context(comparison, analyse(comparison), f"{name}-")
    return _Place(name, entry, section, found)


def _is_number(text: str) -> bool:
    try:
        return float(text) == float(text)
    except ValueError:
        return False
