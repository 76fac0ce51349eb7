"""The table of verdicts: counts, rows of words, and the generated part of the page about reproduction."""

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from r2mae.errors import UserError
from r2mae.files import atomic_write
from r2mae_paper.claims.claim import MEANING, Verdict

COLUMNS = ("where", "the paper says", "measure", "paper", "ours (95 % interval)", "verdict", "why")
"""Headings of :func:`runs_of`."""

BEGIN = "<!-- claims: made by `r2mae reproduce --claims`, do not edit -->"
END = "<!-- end of claims -->"
"""Marks in a page between which the table is written."""


def counts_of(verdicts: Sequence[Verdict]) -> str:
    """Return how many claims have which verdict, in words."""
    counts = Counter(one.verdict for one in verdicts)
    return f"{len(verdicts)} claims: " + ", ".join(f"{counts[word]} {word}" for word in MEANING if counts[word])


def runs_of(verdict: Verdict) -> tuple[str, ...]:
    """Return a row of the table."""
    claim = verdict.claim
    numbers = (verdict.paper_in_words, verdict.ours_in_words)
    return (claim.place, claim.says, claim.measure, *numbers, verdict.verdict, verdict.reason)


def markdown(verdicts: Sequence[Verdict]) -> str:
    """Return counts, what the verdicts mean, and a table for each part of the paper."""
    lines = [f"{counts_of(verdicts)}.", "", "| verdict | what it means |", "|---|---|"]
    lines += [f"| **{word}** | {meaning} |" for word, meaning in MEANING.items()]
    for part, group in groupby(verdicts, key=lambda one: one.claim.part):
        lines += ["", f"### {part}", "", _line(COLUMNS), _line(["---"] * len(COLUMNS))]
        lines += [_line([f"**{cell}**" if cell in MEANING else cell for cell in runs_of(one)]) for one in group]
    return "\n".join(lines)


def write_into(page: Path, verdicts: Sequence[Verdict]) -> None:
    """Write the table into a page, in place of what stands between its two marks.

    Raises
    ------
    UserError
        If the page cannot be read, or lacks a mark.
    """
    try:
        text = page.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        raise UserError(f"{page} cannot be read: --markdown names a page with the lines {BEGIN} and {END}") from None
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(END) < text.index(BEGIN):
        raise UserError(f"{page} has no place for the table: it needs the line {BEGIN}, and below it {END}")
    before, after = text[: text.index(BEGIN)], text[text.index(END) :]
    with atomic_write(page) as opened:
        opened.write(f"{before}{BEGIN}\n\n{markdown(verdicts)}\n\n{after}")


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"
