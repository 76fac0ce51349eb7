"""The configuration of a run on images. No torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from r2mae.errors import UserError
from r2mae.evaluation.bn_statistics import measured_in_words
from r2mae.images.models import FINETUNABLE, MODELS, MLPSettings
from r2mae.masking.defaults import SchemeDefaults
from r2mae.training.config import (
    DataConfig,
    EvaluationConfig,
    MachineConfig,
    OptimizerConfig,
    RunConfig,
    TaskConfig,
)
from r2mae.training.fields import NonNegative, Range, Size

_Own = TypeVar("_Own", bound="ImagesConfig")


@dataclass(frozen=True, kw_only=True)
class ImagesDataConfig(DataConfig):
    """The images of a run, and how they are read.

    Parameters
    ----------
    resize : int, optional
        Resize images to this many pixels a side; required if a folder holds several sizes.
    resize_mode : {"squash", "crop"}
        How --resize treats images that are not square: squash them, or crop the longer side at both ends.
    test_fraction : float
        Fraction of the images that are test images, for a set without an official test part.
    augment : {"none", "crop-flip"}
        Train on the images as they are, or on random resized crops (0.2 to 1 of the area, bicubic), half of them
        flipped. Validation, evaluation and embedding use no augmentation.
    draft : bool
        Let the JPEG decoder reduce large images by 2, 4 or 8 before --resize: several times as fast, with slightly
        different pixels.
    skip_broken : bool
        Skip image files that cannot be decoded, with their number in a note, instead of refusing the set.
    """

    resize: Size | None = None
    resize_mode: Literal["squash", "crop"] = "squash"
    test_fraction: Annotated[float, Range(above=0, below=1)] = 0.2
    augment: Literal["none", "crop-flip"] = "none"
    draft: bool = False
    skip_broken: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.resize_mode != "squash" and self.resize is None:
            raise UserError("resize_mode needs --resize N: add it, or omit resize_mode")
        if self.draft and self.resize is None:
            raise UserError("draft needs --resize N: add it, or omit draft")


@dataclass(frozen=True, kw_only=True)
class ImagesTaskConfig(TaskConfig):
    """How pixels are hidden.

    Parameters
    ----------
    exact : bool
        Hide a fixed count of pixels in each image (the rounded one), instead of each pixel independently.
    fill : {"zero", "mean"}
        Value of hidden pixels: black, or the mean of the training pixels, for each colour.
    """

    exact: bool = False
    fill: Literal["zero", "mean"] = "zero"


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
    finetune_recipe : {"short", "mae"}
        Batches of 256 images or fewer and crops of the kept images, or as in MAE batches of 1,024 and crops of the
        original images.
    """

    bn_statistics: Literal["yes", "no", "both"] = "yes"
    finetune_epochs: NonNegative = 0.0
    finetune_recipe: Literal["short", "mae"] = "short"

    @property
    def idle(self) -> tuple[str, ...]:
        """The recipe, without fine-tuning."""
        return () if self.finetune_epochs else ("finetune_recipe",)


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

    common_fields: ClassVar[tuple[str, ...]] = ("resize",)

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
            self._check_init(self.init)
        if self.evaluation.finetune_epochs and self.model.name not in FINETUNABLE:
            names = " and ".join(FINETUNABLE)
            raise UserError(f"finetune_epochs is for the models {names}: omit it with {self.model.name}")

    def check_given(self, given: Mapping[str, Any]) -> None:
        """Refuse a recipe without fine-tuning."""
        super().check_given(given)
        for name in self.evaluation.idle:
            if name in given:
                raise UserError(f"{name} is for fine-tuning: add --finetune-epochs N, or omit it")

    @classmethod
    def from_dict(cls: type[_Own], values: Mapping[str, Any], *, source: str = "configuration") -> _Own:
        """Build from plain types; a configuration of fine-tuning, which has the field `run`, raises a UserError."""
        if "run" in values:
            raise UserError(f"{source} is of a fine-tuning run: name a run of pretraining, or another --out")
        return super().from_dict(values, source=source)

    def _check_init(self, path: str) -> None:
        """Refuse weights for a model that no other library has; make the path absolute, for use from any folder."""
        if not path:
            raise UserError("init is empty: name a file or folder of weights, or omit init")
        if not self.model.exchanged:
            raise UserError(
                f"init is for models that other libraries have (vit-mae), not for {self.model.name!r}: omit it"
            )
        object.__setattr__(self, "init", str(Path(path).absolute()))

    def measured_in_words(self) -> str:
        """Return sentences on the batch statistics of the scores, if the model has any, and on fine-tuning."""
        statistics = measured_in_words(self.evaluation.bn_statistics) if self.has_batch_norm else ""
        epochs = self.evaluation.finetune_epochs
        finetuned = f"Fine-tuned on the labels for {epochs:g} epochs." if epochs else ""
        return f"{statistics} {finetuned}".strip()
