"""The configuration of a run: groups of typed fields, for the command line, YAML files and run folders. No torch."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from r2mae.errors import UserError, nearest
from r2mae.masking.defaults import SchemeDefaults
from r2mae.masking.schemes import SCHEME_OPTIONS
from r2mae.training.config_groups import (
    DataConfig,
    EvaluationConfig,
    Group,
    MachineConfig,
    OptimizerConfig,
    TaskConfig,
    changed,
    check_bounds,
)
from r2mae.training.fields import coerce_values, describe_type, require_at_least, short_repr
from r2mae.training.models import ModelSettings, settings_of
from r2mae.training.scheme import SchemeSpec

if TYPE_CHECKING:
    from r2mae.masking.keys import Key

__all__ = [
    "DataConfig",
    "EvaluationConfig",
    "MachineConfig",
    "ModelSettings",
    "OptimizerConfig",
    "RunConfig",
    "TaskConfig",
    "describe_type",
]

PREFIX = "model."
"""What begins the name of a model's setting."""
SCHEME_OWN = "scheme_options"
"""The option that gives the options that only one scheme has, as NAME=NUMBER."""

DEFAULT_SCHEME = SchemeSpec("r2mae")
"""The scheme of a configuration that names none; its options are resolved when the configuration is made."""

_NAMED_AFTER = {"data": "source", "model": "name", "optimizer": "name"}
_OUTSIDE_OF_GROUPS = ("domain", "preset", "seed", "scheme")
_NAMED_AFTER_GROUP = ("source", "name")  # fields that the short name of their group names: `data`, `model`, `optimizer`

