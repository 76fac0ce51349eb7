"""The nine schemes of the paper, and ``r2mae-per-sample``: one function each, whose parameters are its options.

Names and options are read for every help text, so the ratios, which import NumPy, are imported when a scheme is made.
"""

from typing import TYPE_CHECKING, Literal

from r2mae.masking.defaults import HLCA_CURRICULUM
from r2mae.masking.schemes import Curriculum, Scheme, register

if TYPE_CHECKING:
    from r2mae.masking.ratios import Fixed, Grid

_Sampling = Literal["independent", "stratified"]
_Per = Literal["batch", "sample"]
_Unit = Literal["steps", "epochs"]
_WARMUP, _START, _END = (HLCA_CURRICULUM[name] for name in ("cl_warmup", "cl_start", "cl_end"))


# Colours that colour-blind readers can distinguish: those of Okabe and Ito, two of Tol, and a violet.
@register("fixed", group="fixed", words="one ratio at every step", colour="#6e6e6e", per_ratio=True)
def _fixed(ratio: float) -> Scheme:
    """One mask ratio for the whole run."""
    return Scheme("fixed", _one_ratio(ratio))


@register("dynamic", group="schedules", words="falls from high to low", colour="#56b4e9")
def _dynamic(low: float, high: float, decay_in: _Unit = "steps", decay_end: float = 1.0) -> Scheme:
    """Ratio falls linearly from high to low over the run."""
    from r2mae.masking.ratios import LinearDecay

    return Scheme("dynamic", LinearDecay(high=high, low=low, end=decay_end, unit=decay_in))


@register("mdlm", group="random", words="each batch, from U(0, 1)", colour="#009e73")
def _mdlm(sampling: _Sampling = "independent", per: _Per = "batch") -> Scheme:
    """p ~ U(0, 1) for every mini-batch, as in masked diffusion language models."""
    from r2mae.masking.ratios import Uniform

    return Scheme("mdlm", Uniform(0.0, 1.0, sampling, per))


@register("r2mae", group="random", words="each batch, this paper's scheme", colour="#d55e00")
def _r2mae(low: float, high: float, sampling: _Sampling = "independent", per: _Per = "batch") -> Scheme:
    """p ~ U(low, high) for every mini-batch."""
    from r2mae.masking.ratios import Uniform

    return Scheme("r2mae", Uniform(low, high, sampling, per))


@register("r2mae-dynamic", group="schedules", words="random above a falling floor", colour="#e69f00")
def _r2mae_dynamic(low: float, high: float, decay_in: _Unit = "steps", decay_end: float = 1.0) -> Scheme:
    """p ~ U(floor, high) for every mini-batch, with a floor that falls from high to low over the run."""
    from r2mae.masking.ratios import UniformAbove

    return Scheme("r2mae-dynamic", UniformAbove(high=high, low=low, end=decay_end, unit=decay_in))


@register("cl", group="curricula", words="weights from easy to hard", colour="#0072b2")
def _cl(
    ratio: float,
    low: float,
    high: float,
    cl_warmup: float = _WARMUP,
    cl_start: float = _START,
    cl_end: float = _END,
    cl_iterations: int = 4,
    cl_grid: float = 0.05,
    cl_floor: float = 1e-9,
) -> Scheme:
    """Fixed ratio with loss weights learned from easy to hard."""
    grid = _grid(low, high, cl_grid)
    return Scheme(
        "cl",
        _one_ratio(ratio, low, high),
        Curriculum(grid, "falling", cl_warmup, cl_start, cl_end, cl_iterations, cl_floor),
    )


@register("cl-k0", group="curricula", words="weights for easy entries only", colour="#332288")
def _cl_k0(
    ratio: float,
    low: float,
    high: float,
    cl_warmup: float = _WARMUP,
    cl_iterations: int = 4,
    cl_grid: float = 0.05,
    cl_floor: float = 1e-9,
) -> Scheme:
    """Fixed ratio with loss weights that always learn the easy entries."""
    return Scheme(
        "cl-k0", _one_ratio(ratio, low, high), _easy(_grid(low, high, cl_grid), cl_warmup, cl_iterations, cl_floor)
    )


@register("r2mae-cl", group="curricula", words="r2mae with weights of cl", colour="#cc79a7")
def _r2mae_cl(
    low: float,
    high: float,
    cl_warmup: float = _WARMUP,
    cl_start: float = _START,
    cl_end: float = _END,
    cl_iterations: int = 4,
    cl_grid: float = 0.05,
    cl_floor: float = 1e-9,
) -> Scheme:
    """Ratio from a grid on [low, high], with loss weights learned from easy to hard."""
    grid = _grid(low, high, cl_grid)
    return Scheme("r2mae-cl", grid, Curriculum(grid, "falling", cl_warmup, cl_start, cl_end, cl_iterations, cl_floor))


@register("r2mae-cl-k0", group="curricula", words="r2mae with weights of cl-k0", colour="#882255")
def _r2mae_cl_k0(
    low: float,
    high: float,
    cl_warmup: float = _WARMUP,
    cl_iterations: int = 4,
    cl_grid: float = 0.05,
    cl_floor: float = 1e-9,
) -> Scheme:
    """Ratio from a grid on [low, high], with loss weights that always learn the easy entries."""
    grid = _grid(low, high, cl_grid)
    return Scheme("r2mae-cl-k0", grid, _easy(grid, cl_warmup, cl_iterations, cl_floor))


@register("r2mae-per-sample", group="random", words="each sample has its own", colour="#8a2be2")
def _r2mae_per_sample(low: float, high: float) -> Scheme:
    """p ~ U(low, high), stratified over the samples of every step; weighting mean gives samples equal weight."""
    from r2mae.masking.ratios import Uniform

    return Scheme("r2mae-per-sample", Uniform(low, high, "stratified", "sample"))


def _one_ratio(ratio: float, low: float = 0.0, high: float = 1.0) -> "Fixed":
    """Return a fixed ratio; one that is outside of a curriculum's range would have the weights of another ratio."""
    from r2mae.masking.ratios import Fixed

    if low <= high and 0 <= ratio <= 1 and not low <= ratio <= high:
        raise ValueError(f"ratio ({ratio:g}) must be within low to high ({low:g} to {high:g}): give all three")
    return Fixed(ratio)


def _grid(low: float, high: float, spacing: float) -> "Grid":
    """Return the grid of a curriculum: from 1 on, `spacing` is the number of its ratios; one is in the middle."""
    from r2mae.masking.ratios import Grid

    if spacing >= 1 and spacing != int(spacing):
        raise ValueError(f"cl_grid is a number of ratios (10), or below 1 their distance (0.05), not {spacing:g}")
    if spacing == 1:
        return Grid(((low + high) / 2,))
    return Grid.spaced(low, high, spacing if spacing < 1 else (high - low) / (spacing - 1) or 1.0)


def _easy(grid: "Grid", warmup: float, iterations: int, floor: float) -> Curriculum:
    return Curriculum(grid, "constant", warmup, iterations=iterations, floor=floor)
