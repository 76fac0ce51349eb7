"""Sections of a page about any results: plain texts, tables and figures, read from the files of a folder."""

import json
import math
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
import yaml

from r2mae.errors import UserError
from r2mae.evaluation.metrics import Metric, label_of, metrics_by_ratio
from r2mae.evaluation.statistics import mean_interval
from r2mae.files import read_confined, read_rows
from r2mae.report.comparison import INTERVAL_COLUMNS, RUN_COLUMNS, Comparison
from r2mae.report.differences import read_differences
from r2mae.report.folders import PICTURES
from r2mae.report.wording import CONFIDENCE, decimals, interval, number, sentence_case
from r2mae.training.folder import RunFolder, read_json

_ROWS, _COLUMNS = 60, 24  # of a table that are shown
_SHORT = 20  # so many rows are shown unfolded
_LARGEST = 300_000  # bytes of an SVG; a larger one is shown as PNG
_REMEDY = "make it again, or remove it"
_Read = TypeVar("_Read")
_MIME = {".svg": "image/svg+xml", ".png": "image/png"}


@dataclass(frozen=True)
class Table:
    """A table of texts.

    Parameters
    ----------
    caption : str
        In words.
    columns : tuple of str
        Headings.
    rows : tuple of tuple of str
        As many cells as columns each.
    note : str
        What was left out.
    open : bool
        Whether it is shown unfolded.
    classes : tuple of str
        For each row the class of its second cell, such as "better"; empty for plain tables.
    """

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    open: bool = True
    classes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Picture:
    """A figure: its title, its file as an address that holds all of it (``data:``), and its width over its height."""

    title: str
    source: str
    aspect: float = 1.0


@dataclass(frozen=True)
class Section:
    """A part of the page.

    Parameters
    ----------
    title, kind : str
        What it is of, and "Comparisons", "Reproductions", "Runs" or "Tables", under which the contents list it.
    folder : str
        Where its files are.
    lines : tuple of str
        Sentences at its beginning.
    tables, pictures : tuple
        What it shows.
    texts : mapping of str to str
        Folded at its end, such as the configuration.
    comparison : Comparison, optional
        In place of tables and pictures: shown as in the comparison's own report.
    unread : bool
        Whether its files could not be read: `lines` say why, and there is nothing else to show.
    left_out : tuple of str
        Single files that could not be read, and why; `lines` say so, too.
    """

    title: str
    kind: str
    folder: str
    lines: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    pictures: tuple[Picture, ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict)
    comparison: Comparison | None = None
    unread: bool = False
    left_out: tuple[str, ...] = ()


def section_of_files(folder: Path, title: str, kind: str, lines: Sequence[str] = ()) -> Section:
    """Return a section with all tables (CSV) and figures of a folder, and its JSON files as text.

    Parameters
    ----------
    folder : Path
        Of a reproduction, or other tables with figures.
    title, kind, lines
        As of :class:`Section`.
    """
    left_out: list[str] = []
    tables = _each(read_table, sorted(folder.glob("*.csv")), left_out)
    texts = dict(_each(_json_text, sorted(folder.glob("[!.]*.json")), left_out))
    pictures = _each(_picture, _pictures_in(folder), left_out)
    told = (*lines, *(f"Not read: {reason}." for reason in left_out))
    return Section(title, kind, str(folder), told, tuple(tables), tuple(pictures), texts, left_out=tuple(left_out))


def _each(read: Callable[[Path], _Read], files: Iterable[Path], left_out: list[str]) -> list[_Read]:
    """Read files; of those that cannot be read, add the reason to a list."""
    found = []
    for path in files:
        try:
            found.append(read(path))
        except UserError as error:
            left_out.append(str(error))
        except (OSError, ValueError) as error:
            left_out.append(f"{path} cannot be read ({error}): {_REMEDY}")
    return found


