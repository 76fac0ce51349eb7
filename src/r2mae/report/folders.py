"""Tell what a folder of results is from its files alone: a comparison, its published results, a run, or tables."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from r2mae.errors import UserError
from r2mae.files import confined_file
from r2mae.training.folder import RunFolder

Kind: TypeAlias = Literal["comparison", "published", "reproduction", "run", "tables"]
PICTURES = (".svg", ".png")
_PLAN = ".plan.json"  # beside the tables of a reproduction
_COLUMNS = "label,scheme,ratio,low,high,seed"  # how the table of a comparison begins
_INSIDE = {"runs", "figures", "checkpoints"}
_DEPTH = 4


@dataclass(frozen=True)
class Results:
    """A folder of results.

    Parameters
    ----------
    folder : Path
        As it was named, or below what was named.
    kind : str
        "comparison": with its runs. "published": the tables of one without them. "reproduction": of a target. "run".
        "tables": other tables with figures.
    """

    folder: Path
    kind: Kind


def find_results(folders: Sequence[Path], targets: Collection[str]) -> list[Results]:
    """Return all results in some folders, each once, in the order of the folders and then of names.

    Parameters
    ----------
    folders : sequence of Path
        Results, or folders that hold some, up to four levels deep. Runs of a comparison or reproduction are its own.
    targets : collection of str
        Names of the folders that reproductions write.

    Raises
    ------
    UserError
        For a folder that does not exist, or holds no results.
    """
    found: dict[Path, Results] = {}
    for folder in folders:
        if not folder.is_dir():
            raise UserError(f"there is no folder {folder}: name one that compare, pretrain or reproduce made")
        there = list(_below(folder, targets, _DEPTH))
        if not there:
            raise UserError(
                f"{folder} holds no comparison, run or reproduction: name a folder that compare, pretrain or reproduce "
                "made"
            )
        for one in there:
            found.setdefault(one.folder.resolve(), one)
    return list(found.values())


def _below(folder: Path, targets: Collection[str], depth: int, *, reproduced: bool = False) -> Iterator[Results]:
    """Yield results in a folder; `reproduced`: it lies in a reproduction, whose runs are no results of their own."""
    kind = kind_of(folder, targets)
    reproduced = reproduced or kind == "reproduction"
    if kind is not None and not (reproduced and kind == "run"):
        yield Results(folder, kind)
    if depth and kind not in ("comparison", "run"):
        for entry in sorted(folder.iterdir()):
            inside = (kind is not None or reproduced) and entry.name in _INSIDE
            if entry.is_dir() and not entry.is_symlink() and not entry.name.startswith(".") and not inside:
                yield from _below(entry, targets, depth - 1, reproduced=reproduced)


def kind_of(folder: Path, targets: Collection[str]) -> Kind | None:
    """Return what a folder is, or None."""
    tables = sorted(folder.glob("*.csv"))
    if (folder / "compare.json").is_file():
        return "comparison"
    if RunFolder(folder).config_file.is_file():
        return "run"
    if (folder / _PLAN).is_file() or (folder.name in targets and tables):
        return "reproduction"
    if (folder / "results.csv").is_file() and _begins(folder / "results.csv"):
        return "published"
    if tables and any(path.suffix in PICTURES for path in folder.iterdir()):
        return "tables"
    return None


def _begins(table: Path) -> bool:
    try:
        with confined_file(table).open(encoding="utf-8") as file:
            return file.read(len(_COLUMNS)) == _COLUMNS
    except (OSError, ValueError):
        return False
