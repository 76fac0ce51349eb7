"""Models by name: the part of a domain's configuration that chooses a model and contains its settings. No torch.

A domain has a registry: the module of each model, by the model's name. The module has a dataclass ``Settings``, whose
fields become the options ``--model.NAME``, and a function ``build`` that makes task and model. The settings of the
domain's default model are fields of the configuration itself, so their options need no prefix.

Class variables of ``Settings`` describe the model. `takes_mask` is True if the mask can be an input of the model
(`mask_input`). `mask_tokens` is True if hidden entries are mask tokens or omitted, so that the model is mask-aware
without this input. `ignores` names fields of the configuration that have no effect on the model.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

from r2mae.errors import UserError, nearest, unknown
from r2mae.training.config import RunConfig
from r2mae.training.fields import coerce_values, short_repr
from r2mae.training.scheme import SchemeSpec

PREFIX = "model."
MAX_LAYERS = 1000
"""Maximum number of layers of a model; more are a mistake and would take minutes to build."""
_MAXIMUM = 2**31 - 1

_Own = TypeVar("_Own", bound="ModelConfig")


@dataclass(frozen=True, kw_only=True)
class ModelConfig(RunConfig):
    """A run of one of several models.

    Parameters
    ----------
    model : str
        Name of the model.
    model_settings : dataclass or mapping, optional
        Settings of the model, as its module's ``Settings`` or as values by name; by default the model's defaults. For
        the default model they are moved into the fields of the configuration, and this becomes None.
    mask_input : bool
        Give the model the mask as further inputs (1 hidden, 0 visible). It is for mask-blind models, which cannot tell
        a hidden entry from a zero or a mean; models with mask tokens do not need it.
    """

    models: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """The domain's registry: a module for the name of each model."""
    default_settings: ClassVar[type]
    """Settings of the default model, from which the configuration inherits."""

    model: str = "mlp"
    model_settings: Any = None
    mask_input: bool = False

    def __post_init__(self) -> None:
        if self.model not in self.models:
            raise unknown("model", self.model, self.models)
        if self.model == default_model(type(self)):
            self._use_default_settings()
        else:
            self._use_model_settings(settings_of(type(self), self.model))
        self._check_mask_input()
        super().__post_init__()
        for name in self.ignored:
            if getattr(self, name) != self.__dataclass_fields__[name].default:
                with_them = " with these settings" if self.model == default_model(type(self)) else ""
                raise UserError(f"{name} has no effect on the model {self.model!r}{with_them}: omit it")

    def _use_default_settings(self) -> None:
        """Move settings of the default model into fields of the configuration."""
        for name, value in _settings_values(self.model_settings, self.default_settings, self.model).items():
            field = getattr(self, name)
            if field not in (value, self.__dataclass_fields__[name].default):
                raise UserError(f"{name} is {field!r} and {PREFIX}{name} {value!r}: give one of them")
            object.__setattr__(self, name, value)
        object.__setattr__(self, "model_settings", None)

    def _use_model_settings(self, kind: type) -> None:
        """Build the settings of another model; fields of the default model must not be set."""
        object.__setattr__(self, "model_settings", kind(**_settings_values(self.model_settings, kind, self.model)))
        for name in _field_names(self.default_settings):
            if getattr(self, name) != self.__dataclass_fields__[name].default:
                raise UserError(
                    f"{name} belongs to the model {default_model(type(self))!r}, not to {self.model!r}: omit it "
                    f"(options of a model are written --{PREFIX}NAME)"
                )

    def _check_mask_input(self) -> None:
        """Refuse the mask as input of a model that has mask tokens, or does not take a mask."""
        if not self.mask_input or getattr(self.settings, "takes_mask", False):
            return
        if getattr(self.settings, "mask_tokens", False):
            raise UserError(
                f"mask_input has no effect on the model {self.model!r}, which has mask tokens and so is "
                "mask-aware: omit it"
            )
        raise UserError(f"the model {self.model!r} does not take its mask as an input (mask_input): omit it")

    @property
    def ignored(self) -> tuple[str, ...]:
        """Fields without an effect on the model, from `ignores` of its settings; they are refused."""
        return tuple(getattr(self.settings, "ignores", ()))

    def measurement_settings(self) -> dict[str, Any]:
        """Return the measurement fields, without those that have no effect on the model."""
        return {name: value for name, value in super().measurement_settings().items() if name not in self.ignored}

    @property
    def settings(self) -> Any:
        """The settings of the model. For the default model, this is the configuration, which has the same fields."""
        return self if self.model_settings is None else self.model_settings

    def replace(self: _Own, **values: Any) -> _Own:
        """Return the configuration with other values, which may include `model.NAME`, as :meth:`RunConfig.replace`.

        If they name another model, the settings of the previous model are dropped, and options of the scheme that were
        not given follow the new model's defaults.
        """
        settings = {key: value for key, value in values.items() if key.startswith(PREFIX)}
        others = {key: value for key, value in values.items() if key not in settings}
        if "model_settings" in values or not (settings or "model" in values):
            return super().replace(**values)
        fields, scheme, options = self._split(others)
        name = fields.get("model", self.model)
        before = {PREFIX + key if self.model_settings is not None else key for key in self._settings_names()}
        kept = {key: value for key, value in self.to_dict().items() if name == self.model or key not in before}
        complete, spec = "scheme" in fields and not options, fields.pop("scheme", self.scheme)
        kept.pop("scheme", None)
        if name == default_model(type(self)):
            settings = {key.removeprefix(PREFIX): value for key, value in settings.items()}
        made = type(self).from_dict({**kept, **fields, **settings})
        if not made.hides:
            return made
        if complete:
            return dataclasses.replace(made, scheme=spec)
        if scheme is not None and scheme != spec.name:
            spec = SchemeSpec(scheme)
        return made._with_scheme(spec.name, {**spec.given_options, **options})

    def architecture(self) -> dict[str, Any]:
        """Return the name of the model, its settings, and `mask_input` if it is on, in plain types."""
        made = {name: _tuple_as_list(getattr(self.settings, name)) for name in self._settings_names()}
        return {"model": self.model, **made, **({"mask_input": True} if self.mask_input else {})}

    def _settings_names(self) -> list[str]:
        return _field_names(self.default_settings if self.model_settings is None else type(self.model_settings))

    def to_dict(self) -> dict[str, Any]:
        """Return plain types; settings of a model other than the default one are named `model.NAME`."""
        values = super().to_dict()
        own = values.pop("model_settings")
        if own is None:
            return values
        default, made = _field_names(self.default_settings), {}
        for name, value in values.items():
            if name not in default:
                made[name] = value
            if name == "model":
                made |= {PREFIX + key: _tuple_as_list(setting) for key, setting in own.items()}
        return made

    @classmethod
    def from_dict(cls: type[_Own], values: Mapping[str, Any], *, source: str = "configuration") -> _Own:
        """Build from plain types; an unknown field or setting raises a UserError."""
        flat = {key: value for key, value in values.items() if not str(key).startswith(PREFIX)}
        if "model_settings" in flat:
            raise UserError(f"{source}: unknown field 'model_settings': a model's settings are written {PREFIX}NAME")
        own = {key.removeprefix(PREFIX): value for key, value in values.items() if key not in flat}
        name = flat.get("model", default_model(cls))
        if isinstance(name, str) and name not in cls.models:
            raise UserError(f"{source}: {unknown('model', name, cls.models)}")
        if not own:
            return super().from_dict(flat, source=source)
        try:
            return super().from_dict({**flat, "model_settings": own}, source=source)
        except UserError as error:
            message = str(error)
            raise UserError(message if message.startswith(f"{source}: ") else f"{source}: {message}") from None


