"""The configuration of a run: groups of typed fields, for the command line, YAML files and run folders. No torch.

The values of several sources are merged before anything is checked. A value has one flat name, however it is written:
`lr` for the field `optimizer.lr`, `model.hidden` for a setting of the model, `low` for a common option of a scheme, and
`scheme.power` for one that only one scheme has.
"""

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, TypeVar

from r2mae.errors import UserError, nearest, unknown
from r2mae.evaluation.bn_statistics import NOTES
from r2mae.fields import (
    FieldError,
    NonNegative,
    PartialFraction,
    Positive,
    Range,
    Size,
    check_fields,
    plain,
    read_fields,
    short_repr,
)
from r2mae.masking.defaults import SchemeDefaults
from r2mae.masking.schemes import SCHEME_OPTIONS
from r2mae.training.models import PREFIX, Group, ModelSettings
from r2mae.training.scheme import SchemeSpec

if TYPE_CHECKING:
    from r2mae.masking.keys import Key

_MAX_STEPS = 10**9
_Count = Annotated[int, Range(1, 4096)]  # of what a machine has

SCHEME_PREFIX = "scheme."
"""What begins the name of an option that only one scheme has."""

_Own = TypeVar("_Own", bound="RunConfig")
_Made = TypeVar("_Made")


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
        auto, cpu, cuda, cuda:1 or mps. "auto" is a CUDA device if there is one, and else the CPU; "mps" is Apple's GPU.
    devices : int
        Processes that train together, one per device of each machine (or per core group on a CPU); the batch is divided
        among them.
    nodes : int
        Machines that train together; torchrun starts the processes (docs/cluster.md).
    sync_batchnorm : bool
        Compute the statistics of batch normalisation over all processes, as a single process would.
    strategy : {"ddp", "fsdp"}
        What each process stores: the complete model, or (`fsdp`) its part of weights, gradients and moments.
    workers : int
        Processes that load data; 0 loads in the training process. A script needs `if __name__ == "__main__":`.
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


