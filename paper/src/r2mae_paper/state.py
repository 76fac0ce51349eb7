"""The folder of a study: how far it is, how its tables were made, and its table of runs.

A table of runs replaces the folders of its runs (``--earlier``): seeds are added and tables made again without them.
"""

import hashlib
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import r2mae
from r2mae.errors import UserError
from r2mae.files import jsonable, read_confined, write_json
from r2mae.images.config import ImagesConfig
from r2mae.training.config import fields_of
from r2mae.training.folder import read_json

if TYPE_CHECKING:
    import pandas as pd

    from r2mae.compare.runs import SweepRun
    from r2mae_paper.studies import Entry, Size

_MACHINE = [name for name, (group, _) in fields_of(ImagesConfig).items() if group == "machine"]
"""Settings that set where runs are computed, not what."""

MADE = "made.json"
"""File with how the tables were made, for readers, and to be kept with them: `title`, `command`, `scale`, `size`, the
number of `parts` or `runs`, the `environment` of the call that wrote the tables as it began, and under `trained_on` the
machines, instructions, libraries and commits of the runs, each with its number of runs; `continued` where runs resumed
on another machine. `tables` has the digest of each, by its name, and `figures` the names of figures. While a call
computes it also has :data:`BEGUN`; all else is then of the call before."""

BEGUN = "begun"
"""Entry of ``made.json`` about a call that has not written its tables: `scale`, `unit` ("runs" or "parts"), and for
each the file that is there when it is `finished`, or null."""

RUNS = "-runs"
"""End of the name of the table that has a line for each run."""

PROBE = "2,000 steps or more"
"""How long the linear probe of images is trained: newer ``made.json`` have it under ``probe``."""

_HINT = "take a copy of the table, or make it again with r2mae reproduce"
_log = logging.getLogger("r2mae")


@dataclass(frozen=True)
class State:
    """How far a study is."""

    scale: str = ""
    """Of the last call; empty if its size has no name, or no file has it."""
    done: int = 0
    planned: int = 0
    """`done`, `planned`: finished parts or runs, and all; `planned` is 0 if that is not known."""
    written: bool = False
    """Whether its tables are there."""
    unit: str = "runs"
    """"runs" or "parts"."""
    damaged: bool = False
    """Whether ``made.json`` cannot be read."""

    def in_words(self) -> str:
        """Return the state as a few words."""
        scale = f", {self.scale}" if self.scale else ""
        damaged = f"; {MADE} is damaged" if self.damaged else ""
        if self.written:
            return f"finished ({self.planned} {self.unit}{scale})" if self.planned else f"finished{scale}{damaged}"
        return f"{self.done} of {self.planned} {self.unit}{scale}" if self.planned else f"not run{damaged}"


def begin(out: Path, scale: str, unit: str, finished: Sequence[Path | None]) -> None:
    """Record what a call is about to compute: for each part or run the file that it ends with, if any."""
    files = [None if path is None else str(path.relative_to(out)) for path in finished]
    write_json(out / MADE, {**json_in(out / MADE), BEGUN: {"scale": scale, "unit": unit, "finished": files}})


def finish(out: Path, tables: Sequence[Path], figures: Sequence[Path], made: Mapping[str, Any]) -> None:
    """Record how tables and figures were made.

    Those of former calls that were not made again are removed: they belong to other numbers.
    """
    before = json_in(out / MADE)
    listed = [before[key] for key in ("tables", "figures") if isinstance(before.get(key), dict | list)]
    for name in {str(name) for names in listed for name in names} - {path.name for path in (*tables, *figures)}:
        (out / Path(name).name).unlink(missing_ok=True)
    digests = {path.name: digest_of(path) for path in tables}
    write_json(out / MADE, {**made, "tables": digests, "figures": [path.name for path in figures]})


def state_of(out: Path) -> State:
    """Return how far the study in a folder is."""
    made = json_in(out / MADE)
    try:
        if BEGUN in made:
            begun = made[BEGUN]
            each = [path is None or (out / path).is_file() for path in begun["finished"]]
            return State(str(begun["scale"]), sum(each), len(each), unit=str(begun["unit"]))
        tables = map(out.joinpath, made["tables"]) if made.get("tables") else out.glob("*.csv")
        written = any(path.is_file() for path in tables)
        unit = "parts" if "parts" in made else "runs"
        count, damaged = int(made.get(unit, 0)), not made and (out / MADE).exists()
        return State(str(made.get("scale", "")), count, count, written, unit, damaged)
    except (KeyError, TypeError, ValueError):
        return State(written=any(out.glob("*.csv")), damaged=True)


