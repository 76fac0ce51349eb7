"""Masked pretraining with randomly random mask ratios (R²MAE).

Importing this package is instant: packages are imported by name (``r2mae.masking``, ``r2mae.images``, …) and
bring torch and the libraries of their domain only then. ``r2mae.load(run)`` gives a finished run of any wing.
"""

from typing import TYPE_CHECKING

from r2mae.lazy import lazily

if TYPE_CHECKING:
    from r2mae.wings.lookup import load

__version__ = "0.1.0"
__all__ = ["__version__", "load"]

__getattr__, _ = lazily(__name__, {"r2mae.wings.lookup": ("load",)}, __all__)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
