"""``r2mae reproduce NAME...``: compute, write and draw figures and tables of the paper."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from r2mae.cli.parsing import Parser
from r2mae.errors import UserError, unknown

if TYPE_CHECKING:
    from rich.console import Console

    from r2mae.experiments.reproduce.artefact import Progress

_OUT = Path("runs") / "reproduce"
_PAUSE = 10.0  # seconds between lines where there is no terminal for a bar


def run(words: Sequence[str]) -> int:
    """Run the command."""
    asked = not words or any(word in ("-h", "--help") for word in words)
    parser = Parser(
        "r2mae reproduce",
        "Compute figures and tables of the paper, and write each one's numbers (CSV) and figure (PNG, SVG) to a folder."
        + (f"\n\n{_listing()}" if asked else ""),
        "r2mae reproduce fig1b table5 --scale small",
    )
    parser.add_argument("names", metavar="NAME", nargs="*", type=str, help="Which ones.")
    parser.add_argument(
        "--scale", choices=["small", "full"], default="full", help="The paper's sizes, or small ones that take seconds."
    )
    parser.add_argument("--out", type=str, help=f"Folder, in which each has its own; by default {_OUT}.")
    parser.add_argument(
        "--jobs", type=int, default=1, help="Threads of the simulations; the numbers do not depend on it."
    )
    values = parser.read(words)
    if not values["names"]:
        parser.print_help()
        return 0

    from r2mae.experiments.reproduce.artefact import ARTEFACTS, get_artefact

    for name in values["names"]:  # before the first of them takes its minutes
        if name not in ARTEFACTS:
            raise unknown("artefact", name, ARTEFACTS)
    if values["jobs"] < 1:
        raise UserError(f"--jobs must be 1 or more, not {values['jobs']}")

    from rich.console import Console

    console = Console(stderr=True)
    for name in dict.fromkeys(values["names"]):
        artefact = get_artefact(name)
        begun = time.monotonic()
        with _progress(name, console) as progress:
            files = artefact.run(
                Path(values["out"] or _OUT) / name, scale=values["scale"], jobs=values["jobs"], progress=progress
            )
        print(f"{artefact.TITLE} ({time.monotonic() - begun:.0f} s)")
        for file in files:
            print(f"  {file}")
    return 0


def _listing() -> str:
    """Return every artefact with its title."""
    from r2mae.experiments.reproduce.artefact import ARTEFACTS, get_artefact

    width = max(map(len, ARTEFACTS)) + 2
    return "NAME is one of:\n" + "\n".join(f"  {name:<{width}}{get_artefact(name).TITLE}" for name in ARTEFACTS)


@contextmanager
def _progress(name: str, console: "Console") -> "Iterator[Progress]":
    """Show a bar with a time to finish, or a line now and then in a file or pipe."""
    from rich.progress import Progress as Bar

    from r2mae.training.progress import time_columns

    told = time.monotonic()
    with Bar(*time_columns(counted=False), console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(name, total=None)

        def update(done: int, total: int) -> None:
            nonlocal told
            bar.update(task, completed=done, total=total)
            if bar.disable and time.monotonic() - told > _PAUSE:
                told = time.monotonic()
                console.print(f"{name}: {done / total:.0%}", soft_wrap=True, highlight=False)

        yield update
