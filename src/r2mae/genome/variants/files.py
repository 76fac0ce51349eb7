"""Files of variants: formats by name, and the reader of each."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float32, UInt8

from r2mae.errors import UserError
from r2mae.files import atomic_path
from r2mae.genome.variants.alleles import REASON, Block

Kind = Literal["vcf", "tsv", "csv", "parquet"]
_SUFFIXES: dict[Kind, tuple[str, ...]] = {
    "vcf": (".vcf",),
    "tsv": (".tsv", ".txt", ".tab"),
    "csv": (".csv",),
    "parquet": (".parquet", ".pq"),
}
FORMATS = "VCF (.vcf, .vcf.gz), a table (.tsv, .csv, also .gz) or Parquet (.parquet)"

Scored = tuple[Block, Float32[np.ndarray, " n"], UInt8[np.ndarray, " n"]]
"""A block with scores and reasons."""


class Variants(ABC):
    """Rows of variants that can be scored."""

    kind: Kind
    """The format of the output."""
    names: tuple[str, ...]
    """Columns, and for a VCF also keys of INFO."""

    @abstractmethod
    def blocks(self, size: int) -> Iterator[Block]:
        """Yield blocks of about so many rows, always the same ones."""

    @abstractmethod
    def values(self, block: Block, column: str) -> list[str]:
        """Return the values of a column as text, one for each alternative, empty where there is none."""

    @abstractmethod
    def write(self, output: Path, column: str, scored: Iterable[Scored]) -> None:
        """Write all rows with their scores and reasons, atomically."""


def kind_of(path: Path) -> Kind | None:
    """Return the format of a name, None for no format of variants."""
    name = path.name.lower()
    for packed in (".gz", ".bgz"):
        name = name.removesuffix(packed)
    for kind, suffixes in _SUFFIXES.items():
        if name.endswith(suffixes) and (kind != "parquet" or path.suffix.lower() in suffixes):
            return kind
    return None


def open_variants(path: Path) -> Variants:
    """Open a file of variants.

    Raises
    ------
    UserError
        No such file, a format that is not read, or no columns for contig, position and alleles.
    """
    from r2mae.genome.variants.table import ParquetVariants, TextVariants
    from r2mae.genome.variants.vcf import VcfVariants

    if path.name.lower().endswith((".bcf", ".bcf.gz")):
        raise UserError(f"{path}: BCF is not read: bcftools view -Oz -o {path.stem}.vcf.gz {path}")
    kind = kind_of(path)
    if kind is None:
        raise UserError(f"{path}: variants are read from {FORMATS}")
    if path.is_dir() or not path.exists():
        raise UserError(f"{path}: there is no such file")
    if kind == "vcf":
        return VcfVariants(path)
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


def check_column(source: Variants, column: str) -> None:
    """Refuse a name for the scores that is not one, or that the rows have already.

    Raises
    ------
    UserError
    """
    if not column or any(not (letter.isalnum() or letter in "_.") for letter in column) or column[0].isdigit():
        raise UserError(f"--column is a name of letters, digits and _, not {column!r}")
    for name in (column, column + REASON):
        if name in source.names:
            raise UserError(f"the variants have {name!r} already: name the new column otherwise, --column NAME")


@contextmanager
def text_file(path: Path) -> Iterator[Callable[[bytes], Any]]:
    """Yield a function that writes text to a file, as bgzip if its name ends in .gz; it appears when all is written."""
    with atomic_path(path) as place:
        if path.suffix not in (".gz", ".bgz"):
            with place.open("wb") as file:
                yield file.write
            return
        try:
            from pysam import BGZFile
        except ImportError:
            raise UserError(f"{path}: bgzip needs pysam: pip install 'r2mae[genome]', or omit .gz") from None
        place.touch()  # the library crashes if it cannot make the file
        with BGZFile(str(place), "wb") as packed:
            yield packed.write
