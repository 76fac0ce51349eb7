"""The configuration of a fine-tuning run on images, MAE's recipes, and the command ``r2mae finetune``. No torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from r2mae.domains.options import Command
from r2mae.errors import UserError
from r2mae.images.config import ImagesDataConfig, ImagesMachineConfig
from r2mae.masking.defaults import SchemeDefaults
from r2mae.training.config import OptimizerConfig, RunConfig
from r2mae.training.fields import NonNegative, PartialFraction, Range, argument

_WARMUP_EPOCHS, _WARMUP_SHARE = 5.0, 0.1  # MAE's, and the largest share of a short run (ours)
_PositiveFraction = Annotated[float, Range(above=0, most=1)]
_Alpha = Annotated[float, Range(0, 1000)]


@dataclass(frozen=True, kw_only=True)
class FinetuneConfig(RunConfig):
    """A run that learns the labels of images from a pretrained model. :func:`recipe` gives the defaults for a model.

    Parameters
    ----------
    run : str
        Folder of the pretrained run.
    weights : str
        First digits of the SHA-256 of its weights, so that a run never resumes from other weights.
    pool : {"mean", "class"}
        For models with a class token: classify the mean over patches, or the class token.
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
        every batch (as in MAE).
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
    common_fields: ClassVar[tuple[str, ...]] = ("pool", "base_lr", "resize")
    hides: ClassVar[bool] = False
    omitted: ClassVar[frozenset[str]] = frozenset(
        {"preset", "model", "task", "scheme", "evaluation", "augment", "strategy", "activation_checkpointing"}
    )

    run: str = ""
    weights: str = ""
    pool: Literal["mean", "class"] = "mean"
    layer_decay: _PositiveFraction = 0.75
    drop_path: PartialFraction = 0.1
    min_lr: NonNegative = 0.0
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
        warmup_epochs=5.0,
        weight_decay=0.05,
    )
    machine: ImagesMachineConfig = ImagesMachineConfig()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.min_lr >= self.optimizer.peak_lr:
            peak = self.optimizer.peak_lr
            raise UserError(f"min_lr must be below the learning rate {peak:g}, not {self.min_lr}")
        if self.crop_from == "original" and self.crop == 1:
            raise UserError("crop_from original needs random crops: omit it, or give a crop below 1")
        if self.crop_from == "original" and self.data.resize is None:
            raise UserError("crop_from original needs --resize N, the size of the crops: add it")
        if (self.mixup or self.cutmix) and self.micro_batch % 2:
            raise UserError(
                f"mixup and cutmix mix pairs of images, and a micro-batch has {self.micro_batch}: make batch_size "
                "even, or set both to 0"
            )

    @property
    def idle_fields(self) -> frozenset[str]:
        """`run`, the path of the pretrained run, if `weights` identifies it."""
        return super().idle_fields | ({"run"} if self.weights else frozenset())

    def measured_in_words(self) -> str:
        """Return, as a sentence, what was trained."""
        return "Fine-tuned with all layers."


def recipe(architecture: Mapping[str, Any]) -> dict[str, Any]:
    """Return the defaults for a pretrained model: fields of :class:`FinetuneConfig` by name.

    They are those of MAE's published commands, which differ from Table 9 of the MAE paper for ViT-B, ViT-L and ViT-H.
    MAE has no recipe for other models, nor for vision transformers smaller than ViT-B; these are ours.
    """
    if architecture["model"] != "vit-mae":
        return {"layer_decay": 1.0, "drop_path": 0.0}
    width = int(architecture["width"])
    # Smallest width, base rate, decay over layers, epochs, drop path: ViT-H, ViT-L, ViT-B, and smaller ones (ours).
    sizes = ((1280, 1e-3, 0.75, 50.0, 0.3), (1024, 1e-3, 0.75, 50.0, 0.2), (768, 5e-4, 0.65, 100.0, 0.1))
    _, rate, decay, epochs, drop = next((one for one in sizes if width >= one[0]), (0, 1e-3, 0.75, 100.0, 0.1))
    return {"base_lr": rate, "layer_decay": decay, "epochs": epochs, "drop_path": drop, "min_lr": 1e-6}


def warmup_epochs(epochs: float) -> float:
    """Return the epochs of warm-up: MAE's 5, in short runs a tenth."""
    return min(_WARMUP_EPOCHS, _WARMUP_SHARE * epochs)


@dataclass(frozen=True)
class Finetuning:
    """Fine-tune a pretrained model of images on labels.

    The same command resumes an interrupted run. What is not given is as in MAE's recipes for the model: 100 epochs, of
    large models 50, in batches of 256; warm-up over 5 epochs, at most a tenth of the run. How images are read is by
    default as in the run.

    Parameters
    ----------
    run : str
        The folder of a finished run of images, from r2mae pretrain.
    data : str, optional
        A named set or a path of images with classes; by default what the run was pretrained on.
    out : str, optional
        Run folder; by default `finetune` within RUN, with the seed.
    json : bool
        Print JSON, for scripts.

    Examples
    --------
    r2mae finetune runs/vit --epochs 20 --out runs/vit-finetuned
    r2mae finetune runs/vit path/to/images --resize 64
    """

    run: str = argument()
    data: str | None = argument(None)
    out: str | None = None
    json: bool = False


FINETUNE = Command(
    "finetune",
    "fine-tune a pretrained model of images on labels",
    "r2mae.images.finetune.run:command",
    Finetuning,
    config=FinetuneConfig,
    fields=(
        *("pool", "epochs", "steps", "batch_size", "base_lr", "layer_decay", "weight_decay", "warmup", "warmup_epochs"),
        *("schedule", "min_lr", "optimizer", "clip", "ema", "drop_path", "smoothing"),
        *("crop", "crop_from", "flip", "randaugment", "mixup", "cutmix", "erasing", "resize", "resize_mode", "cache"),
        *("skip_broken", "draft", "validation", "validate_every", "patience", "keep", "seed", "accumulate"),
        *("precision", "device", "devices", "workers", "threads", "save_every"),
    ),
)
