"""What a run is made of, as one typed dataclass; command line, YAML file and run folder all speak it. No torch."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Literal, TypeVar

from r2mae.errors import UserError, nearest
from r2mae.masking.ratios import LinearDecay, Ratio, Uniform, UniformAbove
from r2mae.masking.schemes import (
    SCHEME_OPTIONS,
    RatioDefaults,
    Scheme,
    make_scheme,
    not_taken,
    scheme_takes,
)
from r2mae.training.fields import above_zero, at_least, exact_values, in_words, short
from r2mae.training.records import read_yaml as read_config

__all__ = [
    "MACHINE_FIELDS",
    "SCHEME_DEFAULTS",
    "RunConfig",
    "chosen_options",
    "given_options",
    "in_words",
    "read_config",
    "scheme_of",
]

# Far above what any run needs, and low enough that nothing spins, overflows or starts threads without end.
_MOST_OF_ALL = 2**31 - 1
_SEED = 2**63 - 1
_MOST = {"steps": 10**9, "threads": 4096, "workers": 1024, "devices": 4096, "cl_iterations": 10_000}

# These say where and how comfortably a run is computed, not what: a run may be resumed with others.
MACHINE_FIELDS = frozenset({"device", "devices", "workers", "threads", "save_every", "keep_every", "logger"})


_Own = TypeVar("_Own", bound="RunConfig")


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """A pretraining run.

    A wing's own configuration inherits from this one and sets its defaults.

    Parameters
    ----------
    data : str
        A named set (`r2mae data list`) or a path.
    preset : str, optional
        Name of a preset of the wing; single options given beside it win.
    scheme : str
        Masking scheme.
    ratio : float, optional
        Mask ratio of the schemes `fixed`, `cl` and `cl-k0`.
    low : float, optional
        Lower end of the range of ratios.
    high : float, optional
        Upper end of the range of ratios.
    decay : float, optional
        λ of the dynamic ratio, per step; by default the value that reaches `low` at the last step.
    cl_warmup : int, optional
        Steps for which the curricula's loss weights are frozen; by default a fraction of the run, as in the paper.
    cl_start : int, optional
        Step at which their gradient multiplier begins to fall from 1.
    cl_end : int, optional
        Step at which it reaches −1.
    cl_iterations : int, optional
        Iterations of Sinkhorn's normalisation.
    sampling : {"independent", "stratified"}
        How a random ratio is drawn: independently, or spread evenly over consecutive steps.
    per : {"batch", "sample"}
        One random ratio for each mini-batch (the paper), or one for each sample.
    weighting : {"mean", "sum", "inverse-ratio"}
        Normaliser of the loss: mean over hidden entries; sum per sample; or sum divided by ratio and length.
    epochs : float
        Passes over the data, when `steps` is not given.
    steps : int, optional
        Optimiser steps; overrides `epochs`.
    batch_size : int
        Samples of one optimiser step, over all micro-batches and processes together.
    accumulate : int
        Micro-batches that one optimiser step is split into.
    optimizer : {"adam", "adamw"}
        Optimiser.
    lr : float
        Learning rate.
    schedule : {"constant", "linear", "cosine"}
        What becomes of the learning rate after the warm-up.
    warmup : float
        Fraction of the run over which the learning rate rises to `lr`.
    ema : float, optional
        Decay of an exponential moving average of the weights; the average is what is validated, saved and measured.
    weight_decay : float
        Weight decay (never on learned loss weights; with AdamW not on biases and norms either).
    clip : float, optional
        Largest gradient norm.
    validation : float
        Fraction of the training data held out for the validation loss.
    validate_every : int, optional
        Steps between validations; by default once an epoch.
    patience : int, optional
        Stop early after this many validations without improvement.
    precision : {"auto", "32", "bf16"}
        Number format; "auto" is bf16 where the device has it, and 32 bits on a CPU.
    seed : int
        Seed of weights, data order, ratios and masks.
    device : str
        "auto", "cpu", "cuda" or "cuda:1".
    devices : int
        Processes that train together, one per device (or per core group on a CPU); the batch is divided among them.
    workers : int
        Processes that load data; 0 loads in the training process.
    threads : int, optional
        CPU threads of the training process.
    save_every : int
        Steps between checkpoints.
    keep_every : int, optional
        Steps between checkpoints that are kept, as checkpoints/step-N.ckpt.
    keep : {"last", "best"}
        Which weights become the finished model: the last, or those with the lowest validation loss.
    compile : bool
        Compile the model with torch.compile (numbers change in the last digits).
    logger : {"none", "tensorboard", "wandb", "mlflow"}
        Experiment tracker that hears of the metrics, too.
    """

    wing: ClassVar[str] = ""
    measured_with: ClassVar[tuple[str, ...]] = ()
    """Fields that say how a finished model is measured and used: a run may be measured again with others."""
    measured_formerly: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """Those of results of older versions, which do not say it."""

    data: str
    preset: str | None = None
    scheme: str = "r2mae"
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    decay: float | None = None
    cl_warmup: int | None = None
    cl_start: int | None = None
    cl_end: int | None = None
    cl_iterations: int | None = None
    sampling: Literal["independent", "stratified"] = "independent"
    per: Literal["batch", "sample"] = "batch"
    weighting: Literal["mean", "sum", "inverse-ratio"] = "mean"
    epochs: float = 15
    steps: int | None = None
    batch_size: int = 128
    accumulate: int = 1
    optimizer: Literal["adam", "adamw"] = "adam"
    lr: float = 1e-3
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    warmup: float = 0.0
    ema: float | None = None
    weight_decay: float = 0.0
    clip: float | None = None
    validation: float = 0.0
    validate_every: int | None = None
    patience: int | None = None
    precision: Literal["auto", "32", "bf16"] = "auto"
    seed: int = 0
    device: str = "auto"
    devices: int = 1
    workers: int = 0
    threads: int | None = None
    save_every: int = 500
    keep_every: int | None = None
    keep: Literal["last", "best"] = "last"
    compile: bool = False
    logger: Literal["none", "tensorboard", "wandb", "mlflow"] = "none"

    def __post_init__(self) -> None:
        self._check_sane()
        for name in ("batch_size", "accumulate", "save_every", "devices"):
            at_least(self, name, 1)
        for name in ("steps", "validate_every", "patience", "threads", "cl_iterations", "keep_every"):
            if getattr(self, name) is not None:
                at_least(self, name, 1)
        for name in ("workers", "seed", "weight_decay", "decay", "cl_warmup", "cl_start", "cl_end"):
            if getattr(self, name) is not None:
                at_least(self, name, 0)
        for name in ("epochs", "lr"):
            above_zero(self, name)
        if self.clip is not None:
            above_zero(self, "clip")
        self._check_combinations()

    def _check_sane(self) -> None:
        """Refuse numbers that no run can mean, in the fields of every wing, and text that no path can hold."""
        for field in dataclasses.fields(self):
            name, value = field.name, getattr(self, field.name)
            if isinstance(value, str) and "\0" in value:
                raise UserError(f"{name} holds a NUL character, which no path or name can: {value!r}")
            most = _SEED if name == "seed" else _MOST.get(name, _MOST_OF_ALL)
            if isinstance(value, int) and abs(value) > most:
                raise UserError(f"{name} takes numbers up to {most:,}, not {short(value)}")

    def _check_combinations(self) -> None:
        if self.batch_size % self.accumulate:
            raise UserError(f"batch_size {self.batch_size} does not split into {self.accumulate} equal micro-batches")
        if self.batch_size % (self.accumulate * self.devices):
            raise UserError(
                f"batch_size {self.batch_size} does not split among {self.devices} devices with {self.accumulate} "
                "micro-batches each"
            )
        if not 0 <= self.warmup < 1:
            raise UserError(f"warmup must be a fraction in [0, 1), not {self.warmup}")
        if self.ema is not None and not 0 < self.ema < 1:
            raise UserError(f"ema must be a decay between 0 and 1, such as 0.999, not {self.ema}")
        if not 0 <= self.validation < 1:
            raise UserError(f"validation must be a fraction in [0, 1), not {self.validation}")
        if self.keep == "best" and self.validation == 0:
            raise UserError("keep 'best' needs a validation loss: hold data out with --validation 0.1")
        if self.patience is not None and self.validation == 0:
            raise UserError("patience needs a validation loss: hold data out with --validation 0.1")
        if self.weighting == "inverse-ratio" and self.per == "sample":
            raise UserError("weighting 'inverse-ratio' needs one ratio for the mini-batch: leave per at 'batch'")
        if self.validate_every is not None and self.validation == 0:
            raise UserError("validate_every needs held-out data: add --validation 0.1")

    @property
    def recalibrates(self) -> bool:
        """Whether the model is used with batch statistics that were re-estimated on whole inputs."""
        return False

    def measured_as(self) -> dict[str, Any]:
        """Return the fields of :attr:`measured_with`, which belong to every result."""
        return {name: getattr(self, name) for name in self.measured_with}

    def measured_in_words(self) -> str:
        """Say for tables how scores are measured, where that is a choice."""
        return ""

    def total_steps(self, samples: int) -> int:
        """Return the optimiser steps of the run on `samples` training samples."""
        wanted = self.steps or max(1.0, self.epochs * samples / self.batch_size)
        if wanted > _MOST["steps"]:
            raise UserError(
                f"{self.epochs:g} epochs are {wanted:,.0f} steps, and the most are {_MOST['steps']:,}: ask for fewer"
            )
        return round(wanted)

    def to_dict(self) -> dict[str, Any]:
        """Return plain types, the wing's name first."""
        fields = dataclasses.asdict(self).items()
        return {"wing": self.wing, **{key: list(value) if isinstance(value, tuple) else value for key, value in fields}}

    @classmethod
    def from_dict(cls: type[_Own], values: Mapping[str, Any], *, source: str = "configuration") -> _Own:
        """Build from plain types, and name any field that does not exist."""
        fields = {field.name for field in dataclasses.fields(cls)}
        given = {key: value for key, value in values.items() if key != "wing"}
        for key in given:
            if key not in fields:
                raise UserError(f"{source}: unknown field {key!r}: {nearest(str(key), sorted(fields))}")
        if "data" not in given:
            raise UserError(f"{source}: the field 'data' is missing")
        return cls(**exact_values(cls, given, f"{source}: "))

    def differences(self, other: "RunConfig", defaults: RatioDefaults | None = None) -> list[str]:
        """Return the fields, apart from those of the machine and of measuring, in which two configurations differ.

        With the wing's `defaults`, a number that is open means the wing's.
        """
        mine, theirs = used_fields(self, defaults), used_fields(other, defaults)
        free = MACHINE_FIELDS.union(self.measured_with)
        return [key for key in mine if key not in free and mine[key] != theirs.get(key)]


