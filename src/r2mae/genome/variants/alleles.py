"""What can be scored: single bases that take another's place. Everything else has a reason."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64, UInt8

from r2mae.genome.store.alignment import AlignmentStore
from r2mae.genome.store.intervals import SHIFT
from r2mae.genome.store.tokens import GAP

REASONS = {
    "": "scored",
    "unknown_contig": "the store has no such contig",
    "outside_contig": "the position is past the contig's end, or below 1",
    "no_substitution": "an indel, several bases, a missing, symbolic or ambiguous allele, or no change",
    "reference_mismatch": "the store has another reference base there",
    "reference_unknown": "the store has no reference base there",
}
"""Why a variant has no score, in a word, and what that means. Codes are places in this list; 0 is scored."""

_CODES = {reason: code for code, reason in enumerate(REASONS)}
_BASES = {letter: code for code, letters in enumerate(("Aa", "Cc", "Gg", "Tt")) for letter in letters}

Allele = tuple[str, int, str, str]
"""An alternative: contig, position (counted from 1), reference and alternative allele."""


@dataclass(frozen=True)
class Substitutions:
    """Alternatives as numbers: contig, position counted from 0, and alleles as 0 to 3 for A, C, G, T.

    These mean something where the reason, a place in :data:`REASONS`, is 0.
    """

    reasons: UInt8[np.ndarray, " n"]
    contigs: Int64[np.ndarray, " n"]
    positions: Int64[np.ndarray, " n"]
    refs: Int64[np.ndarray, " n"]
    alts: Int64[np.ndarray, " n"]

    @property
    def places(self) -> Int64[np.ndarray, " n"]:
        """Contig and position as one number."""
        found: Int64[np.ndarray, " n"] = self.contigs << SHIFT | self.positions
        return found


def substitutions(alleles: Sequence[Allele], store: AlignmentStore) -> Substitutions:
    """Compare alternatives with a store.

    Lower-case alleles are what upper-case ones are. Longer alleles of equal length that differ in one base are a
    substitution of that base. A contig is also found with or without "chr" before its name.
    """
    contigs = _contig_numbers([contig for contig, *_ in alleles], store)
    positions: Int64[np.ndarray, " n"] = np.array([position - 1 for _, position, *_ in alleles], np.int64)
    reasons = np.zeros(len(contigs), np.uint8)
    refs, alts = np.zeros_like(contigs), np.zeros_like(contigs)
    for place, (_, _, ref, alt) in enumerate(alleles):
        one, other = _BASES.get(ref), _BASES.get(alt)
        if one is None or other is None or one == other:
            shift = _only_difference(ref, alt)
            if shift is None:
                reasons[place] = _CODES["no_substitution"]
                continue
            one, other = _BASES[ref[shift]], _BASES[alt[shift]]
            positions[place] += shift
        refs[place], alts[place] = one, other
    reasons[contigs < 0] = _CODES["unknown_contig"]
    sizes = store.lengths[np.maximum(contigs, 0)]
    reasons[(reasons == 0) & ((positions < 0) | (positions >= sizes))] = _CODES["outside_contig"]
    left = np.flatnonzero(reasons == 0)
    there = store.reference_windows(contigs[left], positions[left], 1)[:, 0]
    reasons[left[there != refs[left]]] = _CODES["reference_mismatch"]
    reasons[left[there >= GAP]] = _CODES["reference_unknown"]
    return Substitutions(reasons, contigs, positions, refs, alts)


def _contig_numbers(names: Sequence[str], store: AlignmentStore) -> Int64[np.ndarray, " n"]:
    """Return the numbers of contigs, -1 for those that the store has not."""
    known = dict.fromkeys(names, -1)
    for name in known:
        other = name[3:] if name.startswith("chr") else f"chr{name}"
        known[name] = store.layout.numbers.get(name, store.layout.numbers.get(other, -1))
    return np.array([known[name] for name in names], np.int64)


def _only_difference(ref: str, alt: str) -> int | None:
    """Return the place of the only base in which alleles of equal length differ, or None."""
    if len(ref) != len(alt) or not _BASES.keys() >= {*ref, *alt}:
        return None
    differ = [place for place, (one, other) in enumerate(zip(ref, alt, strict=True)) if _BASES[one] != _BASES[other]]
    return differ[0] if len(differ) == 1 else None
