"""The configurations of runs on images, and of those that learn labels from a pretrained model. No torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from r2mae.errors import UserError
from r2mae.fields import NonNegative, PartialFraction, Range, Size
from r2mae.images.models import MODELS, VIT, MLPSettings
from r2mae.images.presets import PRESETS, SIZES
from r2mae.masking.defaults import SchemeDefaults
from r2mae.training.config import (
    DataConfig,
    EvaluationConfig,
    MachineConfig,
    OptimizerConfig,
    RunConfig,
    TaskConfig,
)
from r2mae.training.folder import RunFolder

GAUSSIAN = "gaussian"
"""The value of `fill` with which models add to the conditional mean of a Gaussian."""

_PositiveFraction = Annotated[float, Range(above=0, most=1)]
_Alpha = Annotated[float, Range(0, 1000)]


@dataclass(frozen=True, kw_only=True)
class ImagesDataConfig(DataConfig):
    """The images of a run, and how they are read.

    Parameters
    ----------
    resize : int, optional
        Resize images to this many pixels a side; required if a folder holds several sizes. Of images that are not
        square the longer side is cropped at both ends.
    augment : {"none", "crop-flip"}
        Train on the images as they are, or on random resized crops (0.2 to 1 of the area, bicubic), half of them
        flipped, in 256 levels. Validation, evaluation and embedding use no augmentation.
    skip_broken : bool
        Skip image files that cannot be decoded, with their number in a note, instead of refusing the set.
    """

    resize: Size | None = None
    augment: Literal["none", "crop-flip"] = "none"
    skip_broken: bool = False


@dataclass(frozen=True, kw_only=True)
class ImagesTaskConfig(TaskConfig):
    """How pixels are hidden.

    Parameters
    ----------
    exact : bool
        Hide a fixed count of pixels in each image (the rounded one), instead of each pixel independently.
    fill : {"zero", "mean", "gaussian"}
        Value of hidden pixels: black; the mean of the training images at the same place; or the mean given the kept
        pixels, of a Gaussian fitted to the training images, to which the model's output is then added. Of images with
        more than 1,024 values it has 64 axes, which is coarser than the baseline `gaussian`.
    """

    exact: bool = False
    fill: Literal["zero", "mean", "gaussian"] = "zero"


@dataclass(frozen=True, kw_only=True)
class ImagesMachineConfig(MachineConfig):
    """Where a run on images is computed.

    Parameters
    ----------
    cache : {"auto", "memory", "mmap", "none"}
        Where decoded images are stored: in memory; in a .npy file on disk (below R2MAE_CACHE); or not at all, so that
        workers decode them for every batch. "auto" is memory if they fit, else none.
    """

    cache: Literal["auto", "memory", "mmap", "none"] = "auto"


@dataclass(frozen=True, kw_only=True)
class ImagesEvaluationConfig(EvaluationConfig):
    """How a model of images is measured.

    Parameters
    ----------
    bn_statistics : {"yes", "no", "both"}
        Re-estimate batch statistics on the inputs of each evaluation and of embeddings (yes), or use those of training,
        as in the paper (no); with both, scores are measured in both ways.
    finetune_epochs : float
        Also evaluate a finished model by fine-tuning on the labels for this many epochs; 0 for no fine-tuning.
    """

    bn_statistics: Literal["yes", "no", "both"] = "yes"
    finetune_epochs: NonNegative = 0.0


@dataclass(frozen=True, kw_only=True)
class ImagesConfig(RunConfig):
    """A run on images. Defaults follow the paper's MNIST experiments, or our choice if it gives none (docs/images.md).

    Parameters
    ----------
    init : str, optional
        Start from the weights of a run folder, a folder of transformers, or a file of timm or the original MAE, instead
        of fresh ones; only for models that those have (docs/images.md).
    """

    domain: ClassVar[str] = "images"
    # The paper gives no ratios for MNIST apart from the grid 0.1 … 0.9 of fixed ones, and no curricula of pixels.
    ratios: ClassVar[SchemeDefaults] = SchemeDefaults(0.7, 0.5, 0.9, not_in_paper=True)
    models: ClassVar[Mapping[str, str]] = MODELS
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = PRESETS
    preset_sizes: ClassVar[Mapping[str, float]] = SIZES
    # digits has 1,438 training images: 15 epochs would be 168 steps.
    set_defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {"digits": {"epochs": 100.0}}

    init: str | None = None
    data: ImagesDataConfig = ImagesDataConfig()
    model: Any = MLPSettings()
    task: ImagesTaskConfig = ImagesTaskConfig()
    optimizer: OptimizerConfig = OptimizerConfig(lr=3e-3)
    machine: ImagesMachineConfig = ImagesMachineConfig()
    evaluation: ImagesEvaluationConfig = ImagesEvaluationConfig()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.init is not None:
            if self.model.name != VIT:
                known = f"for the model that other libraries have ({VIT})"
                raise UserError(f"init is {known}, not for {self.model.name!r}: omit it")
            object.__setattr__(self, "init", str(Path(self.init).absolute()))  # for use from any folder
        if self.evaluation.finetune_epochs and self.model.name != VIT:
            raise UserError(f"finetune_epochs is for the model {VIT}: omit it with {self.model.name}")

    def measured_in_words(self) -> str:
        """Return sentences on the batch statistics of the scores, if the model has any, and on fine-tuning."""
        epochs = self.evaluation.finetune_epochs
        finetuned = f"Fine-tuned on the labels for {epochs:g} epochs." if epochs else ""
        return f"{super().measured_in_words()} {finetuned}".strip()


@dataclass(frozen=True, kw_only=True)
class FinetuneConfig(RunConfig):
    """A run that learns the labels of images from a pretrained model. :func:`recipe` gives the defaults for a model.

    Parameters
    ----------
    run : str
        Folder of the pretrained run.
    weights : str
        First digits of the SHA-256 of its weights, so that a run never resumes from other weights.
    layer_decay : float
        Factor on the learning rate from each layer to the one below it.
    drop_path : float
        Probability that the last layer is skipped, for each image; it increases linearly over the layers.
    min_lr : float
        Learning rate of the last layer at the end of a falling schedule.
    crop : float
        Smallest fraction of an image in a random crop; 1 for no crops.
    crop_from : {"resized", "original"}
        Cut random crops from images of the size that is kept, or from the original files, which are then decoded for
        every batch (as in MAE). Of arrays both are the same.
    flip : bool
        Flip half of the images left to right.
    randaugment : float
        Magnitude of RandAugment, up to 10; 0 for none.
    mixup, cutmix : float
        α of the Beta distribution of the mixtures; 0 for none.
    smoothing : float
        Fraction of each label that is spread over all classes.
    erasing : float
        Probability that a rectangle of an image is erased.
    split_seed : int
        Seed of the split into training and test images, if a set has no official one: that of the pretrained run, so
        that no test image was used in pretraining.
    """

    domain: ClassVar[str] = "images"
    ratios: ClassVar[SchemeDefaults] = SchemeDefaults(0.5, 0.0, 1.0)  # no such run uses them: nothing is hidden
    common_fields: ClassVar[tuple[str, ...]] = ("base_lr", "resize")
    hides: ClassVar[bool] = False
    omitted: ClassVar[frozenset[str]] = frozenset(
        {"preset", "model", "task", "scheme", "evaluation", "augment", "strategy"}
    )

    run: str = ""
    weights: str = ""
    layer_decay: _PositiveFraction = 0.75
    drop_path: PartialFraction = 0.1
    min_lr: NonNegative = 1e-6
    crop: _PositiveFraction = 0.08
    crop_from: Literal["resized", "original"] = "resized"
    flip: bool = True
    randaugment: Annotated[float, Range(0, 10)] = 9.0
    mixup: _Alpha = 0.8
    cutmix: _Alpha = 1.0
    smoothing: PartialFraction = 0.1
    erasing: PartialFraction = 0.25
    split_seed: int = 0
    data: ImagesDataConfig = ImagesDataConfig()
    optimizer: OptimizerConfig = OptimizerConfig(
        name="adamw",
        epochs=100,
        batch_size=256,
        base_lr=1e-3,
        schedule="cosine",
        warmup=0.05,
        weight_decay=0.05,
    )
    machine: ImagesMachineConfig = ImagesMachineConfig()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.min_lr >= self.optimizer.peak_lr:
            peak = self.optimizer.peak_lr
            raise UserError(f"min_lr must be below the learning rate {peak:g}, not {self.min_lr}")
        if (self.mixup or self.cutmix) and self.micro_batch % 2:
            raise UserError(
                f"mixup and cutmix mix pairs of images, and a micro-batch has {self.micro_batch}: make batch_size "
                "even, or set both to 0"
            )

    @property
    def idle_fields(self) -> frozenset[str]:
        """`run`, the path of the pretrained run, if `weights` identifies it."""
        return super().idle_fields | ({"run"} if self.weights else frozenset())

    @property
    def crops_files(self) -> bool:
        """Whether crops are cut from files, which are larger than the images that are kept."""
        return self.crop_from == "original" and self.crop < 1 and self.data.resize is not None

    def measured_in_words(self) -> str:
        """Return, as a sentence, what was trained."""
        return "Fine-tuned with all layers."


def recipe(width: int) -> dict[str, Any]:
    """Return the defaults for a vision transformer of this width: fields of :class:`FinetuneConfig` by name.

    They are those of MAE's published commands, which differ from Table 9 of its paper; of smaller models, which MAE
    lacks, ours: batches of 256 images, and crops of the images that are kept.
    """
    if width < 768:
        return {}
    # Smallest width, base rate, decay over layers, epochs, drop path: ViT-H, ViT-L, ViT-B.
    sizes = ((1280, 1e-3, 0.75, 50.0, 0.3), (1024, 1e-3, 0.75, 50.0, 0.2), (768, 5e-4, 0.65, 100.0, 0.1))
    _, rate, decay, epochs, drop = next(one for one in sizes if width >= one[0])
    own = {"base_lr": rate, "layer_decay": decay, "epochs": epochs, "drop_path": drop}
    return {**own, "batch_size": 1024, "accumulate": 16, "crop_from": "original"}


def weights_of(run: str | Path) -> str:
    """Return the first digits of the SHA-256 of a finished run's weights."""
    folder = RunFolder(run)
    folder.read_config()
    if not folder.trained:
        raise UserError(f"{folder.path} is not finished: rerun its `r2mae pretrain` command to resume")
    return sha256(folder.weights.read_bytes()).hexdigest()[:16]
