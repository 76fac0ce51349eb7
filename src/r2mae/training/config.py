"""What a run is made of, as one typed dataclass; command line, YAML file and run folder all speak it. No torch."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args, get_origin, get_type_hints

import yaml

from r2mae.errors import UserError, nearest
from r2mae.masking.ratios import LinearDecay, Uniform, UniformAbove
from r2mae.masking.schemes import RatioDefaults, Scheme, make_scheme

# These say where and how comfortably a run is computed, not what: a run may be resumed with others.
MACHINE_FIELDS = frozenset({"device", "devices", "workers", "threads", "save_every", "keep_every", "logger"})


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
        for name in ("batch_size", "accumulate", "save_every", "devices"):
            _at_least(self, name, 1)
        for name in ("steps", "validate_every", "patience", "threads", "cl_iterations", "keep_every"):
            if getattr(self, name) is not None:
                _at_least(self, name, 1)
        for name in ("workers", "seed", "weight_decay", "decay", "cl_warmup", "cl_start", "cl_end"):
            if getattr(self, name) is not None:
                _at_least(self, name, 0)
        for name in ("epochs", "lr"):
            _above_zero(self, name)
        if self.clip is not None:
            _above_zero(self, "clip")
        self._check_combinations()

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
        if self.seed >= 1 << 63:
            raise UserError(f"seed must be below 2**63, not {self.seed}")
        if self.weighting == "inverse-ratio" and self.per == "sample":
            raise UserError("weighting 'inverse-ratio' needs one ratio for the mini-batch: leave per at 'batch'")
        if self.validate_every is not None and self.validation == 0:
            raise UserError("validate_every needs held-out data: add --validation 0.1")

    def total_steps(self, samples: int) -> int:
        """Return the optimiser steps of the run on `samples` training samples."""
        return self.steps or max(1, round(self.epochs * samples / self.batch_size))

    def to_dict(self) -> dict[str, Any]:
        """Return plain types, the wing's name first."""
        fields = dataclasses.asdict(self).items()
        return {"wing": self.wing, **{key: list(value) if isinstance(value, tuple) else value for key, value in fields}}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], *, source: str = "configuration") -> "RunConfig":
        """Build from plain types, and name any field that does not exist."""
        fields = {field.name for field in dataclasses.fields(cls)}
        given = {key: value for key, value in values.items() if key != "wing"}
        for key in given:
            if key not in fields:
                raise UserError(f"{source}: unknown field {key!r}: {nearest(str(key), sorted(fields))}")
        if "data" not in given:
            raise UserError(f"{source}: the field 'data' is missing")
        for key, kind in get_type_hints(cls).items():
            if key in given and not _fits(given[key], kind):
                raise UserError(f"{source}: {key} takes {in_words(kind)}, not {given[key]!r}")
        # YAML writes 2 for 2.0; a field that takes numbers holds floats.
        floats = {key for key, kind in get_type_hints(cls).items() if float in (kind, *get_args(kind))}
        exact: dict[str, Any] = {k: float(v) if k in floats and v is not None else v for k, v in given.items()}
        exact = {k: tuple(v) if isinstance(v, list) else v for k, v in exact.items()}
        return cls(**exact)

    def differences(self, other: "RunConfig", defaults: RatioDefaults | None = None) -> list[str]:
        """Return the fields, apart from those of the machine, in which two configurations differ.

        With the wing's `defaults`, a number that is open means the wing's.
        """
        mine, theirs = used_fields(self, defaults), used_fields(other, defaults)
        return [key for key in mine if key not in MACHINE_FIELDS and mine[key] != theirs.get(key)]


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
        scheme = make_scheme(config.scheme, defaults, ratio=config.ratio, low=config.low, high=config.high)
        scheme = _with_schedule(scheme, config)
        if config.sampling != "independent" or config.per != "batch":
            if not isinstance(scheme.ratio, Uniform):
                raise ValueError(
                    f"sampling and per are choices of the schemes r2mae and mdlm, not of {config.scheme!r}"
                )
            ratio = dataclasses.replace(scheme.ratio, sampling=config.sampling, per=config.per)
            scheme = dataclasses.replace(scheme, ratio=ratio)
    except ValueError as error:
        raise UserError(str(error)) from None
    return scheme


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


def _with_schedule(scheme: Scheme, config: RunConfig) -> Scheme:
    """Put the user's own schedule into a scheme; an option that the scheme does not have is refused."""
    if config.decay is not None:
        match scheme.ratio:
            case LinearDecay():
                scheme = dataclasses.replace(scheme, ratio=dataclasses.replace(scheme.ratio, decay=config.decay))
            case UniformAbove():
                floor = dataclasses.replace(scheme.ratio.floor, decay=config.decay)
                scheme = dataclasses.replace(scheme, ratio=dataclasses.replace(scheme.ratio, floor=floor))
            case _:
                raise ValueError(f"decay is for the schemes dynamic and r2mae-dynamic, not for {config.scheme!r}")
    given = (config.cl_warmup, config.cl_start, config.cl_end, config.cl_iterations)
    if given == (None, None, None, None):
        return scheme
    if scheme.curriculum is None:
        raise ValueError(f"the cl_ options are for curricula, not for {config.scheme!r}")
    curriculum = dataclasses.replace(
        scheme.curriculum,
        warmup_steps=config.cl_warmup,
        start_step=config.cl_start,
        end_step=config.cl_end,
        iterations=config.cl_iterations or scheme.curriculum.iterations,
    )
    return dataclasses.replace(scheme, curriculum=curriculum)


def read_config(path: Path) -> dict[str, Any]:
    """Read a configuration file as plain types (``yaml.safe_load``: nothing is ever constructed from it)."""
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"there is no configuration {path}") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{path} is not a readable YAML file ({reason}): mend it, or name another") from None
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise UserError(f"{path} is not a configuration: expected a mapping of fields to values")
    return values


def in_words(kind: Any) -> str:
    """Say what values a field takes: "a number", "one of adam, adamw" and so on."""
    words = {float: "a number", int: "a whole number", bool: "true or false", str: "text"}
    if kind in words:
        return words[kind]
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(get_args(kind))
    if get_origin(kind) is tuple:
        return f"a list of {in_words(get_args(kind)[0])}"
    return " or ".join(in_words(part) for part in get_args(kind) if part is not type(None))


def _fits(value: Any, kind: Any) -> bool:
    if get_origin(kind) is ClassVar:
        return True
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if get_origin(kind) is tuple:
        return isinstance(value, list | tuple) and all(_fits(entry, get_args(kind)[0]) for entry in value)
    if get_args(kind):
        return any(_fits(value, part) for part in get_args(kind))
    if isinstance(value, bool) and kind is not bool:
        return False
    return isinstance(value, int | float) if kind is float else isinstance(value, kind)


def _at_least(config: RunConfig, name: str, bound: int) -> None:
    value = getattr(config, name)
    if not isinstance(value, int | float) or isinstance(value, bool) or not value >= bound:
        raise UserError(f"{name} must be {bound} or more, not {value!r}")


def _above_zero(config: RunConfig, name: str) -> None:
    value = getattr(config, name)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < float("inf"):
        raise UserError(f"{name} must be a finite number above 0, not {value!r}")
