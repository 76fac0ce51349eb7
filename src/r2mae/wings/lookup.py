"""Find wings by name, and load runs from their folders. A wing and its libraries are imported only when needed."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from r2mae.errors import UserError, nearest, unknown, warn_once
from r2mae.registry import BUILT_IN, FOLLOW_UPS, WINGS, package_of
from r2mae.wings.base import BaseWing

if TYPE_CHECKING:
    from r2mae.catalogue import PublicSet
    from r2mae.training.models import ModelConfig
    from r2mae.training.saving import LoadedRun
    from r2mae.wings.contract import Wing
    from r2mae.wings.options import Command, ModelFormat

_OWN = ("title", "config", "ratios", "metrics_of", "fingerprint", "load", "build", "evaluate", "embed")
_DEFAULTS = tuple(name for name in vars(BaseWing) if not name.startswith("_"))


def get_wing(name: str) -> "Wing":
    """Return a wing.

    Raises
    ------
    UserError
        If there is no such wing, or a library that it needs is not installed (the message names the extra), or it
        comes from another package and is broken.
    """
    if name not in WINGS:
        raise unknown("wing", name, WINGS)
    wing = _object(name, WINGS[name], "WING")
    return cast("Wing", wing) if package_of(name) is None else _checked(name, wing)


def _object(wing: str, target: str, usual: str) -> Any:
    """Import an object of a wing, named as ``module:object`` or ``module``."""
    module, _, attribute = target.partition(":")
    package = package_of(wing)
    try:
        return getattr(import_module(module), attribute or usual)
    except ModuleNotFoundError as error:
        if package is None:
            if error.name is None or error.name.startswith("r2mae"):
                raise
            raise UserError(
                f"the wing {wing!r} needs {error.name!r}, which is not installed: pip install 'r2mae[{wing}]'"
            ) from None
        raise _broken(wing, package, error) from None
    except Exception as error:
        if package is None:
            raise
        raise _broken(wing, package, error) from None  # foreign code may raise anything


def _broken(wing: str, package: str, error: Exception) -> UserError:
    reason = " ".join(f"{type(error).__name__}: {error}".split())[:120]
    return UserError(f"the wing {wing!r} of {package} cannot be loaded ({reason}): repair or uninstall {package}")


def _checked(name: str, wing: Any) -> "Wing":
    """Return a wing of another package, or raise a UserError if it lacks a part that this version needs."""
    package = package_of(name)
    if missing := [part for part in (*_OWN, *_DEFAULTS) if not hasattr(wing, part)]:
        raise UserError(
            f"the wing {name!r} of {package} has no {', '.join(missing)}: it was written for another version, or does "
            "not inherit from r2mae.wings.base.BaseWing"
        )
    if getattr(wing, "name", None) != name or wing.config.wing != name:
        raise UserError(
            f"the wing {name!r} of {package} calls itself otherwise: its entry point, `name` and `config.wing` must be "
            "the same"
        )
    return cast("Wing", wing)


def all_wings() -> "list[Wing]":
    """Return the wings that can be loaded. For one that cannot, a line is logged, once."""
    return list(_each(WINGS))


def _each(names: Iterable[str]) -> "Iterator[Wing]":
    for name in names:
        try:
            yield get_wing(name)
        except UserError as error:
            warn_once(str(error))


def public_sets() -> "dict[str, PublicSet]":
    """Return the named sets of all wings that can be loaded."""
    return {name: entry for wing in all_wings() for name, entry in wing.sets.items()}


def wing_commands() -> dict[str, str]:
    """Return what the commands of all wings do, by name. No wing of this package is imported for it."""
    own = {name: told for wing in BUILT_IN.values() for name, told in wing.commands.items()}
    others = {command.name: command.help for wing in _each(_elsewhere()) for command in wing.command_line.commands}
    return others | own


def wing_command(name: str) -> "tuple[Wing, Command] | None":
    """Return a command of a wing with that wing, or None if no wing has it.

    Raises
    ------
    UserError
        If a library of the wing is not installed.
    """
    own = [wing for wing, entry in BUILT_IN.items() if name in entry.commands]
    wings = map(get_wing, own) if own else _each(_elsewhere())
    found = ((wing, command) for wing in wings for command in wing.command_line.commands)
    return next(((wing, command) for wing, command in found if command.name == name), None)


def _elsewhere() -> list[str]:
    return [name for name in WINGS if name not in BUILT_IN]


def implementation(wing: "Wing", command: "Command") -> Callable[..., None]:
    """Return the function of a wing's command.

    Raises
    ------
    UserError
        If a library that it needs is not installed, or it comes from another package and is broken.
    """
    function: Callable[..., None] = _object(wing.name, command.run, "run")
    return function


def writer(wing: "Wing", layout: "ModelFormat") -> Callable[..., str]:
    """Return the function that writes a wing's models in a layout of other libraries.

    Raises
    ------
    UserError
        As :func:`implementation`.
    """
    function: Callable[..., str] = _object(wing.name, layout.write, "write")
    return function


def wing_of(data: str) -> str | None:
    """Return the wing that a named set belongs to, or None for other names."""
    return _owner(data, WINGS)


def _owner(data: str, names: Iterable[str]) -> str | None:
    return next((wing.name for wing in _each(names) if data in wing.sets), None)


def names_wing(word: str) -> bool:
    """Return whether a word names a wing; wings of other packages are looked up last, since this takes time."""
    return word in BUILT_IN or (_owner(word, BUILT_IN) is None and word in WINGS)


def preset_name(wing: "Wing", preset: str | None, model: str | None) -> str | None:
    """Return the full name of a preset: beside a model, ``tiny`` stands for the model's ``vit-mae-tiny``.

    Raises
    ------
    UserError
        If the preset would need a model, and there is none of this name.
    """
    known = getattr(wing.config, "models", None)
    if preset is not None and preset not in wing.presets and known and model is not None and model not in known:
        raise unknown("model", model, known)
    if preset is None or model is None or preset in wing.presets or f"{model}-{preset}" not in wing.presets:
        return preset
    return f"{model}-{preset}"


def check_preset(wing: "Wing", preset: str | None, model: str | None) -> None:
    """Refuse a preset beside a model that it is not for.

    Parameters
    ----------
    wing : Wing
    preset, model : str, optional
        As a user named them; of the preset the full name (:func:`preset_name`).

    Raises
    ------
    UserError
        It offers the presets of the model.
    """
    from r2mae.training.models import ModelConfig

    kind = wing.config
    if preset is None or model is None or not issubclass(kind, ModelConfig) or model not in kind.models:
        return
    own = [name for name, values in wing.presets.items() if _model_of(kind, values) in (None, model)]
    if preset not in own and wing.presets:
        remedy = nearest(preset, own) if own else "leave --preset out"
        raise UserError(f"the model {model!r} has no preset {preset!r}: {remedy}")


def _model_of(kind: "type[ModelConfig]", preset: Mapping[str, Any]) -> str | None:
    """Return the model that a preset is for; None if it says nothing of models."""
    from r2mae.training.models import usual_model

    if "model" in preset:
        return str(preset["model"])
    of_usual = preset.keys() & {field.name for field in fields(kind.usual_settings)}
    return usual_model(kind) if of_usual else None


def defaults_of(wing: "Wing", data: str | None, preset: str | None) -> dict[str, Any]:
    """Return the defaults that a named set and a preset give to fields of the configuration."""
    fields: dict[str, Any] = {}
    if data is not None:
        fields |= wing.set_defaults.get(data, {})
    if preset is not None:
        if not wing.presets:
            raise UserError(f"the wing {wing.name!r} has no presets: leave --preset out")
        if preset not in wing.presets:
            raise unknown(
                "preset", preset, [name for name in wing.presets if name.endswith(f"-{preset}")] or wing.presets
            )
        fields |= {**wing.presets[preset], "preset": preset}
    return fields


def wing_of_run(config: Mapping[str, Any], path: Path) -> "Wing":
    """Return the wing that a run's configuration names, or what opens a run that started from another one."""
    name = config.get("wing")
    if isinstance(name, str) and name in FOLLOW_UPS:
        return cast("Wing", _object(name, FOLLOW_UPS[name], "WING"))
    if not isinstance(name, str) or name not in WINGS:
        raise UserError(f"{path}: config.yaml names no wing of this version (wing: {name!r})")
    return get_wing(name)


def load(path: str | Path, *, device: str = "cpu") -> "LoadedRun":
    """Load a finished run of any wing from its folder; also available as ``r2mae.load``.

    Raises
    ------
    UserError
        As :func:`r2mae.training.load_model`, or if this version has no such wing.
    """
    from r2mae.training.folder import RunFolder
    from r2mae.training.saving import LoadedRun, load_model

    wing = wing_of_run(RunFolder(path).read_config(), Path(path))
    return LoadedRun(*load_model(path, wing, device=device, whole=True))
