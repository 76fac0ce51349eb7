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

    from r2mae.lazy import lazy_exports

    if name in _PACKAGES:
        return import_module(f"r2mae.{name}")
    found = globals()[name] = lazy_exports(__name__, __all__)[0](name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_PACKAGES})
