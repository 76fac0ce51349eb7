"""How far a figure or table is, from the files in its folder alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import r2mae
from r2mae.errors import UserError
from r2mae.files import write_json
from r2mae.training.records import read_json

PLAN = ".plan.json"
"""File with what the last call was to compute: `scale`, `version` of r2mae, `unit`, the files of `finished` parts or
runs, and `tables`; until these are made, `former` has those of calls before."""

MADE = "made.json"
"""File with how the tables were made, for readers, and to be kept with them: `title`, `command`, `scale`, `size`, the
number of `parts` or `runs`, the `environment` of the call that wrote the tables as it began, and under `trained_on` the
machines, instructions, libraries and commits of the runs, each with its number of runs; `continued` where runs went on
elsewhere. `tables` has what tells the content of each, by its name."""


@dataclass(frozen=True)
class State:
    """How far a target is.

    Attributes
    ----------
    scale : str
        Of the last call; empty if its size has no name, or nothing tells.
    done, planned : int
        Finished parts or runs, and all; `planned` is 0 if that is not known.
    written : bool
        Whether tables and figures are there.
    unit : str
        "runs" or "parts".
    damaged : str
        The file that would tell the scale and cannot be read; empty if it can, or there is none.
    """

    scale: str = ""
    done: int = 0
    planned: int = 0
    written: bool = False
    unit: str = "runs"
    damaged: str = ""

    def in_words(self) -> str:
        """Return the state as a few words."""
        scale = f", {self.scale}" if self.scale else ""
        damaged = f"; {self.damaged} is damaged" if self.damaged else ""
        if self.planned:
            count = f"{self.done} of {self.planned} {self.unit}{scale}"
            gone = self.planned - self.done
            if self.written and gone:  # the tables were made of all
                return f"finished ({self.planned} {self.unit}{scale}; the files of {gone} are gone)"
            return f"finished ({count})" if self.written else count
        if self.written:
            return f"finished{scale}{damaged}"
        return f"{self.done} {self.unit} finished{damaged}" if self.done else f"not run{damaged}"


def write_plan(out: Path, scale: str, unit: str, finished: Sequence[Sequence[Path]]) -> None:
    """Say what a call is about to compute.

    Parameters
    ----------
    out : Path
        Folder of the target.
    scale, unit : str
        As in :class:`State`.
    finished : sequence of sequence of Path
        For each part or run the files that are there when it is finished.
    """
    files = [[str(path.relative_to(out)) for path in paths] for paths in finished]
    plan = {"scale": scale, "version": r2mae.__version__, "unit": unit, "finished": files, "tables": []}
    write_json(out / PLAN, {**plan, "former": _made_before(out)})


def write_tables(out: Path, files: Sequence[Path]) -> None:
    """Add to the plan which tables and figures were made of it.

    Those of former calls that were not made again are removed: they belong to other numbers.
    """
    for name in {*_made_before(out)} - {path.name for path in files}:
        (out / Path(name).name).unlink(missing_ok=True)
    plan = _in(out / PLAN) or {}
    plan.pop("former", None)
    write_json(out / PLAN, {**plan, "tables": [path.name for path in files]})


def write_made(out: Path, made: Mapping[str, Any]) -> None:
    """Say how the tables in a folder were made; see :data:`MADE`."""
    write_json(out / MADE, made)


def state_of(out: Path) -> State:
    """Return how far the target in a folder is; of folders without a plan what their files tell."""
    plan = _in(out / PLAN) or {}
    try:
        each = [all((out / path).is_file() for path in paths) for paths in plan["finished"]]
        tables = [(out / name).is_file() for name in plan["tables"]]
        scale, unit = str(plan["scale"]), str(plan["unit"])
        return State(scale, sum(each), len(each), bool(tables) and all(tables), unit)
    except (KeyError, TypeError):  # there is none, or it is damaged: what is kept with the tables may tell
        pass
    made = _in(out / MADE)
    done = sum(1 for _ in out.glob("runs/*/seed-*/results.json"))
    damaged = MADE if made is None else PLAN if (out / PLAN).exists() and not made else ""
    return State(str((made or {}).get("scale", "")), done, written=any(out.glob("*.csv")), damaged=damaged)


def version_of(out: Path) -> str:
    """Return the version of r2mae that computed the target in a folder last; empty if nothing tells."""
    plan, made = (_in(out / name) or {} for name in (PLAN, MADE))
    if "version" in plan:
        return str(plan["version"])
    environment = made.get("environment")
    versions = environment.get("versions") if isinstance(environment, dict) else None
    return str(versions.get("r2mae", "")) if isinstance(versions, dict) else ""


def _made_before(out: Path) -> list[str]:
    """Return the names of tables and figures of former calls: of the last one, and of those before it that stopped."""
    plan = _in(out / PLAN) or {}
    said = [plan.get(name) for name in ("tables", "former")]
    return sorted({str(name) for names in said if isinstance(names, list) for name in names})


def _in(file: Path) -> dict[str, Any] | None:
    """Return what a file says, nothing if there is none, and None if it is damaged."""
    try:
        return read_json(file)
    except UserError:
        return None if file.exists() else {}
