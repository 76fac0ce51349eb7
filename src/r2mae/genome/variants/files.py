"""Files of variants: formats by name, and the reader of each."""

from pathlib import Path

from r2mae.errors import UserError
from r2mae.genome.variants.alleles import REASON
from r2mae.genome.variants.rows import Kind, Variants
from r2mae.genome.variants.table import ParquetVariants, TextVariants
from r2mae.genome.variants.vcf import VcfVariants

_SUFFIXES: dict[Kind, tuple[str, ...]] = {
    "vcf": (".vcf",),
    "tsv": (".tsv", ".txt", ".tab"),
    "csv": (".csv",),
    "parquet": (".parquet", ".pq"),
}
FORMATS = "VCF (.vcf, .vcf.gz), a table (.tsv, .csv, also .gz) or Parquet (.parquet)"


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