def section_of_run(folder: Path, metrics: Sequence[Metric] = ()) -> Section:
    """Return a section with the scores of a run and its options, with the labels of these metrics."""
    run = RunFolder(folder)
    config = run.read_config()
    results = run.results
    scores = (results or {}).get("scores") or {}
    rows = tuple((label_of(str(name), metrics), _score(value)) for name, value in scores.items())
    lines = [f"Pretrained on {config.get('data')} with the scheme {config.get('scheme')}, seed {config.get('seed')}."]
    if not run.trained:
        lines.append("It is not finished: the command that began it goes on.")
    elif not scores:
        lines.append("It has not been measured: r2mae evaluate does that.")
    tables = (Table("Scores", ("score", "value"), rows),) if rows else ()
    texts = {"Options": yaml.safe_dump(config, sort_keys=False, allow_unicode=True)}
    return Section(folder.name, "Runs", str(folder), tuple(lines), tables, (), texts)


def section_of_published(folder: Path) -> Section:
    """Return a section with what is published of a comparison: all of it from results.json, else means and figures."""
    found = published(folder)
    if found is not None:
        return Section(found.title, "Comparisons", str(folder), comparison=found)
    try:
        table = pd.read_csv(BytesIO(read_confined(folder / "results.csv")))
    except (ValueError, OSError) as error:
        raise UserError(f"{folder / 'results.csv'} cannot be read ({' '.join(str(error).split())[:100]})") from None
    said = "There is no results.json, which would say of each score whether more is better: these are means alone."
    title = f"{folder.parent.name}/{folder.name}" if folder.parent.name else folder.name
    left_out: list[str] = []
    figures = folder / "figures"
    pictures = _each(_picture, [] if figures.is_symlink() else _pictures_in(figures), left_out)
    told = (said, *(f"Not read: {reason}." for reason in left_out))
    return Section(title, "Comparisons", str(folder), told, (_means(table),), tuple(pictures), left_out=tuple(left_out))


def published(folder: Path) -> Comparison | None:
    """Return a comparison from its results.json, without curves and examples; None if there is none."""
    file = folder / "results.json"
    if not file.is_file():
        return None
    try:
        said = read_json(file)
        metrics = tuple(_metric(one) for one in said["metrics"])
        table = pd.DataFrame(said["cells"]).astype(dict.fromkeys(("ratio", "low", "high", "seconds"), float))
        title, config, environment = str(said["title"]), dict(said["config"]), dict(said["environment"])
        measured, recorded = str(said.get("measured", "")), read_differences(said.get("differences", []))
        scores = [metric.name for metric in metrics if metric.name in table]
        table = table.astype(dict.fromkeys(scores, float))
        if not metrics or table[["label", "scheme", "seed"]].duplicated(["label", "seed"]).any():
            raise ValueError("no metrics, or a run twice")
    except (AttributeError, KeyError, TypeError, ValueError, UserError):
        raise UserError(f"{file} is no result of a comparison of this version: make it again, or remove it") from None
    curves = pd.DataFrame(columns=["label", "seed", "step", "loss", "validation_loss"])
    return Comparison(
        title,
        metrics,
        table,
        curves,
        config=config,
        environment=environment,
        measured=measured,
        recorded=recorded,
    )


def _metric(said: Mapping[str, Any]) -> Metric:
    """Return a metric from results.json; older files say neither its bounds nor whether it is ranked or optional."""
    low, high = said.get("bounds", (None, None))
    return Metric(
        str(said["name"]),
        str(said["label"]),
        said["higher_is_better"],
        (-math.inf if low is None else float(low), math.inf if high is None else float(high)),
        bool(said.get("ranked", True)),
        bool(said.get("optional", False)),
    )


def _pictures_in(folder: Path) -> list[Path]:
    """Return each figure of a folder once: its SVG, or its PNG where there is none or the SVG is large."""
    found: dict[str, Path] = {}
    for path in sorted(path for path in folder.glob("*") if path.suffix in PICTURES):
        small = path.suffix == ".png" or path.lstat().st_size <= _LARGEST
        if small or not path.with_suffix(".png").is_file():
            found[path.stem] = path  # the SVG comes after the PNG
    return list(found.values())