def version_in(record: Mapping[str, Any]) -> str:
    """Return the version of r2mae in the `environment` of a record; empty if it has none."""
    try:
        return str(record["environment"]["versions"]["r2mae"] or "")
    except (KeyError, TypeError):
        return ""


def json_in(file: Path) -> dict[str, Any]:
    """Return the content of a JSON file, which is empty if there is none, or it is damaged."""
    try:
        return read_json(file)
    except UserError:
        return {}


def digest_of(file: Path) -> str:
    """Return the digest of a file's content."""
    return hashlib.blake2b(read_confined(file), digest_size=16).hexdigest()


def read_runs(file: Path, columns: Collection[str] = ("seed",)) -> "pd.DataFrame":
    """Return a table of runs, a CSV file that must have some columns; refuse other files, and a part of a table.

    A part ends within a line, or has lines of another length than its head, or a word among numbers.
    """
    import pandas as pd

    from r2mae_paper.rows import read_rows

    read_rows(file, _HINT)
    text = read_confined(file)
    table = pd.read_csv(BytesIO(text), encoding="utf-8")
    missing = [name for name in columns if name not in table]
    wrong = "ends within a line" if not text.endswith(b"\n") else "has no lines" if not len(table) else ""
    if missing and not wrong:
        wrong = f"has no column {missing[0]!r}, so it is no table of these runs"
    for column in table.select_dtypes(exclude="number"):
        words = table[column].dropna()
        known = pd.to_numeric(words, errors="coerce").notna()
        if known.any() and not known.all():
            wrong = wrong or f"has {str(words[~known].iloc[0])!r} among the numbers of its column {column!r}"
    if wrong:
        raise UserError(f"{file} {wrong}: {_HINT}")
    return table


@dataclass(frozen=True, eq=False)
class EarlierRuns:
    """The table of runs of an earlier call, and how it was made."""

    table: "pd.DataFrame"
    """A line a run, with its `seed` and the values of its row."""
    made: Mapping[str, Any]
    """The content of its ``made.json``."""
    folder: Path
    """That has it."""

    def lines_of(self, runs: "Sequence[SweepRun]") -> dict[int, int]:
        """Return the line of each of these runs that the table has, by the run's position."""
        known = [{**run.variant.values, "label": run.variant.label, "seed": run.seed} for run in runs]
        columns = [str(name) for name in self.table if any(name in values for values in known)]
        keys = [tuple(map(_canonical, line)) for line in self.table[columns].itertuples(index=False)]
        lines = {key: line for line, key in enumerate(keys)}
        wanted = [tuple(_canonical(values.get(name, float("nan"))) for name in columns) for values in known]
        if len(lines) < len(keys) or len(set(wanted)) < len(wanted):
            raise UserError(f"the table of runs in {self.folder} does not distinguish its runs: train them again")
        return {place: lines[key] for place, key in enumerate(wanted) if key in lines}

    def check_data(self, taken: "Sequence[SweepRun]", now: Mapping[str, Sequence[str]]) -> None:
        """Refuse other data than the runs that are taken were trained on, by their fingerprints, where these are known.

        `now` has the fingerprints, by name, of what others are trained on.
        """
        before: Mapping[str, Sequence[str]] = self.made.get("data") or {}
        for name in sorted(_data_names(taken) & {*now}):
            if name not in before:
                _log.warning("%s does not tell the content of what its runs were trained on: %s",
                             self.folder / MADE, name)  # fmt: skip
            elif set(before[name]) != set(now[name]):
                raise UserError(
                    f"{name} is not what the runs in {self.folder} were trained on: use the same data, or omit "
                    "--earlier"
                )

    def check_columns(self, tables: Mapping[str, Any]) -> None:
        """Refuse new tables of runs with columns that this one lacks: its lines would count as without scores."""
        columns = {column for name, rows in tables.items() if name.endswith(RUNS) for row in rows for column in row}
        if missing := sorted(columns - {*self.table}):
            raise UserError(
                f"the table of runs in {self.folder} has no column {missing[0]!r}: omit --earlier; what was trained "
                "now is kept"
            )

    def record(
        self, runs: "Sequence[SweepRun]", trained: "Sequence[SweepRun]", data: Mapping[str, Sequence[str]]
    ) -> dict[str, Any]:
        """Return the entries of ``made.json`` about the runs that were taken from the table.

        `trained` are those that have folders, and `data` has the fingerprints of what they were trained on, by name.
        """
        if not trained and len(runs) == len(self.table):  # the same runs: so are these entries
            return {key: self.made[key] for key in ("trained_on", "data", "earlier") if key in self.made}
        read = _data_names(runs)
        data = {name: prints for name, prints in {**(self.made.get("data") or {}), **data}.items() if name in read}
        folders = {run.folder for run in trained}
        taken = [run.seed for run in runs if run.folder not in folders]
        kept = {key: self.made[key] for key in ("command", "size", "trained_on", "earlier") if key in self.made}
        commit = self.made["environment"].get("commit")
        return {"data": data, "earlier": {"runs": len(taken), "seeds": sorted(set(taken)), "commit": commit, **kept}}


