"""The core: mask ratios, keys, masks and schemes, with NumPy and torch only.

The registry of schemes imports neither NumPy nor torch. The other names import what they need on first access.
"""

from typing import TYPE_CHECKING

import r2mae.masking.builtin_schemes  # noqa: F401 (registers the schemes of the paper)
from r2mae.lazy import lazy_exports
from r2mae.masking.defaults import DNA_CURRICULUM, HLCA_CURRICULUM, SEA_AD_CURRICULUM, SchemeDefaults
from r2mae.masking.schemes import (
    Curriculum,
    Scheme,
    SchemeKind,
    make_scheme,
    register,
    resolve_options,
    scheme_kind,
    scheme_names,
    scheme_summary,
    scheme_takes,
)

if TYPE_CHECKING:
    from r2mae.masking.curriculum import FeatureWeights, UnitWeights, scale_gradient, select_weights, sinkhorn
    from r2mae.masking.keys import Key, permutation, uniforms
    from r2mae.masking.masks import (
        column_mask,
        corrupt_tokens,
        element_mask,
        hidden_count,
        patch_mask,
        token_mask,
    )
    from r2mae.masking.ratios import Fixed, Grid, LinearDecay, Ratio, Uniform, UniformAbove, as_ratio, draw, ends_of

__all__ = [
    "DNA_CURRICULUM",
    "HLCA_CURRICULUM",
    "SEA_AD_CURRICULUM",
    "Curriculum",
    "FeatureWeights",
    "Fixed",
    "Grid",
    "Key",
    "LinearDecay",
    "Ratio",
    "Scheme",
    "SchemeDefaults",
    "SchemeKind",
    "Uniform",
    "UniformAbove",
    "UnitWeights",
    "as_ratio",
    "column_mask",
    "corrupt_tokens",
    "draw",
    "element_mask",
    "ends_of",
    "hidden_count",
    "make_scheme",
    "patch_mask",
    "permutation",
    "register",
    "resolve_options",
    "scale_gradient",
    "scheme_kind",
    "scheme_names",
    "scheme_summary",
    "scheme_takes",
    "select_weights",
    "sinkhorn",
    "token_mask",
    "uniforms",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "curriculum": ("FeatureWeights", "UnitWeights", "scale_gradient", "select_weights", "sinkhorn"),
        "keys": ("Key", "permutation", "uniforms"),
        "ratios": (
            "Fixed",
            "Grid",
            "LinearDecay",
            "Ratio",
            "Uniform",
            "UniformAbove",
            "as_ratio",
            "draw",
            "ends_of",
        ),
        "masks": ("column_mask", "corrupt_tokens", "element_mask", "hidden_count", "patch_mask", "token_mask"),
    },
    __all__,
)
