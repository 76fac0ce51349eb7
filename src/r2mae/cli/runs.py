"""``r2mae runs [DIR]``: print a table of run folders with their states."""

from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

from r2mae.fields import argument

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
    from rich.text import Text

    from r2mae.compare.run_states import find_runs
    from r2mae.files import print_json
    from r2mae.terminal import print_table

    states = find_runs(Path(options.folder))
    if options.json:
        print_json([asdict(state) for state in states])
        return 0
    rows = []
    for state in states:
        word = Text(state.state, _STYLES.get(state.state, ""))
        score = None if state.score is None else f"{state.score:.4f}"
        rows.append((state.path, Path(state.data).name, state.scheme, state.seed, word, state.step, score))
    print_table(("run", "data", "scheme", "seed", "state", "step", "score"), rows)
    counts = Counter(state.state for state in states).most_common()
    print(f"{', '.join(f'{count} {name}' for name, count in counts) or 'no runs'} in {options.folder}")
    return 0
