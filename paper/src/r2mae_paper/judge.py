"""``r2mae reproduce --claims [FOLDER…]``: judge the paper's claims by the results in some folders."""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from r2mae.cli.early import loading
from r2mae.errors import UserError

if TYPE_CHECKING:
    from r2mae_paper.claims import Verdict

_WITH_CLAIMS = ("--claims", "--markdown")


def show_claims(words: Sequence[str], names: Sequence[str], folders: Sequence[Path], page: str | None) -> int:
    """Judge all claims by the results in some folders, and print a table or write it into a page.

    Raises
    ------
    UserError
        If other options or names of figures, tables and studies are given, a folder does not exist, all folders are
        empty, or the page has no marks for the table.
    """
    for word in words:
        if word.startswith("--") and word.partition("=")[0] not in _WITH_CLAIMS:
            raise UserError(f"--claims only reads results: omit {word.partition('=')[0]}")
    if names:
        raise UserError(
            f"--claims judges all claims, and takes folders: r2mae reproduce --claims FOLDER, not {names[0]}"
        )
    with loading("scientific libraries"):
        from r2mae_paper.claims import Results, judge
        from r2mae_paper.claims.page import counts_of, write_into

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


def _print(verdicts: "Sequence[Verdict]") -> None:
    from rich.markup import escape
    from rich.table import Table

    from r2mae.terminal import Terminal

    terminal = Terminal()
    for part, group in groupby(verdicts, key=lambda one: one.claim.part):
        table = Table(title=part, title_justify="left", show_header=False, box=None, pad_edge=False, leading=1)
        for one in group:
            numbers = (("paper", one.paper_in_words), ("ours", one.ours_in_words))
            measured = ", ".join(f"{name} {number}" for name, number in numbers if number)
            lines = [f"{one.claim.place}: {one.claim.says}"]
            lines += [f"{one.claim.measure}: {measured}"] if measured else []
            table.add_row(escape(one.verdict), escape("\n".join([*lines, one.reason])))
        terminal.print(table)
        terminal.print()
