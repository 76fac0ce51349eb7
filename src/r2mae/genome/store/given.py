"""The reference's own FASTA: what an alignment is compared with, and what fills the positions that it leaves out."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
from jaxtyping import Bool, UInt8

from r2mae.errors import UserError, nearest
from r2mae.genome.store.fasta import records
from r2mae.genome.store.meta import Layout
from r2mae.genome.store.sources import Stream, kind_of
from r2mae.genome.store.tokens import GAP, LETTERS, SOFT, UNKNOWN
from r2mae.genome.store.unfinished import Unfinished
from r2mae.genome.store.writing import allocate, write_at

GIVEN = "given.bin"
_STAGE = "reading the reference"
_BASES = np.uint8(SOFT - 1)


def read_given(path: Path, layout: Layout, work: Unfinished, told: Callable[[float], None]) -> None:
    """Write the tokens of the layout's contigs to a file of the unfinished store.

    Raises
    ------
    UserError
        A contig that is missing, comes twice or has another length; or what the FASTA reader raises.
    """
    if work.state(_STAGE)["done"]:
        return
    if kind_of(path) != "fasta":
        raise UserError(f"{path}: --reference takes a FASTA file")
    lengths: dict[str, int] = {}
    target = work.path(GIVEN)
    allocate(target, layout.positions)
    handle = os.open(target, os.O_WRONLY)
    try:
        with Stream(path) as stream:
            for record in records(stream):
                number = layout.find(record.name)
                if record.title and number is not None:
                    if record.name in lengths:
                        raise UserError(f"{path}, line {record.line:,}: {record.name} comes twice")
                    lengths[record.name] = 0
                if record.title or number is None:
                    continue
                place = lengths[record.name]
                lengths[record.name] = place + len(record.tokens)
                if lengths[record.name] <= layout.lengths[number]:
                    if GAP in record.tokens:
                        raise UserError(
                            f"{path}, line {record.line:,}: {record.name} holds a gap: a reference has none"
                        )
                    write_at(handle, record.tokens, int(layout.offsets[number]) + place)
                told(stream.fraction)
    finally:
        os.close(handle)
    for name, length in zip(layout.contigs, layout.lengths, strict=True):
        if name not in lengths:
            hint = nearest(name, lengths) if lengths else "its contigs have other names"
            raise UserError(f"{path}: has no contig {name!r}, which the alignment has: {hint}")
        if lengths[name] != length:
            raise UserError(
                f"{path}: {name} has {lengths[name]:,} positions, and {length:,} in the alignment: same assembly?"
            )
    work.commit(_STAGE, 1, target)


def only_record(path: Path) -> str | None:
    """Return the name of a FASTA's record, if it has one alone."""
    found: set[str] = set()
    with Stream(path) as stream:
        for record in records(stream):
            found.add(record.name)
            if len(found) > 1:
                return None
    return found.pop() if found else None


def differences(
    reference: UInt8[np.ndarray, " positions"], given: UInt8[np.ndarray, " positions"]
) -> Bool[np.ndarray, " positions"]:
    """Tell where two copies of the reference differ; where one is unknown they do not."""
    one, other = reference & _BASES, given & _BASES
    found: Bool[np.ndarray, " positions"] = (one != other) & (one != UNKNOWN) & (other != UNKNOWN)
    return found


def mismatch(place: str, position: str, reference: int, given: int, path: Path) -> UserError:
    """Build the error for a difference; `place` names file and line."""
    here, there = (LETTERS[token & int(_BASES)] for token in (reference, given))
    return UserError(
        f"{place}: the reference has {here} at {position}, and {path} has {there}: is it of the same assembly?"
    )
