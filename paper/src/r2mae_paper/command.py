"""``r2mae reproduce NAME...``: compute, write and draw figures and tables of the paper.

``--list`` lists them, and ``--claims`` says what results show of the paper's claims.
"""

import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from r2mae.cli.cluster import add_cluster, read_cluster
from r2mae.cli.early import loading
from r2mae.cli.parsing import Parser
from r2mae.errors import UserError
from r2mae_paper.state import state_of
from r2mae_paper.targets import ARTEFACTS, SCALES, Target, all_names, folder_of, target_of

_OUT = Path("runs") / "reproduce"
_WITH_LIST = ("--list", "--out")


def run(words: Sequence[str]) -> int:
    """Run the command."""
    asked = not words or any(word in ("-h", "--help") for word in words)
    parser = Parser(
        "r2mae reproduce",
        "Compute figures and tables of the paper, and write each one's numbers (CSV) and figure (PNG, SVG) to a folder."
        + (f"\n\n{_listing()}" if asked else ""),
        "r2mae reproduce fig1b table5 --scale small",
        "r2mae reproduce fig1f --curve accuracies.csv",
        "r2mae reproduce randomness-images --scale small --seeds 10 --jobs 2",
        "r2mae reproduce --list",
        "r2mae reproduce --claims paper/results runs/reproduce",
    )
    parser.add_argument("names", metavar="NAME", nargs="*", type=str, help="Which ones.")
    parser.add_argument(
        "--list",
        action="store_true",
        help="List all, or those named, with data, cost by scale, and what of them is finished in the folder --out.",
    )
    parser.add_argument(
        "--scale",
        choices=list(SCALES),
        default="full",
        help="The paper's sizes (full, or paper, which is the same), or small ones: seconds for simulations, hours for "
        "training runs, which have a third scale, smoke, of a few steps.",
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
        "--seeds",
        metavar="N",
        type=int,
        help="For targets of runs: under how many seeds each row runs, in place of the scale's number. Finished runs "
        "are kept: a larger number adds seeds.",
    )
    parser.add_argument(
        "--earlier",
        metavar="FOLDER",
        type=str,
        help="For one target of runs: a folder with its tables and made.json, of the same scale and version. Runs that "
        "its NAME-runs.csv holds are taken from there and not trained, so that seeds can be added without their "
        "folders.",
    )
    parser.add_argument(
        "--curve",
        metavar="FILE.csv",
        nargs="+",
        type=str,
        default=[],
        help="For fig1f, fig1g and fig4: tables with the columns task, ratio (of pretraining) and accuracy "
        "(fractions), such as published ones; for fig2c also model. fig1f and fig2c need them.",
    )
    parser.add_argument(
        "--claims",
        metavar="FOLDER",
        nargs="*",
        type=str,
        help="Compute nothing; say of every claim of the paper what the results in these folders show. A folder holds "
        f"results of targets or comparisons, or folders that do; without one it is {_OUT}.",
    )
    parser.add_argument(
        "--markdown",
        metavar="FILE.md",
        type=str,
        help="With --claims: write the table into this page instead.",
    )
    values = parser.read(words)
    if values["claims"] is not None:
        from r2mae_paper.judge import show_claims

        folders = [Path(word) for word in values["claims"]] or [_OUT]
        return show_claims(words, values["names"], folders, values["markdown"])
    if values["markdown"] is not None:
        raise UserError("--markdown belongs to --claims: r2mae reproduce --claims FOLDER --markdown FILE.md")
    out = Path(values["out"] or _OUT)
    if values["list"]:
        return _list(words, values["names"], out)
    if not values["names"]:
        if words:
            raise UserError("name a target, before the options: r2mae reproduce fig1b --scale small, or --list for all")
        parser.print_help()
        return 0
    # All names are checked first, as computing one may take minutes.
    names = list(dict.fromkeys(map(folder_of, values["names"])))
    if values["jobs"] is not None and values["jobs"] < 1:
        raise UserError(f"--jobs must be 1 or more, not {values['jobs']}")
    cluster = read_cluster(values)

    with loading("scientific libraries"):
        from r2mae_paper.artefact import OfRuns, TakesCurves, get_artefact

    _check(names, values, cluster is not None)

    with loading("scientific libraries"):
        from r2mae.training.progress import counting_bar
        from r2mae_paper.runner import run_artefact

    for name in names:
        artefact = get_artefact(name)
        begun = time.monotonic()
        with counting_bar(name, counted=False) as progress:
            done = run_artefact(
                artefact,
                out / name,
                scale=SCALES[values["scale"]],
                seeds=values["seeds"],
                earlier=None if values["earlier"] is None else Path(values["earlier"]),
                curves=[Path(word) for word in values["curve"]] if isinstance(artefact, TakesCurves) else (),
                jobs=values["jobs"],
                cluster=cluster,
                progress=progress,
                again=values["again"],
                command=_command(name, values, curves=isinstance(artefact, TakesCurves)),
            )
        before = "runs from before" if isinstance(artefact, OfRuns) else "parts computed before"
        kept = f", {done.kept} of {done.parts} {before}" if done.kept else ""
        print(f"{artefact.TITLE} ({time.monotonic() - begun:.0f} s{kept})")
        for file in done.files:
            print(f"  {file}")
    return 0


