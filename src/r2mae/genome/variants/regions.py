"""Every substitution of some regions, as a table of variants (saturation)."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
from jaxtyping import Float32, UInt8

from r2mae.errors import UserError
from r2mae.genome.store.alignment import AlignmentStore
from r2mae.genome.store.intervals import read_regions
from r2mae.genome.store.tokens import GAP, LETTERS
from r2mae.genome.variants.alleles import REASON, Block
from r2mae.genome.variants.bgzip import text_file
from r2mae.genome.variants.text import table_rows

_COLUMNS = ("chrom", "pos", "ref", "alt")
_READ = 1 << 16  # positions that are read at a time


class RegionVariants:
    """All three alternatives of every base of some regions; positions without a reference base are left out.

    Parameters
    ----------
    store : AlignmentStore
    regions : sequence of str
        Contigs, intervals such as chr1:1,001-2,000 (counted from 1), or BED files.

    Raises
    ------
    UserError
        For a region that the store has not.
    """

    def __init__(self, store: AlignmentStore, regions: Sequence[str]) -> None:
        self.store, self.regions = store, tuple(regions)
        self.intervals = read_regions(regions, store.layout)

    def blocks(self, size: int) -> Iterator[Block]:
        """Yield blocks of about so many rows; the alternatives of a position are never in two."""
        sites, number = self._sites(), 0
        while some := list(islice(sites, max(size // 3, 1))):
            block = Block(number, [], [], [], [], [], [])
            for contig, position, token in some:
                for alt in range(GAP):
                    if alt != token:
                        block.owners.append(len(block.owners))
                        block.contigs.append(contig)
                        block.positions.append(position + 1)
                        block.refs.append(LETTERS[token])
                        block.alts.append(LETTERS[alt])
            rows = zip(block.contigs, block.positions, block.refs, block.alts, strict=True)
            block.rows.extend("\t".join(map(str, row)).encode("utf-8", "surrogateescape") for row in rows)
            yield block
            number += 1

    def _sites(self) -> Iterator[tuple[str, int, int]]:
        for contig, start, end in self.intervals.rows():
            name = self.store.contigs[contig]
            for first in range(start, end, _READ):
                count = min(_READ, end - first)
                tokens = self.store.reference_windows(np.array([contig]), np.array([first]), count)[0]
                for place in np.flatnonzero(tokens < GAP).tolist():
                    yield name, first + place, int(tokens[place])

    def check_name(self, column: str) -> None:
        """Refuse a name for the scores that is one of the other columns."""
        if column in _COLUMNS or column + REASON in _COLUMNS:
            raise UserError(f"the table has {column!r} already: name the new column otherwise, --column NAME")

    def write(
        self,
        output: Path,
        column: str,
        scored: Iterable[tuple[Block, Float32[np.ndarray, " n"], UInt8[np.ndarray, " n"]]],
    ) -> None:
        """Write a table of text with chrom, pos, ref, alt, score and reason."""
        with text_file(output) as writer:
            writer.write("\t".join([*_COLUMNS, column, column + REASON]).encode() + b"\n")
            for block, scores, reasons in scored:
                writer.write(table_rows(block, b"\t", scores, reasons))
