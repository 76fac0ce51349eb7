"""Makes a study: computes its missing parts or trains its missing runs, and writes its tables and figures."""

import hashlib
import json
import math
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, Unpack

import numpy as np
import pandas as pd

import r2mae
from r2mae.compare.style import figure_style, save_figure
from r2mae.environment import CONTINUED, environment
from r2mae.errors import UserError
from r2mae.files import atomic_write, jsonable, read_confined, write_json
from r2mae.training.folder import FolderLock
from r2mae_paper.rows import TableRow, write_rows
from r2mae_paper.state import PROBE, EarlierRuns, begin, check_kept, finish, read_earlier
from r2mae_paper.studies import Scale, Size
from r2mae_paper.study import PUBLISHED, Study

if TYPE_CHECKING:
    from rich.console import Console

    from r2mae.compare.cluster_options import ClusterOptions
    from r2mae.compare.runs import SweepRun

Progress: TypeAlias = Callable[[int, int], None]

_MACHINE = ("processor", "instructions", "bf16_instructions", "torch_threads", "device", "cuda", "commit", "versions")
_PARTS = ".parts"  # folder of the saved parts
_PLAIN = methodcaller("tolist")  # of numbers and arrays of NumPy


@dataclass(frozen=True)
class Reproduced:
    """Result of :func:`run_study`."""

    files: list[Path]
    """Tables, then figures."""
    parts: int
    kept: int
    """`parts`, `kept`: number of parts (or runs) of the study, and how many of them were finished before."""


_Found: TypeAlias = tuple[Any, int, Mapping[str, Any]]
"""What :attr:`Study.table` takes; how many parts or runs were finished before; entries of ``made.json``."""


class Options(TypedDict, total=False):
    """What a call asks for."""

    scale: Scale
    """"full", the default, has the paper's sizes. "small" takes seconds, or hours if models are trained; then "smoke"
    takes a minute."""
    size: Size | None
    """A size of your own, which replaces `scale`."""
    fields: Mapping[str, Any]
    """Other values of some fields of the scale's size."""
    seeds: int | None
    """Number of seeds in place of the scale's; for studies of runs."""
    earlier: Path | None
    """Folder with tables of the same study, scale and version; the runs of its table of runs are not trained. Only for
    studies whose tables and figures are made from that table."""
    curve: Sequence[Path]
    """Tables of published accuracies; for studies that draw them."""
    jobs: int | None
    """Number of threads for computations, or of processes for runs, by default 1; the results do not depend on it."""
    cluster: "ClusterOptions | None"
    """The cluster whose workers train the runs; not for studies that are computed without runs."""
    again: bool
    """Compute all parts again."""
    settings: Mapping[str, Any]
    """Fields of the configuration of every run that say how it is computed: `devices`, `workers`, `accumulate`, …."""


def size_of(study: Study, **options: Unpack[Options]) -> Size:
    """Return the size that is asked for, before anything is computed; refuse options that the study cannot use."""
    name, settings = study.entry.name, options.get("settings", {})
    refused: dict[str, str] = {}
    if study.runs is None:
        refused |= dict.fromkeys(("cluster", "earlier", "seeds", *settings), "trains no runs: omit")
    else:
        refused |= {"again": "trains no finished run again: choose another --out, or omit"}
    if study.plot_runs is not None:
        refused |= {"earlier": "is drawn from trained models, which a table does not hold: omit"}
    if study.gather is not None:
        refused |= dict.fromkeys(("again", "jobs"), "only reads tables of other studies: omit")
    if study.curves is None:
        refused |= {"curve": "draws no published curves: omit"}
    for one, why in refused.items():
        if options.get(one) not in (None, False, (), []) or one in settings:
            raise UserError(f"{name} {why} --{one.replace('_', '-')}")
    seeds = options.get("seeds")
    try:
        size = options.get("size") or study.entry.size(options.get("scale", "full"), **options.get("fields", {}))
        size = size if seeds is None else size.with_seeds(seeds)
    except UserError as error:
        raise UserError(f"{name}: {error}") from None
    if study.curves is not None:
        study.curves(options.get("curve", ()))
    return size


