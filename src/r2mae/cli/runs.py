"""``r2mae runs [DIR]``: print a table of run folders with their states."""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from r2mae.cli.parsing import Parser
from r2mae.cli.show import print_json
from r2mae.terminal import Terminal

_STYLES = {"finished": "green", "running": "cyan", "stopped": "yellow", "damaged": "red"}


def run(words: Sequence[str]) -> int:
    """Run the command."""
    parser = Parser(
        "r2mae runs",
        "List the run folders below a folder with their states: finished, trained (not measured yet), running, stopped "
        "(the same command resumes it), new, or damaged.",
        "r2mae runs runs/compare-digits",
    )
    parser.add_argument("folder", metavar="DIR", nargs="?", type=str, default="runs", help="Folder to search.")
    parser.add_argument("--json", action="store_true", help="Print JSON, for scripts.")
    values = parser.read(words)

    from r2mae.sweep.run_states import find_runs

    states = find_runs(Path(values["folder"]))
    if values["json"]:
        print_json([dataclasses.asdict(state) for state in states])
        return 0
    table = Table("run", "data", "scheme", "seed", "state", "step", "score", box=None, pad_edge=False)
    for state in states:
        style = _STYLES.get(state.state, "")
        table.add_row(
            escape(state.path),
            escape(Path(state.data).name),
            escape(state.scheme),
            "" if state.seed is None else str(state.seed),
            f"[{style}]{state.state}[/]" if style else state.state,
            str(state.step),
            "" if state.score is None else f"{state.score:.4f}",
        )
    console = Terminal()
    if not console.is_terminal:
        console = Terminal(width=max(console.width, 140))
    console.print(table)
    counts = Counter(state.state for state in states)
    summary = ", ".join(f"{count} {name}" for name, count in counts.most_common()) or "no runs"
    console.print(f"{summary} in {values['folder']}", highlight=False, soft_wrap=True, markup=False)
    return 0
