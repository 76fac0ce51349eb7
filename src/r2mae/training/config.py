"""The configuration of a run: a typed dataclass for the command line, YAML files and run folders. No torch."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from r2mae.errors import UserError, nearest
from r2mae.masking.defaults import SchemeDefaults
from r2mae.masking.schemes import SCHEME_OPTIONS
from r2mae.training.fields import coerce_values, describe_type, require_at_least, require_positive, short_repr
from r2mae.training.scheme import SchemeSpec

if TYPE_CHECKING:
    from r2mae.masking.keys import Key

__all__ = ["MACHINE_FIELDS", "RunConfig", "describe_type"]

# Far above what any run needs, and low enough to prevent overflow, endless runs and too many threads.
_DEFAULT_MAXIMUM = 2**31 - 1
_MAX_SEED = 2**63 - 1
_MAXIMUM = {
    "steps": 10**9,
    "threads": 4096,
    "workers": 1024,
    "devices": 4096,
    "nodes": 4096,
}

# Fields that set where and how a run is computed, not what: a run may resume with other values.
MACHINE_FIELDS = frozenset(
    {
        "device",
        "devices",
        "nodes",
        "sync_batchnorm",
        "strategy",
        "activation_checkpointing",
        "workers",
        "threads",
        "save_every",
        "keep_every",
        "logger",
        "cache",
    }
)

HIDING_FIELDS = frozenset({"scheme", "weighting"})
"""Fields that set how a run hides entries; a run that hides nothing omits them all."""

SCHEME_OWN = "scheme_options"
"""The option that gives the options that only one scheme has, as NAME=NUMBER."""

DEFAULT_SCHEME = SchemeSpec("r2mae")
"""The scheme of a configuration that names none; its options are resolved when the configuration is made."""

_Own = TypeVar("_Own", bound="RunConfig")


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """A pretraining run.

    A domain's own configuration inherits from this one and sets its defaults.

    Parameters
    ----------
    data : str
        A named set (`r2mae data list`) or a path.
    preset : str, optional
        Name of a preset of the domain; options override its values.
    scheme : SchemeSpec
        Masking scheme with all its options. :meth:`make` and :meth:`replace` take its name and options by name.
    weighting : {"mean", "sum", "inverse-ratio"}
        Normaliser of the loss: mean over hidden entries; sum per sample; or sum divided by ratio and length.
    epochs : float
        Passes over the data, if `steps` is not given.
    steps : int, optional
        Optimiser steps; overrides `epochs`.
    batch_size : int
        Samples of one optimiser step, over all micro-batches and processes.
    accumulate : int
        Micro-batches of one optimiser step.
    optimizer : {"adam", "adamw", "sgd", "lars"}
        Optimiser; `sgd` and `lars` (layer-wise rates, for very large batches) have a momentum of 0.9.
    betas : (float, float)
        Decays of Adam's and AdamW's averages of the gradients and of their squares.
    lr : float
        Learning rate.
    base_lr : float, optional
        Learning rate for a batch of 256, instead of `lr`: the rate is this times batch_size / 256.
    schedule : {"constant", "linear", "cosine"}
        Learning rate schedule after the warm-up.
    warmup : float
        Fraction of the run over which the learning rate rises to its peak.
    warmup_epochs : float, optional
        Warm-up as a number of epochs, instead of `warmup`.
    ema : float, optional
        Decay of an exponential moving average of the weights; the average is validated, saved and measured.
    weight_decay : float
        Weight decay (never on learned loss weights; with AdamW not on biases and norms either).
    clip : float, optional
        Maximum gradient norm.
    validation : float
        Fraction of the training data reserved for the validation loss.
    validate_every : int, optional
        Steps between validations; by default one epoch.
    patience : int, optional
        Stop early after this many validations without improvement.
    precision : {"auto", "32", "bf16"}
        Number format of products; "auto" is bf16 on a GPU that supports it, and 32 bits on a CPU. A CPU without
        instructions for bf16 refuses it.
    seed : int
        Seed of weights, data order, ratios and masks.
    device : str
        "auto", "cpu", "cuda" or "cuda:1".
    devices : int
        Processes that train together on each machine, one per device (or per core group on a CPU); the batch is divided
        among them.
    nodes : int
        Machines that train together; torchrun starts the processes (docs/cluster.md).
    sync_batchnorm : bool
        Compute the statistics of batch normalisation over all processes, as a single process would.
    strategy : {"ddp", "fsdp"}
        What each process stores: the complete model, or (`fsdp`) its part of weights, gradients and moments.
    activation_checkpointing : bool
        Store only the inputs of each layer, and recompute the rest for the gradient: less memory, more time.
    workers : int
        Processes that load data; 0 loads in the training process.
    threads : int, optional
        CPU threads of the training process.
    save_every : int
        Steps between checkpoints.
    keep_every : int, optional
        Steps between permanent checkpoints, checkpoints/step-N.ckpt.
    keep : {"last", "best"}
        Weights of the finished model: the last, or those with the lowest validation loss.
    compile : bool
        Compile the model with torch.compile (results change in the last digits).
    logger : {"none", "tensorboard", "wandb", "mlflow"}
        Experiment tracker that also receives the metrics.
    """

    domain: ClassVar[str] = ""
    ratios: ClassVar[SchemeDefaults] = SchemeDefaults(0.5, 0.25, 0.75, not_in_paper=True)
    """The domain's defaults for schemes; :attr:`scheme_defaults` may differ for a model."""
    omitted_fields: ClassVar[frozenset[str]] = frozenset()
    """Fields without a meaning in such runs, such as :data:`HIDING_FIELDS`: they are refused, and not written."""
    common_fields: ClassVar[tuple[str, ...]] = ()
    """Fields of the domain that the short help shows, next to the usual ones of every domain."""
    measurement_fields: ClassVar[tuple[str, ...]] = ()
    """Fields that set how a finished model is measured and used: a run may be measured again with other values."""
    old_measurement_settings: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """Values of these fields in results of older versions, which did not record them."""
    alternatives: ClassVar[Mapping[str, str]] = MappingProxyType({"lr": "base_lr", "warmup": "warmup_epochs"})
    """Pairs of fields that exclude each other: a given one replaces the preset's other one."""

    data: str
    preset: str | None = None
    scheme: SchemeSpec = DEFAULT_SCHEME
    weighting: Literal["mean", "sum", "inverse-ratio"] = "mean"
    epochs: float = 15
    steps: int | None = None
    batch_size: int = 128
    accumulate: int = 1
    optimizer: Literal["adam", "adamw", "sgd", "lars"] = "adam"
    betas: tuple[float, ...] = (0.9, 0.999)
    lr: float = 1e-3
    base_lr: float | None = None
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    warmup: float = 0.0
    warmup_epochs: float | None = None
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
    nodes: int = 1
    sync_batchnorm: bool = False
    strategy: Literal["ddp", "fsdp"] = "ddp"
    activation_checkpointing: bool = False
    workers: int = 0
    threads: int | None = None
    save_every: int = 500
    keep_every: int | None = None
    keep: Literal["last", "best"] = "last"
    compile: bool = False
    logger: Literal["none", "tensorboard", "wandb", "mlflow"] = "none"

    def __post_init__(self) -> None:
        if not isinstance(self.scheme, SchemeSpec):
            raise UserError(
                f"scheme takes a SchemeSpec, not {self.scheme!r}: pass a name and options to {type(self).__name__}.make"
            )
        if self.hides and not self.scheme.options and not self.scheme.given:
            spec = SchemeSpec.resolve(self.scheme.name, {}, self.scheme_defaults)
            object.__setattr__(self, "scheme", spec)
        self._check_bounds()
        for name in ("batch_size", "accumulate", "save_every", "devices", "nodes"):
            require_at_least(self, name, 1)
        for name in ("steps", "validate_every", "patience", "threads", "keep_every"):
            if getattr(self, name) is not None:
                require_at_least(self, name, 1)
        for name in ("workers", "seed", "weight_decay"):
            require_at_least(self, name, 0)
        for name in ("epochs", "lr"):
            require_positive(self, name)
        for name in ("clip", "base_lr"):
            if getattr(self, name) is not None:
                require_positive(self, name)
        self._check_alternatives()
        self._check_combinations()
        self._check_processes()

    def _check_bounds(self) -> None:
        """Refuse impossible numbers in any field, and text that cannot be part of a path."""
        for field in dataclasses.fields(self):
            name, value = field.name, getattr(self, field.name)
            if isinstance(value, str) and "\0" in value:
                raise UserError(f"{name} contains a NUL character, which no path or name may: {value!r}")
            most = _MAX_SEED if name == "seed" else _MAXIMUM.get(name, _DEFAULT_MAXIMUM)
            if isinstance(value, int) and abs(value) > most:
                raise UserError(f"{name} takes numbers up to {most:,}, not {short_repr(value)}")

    def _check_alternatives(self) -> None:
        """Refuse fields that exclude each other, and betas that are invalid or do not apply."""
        if self.warmup_epochs is not None:
            require_at_least(self, "warmup_epochs", 0)
        if len(self.betas) != 2 or not all(isinstance(beta, int | float) and 0 <= beta < 1 for beta in self.betas):
            raise UserError(f"betas takes two numbers of 0 or more and below 1, such as 0.9 0.95, not {self.betas}")
        if self.optimizer in ("sgd", "lars") and self.betas != self.__dataclass_fields__["betas"].default:
            raise UserError(f"betas apply to adam and adamw, and the optimizer is {self.optimizer}: omit them")
        for name, other in self.alternatives.items():
            default = self.__dataclass_fields__[name].default
            if getattr(self, other) is not None and getattr(self, name) != default:
                raise UserError(f"{name} and {other} exclude each other: give one of them")

    def _check_combinations(self) -> None:
        from r2mae.masking.ratios import is_per_sample

        for field in dataclasses.fields(self):
            if field.name in self.omitted_fields and getattr(self, field.name) != field.default:
                raise UserError(f"{field.name} has no meaning in a run of {self.domain}: omit it")
        if self.batch_size % self.accumulate:
            raise UserError(f"batch_size {self.batch_size} does not split into {self.accumulate} equal micro-batches")
        self._check_memory_options()
        if not 0 <= self.warmup < 1:
            raise UserError(f"warmup must be a fraction in [0, 1), not {self.warmup}")
        if self.ema is not None and not 0 < self.ema < 1:
            raise UserError(f"ema must be a decay between 0 and 1, such as 0.999, not {self.ema}")
        if not 0 <= self.validation < 1:
            raise UserError(f"validation must be a fraction in [0, 1), not {self.validation}")
        if self.keep == "best" and self.validation == 0:
            raise UserError("keep 'best' needs a validation loss: add --validation 0.1")
        if self.patience is not None and self.validation == 0:
            raise UserError("patience needs a validation loss: add --validation 0.1")
        if self.weighting == "inverse-ratio" and self.hides and is_per_sample(self.scheme.make().ratio):
            raise UserError(
                "weighting 'inverse-ratio' needs one ratio for the mini-batch, and every sample has its own under the "
                f"scheme {self.scheme.name!r} with these options: leave weighting at 'mean'"
            )
        if self.validate_every is not None and self.validation == 0:
            raise UserError("validate_every needs validation data: add --validation 0.1")

    def _check_processes(self) -> None:
        if self.batch_size % (self.accumulate * self.ranks):
            machines = f" on each of {self.nodes} machines" if self.nodes > 1 else ""
            raise UserError(
                f"batch_size {self.batch_size} does not split among {self.devices} devices{machines} with "
                f"{self.accumulate} micro-batches each"
            )
        if self.sync_batchnorm and self.ranks == 1:
            raise UserError("sync_batchnorm is for several processes, and this run has one: omit it")
        if self.sync_batchnorm and self.compile:
            raise UserError("sync_batchnorm and compile do not go together: omit one")

    def _check_memory_options(self) -> None:
        if self.strategy == "fsdp" and self.ranks == 1:
            raise UserError("strategy 'fsdp' is for several processes, and this run has one: omit it")
        if self.compile and self.strategy == "fsdp":
            raise UserError("strategy 'fsdp' and compile do not go together: omit one")
        if self.compile and self.activation_checkpointing:
            raise UserError("activation_checkpointing and compile do not go together: omit one")

    @property
    def key(self) -> "Key":
        """The root of all random numbers of the run."""
        from r2mae.masking.keys import Key

        return Key.root(self.seed)

    @property
    def ranks(self) -> int:
        """Processes that train together, over all machines."""
        return self.devices * self.nodes

    @property
    def scheme_defaults(self) -> SchemeDefaults:
        """The domain's defaults for the schemes of such a run."""
        return self.ratios

    @property
    def hides(self) -> bool:
        """Whether the run hides entries, and so has a masking scheme."""
        return "scheme" not in self.omitted_fields

    @property
    def peak_lr(self) -> float:
        """The learning rate after the warm-up."""
        return self.lr if self.base_lr is None else self.base_lr * self.batch_size / 256

    def warmup_of(self, total: int, samples: int) -> float:
        """Return the fraction of a run of `total` steps on `samples` training samples over which the rate rises.

        Raises
        ------
        UserError
            If the warm-up is as long as the run.
        """
        if self.warmup_epochs is None:
            return self.warmup
        fraction = self.warmup_epochs * samples / self.batch_size / total
        if fraction >= 1:
            epochs = total * self.batch_size / samples
            raise UserError(f"warmup_epochs {self.warmup_epochs:g} is no part of a run of {epochs:.3g} epochs")
        return fraction

    def steps_between_validations(self, samples: int) -> int:
        """Return the steps from one validation to the next: by default those of an epoch of `samples` samples."""
        return self.validate_every or max(1, round(samples / self.batch_size))

    @property
    def re_estimates_statistics(self) -> bool:
        """Whether the model is used with batch statistics re-estimated on unmasked inputs."""
        return False

    @property
    def idle_fields(self) -> frozenset[str]:
        """Fields without an effect under the scheme of this run."""
        return frozenset()

    def check_given(self, given: Mapping[str, Any]) -> None:
        """Refuse options of a command line that have no effect.

        `given` maps fields to values: the typed options, and the scheme of a single run. It excludes values of a set, a
        preset or a file, which may be meant for other runs.
        """

    def with_measurement(self: _Own, **options: Any) -> _Own:
        """Return the configuration with other values in some :attr:`measurement_fields`."""
        return replace(self, **options)

    def measurement_settings(self) -> dict[str, Any]:
        """Return the :attr:`measurement_fields` that have an effect, by name; they are stored with every result."""
        return {name: getattr(self, name) for name in self.measurement_fields}

    def measured_in_words(self) -> str:
        """Return how scores are measured, as text for tables; empty if there is no choice."""
        return ""

    def total_steps(self, samples: int) -> int:
        """Return the optimiser steps of the run on `samples` training samples."""
        wanted = self.steps or max(1.0, self.epochs * samples / self.batch_size)
        if wanted > _MAXIMUM["steps"]:
            raise UserError(
                f"{self.epochs:g} epochs are {wanted:,.0f} steps, above the maximum of {_MAXIMUM['steps']:,}: use fewer"
            )
        return round(wanted)

    @classmethod
    def make(cls: type[_Own], **values: Any) -> _Own:
        """Return a configuration, with the scheme and its options by name: ``make(data=…, scheme="r2mae", low=0.5)``.

        Options that are None keep their defaults.

        Raises
        ------
        UserError
            For values that are refused.
        """
        fields, name, options = cls._split(values)
        if "data" not in fields and cls.__dataclass_fields__["data"].default is dataclasses.MISSING:
            raise UserError("the field 'data' is missing")
        config = cls(**fields)
        if name is None and not options:
            return config
        before = config.scheme.given_options if "scheme" in fields else {}
        return config._with_scheme(config.scheme.name if name is None else name, {**before, **options})

    def replace(self: _Own, **values: Any) -> _Own:
        """Return the configuration with other values; options of the scheme are given by name, as in :meth:`make`.

        Another scheme has none of the options given before. If the domain's defaults differ for the new values, options
        that were not given follow them.

        Raises
        ------
        UserError
            For values that are refused.
        """
        fields, name, options = self._split(values)
        before = fields.pop("scheme", self.scheme)
        if name is not None and name != before.name:
            before = SchemeSpec(name)
        if not self.hides and not (options or name):
            return replace(self, **fields)
        # The scheme of before may not go with the other values.
        changed = replace(self, **fields, scheme=DEFAULT_SCHEME)
        if before.options and not options and changed.scheme_defaults == self.scheme_defaults:
            return replace(changed, scheme=before)
        return changed._with_scheme(before.name, {**before.given_options, **options})

    def _with_scheme(self: _Own, name: str, given: Mapping[str, Any]) -> _Own:
        if not self.hides:
            named = next(iter(given), "scheme")
            raise UserError(f"{named} has no meaning in a run of {self.domain}, which hides nothing: omit it")
        return replace(self, scheme=SchemeSpec.resolve(name, given, self.scheme_defaults))

    @classmethod
    def _split(cls, values: Mapping[str, Any]) -> tuple[dict[str, Any], str | None, dict[str, Any]]:
        """Return the fields among these values, the scheme's name, and its options."""
        known = {field.name for field in dataclasses.fields(cls)}
        for key in values:
            if key not in known and key not in SCHEME_OPTIONS and key != SCHEME_OWN:
                raise UserError(f"unknown field {key!r}: {nearest(key, sorted({*known, *SCHEME_OPTIONS}))}")
        fields = {key: value for key, value in values.items() if key in known}
        options = {key: value for key, value in values.items() if key in SCHEME_OPTIONS and value is not None}
        name = fields.get("scheme")
        if not isinstance(name, str | SchemeSpec | None):
            raise UserError(f"scheme takes a name, not {short_repr(name)}")
        if not isinstance(name, SchemeSpec):
            fields.pop("scheme", None)
        return fields, name if isinstance(name, str) else None, {**options, **own_options(values.get(SCHEME_OWN))}

    def to_dict(self) -> dict[str, Any]:
        """Return plain types, the domain's name first."""
        fields = {key: value for key, value in dataclasses.asdict(self).items() if key not in self.omitted_fields}
        plain = {key: list(value) if isinstance(value, tuple) else value for key, value in fields.items()}
        if self.hides:
            plain["scheme"] = self.scheme.to_dict()
        return {"domain": self.domain, **plain}

    @classmethod
    def from_dict(cls: type[_Own], values: Mapping[str, Any], *, source: str = "configuration") -> _Own:
        """Build from plain types; an unknown field raises a UserError.

        The scheme is what :meth:`to_dict` writes, or a name, with options as fields of their own.
        """
        fields = {field.name for field in dataclasses.fields(cls)} - cls.omitted_fields
        allowed = fields | ({*SCHEME_OPTIONS, SCHEME_OWN} if "scheme" in fields else set())
        given = {key: value for key, value in values.items() if key != "domain"}
        for key in given:
            if key not in allowed:
                raise UserError(f"{source}: unknown field {key!r}: {nearest(str(key), sorted(allowed))}")
        if "data" not in given:
            raise UserError(f"{source}: the field 'data' is missing")
        scheme = given.pop("scheme", None) if "scheme" in fields else None
        options = {key: given.pop(key) for key in [*given] if key not in fields}
        plain = coerce_values(cls, given, f"{source}: ")
        if isinstance(scheme, Mapping):
            if options:
                raise UserError(
                    f"{source}: {next(iter(options))} is outside of the scheme, whose options are all inside"
                )
            return cls(**plain, scheme=SchemeSpec.from_dict(scheme, source))
        if not isinstance(scheme, str | None):
            raise UserError(f"{source}: scheme takes a name, not {short_repr(scheme)}")
        try:
            return cls.make(**plain, scheme=scheme, **options)
        except UserError as error:
            raise UserError(f"{source}: {error}") from None

    def differences(self, other: "RunConfig") -> dict[str, tuple[Any, Any]]:
        """Return what differs from another configuration: its own and the other's value, by field or scheme option.

        Idle, machine and measurement fields are not compared, nor which options of the scheme were given.
        """
        own, others = _flat(self.to_dict()), _flat(other.to_dict())
        free = MACHINE_FIELDS.union(self.measurement_fields, self.idle_fields)
        names = [*own, *(name for name in others if name not in own)]
        pairs = {name: (own.get(name), others.get(name)) for name in names if name not in free}
        timed = SCHEME_OPTIONS if self.scheme != other.scheme else {}  # 1 is a step, and 1.0 the end of the run
        return {
            name: pair
            for name, pair in pairs.items()
            if pair[0] != pair[1] or (name in timed and type(pair[0]) is not type(pair[1]))
        }


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return plain values with the scheme's name and options as fields of their own."""
    scheme = dict(values.get("scheme") or {})
    scheme.pop("given", None)
    flat = {name: value for name, value in values.items() if name != "scheme"}
    return {**({"scheme": scheme.pop("name")} if scheme else {}), **scheme, **flat}


def own_options(given: Any) -> dict[str, float]:
    """Return the options that only one scheme has, given as NAME=NUMBER, or by name.

    Raises
    ------
    UserError
        For another form, and for common options.
    """
    if isinstance(given, Mapping):
        given = [f"{name}={value}" for name, value in given.items()]
    words = [given] if isinstance(given, str) else given or ()
    if not isinstance(words, list | tuple):
        raise UserError(f"{SCHEME_OWN} takes NAME=NUMBER, such as power=3, not {short_repr(given)}")
    found: dict[str, float] = {}
    for word in words:
        name, _, value = str(word).partition("=")
        if name in SCHEME_OPTIONS:
            raise UserError(f"{name} is no further option of a scheme: give {word} as --{name.replace('_', '-')}")
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not name or name in found or not math.isfinite(number):
            raise UserError(f"{SCHEME_OWN} takes NAME=NUMBER, each name once, such as power=3, not {short_repr(word)}")
        found[name] = number
    return found
