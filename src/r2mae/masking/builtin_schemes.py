"""The nine schemes of the paper, and one of ours: one function each."""

from typing import Literal

from r2mae.masking.defaults import RatioDefaults
from r2mae.masking.ratios import Fixed, Grid, LinearDecay, Uniform, UniformAbove
from r2mae.masking.schemes import Curriculum, Scheme, register

_CURRICULUM = ("cl_warmup", "cl_start", "cl_end", "cl_iterations")
_EASY = ("cl_warmup", "cl_iterations")  # the multiplier is constant, so it needs no start and no end
_FALLING = ("decay", "decay_in")
_DRAWN = ("sampling", "per", "strata")


# Colours of Okabe and Ito, two of Tol, and a violet, which colour-blind readers can distinguish.
@register("fixed", takes=["ratio"], colour="#6e6e6e", per_ratio=True)
def _fixed(numbers: RatioDefaults) -> Scheme:
    """One mask ratio for the whole run."""
    return Scheme("fixed", Fixed(numbers.fixed))


@register("dynamic", takes=["low", "high", *_FALLING], colour="#56b4e9")
def _dynamic(numbers: RatioDefaults) -> Scheme:
    """Ratio falls linearly from high to low over the run."""
    return Scheme("dynamic", _decay(numbers.dynamic, numbers))


@register("mdlm", takes=_DRAWN, colour="#009e73")
def _mdlm(numbers: RatioDefaults) -> Scheme:
    """p ~ U(0, 1) for every mini-batch, as in masked diffusion language models."""
    return Scheme("mdlm", _uniform(0.0, 1.0, numbers))


@register("r2mae", takes=["low", "high", *_DRAWN], colour="#d55e00")
def _r2mae(numbers: RatioDefaults) -> Scheme:
    """p ~ U(low, high) for every mini-batch."""
    return Scheme("r2mae", _uniform(numbers.low, numbers.high, numbers))


@register("r2mae-dynamic", takes=["low", "high", *_FALLING], colour="#e69f00")
def _r2mae_dynamic(numbers: RatioDefaults) -> Scheme:
    """p ~ U(floor, high) for every mini-batch, with a floor that falls over the run."""
    return Scheme("r2mae-dynamic", UniformAbove(_decay(numbers.above or numbers.dynamic, numbers), numbers.high))


@register("cl", takes=["ratio", "low", "high", *_CURRICULUM], colour="#0072b2")
def _cl(numbers: RatioDefaults) -> Scheme:
    """Fixed ratio with loss weights learned from easy to hard."""
    return Scheme("cl", Fixed(numbers.fixed), _curriculum(numbers))


@register("cl-k0", takes=["ratio", "low", "high", *_EASY], colour="#332288")
def _cl_k0(numbers: RatioDefaults) -> Scheme:
    """Fixed ratio with loss weights that always learn the easy entries."""
    return Scheme("cl-k0", Fixed(numbers.fixed), _curriculum(numbers, "constant"))


@register("r2mae-cl", takes=["low", "high", *_CURRICULUM], colour="#cc79a7")
def _r2mae_cl(numbers: RatioDefaults) -> Scheme:
    """Ratio from a grid on [low, high], with loss weights learned from easy to hard."""
    return Scheme("r2mae-cl", _grid(numbers), _curriculum(numbers))


@register("r2mae-cl-k0", takes=["low", "high", *_EASY], colour="#882255")
def _r2mae_cl_k0(numbers: RatioDefaults) -> Scheme:
    """Ratio from a grid on [low, high], with loss weights that always learn the easy entries."""
    return Scheme("r2mae-cl-k0", _grid(numbers), _curriculum(numbers, "constant"))


@register("r2mae-spread", takes=["low", "high"], colour="#8a2be2")
def _r2mae_spread(numbers: RatioDefaults) -> Scheme:
    """p ~ U(low, high), spread over the samples of every step; with weighting mean all samples count alike."""
    return Scheme("r2mae-spread", Uniform(numbers.low, numbers.high, "stratified", "sample"))


def _uniform(low: float, high: float, numbers: RatioDefaults) -> Uniform:
    if numbers.strata is not None and numbers.sampling != "stratified":
        raise ValueError("strata are the parts of stratified sampling: add --sampling stratified, or leave strata out")
    return Uniform(low, high, numbers.sampling, numbers.per, numbers.strata)


def _decay(ends: tuple[float, float] | None, numbers: RatioDefaults) -> LinearDecay:
    high, low = ends or (numbers.high, numbers.low)
    return LinearDecay(high, low, numbers.decay, end=numbers.dynamic_end, unit=numbers.decay_in)


def _grid(numbers: RatioDefaults) -> Grid:
    return numbers.curriculum.grid(numbers.low, numbers.high)


def _curriculum(numbers: RatioDefaults, multiplier: Literal["constant", "falling"] = "falling") -> Curriculum:
    given = numbers.curriculum
    return Curriculum(
        _grid(numbers),
        multiplier,
        warmup=given.frozen,
        start=given.start,
        end=given.end,
        iterations=given.iterations,
        floor=given.floor,
        warmup_steps=given.warmup_steps,
        start_step=given.start_step,
        end_step=given.end_step,
    )
