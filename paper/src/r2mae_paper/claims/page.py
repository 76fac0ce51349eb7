"""The table of all claims with their verdicts.

``r2mae reproduce --claims [FOLDER…]`` prints it with all reasons, or writes it into a page.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from r2mae.errors import UserError
from r2mae.files import atomic_write
from r2mae.terminal import Terminal
from r2mae_paper.claims import Results, judge
from r2mae_paper.claims.claim import MEANING, Verdict

COLUMNS = ("where", "the paper says", "number", "paper", "ours (95 % interval)", "verdict", "seeds that decide, or why")
"""Headings of the table of claims."""

BEGIN, END = "<!-- claims: made by `r2mae reproduce --claims`, do not edit -->", "<!-- end of claims -->"
"""Marks in a page between which the table is written."""


def counts_of(verdicts: Sequence[Verdict]) -> str:
    """Return how many claims have which verdict, in words."""
    counts = Counter(one.verdict for one in verdicts)
    return f"{len(verdicts)} claims: " + ", ".join(f"{counts[word]} {word}" for word in MEANING if counts[word])


def row_of(verdict: Verdict) -> tuple[str, ...]:
    """Return a row of the table of claims. It has the reason where there is no number of ours."""
    claim, word = verdict.claim, f"**{verdict.verdict}**"
    last = verdict.seeds if verdict.ours else verdict.reason
    return claim.place, claim.sentence, claim.number, verdict.paper, verdict.ours, word, last


def claims_table(verdicts: Sequence[Verdict]) -> str:
    """Return counts, what the verdicts mean, and a table for each part of the paper."""
    lines = [f"{counts_of(verdicts)}.", "", "| verdict | what it means |", "|---|---|"]
    lines += [f"| **{word}** | {meaning} |" for word, meaning in MEANING.items()]
    for part, group in groupby(verdicts, key=lambda one: one.claim.part):
        lines += ["", f"### {part}", "", _line(COLUMNS), _line(["---"] * len(COLUMNS)), *map(_line, map(row_of, group))]
    return "\n".join(lines)


def write_into(page: Path, verdicts: Sequence[Verdict]) -> None:
    """Write the table into a page that has marks for it, in place of what is between them."""
    try:
        text = page.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        text = ""
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(END) < text.index(BEGIN):
        raise UserError(f"{page} has no place for the table: it needs the line {BEGIN}, and below it {END}")
    with atomic_write(page) as opened:
        opened.write(f"{text[: text.index(BEGIN)]}{BEGIN}\n\n{claims_table(verdicts)}\n\n{text[text.index(END) :]}")


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def show_claims(names: Sequence[str], folders: Sequence[Path], page: str | None) -> int:
    """Judge all claims by the results in some folders, and print a table or write it into a page."""
    if names:
        raise UserError(
            f"--claims judges all claims, and takes folders: r2mae reproduce --claims FOLDER, not {names[0]}"
        )
    results = Results(folders)
    if results.empty:
        searched = ", ".join(map(str, folders))
        raise UserError(
            f"no results of a reproduction or a comparison in {searched}: r2mae reproduce NAME --out {folders[0]}"
        )
    verdicts = judge(results)
    if page is None:
        _print(verdicts)
    else:
        write_into(Path(page), verdicts)
    print(f"{counts_of(verdicts)}{f' ({page})' if page else ''}")
    return 0


def _print(verdicts: Sequence[Verdict]) -> None:
    terminal = Terminal()
    for part, group in groupby(verdicts, key=lambda one: one.claim.part):
        table = Table(title=part, title_justify="left", show_header=False, box=None, pad_edge=False, leading=1)
        for one in group:
            numbers = (("paper", one.paper), ("ours", one.ours))
            measured = ", ".join(f"{name} {number}" for name, number in numbers if number)
            lines = [f"{one.claim.place}: {one.claim.sentence}"]
            lines += [f"{one.claim.number}: {measured}"] if measured else []
            table.add_row(escape(one.verdict), escape("\n".join([*lines, one.reason])))
        terminal.print(table)
        terminal.print()
