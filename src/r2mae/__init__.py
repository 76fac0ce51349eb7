"""Masked pretraining with randomly random mask ratios (R²MAE).

Importing this package is instant: its names and its packages (``r2mae.masking``, ``r2mae.images``, …) are imported on
first use, and only they import torch and the libraries of their domain. ``r2mae.compare`` is a package that can be
called.
"""

TYPE_CHECKING = False  # as in `typing`, whose import would take longer than all the rest
if TYPE_CHECKING:
    from r2mae.errors import UserError
    from r2mae.front import compare, load, pretrain
    from r2mae.masking.mask_ratio import MaskRatio

__version__ = "0.1.0"
__all__ = ["MaskRatio", "UserError", "__version__", "compare", "load", "pretrain"]

_HOMES = {
    "UserError": "r2mae.errors",
    "MaskRatio": "r2mae.masking.mask_ratio",
    "load": "r2mae.front",
    "pretrain": "r2mae.front",
}
_PACKAGES = (
    "front",
    "cells",
    "domains",
    "compare",
    "evaluation",
    "genome",
    "images",
    "integrations",
    "masking",
    "text",
    "theory",
    "training",
)


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in _PACKAGES:
        return import_module(f"r2mae.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_PACKAGES})
