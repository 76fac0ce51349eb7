"""Computes an artefact in parts, saves the parts, and writes the tables and figures."""

import hashlib
import json
import math
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import r2mae
from r2mae.errors import UserError
from r2mae.files import atomic_write, jsonable, read_confined, write_json, write_rows
from r2mae.report.style import figure_style, save_figure
from r2mae.training.environment import CONTINUED, environment, recorded_changes
from r2mae.training.folder import FolderLock
from r2mae_paper.artefact import (
    Artefact,
    Computed,
    DrawnFromRuns,
    MeasuresRuns,
    OfRuns,
    OfTables,
    Progress,
    Size,
    TableRow,
    TakesCurves,
    Tally,
)
from r2mae_paper.earlier import PROBE, EarlierRuns, check_columns, check_kept, read_earlier
from r2mae_paper.run_tables import digest_of
from r2mae_paper.state import write_made, write_plan, write_tables
from r2mae_paper.targets import Scale

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

    from r2mae.sweep.cluster_options import ClusterOptions
    from r2mae.sweep.runs import SweepRun

_TOLD = ("processor", "instructions", "bf16_instructions", "torch_threads", "device", "cuda", "commit", "versions")
_KEPT = ".parts"  # folder of the saved parts


@dataclass(frozen=True)
class Reproduced:
    """Result of :func:`run_artefact`.

    Attributes
    ----------
    files : list of Path
        Tables, then figures.
    parts, kept : int
        Number of parts (or runs) of the artefact, and how many of them were finished before.
    """

    files: list[Path]
    parts: int
    kept: int


@dataclass(frozen=True, eq=False)
class _Found:
    """The runs of an artefact.

    There are a line for each, all of them in order, those with folders, how many were finished before, and the
    fingerprints of what those with folders were trained on, by name.
    """

    lines: "pd.DataFrame"
    cells: "list[SweepRun]"
    trained: "list[SweepRun]"
    kept: int
    data: Mapping[str, Sequence[str]]


def run_artefact(
    artefact: Artefact,
    out: Path,
    *,
    scale: Scale = "full",
    size: Size | None = None,
    seeds: int | None = None,
    earlier: Path | None = None,
    curves: Sequence[Path] = (),
    jobs: int | None = None,
    cluster: "ClusterOptions | None" = None,
    progress: Progress | None = None,
    again: bool = False,
    console: "Console | None" = None,
    command: str = "",
) -> Reproduced:
    """Compute the missing parts of an artefact; write its tables (CSV, or JSON) and figures (PNG, SVG) atomically.

    Computed parts are saved in ``.parts`` and runs in ``runs``; neither are computed again. Tables and figures are made
    from them again each time. Parts are saved separately for each size and each version of r2mae.

    Parameters
    ----------
    artefact : Artefact
    out : Path
        The folder to write to.
    scale : {"smoke", "small", "full"}
        "full" has the paper's sizes. "small" takes seconds, or hours if models are trained; then "smoke" takes a
        minute.
    size : Size, optional
        A size of your own, an instance of the artefact's `SIZE`; it replaces `scale`.
    seeds : int, optional
        Number of seeds in place of the scale's; for artefacts of runs.
    earlier : Path, optional
        Folder with tables of the same artefact, scale and version; the runs of its table of runs are not trained. Only
        for artefacts whose tables and figures are made from that table.
    curves : sequence of Path
        Tables of published accuracies; for artefacts that draw them (:class:`TakesCurves`).
    jobs : int, optional
        Number of threads for computations, or of processes for runs, by default 1; the results do not depend on it.
    cluster : ClusterOptions, optional
        The cluster whose workers train the runs; not for artefacts that are computed without runs.
    progress : callable, optional
        Called with the steps done and all steps; runs show their own progress.
    again : bool
        Compute all parts again.
    console : Console, optional
        Where the progress of runs is shown; by default standard error.
    command : str
        What repeats it, for the record in ``made.json``.

    Raises
    ------
    UserError
        If a run fails (the others are kept), if `again` is given for an artefact of runs, or `cluster`, `seeds` or
        `earlier` for another one; if the earlier tables do not fit.
    """
    own = size is not None
    named, size = ("", size) if size is not None else (scale, artefact.SIZE.of(scale))
    if seeds is not None:
        size = with_seeds(artefact, size, seeds)
    if curves or not own:
        size = _with_curves(artefact, size, curves)
    if again and isinstance(artefact, OfRuns):
        raise UserError("finished runs are not trained again: omit --again, or choose another --out")
    if cluster is not None and not isinstance(artefact, OfRuns):
        raise UserError(f"{artefact.TITLE!r} is computed, and trains no runs: omit --cluster")
    known = None if earlier is None else _earlier(artefact, size, earlier)
    out, began = Path(out), environment()
    with FolderLock(out):  # two calls must not mix their tables either
        results: Any
        if isinstance(artefact, OfRuns):
            found = _of_runs(artefact, size, out, jobs, cluster, named, known, console=console)
            results, parts, kept = found.lines, len(found.cells), found.kept
        elif isinstance(artefact, OfTables):
            results, parts, kept = artefact.gather(out.parent, scale), 1, 0
            write_plan(out, named, "parts", [[]])
        else:
            assert isinstance(artefact, Computed)
            results, parts, kept = _computed(artefact, size, out, jobs or 1, named, progress, again=again)
        tables = artefact.table(results)
        if known is not None:
            check_columns(known, tables)
        files = _write_all(artefact, tables, size, out)
        made = {"title": artefact.TITLE, "command": command, "scale": named, "size": jsonable(asdict(size))}
        if isinstance(artefact, OfRuns):
            made |= {"runs": parts, "environment": began, "trained_on": _machines(found.trained), "data": found.data}
            if known is not None and len(found.trained) < parts:
                made |= known.record(found.cells, found.trained, found.data)
        else:
            made |= {"parts": parts, "environment": began}
        made["probe"] = PROBE
        made["tables"] = {path.name: digest_of(path) for path in files[: len(tables)]}
        write_made(out, made)
    return Reproduced(files, parts, kept)


