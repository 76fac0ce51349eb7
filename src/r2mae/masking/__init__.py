"""The core: mask ratios, keys, masks and schemes, with NumPy and torch only.

The registry of schemes imports neither NumPy nor torch. The other names import what they need on first access.
"""

from typing import TYPE_CHECKING

import r2mae.masking.builtin_schemes  # noqa: F401 (registers the schemes of the paper)
from r2mae.lazy import lazy_exports
from r2mae.masking.defaults import SchemeDefaults
from r2mae.masking.schemes import Curriculum, Scheme, make_scheme, register, scheme_kind, scheme_names

if TYPE_CHECKING:
    from r2mae.masking.curriculum import FeatureWeights, UnitWeights
    from r2mae.masking.keys import Key, uniforms
    from r2mae.masking.mask_ratio import MaskRatio
    from r2mae.masking.masks import (
        column_mask,
        corrupt_tokens,
        element_mask,
        hidden_count,
        patch_mask,
        span_starts,
        token_mask,
    )
    from r2mae.masking.ratios import Fixed, Grid, LinearDecay, Ratio, Uniform, UniformAbove

__all__ = [
    "Curriculum",
    "FeatureWeights",
    "Fixed",
    "Grid",
    "Key",
    "LinearDecay",
    "MaskRatio",
    "Ratio",
    "Scheme",
    "SchemeDefaults",
    "Uniform",
    "UniformAbove",
    "UnitWeights",
    "column_mask",
    "corrupt_tokens",
    "element_mask",
    "hidden_count",
    "make_scheme",
    "patch_mask",
    "register",
    "scheme_kind",
    "scheme_names",
    "span_starts",
    "token_mask",
    "uniforms",
]

__getattr__, __dir__ = lazy_exports(__name__, __all__)
