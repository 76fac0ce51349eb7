"""Options of commands on images. No torch."""

from dataclasses import dataclass
from typing import Literal

from r2mae.domains.options import as_in_run
from r2mae.images.config import ImagesDataConfig, ImagesEvaluationConfig


@dataclass(frozen=True)
class Probe:
    """The probe of the evaluation.

    Parameters
    ----------
    probe : {"head", "logistic"}
        The paper's probe (head), or logistic regression with cross-validated strength.
    """

    probe: Literal["head", "logistic"] = "head"


Probing = as_in_run(ImagesEvaluationConfig, "bn_statistics", "finetune_epochs", "finetune_recipe", base=Probe)
"""Options of the evaluation."""
Reading = as_in_run(ImagesDataConfig, "resize", "resize_mode", "skip_broken")
"""Options of reading other images."""


@dataclass(frozen=True)
class Exporting:
    """Options of writing models for other libraries.

    Parameters
    ----------
    encoder : bool
        With --to transformers and mae: the encoder alone, without the decoder.
    """

    encoder: bool = False
