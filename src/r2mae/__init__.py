"""Masked pretraining with randomly random mask ratios (R²MAE).

Importing this package is instant: its packages (``r2mae.masking``, ``r2mae.images``, …) are imported by name, and only
they import torch and the libraries of their domain. ``r2mae.load(run)`` loads a finished run of any domain.
"""

TYPE_CHECKING = False  # as in `typing`, whose import would take longer than all the rest
if TYPE_CHECKING:
    from r2mae.domains.lookup import load

__version__ = "0.1.0"
__all__ = ["__version__", "load"]


def __getattr__(name: str) -> object:
    if name != "load":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from r2mae.domains.lookup import load

    return load


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