_DRAWN = ("sampling", "per")
SCHEME_DEFAULTS = {field.name: field.default for field in dataclasses.fields(RunConfig) if field.name in SCHEME_OPTIONS}


def used_fields(config: RunConfig, defaults: RatioDefaults | None) -> dict[str, Any]:
    """Return plain types, with the numbers that a run uses where the wing's are given."""
    try:
        return (config if defaults is None else resolved(config, defaults)).to_dict()
    except UserError:  # a folder of another version may hold numbers that its scheme does not take
        return config.to_dict()


def scheme_of(config: RunConfig, defaults: RatioDefaults) -> Scheme:
    """Return the scheme that a configuration names, unbound.

    Raises
    ------
    UserError
        For an unknown scheme, impossible ratios, or options that the scheme does not listen to.
    """
    try:
        takes = scheme_takes(config.scheme)
        for option in given_options(config):
            if option not in takes:
                raise ValueError(not_taken(option, [config.scheme]))
        scheme = make_scheme(config.scheme, defaults, ratio=config.ratio, low=config.low, high=config.high)
        return _with_curriculum(dataclasses.replace(scheme, ratio=_with_schedule(scheme.ratio, config)), config)
    except ValueError as error:
        raise UserError(str(error)) from None


def given_options(config: RunConfig) -> dict[str, Any]:
    """Return those options of schemes that are not at their defaults."""
    values = {name: getattr(config, name) for name in SCHEME_OPTIONS}
    return {name: value for name, value in values.items() if value != SCHEME_DEFAULTS[name]}