def _write_all(artefact: Artefact, tables: Mapping[str, Any], size: Size, out: Path) -> list[Path]:
    """Write the tables, then the figures, and return their files in this order."""
    with figure_style():
        figures = dict(artefact.draw(tables, size))
        if isinstance(artefact, DrawnFromRuns):
            figures |= artefact.draw_runs(artefact.cells(size, out), size)
    files = [_write(out, name, content, size.digits) for name, content in tables.items()]
    files += [path for name, figure in figures.items() for path in save_figure(figure, out, name)]
    write_tables(out, files)
    return files


def _computed(
    artefact: Computed, size: Size, out: Path, jobs: int, scale: str, progress: Progress | None, *, again: bool
) -> tuple[dict[str, Any], int, int]:
    """Return the result of each part, the number of parts, and how many were finished before."""
    parts = artefact.parts(size)
    folder = out / _KEPT / _asked(artefact, size)
    if again:
        shutil.rmtree(folder, ignore_errors=True)
    write_plan(out, scale, "parts", [[folder / f"{part.name}.json"] for part in parts])
    tally = Tally(progress, sum(part.steps for part in parts))
    results, kept, steps = {}, 0, 0
    for part in parts:
        file = folder / f"{part.name}.json"
        result = _read(file)
        if result is None:
            computed = json.dumps(part.compute(jobs, tally), default=_plain)
            result = json.loads(computed)  # so that a computed part equals one that is read from its file
            with atomic_write(file) as opened:
                opened.write(computed)
        else:
            kept += 1
        results[part.name] = result
        steps += part.steps
        tally.reach(steps)
    return results, len(parts), kept


def _of_runs(
    artefact: OfRuns,
    size: Size,
    out: Path,
    jobs: int | None,
    cluster: "ClusterOptions | None",
    scale: str,
    earlier: EarlierRuns | None,
    *,
    console: "Console | None",
) -> _Found:
    """Train the runs that are neither finished nor in the earlier table, and return the lines of all."""
    from r2mae.domains.lookup import get_domain
    from r2mae.sweep.dask_runner import runner_of
    from r2mae.sweep.gather import ordered_runs, table_of
    from r2mae.sweep.runner import check_data, check_folders, check_sweep, finished, run_missing

    here = cluster is None
    # One thread each: the results of a run must not depend on how many others run at the same time.
    planned = [replace(cell, config=replace(cell.config, threads=cell.config.threads or 1))
               for cell in artefact.cells(size, out)]  # fmt: skip
    cells = ordered_runs(planned)
    lines = {} if earlier is None else earlier.lines_of(cells)
    ready = [place for place, cell in enumerate(cells) if finished(cell)]
    check_kept(out, cells, [*lines, *ready], ready)
    lines = {place: line for place, line in lines.items() if place not in ready}  # folders are exact
    wanted = [cell for place, cell in enumerate(cells) if place not in lines]
    check_sweep(cells[0].config, here=here)
    domain = get_domain(cells[0].config.domain)
    for one in dict.fromkeys(cell.config.data for cell in wanted):
        check_data([cell for cell in wanted if cell.config.data == one], domain, here=here, jobs=jobs or 1)
    data = check_folders(wanted, domain)
    if earlier is not None:
        earlier.check_data([cells[place] for place in lines], data)
    there = [[] if place in lines else _finished_by(cell) for place, cell in enumerate(cells)]
    write_plan(out, scale, "runs", there)
    kept = len(lines) + sum(map(finished, wanted))
    folders = {cell.folder for cell in wanted}
    waiting = [cell for cell in planned if cell.folder in folders]  # in the order in which the artefact runs them
    if waiting:
        run_missing(waiting, domain, runner_of(cluster, jobs or 1, cells[0].config.device, out), console=console)
    results = table_of(wanted)
    if isinstance(artefact, MeasuresRuns):
        own = [dict(artefact.scores_of_run(cell)) for cell in wanted]
        for name in dict.fromkeys(name for scores in own for name in scores):
            results[name] = [scores.get(name, float("nan")) for scores in own]
    if earlier is not None:
        results = _joined(results, earlier, lines, len(cells))
    return _Found(results, cells, wanted, kept, data)


