"""The names of the columns that hold contig, position and alleles, in the spellings that people use."""

from collections.abc import Sequence

from r2mae.errors import UserError

REASON = "_reason"
"""What the name of the column with the reasons ends in, after that of the scores."""

_NAMES = {
    "chrom": ("chrom", "chromosome", "contig", "chr"),
    "pos": ("pos", "position"),
    "ref": ("ref", "reference", "reference_allele", "ref_allele"),
    "alt": ("alt", "alternate", "alternative", "alternate_allele", "alt_allele"),
}
HEADER_ADVICE = "give it a first line with chrom, pos, ref, alt"


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
