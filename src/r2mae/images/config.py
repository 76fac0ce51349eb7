"""The configuration of a run on images. No torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from r2mae.errors import UserError
from r2mae.evaluation.bn_statistics import measured_in_words
from r2mae.images.finetune.config import WHOLE
from r2mae.images.models import MODELS, MLPSettings
from r2mae.training.models import ModelConfig


@dataclass(frozen=True, kw_only=True)
class ImagesConfig(MLPSettings, ModelConfig):
    """A run on images; defaults follow the paper's MNIST experiments, or a reading where it is silent (docs/images.md).

    Parameters
    ----------
    exact : bool
        Hide exactly the rounded count of pixels in each image, instead of each pixel independently.
    resize : int, optional
        Bring images to this many pixels a side; needed where a folder holds several sizes.
    fill : {"zero", "mean"}
        What hidden pixels become: black, or the mean of the training images' pixels, for each colour.
    bn_statistics : {"yes", "no", "both"}
        Re-estimate the statistics of batch normalisation on the inputs of each evaluation and of embeddings (yes), or
        take those of training, as in the paper (no); with both, scores are measured in both ways.
    init : str, optional
        Begin with the weights of a run folder, a folder of transformers, or a file of timm or the original MAE, instead
        of fresh ones; for models that these have (docs/images.md).
    resize_mode : {"squash", "crop"}
        What --resize makes of images that are not square: squash them, or cut the ends of the longer side off.
    test_fraction : float
        Fraction of a set without an official test part that is kept for evaluation.
    augment : {"none", "crop-flip"}
        What the model is trained on: whole images, or random resized crops (0.2 to 1 of the area, bicubic), half of
        them flipped. All else is measured on whole images.
    draft : bool
        Let the JPEG decoder make large images smaller (by 2, 4 or 8) before --resize does the rest: some times as
        fast, with slightly other pixels.
    skip_broken : bool
        Leave out image files that cannot be decoded, and say how many, instead of refusing the set.
    cache : {"auto", "memory", "mmap", "none"}
        Where decoded images are kept: in memory, in a memory map on disk (below R2MAE_CACHE), or nowhere, to be decoded
        by the workers whenever they are needed. "auto" is memory where they fit, else none.
    finetune_epochs : float
        Epochs of fine-tuning on the labels with which a finished model is measured, too; 0 leaves it out.
    """

    domain: ClassVar[str] = "images"
    models: ClassVar[Mapping[str, str]] = MODELS
    default_settings: ClassVar[type] = MLPSettings
    measurement_fields: ClassVar[tuple[str, ...]] = ("bn_statistics", "finetune_epochs")
    old_measurement_settings: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {"bn_statistics": "no", "finetune_epochs": 0.0}
    )

    exact: bool = False
    resize: int | None = None
    fill: Literal["zero", "mean"] = "zero"
    bn_statistics: Literal["yes", "no", "both"] = "yes"
    init: str | None = None
    resize_mode: Literal["squash", "crop"] = "squash"
    test_fraction: float = 0.2
    augment: Literal["none", "crop-flip"] = "none"
    draft: bool = False
    skip_broken: bool = False
    cache: Literal["auto", "memory", "mmap", "none"] = "auto"
    finetune_epochs: float = 0.0
    lr: float = 3e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("hidden", "latent", "resize"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < 1):
                raise UserError(f"{name} must be 1 or more, not {value!r}")
        if self.init is not None:
            self._check_init(self.init)
        if self.resize_mode != "squash" and self.resize is None:
            raise UserError("resize_mode is for images that are resized: add --resize N, or leave it out")
        if self.draft and self.resize is None:
            raise UserError("draft is for images that are made smaller: add --resize N, or leave it out")
        if self._normalises and self.batch_size // (self.accumulate * self.ranks) < 2:
            raise UserError("batch normalisation needs two images in a micro-batch: raise batch_size")
        if not 0 < self.test_fraction < 1:
            raise UserError(f"test_fraction must lie between 0 and 1, not {self.test_fraction}")
        if not 0 <= self.finetune_epochs < 1e9:
            raise UserError(f"finetune_epochs must be 0 (none) or more, not {self.finetune_epochs}")
        if self.finetune_epochs and self.model not in WHOLE:
            raise UserError(f"finetune_epochs is for the models {' and '.join(WHOLE)}: leave it out with {self.model}")

    def check_given(self, given: Mapping[str, Any]) -> None:
        """Refuse a fraction of test images for a set with an official test part."""
        super().check_given(given)
        if "test_fraction" in given:
            from r2mae.images.sources import check_test_fraction

            check_test_fraction(self.data)

    def _check_init(self, path: str) -> None:
        """Refuse weights for a model that no other library has; a run must know them from wherever it is used."""
        if not path:
            raise UserError("init names no file or folder of weights: give one, or leave it out")
        if not getattr(self.settings, "exchanged", False):
            raise UserError(
                f"init is for models that other libraries have (vit-mae), not for {self.model!r}: leave it out"
            )
        object.__setattr__(self, "init", str(Path(path).absolute()))

    @property
    def re_estimates_statistics(self) -> bool:
        """Whether embeddings take re-estimated batch statistics."""
        return self._normalises and self.bn_statistics != "no"

    @property
    def _normalises(self) -> bool:
        """Whether the model may have batch normalisation, whose statistics there are to choose."""
        return "bn_statistics" not in self.ignored

    def measured_in_words(self) -> str:
        """Say which batch statistics scores were measured with, if there are any, and how long it was fine-tuned."""
        told = measured_in_words(self.bn_statistics) if self._normalises else ""
        epochs = f"Fine-tuned on the labels for {self.finetune_epochs:g} epochs." if self.finetune_epochs else ""
        return f"{told} {epochs}".strip()