_Own = TypeVar("_Own", bound="RunConfig")


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """A pretraining run.

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
    omitted: ClassVar[frozenset[str]] = frozenset()
    """Groups and fields without a meaning in such runs: they are refused, and not written."""
    common_fields: ClassVar[tuple[str, ...]] = ()
    """Fields of the domain that the short help shows, next to the usual ones of every domain."""
    alternatives: ClassVar[Mapping[str, str]] = MappingProxyType({"lr": "base_lr", "warmup": "warmup_epochs"})
    """Pairs of fields that exclude each other: a given one replaces the preset's other one."""

    preset: str | None = None
    seed: int = 0
    data: DataConfig = DataConfig()
    model: ModelSettings = ModelSettings()
    task: TaskConfig = TaskConfig()
    scheme: SchemeSpec = DEFAULT_SCHEME
    optimizer: OptimizerConfig = OptimizerConfig()
    machine: MachineConfig = MachineConfig()
    evaluation: EvaluationConfig = EvaluationConfig()

    def __post_init__(self) -> None:
        if not isinstance(self.scheme, SchemeSpec):
            raise UserError(
                f"scheme takes a SchemeSpec, not {self.scheme!r}: pass a name and options to {type(self).__name__}.make"
            )
        if self.hides and not self.scheme.options and not self.scheme.given:
            spec = SchemeSpec.resolve(self.scheme.name, {}, self.scheme_defaults)
            object.__setattr__(self, "scheme", spec)
        check_bounds(self)
        require_at_least(self, "seed", 0)
        self._check_alternatives()
        self._check_validation()
        self._check_processes()
        for name in self.model.ignores:
            if self[name] != self.default_of(name):
                raise UserError(f"{name} has no effect on the model {self.model.name!r} with these settings: omit it")
        for name, (group, field) in fields_of(type(self)).items():
            if {name, group} & self.omitted and self[name] != self.default_of(name):
                raise UserError(f"{field} has no meaning in a run of {self.domain}: omit it")

    def _check_alternatives(self) -> None:
        for name, other in self.alternatives.items():
            if self[other] is not None and self[name] != self.default_of(name):
                raise UserError(f"{name} and {other} exclude each other: give one of them")

    def _check_validation(self) -> None:
        """Refuse what needs a validation loss without one, and weights that need one ratio for the mini-batch."""
        from r2mae.masking.ratios import is_per_sample

        for name, off in (("patience", None), ("validate_every", None), ("keep", "last")):
            value = getattr(self.optimizer, name)
            if value != off and self.data.validation == 0:
                raise UserError(f"{name} {value} needs a validation loss: add --validation 0.1")
        if self.task.weighting == "inverse-ratio" and self.hides and is_per_sample(self.scheme.make().ratio):
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
        if not optimizer.compile:
            return
        for name, used in (
            ("sync_batchnorm", machine.sync_batchnorm),
            ("strategy 'fsdp'", machine.strategy == "fsdp"),
            ("activation_checkpointing", machine.activation_checkpointing),
        ):
            if used:
                raise UserError(f"{name} and compile do not go together: omit one")

    def __getitem__(self, name: str) -> Any:
        """Return a field by its short name, such as `lr`."""
        group, field = self.field(name)
        return getattr(getattr(self, group) if group else self, field)

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
    def hides(self) -> bool:
        """Whether the run hides entries, and so has a masking scheme."""
        return "scheme" not in self.omitted

    @property
    def micro_batch(self) -> int:
        """Samples of one micro-batch of one process."""
        return self.optimizer.batch_size // (self.optimizer.accumulate * self.machine.ranks)

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
        """Return the configuration with other values of the group `evaluation`."""
        return self.replace(**options)

    def measurement_settings(self) -> dict[str, Any]:
        """Return the fields of `evaluation` that have an effect, by name; they are stored with every result."""
        values = {field.name: getattr(self.evaluation, field.name) for field in dataclasses.fields(self.evaluation)}
        return {name: value for name, value in values.items() if name not in self.model.ignores}

    def measured_in_words(self) -> str:
        """Return how scores are measured, as text for tables; empty if there is no choice."""
        return ""

    @classmethod
    def default_of(cls, name: str) -> Any:
        """Return the domain's default of a field, by its short name."""
        group, field = fields_of(cls)[name]
        return getattr(getattr(cls, group) if group else cls, field)

    @classmethod
    def default_model(cls) -> str:
        """Return the name of the domain's default model."""
        return cls.model.name

    @classmethod
    def settings_of(cls, model: str) -> type[ModelSettings]:
        """Return the settings class of a model.

        Raises
        ------
        UserError
            If there is no such model.
        """
        if model == cls.default_model() or (not cls.models and not model):
            return type(cls.model)
        return settings_of(cls.models, model)

    def field(self, name: str) -> tuple[str, str]:
        """Return the group and the field of a short name; the group is empty for fields of the configuration itself."""
        known = fields_of(type(self))
        if name not in known and name in type(self.model).own_fields():
            return "model", name
        return known[name]

    @classmethod
    def with_prefixes(cls, values: Mapping[str, Any], model: str | None = None) -> dict[str, Any]:
        """Return values by short names, with ``model.`` before the settings of the model.

        Parameters
        ----------
        values : mapping
            Values by name, as in :meth:`make`.
        model : str, optional
            The model, if the values do not name one; by default the domain's.

        Raises
        ------
        UserError
            For unknown groups or models, and a value that is given twice.
        """
        flat, known = _short_names(cls, values), {*fields_of(cls), *SCHEME_OPTIONS}
        name = flat.get("model") or model or cls.default_model()
        own = set() if not isinstance(name, str) else set(cls.settings_of(name).own_fields())
        found: dict[str, Any] = {}
        for key, value in flat.items():
            _put(found, PREFIX + key if key in own - known else key, value)
        return found

    @classmethod
    def make(cls: type[_Own], **values: Any) -> _Own:
        """Return a configuration with these values, and the domain's defaults for all others.

        Parameters
        ----------
        **values
            Fields by their short names, such as ``data="digits", lr=0.01``; options of the scheme by name, such as
            ``scheme="r2mae", low=0.5``, where None keeps the default; settings of the model as ``hidden`` or
            ``model.hidden``; or groups as mappings, as in config.yaml.

        Raises
        ------
        UserError
            For values that are refused.
        """
        return cls._make(None, values)

    def replace(self: _Own, **values: Any) -> _Own:
        """Return the configuration with other values, given as in :meth:`make`.

        Another scheme has none of the options given before, and another model none of the settings. If the defaults of
        the schemes differ for the new values, options that were not given follow them.

        Raises
        ------
        UserError
            For values that are refused.
        """
        return type(self)._make(self, values)

    @classmethod
    def _make(cls: type[_Own], before: _Own | None, values: Mapping[str, Any]) -> _Own:
        values = cls._one_of_each_pair(_short_names(cls, values))
        if before is None and "data" not in values and not cls.data.source:
            raise UserError("the field 'data' is missing")
        groups: dict[str, Any] = {name: getattr(before or cls, name) for name in group_names(cls)}
        groups["model"], values = cls._model(groups["model"], values)
        scheme = {name: values.pop(name) for name in [*values] if name in ("scheme", SCHEME_OWN, *SCHEME_OPTIONS)}
        own: dict[str, Any] = {}
        by_group: dict[str, dict[str, Any]] = {}
        known = fields_of(cls)
        for name, value in values.items():
            if name not in known:
                raise UserError(f"unknown field {name!r}: {nearest(str(name), cls.names(groups['model']))}")
            group, field = known[name]
            (by_group.setdefault(group, {}) if group else own)[field] = value
        for group, given in by_group.items():
            groups[group] = dataclasses.replace(groups[group], **coerce_values(type(groups[group]), given, group=group))
        own = coerce_values(cls, own)
        rest = (
            {} if before is None else {name: getattr(before, name) for name, (group, _) in known.items() if not group}
        )
        made = cls(**{**rest, **own, **groups})
        return made._with_scheme(before, scheme)

    @classmethod
    def _one_of_each_pair(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Return the values, with a field of :attr:`alternatives` that is given alone in the place of the other."""
        for one, other in cls.alternatives.items():
            if values.get(one) is not None and other not in values:
                values = {**values, other: None}
            elif values.get(other) is not None and one not in values:
                values = {**values, one: cls.default_of(one)}
        return values

    @classmethod
    def _model(cls, model: ModelSettings, values: dict[str, Any]) -> tuple[ModelSettings, dict[str, Any]]:
        """Return the model that these values choose, and the values without its settings."""
        name = values.get("model", model.name)
        if not isinstance(name, str):
            raise UserError(f"model takes a name, not {short_repr(name)}")
        kind = type(model) if name == model.name else cls.settings_of(name)
        own, known = kind.own_fields(), fields_of(cls)
        given: dict[str, Any] = {}
        others: dict[str, Any] = {}
        for field, value in values.items():
            short = field.removeprefix("model.")
            if short != field and short not in own:
                hint = nearest(short, own) if own else "omit it"
                raise UserError(f"the model {name!r} has no setting {field}: {hint}")
            if short != field or (field in own and field not in known):
                if short in given:
                    raise UserError(f"{short} and model.{short} are the same setting: give one of them")
                given[short] = value
            elif field == "mask_input":
                given[field] = value
            elif field != "model":
                _refuse_setting_of_other_model(cls, name, field)
                others[field] = value
        given = coerce_values(kind, given, group="model")
        if kind is type(model):
            return dataclasses.replace(model, name=name, **given), others
        return kind(**{"mask_input": model.mask_input, **given, "name": name}), others

    def _with_scheme(self: _Own, before: _Own | None, given: Mapping[str, Any]) -> _Own:
        """Return the configuration with the given scheme and options, or with those of before."""
        name = given.get("scheme")
        options = {key: value for key, value in given.items() if key in SCHEME_OPTIONS and value is not None}
        options |= own_options(given.get(SCHEME_OWN))
        if isinstance(name, Mapping):
            if options:
                raise UserError(f"{next(iter(options))} is outside of the scheme, whose options are all inside")
            if "given" in name:
                name = SchemeSpec.from_dict(name, "scheme")
            else:
                options = {key: value for key, value in name.items() if key != "name"}
                name = name.get("name")
        if not isinstance(name, str | SchemeSpec | None):
            raise UserError(f"scheme takes a name, not {short_repr(name)}")
        if not self.hides:
            if name is not None or options:
                named = next(iter(options), "scheme")
                raise UserError(f"{named} has no meaning in a run of {self.domain}, which hides nothing: omit it")
            return self
        old = DEFAULT_SCHEME if before is None else before.scheme
        if isinstance(name, SchemeSpec):
            old, name = name, None
        elif name is not None and name != old.name:
            old = SchemeSpec(name)
        same = before is None or before.scheme_defaults == self.scheme_defaults
        if old.options and not options and same:
            return dataclasses.replace(self, scheme=old)
        spec = SchemeSpec.resolve(old.name, {**old.given_options, **options}, self.scheme_defaults)
        return dataclasses.replace(self, scheme=spec)

    @classmethod
    def names(cls, model: ModelSettings | None = None) -> list[str]:
        """Return the short names of all fields, of the scheme's options and of a model's settings."""
        own = type(model or cls.model).own_fields()
        options = () if "scheme" in cls.omitted else SCHEME_OPTIONS
        return sorted({*fields_of(cls), *options, *own} - cls.omitted)

    def flat(self) -> dict[str, Any]:
        """Return all fields by their short names, and the scheme's name and options."""
        known = {
            name: self[name] for name, (group, _) in fields_of(type(self)).items() if not self.omitted & {name, group}
        }
        settings = {name: getattr(self.model, name) for name in type(self.model).own_fields()}
        scheme = {"scheme": self.scheme.name, **self.scheme.options} if self.hides else {}
        return {**known, **{f"model.{name}": value for name, value in settings.items()}, **scheme}

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
        """Build from what :meth:`to_dict` writes, or from short names; an unknown field raises a UserError."""
        try:
            return cls._make(None, {str(key): value for key, value in values.items() if key != "domain"})
        except UserError as error:
            message = str(error)
            raise UserError(message if message.startswith(f"{source}: ") else f"{source}: {message}") from None

    def differences(self, other: "RunConfig") -> dict[str, tuple[Any, Any]]:
        """Return what differs from another configuration: its own and the other's value, by field or scheme option.

        The machine, the evaluation and idle fields are not compared, nor which options of the scheme were given.
        """
        free = {name for name, (group, _) in fields_of(type(self)).items() if group in ("machine", "evaluation")}
        pairs = changed(self.flat(), other.flat())
        if self.scheme != other.scheme:  # 1 is a step, and 1.0 the end of the run
            own, others = self.scheme.options, other.scheme.options
            pairs |= {name: (own[name], others[name]) for name in own if name in others and _unlike(own, others, name)}
        return {name: pair for name, pair in pairs.items() if name not in free | self.idle_fields}


def _unlike(own: Mapping[str, Any], others: Mapping[str, Any], name: str) -> bool:
    return (type(own[name]), own[name]) != (type(others[name]), others[name])


_FIELDS: dict[type, dict[str, tuple[str, str]]] = {}


def fields_of(kind: type[RunConfig]) -> dict[str, tuple[str, str]]:
    """Return the group and the field of each short name; settings that only some models have are not among them."""
    if kind not in _FIELDS:
        _FIELDS[kind] = _find_fields(kind)
    return _FIELDS[kind]


def _find_fields(kind: type[RunConfig]) -> dict[str, tuple[str, str]]:
    found: dict[str, tuple[str, str]] = {}
    for top in dataclasses.fields(kind):
        default = getattr(kind, top.name)
        if not isinstance(default, Group):
            if top.name != "scheme":
                found[top.name] = ("", top.name)
            continue
        own = set(type(default).own_fields()) if isinstance(default, ModelSettings) else set()
        for field in dataclasses.fields(default):
            if field.name not in own:
                short = top.name if field.name in _NAMED_AFTER_GROUP else field.name
                found[short] = (top.name, field.name)
    return found


def group_names(kind: type[RunConfig]) -> tuple[str, ...]:
    """Return the names of the groups of a configuration."""
    return tuple(top.name for top in dataclasses.fields(kind) if isinstance(getattr(kind, top.name), Group))


def _short_names(kind: type[RunConfig], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values by short names; groups are mappings of fields, or prefixes as in `optimizer.lr`."""
    groups = group_names(kind)
    flat: dict[str, Any] = {}
    for name, value in values.items():
        group, dot, field = str(name).partition(".")
        if name in kind.omitted or group in kind.omitted:
            raise UserError(f"unknown field {name!r}: it has no meaning in a run of {kind.domain}")
        fields = value.to_dict() if isinstance(value, Group) else value
        if name in groups and isinstance(fields, Mapping):
            entries = {str(key): entry for key, entry in fields.items()}
        elif dot and group in groups and (group != "model" or field in ("name", "mask_input")):
            entries = {field: value}
        else:
            _put(flat, str(name), value)
            continue
        allowed = {field: short for short, (of, field) in fields_of(kind).items() if of == group}
        for key, entry in entries.items():
            if key not in allowed and group != "model":
                raise UserError(f"unknown field {group}.{key}: {nearest(key, sorted(allowed))}")
            _put(flat, allowed.get(key, f"model.{key}"), entry)
    return flat


def _put(flat: dict[str, Any], name: str, value: Any) -> None:
    if name in flat:
        raise UserError(f"{name} is given twice, such as by itself and in its group: give it once")
    flat[name] = value


def flat_names(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a file by short names, whichever domain it is of.

    The scheme of a run stays a mapping, and so does what is no group.
    """
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if not isinstance(value, Mapping) or name not in group_names(RunConfig):
            _put(flat, str(name), value)
            continue
        for key, entry in value.items():
            named = _NAMED_AFTER.get(str(name)) == key
            if not named and key in (*_NAMED_AFTER_GROUP, *_OUTSIDE_OF_GROUPS, *SCHEME_OPTIONS):
                raise UserError(f"unknown field {name}.{key}: move it out of the group")
            settings = name == "model" and key != "mask_input"
            _put(flat, str(name) if named else PREFIX + str(key) if settings else str(key), entry)
    return flat


def _refuse_setting_of_other_model(kind: type[RunConfig], model: str, name: str) -> None:
    """Say which model a setting is of, if it is one of the default model's."""
    if name not in fields_of(kind) and name in type(kind.model).own_fields():
        raise UserError(
            f"{name} belongs to the model {kind.default_model()!r}, not to {model!r}: omit it "
            "(options of a model are written --model.NAME)"
        )


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