def run_study(
    study: Study,
    out: Path,
    *,
    progress: Progress | None = None,
    console: "Console | None" = None,
    command: str = "",
    **options: Unpack[Options],
) -> Reproduced:
    """Compute the missing parts of a study; write its tables (CSV, or JSON) and figures (PNG, SVG) atomically.

    Computed parts are saved in ``.parts`` and runs in ``runs``; neither are computed again. Tables and figures are made
    from them again each time. Parts are saved separately for each size and each version of r2mae. If a run fails the
    others are kept.

    `progress` is called with the number of parts done and of all; runs show their own on `console`, by default standard
    error. `command` is what repeats the call, for the record in ``made.json``.
    """
    scale, earlier, settings = options.get("scale", "full"), options.get("earlier"), options.get("settings", {})
    size, named = size_of(study, **options), scale if options.get("size") is None else ""
    known = None if earlier is None else read_earlier(earlier, study.entry, size, settings)
    out, began = Path(out), environment()
    with FolderLock(out):  # two calls must not mix their tables either
        if study.runs is not None:
            results, kept, how = _train(study, size, out, named, known, console, options)
        elif study.gather is not None:
            begin(out, named, "parts", [None])
            results, kept, how = study.gather(out.parent, scale), 0, {"parts": 1}
        else:
            results, kept, how = _compute(study, size, out, named, progress, options)
        tables = study.tables_of(results)
        if known is not None:
            known.check_columns(tables)
        with figure_style():
            figures = dict(study.plot(tables, size))
            if study.plot_runs is not None and study.runs is not None:
                figures |= study.plot_runs(study.runs(size, out), size)
        written = [write_table(out, name, content, study.entry.digits) for name, content in tables.items()]
        drawn = [path for name, figure in figures.items() for path in save_figure(figure, out, name)]
        made = {"title": study.entry.title, "command": command, "scale": named, "size": jsonable(dict(size.fields))}
        made |= {"settings": dict(settings)} if settings else {}
        finish(out, written, drawn, {**made, "environment": began, **how, "probe": PROBE})
    return Reproduced([*written, *drawn], how.get("runs") or how["parts"], kept)


def _compute(study: Study, size: Size, out: Path, scale: str, progress: Progress | None, options: Options) -> _Found:
    """Compute the parts that are not saved, save each, and return all as they are read from their files."""
    assert study.parts is not None
    parts = study.parts(size)
    folder = out / _PARTS / _key_of(study, size)
    if options.get("again", False):
        shutil.rmtree(folder, ignore_errors=True)
    files = {name: folder / f"{name}.json" for name in parts}
    begin(out, scale, "parts", [*files.values()])
    results: dict[str, Any] = {}
    kept = 0
    for name, compute in parts.items():
        results[name] = _read(files[name])
        kept += results[name] is not None
        if results[name] is None:
            computed = json.dumps(compute(options.get("jobs") or 1), default=_PLAIN)
            with atomic_write(files[name]) as opened:
                opened.write(computed)
            results[name] = json.loads(computed)
        if progress is not None:
            progress(len(results), len(parts))
    if study.curves is not None:
        results[PUBLISHED] = study.curves(options.get("curve", ()))
    return results, kept, {"parts": len(parts)}


def _key_of(study: Study, size: Size) -> str:
    """Return a short name for the combination of study, version of r2mae and size, for which parts are valid."""
    key = [study.entry.title, r2mae.__version__, dict(size.fields), "rows by table"]
    return hashlib.blake2b(json.dumps(key, default=_PLAIN).encode(), digest_size=6).hexdigest()


def planned_runs(study: Study, size: Size, out: Path, settings: Mapping[str, Any]) -> "list[SweepRun]":
    """Return the runs of a study with settings of how they are computed, in the order in which they are trained."""
    assert study.runs is not None
    # One thread each: the results of a run must not depend on how many others run at the same time.
    return [
        replace(run, config=run.config.replace(**{"threads": run.config.machine.threads or 1, **settings}))
        for run in study.runs(size, out)
    ]


