"""Compute an artefact, keep what is computed, and write its tables and figures."""

import hashlib
import json
import math
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import r2mae
from r2mae.errors import UserError
from r2mae.files import atomic_write, write_json, write_rows
from r2mae.report.style import figure_style, save_figure
from r2mae.reproduce.artefact import Artefact, Computed, OfRuns, Progress, Row, Scale, Size, Tally

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

_KEPT = ".parts"  # folder of what is computed


@dataclass(frozen=True)
class Reproduced:
    """What :func:`run_artefact` did.

    Attributes
    ----------
    files : list of Path
        Tables, then figures.
    parts, kept : int
        How many parts (or runs) the artefact has, and how many of them were there already.
    """

    files: list[Path]
    parts: int
    kept: int


def run_artefact(
    artefact: Artefact,
    out: Path,
    *,
    scale: Scale = "full",
    size: Size | None = None,
    jobs: int = 1,
    progress: Progress | None = None,
    again: bool = False,
    console: "Console | None" = None,
) -> Reproduced:
    """Compute what is missing of an artefact; write its tables (CSV, or JSON) and figures (PNG, SVG) atomically.

    Parts that are computed are kept in ``.parts``, runs in ``runs``, and neither is computed again; tables and figures
    are made from them anew each time. Each size, and each version of r2mae, has parts of its own.

    Parameters
    ----------
    artefact : Artefact
    out : Path
        Its folder.
    scale : {"smoke", "small", "full"}
        "full" has the paper's sizes; "small" takes seconds, or hours where models are trained; "smoke" a minute then.
    size : Size, optional
        One's own, of the artefact's `SIZE`, in place of `scale`.
    jobs : int
        Threads of computations, processes of runs; the numbers do not depend on it.
    progress : callable, optional
        Called with the steps done and all steps; runs show their own progress.
    again : bool
        Compute all parts anew.
    console : Console, optional
        Where the progress of runs is shown; by default standard error.

    Raises
    ------
    UserError
        If a run fails (the others are kept), or `again` is asked for runs.
    """
    size = artefact.SIZE.of(scale) if size is None else size
    out = Path(out)
    results: Any
    if isinstance(artefact, OfRuns):
        results, parts, kept = _of_runs(artefact, size, out, jobs, again=again, console=console)
    else:
        assert isinstance(artefact, Computed)
        results, parts, kept = _computed(artefact, size, out, jobs, progress, again=again)
    tables = artefact.table(results)
    with figure_style():
        figures = artefact.draw(tables, size)
    files = [_write(out, name, content, size.digits) for name, content in tables.items()]
    files += [path for name, figure in figures.items() for path in save_figure(figure, out, name)]
    return Reproduced(files, parts, kept)


def _computed(
    artefact: Computed, size: Size, out: Path, jobs: int, progress: Progress | None, *, again: bool
) -> tuple[dict[str, Any], int, int]:
    """Return what each part computed, how many there are, and how many were there already."""
    parts = artefact.parts(size)
    folder = out / _KEPT / _asked(artefact, size)
    if again:
        shutil.rmtree(folder, ignore_errors=True)
    tally = Tally(progress, sum(part.steps for part in parts))
    results, kept, steps = {}, 0, 0
    for part in parts:
        file = folder / f"{part.name}.json"
        result = _read(file)
        if result is None:
            computed = json.dumps(part.compute(jobs, tally), default=_plain)
            result = json.loads(computed)  # so that it is the same, computed or kept
            with atomic_write(file) as opened:
                opened.write(computed)
        else:
            kept += 1
        results[part.name] = result
        steps += part.steps
        tally.reach(steps)
    return results, len(parts), kept


def _of_runs(
    artefact: OfRuns, size: Size, out: Path, jobs: int, *, again: bool, console: "Console | None"
) -> "tuple[pd.DataFrame, int, int]":
    """Return a line for each run, how many there are, and how many were finished already."""
    from r2mae.sweep.gather import in_order, table_of
    from r2mae.sweep.processes import Processes
    from r2mae.sweep.runner import check_cells, check_sweep, finished, run_missing
    from r2mae.training.folder import FolderLock
    from r2mae.wings.lookup import get_wing

    if again:
        raise UserError(f"finished runs are not trained again: remove {out / 'runs'}, or choose another --out")
    # One thread each: what a run computes must not depend on how many run beside it.
    cells = [replace(cell, config=replace(cell.config, threads=cell.config.threads or 1))
             for cell in artefact.cells(size, out)]  # fmt: skip
    first = cells[0].config
    check_sweep(first)
    wing = get_wing(first.wing)
    with FolderLock(out):
        check_cells(cells, wing)
        kept = sum(map(finished, cells))
        run_missing(cells, wing, Processes(jobs, first.device), console=console)
        return table_of(in_order(cells)), len(cells), kept


def _asked(artefact: Artefact, size: Size) -> str:
    """Return a short name of what parts are computed for: artefact, version of r2mae and size."""
    asked = [artefact.TITLE, r2mae.__version__, type(size).__name__, asdict(size)]
    return hashlib.blake2b(json.dumps(asked, default=_plain).encode(), digest_size=6).hexdigest()


def _read(file: Path) -> Any:
    """Return what a file of parts holds; None where it is not there, or damaged."""
    try:
        return json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return None


def _plain(value: Any) -> Any:
    """Return numbers and arrays of NumPy as JSON's types."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"a part computed {type(value).__name__}, which JSON does not know")


def _write(out: Path, name: str, content: list[Row] | Mapping[str, Any], digits: int) -> Path:
    """Write rows as ``<name>.csv``, with all columns in the order in which they first appear, or ``<name>.json``."""
    if isinstance(content, Mapping):
        path = out / f"{name}.json"
        write_json(path, content)
        return path
    path = out / f"{name}.csv"
    columns = list(dict.fromkeys(key for row in content for key in row))
    write_rows(path, [{key: _short(value, digits) for key, value in row.items()} for row in content], columns)
    return path


def _short(value: object, digits: int) -> object:
    """Round a number; an infinite one or one that is missing becomes an empty cell."""
    if isinstance(value, float | np.floating):
        number = float(value)
        return float(f"{number:.{digits}g}") if math.isfinite(number) else ""
    return value
