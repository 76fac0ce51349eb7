"""Models by name: the settings of a model, a group of fields of the configuration. No torch.

A domain has a registry: the module of each model, by the model's name. The module has a class ``Settings``, whose
fields are the options ``--model.NAME``, and a function ``build`` that makes task and model.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any, ClassVar

from r2mae.errors import UserError, unknown
from r2mae.fields import Range, check_fields
from r2mae.masking.defaults import SchemeDefaults

MAX_LAYERS = 1000
"""Maximum number of layers of a model; more are a mistake and would take minutes to build."""
Layers = Annotated[int, Range(1, MAX_LAYERS)]
"""The type of a setting that is a number of layers."""
PREFIX = "model."
"""What begins the short name of a setting that only one model has."""


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
class ModelSettings(Group):
    """The model of a run, and its settings. Each model has a class of its own, which inherits from this one.

    Parameters
    ----------
    name : str
        Name of the model.
    mask_input : bool
        Give the model the mask as further inputs (1 hidden, 0 visible). It is for mask-blind models, which cannot tell
        a hidden entry from a zero or a mean; models with mask tokens do not need it.
    """

    prefix: ClassVar[str] = PREFIX
    short_names: ClassVar[Mapping[str, str]] = {"name": "model", "mask_input": "mask_input"}
    takes_mask: ClassVar[bool] = False
    """Whether the mask can be an input of the model (`mask_input`)."""
    mask_tokens: ClassVar[bool] = False
    """Whether hidden entries are mask tokens or omitted, so that the model is mask-aware without this input."""
    ratios: ClassVar[SchemeDefaults | None] = None
    """Defaults of the schemes for the model, if not those of the domain."""

    name: str = ""
    mask_input: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.mask_input or self.takes_mask:
            return
        if self.mask_tokens:
            raise UserError(
                f"mask_input has no effect on the model {self.name!r}, which has mask tokens and so is "
                "mask-aware: omit it"
            )
        raise UserError(f"the model {self.name!r} does not take its mask as an input (mask_input): omit it")

    @property
    def ignores(self) -> tuple[str, ...]:
        """Fields of the configuration without an effect on the model; they are refused."""
        return ()

    @classmethod
    def own_fields(cls) -> list[str]:
        """Return the fields of this model alone."""
        return [field.name for field in dataclasses.fields(cls) if field.name not in cls.short_names]

    def architecture(self) -> dict[str, Any]:
        """Return the name of the model, its settings, and `mask_input`, in plain types; without a model, nothing."""
        if not self.name:
            return {}
        plain = self.to_dict()
        own = {name: plain[name] for name in self.own_fields()}
        return {"model": self.name, **own, **({"mask_input": True} if self.mask_input else {})}


def settings_of(models: Mapping[str, str], name: str) -> type[ModelSettings]:
    """Return the settings class of a model; its module is imported."""
    if name not in models:
        raise unknown("model", name, models)
    found = import_module(models[name]).Settings
    if not (isinstance(found, type) and issubclass(found, ModelSettings)):
        raise UserError(f"the Settings of {models[name]} must inherit from r2mae.training.models.ModelSettings")
    return found


def build_model(models: Mapping[str, str], architecture: Mapping[str, Any]) -> Any:
    """Build task and model of an architecture, which names its model."""
    name = architecture["model"]
    if name not in models:
        raise ValueError(f"unknown model {name!r}")
    return import_module(models[name]).build(architecture)


def saved_layers(architecture: Mapping[str, Any]) -> int:
    """Return the number of layers in the architecture of a run folder; others than 1 to :data:`MAX_LAYERS` fail."""
    layers = int(architecture["layers"])
    if not 1 <= layers <= MAX_LAYERS:
        raise ValueError(f"layers must be 1 to {MAX_LAYERS:,}, not {layers:,}")
    return layers