def _train(
    study: Study,
    size: Size,
    out: Path,
    scale: str,
    earlier: EarlierRuns | None,
    console: "Console | None",
    options: Options,
) -> _Found:
    """Train the runs that are neither finished nor in the earlier table, and return the lines of all."""
    from r2mae.compare.checks import check_data, check_folders, check_sweep, run_missing
    from r2mae.compare.dask_runner import runner_of
    from r2mae.compare.gather import ordered_runs, table_of
    from r2mae.compare.run_states import finished
    from r2mae.domains.lookup import get_domain
    from r2mae.training.folder import RunFolder

    cluster, jobs = options.get("cluster"), options.get("jobs") or 1
    here = cluster is None
    planned = planned_runs(study, size, out, options.get("settings", {}))
    runs = ordered_runs(planned)
    lines = {} if earlier is None else earlier.lines_of(runs)
    check_kept(out, len(lines))
    lines = {place: line for place, line in lines.items() if not finished(runs[place])}  # folders are exact
    wanted = [run for place, run in enumerate(runs) if place not in lines]
    check_sweep(runs[0].config, here=here)
    domain = get_domain(runs[0].config.domain)
    for data in dict.fromkeys(run.config.data.source for run in wanted):
        check_data([run for run in wanted if run.config.data.source == data], domain, here=here, jobs=jobs)
    fingerprints = check_folders(wanted, domain)
    if earlier is not None:
        earlier.check_data([runs[place] for place in lines], fingerprints)
    folders = {run.folder for run in wanted}
    files = [RunFolder(run.folder).results_file if run.folder in folders else None for run in runs]
    begin(out, scale, "runs", files)
    kept = len(lines) + sum(map(finished, wanted))
    waiting = [run for run in planned if run.folder in folders]  # in the order in which the study runs them
    if waiting:
        run_missing(waiting, domain, runner_of(cluster, jobs, runs[0].config.machine.device, out), console=console)
    made = {"runs": len(runs), "trained_on": _machines(wanted), "data": fingerprints}
    table = table_of(wanted).set_axis([place for place in range(len(runs)) if place not in lines])
    if study.scores_of_run is not None and wanted:
        own = pd.DataFrame([dict(study.scores_of_run(run)) for run in wanted], index=table.index)
        table = table.assign(**{str(name): own[name] for name in own})
    if earlier is not None and lines:
        taken = earlier.table.iloc[list(lines.values())].set_axis(list(lines))
        table = pd.concat([part for part in (taken, table) if len(part)]).sort_index()
        made |= earlier.record(runs, wanted, fingerprints)
    return table, kept, made


def _machines(runs: "list[SweepRun]") -> list[dict[str, Any]]:
    """Return on which machines, with which libraries and by which commits runs were trained, and how many of each.

    Of a run that was interrupted also what changed where it resumed.
    """
    from r2mae.training.folder import RunFolder

    machines: Counter[str] = Counter()
    for run in runs:
        found = None if run.variant.baseline else _read(RunFolder(run.folder).environment_file)
        if isinstance(found, dict) and found:
            machine = {key: found.get(key) for key in _MACHINE}
            changes = [{key: one[key] for key in _MACHINE if key in one} for one in found.get(CONTINUED, ())]
            machines[json.dumps({**machine, **({CONTINUED: changes} if any(changes) else {})}, sort_keys=True)] += 1
    return [{**json.loads(machine), "runs": count} for machine, count in machines.items()]


def write_table(out: Path, name: str, content: list[TableRow] | Mapping[str, Any], digits: int) -> Path:
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


def _read(file: Path) -> Any:
    """Return the content of a JSON file, such as a saved part, or None if the file is missing or damaged."""
    try:
        return json.loads(read_confined(file))
    except (OSError, ValueError, RecursionError):
        return None
