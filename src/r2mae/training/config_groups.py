"""The groups of a run's configuration that all domains share: data, task, optimiser, machine, evaluation. No torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from r2mae.errors import UserError
from r2mae.fields import NonNegative, PartialFraction, Positive, Range, Size, check_fields

_MAX_STEPS = 10**9
_Count = Annotated[int, Range(1, 4096)]  # of what a machine has


@dataclass(frozen=True, kw_only=True)
class Group:
    """A group of fields of a configuration. A domain's own group inherits from one of this module.

    A field is named after its group and itself (`optimizer.lr`) or, as no two groups have a field of one name, by
    itself (`lr`).
    """

    prefix: ClassVar[str] = ""
    """What begins the short names of the group's fields."""
    short_names: ClassVar[Mapping[str, str]] = {}
    """The short names of fields that have others: `data` for `data.source`."""

    def __post_init__(self) -> None:
        check_fields(self, self.short_name)

    @classmethod
    def short_name(cls, field: str) -> str:
        """Return the name of a field without its group."""
        return cls.short_names.get(field, cls.prefix + field)

    def to_dict(self) -> dict[str, Any]:
        """Return plain types, by field."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}


@dataclass(frozen=True, kw_only=True)
class DataConfig(Group):
    """What a run learns from.

    Parameters
    ----------
    source : str
        A named set (`r2mae data list`) or a path.
    validation : float
        Fraction of the training data reserved for the validation loss.
    """

    short_names: ClassVar[Mapping[str, str]] = {"source": "data"}

    source: str = ""
    validation: PartialFraction = 0.0


@dataclass(frozen=True, kw_only=True)
class TaskConfig(Group):
    """How entries are hidden, apart from the scheme, and how their losses are averaged.

    Parameters
    ----------
    weighting : {"mean", "sum", "inverse-ratio"}
        Normaliser of the loss: mean over hidden entries; sum per sample; or sum divided by ratio and length.
    """

    weighting: Literal["mean", "sum", "inverse-ratio"] = "mean"


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig(Group):
    """How the weights are learned: steps and rates, and when to stop.

    Parameters
    ----------
    name : {"adam", "adamw", "sgd"}
        Optimiser; `sgd` has a momentum of 0.9.
    epochs : float
        Passes over the data, if `steps` is not given.
    steps : int, optional
        Optimiser steps; overrides `epochs`.
    batch_size : int
        Samples of one optimiser step, over all micro-batches and processes.
    accumulate : int
        Micro-batches of one optimiser step.
    lr : float
        Learning rate.
    base_lr : float, optional
        Learning rate for a batch of 256, instead of `lr`: the rate is this times batch_size / 256.
    betas : (float, float)
        Decays of Adam's and AdamW's averages of the gradients and of their squares.
    schedule : {"constant", "linear", "cosine"}
        Learning rate schedule after the warm-up.
    warmup : float
        Fraction of the run over which the learning rate rises to its peak.
    warmup_epochs : float, optional
        Warm-up as a number of epochs, instead of `warmup`.
    weight_decay : float
        Weight decay (never on learned loss weights; with AdamW not on biases and norms either).
    clip : float, optional
        Maximum gradient norm.
    ema : float, optional
        Decay of an exponential moving average of the weights; the average is validated, saved and measured.
    validate_every : int, optional
        Steps between validations; by default one epoch.
    patience : int, optional
        Stop early after this many validations without improvement.
    keep : {"last", "best"}
        Weights of the finished model: the last, or those with the lowest validation loss.
    precision : {"auto", "32", "bf16"}
        Number format of products; "auto" is bf16 on a GPU that supports it, and 32 bits on a CPU. A CPU without
        instructions for bf16 refuses it.
    compile : bool
        Compile the model with torch.compile (results change in the last digits).
    """

    short_names: ClassVar[Mapping[str, str]] = {"name": "optimizer"}

    name: Literal["adam", "adamw", "sgd"] = "adam"
    epochs: Positive = 15
    steps: Annotated[int, Range(1, _MAX_STEPS)] | None = None
    batch_size: Size = 128
    accumulate: Size = 1
    lr: Positive = 1e-3
    base_lr: Positive | None = None
    betas: tuple[PartialFraction, ...] = (0.9, 0.999)
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    warmup: PartialFraction = 0.0
    warmup_epochs: NonNegative | None = None
    weight_decay: NonNegative = 0.0
    clip: Positive | None = None
    ema: Annotated[float, Range(above=0, below=1)] | None = None
    validate_every: Size | None = None
    patience: Size | None = None
    keep: Literal["last", "best"] = "last"
    precision: Literal["auto", "32", "bf16"] = "auto"
    compile: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.betas) != 2:
            raise UserError(f"betas takes two numbers, such as 0.9 0.95, not {self.betas}")
        if self.name == "sgd" and self.betas != OptimizerConfig.betas:
            raise UserError(f"betas apply to adam and adamw, and the optimizer is {self.name}: omit them")
        if self.batch_size % self.accumulate:
            raise UserError(f"batch_size {self.batch_size} does not split into {self.accumulate} equal micro-batches")

    @property
    def peak_lr(self) -> float:
        """The learning rate after the warm-up."""
        return self.lr if self.base_lr is None else self.base_lr * self.batch_size / 256

    def warmup_of(self, total: int, samples: int) -> float:
        """Return the fraction of a run of `total` steps on `samples` training samples over which the rate rises."""
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

    def total_steps(self, samples: int) -> int:
        """Return the optimiser steps of the run on `samples` training samples."""
        wanted = self.steps or max(1.0, self.epochs * samples / self.batch_size)
        if wanted > _MAX_STEPS:
            raise UserError(
                f"{self.epochs:g} epochs are {wanted:,.0f} steps, above the maximum of {_MAX_STEPS:,}: use fewer"
            )
        return round(wanted)


@dataclass(frozen=True, kw_only=True)
class MachineConfig(Group):
    """Where and how a run is computed, not what: a run may resume with other values.

    Parameters
    ----------
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
    workers : int
        Processes that load data; 0 loads in the training process.
    threads : int, optional
        CPU threads of the training process.
    save_every : int
        Steps between checkpoints.
    keep_every : int, optional
        Steps between permanent checkpoints, checkpoints/step-N.ckpt.
    logger : {"none", "tensorboard", "wandb"}
        Experiment tracker that also receives the metrics.
    """

    device: str = "auto"
    devices: _Count = 1
    nodes: _Count = 1
    sync_batchnorm: bool = False
    strategy: Literal["ddp", "fsdp"] = "ddp"
    workers: Annotated[int, Range(0, 1024)] = 0
    threads: Annotated[int, Range(1, 1024)] | None = None
    save_every: Size = 500
    keep_every: Size | None = None
    logger: Literal["none", "tensorboard", "wandb"] = "none"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sync_batchnorm and self.ranks == 1:
            raise UserError("sync_batchnorm is for several processes, and this run has one: omit it")
        if self.strategy == "fsdp" and self.ranks == 1:
            raise UserError("strategy 'fsdp' is for several processes, and this run has one: omit it")

    @property
    def ranks(self) -> int:
        """Processes that train together, over all machines."""
        return self.devices * self.nodes


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig(Group):
    """How a finished model is measured and used: a run may be measured again with other values."""

    @property
    def idle(self) -> tuple[str, ...]:
        """Fields without an effect next to the others."""
        return ()
