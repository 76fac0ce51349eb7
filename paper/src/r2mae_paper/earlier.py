"""Runs of an earlier call, from its table of runs: seeds can be added, and tables made again, without their folders."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import r2mae
from r2mae.errors import UserError
from r2mae.files import jsonable
from r2mae.training.records import read_json
from r2mae_paper.artefact import Size
from r2mae_paper.run_tables import RUNS, digest_of, read_runs
from r2mae_paper.state import MADE

if TYPE_CHECKING:
    import pandas as pd

    from r2mae.sweep.runs import SweepRun

_log = logging.getLogger("r2mae")

PROBE = "2,000 steps or more"
"""How long the linear probe of images is trained: made.json of newer tables has it under ``probe``."""


@dataclass(frozen=True, eq=False)
class EarlierRuns:
    """The table of runs of an earlier call, and how it was made.

    Attributes
    ----------
    table : DataFrame
        A line a run, with its `seed` and the values of its row.
    made : mapping
        What ``made.json`` says of it.
    folder : Path
        Where it lies.
    """

    table: "pd.DataFrame"
    made: Mapping[str, Any]
    folder: Path

    def lines_of(self, cells: "Sequence[SweepRun]") -> dict[int, int]:
        """Return the line of each of these runs that the table has, by the run's position.

        Raises
        ------
        UserError
            If the table does not tell its runs apart.
        """
        told = {name for cell in cells for name in _known(cell)}
        columns = [name for name in self.table if name in told]
        lines = {key: line for line, key in enumerate(self._keys(columns))}
        wanted = [tuple(_canonical(_known(cell).get(name, float("nan"))) for name in columns) for cell in cells]
        if len(lines) < len(self.table) or len(set(wanted)) < len(wanted):
            raise UserError(f"the table of runs in {self.folder} does not tell its runs apart: train them again")
        return {place: lines[key] for place, key in enumerate(wanted) if key in lines}

    def check_data(self, taken: "Sequence[SweepRun]", now: Mapping[str, Sequence[str]]) -> None:
        """Refuse other data than the earlier runs were trained on, by their fingerprints, where these are known.

        Parameters
        ----------
        taken : sequence of SweepRun
            The runs that the table has.
        now : mapping
            Fingerprints of what the other runs are trained on, by name.

        Raises
        ------
        UserError
            If a set of the same name has another content.
        """
        before: Mapping[str, Sequence[str]] = self.made.get("data") or {}
        read = _sets(taken) & {*now}
        for name in sorted(read & {*before}):
            if set(before[name]) != set(now[name]):
                raise UserError(
                    f"{name} is not what the runs in {self.folder} were trained on: use the same data, or omit "
                    "--earlier"
                )
        if unknown := sorted(read - {*before}):
            _log.warning(
                "%s does not tell the content of what its runs were trained on: %s",
                self.folder / MADE,
                ", ".join(unknown),
            )

    def record(
        self, cells: "Sequence[SweepRun]", trained: "Sequence[SweepRun]", data: Mapping[str, Sequence[str]]
    ) -> dict[str, Any]:
        """Return what ``made.json`` says of the runs that were taken over.

        Parameters
        ----------
        cells, trained : sequence of SweepRun
            All runs, and those that have folders.
        data : mapping
            Fingerprints of what those with folders were trained on, by name.
        """
        if not trained and len(cells) == len(self.table):  # the same runs: so is what is known of them
            return {key: self.made[key] for key in ("trained_on", "data", "earlier") if key in self.made}
        read = _sets(cells)
        data = {name: prints for name, prints in {**(self.made.get("data") or {}), **data}.items() if name in read}
        folders = {cell.folder for cell in trained}
        taken = [cell.seed for cell in cells if cell.folder not in folders]
        kept = {key: self.made[key] for key in ("command", "size", "trained_on", "earlier") if key in self.made}
        commit = self.made["environment"].get("commit")
        told = {"runs": len(taken), "seeds": sorted(set(taken)), "commit": commit, **kept}
        return {"data": data, "earlier": told}

    def _keys(self, columns: Sequence[str]) -> list[tuple[str, ...]]:
        return [tuple(map(_canonical, line)) for line in self.table[list(columns)].itertuples(index=False)]


def read_earlier(folder: Path, title: str, size: Size) -> EarlierRuns:
    """Return the runs in the table of an earlier call of the same target, version and size.

    The size may differ in what only chooses runs (:attr:`r2mae_paper.artefact.Size.chooses`), such as the seeds.

    Raises
    ------
    UserError
        If the folder has no such table, or nothing tells how it was made, or it was made otherwise.
    """
    made = _made(folder)
    if made.get("title") != title:
        raise UserError(f"{folder} has the tables of another target: {made.get('title')!r}, where {title!r} is wanted")
    version = made["environment"]["versions"].get("r2mae")
    if version != r2mae.__version__:
        raise UserError(
            f"the tables in {folder} are of r2mae {version}, not {r2mae.__version__}: train their runs again"
        )
    before, now = made["size"], jsonable(asdict(size))
    for name in sorted({*before, *now} - {*size.chooses}):
        if before.get(name) != now.get(name):
            raise UserError(
                f"the runs in {folder} were made with {name} = {before.get(name)!r}, not {now.get(name)!r}: "
                "take the same scale and version, or omit --earlier"
            )
    files = sorted(folder.glob(f"*{RUNS}.csv"))
    if len(files) != 1:
        raise UserError(f"{folder} must have one table of runs, NAME{RUNS}.csv; found {len(files)}")
    (file,) = files
    told = made["tables"].get(file.name) if isinstance(made.get("tables"), dict) else None
    table = read_runs(file)
    if told is not None and told != digest_of(file):
        raise UserError(f"{file} is not as it was written: take a copy of it, or omit --earlier")
    if "probe_accuracy" in table and made.get("probe") != PROBE:
        _log.warning(
            "the probes in %s were trained for 15 epochs, and today's take %s: on fewer than 17,025 training images "
            "their scores differ, so do not add seeds to this table",
            folder,
            PROBE,
        )
    return EarlierRuns(table, made, folder)


def check_kept(out: Path, cells: "Sequence[SweepRun]", there: "Sequence[int]", finished: "Sequence[int]") -> None:
    """Refuse to write over a table with runs that have no folders, and that the new table would not have as they are.

    Parameters
    ----------
    out : Path
        The folder to write to.
    cells : sequence of SweepRun
        All runs of the new table.
    there, finished : sequence of int
        Positions of those that are taken from an earlier table or have finished folders; and of the latter.

    Raises
    ------
    UserError
        If the folder has such a table.
    """
    files = sorted(out.glob(f"*{RUNS}.csv"))
    if len(files) != 1 or not (out / MADE).exists():
        return
    table = read_runs(files[0])
    try:
        stays = EarlierRuns(table, {}, out).lines_of(cells).keys() & {*there}
    except UserError:  # its lines are not known one by one
        return
    folders = {file.parent for file in out.rglob("results.json")} - {cells[place].folder for place in finished}
    if (lost := len(table) - len(stays) - len(folders)) > 0:  # these are of runs that the new table leaves out
        raise UserError(
            f"{files[0]} has {lost} runs without folders that the new table would not have: give --earlier {out}, and "
            "as many seeds, to keep them, or choose another --out"
        )


def check_columns(earlier: EarlierRuns, tables: Mapping[str, Any]) -> None:
    """Refuse an earlier table that lacks what the new one has: its lines would count as without these scores.

    Raises
    ------
    UserError
        If a column is missing.
    """
    for name, rows in tables.items():
        if name.endswith(RUNS):
            missing = [column for row in rows for column in row if column not in earlier.table]
            if missing:
                raise UserError(
                    f"the table of runs in {earlier.folder} has no column {missing[0]!r}: omit --earlier; what "
                    "was trained now is kept"
                )


def _canonical(value: object) -> str:
    """Return a text that is the same for a value of a row and for what a table of it reads: "0.20" and 0.2."""
    try:
        return repr(float(str(value)))
    except ValueError:
        return str(value)


def _sets(cells: "Sequence[SweepRun]") -> set[str]:
    """Return the names of the files, folders or sets that runs read."""
    return {Path(cell.config.data).name for cell in cells}


def _known(cell: "SweepRun") -> dict[str, Any]:
    return {**cell.variant.values, "label": cell.variant.label, "seed": cell.seed}


def _made(folder: Path) -> dict[str, Any]:
    """Return what says how the tables of a folder were made."""
    try:
        made = read_json(folder / MADE)
    except UserError:
        made = {}
    environment = made.get("environment")
    known = isinstance(environment, dict) and isinstance(environment.get("versions"), dict)
    if not (known and isinstance(made.get("data") or {}, dict) and isinstance(made.get("size"), dict)):
        raise UserError(f"{folder} has no {MADE} that tells how its tables were made: name a folder of reproduce")
    return made
