"""``r2mae data list | fetch NAME | path NAME | verify NAME``: public data sets."""

from dataclasses import dataclass

from r2mae.errors import UserError, unknown
from r2mae.training.fields import argument

ACTIONS = ("list", "fetch", "path", "verify")


def _sets() -> tuple[str, ...]:
    from r2mae.domains.lookup import public_sets

    return tuple(public_sets())


@dataclass(frozen=True)
class Options:
    """List public data sets, fetch one, print where its files are, or compare them with their checksums.

    The data folder is R2MAE_DATA, or the user's cache folder. For alignments of genomes see
    `r2mae data alignment --help`.

    Parameters
    ----------
    action : str
        list (the default), fetch, path or verify.
    name : str, optional
        Name of a set.

    Examples
    --------
    r2mae data fetch mnist
    """

    action: str = argument("list", words=(*ACTIONS, "alignment"))
    name: str | None = argument(None, words=_sets)


def run(options: Options) -> int:
    """Run the command."""
    from r2mae.domains.lookup import public_sets

    action, name, sets = options.action, options.name, public_sets()
    if action not in ACTIONS:
        raise unknown("action", action, (*ACTIONS, "alignment"))
    if action == "list":
        if name is not None:
            raise UserError(f"data list lists all sets: omit {name!r}")
        _list()
        return 0
    if name is None:
        raise UserError(f"name a data set to {action}: {', '.join(sets)}")
    if name not in sets:
        raise unknown("data set", name, sets)
    from r2mae.catalogue import fetch, locate, verify

    chosen = sets[name]
    if chosen.packaged:
        print(f"{name} is part of {chosen.packaged}: there is nothing to {action}")
        return 0
    if action == "verify":
        statuses = verify(chosen)
        for path, status in statuses.items():
            print(f"{status}\t{path}")
        return 0 if all(status in ("ok", "unrecorded") for status in statuses.values()) else 2
    for path in fetch(chosen) if action == "fetch" else locate(chosen).values():
        print(path)
    return 0


def _list() -> None:
    from rich.table import Table

    from r2mae.catalogue import data_root, verify
    from r2mae.domains.lookup import public_sets
    from r2mae.terminal import Terminal

    table = Table("name", "domain", "what", "licence", "size", "here", box=None, pad_edge=False)
    for entry in public_sets().values():
        sizes = [file.size for file in entry.files]
        size = "" if None in sizes or not sizes else f"{sum(s for s in sizes if s) / 1e6:.1f} MB"
        here = "packaged" if entry.packaged else ", ".join(sorted(set(verify(entry).values())))
        table.add_row(entry.name, entry.domain, entry.title, entry.licence, size, here)
    console = Terminal()
    console.print(table)
    console.print(f"data folder: {data_root()}", soft_wrap=True, highlight=False)
