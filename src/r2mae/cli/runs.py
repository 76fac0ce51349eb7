"""``r2mae runs [DIR]``: print a table of run folders with their states."""

from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

from r2mae.training.fields import argument

_STYLES = {"finished": "green", "running": "cyan", "stopped": "yellow", "damaged": "red"}


@dataclass(frozen=True)
class Options:
    """List the run folders below a folder with their states.

    They are finished, trained (not measured yet), running, stopped (the same command resumes it), new, or damaged.

    Parameters
    ----------
    folder : str
        Folder to search.
    json : bool
        Print JSON, for scripts.

    Examples
    --------
    r2mae runs runs/compare-digits
    """

    folder: str = argument("runs", metavar="DIR")
    json: bool = False


def run(options: Options) -> int:
    """Run the command."""
    from rich.markup import escape
    from rich.table import Table

    from r2mae.compare.run_states import find_runs
    from r2mae.files import print_json
    from r2mae.terminal import Terminal

    states = find_runs(Path(options.folder))
    if options.json:
        print_json([asdict(state) for state in states])
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
    console.print(f"{summary} in {options.folder}", highlight=False, soft_wrap=True, markup=False)
    return 0