def chosen_options(config: RunConfig, defaults: RatioDefaults) -> list[str]:
    """Return the options of schemes that differ from the wing's own numbers, which finished runs hold as well."""
    found = given_options(config)
    plain: dict[str, Any] = {name: SCHEME_DEFAULTS[name] for name in found}
    usual = used_fields(dataclasses.replace(config, **plain), defaults)
    return [name for name, value in found.items() if value != usual[name]]


def resolved(config: RunConfig, defaults: RatioDefaults) -> RunConfig:
    """Return the configuration with the wing's numbers in place of None, as far as its scheme takes them.

    Both mean the same scheme, so that a file with the numbers reruns the run of one without. What depends on the length
    of the run (`decay`, `cl_warmup`, `cl_start`, `cl_end`) stays open.

    Raises
    ------
    UserError
        As :func:`scheme_of`.
    """
    wanted = scheme_of(config, defaults)
    ends = range_of(config.scheme, defaults)
    several: list[dict[str, Any]] = [{"ratio": defaults.fixed}, ends, {"low": defaults.low}, {"high": defaults.high}]
    if wanted.curriculum is not None:
        several.append({"cl_iterations": wanted.curriculum.iterations})
    for numbers in several:
        if all(getattr(config, name) is None for name in numbers):
            filled = dataclasses.replace(config, **numbers)
            if _same_scheme(filled, wanted, defaults):
                config = filled
    return config