def read_earlier(folder: Path, entry: "Entry", size: "Size", settings: Mapping[str, Any]) -> EarlierRuns:
    """Return the runs in the table of an earlier call of the same study, version, size and settings of runs.

    The size may differ in what only chooses runs (:attr:`r2mae_paper.studies.Entry.chooses`), such as the seeds.
    """
    made = json_in(folder / MADE)
    if not (version_in(made) and isinstance(made.get("data") or {}, dict) and isinstance(made.get("size"), dict)):
        raise UserError(f"{folder} has no {MADE} that tells how its tables were made: name a folder of reproduce")
    before = {**made["size"], **made.get("settings", {}), "title": made.get("title"), "r2mae": version_in(made)}
    now = {**jsonable({**size.fields, **settings}), "title": entry.title, "r2mae": r2mae.__version__}
    for name in sorted({*before, *now} - {*entry.chooses, *_MACHINE}):
        if (before.get(name) or None) != (now.get(name) or None):  # older records have null where nothing is chosen
            raise UserError(
                f"the runs in {folder} were made with {name} = {before.get(name)!r}, not {now.get(name)!r}: "
                "take the same study, scale and version, or omit --earlier"
            )
    files = sorted(folder.glob(f"*{RUNS}.csv"))
    if len(files) != 1:
        raise UserError(f"{folder} must have one table of runs, NAME{RUNS}.csv; found {len(files)}")
    (file,) = files
    table, digests = read_runs(file), made.get("tables")
    if isinstance(digests, dict) and digests.get(file.name, digest_of(file)) != digest_of(file):
        raise UserError(f"{file} is not as it was written: take a copy of it, or omit --earlier")
    if "probe_accuracy" in table and made.get("probe") != PROBE:
        _log.warning(
            "the probes in %s were trained for 15 epochs, and today's take %s: on fewer than 17,025 training images "
            "their scores differ, so do not add seeds to this table", folder, PROBE,
        )  # fmt: skip
    return EarlierRuns(table, made, folder)


def check_kept(out: Path, taken: int) -> None:
    """Refuse to write over a table with more runs than are taken from an earlier one or have folders."""
    for file in out.glob(f"*{RUNS}.csv") if (out / MADE).exists() else ():
        if (lost := len(read_runs(file)) - taken - len([*out.rglob("results.json")])) > 0:
            raise UserError(
                f"{file} has {lost} runs without folders that the new table would not have: give --earlier {out}, and "
                "as many seeds, to keep them, or choose another --out"
            )


def _canonical(value: object) -> str:
    """Return a text that is the same for a value of a row and for what a table of it reads: "0.20" and 0.2."""
    try:
        return repr(float(str(value)))
    except ValueError:
        return str(value)


def _data_names(runs: "Sequence[SweepRun]") -> set[str]:
    """Return the names of the files, folders or sets that runs read."""
    return {Path(run.config.data.source).name for run in runs}