def _joined(trained: "pd.DataFrame", earlier: EarlierRuns, lines: Mapping[int, int], count: int) -> "pd.DataFrame":
    """Return the lines of all runs in their order: of those that were trained now, and of earlier ones."""
    import pandas as pd

    taken = earlier.table.iloc[list(lines.values())].set_index(pd.Index(list(lines)))
    mine = trained.set_index(pd.Index([place for place in range(count) if place not in lines]))
    return pd.concat([part for part in (taken, mine) if len(part)]).sort_index()


def with_seeds(artefact: Artefact, size: Size, seeds: int) -> Size:
    """Return the size with another number of seeds.

    Raises
    ------
    UserError
        If the artefact has no runs under several seeds, or not under so many.
    """
    if not isinstance(artefact, OfRuns):
        raise UserError(f"{artefact.TITLE!r} trains no runs: omit --seeds")
    try:
        return size.with_seeds(seeds)
    except UserError as error:
        raise UserError(f"{artefact.TITLE!r}: {error}") from None


def _with_curves(artefact: Artefact, size: Size, curves: Sequence[Path]) -> Size:
    """Return the size with the rows of published tables, where the artefact draws them."""
    if isinstance(artefact, TakesCurves):
        given: Size = artefact.with_curves(size, curves)
        return given
    if curves:
        raise UserError(f"{artefact.TITLE!r} draws no published curves: omit --curve")
    return size


def _earlier(artefact: Artefact, size: Size, folder: Path) -> EarlierRuns:
    """Return the earlier runs of an artefact that can be made of their table."""
    if not isinstance(artefact, OfRuns):
        raise UserError(f"{artefact.TITLE!r} trains no runs: omit --earlier")
    if isinstance(artefact, DrawnFromRuns):
        raise UserError(f"{artefact.TITLE!r} is drawn from trained models, which a table does not hold: omit --earlier")
    return read_earlier(folder, artefact.TITLE, size)


def _machines(cells: "list[SweepRun]") -> list[dict[str, Any]]:
    """Return on which machines, with which libraries and by which commits runs were trained, and how many of each."""
    from r2mae.training.folder import RunFolder

    found = [_read(RunFolder(cell.folder).environment_file) for cell in cells if not cell.variant.baseline]
    told = [json.dumps(_told(said), sort_keys=True) for said in found if isinstance(said, dict) and said]
    return [{**json.loads(one), "runs": count} for one, count in Counter(told).items()]


def _told(said: dict[str, Any]) -> dict[str, Any]:
    """Return what is told of a run's machine; also what changed where the run went on, if it was interrupted."""
    changes = [{key: one[key] for key in _TOLD if key in one} for one in recorded_changes(said)]
    told = {key: said.get(key) for key in _TOLD}
    return {**told, CONTINUED: changes} if any(changes) else told


def _finished_by(cell: "SweepRun") -> list[Path]:
    """Return the files of a run that are there when it is finished."""
    from r2mae.training.folder import RunFolder

    folder = RunFolder(cell.folder)
    return [folder.results_file] if cell.variant.baseline else [folder.model_file, folder.results_file]


def _asked(artefact: Artefact, size: Size) -> str:
    """Return a short name for the combination of artefact, version of r2mae and size, for which parts are valid."""
    computed = {name: value for name, value in asdict(size).items() if name not in size.drawn}
    asked = [artefact.TITLE, r2mae.__version__, type(size).__name__, computed]
    return hashlib.blake2b(json.dumps(asked, default=_plain).encode(), digest_size=6).hexdigest()


def _read(file: Path) -> Any:
    """Return the content of a saved part, or None if the file is missing or damaged."""
    try:
        return json.loads(read_confined(file))
    except (OSError, ValueError, RecursionError):
        return None


def _plain(value: Any) -> Any:
    """Convert numbers and arrays of NumPy to types of JSON."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"a part computed {type(value).__name__}, which JSON does not know")


def _write(out: Path, name: str, content: list[TableRow] | Mapping[str, Any], digits: int) -> Path:
    """Write rows as ``<name>.csv``, with columns in the order of their first appearance, or a dict as ``.json``."""
    if isinstance(content, Mapping):
        path = out / f"{name}.json"
        write_json(path, content)
        return path
    path = out / f"{name}.csv"
    columns = list(dict.fromkeys(key for row in content for key in row))
    write_rows(path, [{key: _short(value, digits) for key, value in row.items()} for row in content], columns)
    return path


def _short(value: object, digits: int) -> object:
    """Round a number; an infinite or missing number becomes an empty cell."""
    if isinstance(value, float | np.floating):
        number = float(value)
        return float(f"{number:.{digits}g}") if math.isfinite(number) else ""
    return value
