"""Finds contigs of a store by the names that other files have for them."""

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from r2mae.errors import UserError, listed, unknown, warn_once
from r2mae.files import ordinary
from r2mae.genome.store.alignment import Layout
from r2mae.genome.store.sources import name_of, table_lines

RENAME = "name others with --rename OLD=NEW"
"""What to do about names that were not found, where there is such an option."""

_MOST = 3  # names in a line
_MITOCHONDRIAL = ("m", "mt", "mito", "mtdna")
# Human chromosomes 1 to 22, X and Y, at NCBI (NC_000001.11) and in GenBank (CM000663.2), of any assembly.
_CHROMOSOMES = {f"{number}": f"{number}" for number in range(1, 23)} | {"23": "x", "24": "y"}
_ACCESSIONS = (
    {f"nc_{int(number):06}": name for number, name in _CHROMOSOMES.items()}
    | {f"cm{662 + int(number):06}": name for number, name in _CHROMOSOMES.items()}
    | {"nc_012920": "m", "j01415": "m"}
)
# An accession of GenBank or NCBI, and what UCSC makes of it: chrUn_KI270302v1, chr1_KI270706v1_random.
_ACCESSION = r"([a-z]\d{5}|[a-z]{2}_?\d{6,9}|[a-z]{4}\d{8,10}|[a-z]{6}\d{11,13})[v.](\d+)"
_SCAFFOLD = re.compile(rf"(?:chr[^_]+_)?{_ACCESSION}(?:_(?:random|alt|fix))?")


def _plain(name: str) -> str:
    """Return what all names of a chromosome have in common, such as "m" for chrM, MT and NC_012920.1."""
    plain = name.lower()
    accession, _, version = plain.partition(".")
    if accession in _ACCESSIONS and (version.isdigit() or accession == plain):
        return _ACCESSIONS[accession]
    scaffold, plain = _SCAFFOLD.fullmatch(plain), plain.removeprefix("chr")
    return f"{scaffold[1]}.{scaffold[2]}" if scaffold else "m" if plain in _MITOCHONDRIAL else plain


def _differ(name: str, other: str) -> bool:
    """Return whether two names are versions of one accession, such as NC_000001.10 (hg19) and NC_000001.11 (hg38)."""
    (one, _, version), (same, _, its) = (text.lower().partition(".") for text in (name, other))
    return one == same in _ACCESSIONS and "" != version != its != ""


def read_renamed(given: Iterable[str]) -> dict[str, str]:
    """Read names of contigs and what the store calls them: texts ``OLD=NEW``, and files of two columns."""
    renamed = dict[str, str]()
    for text in given:
        path, (old, _, new) = Path(os.path.expanduser(text)), text.partition("=")  # noqa: PTH111 (it never raises)
        if os.path.isfile(path):  # noqa: PTH113 (a name may be longer than any path)
            for number, line in table_lines(path):
                names = [name_of(field) for field in line.split()]
                if len(names) != 2:
                    raise UserError(f"{path}, line {number:,}: a line has two names, that of the file and the store's")
                renamed[names[0]] = names[1]
        elif old and new:
            renamed[old] = new
        else:
            if os.path.exists(path):  # noqa: PTH110
                ordinary(path)
            raise UserError(
                f"--rename {text}: is neither OLD=NEW, a name of the file and the store's, nor a file of them"
            )
    return renamed


class Contigs:
    """The contigs of a store, as other files name them.

    A name is one that `renamed` has, or that of the store, or another spelling if exactly one contig of the store fits:
    with or without ``chr``; M or MT; accessions of human chromosomes at NCBI or in GenBank; scaffolds as UCSC spells
    them. A UserError is raised if `renamed` names a contig that the store lacks.
    """

    def __init__(self, layout: Layout, renamed: Mapping[str, str] | None = None) -> None:
        self._names = layout.contigs
        self._lengths = layout.lengths
        self._seen = dict[str, int]()
        self._unfit = set[str]()
        self._known = layout.numbers | {old: layout.number(new) for old, new in (renamed or {}).items()}
        self._spelt = dict[str, int]()
        for number, plain in enumerate(map(_plain, layout.contigs)):
            self._spelt[plain] = -1 if plain in self._spelt else number

    def number(self, name: str) -> int:
        """Return the number of a contig, -1 if the store has none of this name."""
        found = self._seen.get(name)
        if found is None:
            found = self._known.get(name, self._spelt.get(_plain(name), -1))
            if name not in self._known and found >= 0 and _differ(name, self._names[found]):
                found = -1
            self._seen[name] = found
        return found

    def fits(self, name: str, *, length: int | None = None, end: int = 0) -> bool:
        """Return whether a contig that has this length, or reaches to `end`, can be the one that was found.

        A name that was inferred and does not fit is not found from now on.
        """
        number = self.number(name)
        if number < 0:
            return False
        is_fit = end <= self._lengths[number] and length in (None, self._lengths[number])
        if not is_fit and name not in self._known:
            self._seen[name] = -1
            self._unfit.add(name)
        return is_fit

    def require(self, name: str) -> int:
        """Return the number of a contig, or raise a UserError."""
        if (number := self.number(name)) < 0:
            raise unknown("contig", name, self._names)
        return number

    def report(self, where: object, *, hint: str = "give the contigs the same names", all_needed: bool = True) -> None:
        """Log which names were found as others, and unless only some are needed, which were not found.

        Raises
        ------
        UserError
            If none was found; `hint` says what to do.
        """
        missing = sorted(name for name, number in self._seen.items() if number < 0)
        known = _some(self._names)
        if self._unfit:
            known += f" ({_some(sorted(self._unfit))} has another length)"
        if self._seen and len(missing) == len(self._seen):
            raise UserError(f"{where}: names {_some(missing)}, and the store has the contigs {known}: {hint}")
        others = [(name, self._names[number]) for name, number in self._seen.items() if number >= 0]
        if matched := [f"{name} is {own}" for name, own in others if name != own]:
            # Without those of --rename.
            given = Counter(own for name, own in others if name == own or name not in self._known)
            twice = sorted(own for own, count in given.items() if count > 1)
            more = f"; several names of the file are {_some(twice)}: leave one of them" if twice else ""
            if any(name.lower().partition(".")[0] in _ACCESSIONS for name, own in others if name != own):
                more += "; the assembly that an accession's version means is not known there: check that it is the same"
            warn_once(f"{where}: contigs have other names in the store: {_some(matched)}{more}")
        if missing and all_needed:
            warn_once(f"{where}: the store lacks {_some(missing)}; it has {known}: {hint}")


def _some(names: Sequence[str]) -> str:
    return listed(names, _MOST)
