"""The defaults of a domain for the schemes: the paper's, or ours where the paper gives none."""

from dataclasses import dataclass
from typing import Literal

from r2mae.masking.ratios import Grid


@dataclass(frozen=True)
class CurriculumDefaults:
    """The defaults of a domain for the curricula (appendix "Implementations of CL and R²MAE + CL").

    Times are fractions of the complete run, so that a shorter run has a schedule of the same shape.

    Parameters
    ----------
    frozen : float
        The weight network is frozen until this time.
    start, end : float
        The gradient multiplier falls from 1 to −1 between these times.
    spacing : float
        Distance between the ratios of the grid.
    columns : int, optional
        l, the number of evenly spaced ratios of the grid; it replaces `spacing`.
    iterations : int
        K, iterations of Sinkhorn's normalisation.
    floor : float
        Added to the sigmoid, so that weights stay positive.
    not_in_paper : bool
        True if the paper gives no values for this domain, so that those of another domain are used.
    warmup_steps, start_step, end_step : int, optional
        The same times in optimiser steps; if given, they replace the fractions.
    """

    frozen: float
    start: float
    end: float
    spacing: float = 0.05
    columns: int | None = None
    iterations: int = 4
    floor: float = 1e-9
    not_in_paper: bool = False
    warmup_steps: int | None = None
    start_step: int | None = None
    end_step: int | None = None

    def grid(self, low: float, high: float) -> Grid:
        """Return the grid of ratios on [low, high]."""
        if self.columns is None:
            return Grid.spaced(low, high, self.spacing)
        return Grid.spaced(low, high, (high - low) / max(self.columns - 1, 1) or 1.0)


def _single_cell_curriculum(steps: int) -> CurriculumDefaults:
    """Return the schedule in a run of `steps`: frozen for 5,000, the multiplier falls from 30,000 to 120,000."""
    return CurriculumDefaults(frozen=5_000 / steps, start=30_000 / steps, end=120_000 / steps)


# A run of the paper is 50 epochs of 90 % of the cells in batches of 400: 2,161,082 cells (HLCA), 1,378,211 (SEA-AD).
HLCA_CURRICULUM = _single_cell_curriculum(243_122)
"""The paper's single-cell curricula on HLCA: fractions 0.021, 0.123 and 0.494 of the run."""

SEA_AD_CURRICULUM = _single_cell_curriculum(155_049)
"""The same steps in SEA-AD's shorter run: fractions 0.032, 0.193 and 0.774."""

DNA_CURRICULUM = CurriculumDefaults(frozen=5_000 / 30_000, start=0.0, end=1.0, columns=10, iterations=10, floor=0.5)
"""The paper's DNA curricula: 10 ratios, 10 iterations, floor 0.5, frozen for a sixth, falling during the entire run."""


@dataclass(frozen=True)
class RatioDefaults:
    """The defaults of a domain for the schemes, which a run's options replace.

    Parameters
    ----------
    fixed, low, high : float
        The fixed ratio and the range of R²MAE.
    dynamic : (float, float), optional
        Start and end of the dynamic ratio; by default from `high` to `low`.
    falling_floor : (float, float), optional
        Start and end of the falling lower end of R²MAE + dynamic; by default as `dynamic`.
    dynamic_end : float
        Fraction of the run after which `dynamic` and `falling_floor` reach their end.
    curriculum : CurriculumDefaults
        For the schemes with learned loss weights; by default the paper's for single cells.
    not_in_paper : bool
        True if the paper gives no ratios for this domain.
    decay : float, optional
        λ of a falling ratio; by default it follows from the length of the run.
    decay_in : {"steps", "epochs"}
        Whether a falling ratio changes with every step or with every epoch.
    fixed_ratios : tuple of float, optional
        The fixed ratios of a comparison; by default `fixed`, `low` and `high`.
    sampling, per, strata
        How a random ratio is drawn: see :class:`~r2mae.masking.ratios.Uniform`.
    """

    fixed: float
    low: float
    high: float
    dynamic: tuple[float, float] | None = None
    falling_floor: tuple[float, float] | None = None
    dynamic_end: float = 1.0
    curriculum: CurriculumDefaults = HLCA_CURRICULUM
    not_in_paper: bool = False
    decay: float | None = None
    decay_in: Literal["steps", "epochs"] = "steps"
    fixed_ratios: tuple[float, ...] | None = None
    sampling: Literal["independent", "stratified"] = "independent"
    per: Literal["batch", "sample"] = "batch"
    strata: int | None = None