def architecture_of(config: RunConfig) -> dict[str, Any]:
    """Return the model's name, settings and `mask_input` if a domain has several models, otherwise nothing."""
    return {"mask_input": False, **config.architecture()} if isinstance(config, ModelConfig) else {}


def default_model(kind: type[ModelConfig]) -> str:
    """Return the name of the default model."""
    return str(kind.__dataclass_fields__["model"].default)


def settings_of(kind: type[ModelConfig], model: str) -> type:
    """Return the settings class of a model; the module of a model other than the default one is imported.

    Raises
    ------
    UserError
        If there is no such model.
    """
    if model not in kind.models:
        raise unknown("model", model, kind.models)
    if model == default_model(kind):
        return kind.default_settings
    found: type = import_module(kind.models[model]).Settings
    return found


def build_model(models: Mapping[str, str], architecture: Mapping[str, Any]) -> Any:
    """Build task and model of an architecture, which names its model.

    Raises
    ------
    ValueError
        If no model has that name.
    """
    name = architecture["model"]
    if name not in models:
        raise ValueError(f"unknown model {name!r}")
    return import_module(models[name]).build(architecture)


def check_sizes(
    settings: object, sizes: Sequence[str], *, layers: Sequence[str] = ("layers",), prefix: str = ""
) -> None:
    """Refuse sizes with which no model can be built.

    Parameters
    ----------
    settings : dataclass
        The settings.
    sizes : sequence of str
        Fields that must be 1 or more; None is a size that follows from others.
    layers : sequence of str
        Those of them that must be at most :data:`MAX_LAYERS`.
    prefix : str
        Prefix of the options in error messages.

    Raises
    ------
    UserError
        Names the option.
    """
    for name in sizes:
        value = getattr(settings, name)
        if value is not None and value < 1:
            raise UserError(f"{prefix}{name} must be 1 or more, not {value}")
        if name in layers and value > MAX_LAYERS:
            raise UserError(f"{prefix}{name} must be at most {MAX_LAYERS:,}, not {value:,}")


def check_dropout(dropout: float) -> None:
    """Refuse a dropout outside [0, 1).

    Raises
    ------
    UserError
        Gives the range.
    """
    if not 0 <= dropout < 1:
        raise UserError(f"dropout must be a fraction in [0, 1), not {dropout}")


def saved_layers(architecture: Mapping[str, Any]) -> int:
    """Return the number of layers in the architecture of a run folder.

    Raises
    ------
    ValueError
        If the number is outside 1 to :data:`MAX_LAYERS`.
    """
    layers = int(architecture["layers"])
    if not 1 <= layers <= MAX_LAYERS:
        raise ValueError(f"layers must be 1 to {MAX_LAYERS:,}, not {layers:,}")
    return layers


def _settings_values(given: Any, kind: type, model: str) -> dict[str, Any]:
    """Return the given settings by name, checked against their types."""
    if given is None:
        return {}
    if isinstance(given, kind):
        return {name: getattr(given, name) for name in _field_names(kind)}
    if not isinstance(given, Mapping):
        raise UserError(f"model_settings do not belong to the model {model!r}: pass its Settings, or a mapping by name")
    names = _field_names(kind)
    for name, value in given.items():
        if name not in names:
            raise UserError(f"the model {model!r} has no setting {PREFIX}{name}: {nearest(str(name), names)}")
        if isinstance(value, int) and abs(value) > _MAXIMUM:
            raise UserError(f"{PREFIX}{name} takes numbers up to {_MAXIMUM:,}, not {short_repr(value)}")
    return coerce_values(kind, given, PREFIX)


def _field_names(kind: type) -> list[str]:
    return [field.name for field in dataclasses.fields(kind)]


def _tuple_as_list(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