def _picture(path: Path) -> Picture:
    """Return a figure; its width over its height as its file begins by saying, 1 if it does not."""
    content = read_confined(path)
    if path.suffix == ".png":
        width, height = (float(int.from_bytes(content[at : at + 4])) for at in (16, 20))
    else:
        box = re.search(rb'viewBox="\S+ \S+ ([\d.]+) ([\d.]+)"', content[:2_000])
        width, height = (float(box[1]), float(box[2])) if box else (1.0, 1.0)
    source = f"data:{_MIME[path.suffix]};base64,{b64encode(content).decode()}"
    return Picture(path.stem.replace("_", " "), source, width / height if width and height else 1.0)


def read_table(path: Path) -> Table:
    """Return the beginning of a CSV file, with a note where rows or columns are left out.

    Raises
    ------
    UserError
        If it is no whole table: empty, cut off, or not text.
    """
    columns, rows = read_rows(path, _REMEDY)
    note = []
    if len(rows) > _ROWS:
        note.append(f"the first {_ROWS} of {len(rows):,} rows")
    if len(columns) > _COLUMNS:
        note.append(f"the first {_COLUMNS} of {len(columns)} columns")
    shown = tuple(tuple(row[:_COLUMNS]) for row in rows[:_ROWS])
    said = f"{sentence_case(' and '.join(note))}; {path.name} has all" if note else ""
    return Table(path.name, tuple(columns[:_COLUMNS]), shown, said, open=len(rows) <= _SHORT and not note)


def _json_text(path: Path) -> tuple[str, str]:
    """Return name and text of a JSON file, with its characters in place of their escapes; a damaged one as it is."""
    text = read_confined(path).decode("utf-8", "replace")
    try:
        return path.name, json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return path.name, text


def _means(table: pd.DataFrame) -> Table:
    """Return means over seeds with intervals, of scores that are neither at single ratios nor ends of intervals."""
    numeric = map(str, table.select_dtypes("number"))
    scores = [name for name in numeric if name not in (*RUN_COLUMNS, *INTERVAL_COLUMNS)]
    apart = {name for names in metrics_by_ratio(scores).values() for name in names.values()}
    kept = [name for name in scores if name not in apart and not name.endswith(("_low", "_high", "_sd"))]
    labels = list(dict.fromkeys(table["label"]))
    cells: dict[str, list[str]] = {}
    for name in kept:
        found = [_interval(table.loc[table["label"] == label, name]) for label in labels]
        places = decimals((one[0] for one in found), ((one[2] - one[1]) / 2 for one in found))
        cells[name] = [_with_ends(*one, places) for one in found]
    seeds = [str(int((table["label"] == label).sum())) for label in labels]
    rows = tuple(zip(labels, seeds, *cells.values(), strict=True))
    heads = ("scheme", "seeds", *(name.replace("_", " ") for name in kept))
    return Table(f"Means over seeds with {CONFIDENCE:.0%} intervals", heads, rows)


def _interval(values: "pd.Series[float]") -> tuple[float, float, float]:
    known = values.dropna().to_numpy()
    if not len(known):
        return math.nan, math.nan, math.nan
    found = mean_interval(known, confidence=CONFIDENCE)
    return found.mean, found.low, found.high


def _with_ends(mean: float, low: float, high: float, places: int) -> str:
    ends = interval(low, high, places)
    return f"{number(mean, places)} ({ends})" if ends else number(mean, places)


def _score(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, int | float) else "–"  # noqa: RUF001


def kinds(sections: Iterable[Section]) -> dict[str, list[Section]]:
    """Return sections by kind, in the order in which kinds first come."""
    found: dict[str, list[Section]] = {}
    for section in sections:
        found.setdefault(section.kind, []).append(section)
    return found