class Layer(NamedTuple):
    """What one source says of a configuration.

    `values` are in any form: by short names, by names such as ``optimizer.lr``, or as mappings of a group's fields.
    `source` is its name in errors, such as "runs.yaml"; empty for the command line and arguments, which need no name.
    """

    values: Mapping[str, Any]
    source: str = ""


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """A pretraining run. Impossible values raise a :class:`UserError`, here and in all methods that make one.

    A domain's own configuration inherits from this one, with groups and defaults of its own. :meth:`make` builds one
    from the names that the command line has, such as ``lr`` for ``optimizer.lr``; :meth:`replace` changes one.

    Parameters
    ----------
    preset : str, optional
        Name of a preset of the domain; options override its values.
    seed : int
        Seed of weights, data order, ratios and masks.
    data : DataConfig
        What the run learns from.
    model : ModelSettings
        The model and its settings.
    task : TaskConfig
        How entries are hidden and losses averaged.
    scheme : SchemeSpec
        Masking scheme with all its options.
    optimizer : OptimizerConfig
        Steps and rates.
    machine : MachineConfig
        Where the run is computed. A run may resume with other values.
    evaluation : EvaluationConfig
        How the finished model is measured. A run may be measured again with other values.
    """

    domain: ClassVar[str] = ""
    ratios: ClassVar[SchemeDefaults] = SchemeDefaults(0.5, 0.25, 0.75, not_in_paper=True)
    """The domain's defaults for schemes; :attr:`scheme_defaults` may differ for a model."""
    models: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """The domain's registry: a module for the name of each model. Without one, `model` is a group like the others."""
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = MappingProxyType({})
    """Values of fields by the name of a preset; what is given beside it overrides them."""
    preset_sizes: ClassVar[Mapping[str, float]] = MappingProxyType({})
    """Millions of parameters of each preset's model on usual data, for the help."""
    set_defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = MappingProxyType({})
    """Defaults of fields that differ for a public set, by the set's name."""
    hides: ClassVar[bool] = True
    """Whether such runs hide entries, and so have a masking scheme."""
    omitted: ClassVar[frozenset[str]] = frozenset()
    """Groups and fields without a meaning in such runs: they are refused, and not written."""
    common_fields: ClassVar[tuple[str, ...]] = ()
    """Fields of the domain that the short help shows, next to the usual ones of every domain."""
    measured_data: ClassVar[tuple[str, ...]] = ()
    """Fields of `data` that a finished run may be measured with again, such as columns of labels."""
    decides_scheme: ClassVar[frozenset[str]] = frozenset()
    """Fields that only choose defaults of the scheme, whose options are in the configuration anyway."""

    preset: str | None = None
    seed: Annotated[int, Range(0, 2**63 - 1)] = 0
    data: DataConfig = DataConfig()
    model: ModelSettings = ModelSettings()
    task: TaskConfig = TaskConfig()
    scheme: SchemeSpec = SchemeSpec("r2mae")  # its options are resolved when the configuration is made
    optimizer: OptimizerConfig = OptimizerConfig()
    machine: MachineConfig = MachineConfig()
    evaluation: EvaluationConfig = EvaluationConfig()

    def __post_init__(self) -> None:
        check_fields(self)
        if getattr(self, "init", None) == "":  # as a path it would be the current folder
            raise UserError("init is empty: name what the run starts from, or omit it")
        if self.hides and not self.scheme.options:
            spec = SchemeSpec.resolve(self.scheme.name, {}, self.scheme_defaults)
            object.__setattr__(self, "scheme", spec)
        if self.optimizer.base_lr is not None and self.optimizer.lr != self.default_of("lr"):
            raise UserError("lr and base_lr exclude each other: give one of them")
        self._check_validation()
        self._check_processes()
        for name in self.model.ignores:
            if self[name] != self.default_of(name):
                raise UserError(f"{name} has no effect on the model {self.model.name!r} with these settings: omit it")

    def _check_validation(self) -> None:
        """Refuse what needs a validation loss without one, and weights that need one ratio for the mini-batch."""
        for name, off in (("patience", None), ("validate_every", None), ("keep", "last")):
            value = getattr(self.optimizer, name)
            if value != off and self.data.validation == 0:
                raise UserError(f"{name} {value} needs a validation loss: add --validation 0.1")
        if self.task.weighting == "inverse-ratio" and self.hides and self.scheme.make().ratio.per_sample:
            raise UserError(
                "weighting 'inverse-ratio' needs one ratio for the mini-batch, and every sample has its own under the "
                f"scheme {self.scheme.name!r} with these options: leave weighting at 'mean'"
            )

    def _check_processes(self) -> None:
        optimizer, machine = self.optimizer, self.machine
        if optimizer.batch_size % (optimizer.accumulate * machine.ranks):
            machines = f" on each of {machine.nodes} machines" if machine.nodes > 1 else ""
            raise UserError(
                f"batch_size {optimizer.batch_size} does not split among {machine.devices} devices{machines} with "
                f"{optimizer.accumulate} micro-batches each"
            )
        if self.has_batch_norm and self.micro_batch < 2:
            raise UserError(f"batch normalisation needs two {self.domain} in a micro-batch: raise batch_size")
        if optimizer.compile and (machine.sync_batchnorm or machine.strategy == "fsdp"):
            name = "sync_batchnorm" if machine.sync_batchnorm else "strategy 'fsdp'"
            raise UserError(f"{name} and compile do not go together: omit one")

    def __getitem__(self, name: str) -> Any:
        """Return a field or an option of the scheme by its short name, such as `lr` or `low`."""
        known = fields_of(type(self))
        if name in known:
            group, field = known[name]
            return getattr(getattr(self, group) if group else self, field)
        if name in type(self.model).own_fields():
            return getattr(self.model, name)
        return self.flat()[name]

    @property
    def key(self) -> "Key":
        """The root of all random numbers of the run."""
        from r2mae.masking.keys import Key

        return Key.root(self.seed)

    @property
    def scheme_defaults(self) -> SchemeDefaults:
        """The defaults for the schemes of such a run: those of its model, or of the domain."""
        return self.model.ratios or self.ratios

    @property
    def micro_batch(self) -> int:
        """Samples of one micro-batch of one process."""
        return self.optimizer.batch_size // (self.optimizer.accumulate * self.machine.ranks)

    @property
    def has_batch_norm(self) -> bool:
        """Whether the model may have batch normalisation: then `evaluation.bn_statistics` has an effect."""
        return "bn_statistics" in self.measured_fields

    @property
    def re_estimates_statistics(self) -> bool:
        """Whether the model is used with batch statistics re-estimated on unmasked inputs."""
        return self.has_batch_norm and self["bn_statistics"] != "no"

    @property
    def idle_fields(self) -> frozenset[str]:
        """Fields whose effect other fields say, so that runs are not compared by them."""
        return self.decides_scheme

    def check_given(self, given: Mapping[str, Any]) -> None:
        """Refuse options of a command line that have no effect.

        `given` maps fields to values: the typed options, and the scheme of a single run. It excludes values of a set, a
        preset or a file, which may be meant for other runs.
        """
        if given.get("epochs") is not None and self.optimizer.steps is not None:
            steps = self.optimizer.steps
            raise UserError(f"epochs has no effect, as steps is {steps:,}: omit it, or add --steps null")

    def with_measurement(self: _Own, **options: Any) -> _Own:
        """Return the configuration with other values of the group `evaluation` and of :attr:`measured_data`."""
        return self.replace(**options)

    @property
    def measured_fields(self) -> tuple[str, ...]:
        """The fields of `evaluation` that the model has."""
        names = (field.name for field in dataclasses.fields(self.evaluation))
        return tuple(name for name in names if name not in self.model.ignores)

    def measurement_settings(self) -> dict[str, Any]:
        """Return the fields of `evaluation` that have an effect, by name; they are stored with every result."""
        return {
            name: getattr(self.evaluation, name) for name in self.measured_fields if name not in self.evaluation.idle
        }

    def measured_in_words(self) -> str:
        """Return how scores are measured, as text for tables: with which batch statistics, if the model has any."""
        return NOTES[self["bn_statistics"]] if self.has_batch_norm else ""

    @classmethod
    def default_of(cls, name: str) -> Any:
        """Return the domain's default of a field, by its short name."""
        group, field = fields_of(cls)[name]
        return getattr(getattr(cls, group) if group else cls, field)

    @classmethod
    def settings_of(cls, model: str) -> type[ModelSettings]:
        """Return the settings class of a model, whose module is imported; an unknown one is refused."""
        if model == cls.model.name:
            return type(cls.model)
        if model not in cls.models:
            raise unknown("model", model, cls.models)
        found: type[ModelSettings] = import_module(cls.models[model]).Settings
        return found

    @classmethod
    def make(cls: type[_Own], **values: Any) -> _Own:
        """Return a configuration with these values; for others those of its preset, its named set, or its domain.

        Parameters
        ----------
        **values
            Fields by their short names, such as ``data="digits", lr=0.01``; options of the scheme by name, such as
            ``scheme="r2mae", low=0.5``, where None keeps the default; settings of the model as ``hidden`` or
            ``model.hidden``; or groups as mappings, as in config.yaml.
        """
        return cls._of_source(values)

    @classmethod
    def _of_source(cls: type[_Own], values: Mapping[str, Any]) -> _Own:
        below = [] if _is_saved(values) else cls.layers_of_set(first_of(values)["data"])
        return cls.of_layers([*below, *cls.layers_of(values)])

    @classmethod
    def layers_of_set(cls, data: str | None) -> list[Layer]:
        """Return the layer with the defaults of a named set, if it has any."""
        values = cls.set_defaults.get(data or "")
        return [] if values is None else [Layer(values, f"the set {data}")]

    @classmethod
    def layers_of(cls, values: Mapping[str, Any], source: str = "") -> list[Layer]:
        """Return the layers of one source: the preset that it names, if any, and its own values.

        A saved configuration, as :meth:`to_dict` returns it, has all values, so its preset is only a name.

        Raises
        ------
        UserError
            For an unknown preset, or one of another model than the one that the source names.
        """
        own = Layer(values, source)
        if _is_saved(values) or "preset" in cls.omitted:
            return [own]
        with naming(source):
            first = first_of(values)
            preset, model = first["preset"], first["model"]
            return [own] if preset is None else [Layer(cls._preset_values(preset, model), source), own]

    @classmethod
    def _preset_values(cls, preset: str, model: str | None) -> dict[str, Any]:
        if not cls.presets:
            raise UserError(f"the domain {cls.domain!r} has no presets: omit preset")
        if model is not None:
            cls.settings_of(model)  # which refuses an unknown one
        fitting = [name for name in cls.presets if model in (None, cls.model_of(name) or model)]
        if preset not in cls.presets:
            parts = [name for name in fitting if preset in name]
            hint = (
                f"did you mean {parts[0]!r}?" if len(parts) == 1 else nearest(preset, parts or fitting or cls.presets)
            )
            raise UserError(f"unknown preset {preset!r}: {hint}")
        if preset not in fitting:
            hint = nearest(preset, fitting) if fitting else "omit preset"
            raise UserError(f"the model {model!r} has no preset {preset!r}: {hint}")
        own = cls.model_of(preset)
        return {**({} if own is None else {"model": own}), **cls.presets[preset], "preset": preset}

    @classmethod
    def model_of(cls, preset: str) -> str | None:
        """Return the model that a preset is for, or None if it fits every one."""
        values: Mapping[str, Any] = cls.presets.get(preset, {})
        settings = {name.removeprefix(PREFIX) for name in values} & {*cls.model.own_fields()}
        named: str | None = values.get("model", cls.model.name if settings else None)
        return named

    def replace(self: _Own, **values: Any) -> _Own:
        """Return the configuration with other values, given as in :meth:`make`.

        Another scheme has none of the options given before, and another model none of the settings. If the defaults of
        the schemes differ for the new values, options that were not given follow them. A preset sets its values;
        without one, the name of the present one remains unless it is for another model. Another data set brings no
        defaults, as those of a named set are below all values of the configuration.
        """
        scheme = values.get("scheme")
        named = scheme.get("name") if isinstance(scheme, Mapping) else scheme
        same = self.hides and named in (None, self.scheme.name)
        before = {**self._fields(), **({"scheme": self.scheme} if same else {})}
        own, model = self.model_of(self.preset or ""), first_of(values)["model"]
        if own is not None and model not in (None, own):
            before["preset"] = None
        return self.of_layers([Layer(before), *self.layers_of(values)])

    @classmethod
    def of_layers(cls: type[_Own], layers: Sequence[Layer]) -> _Own:
        """Return the configuration that several sources describe, see :meth:`merged`."""
        return cls.merged(layers, cls.of_values)

    @classmethod
    def merged(cls, layers: Sequence[Layer], make: Callable[[dict[str, Any]], _Made]) -> _Made:
        """Return what `make` makes of the values of all layers by flat names; a later layer overrides an earlier one.

        Settings of a model belong to the model that their layer names, or else to the model of the run; those of other
        models are dropped. A layer that gives `lr` resets `base_lr`, and the other way round. The value of `scheme` is
        a name, or a complete :class:`SchemeSpec` as long as no later layer changes what its defaults depend on; the
        options given for it are values of their own, and remain if a later layer names another scheme.

        Raises
        ------
        UserError
            For values that are refused. It names the source of the last layer that gives the field of a
            :class:`FieldError`, or for other errors of the layer that causes it, since the layers before do not.
        """
        layers = cls.with_defaults(layers)

        def refusal(some: Sequence[Layer]) -> UserError | None:
            try:
                make(cls._merge(some))
            except UserError as error:
                return error
            return None

        def is_guilty(place: int) -> bool:
            if isinstance(refused, FieldError):
                try:
                    given = dict(_flat_values(cls, layers[place].values))
                except UserError:  # its scheme has an option that no scheme takes
                    return True
                return refused.name in {*given, *split_options(given)[1]}
            return str(refusal(layers[:place])) != str(refused)

        try:
            return make(cls._merge(layers))
        except UserError as error:
            refused = error
        guilty = next(filter(is_guilty, reversed(range(len(layers)))), 0)
        with naming(layers[guilty].source):
            raise refused

    @classmethod
    def _merge(cls, layers: Sequence[Layer]) -> dict[str, Any]:
        flat = [_each_once(_flat_values(cls, layer.values)) for layer in layers]
        model: Any = cls.model.name
        for layer in flat:
            model = plain(layer.get("model", model))
            if not isinstance(model, str):
                raise UserError(f"model takes a name, not {short_repr(model)}")
        values: dict[str, Any] = {}
        for layer in flat:
            named = layer.get("model", model)
            own = {*cls.settings_of(named).own_fields()} - {*fields_of(cls)}
            later = _each_once((PREFIX + name if name in own else name, value) for name, value in layer.items())
            if named != model:
                later = {name: value for name, value in later.items() if not name.startswith(PREFIX)}
            values = cls._over(values, later)
        return values

    @classmethod
    def _over(cls, before: dict[str, Any], later: dict[str, Any]) -> dict[str, Any]:
        """Return the values with those of a later layer in their place."""
        if later.get("lr") is not None and "base_lr" not in later:
            later["base_lr"] = None
        elif later.get("base_lr") is not None and "lr" not in later:
            later["lr"] = cls.default_of("lr")
        decisive = [name for name in ("model", *cls.decides_scheme) if name in later]
        moved = any(later[name] != before.get(name, cls.default_of(name)) for name in decisive)
        known, named = before.get("scheme"), later.get("scheme")
        if isinstance(named, SchemeSpec):
            before = split_options(before)[0]
        elif isinstance(known, SchemeSpec) and named in (None, known.name):
            later["scheme"] = known.name if moved else known
        return {**before, **later}

    @classmethod
    def with_defaults(cls, layers: Sequence[Layer]) -> Sequence[Layer]:
        """Return the layers of a configuration with those of defaults that follow from the given values."""
        return layers

    @classmethod
    def of_values(cls: type[_Own], values: Mapping[str, Any]) -> _Own:
        """Return a configuration with these values, by flat names, and the domain's defaults for all others."""
        if "data" not in values and not cls.data.source:
            raise UserError("the field 'data' is missing")
        values, options = split_options(values)
        scheme = values.pop("scheme", cls.scheme.name)
        model, known = cls.settings_of(values.get("model", cls.model.name)), fields_of(cls)
        groups: dict[str, dict[str, Any]] = defaultdict(dict)
        for name, value in values.items():
            group, field = known.get(name, ("model", name.removeprefix(PREFIX)))
            if name not in known and (field == name or field not in model.own_fields()):
                raise cls._unknown(name, model, values.get("model", cls.model.name))
            groups[group][field] = value
        own = read_fields(cls, groups.pop("", {}))
        for group, given in groups.items():
            default = getattr(cls, group)
            of = model if group == "model" else type(default)
            made = read_fields(of, given, of.short_name)
            own[group] = dataclasses.replace(default, **made) if of is type(default) else of(**made)
        config = cls(**own)
        if not cls.hides:
            return config
        if not isinstance(scheme, SchemeSpec) or scheme.given_options != options:
            name = scheme.name if isinstance(scheme, SchemeSpec) else scheme
            scheme = SchemeSpec.resolve(name, options, config.scheme_defaults)
        return dataclasses.replace(config, scheme=scheme)

    @classmethod
    def _unknown(cls, name: str, model: type[ModelSettings], named: str) -> FieldError:
        """Return the error for a name that is no field, and no setting of the model."""
        plain = name.removeprefix(PREFIX)
        if name in type(cls.model).own_fields():
            text = f"{name} belongs to the model {cls.model.name!r}, not to {named!r}: omit it "
            return FieldError(name, text + "(options of a model are written --model.NAME)")
        known = cls.names(model) if plain == name else model.own_fields()
        of_model = "" if plain == name else f" of the model {named!r}"
        hint = nearest(plain.rpartition(".")[2], known) if known else "omit it"
        return FieldError(name, f"unknown field {name!r}{of_model}: {hint}")

    @classmethod
    def names(cls, model: type[ModelSettings] | None = None) -> list[str]:
        """Return the short names of all fields, of the scheme's options and of a model's settings."""
        own = (model or type(cls.model)).own_fields()
        options = SCHEME_OPTIONS if cls.hides else ()
        return sorted({*fields_of(cls), *options, *own} - cls.omitted)

    def flat(self) -> dict[str, Any]:
        """Return all fields by their short names, and the scheme's name and options."""
        return {**self._fields(), **({"scheme": self.scheme.name, **self.scheme.options} if self.hides else {})}

    def _fields(self) -> dict[str, Any]:
        """Return all fields by their short names, and the model's settings."""
        known = {
            name: self[name] for name, (group, _) in fields_of(type(self)).items() if not self.omitted & {name, group}
        }
        return {**known, **{PREFIX + name: getattr(self.model, name) for name in type(self.model).own_fields()}}

    def to_dict(self) -> dict[str, Any]:
        """Return plain types, the domain's name first, and the fields of each group below its name."""
        values: dict[str, Any] = {"domain": self.domain}
        for field in dataclasses.fields(self):
            if field.name not in self.omitted:
                value = getattr(self, field.name)
                plain = value.to_dict() if isinstance(value, Group | SchemeSpec) else value
                if isinstance(value, Group):
                    plain = {name: one for name, one in plain.items() if name not in self.omitted}
                values[field.name] = list(plain) if isinstance(plain, tuple) else plain
        return {name: value for name, value in values.items() if value != {}}

    @classmethod
    def from_dict(cls: type[_Own], values: Mapping[str, Any], *, source: str = "configuration") -> _Own:
        """Build from what :meth:`to_dict` writes, exactly as it was, or from values as in :meth:`make`.

        An unknown field raises a UserError. If `source` is a file, such as a run's config.yaml, it may be of another
        version.
        """
        with naming(source):
            try:
                return cls._of_source({name: values[name] for name in values if name != "domain"})
            except FieldError as error:
                if not Path(source).is_file():
                    raise
                raise UserError(
                    f"written by another version of r2mae or another command, or edited: there is no field "
                    f"{error.name!r} here: train again into another --out, or use that version (environment.json)"
                ) from None

    def differences(self, other: "RunConfig") -> dict[str, tuple[Any, Any]]:
        """Return what differs from another configuration: its own and the other's value, by field or scheme option.

        The machine, the evaluation and idle fields are not compared, nor which options of the scheme were given.
        """
        free = {name for name, (group, _) in fields_of(type(self)).items() if group in ("machine", "evaluation")}
        own, others = self.flat(), other.flat()
        pairs = {name: (own.get(name), others.get(name)) for name in {**own, **others}}
        return {
            name: (one, another)
            for name, (one, another) in pairs.items()
            if name not in free | self.idle_fields and one != another
        }


