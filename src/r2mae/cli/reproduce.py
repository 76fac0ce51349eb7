"""``r2mae reproduce NAME...``: compute, write and draw figures and tables of the paper."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from r2mae.cli.cluster import add_cluster, read_cluster
from r2mae.cli.early import loading
from r2mae.cli.parsing import Parser
from r2mae.errors import UserError, unknown

if TYPE_CHECKING:
    from r2mae.reproduce.artefact import Size

_OUT = Path("runs") / "reproduce"


def run(words: Sequence[str]) -> int:
    """Run the command."""
    asked = not words or any(word in ("-h", "--help") for word in words)
    parser = Parser(
        "r2mae reproduce",
        "Compute figures and tables of the paper, and write each one's numbers (CSV) and figure (PNG, SVG) to a folder."
        + (f"\n\n{_listing()}" if asked else ""),
        "r2mae reproduce fig1b table5 --scale small",
        "r2mae reproduce fig1f --curve accuracies.csv",
    )
    parser.add_argument("names", metavar="NAME", nargs="*", type=str, help="Which ones.")
    parser.add_argument(
        "--scale",
        choices=["smoke", "small", "full"],
        default="full",
        help="The paper's sizes, or small ones: seconds for simulations, hours for training runs, which have a third "
        "scale, smoke, of a few steps.",
    )
    parser.add_argument("--out", type=str, help=f"Folder, with a subfolder for each NAME; by default {_OUT}.")
    parser.add_argument(
        "--jobs",
        type=int,
        help="Number of threads for simulations, or of processes for runs; by default 1. The results do not depend on "
        "it.",
    )
    add_cluster(parser)
    parser.add_argument(
        "--again", action="store_true", help="Compute again, without the saved results of earlier calls of this size."
    )
    parser.add_argument(
        "--curve",
        metavar="FILE.csv",
        nargs="+",
        type=str,
        default=[],
        help="For fig1f: tables with the columns task, ratio (of pretraining) and accuracy (fractions).",
    )
    values = parser.read(words)
    if not values["names"]:
        parser.print_help()
        return 0

    with loading("scientific libraries"):
        from r2mae.reproduce.artefact import ARTEFACTS, OfRuns, get_artefact

    for name in values["names"]:  # all names are checked first, as computing one may take minutes
        if name not in ARTEFACTS:
            raise unknown("artefact", name, ARTEFACTS)
    if values["jobs"] is not None and values["jobs"] < 1:
        raise UserError(f"--jobs must be 1 or more, not {values['jobs']}")
    cluster = read_cluster(values)
    if cluster is not None:
        for name in values["names"]:
            if not isinstance(get_artefact(name), OfRuns):
                raise UserError(f"{name} is computed, and trains no runs: leave --cluster out")
    sizes = _sizes(values["names"], values["curve"])

    with loading("scientific libraries"):
        from r2mae.reproduce.runner import run_artefact
        from r2mae.training.progress import counting_bar

    for name in dict.fromkeys(values["names"]):
        artefact = get_artefact(name)
        begun = time.monotonic()
        with counting_bar(name, counted=False) as progress:
            done = run_artefact(
                artefact,
                Path(values["out"] or _OUT) / name,
                scale=values["scale"],
                size=sizes.get(name),
                jobs=values["jobs"],
                cluster=cluster,
                progress=progress,
                again=values["again"],
            )
        kept = f", {done.kept} of {done.parts} parts computed before" if done.kept else ""
        print(f"{artefact.TITLE} ({time.monotonic() - begun:.0f} s{kept})")
        for file in done.files:
            print(f"  {file}")
    return 0


def _sizes(names: Sequence[str], curve: Sequence[str]) -> "dict[str, Size]":
    """Return the size of fig1f from the files of ``--curve``; the sizes of other artefacts come from ``--scale``."""
    if "fig1f" not in names:
        if curve:
            raise UserError("--curve belongs to fig1f: r2mae reproduce fig1f --curve FILE.csv")
        return {}
    from r2mae.reproduce.fig1f import read

    return {"fig1f": read([Path(word) for word in curve])}


def _listing() -> str:
    """Return every artefact with its title."""
    from r2mae.reproduce.artefact import ARTEFACTS, get_artefact

    width = max(map(len, ARTEFACTS)) + 2
    return "NAME is one of:\n" + "\n".join(f"  {name:<{width}}{get_artefact(name).TITLE}" for name in ARTEFACTS)
