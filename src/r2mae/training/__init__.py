"""The training loop, run folders and resume. ``fit`` trains a model; ``load_model`` loads it."""

from typing import TYPE_CHECKING

from r2mae.lazy import lazy_exports

if TYPE_CHECKING:
    from r2mae.training.config import (
        DataConfig,
        EvaluationConfig,
        MachineConfig,
        OptimizerConfig,
        RunConfig,
        TaskConfig,
    )
    from r2mae.training.folder import RunFolder
    from r2mae.training.loop import Fitted, fit
    from r2mae.training.models import ModelSettings
    from r2mae.training.pretraining import pretrain
    from r2mae.training.saving import load_model
    from r2mae.training.scheme import SchemeSpec
    from r2mae.training.task import Batches, Corrupted, Data, Output, Task
    from r2mae.training.validation import EVALUATION_KEY, masked_losses, re_estimated_statistics

__all__ = [
    "EVALUATION_KEY",
    "Batches",
    "Corrupted",
    "Data",
    "DataConfig",
    "EvaluationConfig",
    "Fitted",
    "MachineConfig",
    "ModelSettings",
    "OptimizerConfig",
    "Output",
    "RunConfig",
    "RunFolder",
    "SchemeSpec",
    "Task",
    "TaskConfig",
    "fit",
    "load_model",
    "masked_losses",
    "pretrain",
    "re_estimated_statistics",
]

__getattr__, __dir__ = lazy_exports(__name__, __all__)
