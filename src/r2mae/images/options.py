"""Options of commands on images. No torch."""

from dataclasses import dataclass
from typing import Literal

from r2mae.domains.options import MeasuredStatistics


@dataclass(frozen=True)
class Probing(MeasuredStatistics):
    """Options of the evaluation.

    Parameters
    ----------
    probe : {"head", "logistic"}
        The paper's probe (head), or logistic regression with cross-validated strength.
    finetune_epochs : float, optional
        Also fine-tune the whole model on the labels for this many epochs, with the recipe of r2mae finetune.
    finetune_recipe : {"short", "mae"}, optional
        Batches of 256 images or fewer and crops of the kept images, or as in MAE batches of 1,024 and crops of the
        original images; by default as in the run.
    """

    probe: Literal["head", "logistic"] = "head"
    finetune_epochs: float | None = None
    finetune_recipe: Literal["short", "mae"] | None = None


@dataclass(frozen=True)
class Reading:
    """Options of reading other images.

    Parameters
    ----------
    resize : int, optional
        Resize them to this many pixels a side; by default as in the run.
    resize_mode : {"squash", "crop"}, optional
        How to resize those that are not square; by default as in the run.
    skip_broken : bool, optional
        Skip image files that cannot be decoded; by default as in the run.
    """

    resize: int | None = None
    resize_mode: Literal["squash", "crop"] | None = None
    skip_broken: bool | None = None


@dataclass(frozen=True)
class Exporting:
    """Options of writing models for other libraries.

    Parameters
    ----------
    encoder : bool
        With --to transformers and mae: the encoder alone, without the decoder.
    """

    encoder: bool = False
