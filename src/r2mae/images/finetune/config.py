"""The configuration of a fine-tuning run on images, and MAE's recipes. No torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from r2mae.errors import UserError
from r2mae.images.config import ImagesDataConfig, ImagesMachineConfig
from r2mae.masking.defaults import SchemeDefaults
from r2mae.training.config import OptimizerConfig, RunConfig
from r2mae.training.fields import NonNegative, PartialFraction, Range

_BATCH = 256
_WARMUP = {"none": (5.0, 1 / 10), "linear": (10.0, 1 / 9)}  # epochs, and the largest share of a run
_NO_LAYERS = {"layer_decay": 1.0, "drop_path": 0.0}
_NO_MIXING = {"randaugment": 0.0, "mixup": 0.0, "cutmix": 0.0, "erasing": 0.0}
_NO_AUGMENTATION = {"crop": 1.0, "flip": False, **_NO_MIXING}
_MIN_LR = 1e-6  # of MAE's fine-tuning
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
    probe : {"none", "linear"}
        Fine-tune the encoder, or train a linear layer on its frozen features, after a batch normalisation without
        weights.
    pool : {"mean", "class"}
        For models with a class token: classify the mean over patches, or the class token.
    cached : bool
        With a linear probe: compute the features once, without augmentation.
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
    common_fields: ClassVar[tuple[str, ...]] = ("probe", "cached", "pool", "base_lr", "resize")
    hides: ClassVar[bool] = False
    omitted: ClassVar[frozenset[str]] = frozenset(
        {"preset", "model", "task", "scheme", "evaluation", "augment", "strategy", "activation_checkpointing"}
    )

    run: str = ""
    weights: str = ""
    probe: Literal["none", "linear"] = "none"
    pool: Literal["mean", "class"] = "mean"
    cached: bool = False
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
        batch_size=_BATCH,
        base_lr=1e-3,
        schedule="cosine",
        warmup_epochs=5.0,
        weight_decay=0.05,
    )
    machine: ImagesMachineConfig = ImagesMachineConfig()

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_rates_and_crops()
        self._check_probe_options()

    def _check_rates_and_crops(self) -> None:
        if self.min_lr >= self.optimizer.peak_lr:
            peak = self.optimizer.peak_lr
            raise UserError(f"min_lr must be below the learning rate {peak:g}, not {self.min_lr}")
        if self.crop_from == "original" and self.crop == 1:
            raise UserError("crop_from original needs random crops: omit it, or give a crop below 1")
        if self.crop_from == "original" and self.data.resize is None:
            raise UserError("crop_from original needs --resize N, the size of the crops: add it")

    def _check_probe_options(self) -> None:
        """Refuse options that have no effect with this probe, or that do not fit the batch."""
        if self.cached and self.probe == "none":
            raise UserError("cached needs a frozen encoder: add --probe linear, or omit --cached")
        if self.probe == "linear":
            self._require_values(_NO_LAYERS, "has no effect with a linear probe, which trains one layer")
        if self.cached:
            self._require_values(
                _NO_AUGMENTATION, "has no effect with --cached, whose features are of images without augmentation"
            )
        share = self.micro_batch
        if (self.mixup or self.cutmix) and share % 2:
            raise UserError(
                f"mixup and cutmix mix pairs of images, and a micro-batch has {share}: make batch_size even, or set "
                "both to 0"
            )
        if self.probe == "linear" and share < 2:
            raise UserError("batch normalisation needs two images in a micro-batch: raise batch_size")

    def _require_values(self, none: Mapping[str, Any], reason: str) -> None:
        for name, value in none.items():
            if getattr(self, name) != value:
                raise UserError(f"{name} {reason}: omit it")

    @property
    def idle_fields(self) -> frozenset[str]:
        """`run`, the path of the pretrained run, if `weights` identifies it."""
        return super().idle_fields | ({"run"} if self.weights else frozenset())

    def measured_in_words(self) -> str:
        """Return, as a sentence, what was trained."""
        return "Linear probe of frozen features." if self.probe == "linear" else "Fine-tuned with all layers."


def recipe(architecture: Mapping[str, Any], probe: str, *, cached: bool = False) -> dict[str, Any]:
    """Return the defaults for a pretrained model: fields of :class:`FinetuneConfig` by name.

    The fine-tuning recipe is that of MAE's published commands, which differ from Table 9 of the MAE paper for ViT-B,
    ViT-L and ViT-H. The linear probe is that of its Table 10, with SGD instead of LARS: LARS is for batches of 16,384,
    and hardly learns at the rate of a small batch. MAE has no recipe for other models, nor for vision transformers
    smaller than ViT-B; these are ours.

    Parameters
    ----------
    architecture : mapping
        Architecture of the pretrained model.
    probe : {"none", "linear"}
    cached : bool
        Whether features are computed once, so that no image is augmented.
    """
    if probe == "linear":
        own = {
            "optimizer": "sgd",
            "base_lr": 0.1,
            "weight_decay": 0.0,
            "epochs": 90.0,
            "pool": "class" if architecture["model"] == "vit-mae" else "mean",
            "smoothing": 0.0,
            **_NO_LAYERS,
        }
        return {**own, **(_NO_AUGMENTATION if cached else _NO_MIXING)}
    if architecture["model"] != "vit-mae":
        return _NO_LAYERS
    width = int(architecture["width"])
    # Smallest width, base rate, decay over layers, epochs, drop path: ViT-H, ViT-L, ViT-B, and smaller ones (ours).
    sizes = ((1280, 1e-3, 0.75, 50.0, 0.3), (1024, 1e-3, 0.75, 50.0, 0.2), (768, 5e-4, 0.65, 100.0, 0.1))
    _, rate, decay, epochs, drop = next((one for one in sizes if width >= one[0]), (0, 1e-3, 0.75, 100.0, 0.1))
    return {"base_lr": rate, "layer_decay": decay, "epochs": epochs, "drop_path": drop, "min_lr": _MIN_LR}


def warmup_epochs(probe: str, epochs: float) -> float:
    """Return the epochs of warm-up: MAE's 5, or 10 for a linear probe; in short runs at most a tenth (ours)."""
    longest, share = _WARMUP[probe]
    return min(longest, share * epochs)
