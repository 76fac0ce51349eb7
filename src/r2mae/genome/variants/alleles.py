"""What can be scored: single bases that take another's place. Everything else has a reason.

Here are also the names of the columns that hold contig, position and alleles, in the spellings that people use.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int64, UInt8

from r2mae.errors import UserError
from r2mae.genome.store.alignment import AlignmentStore
from r2mae.genome.store.tokens import GAP

REASONS = {
    "": "scored",
    "unknown_contig": "the store has no such contig",
    "outside_contig": "the position is past the contig's end, or below 1",
    "no_allele": "an allele is missing",
    "symbolic_allele": "an alternative such as <DEL>, * or a breakend",
    "indel": "alleles of different lengths",
    "several_bases": "more than one base changes",
    "ambiguous_allele": "an allele holds an ambiguity code",
    "invalid_allele": "an allele is no DNA",
    "same_allele": "both alleles are the same",
    "reference_mismatch": "the store has another reference base there",
    "reference_unknown": "the store has no reference base there",
}
"""Why a variant has no score, in a word, and what that means. Codes are places in this list; 0 is scored."""

REASON = "_reason"
"""What the name of the column with the reasons ends in, after that of the scores."""
HEADER_ADVICE = "give it a first line with chrom, pos, ref, alt"
"""The hint for a file that lacks columns."""

_NAMES = {
    "chrom": ("chrom", "chromosome", "contig", "chr"),
    "pos": ("pos", "position"),
    "ref": ("ref", "reference", "reference_allele", "ref_allele"),
    "alt": ("alt", "alternate", "alternative", "alternate_allele", "alt_allele"),
}
_CODES = {reason: code for code, reason in enumerate(REASONS)}
_BASES = {letter: code for code, letters in enumerate(("Aa", "Cc", "Gg", "Tt")) for letter in letters}
_DNA = re.compile(r"[ACGTacgt]+")
_IUPAC = re.compile(r"[ACGTUNRYSWKMBDHVacgtunryswkmbdhv]+")


def find_columns(names: Sequence[str], where: str) -> tuple[int, int, int, int]:
    """Return the places of contig, position (counted from 1), reference and alternative; case means nothing.

    Parameters
    ----------
    names : sequence of str
    where : str
        File and line, for errors.

    Raises
    ------
    UserError
        If one is missing, or there twice.
    """
    lowered = [name.strip().lower() for name in names]
    places = []
    for name, spellings in _NAMES.items():
        found = [place for place, one in enumerate(lowered) if one in spellings]
        if not found:
            raise UserError(f"{where}: no column is called {name}: {HEADER_ADVICE}, as GPN and VCF name them")
        if len(found) > 1:
            both = " and ".join(names[place] for place in found[:2])
            raise UserError(f"{where}: {both} may both be {name}: rename one")
        places.append(found[0])
    contig, position, ref, alt = places
    return contig, position, ref, alt


@dataclass(frozen=True)
class Block:
    """Some consecutive rows of a file, and their alleles one after the other.

    Parameters
    ----------
    number : int
        Which block of the file, from 0.
    rows : list or record batch
        As the file's own writer needs them.
    owners : list of int
        The row of each alternative; a row of a VCF may have several.
    contigs, refs, alts : list of str
        Of each alternative.
    positions : list of int
        Of each alternative, counted from 1.
    """

    number: int
    rows: Any
    owners: list[int]
    contigs: list[str]
    positions: list[int]
    refs: list[str]
    alts: list[str]

    def __len__(self) -> int:
        """Return the number of alternatives."""
        return len(self.owners)


@dataclass(frozen=True)
class Substitutions:
    """The alternatives of a block as numbers.

    Parameters
    ----------
    reasons : uint8 ndarray
        Places in :data:`REASONS`; the other fields mean something where they are 0.
    contigs, positions : int64 ndarray
        Number of the contig, and position counted from 0.
    refs, alts : int64 ndarray
        A, C, G, T as 0 to 3.
    """

    reasons: UInt8[np.ndarray, " n"]
    contigs: Int64[np.ndarray, " n"]
    positions: Int64[np.ndarray, " n"]
    refs: Int64[np.ndarray, " n"]
    alts: Int64[np.ndarray, " n"]


def substitutions(block: Block, store: AlignmentStore) -> Substitutions:
    """Compare the alternatives of a block with a store.

    Lower-case alleles are what upper-case ones are. Longer alleles of equal length that differ in one base are a
    substitution of that base. A contig is also found with or without "chr" before its name.
    """
    contigs = contig_numbers(block.contigs, store)
    reasons = np.zeros(len(block), np.uint8)
    positions: Int64[np.ndarray, " n"] = np.array(block.positions, np.int64).reshape(-1) - 1
    refs, alts = np.zeros(len(block), np.int64), np.zeros(len(block), np.int64)
    for place, (ref, alt) in enumerate(zip(block.refs, block.alts, strict=True)):
        one, other = _BASES.get(ref), _BASES.get(alt)
        shift = 0
        if one is None or other is None or one == other:
            reason, shift = _longer(ref, alt)
            if reason:
                reasons[place] = _CODES[reason]
                continue
            one, other = _BASES[ref[shift]], _BASES[alt[shift]]
        refs[place], alts[place] = one, other
        positions[place] += shift
    reasons[contigs < 0] = _CODES["unknown_contig"]
    sizes = store.lengths[np.maximum(contigs, 0)]
    reasons[(reasons == 0) & ((positions < 0) | (positions >= sizes))] = _CODES["outside_contig"]
    _compare(store, reasons, contigs, positions, refs)
    return Substitutions(reasons, contigs, positions, refs, alts)


def contig_numbers(names: Sequence[str], store: AlignmentStore) -> Int64[np.ndarray, " n"]:
    """Return the numbers of contigs, -1 for those that the store has not."""
    known: dict[str, int] = {}
    for name in set(names):
        found = store.layout.numbers.get(name)
        if found is None:
            found = store.layout.numbers.get(name[3:] if name.startswith("chr") else f"chr{name}")
        known[name] = -1 if found is None else found
    return np.array([known[name] for name in names], np.int64).reshape(-1)


def _longer(ref: str, alt: str) -> tuple[str, int]:
    """Return why alleles are no single substitution, or else the place at which they differ."""
    if ref in ("", ".") or alt in ("", "."):
        return "no_allele", 0
    if alt == "*" or alt[0] == "<" or "[" in alt or "]" in alt or alt[0] == "." or alt[-1] == ".":
        return "symbolic_allele", 0
    for allele in (ref, alt):
        if not _DNA.fullmatch(allele):
            return ("ambiguous_allele" if _IUPAC.fullmatch(allele) else "invalid_allele"), 0
    if len(ref) != len(alt):
        return "indel", 0
    differ = [place for place, pair in enumerate(zip(ref.upper(), alt.upper(), strict=True)) if pair[0] != pair[1]]
    if not differ:
        return "same_allele", 0
    return ("", differ[0]) if len(differ) == 1 else ("several_bases", 0)


def _compare(
    store: AlignmentStore,
    reasons: UInt8[np.ndarray, " n"],
    contigs: Int64[np.ndarray, " n"],
    positions: Int64[np.ndarray, " n"],
    refs: Int64[np.ndarray, " n"],
) -> None:
    """Write down where the store has another reference base."""
    left = np.flatnonzero(reasons == 0)
    if not len(left):
        return
    there = store.reference_windows(contigs[left], positions[left], 1)[:, 0]
    unknown = there >= GAP
    reasons[left[unknown]] = _CODES["reference_unknown"]
    reasons[left[~unknown & (there != refs[left])]] = _CODES["reference_mismatch"]


def bounded(position: int) -> int:
    """Return a position that fits the store's numbers; others are outside of any contig, as 0."""
    return position if 0 <= position < 1 << 40 else 0


def tally(reasons: UInt8[np.ndarray, " n"]) -> Int64[np.ndarray, " reasons"]:
    """Count reasons."""
    found: Int64[np.ndarray, " reasons"] = np.bincount(reasons, minlength=len(REASONS)).astype(np.int64)
    return found
