"""``r2mae data list | fetch NAME | path NAME``: public data sets."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from r2mae.domains.lookup import public_sets
from r2mae.errors import UserError, unknown
from r2mae.fields import argument

if TYPE_CHECKING:
    from r2mae.catalogue import PublicSet


@dataclass(frozen=True)
class Options:
    """List public data sets, fetch one and compare it with its checksums, or print where its files are.

    The data folder is R2MAE_DATA, or the user's cache folder. For alignments of genomes see
    `r2mae data alignment --help`.

    Parameters
    ----------
    action : str
        list (the default), fetch or path.
    name : str, optional
        Name of a set.

    Examples
    --------
    r2mae data fetch mnist
    """

    action: Literal["list", "fetch", "path"] = argument("list", words=("alignment",), metavar="ACTION")
    name: str | None = argument(None, words=public_sets)


def run(options: Options) -> int:
    """Run the command."""
    from r2mae.catalogue import data_root, fetch, locate
    from r2mae.terminal import print_table

    action, name, sets = options.action, options.name, public_sets()
    if action == "list":
        if name is not None:
            raise UserError(f"data list lists all sets: omit {name!r}")
        rows = []
        for entry in sets.values():
            sizes = [file.size or 0 for file in entry.files]
            size = f"{sum(sizes) / 1e6:.1f} MB" if all(sizes) and sizes else ""
            here = "packaged" if entry.packaged else _state(entry)
            rows.append((entry.name, entry.domain, entry.title, entry.licence, size, here))
        print_table(("name", "domain", "what", "licence", "size", "here"), rows)
        print(f"data folder: {data_root()}")
        return 0
    if name is None:
        raise UserError(f"name a data set to {action}: {', '.join(sets)}")
    if name not in sets:
        raise unknown("data set", name, sets)
    chosen = sets[name]
    if chosen.packaged:
        print(f"{name} is part of {chosen.packaged}: there is nothing to {action}")
        return 0
    for path in fetch(chosen) if action == "fetch" else locate(chosen).values():
        print(path)
    return 0


def _state(entry: "PublicSet") -> str:
    """Return whether the files of a set are here."""
    from r2mae.catalogue import locate

    try:
        locate(entry)
    except UserError:
        return "missing"
    return "ok"
