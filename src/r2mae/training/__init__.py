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

__all__ = [
    "DataConfig",
    "EvaluationConfig",
    "Fitted",
    "MachineConfig",
    "ModelSettings",
    "OptimizerConfig",
    "RunConfig",
    "RunFolder",
    "SchemeSpec",
    "TaskConfig",
    "fit",
    "load_model",
    "pretrain",
]

__getattr__, __dir__ = lazy_exports(__name__, __all__)
