"""The defaults that a domain gives to the options of schemes: the paper's, or ours where the paper gives none."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any


def _single_cell_curriculum(steps: int) -> dict[str, Any]:
    """Return the times in a run of `steps`: frozen for 5,000, the multiplier falls from 30,000 to 120,000."""
    return {"cl_warmup": 5_000 / steps, "cl_start": 30_000 / steps, "cl_end": 120_000 / steps}


# A run of the paper is 50 epochs of 90 % of the cells in batches of 400: 2,161,082 cells (HLCA), 1,378,211 (SEA-AD).
HLCA_CURRICULUM: Mapping[str, Any] = _single_cell_curriculum(243_122)
"""The paper's single-cell curricula on HLCA: fractions 0.021, 0.123 and 0.494 of the run."""

SEA_AD_CURRICULUM: Mapping[str, Any] = _single_cell_curriculum(155_049)
"""The same steps in SEA-AD's shorter run: fractions 0.032, 0.193 and 0.774."""

DNA_CURRICULUM: Mapping[str, Any] = {
    "cl_warmup": 5_000 / 30_000,
    "cl_start": 0.0,
    "cl_end": 1.0,
    "cl_iterations": 10,
    "cl_grid": 10,
    "cl_floor": 0.5,
}
"""The paper's DNA curricula: 10 ratios, 10 iterations, floor 0.5, frozen for a sixth, falling during the entire run."""


@dataclass(frozen=True)
class SchemeDefaults:
    """The defaults of a domain for the options of schemes.

    An option that is in none of them has the default of the scheme's function.

    Parameters
    ----------
    ratio, low, high : float
        The fixed ratio and the range of R²MAE.
    options : mapping
        Defaults of other options, by name.
    of_scheme : mapping
        Defaults that differ for a scheme: options by name, by the name of the scheme.
    fixed_ratios : tuple of float, optional
        The fixed ratios of a comparison; by default `ratio`, `low` and `high`.
    not_in_paper : bool
        True if the paper gives no ratios for this domain.
    """

    ratio: float
    low: float
    high: float
    options: Mapping[str, Any] = field(default_factory=dict)
    of_scheme: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    fixed_ratios: tuple[float, ...] | None = None
    not_in_paper: bool = False

    def for_scheme(self, name: str) -> dict[str, Any]:
        """Return the defaults of all options for a scheme, by the name of the option."""
        ratios = {"ratio": self.ratio, "low": self.low, "high": self.high}
        return {**ratios, **self.options, **self.of_scheme.get(name, {})}

    def with_options(self, **options: Any) -> "SchemeDefaults":
        """Return these defaults with others in `options`."""
        return replace(self, options={**self.options, **options})
