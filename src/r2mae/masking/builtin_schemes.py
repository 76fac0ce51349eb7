"""The nine schemes of the paper, and ``r2mae-per-sample``: one function each."""

from typing import Literal

from r2mae.masking.defaults import RatioDefaults
from r2mae.masking.ratios import Fixed, Grid, LinearDecay, Uniform, UniformAbove
from r2mae.masking.schemes import Curriculum, Scheme, register

_CURRICULUM_OPTIONS = ("cl_warmup", "cl_start", "cl_end", "cl_iterations")
_EASY_OPTIONS = ("cl_warmup", "cl_iterations")  # a constant multiplier has no start and no end
_DECAY_OPTIONS = ("decay", "decay_in")
_SAMPLING_OPTIONS = ("sampling", "per", "strata")


# Colours that colour-blind readers can distinguish: those of Okabe and Ito, two of Tol, and a violet.
@register("fixed", takes=["ratio"], colour="#6e6e6e", per_ratio=True)
def _fixed(defaults: RatioDefaults) -> Scheme:
    """One mask ratio for the whole run."""
    return Scheme("fixed", Fixed(defaults.fixed))


@register("dynamic", takes=["low", "high", *_DECAY_OPTIONS], colour="#56b4e9")
def _dynamic(defaults: RatioDefaults) -> Scheme:
    """Ratio falls linearly from high to low over the run."""
    return Scheme("dynamic", _decay(defaults.dynamic, defaults))


@register("mdlm", takes=_SAMPLING_OPTIONS, colour="#009e73")
def _mdlm(defaults: RatioDefaults) -> Scheme:
    """p ~ U(0, 1) for every mini-batch, as in masked diffusion language models."""
    return Scheme("mdlm", _uniform(0.0, 1.0, defaults))


@register("r2mae", takes=["low", "high", *_SAMPLING_OPTIONS], colour="#d55e00")
def _r2mae(defaults: RatioDefaults) -> Scheme:
    """p ~ U(low, high) for every mini-batch."""
    return Scheme("r2mae", _uniform(defaults.low, defaults.high, defaults))


@register("r2mae-dynamic", takes=["low", "high", *_DECAY_OPTIONS], colour="#e69f00")
def _r2mae_dynamic(defaults: RatioDefaults) -> Scheme:
    """p ~ U(floor, high) for every mini-batch, with a floor that falls over the run."""
    return Scheme(
        "r2mae-dynamic", UniformAbove(_decay(defaults.falling_floor or defaults.dynamic, defaults), defaults.high)
    )


@register("cl", takes=["ratio", "low", "high", *_CURRICULUM_OPTIONS], colour="#0072b2")
def _cl(defaults: RatioDefaults) -> Scheme:
    """Fixed ratio with loss weights learned from easy to hard."""
    return Scheme("cl", Fixed(defaults.fixed), _curriculum(defaults))


@register("cl-k0", takes=["ratio", "low", "high", *_EASY_OPTIONS], colour="#332288")
def _cl_k0(defaults: RatioDefaults) -> Scheme:
    """Fixed ratio with loss weights that always learn the easy entries."""
    return Scheme("cl-k0", Fixed(defaults.fixed), _curriculum(defaults, "constant"))


@register("r2mae-cl", takes=["low", "high", *_CURRICULUM_OPTIONS], colour="#cc79a7")
def _r2mae_cl(defaults: RatioDefaults) -> Scheme:
    """Ratio from a grid on [low, high], with loss weights learned from easy to hard."""
    return Scheme("r2mae-cl", _grid(defaults), _curriculum(defaults))


@register("r2mae-cl-k0", takes=["low", "high", *_EASY_OPTIONS], colour="#882255")
def _r2mae_cl_k0(defaults: RatioDefaults) -> Scheme:
    """Ratio from a grid on [low, high], with loss weights that always learn the easy entries."""
    return Scheme("r2mae-cl-k0", _grid(defaults), _curriculum(defaults, "constant"))


@register("r2mae-per-sample", takes=["low", "high"], colour="#8a2be2")
def _r2mae_per_sample(defaults: RatioDefaults) -> Scheme:
    """p ~ U(low, high), stratified over the samples of every step; weighting mean gives samples equal weight."""
    return Scheme("r2mae-per-sample", Uniform(defaults.low, defaults.high, "stratified", "sample"))


def _uniform(low: float, high: float, defaults: RatioDefaults) -> Uniform:
    if defaults.strata is not None and defaults.sampling != "stratified":
        raise ValueError("strata are the parts of stratified sampling: add --sampling stratified, or omit strata")
    return Uniform(low, high, defaults.sampling, defaults.per, defaults.strata)


def _decay(ends: tuple[float, float] | None, defaults: RatioDefaults) -> LinearDecay:
    high, low = ends or (defaults.high, defaults.low)
    return LinearDecay(high, low, defaults.decay, end=defaults.dynamic_end, unit=defaults.decay_in)


def _grid(defaults: RatioDefaults) -> Grid:
    return defaults.curriculum.grid(defaults.low, defaults.high)


def _curriculum(defaults: RatioDefaults, multiplier: Literal["constant", "falling"] = "falling") -> Curriculum:
    given = defaults.curriculum
    return Curriculum(
        _grid(defaults),
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
