"""The configuration of a run on a genome alignment. No torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from r2mae.errors import UserError, unknown
from r2mae.fields import Fraction, NonNegative, PartialFraction, Range, Size
from r2mae.masking.defaults import DNA_CURRICULUM, SchemeDefaults
from r2mae.training.config import DataConfig, EvaluationConfig, OptimizerConfig, RunConfig, TaskConfig
from r2mae.training.models import Layers, ModelSettings

MOST_WINDOWS = 2000
"""Default of the most held-out windows that a model is measured on."""
NO_VARIANTS: Mapping[str, Any] = {
    **dict.fromkeys(("variants", "label", "positive", "classes")),
    **dict.fromkeys(("contrasts", "rename"), ()),
}
"""The fields of a measurement on variants, and their values where there are none."""
NO_SPECIES = "none"
"""The value of `species` for no aligned species: a single sequence."""
HELD_OUT = "_held_out"
"""What scores of variants at positions that the model has not learned end in."""


def sides_of(contrast: str) -> tuple[str, str]:
    """Return the harmful class of a contrast, and the other; raise a UserError if these are not two names."""
    harmful, _, other = (part.strip() for part in contrast.partition("/"))
    if not harmful or not other or harmful == other:
        raise UserError(f"contrast {contrast!r} is not two classes: write HARMFUL/OTHER, as stop_gained/synonymous")
    return harmful, other


def contrast_name(contrast: str) -> str:
    """Return how a contrast is called in scores: ``stop_gained_vs_synonymous``."""
    return "_vs_".join(sides_of(contrast))


MODELS = {"gpn-msa": "r2mae.genome.models.gpn_msa"}
"""The modules of models by name; see :mod:`r2mae.genome.models`."""


def _preset(width: int, layers: int, heads: int, batch_size: int, lr: float) -> dict[str, Any]:
    return {"width": width, "layers": layers, "heads": heads, "batch_size": batch_size, "lr": lr}


_BASE = {**_preset(768, 12, 12, 2048, 1e-4), "accumulate": 4}  # 2,048 windows at once need more than 80 GB


@dataclass(frozen=True, kw_only=True)
class GpnMsaSettings(ModelSettings):
    """Settings of the default model.

    Parameters
    ----------
    width : int
        Width of the hidden states (paper: 768).
    layers : int
        Transformer layers (paper: 12).
    heads : int
        Attention heads (paper: 12).
    inner : int, optional
        Inner width of a layer; by default four times the width.
    dropout : float
        Dropout of hidden states and attention.
    one_hot : bool
        Begin with one-hot vectors, filled up with zeros, as the original GPN-MSA, whose weights then fit (--init). By
        default a matrix and a norm follow them.
    """

    mask_tokens: ClassVar[bool] = True

    name: str = "gpn-msa"
    width: Size = 768
    layers: Layers = 12
    heads: Size = 12
    inner: Size | None = None
    dropout: PartialFraction = 0.1
    one_hot: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width % (2 * self.heads):
            raise UserError(
                f"width {self.width} is not a multiple of 2 x {self.heads} heads (rotary positions need heads of an "
                "even width): give another width or number of heads"
            )


@dataclass(frozen=True, kw_only=True)
class GenomeDataConfig(DataConfig):
    """The windows of a run.

    Parameters
    ----------
    window : int
        Positions of a window (paper: 128).
    stride : int, optional
        Positions between the starts of training windows; by default half a window, or 1 if the genome has less than a
        million positions. Held-out windows do not overlap.
    species : list of str
        The aligned species that the model receives, by default all; none for a model of the target's sequence alone.
    validation_regions : list of str
        Contigs, intervals such as chr1:1,001-2,000 (counted from 1) or BED files held out for the validation loss; by
        default the fraction `validation` of the genome, as blocks that the seed chooses.
    test_regions : list of str
        Regions that a finished model is measured on; by default the validation windows.
    include : list of str
        The only regions that windows may come from.
    exclude : list of str
        Regions that no window may touch.
    reverse : float
        Share of the training windows that are replaced by their reverse complement, drawn again each time.
    """

    validation: PartialFraction = 0.1
    window: Annotated[int, Range(2)] = 128
    stride: Size | None = None
    species: tuple[str, ...] = ()
    validation_regions: tuple[str, ...] = ()
    test_regions: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    reverse: Fraction = 0.5

    @property
    def regions(self) -> tuple[str, ...]:
        """All regions that are named."""
        return (*self.validation_regions, *self.test_regions, *self.include, *self.exclude)

    def aligned_species(self, known: Sequence[str]) -> tuple[str, ...]:
        """Return the species that the model receives, of those of the store, the reference first."""
        if NO_SPECIES in self.species:
            return ()
        for name in self.species:
            if name == known[0]:
                raise UserError(f"species names {name!r}, the reference, which is always used: omit it")
            if name not in known:
                raise unknown("species", name, known[1:])
        return self.species or tuple(known[1:])

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.validation_regions and self.validation != GenomeDataConfig.validation:
            raise UserError("validation (a fraction) and validation_regions exclude each other: give one of them")
        twice = next((name for name in self.species if self.species.count(name) > 1), None)
        if twice is not None:
            raise UserError(f"species names {twice!r} twice: once is enough")
        if NO_SPECIES in self.species and len(self.species) > 1:
            raise UserError(f"species takes either {NO_SPECIES!r} or names of species")


@dataclass(frozen=True, kw_only=True)
class GenomeTaskConfig(TaskConfig):
    """How bases are hidden, and the weights of their losses.

    Parameters
    ----------
    corruption : {"80-10-10", "mask"}
        Replacement of hidden bases: 80 % mask token, 10 % a random base, 10 % unchanged; or all mask token.
    exact : bool
        Hide exactly the rounded count of every window's bases (true), or each base independently with the ratio as its
        probability (false).
    repeat_weight : float
        Weight of soft-masked positions (lower case, usually repeats) in the loss; 0 becomes a millionth.
    weight_track : str, optional
        Track of the store whose values are weights of positions in the loss, such as conservation; missing values and
        those below 0 count as 0.
    conservation : list of str
        The store's tracks of phyloP and phastCons, in this order. Positions then weigh, as in GPN-MSA,
        max(phyloP, 1) x (0.1 + the maximum of phastCons over the 7 positions around).
    flip : float
        With `conservation`: the probability with which the label of a hidden base that is not conserved (a maximum of
        phastCons below 0.1) is replaced by a random base (GPN-MSA: 0.5).
    """

    corruption: Literal["80-10-10", "mask"] = "80-10-10"
    exact: bool = True
    repeat_weight: NonNegative = 0.1
    weight_track: str | None = None
    conservation: tuple[str, ...] = ()
    flip: Fraction = 0.5

    @property
    def tracks(self) -> tuple[str, ...]:
        """The tracks that weigh positions."""
        return (*self.conservation, *filter(None, [self.weight_track]))

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.conservation) not in (0, 2):
            raise UserError("conservation names two tracks of the store, of phyloP and of phastCons, in this order")
        if self.conservation and self.weight_track is not None:
            raise UserError("conservation and weight_track both weigh positions: give one of them")


@dataclass(frozen=True, kw_only=True)
class GenomeEvaluationConfig(EvaluationConfig):
    """How a model of a genome is measured: on held-out windows, and on variants with a label.

    Parameters
    ----------
    variants : str, optional
        A file of variants (VCF, .tsv, .csv) on which finished models are measured, too.
    label : str, optional
        The column of this file (of a VCF also a key of INFO) that scores are compared with. Two values: the area under
        the ROC curve and the precision-recall curve. More numbers: Spearman's correlation.
    positive : str, optional
        The value of the label that marks harmful variants, which low scores find; by default the higher of two numbers,
        or true, yes or pathogenic.
    classes : str, optional
        A column whose values divide the variants into classes that are measured one by one, too.
    contrasts : list of str
        Pairs of these classes, HARMFUL/OTHER such as stop_gained/synonymous: how well low scores discriminate
        the variants of one from those of the other, as the area under the ROC curve, whatever the label.
    rename : list of str
        Names of contigs: OLD=NEW, that of the file and the store's, or files of two such columns.
    eval_windows : int
        Most held-out windows on which loss and accuracy of a finished model are measured, evenly spaced. Fewer take
        less time and give less precise scores; below 500 each is masked several times.
    """

    variants: str | None = None
    label: str | None = None
    positive: str | None = None
    classes: str | None = None
    contrasts: tuple[str, ...] = ()
    rename: tuple[str, ...] = ()
    eval_windows: Size = MOST_WINDOWS

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "contrasts", tuple(dict.fromkeys("/".join(sides_of(one)) for one in self.contrasts)))
        if self.variants is None:
            for name, value in NO_VARIANTS.items():
                if getattr(self, name) != value:
                    raise UserError(f"{name} is about a file of variants: name it with --variants FILE")
        elif self.label is None:
            raise UserError("variants need the column that scores are compared with: --label COLUMN")
        if self.contrasts and self.classes is None:
            raise UserError("contrasts are pairs of classes: name the column that has them with --classes COLUMN")


@dataclass(frozen=True, kw_only=True)
class GenomeConfig(RunConfig):
    """A masked model of a genome and its alignment. Defaults are the paper's, or GPN-MSA's if the paper gives none.

    A table in the documentation of genomes lists which defaults are the paper's, GPN-MSA's, and our own.

    Parameters
    ----------
    init : str, optional
        Start with the weights of a run folder, or of a folder with the original GPN-MSA (then also --one-hot), which
        have to be of the same sizes and species, in the same order.
    """

    domain: ClassVar[str] = "genome"
    # The paper's: fixed 0.15, dynamic 0.30 → 0.15, R²MAE U(0.05, 0.30), with dynamic U(ρ, 0.30) and ρ from 0.30 to 0.
    ratios: ClassVar[SchemeDefaults] = SchemeDefaults(
        0.15, 0.05, 0.3, options=DNA_CURRICULUM, of_scheme={"dynamic": {"low": 0.15}, "r2mae-dynamic": {"low": 0.0}}
    )
    models: ClassVar[Mapping[str, str]] = MODELS
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "base": _BASE,
        "gpn-msa": {**_BASE, "conservation": ("phylop", "phastcons")},
        "small": _preset(512, 8, 8, 1024, 2e-4),
        "mini": _preset(256, 4, 8, 256, 5e-4),
        "tiny": _preset(128, 2, 4, 128, 1e-3),
    }
    preset_sizes: ClassVar[Mapping[str, float]] = {"base": 86, "gpn-msa": 86, "small": 26, "mini": 3.4, "tiny": 0.5}

    common_fields: ClassVar[tuple[str, ...]] = ("window", "species", "init")

    init: str | None = None
    data: GenomeDataConfig = GenomeDataConfig()
    model: Any = GpnMsaSettings()
    task: GenomeTaskConfig = GenomeTaskConfig()
    optimizer: OptimizerConfig = OptimizerConfig(
        name="adamw",
        epochs=10,
        batch_size=2048,
        lr=1e-4,
        schedule="cosine",
        warmup=1 / 30,
        weight_decay=0.01,
        clip=1.0,
    )
    evaluation: GenomeEvaluationConfig = GenomeEvaluationConfig()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.init is not None:
            object.__setattr__(self, "init", str(Path(self.init).expanduser().absolute()))

    def with_measurement(self, **options: Any) -> "GenomeConfig":
        """Return the configuration with other options; another file of variants resets those of the run's file."""
        if options.get("variants") not in (None, self.evaluation.variants):
            options = {**NO_VARIANTS, **options}
        return super().with_measurement(**options)

    def measured_in_words(self) -> str:
        """Return sentences on the variants and, if not the default, the number of windows that scores are from."""
        scores = self.evaluation
        changed = scores.eval_windows != MOST_WINDOWS
        windows = f"Hidden bases are measured on at most {scores.eval_windows:,} windows." if changed else ""
        if scores.variants is None:
            return windows
        contrasts = f"; contrasts: {', '.join(scores.contrasts)}" if scores.contrasts else ""
        variants = f"Variants: {scores.variants} against {scores.label}{contrasts}."
        return f"{variants} {windows}".rstrip()
