"""Options of commands on genomes. No torch."""

from dataclasses import dataclass

from r2mae.domains.options import as_in_run
from r2mae.fields import argument, option
from r2mae.genome.config import GenomeEvaluationConfig


@dataclass(frozen=True)
class Variants:
    """The variants of an evaluation.

    Parameters
    ----------
    variants : str
        A file of variants: VCF, .tsv, .csv or Parquet.
    """

    variants: str = option(metavar="FILE")


HiddenBases = as_in_run(GenomeEvaluationConfig, "eval_windows")
"""Options of the default evaluation."""
LabelledVariants = as_in_run(GenomeEvaluationConfig, "label", "positive", "classes", "contrasts", base=Variants)
"""Options of the evaluation on variants."""


@dataclass(frozen=True)
class Regions:
    """Options of embedding.

    Parameters
    ----------
    regions : list of str
        Contigs, intervals such as chr1:1,001-2,000, or BED files; by default everything.
    """

    regions: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class _Scoring:
    """Options of every command that scores positions.

    Parameters
    ----------
    run : str
        A run folder.
    output : str
        The file to write, of the same format.
    data : str, optional
        Another store than the run's.
    batch_size : int, optional
        Windows per forward pass; a position has two.
    device : str
        Device: auto, cpu, cuda or cuda:N.
    """

    run: str = argument()
    output: str = option(short="-o", metavar="OUT")
    data: str | None = None
    batch_size: int | None = None
    device: str = "auto"


@dataclass(frozen=True, kw_only=True)
class ScoreVariants(_Scoring):
    """Score variants of a genome with a pretrained model.

    Parameters
    ----------
    variants : str
        VCF (.vcf, .vcf.gz), or a table with chrom, pos, ref, alt (.tsv, .csv, also .gz; .parquet).
    column : str
        Name of the scores; that of the reasons ends in _reason.

    Examples
    --------
    r2mae score-variants runs/genome variants.vcf.gz -o scored.vcf.gz
    """

    variants: str = argument()
    column: str = "score"


@dataclass(frozen=True, kw_only=True)
class Logits(_Scoring):
    """Write a pretrained model's logits at each position of a region, of which differences are scores of substitutions.

    Parameters
    ----------
    regions : list of str
        Contigs, intervals such as chr1:101-200, or BED files.

    Examples
    --------
    r2mae logits runs/genome regions.bed -o logits.tsv.gz
    """

    regions: tuple[str, ...] = argument()


@dataclass(frozen=True, kw_only=True)
class Build:
    """Make a store of an alignment: MAF files, or FASTA files whose rows are aligned to the first, the reference.

    They may be plain, gzip or bgzip, which is detected by content. A zarr group is read that has an array of letters
    for each contig, positions x species. The same command resumes an interrupted build. If several MAF blocks cover a
    position, the first is used.

    Parameters
    ----------
    sources : list of str
        MAF or FASTA files, or a zarr group.
    out : str
        Folder of the store.
    species : str, optional
        File with a species on each line: those to keep, in this order; the reference is always the first.
    reference : str, optional
        FASTA of the reference. It must agree with the alignment, and fills positions that the alignment omits.
    contig : str, optional
        Name of the contig of a FASTA alignment; by default that of its first row.

    Examples
    --------
    r2mae data alignment build chrM.maf.gz --reference chrM.fa.gz -o mtdna
    r2mae data alignment build chr1.maf.gz chr2.maf.gz -o human
    r2mae data alignment build 89.zarr --species species.txt -o human
    """

    sources: tuple[str, ...] = argument(metavar="IN")
    out: str = option(short="-o", metavar="STORE")
    species: str | None = option(None, metavar="FILE")
    reference: str | None = option(None, metavar="FILE")
    contig: str | None = None


@dataclass(frozen=True)
class Info:
    """Print the contents of a store: species, contigs, what was omitted when it was made, and tracks.

    Parameters
    ----------
    store : str
        Folder of the store.
    verify : bool
        Compare all of it with its checksums.

    Examples
    --------
    r2mae data alignment info human --verify
    """

    store: str = argument()
    verify: bool = False


@dataclass(frozen=True, kw_only=True)
class Track:
    """Add values for each position to a store, from bedGraph (plain, gzip or bgzip) or bigWig (with pyBigWig).

    They may be weights of the loss.

    Parameters
    ----------
    store, file : str
        Folder of the store, and the file of values.
    name : str
        Name of the track; an existing one is replaced.

    Examples
    --------
    r2mae data alignment track human phastCons.bw --name phastcons
    """

    store: str = argument()
    file: str = argument()
    name: str = option()


@dataclass(frozen=True, kw_only=True)
class Export:
    """Write a store as a zarr group (version 2): for each contig an array of letters, positions x species.

    Parameters
    ----------
    store : str
        Folder of the store.
    out : str
        Folder of the group.

    Examples
    --------
    r2mae data alignment export human -o human.zarr
    """

    store: str = argument()
    out: str = option(short="-o", metavar="ZARR")