def range_of(scheme: str, defaults: RatioDefaults) -> dict[str, float]:
    """Return the wing's low and high of a scheme: the dynamic ones may have ends of their own."""
    ends = {"dynamic": defaults.dynamic, "r2mae-dynamic": defaults.above or defaults.dynamic}.get(scheme)
    high, low = ends or (defaults.high, defaults.low)
    return {"low": low, "high": high}


def _same_scheme(config: RunConfig, wanted: Scheme, defaults: RatioDefaults) -> bool:
    try:
        return scheme_of(config, defaults) == wanted
    except UserError:  # it does not take the number
        return False


def _with_schedule(ratio: Ratio, config: RunConfig) -> Ratio:
    """Put the user's own decay, sampling and ratios by sample into a ratio that has them."""
    if isinstance(ratio, Uniform):
        drawn: dict[str, Any] = {name: value for name, value in given_options(config).items() if name in _DRAWN}
        ratio = dataclasses.replace(ratio, **drawn)
    if config.decay is not None and isinstance(ratio, LinearDecay):
        ratio = dataclasses.replace(ratio, decay=config.decay)
    if config.decay is not None and isinstance(ratio, UniformAbove):
        ratio = dataclasses.replace(ratio, floor=dataclasses.replace(ratio.floor, decay=config.decay))
    return ratio


def _with_curriculum(scheme: Scheme, config: RunConfig) -> Scheme:
    """Put the user's own moments into a curriculum."""
    given = (config.cl_warmup, config.cl_start, config.cl_end, config.cl_iterations)
    if scheme.curriculum is None or given == (None, None, None, None):
        return scheme
    curriculum = dataclasses.replace(
        scheme.curriculum,
        warmup_steps=config.cl_warmup,
        start_step=config.cl_start,
        end_step=config.cl_end,
        iterations=config.cl_iterations or scheme.curriculum.iterations,
    )
    return dataclasses.replace(scheme, curriculum=curriculum)
