"""The tables that are made of verdicts: all claims, and the seeds that those need which are open.

``r2mae reproduce --claims [FOLDER…]`` prints them, or writes them into a page.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from r2mae.errors import UserError
from r2mae.files import atomic_write
from r2mae.terminal import Terminal
from r2mae_paper.claims import Results, judge
from r2mae_paper.claims.claim import MEANING, Verdict

COLUMNS = ("where", "the paper says", "number", "paper", "ours (95 % interval)", "verdict", "why")
"""Headings of the table of claims."""

_SEEDS = ("claim", "seeds that would decide it", "seeds that 24 hours of two cores train", "verdict")


def counts_of(verdicts: Sequence[Verdict]) -> str:
    """Return how many claims have which verdict, in words."""
    counts = Counter(one.verdict for one in verdicts)
    return f"{len(verdicts)} claims: " + ", ".join(f"{counts[word]} {word}" for word in MEANING if counts[word])


def row_of(verdict: Verdict) -> tuple[str, ...]:
    """Return a row of the table of claims."""
    claim = verdict.claim
    return (
        claim.place,
        claim.sentence,
        claim.number,
        verdict.paper,
        verdict.ours,
        f"**{verdict.verdict}**",
        verdict.reason,
    )


def claims_table(verdicts: Sequence[Verdict]) -> str:
    """Return counts, what the verdicts mean, and a table for each part of the paper."""
    lines = [f"{counts_of(verdicts)}.", "", "| verdict | what it means |", "|---|---|"]
    lines += [f"| **{word}** | {meaning} |" for word, meaning in MEANING.items()]
    for part, group in groupby(verdicts, key=lambda one: one.claim.part):
        lines += ["", f"### {part}", "", _line(COLUMNS), _line(["---"] * len(COLUMNS)), *map(_line, map(row_of, group))]
    return "\n".join(lines)


def seeds_table(verdicts: Sequence[Verdict]) -> str:
    """Return a table of the seeds that would decide what is open."""
    lines = [_line(_SEEDS), _line(["---"] * len(_SEEDS))]
    for one in verdicts:
        if any(not math.isnan(each.seeds) for each in one.found):
            affordable = dict.fromkeys(str(case.affordable) for case in one.claim.cases if case.affordable)
            lines.append(_line((one.claim.sentence, one.seeds, "; ".join(affordable), f"**{one.verdict}**")))
    return "\n".join(lines)


TABLES: Mapping[tuple[str, str], Callable[[Sequence[Verdict]], str]] = {
    ("<!-- claims: made by `r2mae reproduce --claims`, do not edit -->", "<!-- end of claims -->"): claims_table,
    ("<!-- seeds: made by `r2mae reproduce --claims`, do not edit -->", "<!-- end of seeds -->"): seeds_table,
}
"""Tables by the marks in a page between which they are written."""


def write_into(page: Path, verdicts: Sequence[Verdict]) -> None:
    """Write the tables into a page that it has marks for, in place of what is between them."""
    try:
        text = page.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        text = ""
    asked = {marks: table for marks, table in TABLES.items() if any(mark in text for mark in marks)}
    for begin, end in asked or TABLES:
        if text.count(begin) != 1 or text.count(end) != 1 or text.index(end) < text.index(begin):
            raise UserError(f"{page} has no place for the table: it needs the line {begin}, and below it {end}")
    for (begin, end), table in asked.items():
        text = f"{text[: text.index(begin)]}{begin}\n\n{table(verdicts)}\n\n{text[text.index(end) :]}"
    with atomic_write(page) as opened:
        opened.write(text)


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
