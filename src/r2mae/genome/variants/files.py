"""Which reader a file of variants needs, and whether an output fits it."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float32, UInt8

from r2mae.errors import UserError
from r2mae.genome.variants.alleles import Block
from r2mae.genome.variants.parquet import ParquetVariants
from r2mae.genome.variants.text import TextVariants

Kind = Literal["vcf", "tsv", "csv", "parquet"]
_SUFFIXES: dict[Kind, tuple[str, ...]] = {
    "vcf": (".vcf",),
    "tsv": (".tsv", ".txt", ".tab"),
    "csv": (".csv",),
    "parquet": (".parquet", ".pq"),
}
FORMATS = "VCF (.vcf, .vcf.gz), a table (.tsv, .csv, also .gz) or Parquet (.parquet)"


@runtime_checkable
class Variants(Protocol):
    """Rows of variants that can be scored."""

    def check_name(self, column: str) -> None:
        """Refuse a name for the scores that the rows have already."""

    def blocks(self, size: int) -> Iterator[Block]:
        """Yield blocks of about so many rows, always the same ones."""

    def write(
        self,
        output: Path,
        column: str,
        scored: Iterable[tuple[Block, Float32[np.ndarray, " n"], UInt8[np.ndarray, " n"]]],
    ) -> None:
        """Write all rows with their scores and reasons, atomically."""


def kind_of(path: Path) -> Kind | None:
    """Return the format that a name stands for, None for no format of variants."""
    name = path.name.lower()
    for packed in (".gz", ".bgz"):
        name = name.removesuffix(packed)
    for kind, suffixes in _SUFFIXES.items():
        if name.endswith(suffixes) and (kind != "parquet" or path.suffix.lower() in suffixes):
            return kind
    return None


def open_variants(path: Path) -> TextVariants | ParquetVariants:
    """Open a file of variants.

    Raises
    ------
    UserError
        No such file, a format that is not read, or no columns for contig, position and alleles.
    """
    if path.name.lower().endswith((".bcf", ".bcf.gz")):
        raise UserError(f"{path}: BCF is not read: bcftools view -Oz -o {path.stem}.vcf.gz {path}")
    kind = kind_of(path)
    if kind is None:
        raise UserError(f"{path}: variants are read from {FORMATS}")
    if path.is_dir() or not path.exists():
        raise UserError(f"{path}: there is no such file")
    return ParquetVariants(path) if kind == "parquet" else TextVariants(path, kind)


def check_output(output: Path, kind: Kind) -> None:
    """Refuse an output of another format than the input has.

    Raises
    ------
    UserError
    """
    if kind_of(output) != kind:
        suffix = _SUFFIXES[kind][0]
        also = "" if kind == "parquet" else f" or {suffix}.gz"
        raise UserError(f"{output}: the rows are written as they were read: name a file that ends in {suffix}{also}")