def _check(names: Sequence[str], values: Mapping[str, Any], on_cluster: bool) -> None:
    """Refuse options that a target cannot use, before the first is computed."""
    from r2mae_paper.artefact import TakesCurves, get_artefact

    if values["earlier"] is not None and len(names) > 1:
        raise UserError("--earlier has the tables of one target: name one at a time")
    if values["curve"] and not any(isinstance(get_artefact(name), TakesCurves) for name in names):
        raise UserError("--curve belongs to fig1f, fig1g, fig2c and fig4: r2mae reproduce fig1f --curve FILE.csv")
    for name in names:
        _check_target(name, values, on_cluster)


def _check_target(name: str, values: Mapping[str, Any], on_cluster: bool) -> None:
    """Refuse what one target cannot use."""
    from r2mae_paper.artefact import OfRuns, OfTables, TakesCurves, get_artefact
    from r2mae_paper.runner import with_seeds

    artefact = get_artefact(name)
    try:
        size = artefact.SIZE.of(SCALES[values["scale"]])
    except UserError as error:
        raise UserError(f"{name}: {error}") from None
    if on_cluster and not isinstance(artefact, OfRuns):
        raise UserError(f"{name} is computed, and trains no runs: omit --cluster")
    if values["earlier"] is not None and not isinstance(artefact, OfRuns):
        raise UserError(f"{name} trains no runs: omit --earlier")
    if values["seeds"] is not None:
        with_seeds(artefact, size, values["seeds"])
    if values["again"] and isinstance(artefact, OfRuns):
        raise UserError(f"{name}: finished runs are not trained again: omit --again, or choose another --out")
    for option in ("jobs", "again"):
        if values[option] and isinstance(artefact, OfTables):
            raise UserError(f"{name} only reads tables of other targets: omit --{option}")
    if isinstance(artefact, TakesCurves):
        artefact.with_curves(size, [Path(word) for word in values["curve"]])


def _command(name: str, values: Mapping[str, Any], *, curves: bool) -> str:
    """Return what repeats a target's tables, but for folders and the number of jobs."""
    seeds = "" if values["seeds"] is None else f" --seeds {values['seeds']}"
    files = f" --curve {shlex.join(values['curve'])}" if curves and values["curve"] else ""
    return f"r2mae reproduce {name} --scale {values['scale']}{seeds}{files}"


def _list(words: Sequence[str], names: Sequence[str], out: Path) -> int:
    """Print a line for each target: name, state, title, data and cost."""
    for word in words:
        if word.startswith("--") and word.partition("=")[0] not in _WITH_LIST:
            raise UserError(f"--list computes nothing: omit {word.partition('=')[0]}")
    targets = [target_of(name) for name in names or all_names()]
    states = [state_of(out / one.folder).in_words() for one in targets]
    wide, wider = max(len(one.name) for one in targets), max(map(len, states))
    for one, state in zip(targets, states, strict=True):
        print(f"{one.name:<{wide}}  {state:<{wider}}  {one.title}; data: {one.data}; {_cost(one)}")
    return 0


def _cost(target: Target) -> str:
    """Return what a target takes by scale."""
    return "; ".join(f"{scale}: {cost}" for scale, cost in target.cost.items())


def _listing() -> str:
    """Return every target that can be made with its title."""
    width = max(map(len, ARTEFACTS)) + 2
    return "NAME is one of:\n" + "\n".join(f"  {name:<{width}}{target_of(name).title}" for name in ARTEFACTS)
