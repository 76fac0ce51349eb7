"""The domain `genome`, as used by the layers above. It imports torch only when data or models are needed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r2mae.cores import DEVICES
from r2mae.domains.base import Domain
from r2mae.domains.baselines import Baseline
from r2mae.domains.lookup import check_transformer_step
from r2mae.domains.options import Command, CommandLine, Evaluation, ModelFormat, Offered, as_in_run
from r2mae.errors import UserError
from r2mae.evaluation.metrics import FILLING_IN, Metric
from r2mae.fields import argument, option
from r2mae.files import ordinary
from r2mae.fingerprint import fingerprint
from r2mae.genome.config import MODELS, NO_VARIANTS, GenomeConfig, GenomeEvaluationConfig
from r2mae.genome.registered_baselines import column_baseline
from r2mae.training.models import build_model

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

    from r2mae.genome.batches import GenomeData
    from r2mae.genome.models.gpn_msa import AlignmentTransformer
    from r2mae.genome.store.alignment import AlignmentStore
    from r2mae.genome.task import AlignmentTask
    from r2mae.training.initial import Origin


HiddenBases = as_in_run(GenomeEvaluationConfig, "eval_windows")
"""Options of the default evaluation."""
LabelledVariants = as_in_run(GenomeEvaluationConfig, *NO_VARIANTS)
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
class ScoreVariants:
    """Score variants of a genome with a pretrained model.

    Substitutions of one base are scored. Indels are not: the model, as GPN-MSA, has the reference's positions only.
    Write a variant of several substituted bases as a row for each. Lines count what has no score, by reason.

    Parameters
    ----------
    run : str
        A run folder.
    variants : str
        VCF (.vcf, .vcf.gz), or a table with chrom, pos, ref, alt (.tsv, .csv, also .gz; .parquet).
    output : str
        The file to write, of the same format.
    column : str
        Name of the scores; that of the reasons ends in _reason.
    rename : list of str
        Names of contigs: OLD=NEW, that of the file and the store's, or files of two such columns.
    data : str, optional
        Another store than the run's.
    device : str
        Device: auto, cpu, cuda, cuda:N or mps.

    Examples
    --------
    r2mae score-variants runs/genome variants.vcf.gz -o scored.vcf.gz
    """

    run: str = argument()
    variants: str = argument()
    output: str = option(short="-o", metavar="OUT")
    column: str = "score"
    rename: tuple[str, ...] = ()
    data: str | None = None
    device: str = option("auto", words=DEVICES)


@dataclass(frozen=True, kw_only=True)
class Build:
    """Make a store of an alignment: MAF files, or a FASTA whose rows are aligned to the first, the reference.

    They may be plain, gzip or bgzip, which is detected by content. A zarr group is read that has an array of letters
    for each contig, positions x species. The same command resumes an interrupted build. If several MAF blocks cover a
    position, the first is used.

    Parameters
    ----------
    sources : list of str
        MAF files, a FASTA, or a zarr group.
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
    rename : list of str
        Names of contigs: OLD=NEW, that of the file and the store's, or files of two such columns.

    Examples
    --------
    r2mae data alignment track human phastCons.bw --name phastcons
    """

    store: str = argument()
    file: str = argument()
    name: str = option()
    rename: tuple[str, ...] = ()


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


_COMMANDS = {
    "score-variants": Command("r2mae.genome.score:score_command", ScoreVariants),
    "data alignment build": Command("r2mae.genome.store.build:build", Build),
    "data alignment info": Command("r2mae.genome.store.build:info", Info),
    "data alignment track": Command("r2mae.genome.store.build:track", Track),
    "data alignment export": Command("r2mae.genome.store.build:export", Export),
}


def _store_of(config: GenomeConfig) -> "AlignmentStore":
    from r2mae.genome.store.alignment import AlignmentStore

    return AlignmentStore(config.data.source)


class GenomeDomain(Domain):
    """Genomes with their alignments, read from a store, and GPN-MSA, computed only where the loss needs it."""

    name = "genome"
    title = "Genomes: an alignment store (r2mae data alignment build)"
    config = GenomeConfig
    command_line = CommandLine(
        evaluation=Evaluation(
            "loss and accuracy of hidden bases in held-out windows at five mask ratios",
            options=HiddenBases,
            examples=("runs/genome --eval-windows 500 --baselines alignment",),
        ),
        evaluations=(
            Evaluation(
                "scores of variants against a label: AUROC, AUPRC and partial AUROC of two values, or else Spearman's "
                "correlation, with 95 % intervals over blocks of 500 positions; baselines are also columns of the file "
                "(high values are harmful)",
                options=LabelledVariants,
                examples=("runs/genome variants --variants fitness.tsv.gz --label fitness --classes consequence",),
                name="variants",
                fixed={"curve": False},
            ),
        ),
        other_data="windows are measured on the whole store",
        embedding=Offered(
            "`contigs` and `starts` (counted from 1) of the windows, which are adjacent: the remainder at the end of a "
            "region has no row",
            options=Regions,
            examples=("runs/genome human --regions chr22 -o chr22.npz",),
        ),
        model_formats=(
            ModelFormat(
                name="gpn",
                help="a folder for GPNRoFormerForMaskedLM of the original GPN-MSA; of runs with --one-hot",
                write="r2mae.genome.models.weights:export",
                examples=("runs/genome --to gpn -o gpn_msa",),
            ),
        ),
        baselines="columns of the file of variants",
        commands=_COMMANDS,
        example="human",
    )

    def recognises(self, data: Any) -> bool:
        """Whether data are the folder of an alignment store."""
        return isinstance(data, Path) and (data / "meta.json").is_file() and (data / "reference.npy").is_file()

    def metrics_of(self, config: GenomeConfig) -> tuple[Metric, ...]:
        """Return loss and accuracy over the mask ratios, preceded by the metrics of variants if there are any."""
        from r2mae.genome.variants.labelled import metrics_on

        alone = config.evaluation.variants is None
        return (
            *metrics_on(config.evaluation),
            Metric(
                "masked_loss",
                "masked loss in nats",
                higher_is_better=False,
                bounds=(0, inf),
                ranked=alone,
                question=FILLING_IN,
            ),
            Metric("accuracy", "masked base accuracy", bounds=(0, 1), ranked=alone),
        )

    def fingerprint(self, config: GenomeConfig) -> str:
        """Return a fingerprint of the store, the tracks of weights and the BED files.

        A track that the store lacks is omitted: a store that is only used for evaluation needs none.
        """
        store = _store_of(config)
        parts = [store.fingerprint, *filter(None, map(store.track_digest, config.task.tracks))]
        files = [path for path in (Path(name).expanduser() for name in config.data.regions) if path.is_file()]
        return "-".join([*parts, fingerprint(*files)] if files else parts)

    def check_source(self, config: GenomeConfig) -> None:
        """Refuse data that are not a store, without torch."""
        _store_of(config)

    def check(self, config: GenomeConfig) -> None:
        """Refuse what can be found wrong without torch: store, species, tracks, regions, memory and variants."""
        from r2mae.genome.store.intervals import read_regions
        from r2mae.genome.variants.labelled import shape_of

        store, model = _store_of(config), config.model
        config.data.aligned_species(store.species)
        read_regions(config.data.regions, store.layout)
        for track in config.task.tracks:
            store.track(track)
        if config.init is not None and not ordinary(Path(config.init)).is_dir():
            raise UserError(f"{config.init} (init): there is no such folder: name a run, or a folder of weights")
        inner = 4 * model.width if model.inner is None else model.inner
        check_transformer_step(config, rows="windows", length="window", width=model.width, inner=inner)
        if config.evaluation.variants is not None:
            shape_of(config.evaluation)

    def load(self, config: GenomeConfig) -> "GenomeData":
        """Open the store of a run, and split it."""
        from r2mae.genome.batches import load_data

        return load_data(config)

    def load_initial_weights(self, config: GenomeConfig, model: "nn.Module") -> "Origin | None":
        """Load the weights that `init` names into a fresh model."""
        if config.init is None:
            return None
        from r2mae.genome.models.weights import load_initial_weights

        return load_initial_weights(config.init, model)

    def build(self, architecture: Mapping[str, Any]) -> "tuple[AlignmentTask, AlignmentTransformer]":
        """Return the task and a freshly initialised model."""
        made: tuple[AlignmentTask, AlignmentTransformer] = build_model(MODELS, architecture)
        return made

    evaluation_support = ("progress",)

    def evaluate(
        self,
        config: GenomeConfig,
        task: "AlignmentTask",
        model: "AlignmentTransformer",
        data: "GenomeData",
        *,
        curve: bool = True,
        progress: Callable[[int, int], None] | None = None,
    ) -> dict[str, float]:
        """Return the scores of a pretrained model on held-out windows (with `curve`), and on variants if any."""
        from r2mae.genome.evaluate import evaluate

        if not curve and config.evaluation.variants is None:
            raise UserError("the run names no variants: name a file of them, --variants FILE, and --label COLUMN")
        return evaluate(config, task, model, data, curve=curve, progress=progress)

    def other_baselines(self, config: GenomeConfig) -> Mapping[str, Baseline]:
        """Return the columns of the file of variants, of which high values are harmful, as those of phyloP and CADD."""
        from r2mae.genome.variants.files import open_variants

        file = config.evaluation.variants
        columns = () if file is None else open_variants(Path(file).expanduser()).names
        return {name: column_baseline(name) for name in columns}

    def load_other_data(
        self, config: GenomeConfig, source: str, architecture: Mapping[str, Any]
    ) -> "tuple[GenomeConfig, GenomeData]":
        """Open another store for :meth:`evaluate`, with all of its windows as test data."""
        from r2mae.genome.batches import GenomeData, unweighted, windows_of
        from r2mae.genome.store.intervals import Intervals

        none: dict[str, Any] = dict.fromkeys(("validation_regions", "test_regions", "include", "exclude"), ())
        config = unweighted(config).replace(data=source, **none, **NO_VARIANTS)
        store = _store_of(config)
        windows = windows_of(store, config, Intervals.everywhere(store.layout), architecture["species"])
        return config, GenomeData(store, windows, None, windows, dict(architecture))

    def embed(
        self,
        config: GenomeConfig,
        task: "AlignmentTask",
        model: "AlignmentTransformer",
        source: str,
        *,
        regions: Sequence[str] = (),
    ) -> "dict[str, np.ndarray]":
        """Embed the adjacent windows of a store, or of some regions."""
        from r2mae.genome.evaluate import embed_windows

        return embed_windows(config, task, model, source, regions=regions)


DOMAIN = GenomeDomain()
