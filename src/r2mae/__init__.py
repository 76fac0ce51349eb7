"""Masked pretraining with randomly random mask ratios (R²MAE).

Importing this package is instant: packages are imported by name (``r2mae.masking``, ``r2mae.images``, …) and
bring torch and the libraries of their domain only then.
"""

__version__ = "0.1.0"
__all__ = ["__version__"]