_FIRST = {"domain": "", "data": "source", "preset": "", "model": "name"}  # what decides what other fields mean


def first_of(values: Mapping[str, Any]) -> dict[str, str | None]:
    """Return domain, data, preset and model of the values of one source, whatever their form; others than text fail."""
    found: dict[str, str | None] = {}
    for name, field in _FIRST.items():
        value = plain(values.get(name, values.get(f"{name}.{field}")))
        if field and isinstance(value, Mapping):
            value = plain(value.get(field))
        if not isinstance(value, str | None):
            raise UserError(f"{name} takes {'a name' if name == 'model' else 'text'}, not {short_repr(value)}")
        found[name] = value
    return found


def _is_saved(values: Mapping[str, Any]) -> bool:
    """Whether values are those of :meth:`RunConfig.to_dict`, which lacks none: of this version or of another."""
    scheme = values.get("scheme")
    groups = ("data", "task", "optimizer", "machine")
    return isinstance(scheme, Mapping) and "given" in scheme and all(isinstance(values.get(g), Mapping) for g in groups)


def split_options(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return flat values without the options of schemes, and these options by their own names."""
    options = {name for name in values if name in SCHEME_OPTIONS or name.startswith(SCHEME_PREFIX)}
    others = {name: value for name, value in values.items() if name not in options}
    return others, {name.removeprefix(SCHEME_PREFIX): values[name] for name in values if name in options}


def option_names(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of schemes by flat names."""
    return {name if name in SCHEME_OPTIONS else SCHEME_PREFIX + name: value for name, value in options.items()}


@contextmanager
def naming(source: str | None) -> Iterator[None]:
    """Within the block, errors begin with the name of a source, if there is one."""
    try:
        yield
    except UserError as error:
        if not source:
            raise
        raise UserError(f"{source}: {error}") from None


_FIELDS: dict[type, dict[str, tuple[str, str]]] = {}


def fields_of(kind: type[RunConfig]) -> dict[str, tuple[str, str]]:
    """Return the group and the field of each short name; settings that only some models have are not among them."""
    if kind in _FIELDS:
        return _FIELDS[kind]
    found: dict[str, tuple[str, str]] = {}
    for top in dataclasses.fields(kind):
        default = getattr(kind, top.name)
        if isinstance(default, Group):
            found |= {default.short_name(field.name): (top.name, field.name) for field in dataclasses.fields(default)}
        elif top.name != "scheme":
            found[top.name] = ("", top.name)
    _FIELDS[kind] = {short: place for short, place in found.items() if not short.startswith(PREFIX)}
    return _FIELDS[kind]


def _flat_values(kind: type[RunConfig], values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the values of one source by flat names; a setting of the model may still lack its prefix."""
    for name, value in values.items():
        yield from _entries(kind, str(name), value)


def _entries(kind: type[RunConfig], name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Return the flat names and values of an entry, which may be a group, or have the name of its group before it."""
    group, dot, inner = name.partition(".")
    top, inside = getattr(kind, group, None), {inner: value} if dot else value
    if kind.omitted & {name, group, *fields_of(kind).get(name, ())} or (name in SCHEME_OPTIONS and not kind.hides):
        raise UserError(f"unknown field {name!r}: it has no meaning in a run of {kind.domain}")
    if group == "scheme":
        yield from _scheme_entries(inside)
    elif isinstance(top, Group) and isinstance(inside, Mapping):
        for one, entry in inside.items():
            short, own = top.short_name(str(one)), [field for of, field in fields_of(kind).values() if of == group]
            if group != "model" and one not in own:
                short = f"{group}.{one}"  # which is no field
            if short in kind.omitted:
                raise UserError(f"unknown field {group}.{one}: it has no meaning in a run of {kind.domain}")
            yield short, entry
    else:
        yield name, value


def _scheme_entries(value: Any) -> Iterator[tuple[str, Any]]:
    """Return a scheme and its given options by flat names: of its name, of a complete scheme, or of a mapping."""
    if isinstance(value, Mapping) and "given" in value:
        value = SchemeSpec.from_dict(value)
    if isinstance(value, SchemeSpec):
        yield "scheme", value
        yield from option_names(value.given_options).items()
    elif isinstance(value, Mapping):
        for name, one in value.items():
            yield from _scheme_entries(one) if name == "name" else option_names({name: one}).items()
    elif isinstance(value, str):
        yield "scheme", value
    elif value is not None:
        raise UserError(f"scheme takes a name, not {short_repr(value)}")


def _each_once(entries: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return entries as a dictionary; a name that is given twice is refused."""
    found: dict[str, Any] = {}
    for name, value in entries:
        if name in found:
            raise UserError(f"{name} is given twice, such as by itself and in its group: give it once")
        found[name] = value
    return found
